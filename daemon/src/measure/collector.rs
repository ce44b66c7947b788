//! Fills shards with what one CPU's ring brings, and closes windows there.

use std::sync::Arc;

use weir_common::{control::Flush, record::Entry};
use weir_sketch::Seen;

use super::{batch::Batch, order::Closed, shard::Shard};
use crate::datapath::{
    edge::{Edge, EdgeReader},
    error::KernelError,
    programs::FlushProgram,
    ring::{Drained, Ring},
};

/// Where a CPU's entries come from, and what ends its window.
pub trait Source {
    /// Hands over what is in the ring, in order.
    fn drain(&mut self, take: impl FnMut(Entry<'_>)) -> Drained;

    /// Runs `flush` once.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    fn flush(&mut self) -> Result<Flush, KernelError>;
}

/// A CPU's ring, and the kernel's `flush` program, which must run on that CPU.
pub struct KernelSource<'a> {
    /// The ring.
    pub ring: Ring,
    /// The program.
    pub flush: FlushProgram<'a>,
}

impl Source for KernelSource<'_> {
    fn drain(&mut self, take: impl FnMut(Entry<'_>)) -> Drained {
        self.ring.drain(take)
    }

    fn flush(&mut self) -> Result<Flush, KernelError> {
        self.flush.run()
    }
}

/// Reads one ring into shards: the part of a worker that replay through the kernel uses too.
pub struct Collector<S> {
    source: S,
    seen: Arc<Seen>,
    edges: EdgeReader,
    epoch: u8,
    batch: Batch,
    ring_peak: f64,
}

impl<S: Source> Collector<S> {
    /// A collector that fills `shard` from `source`.
    pub fn new(source: S, seen: Arc<Seen>, interfaces: usize, shard: Box<Shard>) -> Self {
        Self { source, seen, edges: EdgeReader::new(interfaces), epoch: 0, batch: Batch::new(shard), ring_peak: 0.0 }
    }

    /// Takes what is in the ring.
    pub fn drain(&mut self) -> Drained {
        self.drain_across(None).drained
    }

    /// Takes what is in the ring while a window may be closing: what belongs to the next one goes to `next`. Returns
    /// the edge, once it came.
    fn drain_across(&mut self, mut next: Option<&mut Batch>) -> Taken {
        let Self { source, seen, edges, epoch, batch, ring_peak } = self;
        let mut closed = None;
        let drained = source.drain(|entry| match entry {
            Entry::Records(records) => {
                for record in records {
                    if record.key.epoch() == *epoch {
                        batch.push(record, seen);
                    } else if let Some(next) = &mut next {
                        // Only a closing window lets the next epoch begin.
                        next.push(record, seen);
                    }
                }
            }
            Entry::Interface(edge) => edges.interface(edge),
            Entry::Sizes(edge) => closed = Some(edges.sizes(edge)),
        });
        batch.settle(seen);
        *ring_peak = ring_peak.max(drained.fill);
        Taken { edge: closed, drained }
    }

    /// Closes the window on this thread's CPU, which must be the ring's; goes on with the empty shard `spare`.
    ///
    /// # Errors
    ///
    /// The kernel refused to run `flush`.
    pub fn close(&mut self, spare: Box<Shard>) -> Result<Closed, KernelError> {
        let mut next = Batch::new(spare);
        // Once, not until the ring is empty: under load it never is.
        self.drain();
        let mut state = Flush::Again;
        loop {
            // Once it is done, the edge is in the ring; another run would close the next window.
            if state != Flush::Done {
                state = self.source.flush()?;
            }
            if let Some(edge) = self.drain_across(Some(&mut next)).edge {
                self.epoch = self.epoch.wrapping_add(1);
                let shard = self.batch.replace(next, &self.seen);
                return Ok(Closed { shard, edge, ring_peak: std::mem::take(&mut self.ring_peak) });
            }
            if state == Flush::NoRing {
                return Err(KernelError::Missing("ring"));
            }
        }
    }
}

/// What one look into the ring brought.
struct Taken {
    edge: Option<Edge>,
    drained: Drained,
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;

    use weir_common::{
        flow::{FlowKey, Scope},
        ledger::Tally,
        record::{InterfaceEdge, Record, Sample, SizeEdge},
        size::SIZE_CLASSES,
    };
    use weir_sketch::hash::Key;

    use super::*;
    use crate::config::Estimates;

    /// What a ring may hold.
    #[derive(Clone)]
    pub(in crate::measure) enum Held {
        Records(Vec<Record>),
        Interface(Box<InterfaceEdge>),
        Sizes(Box<SizeEdge>),
    }

    impl Held {
        pub(in crate::measure) fn entry(&self) -> Entry<'_> {
            match self {
                Self::Records(records) => Entry::Records(records),
                Self::Interface(edge) => Entry::Interface(edge),
                Self::Sizes(edge) => Entry::Sizes(edge),
            }
        }
    }

