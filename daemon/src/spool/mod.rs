//! The spool: reports on disk before they are sent, until their sink has taken them.
//!
//! Each sink has a folder of its own, and each report a file. The file's name says all about it (`name.rs`), and its
//! content is the report's JSON, packed with gzip: `zcat` reads it. There is nothing else, so nothing else can break. A crash in
//! the middle of writing leaves a file named `unfinished`. A file that is not what its name says costs that one report.
//!
//! A report that has to go before it was delivered leaves a [`Tombstone`] in its place. So who reads the reports knows which ones
//! are missing, and why. What a disk does not take waits in memory, by the same rules.

pub mod command;
mod files;
mod ids;
mod line;
mod name;
pub mod place;
mod recovery;
#[cfg(test)]
mod tests;
mod tombstone;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::{self, ErrorKind, Read, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use self::{
    files::Files,
    line::{Entry, Line, What, charge},
    name::{Content, Name, Stored},
};
pub use self::{
    ids::Ids,
    tombstone::{Reason, TOMBSTONE_SCHEMA, Tombstone},
};
use crate::sink::Encoded;

/// The name of a file while it is written.
const UNFINISHED: &str = "unfinished";
/// What the answer to a refused report is called, after the report's own name.
const ANSWER: &str = ".answer";
/// Bytes that a report may have when it is unpacked: far more than the largest.
const REPORT_BYTES_MAX: u64 = 64 << 20;
/// Tombstones that wait, at most. It takes as many restarts without a collector to have more.
const TOMBSTONES_MAX: usize = 1024;
/// Refused reports that are kept for people to look at.
const REFUSED_MAX: usize = 100;
/// Of what a spool may have, this part may be on its way at once, and this part may be refused reports.
const PART: u64 = 4;

/// How much a spool may hold, and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files, each in whole blocks.
    pub bytes: u64,
    /// How long a report may wait.
    pub age: Option<Duration>,
    /// Reports that wait in memory, because no disk takes them, besides one that is on its way.
    pub memory: usize,
    /// Whether a report is kept only when the disk has it for certain (`fsync`).
    pub sync: bool,
}

/// Reports for one sink, in order. One thread keeps reports, and another one delivers them. While a sink ends and the next one
/// for the same target begins, there are two of each: both keep, and the second one waits for its turn to deliver.
pub struct Spool {
    files: Option<Box<dyn Files>>,
    limits: Limits,
    state: Mutex<State>,
    /// Taken by whoever keeps a report.
    keeping: Mutex<()>,
    /// Taken by the one that delivers.
    delivering: Mutex<()>,
}

#[derive(Default)]
struct State {
    line: Line,
    /// What comes from this place on is not kept yet.
    ready: u64,
    /// Refused reports that are still there, the oldest first.
    refused: VecDeque<Name>,
    /// Reports that are lost since the start.
    lost: BTreeMap<Reason, u64>,
}

/// What a spool holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Reports that wait, on disk and in memory.
    pub reports: u64,
    /// Of these, those that only memory has.
    pub in_memory: u64,
    /// Bytes on disk, in whole blocks.
    pub bytes: u64,
    /// Reports that were lost since the start, by reason.
    pub lost: BTreeMap<Reason, u64>,
}

/// What is delivered at once: reports and tombstones, as lines of JSON.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Each with its place in line.
    pub parcels: Vec<Parcel>,
}

/// One thing to deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its place in line.
    number: u64,
    /// Whether it is a report, and not a tombstone.
    pub is_report: bool,
    /// Its id and its line.
    pub encoded: Encoded,
}

