//! The kernel side's data for one CPU: its window, its counters, and the records that wait for the ring.
//!
//! There is one block per CPU, so that one lookup finds everything and no two CPUs share a cache line.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    control::SLOTS_MAX,
    ledger::{Counters, Tally},
    record::Record,
    size::{EXACT, SIZE_CLASSES},
};

/// The version of everything in the maps that one weir leaves to the next: [`Cpu`], [`HandedOver`], [`Record`], their
/// meaning, and the arguments and results of `flush`. Change this number with any of them.
pub const LAYOUT: u32 = 4;
/// How many evicted records are handed over together, in one reservation of the ring.
pub const EVICTED_MAX: usize = 32;
/// How many interfaces have a histogram: those of the lowest slots. A power of two.
pub const HISTOGRAMS: u32 = 8;
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
    /// A histogram for each parity of epochs and each of the first slots; see [`Lengths`].
    pub lengths: [[Lengths; HISTOGRAMS as usize]; 2],
    /// Two sets of counters. Even epochs use the first, odd epochs the second: while one window is being closed, the
    /// next one counts in the other set.
    pub counter_sets: [CounterSet; 2],
    /// Padding to the end of the block.
    pub tail: [u64; TAIL],
}

/// Fills the block's last cache line.
const TAIL: usize = (8 - (2 * size_of::<CounterSet>() / 8) % 8) % 8;

/// Packets by their length in bytes, cumulative like a [`CounterSet`].
///
/// It counts an interface's packets that are alone in their buffer, have a length below [`EXACT`], and feed totals and
/// lists there: nearly all packets. What was seen of them, their bytes and their sizes are sums over the histogram, so
/// a packet takes one addition. All other packets, and those of interfaces without a histogram, are in
/// [`Counters::seen`], [`Counters::sizes`] and [`CounterSet::sizes`]. [`Cpu::counters`] and [`Cpu::sizes`] have both.
pub type Lengths = [u64; EXACT as usize];

/// The counts of windows on one CPU, cumulative over all windows of the same parity.
#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CounterSet {
    /// Counters by interface slot, without what [`Lengths`] count.
    pub interfaces: [Counters; SLOTS_MAX as usize],
    /// Packets by [`crate::size::size_class`], without what [`Lengths`] count.
    pub sizes: [u64; SIZE_CLASSES],
}

impl Cpu {
    /// All counters of an interface's slot in windows of this parity. Panics if there is no such slot.
    pub fn counters(&self, parity: usize, slot: usize) -> Counters {
        let mut counters = self.counter_sets[parity].interfaces[slot];
        for (bytes, packets) in self.lengths[parity].get(slot).into_iter().flatten().copied().enumerate() {
            counters.seen.add(seen(bytes, packets));
            counters.sizes.count(bytes, packets);
        }
        counters
    }

    /// All packets by [`crate::size::size_class`] in windows of this parity.
    pub fn sizes(&self, parity: usize) -> [u64; SIZE_CLASSES] {
        let mut sizes = self.counter_sets[parity].sizes;
        for lengths in &self.lengths[parity] {
            for (sum, packets) in sizes.iter_mut().zip(lengths) {
                *sum = sum.wrapping_add(*packets);
            }
        }
        sizes
    }
}

/// What [`Lengths`] say of one length.
pub const fn seen(bytes: usize, packets: u64) -> Tally {
    Tally::new(packets, packets.wrapping_mul(bytes as u64))
}

/// Records that a call of `flush` took from a CPU's cache for its caller.
pub type HandedOver = [Record; HANDED_OVER_MAX];

// Blocks are consecutive and start at a page.
const _: () = assert!(size_of::<Cpu>().is_multiple_of(64));

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;
    use crate::flow::FlowKey;

    #[test]
    fn counters_have_what_histograms_have() {
        use std::boxed::Box;
        use zerocopy::FromZeros as _;
        let mut cpu: Box<Cpu> = Cpu::new_box_zeroed().unwrap();
        let last = HISTOGRAMS as usize - 1;
        for (parity, slot, bytes, packets) in [(1, 0, 60, 3), (1, last, 2_047, 5), (1, last, 60, 2), (0, 0, 60, 100)] {
            cpu.lengths[parity][slot][bytes] = packets;
        }
        for slot in [last, last + 1] {
            let counters = &mut cpu.counter_sets[1].interfaces[slot];
            counters.seen = Tally::new(1, 3_000);
            counters.sizes.count(crate::size::size_class(3_000), 1);
        }
        cpu.counter_sets[1].sizes[crate::size::size_class(3_000)] = 2;
        let seen = |slot| (cpu.counters(1, slot).seen, cpu.counters(1, slot).sizes.0);
        assert_eq!(seen(0), (Tally::new(3, 180), [3, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(seen(1), (Tally::default(), [0; 8]));
        assert_eq!(seen(last), (Tally::new(8, 3_000 + 5 * 2_047 + 2 * 60), [2, 0, 0, 0, 0, 0, 5, 1]));
        assert_eq!(seen(last + 1), (Tally::new(1, 3_000), [0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(cpu.counters(0, 0).seen, Tally::new(100, 6_000));
        let sizes = cpu.sizes(1);
        assert_eq!([sizes[60], sizes[2_047], sizes.iter().sum()], [5, 5, 12]);
    }

    /// If this fails, [`LAYOUT`] needs another number: an upgraded weir reads the maps of the one before.
    #[test]
    fn the_layout_is_what_its_number_says() {
        let block =
            [offset_of!(Cpu, evicted), offset_of!(Cpu, lengths), offset_of!(Cpu, counter_sets), size_of::<Cpu>()];
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
        assert_eq!(LAYOUT, 4);
        assert_eq!(block, [64, 2112, 264_256, 566_080]);
        assert_eq!(counters, [0, 88, 104, 120, 152, 392, 472, 504]);
        assert_eq!(record, [40, 48, 62, 64]);
        assert_eq!(others, [16, 2736, 16_384]);
    }
}
