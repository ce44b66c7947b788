//! Simulates a crash after every step, with every state in which it may leave the disk.

use std::{collections::BTreeSet, sync::Arc};

use weir_schema::Reason;

use super::{
    super::{Limits, files::Files},
    ROOMY, Received,
    disk::{Disk, Rest},
    open, report,
};

/// With up to this many pending changes, all combinations are tried; with more, only some.
const ALL_COMBINATIONS: usize = 7;
const SOME: u64 = 32;

/// A random number generator: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The state that was guaranteed when the power failed.
#[derive(Default)]
struct Promised {
    /// Reports that are on disk according to the spool.
    kept: BTreeSet<u64>,
    /// Reports and tombstones that the collector has received.
    received: Received,
    /// Reports that were offered at all.
    offered: BTreeSet<u64>,
}

/// Uses a spool as sinks do, in random order, until the power fails or the work is done. Returns what was promised, and
/// whether the power has failed.
fn work(disk: &Arc<Disk>, limits: Limits, seed: u64) -> (Promised, bool) {
    let mut random = Random(seed);
    let mut promised = Promised::default();
    let mut spool = open(disk, limits);
    for seq in 1..=24 {
        let report = report(seq);
        promised.offered.insert(seq);
        if spool.keep(report, 1000 + seq).is_ok() && !disk.has_failed() {
            promised.kept.insert(seq);
        }
        if disk.has_failed() {
            return (promised, true);
        }
        match random.below(7) {
            0 | 1 => {
                let batch = spool.batch(1 + random.below(3) as usize, 4096, &BTreeSet::new()).unwrap();
                promised.received.take(&batch);
                spool.delivered(&batch);
            }
            2 => drop(spool.batch(2, 4096, &BTreeSet::new())),
            3 => {
                let batch = spool.batch(1, 4096, &BTreeSet::new()).unwrap();
                if let Some(parcel) = batch.parcels.first() {
                    // The collector has seen a tombstone even if it refuses it.
                    if !parcel.is_report {
                        promised.received.take(&batch);
                    }
                    spool.refused(parcel, "400 Bad Request: no");
                }
            }
            4 => {
                drop(spool);
                spool = open(disk, limits);
            }
            _ => {}
        }
        if disk.has_failed() {
            return (promised, true);
        }
    }
    (promised, false)
}

/// Every state in which a crash may leave this disk, or some of them if there are too many.
fn images(disk: &Disk, random: &mut Random) -> Vec<Arc<Disk>> {
    let pending = disk.pending();
    let combinations: Vec<u64> = match pending {
        0..=ALL_COMBINATIONS => (0..1 << pending).collect(),
        _ => [0, u64::MAX].into_iter().chain((0..SOME).map(|_| random.next())).collect(),
    };
    combinations.into_iter().flat_map(|kept| Rest::ALL.map(|rest| disk.after_crash(kept, rest))).collect()
}

fn small(sync: bool) -> Limits {
    Limits { bytes: 10 * 4096, age: None, memory: 3, sync }
}

