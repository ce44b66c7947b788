//! The spool: reports are on disk before they are sent, until their sink has accepted them.
//!
//! Each sink has its own folder, and each report is a file. The file's name holds all its metadata (`name.rs`), and its
//! content is the report's JSON, compressed with gzip: `zcat` reads it. There is no other state that could break. A
//! crash while writing leaves a file named `unfinished`. A file that does not match its name costs only that one
//! report.
//!
//! A report that has to be dropped before delivery leaves a [tombstone](weir_schema::Tombstone) in its place. So the
//! reader of the reports knows which ones are missing, and why. Reports that the disk does not accept wait in memory,
//! by the same rules.

pub mod command;
mod delivery;
mod files;
mod line;
mod name;
mod recovery;
pub mod root;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fmt,
    io::{self, ErrorKind},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use weir_config as config;
use weir_schema::{Encoded, Ids, Reason};

use self::{
    files::Files,
    line::{Entry, EntryContent, Line, charge},
    name::{Content, Name, Stored},
};
use crate::gzip::gzip;

/// The name of a file while it is being written.
const UNFINISHED: &str = "unfinished";
/// The suffix of the file with the answer to a refused report, after the report's own name.
const ANSWER: &str = ".answer";
/// Maximum size of an uncompressed report in bytes: far more than the largest.
const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of waiting tombstones. Each restart without a collector adds one at most.
const TOMBSTONES_MAX: usize = 1024;
/// Maximum number of refused reports that are kept for inspection.
const REFUSED_MAX: usize = 100;
/// One in this many of a spool's bytes may be in flight at once, and the same share may be refused reports.
const PART: u64 = 4;

/// How much a spool may hold, and how durable it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of all files in bytes, each in whole blocks.
    pub bytes: u64,
    /// How long a report may wait.
    pub age: Option<Duration>,
    /// How many reports may wait in memory, because the disk does not accept them, in addition to one in flight.
    pub memory: usize,
    /// True if a report counts as kept only once it is safely on disk (`fsync`).
    pub sync: bool,
}

/// Reports for one sink, in order. One thread keeps reports, and another one delivers them. While a sink ends and the
/// next one for the same target begins, there are two of each: both keep reports, and the second sink waits for its
/// turn to deliver.
pub struct Spool {
    files: Option<Box<dyn Files>>,
    limits: Limits,
    state: Mutex<State>,
    /// Held while a report is being kept.
    keeping: Mutex<()>,
    /// Held by the sink that delivers.
    delivering: Mutex<()>,
}

#[derive(Default)]
struct State {
    line: Line,
    /// Entries from this number on are not kept yet.
    ready: u64,
    /// Refused reports that still exist, the oldest first.
    refused: VecDeque<Name>,
    /// Reports lost since the start.
    lost: BTreeMap<Reason, u64>,
    /// Reports lost, now or earlier, whose tombstone was given up since the start.
    untold: u64,
}

/// The content of a spool, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Reports that wait, on disk and in memory.
    pub reports: u64,
    /// The reports of these that are only in memory.
    pub in_memory: u64,
    /// Bytes on disk, in whole blocks.
    pub bytes: u64,
    /// Reports that were lost since the start, by reason.
    pub lost: BTreeMap<Reason, u64>,
    /// Lost reports whose tombstone was given up since the start.
    pub untold: u64,
}

/// Reports and tombstones that are delivered together, as lines of JSON.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The reports and tombstones, each with its place in line.
    pub parcels: Vec<Item>,
}

/// A report or tombstone to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The place in line.
    number: u64,
    /// When the window of its first report ended, in seconds since 1970; the same in every attempt.
    pub time: u64,
    /// True if it is a report, and not a tombstone.
    pub is_report: bool,
    /// The id and the line of JSON.
    pub encoded: Encoded,
}

impl Limits {
    /// The limits of each spool according to the configuration; the queue of each sink limits what may wait in memory.
    pub fn of(config: &config::Spool) -> Self {
        Self { bytes: config.max_size, age: config.max_age, memory: 1, sync: config.fsync == config::Fsync::Report }
    }

    /// The limits of a spool without a disk.
    pub const fn in_memory(reports: usize) -> Self {
        Self { bytes: 0, age: None, memory: reports, sync: false }
    }

    /// How many bytes of memory the names of a full spool take.
    pub const fn index_bytes(&self) -> u64 {
        self.bytes / charge(0) * size_of::<Entry>() as u64
    }
}

