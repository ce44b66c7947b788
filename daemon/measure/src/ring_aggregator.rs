//! Fills shards with records from rings, and closes windows on their CPUs.

use std::{sync::Arc, time::Duration};

use weir_common::control::Flush;
use weir_datapath::{error::KernelError, ring::Drained};
use weir_sketch::Seen;
use weir_system::clock;

use super::{
    batch::RecordBatch,
    closed::Closed,
    lane::{Batches, Lane, Next, Source, Sum},
    open::{Content, OpenRequest},
    sampling_control::SamplingControl,
    shard::Shard,
};

/// How long a CPU may take to count a packet before its part of the window is late. Counting takes a millionth of that,
/// unless something interrupts the CPU, such as a real-time task on a real-time kernel.
const LATE: Duration = Duration::from_millis(100);
/// The same for the last window: no later one can have the rest of its packets.
const LATE_AT_THE_END: Duration = Duration::from_secs(2);
/// How long to leave such a CPU alone between two tries.
const PAUSE: Duration = Duration::from_micros(20);

/// Reads rings into shards. Workers and the replay through the kernel use it.
pub struct RingAggregator<S> {
    lanes: Vec<Lane<S>>,
    sum: Sum,
    batch: RecordBatch,
    seen: Arc<Seen>,
}

impl<S: Source> RingAggregator<S> {
    /// An aggregator that fills `shard`, without any source yet.
    pub fn new(seen: Arc<Seen>, interfaces: usize, shard: Box<Shard>) -> Self {
        Self { lanes: Vec::new(), sum: Sum::new(interfaces), batch: RecordBatch::new(shard), seen }
    }

    /// Adds the ring of a CPU whose windows were never closed.
    pub fn add(&mut self, source: S) {
        self.lanes.push(Lane::new(source, self.sum.interfaces()));
    }

    /// Makes room for this many interfaces, never fewer than before.
    pub fn provide(&mut self, interfaces: usize) {
        self.sum.provide(interfaces);
        for lane in &mut self.lanes {
            lane.provide(interfaces);
        }
    }

