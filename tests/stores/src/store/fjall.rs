use std::path::Path;

use anyhow::{Context, Result};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Reports, Store};
use crate::damage;

/// fjall, with its journal synced after each report.
pub struct Fjall;

fn open(folder: &Path) -> fjall::Result<(Database, Keyspace)> {
    let database = Database::builder(folder).open()?;
    let reports = database.keyspace("reports", KeyspaceCreateOptions::default)?;
    Ok((database, reports))
}

impl Store for Fjall {
    const NAME: &str = "fjall";

    fn fill(folder: &Path, reports: &Reports, copied: &Path) -> Result<()> {
        let (database, keyspace) = open(folder)?;
        for (nth, (number, report)) in reports.iter().enumerate() {
            if nth == reports.len() / 2 {
                // Half of the reports are in a table, and half in the journal.
                keyspace.rotate_memtable_and_wait()?;
            }
            keyspace.insert(number.to_be_bytes(), report)?;
            database.persist(PersistMode::SyncAll)?;
        }
        Ok(damage::copy(folder, copied)?)
    }

    fn read(folder: &Path) -> Result<Reports> {
        let (_database, keyspace) = open(folder)?;
        let mut reports = Reports::new();
        for entry in keyspace.iter() {
            let (number, report) = entry.into_inner()?;
            let number = number.as_ref().try_into().context("a key of another length")?;
            reports.insert(u64::from_be_bytes(number), report.to_vec());
        }
        Ok(reports)
    }
}
