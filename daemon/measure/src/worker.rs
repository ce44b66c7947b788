//! A thread that drains the rings of some CPUs into its shard. It runs on any CPU with spare time, so that a CPU that
//! is busy with forwarding does not have this work, too.
//!
//! The loop in plain text:
//!
//! ```text
//! take over the rings of CPUs that came online
//! wait for a ring, an order, or a quarter of a second
//! for each record in the rings, in order: into the shard, in batches
//! ordered to read the open window? run `flush` on each CPU, and send what is counted so far
//! ordered to close the window? run `flush` on each CPU until it is done, draining after each run:
//!     records of the closed epoch go to the shard, records of the next one to the spare
//!     the counters come last; hand over shard and counters, continue with the spare
//! ```

use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use tracing::info;
use weir_config::Sampling;
use weir_datapath::{error::KernelError, ring::Drained};
use weir_system::clock;

use super::{
    closed::Closed,
    lane::Source,
    order::{Change, CloseOrder, Order, WorkerError},
    ring_aggregator::RingAggregator,
    sampling_control::{Load, SamplingControl},
};

/// A worker looks at its rings at least this often, even if it is not woken.
const PATIENCE: Duration = Duration::from_millis(250);

/// Sets the sampling rate of some CPUs according to the load of their worker.
pub struct Throttle<F> {
    control: SamplingControl,
    apply: F,
}

impl<F: FnMut(u32, u32) -> Result<(), KernelError>> Throttle<F> {
    /// A throttle for these settings; `apply` sets the sampling rate of a CPU.
    pub const fn new(sampling: &Sampling, apply: F) -> Self {
        Self { control: SamplingControl::new(sampling), apply }
    }

    fn observe(&mut self, drained: Drained, cpus: impl Iterator<Item = u32>) -> Result<(), KernelError> {
        if !self.control.is_automatic() {
            return Ok(());
        }
        let load = Load { fill: drained.fill, now: clock::now().monotonic, cpu: clock::thread_cpu_time() };
        let before = self.control.rate();
        let Some(rate) = self.control.observe(load) else { return Ok(()) };
        let cpus: Vec<_> = cpus.collect();
        info!(?cpus, rate, "{}: taking one packet in {rate}", cause(before, rate));
        cpus.into_iter().try_for_each(|cpu| (self.apply)(cpu, rate))
    }

    /// Uses other settings from now on.
    fn change(&mut self, sampling: &Sampling, mut cpus: impl Iterator<Item = u32>) -> Result<(), KernelError> {
        let Some(rate) = self.control.change(sampling) else { return Ok(()) };
        cpus.try_for_each(|cpu| (self.apply)(cpu, rate))
    }
}

/// Why the rate changes.
const fn cause(before: u32, rate: u32) -> &'static str {
    if rate > before { "not keeping up" } else { "there is room" }
}