#[test]
fn no_crash_loses_a_report_that_was_synced_or_keeps_a_spool_from_opening() {
    let mut crashes = 0;
    for seed in 0..6 {
        for steps in 0.. {
            let disk = Arc::<Disk>::default();
            disk.fail_after(steps);
            let (promised, has_failed) = work(&disk, small(true), seed);
            for image in images(&disk, &mut Random(steps as u64)) {
                crashes += 1;
                let spool = open(&image, small(true));
                let after = Received::drain(&spool, 5);
                let lost: BTreeSet<u64> = after.lost_numbers().chain(promised.received.lost_numbers()).collect();
                let has: BTreeSet<u64> = after.reports.iter().chain(&promised.received.reports).copied().collect();
                let context = || format!("seed {seed}, {steps} steps: {after:?}, before {:?}", promised.received);
                for kept in &promised.kept {
                    assert!(has.contains(kept) || lost.contains(kept), "{kept} is nowhere: {}", context());
                }
                assert!(has.union(&lost).all(|seq| promised.offered.contains(seq)), "{}", context());
                assert!(after.reports.is_sorted_by(|a, b| a < b), "in order, each once: {}", context());
                let none = BTreeSet::from_iter(after.reports.iter().copied());
                assert!(
                    after.lost_numbers().all(|lost| !none.contains(&lost)),
                    "there, and called lost: {}",
                    context()
                );
                assert!(!after.lost.iter().any(|(.., reason)| *reason == Reason::Damaged), "{}", context());
                assert!(spool.keep(report(99), 2000).is_ok(), "it goes on");
                assert_eq!(Received::drain(&spool, 5).reports, [99]);
            }
            if !has_failed {
                break;
            }
        }
    }
    assert!(crashes > 10_000, "{crashes} crashes");
}

#[test]
fn without_fsync_a_crash_costs_reports_but_never_the_spool() {
    for seed in 0..2 {
        for steps in 0.. {
            let disk = Arc::<Disk>::default();
            disk.fail_after(steps);
            let (promised, has_failed) = work(&disk, small(false), seed);
            for image in images(&disk, &mut Random(steps as u64)) {
                let spool = open(&image, small(false));
                let after = Received::drain(&spool, 5);
                // Damage is reported, and everything else is unchanged.
                assert!(after.reports.iter().all(|seq| promised.offered.contains(seq)), "{after:?}");
                assert!(spool.keep(report(99), 2000).is_ok(), "it goes on");
                assert_eq!(Received::drain(&spool, 5).reports, [99]);
            }
            if !has_failed {
                break;
            }
        }
    }
}

#[test]
fn a_flipped_byte_costs_one_report() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, ROOMY);
    for seq in 1..=4 {
        spool.keep(report(seq), 1000).unwrap();
    }
    drop(spool);
    let mut flips = 0;
    for name in disk.names() {
        let content = disk.content(&name);
        let seq: u64 = name.split('.').nth(4).unwrap().parse().unwrap();
        for at in 0..content.len() {
            let image = disk.after_crash(u64::MAX, Rest::All);
            let mut flipped = content.clone();
            flipped[at] ^= 1 << (at % 8);
            image.put(&name, &flipped);
            let spool = open(&image, ROOMY);
            let received = Received::drain(&spool, 10);
            let others: Vec<u64> = (1..=4).filter(|other| *other != seq).collect();
            assert_eq!(received, Received { reports: others, lost: vec![(seq, seq, Reason::Damaged)] }, "{name} {at}");
            assert_eq!(spool.holding().lost[&Reason::Damaged], 1);
            flips += 1;
        }
        for cut in [0, 1, content.len() / 2, content.len() - 1] {
            let image = disk.after_crash(u64::MAX, Rest::All);
            image.put(&name, &content[..cut]);
            let received = Received::drain(&open(&image, ROOMY), 10);
            assert_eq!(received.lost, [(seq, seq, Reason::Damaged)], "{name} cut to {cut}");
        }
    }
    assert!(flips > 200, "{flips} flips");
}

#[test]
fn files_of_others_stay_and_do_no_harm() {
    let disk = Arc::<Disk>::default();
    for name in ["core", "report.json.gz", "17.json.gz", ".hidden", "unfinished"] {
        disk.put(name, b"what is this?");
    }
    let (spool, found) = super::Spool::open(Box::new(disk.clone()) as Box<dyn Files>, ROOMY).unwrap();
    assert_eq!((found.foreign, found.unfinished, found.reports), (4, true, 0));
    spool.keep(report(1), 1000).unwrap();
    assert_eq!(Received::drain(&spool, 10).reports, [1]);
    assert_eq!(disk.names(), [".hidden", "17.json.gz", "core", "report.json.gz"]);
}
