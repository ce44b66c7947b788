//! A disk that loses power: it keeps everything that was synced, and any part of the rest.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    sync::{Arc, Mutex, MutexGuard},
};

use super::super::files::Files;

/// Files, as the process sees them and as they are on the disk.
#[derive(Debug, Default)]
pub struct Disk(Mutex<State>);

#[derive(Clone, Debug, Default)]
struct State {
    /// The names of files as the process sees them.
    names: BTreeMap<String, usize>,
    contents: Vec<Content>,
    /// The names of files that are certainly on the disk.
    synced: BTreeMap<String, usize>,
    /// Renames and other changes of names that may or may not be on the disk, in order.
    pending: Vec<Change>,
    /// Steps until the power fails; `None`: it does not fail.
    steps: Option<usize>,
    has_failed: bool,
    /// Maximum bytes of all files.
    room: Option<usize>,
    is_read_only: bool,
}

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    is_synced: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Create(String, usize),
    Rename(String, String, usize),
    Remove(String),
}

/// The state of bytes that were not synced, after a crash.
#[derive(Clone, Copy, Debug)]
pub enum Rest {
    All,
    Half,
    Zeros,
    Nothing,
}

impl Rest {
    pub const ALL: [Self; 4] = [Self::All, Self::Half, Self::Zeros, Self::Nothing];
}

impl Disk {
    /// Makes the power fail after this many steps.
    pub fn fail_after(&self, steps: usize) {
        self.state().steps = Some(steps);
    }

    pub fn has_failed(&self) -> bool {
        self.state().has_failed
    }

    pub fn set_room(&self, bytes: Option<usize>) {
        self.state().room = bytes;
    }

    pub fn set_read_only(&self, is: bool) {
        self.state().is_read_only = is;
    }

    pub fn names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        state.contents[state.names[name]].bytes.clone()
    }

    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.state().write(name, bytes, true);
    }

    /// How many changes of names a crash may keep or lose.
    pub fn pending(&self) -> usize {
        self.state().pending.len()
    }

    /// The disk after a crash that keeps those pending changes whose bit is set.
    pub fn after_crash(&self, kept: u64, rest: Rest) -> Arc<Self> {
        let state = self.state();
        let mut names = state.synced.clone();
        for (nth, change) in state.pending.iter().enumerate() {
            if kept.rotate_right(nth as u32 % 64) & 1 == 0 {
                continue;
            }
            match change {
                Change::Create(name, content) => drop(names.insert(name.clone(), *content)),
                Change::Rename(from, to, content) => {
                    if names.get(from) == Some(content) {
                        names.remove(from);
                    }
                    names.insert(to.clone(), *content);
                }
                Change::Remove(name) => drop(names.remove(name)),
            }
        }
        let contents = state.contents.iter().map(|Content { bytes, is_synced }| {
            let bytes = match rest {
                _ if *is_synced => bytes.clone(),
                Rest::All => bytes.clone(),
                Rest::Half => bytes[..bytes.len() / 2].to_vec(),
                Rest::Zeros => vec![0; bytes.len()],
                Rest::Nothing => Vec::new(),
            };
            Content { bytes, is_synced: true }
        });
        let contents = contents.collect();
        Arc::new(Self(Mutex::new(State { synced: names.clone(), names, contents, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic with the lock")
    }
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        if self.steps == Some(0) {
            self.has_failed = true;
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.steps = self.steps.map(|steps| steps - 1);
        Ok(())
    }

    fn change(&mut self) -> io::Result<()> {
        self.step()?;
        if self.is_read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    fn write(&mut self, name: &str, bytes: &[u8], is_synced: bool) {
        let content = Content { bytes: bytes.to_vec(), is_synced };
        match self.names.get(name) {
            Some(known) => self.contents[*known] = content,
            None => {
                let new = self.contents.len();
                self.contents.push(content);
                self.names.insert(name.to_owned(), new);
                self.pending.push(Change::Create(name.to_owned(), new));
            }
        }
    }

    fn used(&self) -> usize {
        self.names.values().map(|content| self.contents[*content].bytes.len()).sum()
    }
}

impl Files for Arc<Disk> {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names())
    }

    fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let state = self.state();
        let content = state.names.get(name).ok_or(ErrorKind::NotFound)?;
        let bytes = state.contents[*content].bytes.clone();
        if bytes.len() as u64 > bytes_max { Err(ErrorKind::InvalidData.into()) } else { Ok(bytes) }
    }

    fn write(&self, name: &str, bytes: &[u8], sync: bool) -> io::Result<()> {
        let mut state = self.state();
        // The bytes are written first, and then synced.
        state.change()?;
        let there = state.names.get(name).map_or(0, |content| state.contents[*content].bytes.len());
        if state.room.is_some_and(|room| state.used() - there + bytes.len() > room) {
            let part = bytes.len() / 2;
            state.write(name, &bytes[..part], false);
            return Err(ErrorKind::StorageFull.into());
        }
        state.write(name, bytes, false);
        if sync {
            state.step()?;
            state.write(name, bytes, true);
        }
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.synced = state.names.clone();
        state.pending.clear();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        let content = state.names.remove(from).ok_or(ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), content);
        state.pending.push(Change::Rename(from.to_owned(), to.to_owned(), content));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.change()?;
        state.names.remove(name).ok_or(ErrorKind::NotFound)?;
        state.pending.push(Change::Remove(name.to_owned()));
        Ok(())
    }
}
