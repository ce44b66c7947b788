use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use weir_deliver::spool::{Limits, Spool, root::SpoolRoot};
use weir_schema::Encoded;

use super::{Reports, Store};
use crate::damage;

/// weir's spool, each report synced.
pub struct Weir;

const SINK: &str = "http://collector.example/";

fn open(folder: &Path) -> Result<Arc<Spool>> {
    let limits = Limits { bytes: 64 << 20, age: None, memory: 64, sync: true };
    Ok(SpoolRoot::take(folder, limits)?.open(SINK, SINK, 64))
}

impl Store for Weir {
    const NAME: &str = "weir";

    fn fill(folder: &Path, reports: &Reports, copied: &Path) -> Result<()> {
        let spool = open(folder)?;
        for (number, report) in reports {
            let line = [report, &b"\n"[..]].concat();
            spool.keep(Encoded { id: format!("7f3c9a52/0000b41d/{number}"), line: line.into() }, 1)?;
        }
        Ok(damage::copy(folder, copied)?)
    }

    /// Damaged reports are not returned: they have a tombstone.
    fn read(folder: &Path) -> Result<Reports> {
        let spool = open(folder)?;
        let mut reports = Reports::new();
        loop {
            let batch = spool.batch(100, 1 << 20)?;
            if batch.parcels.is_empty() {
                return Ok(reports);
            }
            for parcel in batch.parcels.iter().filter(|parcel| parcel.is_report) {
                let Encoded { id, line } = &parcel.encoded;
                let number = id.rsplit('/').next().context("an id without a number")?.parse()?;
                reports.insert(number, line.strip_suffix(b"\n").unwrap_or(line).to_vec());
            }
            spool.delivered(&batch);
        }
    }
}
