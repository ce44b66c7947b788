use std::{fs, path::Path};

use anyhow::Result;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Reports, Store};
use crate::damage;

/// redb, with its default: each commit is synced.
pub struct Redb;

const FILE: &str = "reports.redb";
const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("reports");

impl Store for Redb {
    const NAME: &str = "redb";

    fn fill(folder: &Path, reports: &Reports, copied: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let database = Database::create(folder.join(FILE))?;
        for (number, report) in reports {
            let change = database.begin_write()?;
            change.open_table(TABLE)?.insert(number, report.as_slice())?;
            change.commit()?;
        }
        Ok(damage::copy(folder, copied)?)
    }

    fn read(folder: &Path) -> Result<Reports> {
        let database = Database::create(folder.join(FILE))?;
        let table = database.begin_read()?.open_table(TABLE)?;
        let mut reports = Reports::new();
        for row in table.iter()? {
            let (number, report) = row?;
            reports.insert(number.value(), report.value().to_vec());
        }
        Ok(reports)
    }
}
