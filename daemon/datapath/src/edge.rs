//! A window's edge: the exact counters and packet sizes that the datapath reports at the end of a window.
//!
//! A CPU counts into one of two sets of counters while the daemon reads the other one, so that the end of a window
//! counts no packet twice and leaves none out. The counters only increase, and the count of a window is the difference
//! of two readings. So nothing has to be reset, which would need an agreement with the programs about who writes when.

use weir_common::{
    control::OTHERS,
    cpu::Cpu,
    ledger::{Counters, Ledger, Loss, Tally, Uncertain},
    size::SIZE_CLASSES,
};

use crate::rates::Rates;

/// The counts of one window, on one or more CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Counters by interface slot.
    pub counters: Vec<Counters>,
    /// Counters of [`OTHERS`], unless that is one of these slots: packets for which no slot was found.
    pub others: Counters,
    /// By how much the packets that weir missed may exceed their counts, on all interfaces. Counters have this as
    /// uncertain, too, together with buffers of an unknown number of packets. But those packets have the key of their
    /// buffer, and these may have any.
    pub missed_beyond: Tally,
    /// Packets by size class.
    pub sizes: Vec<u64>,
    /// The largest packet in bytes, if its size class covers several sizes; otherwise any smaller number.
    pub largest: u64,
    /// The lowest and the highest sampling rate of the draws that were pending when the window ended. No record has the
    /// rate of the packets that such a draw skipped.
    pub sampling: (u32, u32),
    /// Rates by interface slot, if packets are counted in userspace; otherwise empty.
    pub rates: Vec<Rates>,
}

impl Edge {
    /// An edge for `interfaces` interfaces on which nothing was counted.
    pub fn empty(interfaces: usize) -> Self {
        Self {
            counters: vec![Counters::default(); interfaces],
            others: Counters::default(),
            missed_beyond: Tally::default(),
            sizes: vec![0; SIZE_CLASSES],
            largest: 0,
            sampling: (1, 1),
            rates: Vec::new(),
        }
    }

    /// Returns true if sampling skipped any packets.
    pub fn has_left_out(&self) -> bool {
        self.counters.iter().chain([&self.others]).any(|counters| !counters.sampled_out.is_zero())
    }

    /// Makes room for this many interfaces; the number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        if interfaces > self.counters.len() {
            self.counters.resize(interfaces, Counters::default());
            if let Some(others) = self.counters.get_mut(OTHERS as usize) {
                *others = std::mem::take(&mut self.others);
            }
        }
    }

    /// Adds the counts of another CPU, or of another window of the same CPU. Rates do not belong to one CPU, so they
    /// are not added.
    pub fn add(&mut self, other: &Self) {
        let Self { counters, others, missed_beyond, sizes, largest, sampling: (least, most), rates: _ } = other;
        for (sum, counters) in self.counters.iter_mut().zip(counters) {
            add(sum, counters);
        }
        add(&mut self.others, others);
        self.missed_beyond.add(*missed_beyond);
        for (sum, packets) in self.sizes.iter_mut().zip(sizes) {
            *sum = sum.wrapping_add(*packets);
        }
        self.largest = self.largest.max(*largest);
        self.sampling = (self.sampling.0.min(*least), self.sampling.1.max(*most));
    }
}

fn add(sum: &mut Counters, counters: &Counters) {
    let mut ledger = Ledger { counters: *sum, attributed: Tally::default() };
    ledger.add(&Ledger { counters: *counters, attributed: Tally::default() });
    *sum = ledger.counters;
}

/// Accounts for packets that were lost before weir saw them. `counted` is the estimate, and `beyond` is how far the
/// true number may exceed it. If `repeated`, these packets feed totals and lists on another interface.
pub fn lose(counters: &mut Counters, loss: Loss, counted: Tally, beyond: Tally, repeated: bool) {
    counters.seen.add(counted);
    counters.lost[loss as usize].add(counted);
    if repeated {
        counters.repeated.add(counted);
    }
    if !beyond.is_zero() {
        let most = [counted, beyond].into_iter().sum();
        counters.uncertain.add(Uncertain { least: counted, most });
    }
}

impl Edge {
    /// Accounts for missed packets of a slot. `counted` is the estimate, and `beyond` is how far the true number may
    /// exceed it. If `repeated`, these packets feed totals and lists on another interface.
    pub fn miss(&mut self, slot: usize, counted: Tally, beyond: Tally, repeated: bool) {
        let counters = match self.counters.get_mut(slot) {
            None if slot != OTHERS as usize => return,
            None => &mut self.others,
            Some(counters) => counters,
        };
        lose(counters, Loss::Blind, counted, beyond, repeated);
        self.missed_beyond.add(beyond);
    }

    /// Adds rates by slot from another source.
    pub fn add_rates(&mut self, rates: Vec<Rates>) {
        if self.rates.len() < rates.len() {
            self.rates.resize_with(rates.len(), Rates::default);
        }
        for (known, rates) in self.rates.iter_mut().zip(rates) {
            known.merge(rates);
        }
    }
}

/// Turns a CPU's cumulative counters, in two alternating sets, into the counts of one window.
#[derive(Debug)]
pub struct EdgeReader {
    earlier: [Edge; 2],
}

impl EdgeReader {
    /// Creates a reader for counters that start at zero.
    pub fn new(interfaces: usize) -> Self {
        let empty = Edge::empty(interfaces);
        Self { earlier: [empty.clone(), empty] }
    }

