//! What the coordinator and those who measure say to each other: an order to close the window, and the closed window.

use std::io;

use thiserror::Error;

use super::shard::Shard;
use crate::datapath::{cpu::PinError, edge::Edge, error::KernelError};

/// What a worker is told to do.
pub enum Order {
    /// Close the window, and go on with this empty shard.
    Close(Box<Shard>),
}

/// A window closed by one worker.
pub struct Closed {
    /// Its sketches.
    pub shard: Box<Shard>,
    /// Its exact counters.
    pub edge: Edge,
    /// The fullest that the ring was, 0 to 1.
    pub ring_peak: f64,
}

impl Closed {
    /// The highest sampling rate in force, at least 1: that of the packets that were taken, and that of the draw that
    /// left out the last ones.
    pub fn sampling(&self) -> u32 {
        let left_out = self.edge.counters.iter().any(|counters| !counters.sampled_out.is_zero());
        if left_out { self.shard.sampling.max(self.edge.sampling) } else { self.shard.sampling }
    }
}

/// Why a worker stopped.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The thread may not run on its CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// A packet socket failed its reader.
    #[error("cannot read a packet socket")]
    Tap(#[source] io::Error),
    /// Running `flush` failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;
    use weir_sketch::hash::Key;

    use super::*;
    use crate::config::Estimates;

    #[test]
    fn the_rate_of_the_last_draw_counts_only_where_it_left_something_out() {
        let mut shard = Box::new(Shard::new(&Estimates::default(), Key([1, 2])));
        shard.sampling = 4;
        let mut closed = Closed { shard, edge: Edge { sampling: 8, ..Edge::empty(2) }, ring_peak: 0.0 };
        assert_eq!(closed.sampling(), 4);
        closed.edge.counters[1].sampled_out = Tally::new(1, 60);
        assert_eq!(closed.sampling(), 8);
        closed.shard.sampling = 16;
        assert_eq!(closed.sampling(), 16, "packets were taken at a higher rate before");
    }
}
