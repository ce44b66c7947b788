//! A window's edge as the datapath reports it: exact counters and packet sizes.

use weir_common::{
    ledger::{Counters, Tally},
    record::{InterfaceEdge, SizeEdge},
    size::SIZE_CLASSES,
};

/// What one CPU counted in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Each interface slot's counters.
    pub counters: Vec<Counters>,
    /// Packets by size class.
    pub sizes: Vec<u64>,
    /// The sampling rate of the last draw: see [`InterfaceEdge::sampling`].
    pub sampling: u32,
    /// How much more than counted the lost packets may have been, where their sizes are not known exactly.
    pub lost_beyond: Tally,
}

impl Edge {
    /// An edge at which nothing was counted on `interfaces` interfaces.
    pub fn empty(interfaces: usize) -> Self {
        Self {
            counters: vec![Counters::default(); interfaces],
            sizes: vec![0; SIZE_CLASSES],
            sampling: 1,
            lost_beyond: Tally::default(),
        }
    }
}

/// Turns a CPU's cumulative counters, which come in two sets that take turns, into what one window counted.
#[derive(Debug)]
pub struct EdgeReader {
    earlier: [Edge; 2],
    current: Edge,
}

impl EdgeReader {
    /// A reader for counters that start at zero.
    pub fn new(interfaces: usize) -> Self {
        let empty = Edge::empty(interfaces);
        Self { earlier: [empty.clone(), empty.clone()], current: empty }
    }

    /// Takes one interface's counters.
    pub fn interface(&mut self, edge: &InterfaceEdge) {
        self.current.sampling = u32::try_from(edge.sampling).unwrap_or(u32::MAX).max(1);
        let slot = edge.interface as usize;
        let earlier = &mut self.earlier[edge.epoch as usize & 1];
        if let (Some(current), Some(earlier)) = (self.current.counters.get_mut(slot), earlier.counters.get_mut(slot)) {
            *current = edge.counters.since(earlier);
            *earlier = edge.counters;
        }
    }

    /// Takes the packet sizes, which come last: the edge is complete.
    pub fn sizes(&mut self, edge: &SizeEdge) -> Edge {
        let earlier = &mut self.earlier[edge.epoch as usize & 1];
        for ((current, earlier), now) in self.current.sizes.iter_mut().zip(&mut earlier.sizes).zip(edge.packets) {
            *current = now.wrapping_sub(*earlier);
            *earlier = now;
        }
        let interfaces = self.current.counters.len();
        std::mem::replace(&mut self.current, Edge::empty(interfaces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_counters_is_read_against_itself() {
        let mut reader = EdgeReader::new(1);
        let mut sizes = SizeEdge { epoch: 0, packets: [0; SIZE_CLASSES] };
        let mut read = |epoch: u32, seen: u64| {
            let mut edge = InterfaceEdge { epoch, ..InterfaceEdge::default() };
            edge.counters.seen = Tally::new(seen, seen * 60);
            reader.interface(&edge);
            sizes.epoch = u64::from(epoch);
            sizes.packets[60] = seen;
            let edge = reader.sizes(&sizes);
            assert_eq!(edge.sizes[60], edge.counters[0].seen.packets);
            edge.counters[0].seen
        };
        assert_eq!(read(0, 10), Tally::new(10, 600));
        assert_eq!(read(1, 3), Tally::new(3, 180));
        assert_eq!(read(2, 10), Tally::new(0, 0));
        assert_eq!(read(3, 8), Tally::new(5, 300));
    }
}