    /// The CPUs whose rings it reads.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.lanes.iter().map(Lane::cpu)
    }

    /// Reads all records in the rings. Returns the highest fill, and whether any ring may have more.
    pub fn drain(&mut self) -> Drained {
        let Self { lanes, batch, seen, .. } = self;
        let mut all = Drained { fill: 0.0, more: false };
        for lane in lanes {
            let drained = lane.drain(&mut Batches { open: batch, next: Next::Nowhere, seen });
            all = Drained { fill: all.fill.max(drained.fill), more: all.more | drained.more };
        }
        batch.settle(seen);
        all
    }

    /// Reads the open window without closing it. For [`OpenRequest::Keys`], every CPU first hands over its cache, so
    /// that everything seen so far is counted. A busy CPU is not waited for.
    ///
    /// # Errors
    ///
    /// The kernel refused to run `flush`.
    pub fn read(&mut self, wanted: &OpenRequest, control: &SamplingControl) -> Result<Content, KernelError> {
        self.drain();
        let Self { lanes, sum, batch, seen } = self;
        if matches!(wanted, OpenRequest::Keys) {
            for lane in lanes.iter_mut() {
                lane.collect(&mut Batches { open: batch, next: Next::Nowhere, seen }, sum)?;
            }
        }
        let (mut edge, mut is_late) = (sum.edge.clone(), false);
        for lane in lanes {
            is_late |= lane.add_arrived(&mut edge.counters);
        }
        Ok(batch.read(wanted, (edge, is_late), seen, control))
    }

    /// Closes the window on all CPUs, and continues with the empty shard `spare`.
    ///
    /// # Errors
    ///
    /// The kernel refused to run `flush`.
    pub fn close(&mut self, spare: Box<Shard>) -> Result<Closed, KernelError> {
        self.close_while(spare, waiting(LATE))
    }

    /// Closes the last window on all CPUs. Records of a later window are not absorbed, but handed over with it.
    ///
    /// # Errors
    ///
    /// As for [`RingAggregator::close`].
    pub fn close_last(self) -> Result<Closed, KernelError> {
        self.close_last_while(waiting(LATE_AT_THE_END))
    }

    fn close_while(&mut self, spare: Box<Shard>, wait: impl FnMut() -> bool) -> Result<Closed, KernelError> {
        let mut next = RecordBatch::new(spare);
        let ended = self.close_lanes(Next::Absorbed(&mut next), wait)?;
        let Self { sum, batch, seen, .. } = self;
        next.settle(seen);
        let edge = sum.take();
        let shard = batch.replace(next, seen, !edge.has_left_out());
        Ok(ended.with(Closed::new(shard, edge)))
    }

    fn close_last_while(mut self, wait: impl FnMut() -> bool) -> Result<Closed, KernelError> {
        let mut rest = Vec::new();
        let ended = self.close_lanes(Next::Kept(&mut rest), wait)?;
        let edge = self.sum.take();
        let shard = self.batch.finish(&self.seen, !edge.has_left_out());
        Ok(ended.with(Closed { rest, ..Closed::new(shard, edge) }))
    }

    /// Closes the window on all CPUs. When every open lane is busy, `wait` waits a little and returns whether to try
    /// again.
    fn close_lanes(&mut self, next: Next<'_>, mut wait: impl FnMut() -> bool) -> Result<EndedLanes, KernelError> {
        // Drain once, not until the rings are empty, because under load they never are.
        self.drain();
        let Self { lanes, sum, batch, seen } = self;
        let mut batches = Batches { open: batch, next, seen };
        let mut ended = EndedLanes { late: Vec::new(), ring_peak: 0.0 };
        for one in lanes.iter_mut() {
            one.begin_close();
        }
        loop {
            // Close a part on each CPU in turn, so that their windows end together.
            let (mut is_done, mut moves) = (true, false);
            for lane in lanes.iter_mut().filter(|lane| !lane.is_ended()) {
                match lane.close(&mut batches, sum)? {
                    Flush::Done => ended.end(lane, sum),
                    state => {
                        is_done = false;
                        moves |= state == Flush::Again;
                    }
                }
            }
            if is_done || !moves && !wait() {
                break;
            }
        }
        for lane in lanes.iter_mut().filter(|lane| !lane.is_ended()) {
            ended.end(lane, sum);
        }
        Ok(ended)
    }
}

/// Waits a little at each call. Returns whether less than `patience` has passed since the first call.
fn waiting(patience: Duration) -> impl FnMut() -> bool {
    let start = clock::now().monotonic;
    move || {
        std::thread::sleep(PAUSE);
        clock::now().monotonic.saturating_sub(start) < patience
    }
}

/// The lanes whose window has ended.
struct EndedLanes {
    /// The CPUs whose part of it is incomplete.
    late: Vec<u32>,
    /// The highest fill of any ring, 0 to 1.
    ring_peak: f64,
}

impl EndedLanes {
    fn end<S: Source>(&mut self, lane: &mut Lane<S>, sum: &mut Sum) {
        let part = lane.end(sum);
        self.late.extend((!part.is_whole).then(|| lane.cpu()));
        self.ring_peak = self.ring_peak.max(part.ring_peak);
    }