/// Runs a worker until the sender of its orders is gone. `newcomers` has the sources of CPUs whose rings it should
/// read. `wait` returns when there is something to do, or after the given time.
///
/// # Errors
///
/// The kernel refused something.
pub fn run<S: Source>(
    mut aggregator: RingAggregator<S>,
    newcomers: &Receiver<S>,
    mut throttle: Throttle<impl FnMut(u32, u32) -> Result<(), KernelError>>,
    mut wait: impl FnMut(Duration) -> Result<(), KernelError>,
    orders: &Receiver<Order>,
    closed: &Sender<Closed>,
) -> Result<(), WorkerError> {
    loop {
        for source in newcomers.try_iter() {
            (throttle.apply)(source.cpu(), throttle.control.rate())?;
            aggregator.add(source);
        }
        let drained = aggregator.drain();
        throttle.observe(drained, aggregator.cpus())?;
        if !drained.more {
            wait(PATIENCE)?;
        }
        // One wake-up may stand for two orders.
        loop {
            match orders.try_recv() {
                Ok(Order::Close(CloseOrder { spare: None, .. })) => {
                    let window = throttle.control.end(aggregator.close_last()?);
                    // If nobody receives it, weir is ending anyway.
                    let _ = closed.send(window);
                    return Ok(());
                }
                Ok(Order::Close(CloseOrder { spare: Some(spare), change })) => {
                    let window = throttle.control.end(aggregator.close(spare)?);
                    if let Some(Change { interfaces, sampling }) = change {
                        aggregator.provide(interfaces);
                        throttle.change(&sampling, aggregator.cpus())?;
                    }
                    if closed.send(window).is_err() {
                        return Ok(());
                    }
                }
                Ok(Order::Read(order)) => order.answer(aggregator.read(&order.wanted, &throttle.control)?),
                // The coordinator may have given up waiting.
                Ok(Order::Answer(reply)) => drop(reply.try_send(())),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        collections::VecDeque,
        sync::Arc,
    };

    use crossbeam::channel::{bounded, unbounded};
    use weir_common::{control::Flush, ledger::Tally, record::Record};
    use weir_config::Packets;
    use weir_datapath::edge::Edge;
    use weir_sketch::{Seen, hash::Key};

    use super::*;
    use crate::ring_aggregator::tests::{edge, records, shard};

    const ALL: Sampling = Sampling { packets: Packets::OneIn(1), cpu: 0.5 };
    const AUTO: Sampling = Sampling { packets: Packets::Auto, cpu: 0.5 };
    const CPU: u32 = 5;

    /// Each drain takes the next of these; drains are counted.
    struct Script<'a> {
        drains: VecDeque<(Drained, Vec<Record>)>,
        count: &'a Cell<usize>,
    }

    impl Source for Script<'_> {
        fn cpu(&self) -> u32 {
            CPU
        }

        fn drain(&mut self, mut take: impl FnMut(&[Record])) -> Drained {
            self.count.update(|count| count + 1);
            assert!(self.count.get() < 100, "it reads forever and never waits");
            let (drained, records) = self.drains.pop_front().unwrap_or((drained(0.0, false), vec![]));
            take(&records);
            drained
        }

        fn flush(&mut self, _: impl FnMut(&[Record])) -> Result<Flush, KernelError> {
            Ok(Flush::Done)
        }

        fn edge(&mut self, into: &mut Edge) -> Result<(), KernelError> {
            *into = edge(Tally::new(2, 300));
            Ok(())
        }

        fn provide(&mut self, _: usize) {}
    }

    fn aggregator<'a>() -> RingAggregator<Script<'a>> {
        RingAggregator::new(Arc::new(Seen::with_capacity(1_000, 0.01, Key([3, 4]).id()).unwrap()), 1, shard())
    }

    fn close(is_last: bool) -> Order {
        Order::Close(CloseOrder { spare: (!is_last).then(shard), change: None })
    }

    fn drained(fill: f64, more: bool) -> Drained {
        Drained { fill, more }
    }

    #[test]
    fn it_waits_for_an_empty_ring_closes_on_order_and_ends_without_a_coordinator() {
        let (drains, waits) = (Cell::new(0), RefCell::new(vec![]));
        let (lanes, newcomers) = unbounded();
        let script = [(drained(1.0, true), records(0, &[100])), (drained(0.2, false), records(0, &[200]))].into();
        lanes.send(Script { drains: script, count: &drains }).unwrap();
        let (orders_in, orders) = bounded(1);
        let (closed, windows) = unbounded();
        let mut sender = Some(orders_in);
        let wait = |patience| {
            assert_eq!(patience, PATIENCE);
            waits.borrow_mut().push(drains.get());
            // An order comes at the first wait; at the second, the sender of orders is gone.
            match waits.borrow().len() {
                1 => sender.as_ref().unwrap().send(close(false)).unwrap(),
                2 => sender = None,
                more => panic!("a {more}th wait, though no orders can come any more"),
            }
            Ok(())
        };
        let mut applied = vec![];
        let throttle = Throttle::new(&ALL, |cpu, rate| {
            applied.push((cpu, rate));
            Ok(())
        });
        run(aggregator(), &newcomers, throttle, wait, &orders, &closed).unwrap();
        assert_eq!(applied, [(CPU, 1)], "a new CPU has the same rate as the others");
        // Two drains before the first wait, because the ring had more. The window takes two, the loop one more.
        assert_eq!(*waits.borrow(), [2, 5]);
        let windows: Vec<Closed> = windows.try_iter().collect();
        assert_eq!(windows.len(), 1);
        assert_eq!(
            (windows[0].shard.total, windows[0].edge.counters[0].seen),
            (Tally::new(2, 300), Tally::new(2, 300))
        );
    }

    #[test]
    fn it_ends_when_its_windows_are_not_received() {
        let (orders_in, orders) = bounded(1);
        let (closed, windows) = unbounded();
        drop(windows);
        orders_in.send(close(false)).unwrap();
        let throttle = Throttle::new(&ALL, |_, _| Ok(()));
        let (_lanes, newcomers) = unbounded();
        run(aggregator(), &newcomers, throttle, |_| Ok(()), &orders, &closed).unwrap();
    }

    #[test]
    fn it_reads_nothing_after_the_last_window() {
        let drains = Cell::new(0);
        let (lanes, newcomers) = unbounded();
        lanes.send(Script { drains: VecDeque::new(), count: &drains }).unwrap();
        let (orders_in, orders) = bounded(1);
        let (closed, windows) = unbounded();
        orders_in.send(close(true)).unwrap();
        let throttle = Throttle::new(&ALL, |_, _| Ok(()));
        // The sender of orders still exists.
        run(aggregator(), &newcomers, throttle, |_| Ok(()), &orders, &closed).unwrap();
        // One drain before the order, and two for the window.
        assert_eq!((windows.len(), drains.get()), (1, 3));
    }

    #[test]
    fn a_full_ring_raises_the_sampling_rate_of_its_workers_cpus() {
        let mut applied = vec![];
        let mut throttle = Throttle::new(&AUTO, |cpu, rate| {
            applied.push((cpu, rate));
            Ok(())
        });
        for fill in [0.0, 0.9, 0.2, 1.0] {
            throttle.observe(drained(fill, false), [5, 9].into_iter()).unwrap();
        }
        assert_eq!(applied, [(5, 2), (9, 2), (5, 4), (9, 4)]);
        let mut refused = Throttle::new(&AUTO, |_, _| Err(KernelError::Missing("valves")));
        assert!(refused.observe(drained(1.0, false), [5].into_iter()).is_err());
    }

    #[test]
    fn the_log_says_why_the_rate_changes() {
        assert_eq!([cause(1, 2), cause(4, 2)], ["not keeping up", "there is room"]);
    }
}
