//! Reads the counters of the open window in place, through a mapping of the `CPUS` map.
//!
//! A lookup by system call copies whole blocks, which is too expensive once a second. With the mapping, the daemon
//! reads only the counters that it needs.

#![expect(unsafe_code, reason = "maps memory that the kernel writes, and reads it word by word")]

use std::{
    mem::offset_of,
    os::fd::AsFd,
    ptr::{self, NonNull},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weir_common::{
    control::SLOTS_MAX,
    cpu::{CounterSet, Cpu, HISTOGRAMS, Lengths, seen},
    ledger::{Counters, Loss, Tally},
};

use super::error::KernelError;

/// All CPUs' blocks, mapped read-only.
pub struct LiveCounters {
    memory: NonNull<u8>,
    cpus: usize,
}

// SAFETY: it only reads, and the mapping does not move until it is dropped.
unsafe impl Send for LiveCounters {}
// SAFETY: as above.
unsafe impl Sync for LiveCounters {}

impl LiveCounters {
    /// Maps `CPUS`, which has `cpus` blocks.
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

    /// All packets ever seen on the interface of this slot, on all CPUs; zero for an invalid slot. Packets that arrive
    /// during the call may or may not be included.
    pub fn seen(&self, slot: usize) -> Tally {
        if slot >= SLOTS_MAX as usize {
            return Tally::default();
        }
        let sets = (0..self.cpus).flat_map(|cpu| [(cpu, 0), (cpu, 1)]);
        // Each set is cumulative over the windows that used it.
        sets.map(|(cpu, set)| self.counter(cpu, set, slot)).sum()
    }

    /// Like [`Self::seen`], plus the number of packets that offloads had merged into an earlier one.
    pub fn seen_and_merged(&self, slot: usize) -> (Tally, u64) {
        if slot >= SLOTS_MAX as usize {
            return Default::default();
        }
        let sets = (0..self.cpus).flat_map(|cpu| [(cpu, 0), (cpu, 1)]);
        let merged = sets.map(|(cpu, set)| self.word(cpu, set, slot, offset_of!(Counters, merged)));
        let merged = merged.fold(0_u64, u64::wrapping_add);
        (self.seen(slot), merged)
    }

    /// All packets ever lost on the interface of this slot, on all CPUs, for any reason that the programs know.
    pub fn lost(&self, slot: usize) -> Tally {
        if slot >= SLOTS_MAX as usize {
            return Tally::default();
        }
        let mut lost = Tally::default();
        for (cpu, set) in (0..self.cpus).flat_map(|cpu| [(cpu, 0), (cpu, 1)]) {
            for reason in 0..Loss::COUNT {
                let offset = offset_of!(Counters, lost) + reason * size_of::<Tally>();
                let word = |part: usize| self.word(cpu, set, slot, offset + part);
                lost.add(Tally::new(word(offset_of!(Tally, packets)), word(offset_of!(Tally, bytes))));
            }
        }
        lost
    }

    /// Returns the packets that the programs of one CPU have seen in the windows of one set: see [`Cpu::counters`].
    fn counter(&self, cpu: usize, set: usize, slot: usize) -> Tally {
        let word = |offset: usize| self.word(cpu, set, slot, offset_of!(Counters, seen) + offset);
        let mut tally = Tally::new(word(offset_of!(Tally, packets)), word(offset_of!(Tally, bytes)));
        if slot < HISTOGRAMS as usize {
            let lengths = offset_of!(Cpu, lengths) + (set * HISTOGRAMS as usize + slot) * size_of::<Lengths>();
            for bytes in 0..size_of::<Lengths>() / 8 {
                tally.add(seen(bytes, self.read(cpu, lengths + 8 * bytes)));
            }
        }
        tally
    }

    /// The word at this offset in a slot's counters.
    fn word(&self, cpu: usize, set: usize, slot: usize, offset: usize) -> u64 {
        let counters = offset_of!(Cpu, counter_sets)
            + set * size_of::<CounterSet>()
            + offset_of!(CounterSet, interfaces)
            + slot * size_of::<Counters>();
        self.read(cpu, counters + offset)
    }

    /// The word at this offset in a CPU's block.
    fn read(&self, cpu: usize, offset: usize) -> u64 {
        let place = cpu * size_of::<Cpu>() + offset;
        // SAFETY: in bounds, because the CPU, set and slot are in range and the offset is that of a field; aligned,
        // because blocks are aligned and these fields are words. The kernel may write at the same time, but a volatile
        // read of a word is one load, and any value is valid.
        unsafe { self.memory.add(place).cast::<u64>().read_volatile() }
    }
}

impl Drop for LiveCounters {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it is left.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.cpus * size_of::<Cpu>()) };
    }
}
