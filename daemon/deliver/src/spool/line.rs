//! The waiting entries, in order. They are kept in memory, and the files mirror them as far as the disk accepts files.

use std::collections::{BTreeSet, VecDeque};

use weir_schema::{Encoded, Ids, Reason};

use super::name::{Content, Name, Stored};

/// A file occupies whole blocks, and an empty file occupies space in its directory.
const BLOCK: u64 = 4096;

/// An entry that waits for delivery.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The place in line.
    pub number: u64,
    /// When the window of its first report ended, in seconds since 1970.
    pub time: u64,
    pub what: EntryContent,
}

/// The content of an entry.
#[derive(Clone, Debug)]
pub(super) enum EntryContent {
    /// A report in a file.
    File(Ids, Stored),
    /// A report that is only in memory.
    Memory(Encoded),
    /// Reports that are lost. If the disk accepted it, there is also a file that records this.
    Lost { ids: Ids, reason: Reason, has_file: bool },
}

impl Entry {
    /// The name of its file, if it has one.
    pub fn name(&self) -> Option<Name> {
        let Self { number, time, ref what } = *self;
        let (ids, content) = match *what {
            EntryContent::File(ids, stored) => (ids, Content::Report(stored)),
            EntryContent::Lost { ids, reason, has_file: true } => (ids, Content::Tombstone(reason)),
            EntryContent::Memory(_) | EntryContent::Lost { has_file: false, .. } => return None,
        };
        Some(Name { number, time, ids, content })
    }

    /// The ids of its reports; `None` if they are not weir's.
    pub fn ids(&self) -> Option<Ids> {
        match &self.what {
            EntryContent::File(ids, _) | EntryContent::Lost { ids, .. } => Some(*ids),
            EntryContent::Memory(report) => Ids::of(&report.id),
        }
    }

    /// Returns true if it is a report, and not a tombstone.
    pub const fn is_report(&self) -> bool {
        !matches!(self.what, EntryContent::Lost { .. })
    }

    /// Returns true if it is a report that is only in memory.
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.what, EntryContent::Memory(_))
    }

    /// How many bytes its file occupies in the spool.
    pub fn charge(&self) -> u64 {
        match &self.what {
            EntryContent::File(_, stored) => charge(stored.bytes),
            EntryContent::Lost { has_file: true, .. } => BLOCK,
            EntryContent::Memory(_) | EntryContent::Lost { has_file: false, .. } => 0,
        }
    }
}

/// How many bytes a file of this size occupies in the spool.
pub(super) const fn charge(bytes: u64) -> u64 {
    if bytes == 0 { BLOCK } else { bytes.next_multiple_of(BLOCK) }
}

/// All entries that wait, in the order of delivery.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub entries: VecDeque<Entry>,
    /// The entries in flight, by number: the collector may have them already, so they are dropped last.
    pub sent: Vec<u64>,
    /// The next place in line.
    pub next: u64,
}

impl Line {
    /// Appends an entry.
    pub fn push(&mut self, time: u64, what: EntryContent) {
        self.entries.push_back(Entry { number: self.next, time, what });
        self.next += 1;
    }

    /// The first entry from this number on whose number is not in `without`.
    pub fn next_of(&self, from: u64, without: &BTreeSet<u64>) -> Option<&Entry> {
        let at = self.entries.partition_point(|entry| entry.number < from);
        self.entries.range(at..).find(|entry| !without.contains(&entry.number))
    }

    /// The index of the entry with this number.
    pub fn position(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }

    /// Returns true if an entry is in flight.
    pub fn is_sent(&self, entry: &Entry) -> bool {
        self.sent.contains(&entry.number)
    }

    /// The index of the oldest entry that is not in flight and fulfils `is`.
    pub fn oldest(&self, is: impl Fn(&Entry) -> bool) -> Option<usize> {
        self.entries.iter().position(|entry| is(entry) && !self.is_sent(entry))
    }

    /// Removes an entry.
    pub fn remove(&mut self, nth: usize) -> Option<Entry> {
        let removed = self.entries.remove(nth)?;
        self.sent.retain(|number| *number != removed.number);
        Some(removed)
    }

    /// How many bytes all files occupy.
    pub fn charge(&self) -> u64 {
        self.entries.iter().map(Entry::charge).sum()
    }
}
