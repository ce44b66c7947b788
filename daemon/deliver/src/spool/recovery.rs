//! Opens a spool with the files that an earlier weir has left. Only their names are read, so this is fast however many
//! reports wait.

use std::{collections::VecDeque, io};

use weir_schema::Reason;

use super::{
    ANSWER, Limits, PART, Spool, State, UNFINISHED,
    files::Files,
    line::{Entry, EntryContent, Line},
    name::{Content, Name},
};

/// Number of reports that may have been in flight when an earlier weir ended. A collector may have them, so none of
/// them is dropped.
const ON_THEIR_WAY: usize = 100;

/// The entries that an earlier weir has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Reports that wait.
    pub reports: u64,
    /// Tombstones that wait.
    pub tombstones: u64,
    /// True if a crash left a report half written.
    pub unfinished: bool,
    /// Files that are not weir's. They are left alone.
    pub foreign: u64,
}

impl Spool {
    /// Opens a folder, which may have any files in it.
    ///
    /// # Errors
    ///
    /// The folder cannot be listed.
    pub(super) fn open(files: Box<dyn Files>, limits: Limits) -> io::Result<(Self, Recovered)> {
        // From here on the spool notices if the folder is removed.
        files.is_there();
        let mut found = Recovered::default();
        let (mut line, mut refused, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for text in files.list()? {
            match Name::read(&text) {
                Some(name @ Name { content: Content::Refused(_), .. }) => refused.push(name),
                Some(name @ Name { content: Content::Retry(stored), .. }) => wanted.push((name, stored)),
                Some(Name { number, time, ids, content: Content::Report(stored) }) => {
                    line.push(Entry { number, time, what: EntryContent::File(ids, stored) });
                }
                Some(Name { number, time, ids, content: Content::Tombstone(reason) }) => {
                    line.push(Entry { number, time, what: EntryContent::Lost { ids, reason, has_file: true } });
                }
                None if text == UNFINISHED => {
                    found.unfinished = true;
                    let _ = files.remove(UNFINISHED);
                }
                None if is_answer(&text) => {}
                None => found.foreign += 1,
            }
        }
        finish(&mut line, &mut refused, files.as_ref());
        line.sort_by_key(|entry| entry.number);
        refused.sort_by_key(|name| name.number);
        let mut next = line.last().map_or(0, |entry| entry.number + 1);
        let mut entries = VecDeque::new();
        let mut displaced = Vec::new();
        for entry in line {
            let is_free = entries.back().is_none_or(|last: &Entry| last.number < entry.number);
            if is_free { entries.push_back(entry) } else { displaced.push(entry) }
        }
        // Only without fsync can a crash leave two files with the same number.
        for mut entry in displaced {
            let old = entry.name();
            entry.number = next;
            if let (Some(old), Some(new)) = (old, entry.name())
                && files.rename(&old.to_string(), &new.to_string()).is_ok()
            {
                entries.push_back(entry);
                next += 1;
            } else {
                found.foreign += 1;
            }
        }
        let wanted_reports = wanted.len() as u64;
        found.reports = wanted_reports + entries.iter().filter(|entry| entry.is_report()).count() as u64;
        found.tombstones = entries.len() as u64 + wanted_reports - found.reports;
        let mut charged = 0;
        let sent = entries
            .iter()
            .take(ON_THEIR_WAY)
            .take_while(|entry| {
                charged += entry.charge();
                charged <= limits.bytes / PART
            })
            .map(|entry| entry.number)
            .collect();
        let line = Line { entries, sent, next };
        let state = State { ready: next, line, refused: refused.into(), ..State::default() };
        let spool = Self::new(Some(files), limits, state);
        wanted.sort_by_key(|(name, _)| name.number);
        for (name, stored) in wanted {
            spool.requeue(&mut spool.state(), &name, stored);
        }
        let mut state = spool.state();
        state.ready = state.line.next;
        drop(state);
        Ok((spool, found))
    }
}

/// Finishes what a crash has interrupted: drops reports that already have a tombstone.
fn finish(line: &mut Vec<Entry>, refused: &mut Vec<Name>, files: &dyn Files) {
    let lost: Vec<_> = line
        .iter()
        .filter_map(|entry| match entry.what {
            EntryContent::Lost { ids, reason, .. } => Some((ids, reason)),
            _ => None,
        })
        .collect();
    if lost.is_empty() {
        return;
    }
    line.retain(|entry| {
        let EntryContent::File(ids, stored) = entry.what else { return true };
        let Some((_, reason)) = lost.iter().find(|(lost, _)| lost.cover(&ids)) else { return true };
        let name = Name { number: entry.number, time: entry.time, ids, content: Content::Report(stored) };
        if *reason == Reason::Refused {
            let aside = Name { content: Content::Refused(stored), ..name };
            if files.rename(&name.to_string(), &aside.to_string()).is_ok() {
                refused.push(aside);
            }
        } else {
            let _ = files.remove(&name.to_string());
        }
        false
    });
}

fn is_answer(text: &str) -> bool {
    text.strip_suffix(ANSWER).and_then(Name::read).is_some_and(|name| matches!(name.content, Content::Refused(_)))
}
