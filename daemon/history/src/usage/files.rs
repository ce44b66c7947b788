//! The folder `usage` in the state directory.
//!
//! | file | is |
//! |---|---|
//! | `2026-11` | an hour of all interfaces ([`Block`]) for each hour of a month in UTC, in the order in which they ended |
//! | `open` | the hour that was open a minute ago |
//! | `hosts-2026-11` | a day of all hosts ([`Day`]) for each day of a month in UTC |
//! | `hosts-open` | the day that was open a minute ago |
//!
//! [`Block`]: super::hour::Block
//! [`Day`]: super::hosts::Day
//!
//! A file of a month only grows. The oldest files are removed, by their number and not by their age: a clock that is
//! wrong for a while must not remove anything.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use weir_system::plain_file;

use super::entry::{self, Entry};
use crate::{archive::replace, disk};

/// The folder in the state directory.
const FOLDER: &str = "usage";
const OPEN: &str = "open";
/// Months that are kept: thirteen, the one that is open, and one more for a clock that was wrong.
const MONTHS_KEPT: usize = 15;
/// The largest size of a file, in bytes: more than a month of 64 interfaces and directions has.
const FILE_MAX: u64 = 16 << 20;

/// The folder.
#[derive(Clone, Debug)]
pub struct Files {
    folder: PathBuf,
    observer: String,
}

impl Files {
    /// The folder in this state directory, for this observer.
    pub fn new(state_directory: &Path, observer: &str) -> Self {
        Self { folder: state_directory.join(FOLDER), observer: observer.to_owned() }
    }

    /// Creates the folder.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn create(&self) -> io::Result<()> {
        disk::create(&self.folder)
    }

    /// Calls `each` with every entry of a month, one by one. Returns how many bytes of its file are damaged.
    pub fn visit<E: Entry>(&self, month: &str, each: impl FnMut(E)) -> usize {
        let path = self.path_of::<E>(month);
        let mut bytes = Vec::new();
        match plain_file::open(&path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes)) {
            Ok(_) => return entry::visit(&bytes, &self.observer, each),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => warn!("cannot read {}: {error}: `weir usage` lacks what it has", path.display()),
        }
        0
    }

    /// The entry that was open when it was written last, unless it is in the file of its month already.
    pub fn open_entry<E: Entry>(&self) -> Option<E> {
        let mut open = None;
        self.visit(OPEN, |entry: E| open = Some(entry));
        let open = open?;
        let mut is_closed = false;
        self.visit(&open.month(), |entry: E| is_closed |= entry.id() == open.id());
        (!is_closed).then_some(open)
    }

    /// The months that there are files of, the oldest first.
    pub fn months<E: Entry>(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let month = |name: String| name.strip_prefix(E::PREFIX).filter(|name| is_month(name)).map(str::to_owned);
        let mut months: Vec<_> = names.filter_map(month).collect();
        months.sort_unstable();
        months
    }

    /// Adds a closed entry to the file of its month.
    ///
    /// # Errors
    ///
    /// The system refuses. The file may have a part of the entry, which readers skip.
    pub fn append<E: Entry>(&self, closed: &E) -> io::Result<()> {
        let path = self.path_of::<E>(&closed.month());
        let is_new = !path.exists();
        plain_file::append(&path, 0o600)?.write_all(&entry::to_bytes(closed, &self.observer))?;
        if is_new {
            self.prune::<E>();
        }
        Ok(())
    }

    /// Replaces the open entry. After a crash it is either the old one or the new one.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn write_open<E: Entry>(&self, open: &E) -> io::Result<()> {
        replace(&self.folder, &format!("{}{OPEN}", E::PREFIX), &entry::to_bytes(open, &self.observer))
    }

    /// The path of the file of a month.
    pub fn path_of<E: Entry>(&self, month: &str) -> PathBuf {
        self.folder.join(format!("{}{month}", E::PREFIX))
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    fn prune<E: Entry>(&self) {
        let months = self.months::<E>();
        for month in &months[..months.len().saturating_sub(MONTHS_KEPT)] {
            match fs::remove_file(self.path_of::<E>(month)) {
                Ok(()) => info!("the usage of {month} is removed: {MONTHS_KEPT} months are kept"),
                Err(error) => warn!("the usage of {month} is older than {MONTHS_KEPT} months, but stays: {error}"),
            }
        }
    }
}

/// Returns true if this is the name of the file of a month.
fn is_month(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-').is_some_and(|(year, month)| year.len() == 4 && is_number(year) && is_number(month))
}
