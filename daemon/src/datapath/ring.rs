//! The ring of one CPU, read by that CPU's worker.

use std::{mem::MaybeUninit, os::fd::AsFd, time::Duration};

use aya::maps::{Map, MapData, RingBuf};
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
    io::Errno,
};
use weir_common::{
    cpu::EVICTED_MAX,
    record::{Entry, Record},
};

use super::error::KernelError;
use crate::waker::Waker;

/// The kernel puts this much before each entry.
const ENTRY_HEADER_BYTES: u64 = 8;
/// Marks the ring among what the reader waits for.
const RING: u64 = 0;

/// A ring and what its reader waits on.
pub struct Ring {
    cpu: u32,
    bytes: u32,
    entries: RingBuf<MapData>,
    epoll: OwnedFd,
    waker: Waker,
}

impl Ring {
    /// A reader for the ring `map` of `bytes` bytes.
    pub(crate) fn new(cpu: u32, map: MapData, bytes: u32) -> Result<Self, KernelError> {
        let entries = RingBuf::try_from(Map::RingBuf(map))?;
        let wait = |error: Errno| KernelError::Wait { cpu, source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wait)?;
        let waker = Waker::new().map_err(|source| KernelError::Wait { cpu, source })?;
        // Edge-triggered: the kernel side wakes the reader once for some hundred records, not for each.
        let on_wakeup = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, entries.as_fd(), epoll::EventData::new_u64(RING), on_wakeup).map_err(wait)?;
        epoll::add(&epoll, &waker, epoll::EventData::new_u64(RING + 1), on_wakeup).map_err(wait)?;
        Ok(Self { cpu, bytes, entries, epoll, waker })
    }

    /// The CPU that writes to this ring.
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Wakes this ring's reader.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until there is much to read, somebody wakes the reader, or `timeout` has passed.
    ///
    /// # Errors
    ///
    /// The kernel refused to wait.
    pub fn wait(&self, timeout: Duration) -> Result<(), KernelError> {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(KernelError::Wait { cpu: self.cpu, source: error.into() }),
        }
    }

    /// Hands entries to `take`, in order, until none is left or a whole ring's worth is read.
    pub fn drain(&mut self, mut take: impl FnMut(Entry<'_>)) -> Drained {
        let mut bytes = 0;
        while bytes < u64::from(self.bytes) {
            let Some(item) = self.entries.next() else {
                return Drained { fill: bytes as f64 / f64::from(self.bytes), more: false };
            };
            bytes += item.len() as u64 + ENTRY_HEADER_BYTES;
            // Entries come from our own program, so every length is known. If one were not, the ledger would not
            // balance.
            if let Some(entry) = Entry::read(&item) {
                take(entry);
            }
        }
        Drained { fill: 1.0, more: true }
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drained {
    /// How full the ring was, 0 to 1.
    pub fill: f64,
    /// Whether there may be more to read at once.
    pub more: bool,
}

/// How many records a ring of `bytes` bytes holds. They come [`EVICTED_MAX`] at a time.
pub const fn ring_records(bytes: u64) -> u64 {
    let together = EVICTED_MAX as u64;
    bytes / (together * size_of::<Record>() as u64 + ENTRY_HEADER_BYTES) * together
}
