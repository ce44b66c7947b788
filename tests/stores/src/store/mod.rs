//! The stores that are compared.

mod fjall;
mod redb;
mod sqlite;
mod weir;

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;

pub use self::{fjall::Fjall, redb::Redb, sqlite::Sqlite, weir::Weir};

/// Reports by their numbers.
pub type Reports = BTreeMap<u64, Vec<u8>>;

/// A place for reports on disk.
pub trait Store {
    /// The name of the store.
    const NAME: &str;

    /// Stores reports in a new folder, each one synced, and copies the folder while the store is still open, which is
    /// its state after SIGKILL.
    fn fill(folder: &Path, reports: &Reports, copied: &Path) -> Result<()>;

    /// Opens a folder, and reads all reports in it.
    fn read(folder: &Path) -> Result<Reports>;
}
