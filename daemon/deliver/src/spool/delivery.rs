//! Takes reports out of the spool: to the sink, or aside if the sink refuses them.
//!
//! A report must not be lost silently at any point, even if the power fails between two system calls. So each step
//! first writes the new state and then removes the old one. If a crash leaves both, the report may be delivered twice,
//! and the receiver recognises its id.

use std::{
    collections::BTreeSet,
    io::{self, ErrorKind, Read},
    sync::{MutexGuard, PoisonError},
};

use flate2::read::GzDecoder;
use weir_schema::{Encoded, Reason, Tombstone};

use super::{
    ANSWER, Batch, Item, PART, REFUSED_MAX, REPORT_BYTES_MAX, Spool, State,
    line::{Entry, EntryContent, Line},
    name::{Content, Name, Stored},
    remove_refused, removed,
};

impl Spool {
    /// Waits until no other sink delivers; the guard reserves delivery for the caller.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.delivering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next reports and tombstones to deliver: at most `count`, with about `bytes` of JSON, but at least one if any
    /// waits. Entries with a number in `without` are left out. Until the batch is [delivered](Self::delivered), its
    /// reports are the last to be dropped.
    ///
    /// # Errors
    ///
    /// A file cannot be read at this time.
    pub fn batch(&self, count: usize, bytes: usize, without: &BTreeSet<u64>) -> io::Result<Batch> {
        let mut batch = Batch::default();
        let (mut charged, mut size) = (0, 0);
        let most = if self.files.is_some() { count } else { count.min((self.limits.memory / PART as usize).max(1)) };
        while batch.parcels.len() < most {
            let from = batch.parcels.last().map_or(0, |last| last.number + 1);
            let Some(entry) = self.take(|line| line.next_of(from, without)) else { break };
            charged += entry.charge();
            let Some(parcel) = self.read(&entry)? else { continue };
            size += parcel.encoded.line.len();
            if !batch.parcels.is_empty() && (size > bytes || self.files.is_some() && charged > self.limits.bytes / PART)
            {
                break;
            }
            batch.parcels.push(parcel);
        }
        self.state().line.sent = batch.parcels.iter().map(|parcel| parcel.number).collect();
        Ok(batch)
    }

    /// The newest report whose number is not in `without`, alone. Otherwise like [`batch`](Self::batch).
    ///
    /// # Errors
    ///
    /// Its file cannot be read at this time.
    pub fn newest(&self, without: &BTreeSet<u64>) -> io::Result<Batch> {
        let is_wanted = |entry: &&Entry| entry.is_report() && !without.contains(&entry.number);
        let Some(entry) = self.take(|line| line.entries.iter().rev().find(is_wanted)) else {
            return Ok(Batch::default());
        };
        Ok(Batch { parcels: self.read(&entry)?.into_iter().collect() })
    }

    /// The chosen entry, if it may be delivered; it is then marked as being in flight.
    fn take(&self, choose: impl FnOnce(&Line) -> Option<&Entry>) -> Option<Entry> {
        let mut state = self.state();
        let ready = state.ready;
        let entry = choose(&state.line).filter(|entry| entry.number < ready)?.clone();
        if !state.line.is_sent(&entry) {
            state.line.sent.push(entry.number);
        }
        Some(entry)
    }