impl Limits {
    /// Bytes of memory that all names of a full spool take.
    pub const fn index_bytes(&self) -> u64 {
        self.bytes / charge(0) * size_of::<Entry>() as u64
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Limits {
    /// The limits of a spool without a disk.
    pub const fn in_memory(reports: usize) -> Self {
        Self { bytes: 0, age: None, memory: reports, sync: false }
    }
}

#[cfg(test)]
impl Parcel {
    /// A report that was in no spool.
    pub fn report(encoded: Encoded) -> Self {
        Self { number: 0, is_report: true, encoded }
    }
}

impl Spool {
    /// A spool without a disk.
    pub fn in_memory(limits: Limits) -> Self {
        Self { files: None, limits, state: Mutex::default(), keeping: Mutex::default(), delivering: Mutex::default() }
    }

    /// What it holds.
    pub fn holding(&self) -> Holding {
        let state = self.state();
        let reports = || state.line.entries.iter().filter(|entry| entry.is_report());
        Holding {
            reports: reports().count() as u64,
            in_memory: reports().filter(|entry| entry.is_in_memory()).count() as u64,
            bytes: state.line.charge() + state.refused.iter().map(size_of_name).sum::<u64>(),
            lost: state.lost.clone(),
        }
    }

    /// Adds a report at `now`, in seconds since 1970. It waits in any case.
    ///
    /// # Errors
    ///
    /// Why no disk has it. The next call tries again.
    pub fn keep(&self, report: Encoded, now: u64) -> io::Result<()> {
        let _keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        self.expire(now);
        self.state().line.push(now, What::Memory(report));
        let saved = self.save();
        self.shed();
        let mut state = self.state();
        state.ready = state.line.next;
        saved
    }

    /// Reports that were lost before they came here, in order.
    pub fn note_lost(&self, ids: &[Ids], reason: Reason, now: u64) {
        for ids in ids {
            let state = &mut *self.state();
            state.line.push(now, What::Lost { ids: *ids, reason, has_file: false });
            *state.lost.entry(reason).or_default() += ids.count();
            let at = state.line.entries.len() - 1;
            self.put_up(state, at);
            state.ready = state.line.next;
        }
    }

    /// Writes what only memory has to the disk, the oldest first.
    fn save(&self) -> io::Result<()> {
        let Some(files) = &self.files else { return Ok(()) };
        let waiting: Vec<_> = {
            let state = self.state();
            let waiting = state.line.entries.iter().filter(|entry| entry.is_in_memory());
            waiting.map(|entry| (entry.number, entry.time, entry.what.clone())).collect()
        };
        for (number, time, what) in waiting {
            let What::Memory(report) = what else { continue };
            // A message that is no report has no file.
            let Some(ids) = Ids::of(&report.id) else { continue };
            let bytes = pack(&report.line);
            let stored = Stored::of(&bytes);
            self.make_room(charge(stored.bytes));
            let name = Name { number, time, ids, content: Content::Report(stored) };
            self.write(files.as_ref(), &name.to_string(), &bytes)?;
            let mut state = self.state();
            match state.line.position(number) {
                Some(at) => state.line.entries[at].what = What::File(ids, stored),
                // It was delivered in the meantime.
                None => drop(files.remove(&name.to_string())),
            }
        }
        Ok(())
    }

    /// Writes a file. A disk that is full gets room: the oldest reports go.
    fn write(&self, files: &dyn Files, name: &str, bytes: &[u8]) -> io::Result<()> {
        let Limits { sync, .. } = self.limits;
        loop {
            let written = files.write(UNFINISHED, bytes, sync).and_then(|()| files.rename(UNFINISHED, name));
            match written {
                Ok(()) => break,
                Err(error) => {
                    // The part that was written takes room, too.
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
        while self.holding_bytes() + bytes > self.limits.bytes && self.drop_oldest_file() {}
    }

    fn holding_bytes(&self) -> u64 {
        let state = self.state();
        state.line.charge() + state.refused.iter().map(size_of_name).sum::<u64>()
    }

    /// Drops the oldest report that has a file and is not on its way. Returns whether there was one.
    fn drop_oldest_file(&self) -> bool {
        let mut state = self.state();
        // Refused reports are already told of as lost.
        if let (Some(files), Some(refused)) = (&self.files, state.refused.pop_front()) {
            remove_refused(files.as_ref(), &refused);
            return true;
        }
        let oldest = state.line.oldest(|entry| matches!(entry.what, What::File(..)));
        oldest.is_some_and(|oldest| self.bury(&mut state, oldest, Reason::SpoolFull).is_ok())
    }

    /// Drops reports that have waited for too long at `now`.
    fn expire(&self, now: u64) {
        let Some(age) = self.limits.age else { return };
        let latest = now.saturating_sub(age.as_secs());
        let mut state = self.state();
        while let Some(oldest) = state.line.oldest(Entry::is_report)
            && state.line.entries[oldest].time < latest
            && self.bury(&mut state, oldest, Reason::TooOld).is_ok()
        {}
    }

    /// Drops what is too much for memory.
    fn shed(&self) {
        let state = &mut *self.state();
        let excess = |line: &Line, is: fn(&Entry) -> bool, most: usize| {
            let many = line.entries.iter().filter(|entry| is(entry)).count();
            (many > most).then(|| line.oldest(is)).flatten()
        };
        while let Some(oldest) = excess(&state.line, Entry::is_in_memory, self.limits.memory + 1) {
            // What only memory has goes even if the disk does not take its tombstone.
            let _ = self.bury(state, oldest, Reason::QueueFull);
        }
        while let Some(oldest) = excess(&state.line, |entry| !entry.is_report(), TOMBSTONES_MAX) {
            if let (Some(files), Some(Entry { number, time, what: What::Lost { ids, reason, has_file: true } })) =
                (&self.files, state.line.remove(oldest))
            {
                let name = Name { number, time, ids, content: Content::Tombstone(reason) };
                let _ = files.remove(&name.to_string());
            }
        }
    }

    /// Puts a tombstone in the place of a report. One that stands before it, for the same reason, takes the report in.
    ///
    /// # Errors
    ///
    /// The report has a file, and the disk takes no change.
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
        let before = (at > line.taken).then(|| &line.entries[at - 1]);
        let joined = before.and_then(|before| match &before.what {
            What::Lost { ids: earlier, reason: same, .. } if *same == reason => {
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
                        // Without the first a crash might lose the report and keep the tombstone as it was.
                        if self.sync_names(files.as_ref()) {
                            let _ = files.remove(&file.to_string());
                        }
                    }
                    (Ok(()), None) => drop(self.sync_names(files.as_ref())),
                    (Err(error), Some(_)) => return Err(error),
                    (Err(_), None) => {
                        // Each has a tombstone of its own, and this one is in memory.
                        line.entries[at].what = What::Lost { ids, reason, has_file: false };
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
        let lost = What::Lost { ids: stone.ids, reason, has_file };
        if stone.number == line.entries[at].number {
            line.entries[at].what = lost;
        } else {
            line.entries[at - 1].what = lost;
            line.remove(at);
        }
        count(&mut state.lost);
        Ok(())
    }

    /// Makes the file of a tombstone that has none. It is no harm if the disk does not take it: then it is in memory.
    fn put_up(&self, state: &mut State, at: usize) {
        let entry = &mut state.line.entries[at];
        if let (Some(files), Entry { number, time, what: What::Lost { ids, reason, has_file } }) = (&self.files, entry)
        {
            let name = Name { number: *number, time: *time, ids: *ids, content: tombstone(*reason) };
            *has_file = self.create(files.as_ref(), &name);
        }
    }

    fn create(&self, files: &dyn Files, name: &Name) -> bool {
        files.write(&name.to_string(), b"", self.limits.sync).is_ok() && self.sync_names(files)
    }

    /// Returns whether all names are on the disk, as far as that is asked for.
    fn sync_names(&self, files: &dyn Files) -> bool {
        !self.limits.sync || files.sync_names().is_ok()
    }
}

/// Delivery.
impl Spool {
    /// Waits until nobody else delivers, and has it so as long as the guard lives.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.delivering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be delivered next: at most `count` reports and tombstones, with some `bytes` of JSON, but one in any case if
    /// there is one. Until they are [delivered](Self::delivered) nobody drops them.
    ///
    /// # Errors
    ///
    /// A file cannot be read at this time.
    pub fn batch(&self, count: usize, bytes: usize) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let (mut charged, mut size) = (0, 0);
        let most = if self.files.is_some() { count } else { count.min((self.limits.memory / PART as usize).max(1)) };
        while batch.parcels.len() < most {
            let Some(entry) = self.take(batch.parcels.len()) else { break };
            charged += entry.charge();
            let Some(parcel) = self.read(&entry)? else { continue };
            size += parcel.encoded.line.len();
            if !batch.parcels.is_empty() && (size > bytes || self.files.is_some() && charged > self.limits.bytes / PART)
            {
                break;
            }
            batch.parcels.push(parcel);
        }
        self.state().line.taken = batch.parcels.len();
        Ok(batch)
    }

    /// The entry at this place, if it may be delivered: it is on its way now.
    fn take(&self, at: usize) -> Option<Entry> {
        let mut state = self.state();
        let ready = state.ready;
        let entry = state.line.entries.get(at).filter(|entry| entry.number < ready)?.clone();
        state.line.taken = state.line.taken.max(at + 1);
        Some(entry)
    }

    /// What is to be delivered of an entry; `None` if its file turns out to be lost, and there is a tombstone now.
    fn read(&self, entry: &Entry) -> io::Result<Option<Parcel>> {
        let number = entry.number;
        let reason = match (&entry.what, &self.files, entry.name()) {
            (What::Memory(report), ..) => {
                return Ok(Some(Parcel { number, is_report: true, encoded: report.clone() }));
            }
            (What::Lost { ids, reason, .. }, ..) => {
                return Ok(Some(Parcel { number, is_report: false, encoded: encoded(&Tombstone::new(ids, *reason)) }));
            }
            (What::File(ids, stored), Some(files), Some(name)) => {
                match files.read(&name.to_string(), stored.bytes).and_then(|bytes| unpack(&bytes, *stored)) {
                    Ok(line) => {
                        let encoded = Encoded { id: ids.to_string(), line: line.into() };
                        return Ok(Some(Parcel { number, is_report: true, encoded }));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => Reason::Removed,
                    Err(error) if is_damage(&error) => Reason::Damaged,
                    Err(error) => return Err(error),
                }
            }
            (What::File(..), ..) => Reason::Removed,
        };
        self.replace(number, reason);
        Ok(None)
    }

    /// Puts a tombstone in the place of a report whose file is no use.
    fn replace(&self, number: u64, reason: Reason) {
        let state = &mut *self.state();
        let Some(at) = state.line.position(number) else { return };
        let entry = &mut state.line.entries[at];
        let (Some(ids), file) = (entry.ids(), entry.name()) else { return };
        entry.what = What::Lost { ids, reason, has_file: false };
        *state.lost.entry(reason).or_default() += 1;
        self.put_up(state, at);
        if let (Some(files), Some(file)) = (&self.files, file) {
            let _ = files.remove(&file.to_string());
        }
    }

    /// A batch has arrived: its reports are needed no more.
    pub fn delivered(&self, batch: &Batch) {
        let Some(last) = batch.parcels.last() else { return };
        let mut arrived = Vec::new();
        let mut state = self.state();
        while state.line.entries.front().is_some_and(|entry| entry.number <= last.number) {
            arrived.extend(state.line.remove(0));
        }
        state.line.taken = 0;
        drop(state);
        let Some(files) = &self.files else { return };
        for name in arrived.iter().filter_map(Entry::name) {
            // A file that stays is delivered again after a restart: whoever gets it knows its id.
            let _ = files.remove(&name.to_string());
        }
    }

    /// A batch was not taken, for good: what of it is to be delivered may be chosen anew.
    pub fn put_back(&self) {
        self.state().line.taken = 0;
    }

    /// The sink will never take this report or tombstone. A report is kept aside, with the answer to it, and a tombstone stands
    /// for it.
    pub fn refused(&self, parcel: &Parcel, answer: &str) {
        let state = &mut *self.state();
        state.line.taken = 0;
        let Some(at) = state.line.position(parcel.number) else { return };
        let file = state.line.entries[at].name();
        let (What::File(ids, _) | What::Lost { ids, .. }) = state.line.entries[at].what else {
            let _ = self.bury(state, at, Reason::Refused);
            return;
        };
        if !parcel.is_report {
            if let (Some(files), Some(name)) = (&self.files, file) {
                let _ = files.remove(&name.to_string());
            }
            state.line.remove(at);
            return;
        }
        state.line.entries[at].what = What::Lost { ids, reason: Reason::Refused, has_file: false };
        *state.lost.entry(Reason::Refused).or_default() += 1;
        // First the tombstone: between the two, a crash must not lose the report without a word.
        self.put_up(state, at);
        let (Some(files), Some(name @ Name { content: Content::Report(stored), .. })) = (&self.files, file) else {
            return;
        };
        let aside = Name { content: Content::Refused(stored), ..name };
        if files.rename(&name.to_string(), &aside.to_string()).is_ok() {
            let _ = files.write(&format!("{aside}{ANSWER}"), answer.as_bytes(), false);
            state.refused.push_back(aside);
        }
        let too_many = |refused: &VecDeque<Name>| {
            refused.len() > REFUSED_MAX
                || refused.len() > 1 && refused.iter().map(size_of_name).sum::<u64>() > self.limits.bytes / PART
        };
        while too_many(&state.refused)
            && let Some(oldest) = state.refused.pop_front()
        {
            remove_refused(files.as_ref(), &oldest);
        }
    }

    /// Drops everything: nobody will take it.
    pub fn clear(&self) {
        let state = &mut *self.state();
        for entry in state.line.entries.drain(..) {
            if let (Some(files), Some(name)) = (&self.files, entry.name()) {
                let _ = files.remove(&name.to_string());
            }
            if entry.is_report() {
                *state.lost.entry(Reason::QueueFull).or_default() += 1;
            }
        }
        state.line.taken = 0;
    }

    /// The state, for a few instructions, and for as long as it takes to rename files. It is never left half changed, so that a
    /// poisoned lock does no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn tombstone(reason: Reason) -> Content {
    Content::Tombstone(reason)
}

fn size_of_name(name: &Name) -> u64 {
    match name.content {
        Content::Report(stored) | Content::Refused(stored) => charge(stored.bytes),
        Content::Tombstone(_) => charge(0),
    }
}

fn remove_refused(files: &dyn Files, name: &Name) {
    let _ = files.remove(&format!("{name}{ANSWER}"));
    let _ = files.remove(&name.to_string());
}

fn encoded(tombstone: &Tombstone) -> Encoded {
    let mut line = serde_json::to_vec(tombstone).unwrap_or_default();
    line.push(b'\n');
    Encoded { id: tombstone.id.clone(), line: line.into() }
}

/// Whether a disk has no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Whether a file is not what was written, or cannot be read any more.
fn is_damage(error: &io::Error) -> bool {
    // Of the latter two the first is a disk's, and the second a link's in the place of a file.
    use ErrorKind::{InvalidData, InvalidInput, IsADirectory, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | IsADirectory | UnexpectedEof)
        || matches!(error.raw_os_error(), Some(libc::EIO | libc::ELOOP))
}

fn pack(line: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(line.len() / 2), Compression::fast());
    encoder.write_all(line).and_then(|()| encoder.finish()).expect("writing into memory cannot fail")
}

/// A report's line, if these are the bytes that were stored.
fn unpack(bytes: &[u8], stored: Stored) -> io::Result<Vec<u8>> {
    if Stored::of(bytes) != stored {
        return Err(io::Error::new(ErrorKind::InvalidData, "the file's content is not what its name says"));
    }
    let mut line = Vec::new();
    GzDecoder::new(bytes).take(REPORT_BYTES_MAX).read_to_end(&mut line)?;
    Ok(line)
}