impl State {
    /// Size of all files in bytes, in whole blocks.
    fn bytes(&self) -> u64 {
        self.line.charge() + self.refused_bytes()
    }

    fn refused_bytes(&self) -> u64 {
        self.refused.iter().map(size_of_name).sum()
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Item {
    /// Returns the place in line.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The id of its observer: what its own id has before the run and the number.
    pub fn observer(&self) -> &str {
        self.encoded.id.rsplitn(3, '/').last().unwrap_or_default()
    }

    /// A report that was never in a spool.
    #[cfg(test)]
    pub fn report(encoded: Encoded) -> Self {
        Self { number: 0, time: 0, is_report: true, encoded }
    }
}

/// Reports that are only in memory are lost on drop: tombstones record them, as far as the disk accepts tombstones.
impl Drop for Spool {
    fn drop(&mut self) {
        if self.files.is_none() {
            return;
        }
        let mut state = self.state();
        while let Some(at) = state.line.entries.iter().position(Entry::is_in_memory) {
            // Each pass removes one.
            let _ = self.bury(&mut state, at, Reason::QueueFull);
        }
    }
}

impl Spool {
    /// A spool without a disk.
    pub fn in_memory(limits: Limits) -> Self {
        Self::new(None, limits, State::default())
    }

    fn new(files: Option<Box<dyn Files>>, limits: Limits, state: State) -> Self {
        Self { files, limits, state: Mutex::new(state), keeping: Mutex::default(), delivering: Mutex::default() }
    }

    /// Returns the content in numbers.
    pub fn holding(&self) -> Holding {
        let state = self.state();
        let reports = || state.line.entries.iter().filter(|entry| entry.is_report());
        Holding {
            reports: reports().count() as u64,
            in_memory: reports().filter(|entry| entry.is_in_memory()).count() as u64,
            bytes: state.bytes(),
            lost: state.lost.clone(),
            untold: state.untold,
        }
    }

    /// Adds a report at `now`, in seconds since 1970. The report waits even if the disk does not accept it.
    ///
    /// # Errors
    ///
    /// The report is not on disk yet. The next call tries again.
    pub fn keep(&self, report: Encoded, now: u64) -> io::Result<()> {
        let _keeping = self.keeping();
        self.take_back();
        self.miss();
        self.expire(now);
        self.state().line.push(now, EntryContent::Memory(report));
        let saved = self.save();
        self.shed();
        let mut state = self.state();
        state.ready = state.line.next;
        saved
    }

    /// Records reports that were lost before they reached the spool, in order.
    pub fn note_lost(&self, ids: &[Ids], reason: Reason, now: u64) {
        let _keeping = self.keeping();
        for ids in ids {
            let state = &mut *self.state();
            state.line.push(now, EntryContent::Lost { ids: *ids, reason, has_file: false });
            *state.lost.entry(reason).or_default() += ids.count();
            let at = state.line.entries.len() - 1;
            self.put_up(state, at);
            state.ready = state.line.next;
        }
    }

    fn keeping(&self) -> MutexGuard<'_, ()> {
        self.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the reports that are only in memory to the disk, the oldest first.
    fn save(&self) -> io::Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let waiting: Vec<_> = {
            let state = self.state();
            let waiting = state.line.entries.iter().filter(|entry| entry.is_in_memory());
            waiting.map(|entry| (entry.number, entry.time, entry.what.clone())).collect()
        };
        for (number, time, what) in waiting {
            let EntryContent::Memory(report) = what else { continue };
            // A message that is not a report gets no file.
            let Some(ids) = Ids::of(&report.id) else { continue };
            let bytes = gzip(&[&report.line]);
            let stored = Stored::of(&bytes);
            self.make_room(charge(stored.bytes));
            let name = Name { number, time, ids, content: Content::Report(stored) };
            self.write(files.as_ref(), &name.to_string(), &bytes)?;
            let mut state = self.state();
            match state.line.position(number) {
                Some(at) if state.line.entries[at].is_in_memory() => {
                    state.line.entries[at].what = EntryContent::File(ids, stored);
                }
                // It was delivered or refused in the meantime.
                _ => drop(files.remove(&name.to_string())),
            }
        }
        Ok(())
    }

    /// Writes a file. If the disk is full, the oldest reports are dropped to make room.
    fn write(&self, files: &dyn Files, name: &str, bytes: &[u8]) -> io::Result<()> {
        let Limits { sync, .. } = self.limits;
        loop {
            let written = files.write(UNFINISHED, bytes, sync).and_then(|()| files.rename(UNFINISHED, name));
            match written {
                Ok(()) => break,
                Err(error) => {
                    // The part that was written occupies space, too.
                    let _ = files.remove(UNFINISHED);
                    if !is_full(&error) || !self.drop_oldest_file() {
                        return Err(error);
                    }
                }
            }
        }
        if sync {
            files.sync_names().inspect_err(|_| drop(files.remove(name)))?;
        }
        Ok(())
    }

    /// Drops the oldest reports until the spool has room for a file of this size.
    fn make_room(&self, bytes: u64) {
        while self.state().bytes() + bytes > self.limits.bytes && self.drop_oldest_file() {}
    }

    /// Drops the oldest report that has a file and is not in flight. Returns whether there was one.
    fn drop_oldest_file(&self) -> bool {
        let mut state = self.state();
        // Refused reports have already been reported as lost.
        if let (Some(files), Some(refused)) = (&self.files, state.refused.pop_front()) {
            remove_refused(files.as_ref(), &refused);
            return true;
        }
        // If nothing else is left, a report in flight is dropped, too. If it still arrives, its tombstone is removed
        // with it. If it does not, the tombstone names it, and later reports are kept.
        let oldest = state.line.oldest(is_file).or_else(|| state.line.entries.iter().position(is_file));
        oldest.is_some_and(|oldest| self.bury(&mut state, oldest, Reason::SpoolFull).is_ok())
    }

    /// Replaces reports by tombstones if their files are gone because the folder was removed.
    pub fn miss(&self) {
        let Some(files) = &self.files else { return };
        if files.is_there() {
            return;
        }
        let Ok(names) = files.list() else { return };
        let names: HashSet<_> = names.into_iter().collect();
        let is_gone = |entry: &&Entry| {
            matches!(entry.what, EntryContent::File(..))
                && entry.name().is_some_and(|name| !names.contains(&name.to_string()))
        };
        let gone: Vec<_> = self.state().line.entries.iter().filter(is_gone).map(|entry| entry.number).collect();
        self.state().refused.retain(|name| names.contains(&name.to_string()));
        for number in gone {
            self.replace(number, Reason::Removed);
        }
    }

    /// Drops reports that are too old at `now`.
    fn expire(&self, now: u64) {
        let Some(age) = self.limits.age else { return };
        let latest = now.saturating_sub(age.as_secs());
        let mut state = self.state();
        while let Some(oldest) = state.line.oldest(Entry::is_report)
            && state.line.entries[oldest].time < latest
            && self.bury(&mut state, oldest, Reason::TooOld).is_ok()
        {}
    }

    /// Drops the oldest reports in memory, and the oldest tombstones, beyond their limits.
    fn shed(&self) {
        let state = &mut *self.state();
        let excess = |line: &Line, is: fn(&Entry) -> bool, most: usize| {
            let many = line.entries.iter().filter(|entry| is(entry)).count();
            (many > most).then(|| line.oldest(is)).flatten()
        };
        while let Some(oldest) = excess(&state.line, Entry::is_in_memory, self.limits.memory + 1) {
            // A report that is only in memory is dropped even if the disk does not accept its tombstone.
            let _ = self.bury(state, oldest, Reason::QueueFull);
        }
        while let Some(oldest) = excess(&state.line, |entry| !entry.is_report(), TOMBSTONES_MAX) {
            self.give_up_tombstone(state, oldest);
        }
    }

    /// Removes a tombstone from the line: the sink will not learn of its reports.
    fn give_up_tombstone(&self, state: &mut State, at: usize) {
        let Some(entry) = state.line.remove(at) else { return };
        state.untold += entry.ids().map_or(0, |ids| ids.count());
        if let (Some(files), Some(name)) = (&self.files, entry.name()) {
            let _ = files.remove(&name.to_string());
        }
    }

    /// Replaces a report by a tombstone, or merges it into the preceding tombstone if that has the same reason.
    ///
    /// # Errors
    ///
    /// The report has a file, and the disk cannot be changed.
    fn bury(&self, state: &mut State, at: usize, reason: Reason) -> io::Result<()> {
        let line = &mut state.line;
        let entry = &line.entries[at];
        let count = |lost: &mut BTreeMap<Reason, u64>| *lost.entry(reason).or_default() += 1;
        let Some(ids) = entry.ids() else {
            line.remove(at);
            count(&mut state.lost);
            return Ok(());
        };
        let file = entry.name();
        // A tombstone in flight must not grow: when it arrives, it is removed with all reports that it names.
        let before = at.checked_sub(1).map(|before| &line.entries[before]);
        let before = before.filter(|before| !line.is_sent(before) && !line.is_sent(entry));
        let joined = before.and_then(|before| match &before.what {
            EntryContent::Lost { ids: earlier, reason: same, .. } if *same == reason => {
                let ids = earlier.and(&ids)?;
                Some((
                    before.name(),
                    Name { number: before.number, time: before.time, ids, content: tombstone(reason) },
                ))
            }
            _ => None,
        });
        let (earlier, stone) = match joined {
            Some((earlier, stone)) => (Some(earlier), stone),
            None => (None, Name { number: entry.number, time: entry.time, ids, content: tombstone(reason) }),
        };
        let has_file = match (&self.files, earlier.flatten(), &file) {
            (None, ..) => false,
            (Some(files), Some(earlier), file) => {
                match (files.rename(&earlier.to_string(), &stone.to_string()), file) {
                    (Ok(()), Some(file)) => {
                        // Without syncing first, a crash might lose the report and keep the old tombstone.
                        if self.sync_names(files.as_ref()) {
                            let _ = files.remove(&file.to_string());
                        }
                    }
                    (Ok(()), None) => drop(self.sync_names(files.as_ref())),
                    (Err(error), Some(_)) => return Err(error),
                    (Err(_), None) => {
                        // This report gets its own tombstone, which stays in memory.
                        line.entries[at].what = EntryContent::Lost { ids, reason, has_file: false };
                        count(&mut state.lost);
                        return Ok(());
                    }
                }
                true
            }
            (Some(files), None, Some(file)) => {
                files.rename(&file.to_string(), &stone.to_string())?;
                self.sync_names(files.as_ref());
                let _ = files.write(&stone.to_string(), b"", false);
                true
            }
            (Some(files), None, None) => self.create(files.as_ref(), &stone),
        };
        let lost = EntryContent::Lost { ids: stone.ids, reason, has_file };
        if stone.number == line.entries[at].number {
            line.entries[at].what = lost;
        } else {
            line.entries[at - 1].what = lost;
            line.remove(at);
        }
        count(&mut state.lost);
        Ok(())
    }

    /// Writes the file of a tombstone that has none. If the disk does not accept it, the tombstone stays in memory,
    /// which does no harm.
    fn put_up(&self, state: &mut State, at: usize) {
        let entry = &mut state.line.entries[at];
        if let (Some(files), Entry { number, time, what: EntryContent::Lost { ids, reason, has_file } }) =
            (&self.files, entry)
        {
            let name = Name { number: *number, time: *time, ids: *ids, content: tombstone(*reason) };
            *has_file = self.create(files.as_ref(), &name);
        }
    }

    fn create(&self, files: &dyn Files, name: &Name) -> bool {
        files.write(&name.to_string(), b"", self.limits.sync).is_ok() && self.sync_names(files)
    }

    /// Returns whether all names are on the disk, or need not be.
    fn sync_names(&self, files: &dyn Files) -> bool {
        !self.limits.sync || files.sync_names().is_ok()
    }

    /// Locks the state, for a few instructions and while files are renamed. It is never left half changed, so a
    /// poisoned lock does no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry.what, EntryContent::File(..))
}

const fn tombstone(reason: Reason) -> Content {
    Content::Tombstone(reason)
}

fn size_of_name(name: &Name) -> u64 {
    match name.content {
        Content::Report(stored) | Content::Refused(stored) | Content::Retry(stored) => charge(stored.bytes),
        Content::Tombstone(_) => charge(0),
    }
}

/// Replaces the file of a report by its tombstone. A running weir makes the same file when it comes to that report; if
/// it ends before, the next one finds the tombstone.
fn remove_report(files: &dyn Files, name: &Name) -> io::Result<()> {
    let stone = removed(name).to_string();
    files.rename(&name.to_string(), &stone)?;
    // If this fails, the next start truncates the file.
    let _ = files.write(&stone, b"", false);
    Ok(())
}

/// The tombstone of a report that was removed by hand.
const fn removed(name: &Name) -> Name {
    Name { content: tombstone(Reason::Removed), ..*name }
}

fn remove_refused(files: &dyn Files, name: &Name) {
    let _ = files.remove(&format!("{name}{ANSWER}"));
    let _ = files.remove(&name.to_string());
}

/// Returns true if a disk is full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
