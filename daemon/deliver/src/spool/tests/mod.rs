//! Tests the spool against a disk that loses power, against a plain queue, and against every flipped byte.

mod crash;
mod disk;
mod rules;

use std::{collections::BTreeSet, sync::Arc};

use weir_schema::{Encoded, Reason, Tombstone};

use super::{Limits, Spool, files::Files};

/// The report with this number, of one run.
fn report(seq: u64) -> Encoded {
    // Reports of different sizes, not all of them small.
    let filling: String = (0..seq % 7 * 40).map(|nth| char::from(b'a' + ((nth * seq + nth) % 26) as u8)).collect();
    let id = id(seq);
    let line = format!("{{\"id\":\"{id}\",\"filling\":\"{filling}\"}}\n");
    Encoded { id, line: line.into_bytes().into() }
}

fn id(seq: u64) -> String {
    format!("7f3c9a52/0000b41d/{seq}")
}

const ROOMY: Limits = Limits { bytes: 1 << 30, age: None, memory: 1000, sync: true };

fn open(disk: &Arc<disk::Disk>, limits: Limits) -> Spool {
    let files: Box<dyn Files> = Box::new(disk.clone());
    Spool::open(files, limits).expect("a folder that can be listed can be opened").0
}

/// Everything that a collector has received: numbers of reports, and tombstones.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    reports: Vec<u64>,
    lost: Vec<(u64, u64, Reason)>,
}

impl Received {
    /// Delivers everything, `count` at a time.
    fn drain(spool: &Spool, count: usize) -> Self {
        let mut received = Self::default();
        loop {
            let batch = spool.batch(count, 1 << 20, &BTreeSet::new()).expect("readable");
            if batch.parcels.is_empty() {
                return received;
            }
            received.take(&batch);
            spool.delivered(&batch);
        }
    }

    fn take(&mut self, batch: &super::Batch) {
        for parcel in &batch.parcels {
            if parcel.is_report {
                let seq = parcel.encoded.id.rsplit('/').next().and_then(|seq| seq.parse().ok()).expect("a number");
                assert_eq!(parcel.encoded, report(seq), "a report comes as it was kept");
                self.reports.push(seq);
            } else {
                let stone: Tombstone = serde_json::from_slice(&parcel.encoded.line).expect("a tombstone");
                self.lost.push((stone.first_seq, stone.last_seq, stone.reason));
            }
        }
    }

    /// The numbers of all lost reports.
    fn lost_numbers(&self) -> impl Iterator<Item = u64> {
        self.lost.iter().flat_map(|(first, last, _)| *first..=*last)
    }
}
