use std::{fs, path::Path};

use anyhow::Result;
use rusqlite::Connection;

use super::{Reports, Store};
use crate::damage;

/// SQLite with a write-ahead log, each change synced.
pub struct Sqlite;

const FILE: &str = "reports.sqlite";

impl Store for Sqlite {
    const NAME: &str = "SQLite";

    fn fill(folder: &Path, reports: &Reports, copied: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let database = Connection::open(folder.join(FILE))?;
        database.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE reports (number INTEGER PRIMARY KEY, report BLOB)",
        )?;
        for (nth, (number, report)) in reports.iter().enumerate() {
            if nth == reports.len() / 2 {
                // Half of the reports are in the database file, and half in its log.
                database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            }
            database.execute("INSERT INTO reports VALUES (?1, ?2)", (i64::try_from(*number)?, report))?;
        }
        Ok(damage::copy(folder, copied)?)
    }

    fn read(folder: &Path) -> Result<Reports> {
        let database = Connection::open(folder.join(FILE))?;
        let mut statement = database.prepare("SELECT number, report FROM reports")?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))?;
        rows.map(|row| row.map(|(number, report)| Ok((number.try_into()?, report)))?).collect()
    }
}
