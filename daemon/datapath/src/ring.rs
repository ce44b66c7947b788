//! The ring of one CPU, and the events that wake its reader. A reader may have several rings.

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
    record::{self, Record},
};
use weir_system::waker::Waker;

use super::error::KernelError;

/// The header that the kernel puts before each entry, in bytes.
const ENTRY_HEADER_BYTES: u64 = 8;

/// The ring of one CPU.
pub struct Ring {
    cpu: u32,
    bytes: u32,
    entries: RingBuf<MapData>,
}

impl Ring {
    /// Opens a reader for the ring `map`, which has `bytes` bytes.
    pub fn new(cpu: u32, map: MapData, bytes: u32) -> Result<Self, KernelError> {
        Ok(Self { cpu, bytes, entries: RingBuf::try_from(Map::RingBuf(map))? })
    }

    /// The CPU that writes to this ring.
    pub const fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Passes records to `take`, in order, until the ring is empty or as many bytes as the ring holds have been read.
    pub fn drain(&mut self, mut take: impl FnMut(&[Record])) -> Drained {
        let mut bytes = 0;
        while bytes < u64::from(self.bytes) {
            let Some(item) = self.entries.next() else {
                return Drained { fill: bytes as f64 / f64::from(self.bytes), more: false };
            };
            bytes += item.len() as u64 + ENTRY_HEADER_BYTES;
            // weir's own program writes the entries, so every length is known. If a length were wrong, the ledger would
            // not balance.
            if let Some(records) = record::read(&item) {
                take(records);
            }
        }
        Drained { fill: 1.0, more: true }
    }
}

/// The events that a reader of rings waits for: much to read, or a call of its waker.
pub struct RingEvents {
    epoll: OwnedFd,
    waker: Waker,
}

impl RingEvents {
    /// Creates the events of a reader without rings.
    ///
    /// # Errors
    ///
    /// No file descriptor is left.
    pub fn new() -> Result<Self, KernelError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let events = Self { epoll, waker: Waker::new().map_err(KernelError::Wait)? };
        events.add_fd(events.waker.as_fd())?;
        Ok(events)
    }

    /// Adds a ring to wait for. Another thread may be waiting at the same time.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn add(&self, ring: &Ring) -> Result<(), KernelError> {
        self.add_fd(ring.entries.as_fd())
    }

    fn add_fd(&self, fd: BorrowedFd<'_>) -> Result<(), KernelError> {
        // Edge-triggered: the kernel side wakes the reader once every few hundred records, not for each one.
        let on_wakeup = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(0), on_wakeup).map_err(refused)
    }

    /// A waker for the reader.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until there is much to read, the reader is woken, or `timeout` has passed.
    ///
    /// # Errors
    ///
    /// The kernel refused to wait.
    pub fn wait(&self, timeout: Duration) -> Result<(), KernelError> {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); 2];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }
}

fn refused(error: Errno) -> KernelError {
    KernelError::Wait(error.into())
}

/// The result of a drain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drained {
    /// How full the ring was, from 0 to 1.
    pub fill: f64,
    /// True if there may be more to read immediately.
    pub more: bool,
}

/// How many records a ring of `bytes` bytes holds. They arrive [`EVICTED_MAX`] at a time.
pub const fn ring_records(bytes: u64) -> u64 {
    let together = EVICTED_MAX as u64;
    bytes / (together * size_of::<Record>() as u64 + ENTRY_HEADER_BYTES) * together
}

#[cfg(test)]
mod tests {
    use weir_system::clock;

    use super::*;

    const BRIEF: Duration = Duration::from_millis(20);
    /// A wait takes this long only if no event ends it.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_reader_waits_for_the_ring_or_a_waker_with_a_timeout() {
        // A waker stands in for the ring: both are files that become readable.
        let ring = Waker::new().unwrap();
        let events = RingEvents::new().unwrap();
        events.add_fd(ring.as_fd()).unwrap();
        let waits = |timeout| {
            let start = clock::now().monotonic;
            events.wait(timeout).unwrap();
            clock::now().monotonic - start
        };
        assert!(waits(BRIEF) >= BRIEF, "without an event, it waits for the whole timeout");
        ring.wake();
        assert!(waits(LONG) < LONG, "the ring wakes the reader");
        events.waker().wake();
        assert!(waits(LONG) < LONG, "the waker wakes the reader");
        assert!(waits(BRIEF) >= BRIEF, "each event wakes the reader only once");
    }
}