    /// Each drain brings the next of these; each run of `flush` answers with the next of those.
    #[derive(Default)]
    struct Script {
        drains: VecDeque<(f64, Vec<Held>)>,
        flushes: VecDeque<Flush>,
    }

    impl Source for Script {
        fn drain(&mut self, mut take: impl FnMut(Entry<'_>)) -> Drained {
            let Some((fill, held)) = self.drains.pop_front() else { return Drained { fill: 0.0, more: false } };
            held.iter().for_each(|one| take(one.entry()));
            Drained { fill, more: false }
        }

        fn flush(&mut self) -> Result<Flush, KernelError> {
            Ok(self.flushes.pop_front().expect("`flush` was run once more than it should be"))
        }
    }

    pub(in crate::measure) fn shard() -> Box<Shard> {
        let settings = Estimates { unique_error: 0.05, top_error: 0.01, top_candidates: 64 };
        Box::new(Shard::new(&settings, Key([3, 4])))
    }

    pub(in crate::measure) fn records(epoch: u8, bytes: &[u64]) -> Held {
        let record = |bytes| {
            let sample = Sample { tally: Tally::new(1, bytes), tick: 0, sampling: 1, tcp_flags: 0 };
            Record::first(FlowKey::default().with_scope(Scope::new(0, epoch)), sample)
        };
        Held::Records(bytes.iter().map(|bytes| record(*bytes)).collect())
    }

    pub(in crate::measure) fn edge(epoch: u32, seen: Tally) -> [Held; 2] {
        let mut edge = Box::new(InterfaceEdge { epoch, ..InterfaceEdge::default() });
        edge.counters.seen = seen;
        let sizes = Box::new(SizeEdge { epoch: epoch.into(), packets: [0; SIZE_CLASSES] });
        [Held::Interface(edge), Held::Sizes(sizes)]
    }

    fn collector(drains: Vec<(f64, Vec<Held>)>, flushes: &[Flush]) -> Collector<Script> {
        let script = Script { drains: drains.into(), flushes: flushes.iter().copied().collect() };
        Collector::new(script, Arc::new(Seen::with_capacity(1_000, 0.01, Key([3, 4]).id())), 1, shard())
    }

    #[test]
    fn each_record_goes_to_the_window_of_its_epoch() {
        let mut collector = collector(
            vec![
                (0.2, vec![records(0, &[100, 200])]),
                (0.9, vec![records(0, &[300])]),
                // While `flush` is at work, packets of the next window are evicted already.
                (0.1, vec![records(1, &[1_000]), records(0, &[400])]),
                (0.1, [vec![records(1, &[2_000])], edge(0, Tally::new(4, 1_000)).to_vec()].concat()),
                (0.3, vec![records(1, &[3_000])]),
                (0.0, vec![]),
                (0.0, edge(1, Tally::new(3, 6_000)).to_vec()),
            ],
            &[Flush::RingFull, Flush::Done, Flush::Done],
        );
        collector.drain();
        let first = collector.close(shard()).unwrap();
        assert_eq!((first.shard.records, first.shard.total), (4, Tally::new(4, 1_000)));
        assert_eq!(first.edge.counters[0].seen, Tally::new(4, 1_000));
        assert_eq!(first.ring_peak, 0.9);
        collector.drain();
        let second = collector.close(shard()).unwrap();
        assert_eq!((second.shard.records, second.shard.total), (3, Tally::new(3, 6_000)));
        assert_eq!(second.edge.counters[0].seen, Tally::new(3, 6_000));
        assert_eq!(second.ring_peak, 0.3, "the peak of each window is its own");
    }

    #[test]
    fn a_window_that_is_done_is_not_flushed_again_while_its_edge_is_still_to_be_read() {
        let drains = vec![
            (0.0, vec![]),
            (1.0, vec![records(0, &[100])]),
            (0.5, vec![records(0, &[200])]),
            (0.5, edge(0, Tally::new(2, 300)).to_vec()),
        ];
        let closed = collector(drains, &[Flush::Done]).close(shard()).unwrap();
        assert_eq!(closed.shard.total, Tally::new(2, 300));
    }

    #[test]
    fn what_is_of_no_open_window_is_not_attributed() {
        let mut collector = collector(vec![(0.0, vec![records(1, &[100])])], &[]);
        collector.drain();
        assert_eq!(collector.batch.replace(Batch::new(shard()), &collector.seen).records, 0);
    }

    #[test]
    fn a_cpu_without_a_ring_is_an_error_and_no_endless_wait() {
        assert!(matches!(collector(vec![], &[Flush::NoRing]).close(shard()), Err(KernelError::Missing("ring"))));
    }
}