    /// Reads an entry; `None` if its file turns out to be lost, and a tombstone has replaced it.
    fn read(&self, entry: &Entry) -> io::Result<Option<Item>> {
        let (number, time) = (entry.number, entry.time);
        let reason = match (&entry.what, &self.files, entry.name()) {
            (EntryContent::Memory(report), ..) => {
                return Ok(Some(Item { number, time, is_report: true, encoded: report.clone() }));
            }
            (EntryContent::Lost { ids, reason, .. }, ..) => {
                return Ok(Some(Item {
                    number,
                    time,
                    is_report: false,
                    encoded: encoded(&Tombstone::new(ids, *reason)),
                }));
            }
            (EntryContent::File(ids, stored), Some(files), Some(name)) => {
                match files.read(&name.to_string(), stored.bytes).and_then(|bytes| unpack(&bytes, *stored)) {
                    Ok(line) => {
                        let encoded = Encoded { id: ids.to_string(), line: line.into() };
                        return Ok(Some(Item { number, time, is_report: true, encoded }));
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => Reason::Removed,
                    Err(error) if is_damage(&error) => Reason::Damaged,
                    Err(error) => return Err(error),
                }
            }
            (EntryContent::File(..), ..) => Reason::Removed,
        };
        self.replace(number, reason);
        Ok(None)
    }

    /// Replaces a report whose file is unusable by a tombstone.
    pub(super) fn replace(&self, number: u64, reason: Reason) {
        let state = &mut *self.state();
        let Some(at) = state.line.position(number) else { return };
        let entry = &mut state.line.entries[at];
        let (true, Some(ids), file) = (entry.is_report(), entry.ids(), entry.name()) else { return };
        entry.what = EntryContent::Lost { ids, reason, has_file: false };
        *state.lost.entry(reason).or_default() += 1;
        self.put_up(state, at);
        if let (Some(files), Some(file)) = (&self.files, file) {
            let _ = files.remove(&file.to_string());
        }
    }

    /// Forgets the reports of a batch that has arrived.
    pub fn delivered(&self, batch: &Batch) {
        let mut state = self.state();
        let line = &mut state.line;
        let mut arrived = Vec::new();
        for parcel in &batch.parcels {
            arrived.extend(line.position(parcel.number).and_then(|at| line.remove(at)));
        }
        line.sent.clear();
        drop(state);
        let Some(files) = &self.files else { return };
        for name in arrived.iter().filter_map(Entry::name) {
            // If the file remains, it is delivered again after a restart: the receiver recognises its id.
            if let Err(error) = files.remove(&name.to_string())
                && error.kind() == ErrorKind::NotFound
            {
                // The report was removed while it was being delivered, but it has arrived.
                let _ = files.remove(&removed(&name).to_string());
            }
        }
    }

    /// Notes that a batch was not accepted, so that the next batch may be a different one.
    pub fn put_back(&self) {
        self.state().line.sent.clear();
    }

    /// The sink will never accept this report or tombstone. A report is kept aside together with the sink's answer, and
    /// a tombstone takes its place.
    pub fn refused(&self, parcel: &Item, answer: &str) {
        let state = &mut *self.state();
        state.line.sent.clear();
        let Some(at) = state.line.position(parcel.number) else { return };
        let file = state.line.entries[at].name();
        if parcel.is_report && !state.line.entries[at].is_report() {
            // It was dropped in flight, and its tombstone says why.
            return;
        }
        let (EntryContent::File(ids, _) | EntryContent::Lost { ids, .. }) = state.line.entries[at].what else {
            let _ = self.bury(state, at, Reason::Refused);
            return;
        };
        if !parcel.is_report {
            self.give_up_tombstone(state, at);
            return;
        }
        state.line.entries[at].what = EntryContent::Lost { ids, reason: Reason::Refused, has_file: false };
        *state.lost.entry(Reason::Refused).or_default() += 1;
        // The tombstone comes first: a crash between the two steps must not lose the report silently.
        self.put_up(state, at);
        let (Some(files), Some(name @ Name { content: Content::Report(stored), .. })) = (&self.files, file) else {
            return;
        };
        let aside = Name { content: Content::Refused(stored), ..name };
        if files.rename(&name.to_string(), &aside.to_string()).is_ok() {
            let _ = files.write(&format!("{aside}{ANSWER}"), answer.as_bytes(), false);
            state.refused.push_back(aside);
        }
        let too_many = |state: &State| {
            state.refused.len() > REFUSED_MAX
                || state.refused.len() > 1 && state.refused_bytes() > self.limits.bytes / PART
        };
        while too_many(state)
            && let Some(oldest) = state.refused.pop_front()
        {
            remove_refused(files.as_ref(), &oldest);
        }
    }

    /// Puts refused reports back in line if `weir spool retry` was run on them.
    pub(super) fn take_back(&self) {
        let Some(files) = &self.files else { return };
        let state = &mut *self.state();
        for _ in 0..state.refused.len() {
            let Some(aside) = state.refused.pop_front() else { break };
            let Content::Refused(stored) = aside.content else { continue };
            let wanted = Name { content: Content::Retry(stored), ..aside };
            if !self.requeue(state, &wanted, stored) {
                state.refused.push_back(aside);
                continue;
            }
            let _ = files.remove(&format!("{aside}{ANSWER}"));
        }
        state.ready = state.line.next;
    }

    /// Puts a file with this name at the end of the line. Returns whether it was there.
    pub(super) fn requeue(&self, state: &mut State, wanted: &Name, stored: Stored) -> bool {
        let Some(files) = &self.files else { return false };
        let waiting = Name { number: state.line.next, content: Content::Report(stored), ..*wanted };
        if files.rename(&wanted.to_string(), &waiting.to_string()).is_err() {
            return false;
        }
        self.sync_names(files.as_ref());
        let Name { time, ids, .. } = waiting;
        // A tombstone that has not been sent yet is no longer true. A crash before this point leaves both, and the next
        // start puts the report aside again.
        let is_its = |entry: &Entry| match entry.what {
            EntryContent::Lost { ids: lost, reason: Reason::Refused, .. } => lost == ids,
            _ => false,
        };
        if let Some(stone) =
            state.line.oldest(is_its).and_then(|at| state.line.remove(at)).and_then(|stone| stone.name())
        {
            let _ = files.remove(&stone.to_string());
        }
        state.line.push(time, EntryContent::File(ids, stored));
        true
    }

    /// Drops everything, because the sink accepts nothing any more.
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
        state.line.sent.clear();
    }
}

pub(super) fn encoded(tombstone: &Tombstone) -> Encoded {
    let mut line = serde_json::to_vec(tombstone).unwrap_or_default();
    line.push(b'\n');
    Encoded { id: tombstone.id.clone(), line: line.into() }
}

/// Returns true if a file is damaged, or cannot be read any more.
fn is_damage(error: &io::Error) -> bool {
    // EIO: the disk cannot read it. IsADirectory and ELOOP: a folder or a link is in its place.
    use ErrorKind::{InvalidData, InvalidInput, IsADirectory, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | IsADirectory | UnexpectedEof)
        || matches!(error.raw_os_error(), Some(libc::EIO | libc::ELOOP))
}

/// Unpacks a report's line, after checking that these are the bytes that were stored.
pub(super) fn unpack(bytes: &[u8], stored: Stored) -> io::Result<Vec<u8>> {
    if Stored::of(bytes) != stored {
        return Err(io::Error::new(ErrorKind::InvalidData, "the file's content is not what its name says"));
    }
    let mut line = Vec::new();
    GzDecoder::new(bytes).take(REPORT_BYTES_MAX).read_to_end(&mut line)?;
    Ok(line)
}
