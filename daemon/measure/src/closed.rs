//! A window that one worker has closed: its sketches and exact counters.

use weir_common::record::Record;
use weir_datapath::edge::Edge;

use super::{account::WorkerAccount, shard::Shard};

/// A window closed by one worker.
pub struct Closed {
    /// The sketches of the window.
    pub shard: Box<Shard>,
    /// The exact counters of the window.
    pub edge: Edge,
    /// The highest fill of any of its rings, 0 to 1; `None` if it has none.
    pub ring_peak: Option<f64>,
    /// The sampling rate in force at the end of the window, whether or not a packet came.
    pub rate: u32,
    /// CPUs whose part of the window is incomplete: the rest will come in a later window.
    pub late: Vec<u32>,
    /// True if the kernel programs counted it.
    pub is_of_programs: bool,
    /// Records of a later window, if this is the last one.
    pub rest: Vec<Record>,
}

impl Closed {
    /// A window without late CPUs that needed no ring.
    pub const fn new(shard: Box<Shard>, edge: Edge) -> Self {
        Self { shard, edge, ring_peak: None, rate: 1, late: Vec::new(), is_of_programs: false, rest: Vec::new() }
    }

    /// Returns the exact numbers.
    pub fn part(&self) -> WorkerAccount<'_> {
        WorkerAccount {
            edge: &self.edge,
            attributed: &self.shard.attributed,
            total: self.shard.total,
            sampling: self.sampling(),
            rate: self.rate,
            is_late: !self.late.is_empty(),
        }
    }

    /// Sets the rate in force. If any draw left something out, also sets the lowest and the highest rate that draws of
    /// this window may have had.
    pub fn sampled_at(&mut self, rate: u32, (least, most): (u32, u32)) {
        self.rate = rate;
        if !self.edge.has_left_out() {
            return;
        }
        let rate = |rate: u32| u16::try_from(rate).unwrap_or(u16::MAX);
        self.shard.sampling_least = self.shard.sampling_least.min(rate(least));
        self.shard.sampling = self.shard.sampling.max(rate(most));
    }

    /// The lowest and the highest sampling rate in force, of taken packets and of the draw that left out the last ones.
    /// `None` if nothing was taken and nothing left out.
    pub fn sampling(&self) -> Option<(u32, u32)> {
        let (mut least, mut most) = (self.shard.sampling_least.into(), self.shard.sampling.into());
        if self.edge.has_left_out() {
            (least, most) = (self.edge.sampling.0.min(least), self.edge.sampling.1.max(most));
        }
        (least <= most).then_some((least, most))
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;
    use weir_config::Estimates;
    use weir_sketch::hash::Key;

    use super::*;
    use crate::question::Views;

    #[test]
    fn the_rate_of_the_last_draw_counts_only_where_it_left_something_out() {
        let mut shard =
            Box::new(Shard::new(&Estimates::default(), &Views::built_in(&Estimates::default(), 10), Key([1, 2])));
        (shard.sampling_least, shard.sampling) = (2, 4);
        let mut closed = Closed::new(shard, Edge { sampling: (8, 8), ..Edge::empty(2) });
        assert_eq!(closed.sampling(), Some((2, 4)));
        closed.edge.counters[1].sampled_out = Tally::new(1, 60);
        assert_eq!(closed.sampling(), Some((2, 8)));
        (closed.shard.sampling_least, closed.shard.sampling) = (16, 16);
        assert_eq!(closed.sampling(), Some((8, 16)), "earlier packets were taken at a higher rate");
        closed.sampled_at(32, (2, 32));
        assert_eq!(closed.sampling(), Some((2, 32)), "even if the packet that it took had no record");
        closed.shard.clear();
        assert_eq!(closed.sampling(), Some((8, 8)), "nothing was taken");
        closed.edge.counters[1].sampled_out = Tally::default();
        closed.sampled_at(1, (1, 8));
        assert_eq!((closed.sampling(), closed.rate), (None, 1));
    }
}