    /// Makes room for this many interfaces, whose counters start at zero; the number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        for earlier in &mut self.earlier {
            earlier.provide(interfaces);
        }
    }

    /// The number of interfaces.
    pub const fn interfaces(&self) -> usize {
        self.earlier[0].counters.len()
    }

    /// Fills `edge` with the counts of the window of this epoch, after `flush` has closed the window. `edge` has as
    /// many interfaces as this reader.
    pub fn read(&mut self, epoch: u32, cpu: &Cpu, edge: &mut Edge) {
        let parity = epoch as usize & 1;
        let earlier = &mut self.earlier[parity];
        for (slot, (counted, earlier)) in edge.counters.iter_mut().zip(&mut earlier.counters).enumerate() {
            let now = cpu.counters(parity, slot);
            *counted = now.since(earlier);
            *earlier = now;
        }
        if edge.counters.len() <= OTHERS as usize {
            let now = cpu.counters(parity, OTHERS as usize);
            edge.others = now.since(&earlier.others);
            earlier.others = now;
        }
        for ((counted, earlier), now) in edge.sizes.iter_mut().zip(&mut earlier.sizes).zip(cpu.sizes(parity)) {
            *counted = now.wrapping_sub(*earlier);
            *earlier = now;
        }
        edge.largest = cpu.largest[parity].into();
        let rate = cpu.closed_rate.max(1);
        edge.sampling = (rate, rate);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn each_set_of_counters_is_read_against_itself() {
        assert_eq!(EdgeReader::new(3).interfaces(), 3);
        let mut reader = EdgeReader::new(1);
        let mut cpu: Box<Cpu> = Box::new(Cpu::new_zeroed());
        let mut read = |epoch: u32, seen: u64| {
            let set = &mut cpu.counter_sets[epoch as usize & 1];
            set.interfaces[0].seen = Tally::new(seen, seen * 60);
            set.sizes[60] = seen;
            cpu.largest[epoch as usize & 1] = 3_000 + epoch;
            cpu.closed_rate = epoch;
            // The counts of the previous window are still in the edge.
            let mut edge = Edge { sizes: vec![7; SIZE_CLASSES], ..Edge::empty(1) };
            reader.read(epoch, &cpu, &mut edge);
            assert_eq!(edge.sizes[61], 0);
            assert_eq!(edge.largest, 3_000 + u64::from(epoch));
            assert_eq!(edge.sizes[60], edge.counters[0].seen.packets);
            assert_eq!(edge.sampling, (epoch.max(1), epoch.max(1)));
            edge.counters[0].seen
        };
        assert_eq!(read(0, 10), Tally::new(10, 600));
        assert_eq!(read(1, 3), Tally::new(3, 180));
        assert_eq!(read(2, 10), Tally::new(0, 0));
        assert_eq!(read(3, 8), Tally::new(5, 300));
    }

    #[test]
    fn packets_without_a_slot_are_counted_exactly_once() {
        const SLOT: usize = OTHERS as usize;
        let mut reader = EdgeReader::new(1);
        let mut cpu: Box<Cpu> = Box::new(Cpu::new_zeroed());
        let mut read = |reader: &mut EdgeReader, seen: u64| {
            cpu.counter_sets[0].interfaces[SLOT].seen = Tally::new(seen, seen * 60);
            let mut edge = Edge::empty(reader.interfaces());
            reader.read(0, &cpu, &mut edge);
            edge
        };
        assert_eq!(read(&mut reader, 10).others.seen, Tally::new(10, 600));
        let mut sum = read(&mut reader, 13);
        assert_eq!(sum.others.seen, Tally::new(3, 180));
        reader.provide(SLOT + 1);
        sum.provide(SLOT + 1);
        let edge = read(&mut reader, 14);
        sum.add(&edge);
        assert_eq!((edge.counters[SLOT].seen.packets, edge.others), (1, Counters::default()));
        assert_eq!((sum.counters[SLOT].seen.packets, sum.others), (4, Counters::default()));
    }

    #[test]
    fn missed_packets_count_as_seen_and_lost() {
        let mut edge = Edge::empty(2);
        edge.miss(1, Tally::new(3, 300), Tally::new(1, 100), true);
        edge.miss(1, Tally::new(2, 200), Tally::default(), true);
        edge.miss(OTHERS as usize, Tally::default(), Tally::new(1, 100), false);
        let counters = &edge.counters[1];
        let lost = counters.lost[Loss::Blind as usize];
        assert_eq!([counters.seen, lost, counters.repeated], [Tally::new(5, 500); 3]);
        assert_eq!(counters.uncertain, Uncertain { least: Tally::new(3, 300), most: Tally::new(4, 400) });
        assert!(Ledger { counters: *counters, attributed: Tally::default() }.balances());
        assert_eq!((edge.others.seen, edge.others.uncertain.most), (Tally::default(), Tally::new(1, 100)));
        assert_eq!(edge.missed_beyond, Tally::new(2, 200));
    }

    #[test]
    fn edges_of_several_cpus_add_up() {
        let edge = |seen, rate| {
            let mut edge = Edge { sampling: (rate, rate), ..Edge::empty(2) };
            edge.counters[1].seen = Tally::new(seen, seen * 60);
            edge.counters[1].merged = seen;
            edge.missed_beyond = Tally::new(seen, 0);
            edge.sizes[60] = seen;
            edge.largest = seen;
            edge
        };
        let mut sum = edge(1, 4);
        sum.add(&edge(10, 2));
        sum.add(&edge(100, 8));
        assert_eq!(sum, Edge { sampling: (2, 8), largest: 100, ..edge(111, 1) });
    }
}
