//! What the kernel side keeps for one CPU: its place in the windows, its counters, and records on their way out.
//!
//! One block per CPU, so that one look-up finds all of it, and no two CPUs share a cache line.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    control::INTERFACES_MAX,
    record::{InterfaceEdge, Record, SizeEdge},
};

/// Evicted records that the ring gets together: one reservation for all of them.
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
    /// The same when the window that is being closed ended.
    pub closed_rate: u32,
    /// Set by the loader: the first of this CPU's slots in the flow cache.
    pub first_slot: u32,
    /// Set by the loader: how many of the lowest bits of a flow's [`crate::hash::place`] do not matter to its slot.
    pub place_shift: u32,
    /// Nothing, up to the cache line's end.
    pub padding: [u32; 6],
    /// Evicted records that wait until the ring gets them.
    pub evicted: [Record; EVICTED_MAX],
    /// What is counted, by epoch's parity: while one window is being closed, the next one is counted in the other set.
    pub counter_sets: [CounterSet; 2],
    /// Nothing, up to the block's end.
    pub tail: [u64; 6],
}

/// What one window counts on one CPU, cumulative over all windows of the same parity.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CounterSet {
    /// Counters of each interface slot.
    pub interfaces: [InterfaceEdge; INTERFACES_MAX as usize],
    /// Packet sizes.
    pub sizes: SizeEdge,
}

// Blocks stand one after the other, from the beginning of a page.
const _: () = assert!(size_of::<Cpu>().is_multiple_of(64));
