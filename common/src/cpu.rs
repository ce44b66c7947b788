//! What the kernel side keeps for one CPU: its window, its counters, and records that wait for the ring.
//!
//! There is one block per CPU, so that one look-up finds everything, and no two CPUs share a cache line.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    control::INTERFACES_MAX,
    record::{InterfaceEdge, Record, SizeEdge},
};

/// How many evicted records are handed over together, with one reservation in the ring.
pub const EVICTED_MAX: usize = 32;

/// One CPU's block. Only programs that run on this CPU write it.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Cpu {
    /// The number of the open window.
    pub epoch: u32,
    /// Not 0 while `flush` changes the cache or `evicted`.
    pub busy: u32,
    /// Not 0 from the first call of `flush` for a window until it is closed.
    pub closing: u32,
    /// How far `flush` came.
    pub cursor: u32,
    /// Records in `evicted`.
    pub evicted_count: u32,
    /// Packets that sampling leaves out before it takes the next one.
    pub left_out: u32,
    /// The sampling rate by which `left_out` was drawn; 0 before the first draw.
    pub rate: u32,
    /// The value of `rate` at the end of the window that is being closed.
    pub closed_rate: u32,
    /// Set by the loader: the first of this CPU's slots in the flow cache.
    pub first_slot: u32,
    /// Set by the loader: how many of the lowest bits of a flow's [`crate::hash::place`] its slot does not depend on.
    pub place_shift: u32,
    /// Padding to the end of the cache line.
    pub padding: [u32; 6],
    /// Evicted records that wait until the ring gets them.
    pub evicted: [Record; EVICTED_MAX],
    /// Two sets of counters. Even epochs use the first, odd ones the second: while one window is being closed, the next
    /// one is counted in the other set.
    pub counter_sets: [CounterSet; 2],
    /// Padding to the end of the block.
    pub tail: [u64; 6],
}

/// What one window counts on one CPU. It is cumulative over all windows of the same parity.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CounterSet {
    /// Counters of each interface slot.
    pub interfaces: [InterfaceEdge; INTERFACES_MAX as usize],
    /// Packet sizes.
    pub sizes: SizeEdge,
}

// Blocks follow one another from the beginning of a page.
const _: () = assert!(size_of::<Cpu>().is_multiple_of(64));
