//! A window that one worker has closed: its sketches and exact counters.

use std::sync::Arc;

use weir_common::{ledger::Loss, record::Record};
use weir_datapath::edge::Edge;

use super::{account::WorkerAccount, shard::Shard};
use crate::question::Views;

/// A window closed by one worker.
pub struct Closed {
    /// Its sketches.
    pub shard: Box<Shard>,
    /// Its exact counters.
    pub edge: Edge,
    /// The highest fill of any of its rings, 0 to 1; `None` if it has none.
    pub ring_peak: Option<f64>,
    /// The sampling rate in force at the end of the window, whether or not a packet came.
    pub rate: u32,
    /// CPUs whose part of the window is incomplete: the rest will come in a later window.
    pub late: Vec<u32>,
    /// Whether it was counted by the kernel programs.
    pub is_of_programs: bool,
    /// Records of a later window, if this is the last one.
    pub rest: Vec<Record>,
}

impl Closed {
    /// A window without late CPUs that needed no ring.
    pub const fn new(shard: Box<Shard>, edge: Edge) -> Self {
        Self { shard, edge, ring_peak: None, rate: 1, late: Vec::new(), is_of_programs: false, rest: Vec::new() }
    }

    /// Drops the records if the shard's sketches cannot be merged. That is so if the shard has another key than its
    /// window, or answers other questions, because the part came so late that the day or the configuration has changed.
    /// The records count as lost. Returns how many packets that affects.
    pub fn give_up_other(&mut self, key_id: u64, views: &Arc<Views>) -> u64 {
        if self.shard.key_id() == key_id && Arc::ptr_eq(self.shard.plan(), views) {
            return 0;
        }
        let mut packets = 0;
        for (counters, attributed) in self.edge.counters.iter_mut().zip(self.shard.attributed) {
            counters.lost[Loss::RingFull as usize].add(attributed);
            packets += attributed.packets;
        }
        self.shard.clear();
        packets
    }

    /// Its exact numbers.
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

    #[test]
    fn a_part_with_the_key_of_another_day_or_other_views_is_accounted_for_as_lost() {
        let views = || Views::built_in(&Estimates::default(), 10);
        let (asked, others, key) = (views(), views(), Key([1, 2]));
        for (other_key, other_views) in [(Key([3, 4]), &asked), (key, &others)] {
            let mut shard = Box::new(Shard::new(&Estimates::default(), &asked, key));
            shard.attributed[1] = Tally::new(3, 300);
            let mut closed = Closed::new(shard, Edge::empty(2));
            assert_eq!(closed.give_up_other(key.id(), &asked), 0);
            assert_eq!(closed.shard.attributed[1], Tally::new(3, 300));
            assert_eq!(closed.give_up_other(other_key.id(), other_views), 3);
            assert_eq!(closed.shard.attributed[1], Tally::default());
            assert_eq!(closed.edge.counters[1].lost[Loss::RingFull as usize], Tally::new(3, 300));
        }
    }

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
