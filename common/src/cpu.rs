//! The kernel side's data for one CPU: its window, its counters, and the records that wait for the ring.
//!
//! There is one block per CPU, so that one lookup finds everything and no two CPUs share a cache line.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{control::SLOTS_MAX, ledger::Counters, record::Record, size::SIZE_CLASSES};

/// The version of everything in the maps that one weir leaves to the next: [`Cpu`], [`HandedOver`], [`Record`], their
/// meaning, and the arguments and results of `flush`. Change this number with any of them.
pub const LAYOUT: u32 = 3;
/// How many evicted records are handed over together, in one reservation of the ring.
pub const EVICTED_MAX: usize = 32;
/// The most records that one call of `flush` hands over.
pub const HANDED_OVER_MAX: usize = 256;

/// One CPU's block. Only programs on this CPU write it, and `flush` while the CPU is offline.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Cpu {
    /// The number of the open window.
    pub epoch: u32,
    /// Not 0 while `flush` owns the cache and `evicted`: packets leave them alone.
    pub busy: u32,
    /// Not 0 while a program measures a packet on this CPU: `flush` leaves the cache and `evicted` alone.
    pub in_packet: u32,
    /// Not 0 from the first call of `flush` for a window until it is closed.
    pub closing: u32,
    /// How far `flush` got.
    pub cursor: u32,
    /// Records that the last call of `flush` handed over.
    pub handed_over: u32,
    /// Records in `evicted`.
    pub evicted_count: u32,
    /// Packets that sampling leaves out before it takes the next one.
    pub left_out: u32,
    /// The sampling rate of the draw of `left_out`; 0 before the first draw.
    pub rate: u32,
    /// The value of `rate` at the end of the window that is being closed.
    pub closed_rate: u32,
    /// Set by the loader: the first of this CPU's slots in the flow cache.
    pub first_slot: u32,
    /// Set by the loader: how far to shift a flow's [`crate::hash::place`] right to get its slot.
    pub place_shift: u32,
    /// Set by the loader: the size of this CPU's ring, in bytes.
    pub ring_bytes: u32,
    /// The largest packet of the open window and of the one before, in bytes, by the parity of their epochs. `flush`
    /// sets it to 0 when a window starts. Packets of a class with a single size are not included.
    pub largest: [u32; 2],
    /// Padding to the end of the cache line.
    pub padding: u32,
    /// Evicted records that wait for the ring.
    pub evicted: [Record; EVICTED_MAX],
    /// Two sets of counters. Even epochs use the first, odd epochs the second: while one window is being closed, the
    /// next one counts in the other set.
    pub counter_sets: [CounterSet; 2],
    /// Padding to the end of the block.
    pub tail: [u64; TAIL],
}

/// Fills the block's last cache line.
const TAIL: usize = (8 - (2 * size_of::<CounterSet>() / 8) % 8) % 8;

/// The counts of windows on one CPU, cumulative over all windows of the same parity.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CounterSet {
    /// Counters by interface slot.
    pub interfaces: [Counters; SLOTS_MAX as usize],
    /// Packets by [`crate::size::size_class`].
    pub sizes: [u64; SIZE_CLASSES],
}

/// Records that a call of `flush` took from a CPU's cache for its caller.
pub type HandedOver = [Record; HANDED_OVER_MAX];

// Blocks are consecutive and start at a page.
const _: () = assert!(size_of::<Cpu>().is_multiple_of(64));

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use crate::{flow::FlowKey, ledger::Tally};

    /// If this fails, [`LAYOUT`] needs another number: an upgraded weir reads the maps of the one before.
    #[test]
    fn the_layout_is_what_its_number_says() {
        let block = [offset_of!(Cpu, evicted), offset_of!(Cpu, counter_sets), size_of::<Cpu>()];
        let counters = [
            offset_of!(Counters, seen),
            offset_of!(Counters, sampled_out),
            offset_of!(Counters, repeated),
            offset_of!(Counters, tcp),
            offset_of!(Counters, skipped),
            offset_of!(Counters, lost),
            offset_of!(Counters, uncertain),
            size_of::<Counters>(),
        ];
        let record = [size_of::<FlowKey>(), offset_of!(Record, packets), offset_of!(Record, vlan), size_of::<Record>()];
        let others = [size_of::<Tally>(), SIZE_CLASSES, size_of::<HandedOver>()];
        assert_eq!(LAYOUT, 3);
        assert_eq!(block, [64, 2112, 303_936]);
        assert_eq!(counters, [0, 88, 104, 120, 152, 392, 472, 504]);
        assert_eq!(record, [40, 48, 62, 64]);
        assert_eq!(others, [16, 2736, 16_384]);
    }
}
