//! The counters of the open window, read in place: the map of the CPUs' blocks, as the kernel shares it.
//!
//! A look at the blocks through a system call copies them whole, which is too much for once a second. Mapped, only the
//! counters that are asked for are read.

#![expect(unsafe_code, reason = "maps memory that the kernel writes, and reads it word by word")]

use std::{
    mem::offset_of,
    os::fd::AsFd,
    ptr::{self, NonNull},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weir_common::{
    control::SLOTS_MAX,
    cpu::{CounterSet, Cpu},
    ledger::{Counters, Tally},
};

use super::error::KernelError;

/// All CPUs' blocks, for reading only.
pub struct LiveCounters {
    memory: NonNull<u8>,
    cpus: usize,
}

// SAFETY: it only reads, and its memory stays where it is until it is dropped.
unsafe impl Send for LiveCounters {}
// SAFETY: as above.
unsafe impl Sync for LiveCounters {}

impl LiveCounters {
    /// Maps the map `CPUS`, which has so many blocks.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub(super) fn new(map: impl AsFd, cpus: u32) -> Result<Self, KernelError> {
        let cpus = cpus as usize;
        let flags = (ProtFlags::READ, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
        let memory = unsafe { mmap(ptr::null_mut(), cpus * size_of::<Cpu>(), flags.0, flags.1, map, 0) };
        let memory = memory.map_err(|error| KernelError::Counters(error.into()))?;
        let memory = NonNull::new(memory.cast()).ok_or(KernelError::Missing("CPUS"))?;
        Ok(Self { memory, cpus })
    }

    /// Everything that was ever seen on the interface of this slot, on all CPUs; nothing for a slot that cannot be.
    /// Packets that come at this moment may be in it or not.
    pub fn seen(&self, slot: usize) -> Tally {
        if slot >= SLOTS_MAX as usize {
            return Tally::default();
        }
        let sets = (0..self.cpus).flat_map(|cpu| [(cpu, 0), (cpu, 1)]);
        // Each set is cumulative over the windows that used it.
        sets.map(|(cpu, set)| self.counter(cpu, set, slot)).sum()
    }

    /// The same, with the packets of it that offloads had merged into an earlier one.
    pub fn seen_and_merged(&self, slot: usize) -> (Tally, u64) {
        if slot >= SLOTS_MAX as usize {
            return Default::default();
        }
        let sets = (0..self.cpus).flat_map(|cpu| [(cpu, 0), (cpu, 1)]);
        let merged = sets.map(|(cpu, set)| self.word(cpu, set, slot, offset_of!(Counters, merged)));
        let merged = merged.fold(0_u64, u64::wrapping_add);
        (self.seen(slot), merged)
    }

    fn counter(&self, cpu: usize, set: usize, slot: usize) -> Tally {
        let word = |offset: usize| self.word(cpu, set, slot, offset_of!(Counters, seen) + offset);
        Tally::new(word(offset_of!(Tally, packets)), word(offset_of!(Tally, bytes)))
    }

    /// A word of a slot's counters, at this offset in them.
    fn word(&self, cpu: usize, set: usize, slot: usize, offset: usize) -> u64 {
        let place = cpu * size_of::<Cpu>()
            + offset_of!(Cpu, counter_sets)
            + set * size_of::<CounterSet>()
            + offset_of!(CounterSet, interfaces)
            + slot * size_of::<Counters>()
            + offset;
        // SAFETY: within the mapping, because the CPU, the set and the slot are below their numbers, and the offset is
        // that of a field; aligned, because blocks are and these fields are words. The kernel may write it meanwhile: a
        // volatile read of a word is one load, and any value will do.
        unsafe { self.memory.add(place).cast::<u64>().read_volatile() }
    }
}

impl Drop for LiveCounters {
    fn drop(&mut self) {
        // SAFETY: this mapping is this value's own, and nothing refers to it any more.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.cpus * size_of::<Cpu>()) };
    }
}