    fn with(self, closed: Closed) -> Closed {
        let Self { late, ring_peak } = self;
        Closed { ring_peak: Some(ring_peak), late, is_of_programs: true, ..closed }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;

    use weir_common::{
        flow::{FlowKey, Scope},
        ledger::{Ledger, Loss, Tally},
        packet::Parsed,
        record::{Record, Sample},
    };
    use weir_config::{Estimates, Packets, Sampling};
    use weir_datapath::edge::Edge;
    use weir_sketch::hash::Key;

    use super::*;
    use crate::question::Views;

    /// The result of one drain: the ring's fill, and records.
    pub(crate) type Drain = (f64, Vec<Record>);
    /// The result of one run of `flush`: the state, records from the cache, and what is in the ring afterwards.
    pub(crate) type Run = (Flush, Vec<Record>, Drain);

    /// Each drain, run of `flush` and closed window takes the next entry of its list. A ring that was full has more.
    #[derive(Default)]
    pub(crate) struct Script {
        pub(crate) cpu: u32,
        pub(crate) drains: VecDeque<Drain>,
        pub(crate) runs: VecDeque<Run>,
        pub(crate) edges: VecDeque<Edge>,
    }

    impl Source for Script {
        fn cpu(&self) -> u32 {
            self.cpu
        }

        fn drain(&mut self, mut take: impl FnMut(&[Record])) -> Drained {
            let (fill, records) = self.drains.pop_front().unwrap_or_default();
            take(&records);
            Drained { fill, more: fill >= 1.0 }
        }

        fn flush(&mut self, mut take: impl FnMut(&[Record])) -> Result<Flush, KernelError> {
            let (state, records, ring) = self.runs.pop_front().expect("`flush` was run once more than it should be");
            take(&records);
            self.drains.push_front(ring);
            Ok(state)
        }

        fn edge(&mut self, edge: &mut Edge) -> Result<(), KernelError> {
            *edge = self.edges.pop_front().expect("an edge was read before its window was closed");
            Ok(())
        }

        fn provide(&mut self, _: usize) {}
    }

    pub(crate) fn shard() -> Box<Shard> {
        let settings = Estimates { unique_error: 0.05, top_error: 0.01, top_candidates: 64 };
        Box::new(Shard::new(&settings, &Views::built_in(&settings, 10), Key([3, 4])))
    }

    pub(crate) fn records(epoch: u8, bytes: &[u64]) -> Vec<Record> {
        records_of(0, epoch, bytes)
    }

    fn records_of(interface: u8, epoch: u8, bytes: &[u64]) -> Vec<Record> {
        let record = |bytes| {
            let parsed = Parsed::new(FlowKey::default().with_scope(Scope::new(interface, epoch)));
            Record::first(parsed.key, Sample::new(&parsed, Tally::new(1, bytes), 0, 1))
        };
        bytes.iter().map(|bytes| record(*bytes)).collect()
    }

    pub(crate) fn edge(seen: Tally) -> Edge {
        let mut edge = Edge::empty(1);
        edge.counters[0].seen = seen;
        edge
    }

    fn aggregator(scripts: impl IntoIterator<Item = Script>) -> RingAggregator<Script> {
        let seen = Arc::new(Seen::with_capacity(1_000, 0.01, Key([3, 4]).id()).unwrap());
        let mut aggregator = RingAggregator::new(seen, 1, shard());
        for script in scripts {
            aggregator.add(script);
        }
        aggregator
    }

    fn close(aggregator: &mut RingAggregator<Script>) -> Closed {
        aggregator.close_while(shard(), || panic!("nothing is busy")).unwrap()
    }

    fn ledger(closed: &Closed) -> Ledger {
        Ledger { counters: closed.edge.counters[0], attributed: closed.shard.attributed[0] }
    }

    #[test]
    fn each_record_goes_to_the_window_of_its_epoch() {
        let mut aggregator = aggregator([Script {
            drains: [(0.2, records(0, &[100, 200])), (0.9, records(0, &[300]))].into(),
            runs: [
                // While `flush` runs, packets of the next window are already evicted.
                (Flush::Again, records(0, &[400]), (0.1, [records(1, &[1_000]), records(0, &[500])].concat())),
                (Flush::Done, vec![], (0.1, [records(1, &[2_000]), records(0, &[600])].concat())),
                (Flush::Done, records(1, &[4_000]), (0.0, vec![])),
            ]
            .into(),
            edges: [edge(Tally::new(6, 2_100)), edge(Tally::new(4, 10_000))].into(),
            ..Script::default()
        }]);
        aggregator.drain();
        let first = close(&mut aggregator);
        assert_eq!((first.shard.records, first.shard.total), (6, Tally::new(6, 2_100)));
        assert!(ledger(&first).balances() && first.late.is_empty());
        assert_eq!(first.ring_peak, Some(0.9));
        aggregator.lanes[0].source().drains.push_back((0.3, records(1, &[3_000])));
        aggregator.drain();
        let second = close(&mut aggregator);
        assert_eq!((second.shard.records, second.shard.total), (4, Tally::new(4, 10_000)));
        assert!(ledger(&second).balances());
        assert_eq!(second.ring_peak, Some(0.3), "the peak of each window is its own");
    }

    #[test]
    fn after_the_last_window_records_of_a_later_one_are_handed_over_and_not_absorbed() {
        // More records than are absorbed together.
        let later: Vec<_> = (1..=600).collect();
        let aggregator = aggregator([Script {
            runs: [
                (Flush::Again, records(0, &[400]), (0.1, [records(1, &later), records(0, &[500])].concat())),
                (Flush::Done, vec![], (0.0, records(1, &[2_000]))),
            ]
            .into(),
            edges: [edge(Tally::new(2, 900))].into(),
            ..Script::default()
        }]);
        let last = aggregator.close_last().unwrap();
        assert!(ledger(&last).balances() && last.shard.total == Tally::new(2, 900));
        assert_eq!(last.rest, [records(1, &later), records(1, &[2_000])].concat());
    }

    #[test]
    fn windows_of_several_cpus_are_one() {
        let script = |cpu, packets: &[u64]| Script {
            cpu,
            runs: [(Flush::Done, records(0, packets), (0.0, vec![]))].into(),
            edges: [edge(Tally::new(packets.len() as u64, packets.iter().sum()))].into(),
            ..Script::default()
        };
        let mut aggregator = aggregator([script(3, &[100]), script(7, &[200, 300])]);
        assert!(aggregator.cpus().eq([3, 7]));
        let closed = close(&mut aggregator);
        assert_eq!(ledger(&closed).counters.seen, Tally::new(3, 600));
        assert!(ledger(&closed).balances());
    }

    #[test]
    fn one_ring_with_more_is_enough_to_go_on() {
        let script = |fills: [f64; 3]| Script { drains: fills.map(|fill| (fill, vec![])).into(), ..Script::default() };
        let mut aggregator = aggregator([script([1.0, 1.0, 0.5]), script([0.5, 1.0, 0.5])]);
        assert_eq!([(); 3].map(|()| aggregator.drain().more), [true, true, false]);
    }

    #[test]
    fn a_cpu_that_is_busy_for_a_moment_is_waited_for() {
        let busy = || (Flush::Busy, vec![], (0.0, vec![]));
        let runs = [busy(), busy(), busy(), (Flush::Done, records(0, &[50]), (0.0, vec![]))].into();
        let edges = [edge(Tally::new(1, 50))].into();
        let closed = aggregator([Script { runs, edges, ..Script::default() }]).close(shard()).unwrap();
        assert!(closed.late.is_empty() && ledger(&closed).balances());
    }

    /// Reads the open window; returns its ledger.
    fn read(aggregator: &mut RingAggregator<Script>) -> Ledger {
        let control = SamplingControl::new(&Sampling { packets: Packets::OneIn(1), cpu: 0.5 });
        let Content::Keys(keys) = aggregator.read(&OpenRequest::Keys, &control).unwrap() else { panic!() };
        assert_eq!(keys[1].len(), 1, "all records have the same source");
        let wanted = OpenRequest::Numbers(Arc::new(keys));
        let Content::Numbers(numbers) = aggregator.read(&wanted, &control).unwrap() else { panic!() };
        let ledger = Ledger { counters: numbers.part().edge.counters[0], attributed: numbers.attributed[0] };
        let held = &numbers.views[1].held[0];
        assert_eq!([held.lower, held.upper, numbers.total], [ledger.attributed; 3]);
        ledger
    }

    #[test]
    fn the_open_window_can_be_read_with_everything_in_the_cache_and_goes_on() {
        let mut aggregator = aggregator([Script {
            drains: [(0.2, records(0, &[100, 200]))].into(),
            runs: [
                // The first reading of the open window.
                (Flush::Again, records(0, &[400]), (0.1, [records(1, &[1_000]), records(0, &[500])].concat())),
                (Flush::Done, vec![], (0.1, [records(1, &[2_000]), records(0, &[600])].concat())),
                // The second reading.
                (Flush::Done, records(1, &[4_000]), (0.0, records(2, &[10_000]))),
                // The end of the window.
                (Flush::Done, records(2, &[20_000]), (0.0, records(3, &[50_000]))),
                (Flush::Done, vec![], (0.0, vec![])),
            ]
            .into(),
            edges: [
                edge(Tally::new(5, 1_800)),
                edge(Tally::new(3, 7_000)),
                edge(Tally::new(2, 30_000)),
                edge(Tally::new(1, 50_000)),
            ]
            .into(),
            ..Script::default()
        }]);
        let first = read(&mut aggregator);
        assert!(first.balances() && first.attributed == Tally::new(7, 4_800), "{first:?}");
        let second = read(&mut aggregator);
        assert!(second.balances() && second.attributed == Tally::new(9, 18_800), "{second:?}");
        let closed = close(&mut aggregator);
        assert!(ledger(&closed).balances() && closed.late.is_empty());
        assert_eq!(closed.shard.total, Tally::new(10, 38_800), "each record once");
        assert_eq!(close(&mut aggregator).shard.total, Tally::new(1, 50_000));
    }

    #[test]
    fn a_reading_does_not_wait_for_a_cpu_that_is_busy() {
        let busy = || (Flush::Busy, vec![], (0.0, vec![]));
        let mut aggregator = aggregator([Script {
            drains: [(0.2, records(0, &[100]))].into(),
            runs: [
                busy(),
                (Flush::Again, records(0, &[200]), (0.0, records(1, &[1_000]))),
                busy(),
                (Flush::Done, records(0, &[300]), (0.0, vec![])),
                (Flush::Done, records(1, &[2_000]), (0.0, vec![])),
            ]
            .into(),
            edges: [edge(Tally::new(3, 600)), edge(Tally::new(2, 3_000))].into(),
            ..Script::default()
        }]);
        // Exactly the records that have arrived are seen.
        let readings = [(); 2].map(|()| read(&mut aggregator));
        assert!(readings.iter().all(Ledger::balances));
        assert_eq!(readings.map(|ledger| ledger.attributed), [Tally::new(1, 100), Tally::new(3, 1_300)]);
        // The window ends during a reading, so both epochs belong to it.
        let closed = close(&mut aggregator);
        assert!(ledger(&closed).balances() && closed.shard.total == Tally::new(5, 3_600));
    }

    /// A CPU that closes one window late and is then late for the next one, too.
    #[test]
    fn a_cpu_that_is_always_a_window_late_loses_nothing() {
        const LOST: u64 = 7;
        let busy = || (Flush::Busy, vec![], (0.0, vec![]));
        let mut with_loss = edge(Tally::new(3, 210 + LOST));
        with_loss.counters[0].lost[Loss::RingFull as usize] = Tally::new(1, LOST);
        let mut aggregator = aggregator([Script {
            drains: [(0.0, records(0, &[100]))].into(),
            runs: [
                (Flush::Again, vec![], (0.0, vec![])),
                busy(),
                (Flush::Done, records(0, &[110]), (0.0, records(1, &[200]))),
                busy(),
                (Flush::Done, vec![], (0.0, vec![])),
            ]
            .into(),
            edges: [with_loss, edge(Tally::new(1, 200))].into(),
            ..Script::default()
        }]);
        let windows = [(); 3].map(|()| aggregator.close_while(shard(), || false).unwrap());
        assert!(windows.iter().all(|window| ledger(window).balances()));
        let seen = windows.map(|window| ledger(&window).counters.seen);
        assert_eq!(seen, [Tally::new(1, 100), Tally::new(3, 310 + LOST), Tally::default()]);
    }

    #[test]
    fn a_late_cpu_keeps_numbers_of_each_interface() {
        let busy = (Flush::Busy, vec![], (0.0, vec![]));
        let done = (Flush::Done, vec![], (0.0, vec![]));
        let seen = |packets: [Tally; 3]| {
            let mut edge = Edge::empty(3);
            for (counters, seen) in edge.counters.iter_mut().zip(packets) {
                counters.seen = seen;
            }
            edge
        };
        let late = Script {
            drains: [(0.0, [records_of(1, 0, &[100]), records_of(2, 0, &[200, 300])].concat())].into(),
            runs: [busy, done].into(),
            edges: [seen([Tally::default(), Tally::new(1, 100), Tally::new(2, 500)])].into(),
            ..Script::default()
        };
        let filter = Arc::new(Seen::with_capacity(1_000, 0.01, Key([3, 4]).id()).unwrap());
        let mut aggregator = RingAggregator::new(filter, 3, shard());
        aggregator.add(late);
        let packets = [(); 2].map(|()| {
            let closed = aggregator.close_while(shard(), || false).unwrap();
            closed.edge.counters.iter().map(|counters| counters.seen.packets).collect::<Vec<_>>()
        });
        assert_eq!(packets, [[0, 1, 2], [0, 0, 0]], "seen once, and in the window of their records");
    }

    #[test]
    fn records_of_no_open_window_are_not_attributed() {
        let mut aggregator = aggregator([Script { drains: [(0.0, records(1, &[100]))].into(), ..Script::default() }]);
        aggregator.drain();
        assert_eq!(aggregator.batch.replace(RecordBatch::new(shard()), &aggregator.seen, false).records, 0);
    }

    #[test]
    fn a_cpu_without_a_block_is_an_error_and_not_waited_for() {
        let runs = [(Flush::NoBlock, vec![], (0.0, vec![]))].into();
        let closed = aggregator([Script { runs, ..Script::default() }]).close(shard());
        assert!(matches!(closed, Err(KernelError::Missing("CPUS"))));
    }

    /// With a CPU that does not begin to close its window, and one that stops half-way, each window still balances, and
    /// together they have every packet exactly once.
    #[test]
    fn a_late_cpu_delays_no_other_and_loses_nothing() {
        const LOST: u64 = 7;
        let busy = || (Flush::Busy, vec![], (0.0, vec![]));
        let mut with_loss = edge(Tally::new(5, 500 + LOST));
        with_loss.counters[0].lost[Loss::RingFull as usize] = Tally::new(1, LOST);
        let late = Script {
            cpu: 1,
            drains: [(0.0, records(0, &[100]))].into(),
            runs: [
                // First window: not even begun.
                busy(),
                busy(),
                // Second: begun, then stuck.
                (Flush::Again, records(0, &[110]), (0.0, records(1, &[1]))),
                busy(),
                busy(),
                // Third: everything, including packets that came meanwhile.
                (Flush::Again, records(0, &[120]), (0.0, records(1, &[2]))),
                (Flush::Done, records(0, &[170]), (0.0, records(1, &[4]))),
                (Flush::Again, records(1, &[8]), (0.0, records(2, &[1_000]))),
                (Flush::Done, vec![], (0.0, records(1, &[16]))),
                // Fourth: begun and done.
                (Flush::Done, vec![], (0.0, vec![])),
            ]
            .into(),
            edges: [with_loss, edge(Tally::new(5, 31)), edge(Tally::new(1, 1_000))].into(),
        };
        let on_time = |nth| (Flush::Done, records(nth, &[50]), (0.0, vec![]));
        let other = Script {
            cpu: 0,
            runs: (0..4).map(on_time).collect(),
            edges: (0..4).map(|_| edge(Tally::new(1, 50))).collect(),
            ..Script::default()
        };
        let mut aggregator = aggregator([other, late]);
        let mut windows = Vec::new();
        for _ in 0..4 {
            let mut waits = 0;
            let closed = aggregator.close_while(shard(), || {
                waits += 1;
                waits < 2
            });
            windows.push(closed.unwrap());
        }
        let late: Vec<&[u32]> = windows.iter().map(|window| &window.late[..]).collect();
        assert_eq!(late, [&[1][..], &[1], &[], &[]]);
        for window in &windows {
            assert!(ledger(window).balances(), "{:?}", ledger(window));
        }
        let seen: Vec<_> = windows.iter().map(|window| ledger(window).counters.seen).collect();
        // The packets that had arrived by the end of each of the first two windows; then the rest, with the losses;
        // then one packet.
        let rest = Tally::new(2 + 1 + 5, 290 + LOST + 31);
        let expected = [Tally::new(1, 100), Tally::new(1, 110), rest, Tally::new(1, 1_000)];
        let expected: Vec<_> = expected.into_iter().map(|tally| [tally, Tally::new(1, 50)].into_iter().sum()).collect();
        assert_eq!(seen, expected);
    }
}
