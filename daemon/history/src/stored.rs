//! The history of a folder that no weir is writing to.

use std::{fs::File, io::Read, path::Path, sync::Mutex};

use weir_config::Addresses;

use crate::{
    archive::{Limits, numbered},
    block::MAGIC,
    disk::Disk,
    query::{Answer, Query},
    seconds::Seconds,
    windows::{SINGLE, Windows},
};

/// Memory for the windows that are in no closed block yet, in bytes.
const MEMORY: u64 = 4 << 20;
/// Nothing is written, so nothing is limited.
const UNLIMITED: Limits = Limits { bytes: u64::MAX, age: None, has_samples: true };
/// Bytes of an observer's identity in the head of a block, after the magic.
const OBSERVER: usize = 8;

/// A history that is only read.
#[derive(Debug)]
pub struct Stored {
    windows: Windows,
    seconds: Mutex<Seconds>,
}

impl Stored {
    /// Opens the history of a folder. `None` if there is none.
    pub fn open(folder: &Path) -> Option<Self> {
        let disk = Disk::new(folder, &observer_of(folder)?);
        let mut windows = Windows::new(MEMORY, Addresses::Full);
        disk.read_only(&mut windows, UNLIMITED);
        windows.oldest()?;
        Some(Self { windows, seconds: Mutex::default() })
    }

    /// Its windows.
    pub const fn windows(&self) -> &Windows {
        &self.windows
    }

    /// The answer to a query.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn answer(&self, query: &Query) -> Answer {
        query.answer(&self.windows, &self.seconds)
    }
}

/// The identity of the observer whose history is in a folder; `None` if there is none.
pub fn observer_of(folder: &Path) -> Option<String> {
    let segments = numbered(folder, SINGLE).into_iter().map(|(_, name)| name);
    segments.chain([crate::disk::OPEN.to_owned()]).find_map(|name| {
        let mut head = [0; MAGIC.len() + OBSERVER];
        File::open(folder.join(name)).ok()?.read_exact(&mut head).ok()?;
        let observer = head.strip_prefix(&MAGIC)?;
        let text: Vec<u8> = observer.iter().copied().take_while(|byte| *byte != 0).collect();
        String::from_utf8(text).ok()
    })
}
