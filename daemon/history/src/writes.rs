//! Says once that files cannot be written, and once that they can again.

use std::{
    io, mem,
    path::{Path, PathBuf},
};

use tracing::{info, warn};

/// The results of writing to a folder.
#[derive(Debug)]
pub struct Writes {
    /// What is written, such as `history`.
    what: &'static str,
    folder: PathBuf,
    /// What a failure means, in a sentence.
    meaning: &'static str,
    /// True if the last write failed.
    pub is_failing: bool,
}

impl Writes {
    /// Writes that have not failed yet.
    pub fn new(what: &'static str, folder: &Path, meaning: &'static str) -> Self {
        Self { what, folder: folder.to_owned(), meaning, is_failing: false }
    }

    /// Those of the history.
    pub fn of_history(folder: &Path) -> Self {
        Self::new("history", folder, "It continues in memory; a restart loses everything that is not written")
    }

    /// Logs when writing begins to fail, and when it works again.
    pub fn note(&mut self, result: io::Result<()>) {
        let what = self.what;
        match result {
            Ok(()) if mem::take(&mut self.is_failing) => info!("the {what} is written again"),
            Err(error) if !mem::replace(&mut self.is_failing, true) => {
                warn!("cannot write the {what} to {}: {error}. {}", self.folder.display(), self.meaning);
            }
            _ => {}
        }
    }
}
