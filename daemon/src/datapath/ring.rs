//! The ring of one CPU, read by that CPU's worker, and what the worker waits for.

use std::{
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

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

/// The ring that one CPU writes to.
pub struct Ring {
    cpu: u32,
    bytes: u32,
    entries: RingBuf<MapData>,
}

impl Ring {
    /// A reader for the ring `map` of `bytes` bytes.
    pub(crate) fn new(cpu: u32, map: MapData, bytes: u32) -> Result<Self, KernelError> {
        Ok(Self { cpu, bytes, entries: RingBuf::try_from(Map::RingBuf(map))? })
    }

    /// The CPU that writes to this ring.
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// What this ring's reader waits for.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn events(&self) -> Result<RingEvents, KernelError> {
        RingEvents::new(self.cpu, self.entries.as_fd())
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

/// What a ring's reader waits for: much to read, or somebody who wakes it.
pub struct RingEvents {
    cpu: u32,
    epoll: OwnedFd,
    waker: Waker,
}

impl RingEvents {
    fn new(cpu: u32, ring: BorrowedFd<'_>) -> Result<Self, KernelError> {
        let refused = |error: Errno| KernelError::Wait { cpu, source: error.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let waker = Waker::new().map_err(|source| KernelError::Wait { cpu, source })?;
        // Edge-triggered: the kernel side wakes the reader once for some hundred records, not for each.
        let on_wakeup = epoll::EventFlags::IN | epoll::EventFlags::ET;
        for (number, fd) in [ring, waker.as_fd()].into_iter().enumerate() {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(number as u64), on_wakeup).map_err(refused)?;
        }
        Ok(Self { cpu, epoll, waker })
    }

    /// Wakes the reader.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const BRIEF: Duration = Duration::from_millis(20);
    /// No wait takes this long unless nothing ends it.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_reader_waits_for_the_ring_for_a_waker_and_not_for_ever() {
        // The ring is a file that becomes readable, as this is.
        let ring = Waker::new().unwrap();
        let events = RingEvents::new(0, ring.as_fd()).unwrap();
        let waits = |timeout| {
            let start = clock::now().monotonic;
            events.wait(timeout).unwrap();
            clock::now().monotonic - start
        };
        assert!(waits(BRIEF) >= BRIEF, "nothing happens: the whole timeout");
        ring.wake();
        assert!(waits(LONG) < LONG, "the ring");
        events.waker().wake();
        assert!(waits(LONG) < LONG, "the waker");
        assert!(waits(BRIEF) >= BRIEF, "each wakes the reader once");
    }
}
