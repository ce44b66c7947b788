//! One thread per CPU: drains that CPU's ring into its shard. It runs on whatever CPU has time, so that a CPU that is
//! busy with forwarding does not have to do this work as well. Only to close a window does it go to the ring's CPU.
//!
//! The loop in plain text:
//!
//! ```text
//! wait for the ring, an order, or a quarter of a second
//! for each record in the ring, in order: into the shard, in batches
//! ordered to close the window? on the ring's CPU, run `flush` until it is done, draining after each run:
//!     records of the closed epoch go to the shard, records of the next one to the spare
//!     the edge comes last; hand over shard and edge, go on with the spare
//! ```

use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use tracing::info;

use super::{
    collector::{Collector, Source},
    order::{Closed, Order, WorkerError},
    sampling_control::{Load, SamplingControl},
};
use crate::{
    clock,
    config::Sampling,
    datapath::{cpu::on_cpu, error::KernelError, ring::Drained},
};

/// A worker looks at its ring at least this often, woken or not.
const PATIENCE: Duration = Duration::from_millis(250);

/// Sets the sampling rate of a CPU by the load that its worker sees.
pub struct Throttle<F> {
    cpu: u32,
    control: SamplingControl,
    apply: F,
}

impl<F: FnMut(u32) -> Result<(), KernelError>> Throttle<F> {
    /// A throttle for these settings; `apply` lets this CPU take one packet in so many.
    pub const fn new(cpu: u32, sampling: &Sampling, apply: F) -> Self {
        Self { cpu, control: SamplingControl::new(sampling), apply }
    }

    fn observe(&mut self, drained: Drained) -> Result<(), KernelError> {
        if !self.control.is_automatic() {
            return Ok(());
        }
        let load = Load { fill: drained.fill, now: clock::now().monotonic, cpu: clock::thread_cpu_time() };
        let before = self.control.rate();
        let Some(rate) = self.control.observe(load) else { return Ok(()) };
        info!(cpu = self.cpu, rate, "{}: taking one packet in {rate}", cause(before, rate));
        (self.apply)(rate)
    }
}

/// Why the rate changes.
const fn cause(before: u32, rate: u32) -> &'static str {
    if rate > before { "not keeping up" } else { "there is room" }
}

/// Runs the worker of the throttle's CPU until the sender of its orders is gone. `wait` returns when there is something
/// to do, or after this much time.
///
/// # Errors
///
/// The thread cannot be pinned, or the kernel refused something.
pub fn run<S: Source>(
    mut collector: Collector<S>,
    mut throttle: Throttle<impl FnMut(u32) -> Result<(), KernelError>>,
    mut wait: impl FnMut(Duration) -> Result<(), KernelError>,
    orders: &Receiver<Order>,
    closed: &Sender<Closed>,
) -> Result<(), WorkerError> {
    let cpu = throttle.cpu;
    // Find out now whether this is allowed, and not when the first window ends.
    on_cpu(cpu, || ())?;
    loop {
        let drained = collector.drain();
        throttle.observe(drained)?;
        if !drained.more {
            wait(PATIENCE)?;
        }
        match orders.try_recv() {
            Ok(Order::Close(spare)) => {
                // Read as much as possible before this thread takes time from the ring's CPU.
                collector.drain();
                let mut window = on_cpu(cpu, || collector.close(spare))??;
                window.sampled_at(throttle.control.end_window(window.edge.sampling));
                if closed.send(window).is_err() {
                    return Ok(());
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
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
    use rustix::thread::sched_getaffinity;
    use weir_common::{control::Flush, ledger::Tally, record::Entry};
    use weir_sketch::{Seen, hash::Key};

    use super::*;
    use crate::{
        config::Packets,
        measure::collector::tests::{Held, edge, records, shard},
    };

    const ALL: Sampling = Sampling { packets: Packets::OneIn(1), cpu: 0.5 };
    const AUTO: Sampling = Sampling { packets: Packets::Auto, cpu: 0.5 };

    /// Each drain brings the next of these, a run of `flush` an edge behind them. How many there were is counted.
    struct Script<'a> {
        drains: VecDeque<(Drained, Vec<Held>)>,
        count: &'a Cell<usize>,
        cpu: u32,
    }

    impl Source for Script<'_> {
        fn drain(&mut self, mut take: impl FnMut(Entry<'_>)) -> Drained {
            self.count.update(|count| count + 1);
            assert!(self.count.get() < 100, "it reads again and again and never waits");
            let empty = (Drained { fill: 0.0, more: false }, vec![]);
            let (drained, held) = self.drains.pop_front().unwrap_or(empty);
            held.iter().for_each(|one| take(one.entry()));
            drained
        }

        fn flush(&mut self) -> Result<Flush, KernelError> {
            let allowed = sched_getaffinity(None).unwrap();
            assert!(allowed.count() == 1 && allowed.is_set(self.cpu as usize), "a window is closed on the ring's CPU");
            self.drains.clear();
            self.drains.push_back((Drained { fill: 0.0, more: false }, edge(0, Tally::new(2, 300)).to_vec()));
            Ok(Flush::Done)
        }
    }

    /// A CPU that this thread may use.
    fn cpu() -> u32 {
        let allowed = sched_getaffinity(None).unwrap();
        (0..).find(|cpu| allowed.is_set(*cpu as usize)).unwrap()
    }

    fn collector(drains: Vec<(Drained, Vec<Held>)>, count: &Cell<usize>) -> Collector<Script<'_>> {
        let script = Script { drains: drains.into(), count, cpu: cpu() };
        Collector::new(script, Arc::new(Seen::with_capacity(1_000, 0.01, Key([3, 4]).id())), 1, shard())
    }

    fn drained(fill: f64, more: bool) -> Drained {
        Drained { fill, more }
    }

    #[test]
    fn it_waits_when_the_ring_is_empty_closes_when_told_and_ends_when_nobody_is_there_to_tell() {
        let (drains, waits) = (Cell::new(0), RefCell::new(vec![]));
        let collector = collector(
            vec![(drained(1.0, true), vec![records(0, &[100])]), (drained(0.2, false), vec![records(0, &[200])])],
            &drains,
        );
        let (orders_in, orders) = bounded(1);
        let (closed, windows) = unbounded();
        let mut sender = Some(orders_in);
        let wait = |patience| {
            assert_eq!(patience, PATIENCE);
            waits.borrow_mut().push(drains.get());
            // An order comes at the first wait; at the second there is nobody any more to give one.
            match waits.borrow().len() {
                1 => sender.as_ref().unwrap().send(Order::Close(shard())).unwrap(),
                2 => sender = None,
                more => panic!("a {more}th wait, though nobody can give orders"),
            }
            Ok(())
        };
        let throttle = Throttle::new(cpu(), &ALL, |rate| panic!("a fixed rate became {rate}"));
        run(collector, throttle, wait, &orders, &closed).unwrap();
        // Two drains before the first wait, because the ring had more. The window takes three, the loop one more.
        assert_eq!(*waits.borrow(), [2, 6]);
        let windows: Vec<Closed> = windows.try_iter().collect();
        assert_eq!(windows.len(), 1);
        assert_eq!(
            (windows[0].shard.total, windows[0].edge.counters[0].seen),
            (Tally::new(2, 300), Tally::new(2, 300))
        );
    }

    #[test]
    fn it_ends_when_nobody_takes_its_windows() {
        let drains = Cell::new(0);
        let (orders_in, orders) = bounded(1);
        let (closed, windows) = unbounded();
        drop(windows);
        orders_in.send(Order::Close(shard())).unwrap();
        let throttle = Throttle::new(cpu(), &ALL, |_| Ok(()));
        run(collector(vec![], &drains), throttle, |_| Ok(()), &orders, &closed).unwrap();
    }

    #[test]
    fn it_does_not_begin_on_a_cpu_that_it_may_not_use() {
        let drains = Cell::new(0);
        let ((_orders_in, orders), (closed, _windows)) = (bounded(1), unbounded());
        // The last number that a set of CPUs has room for: no such CPU is there.
        let throttle = Throttle::new(1_023, &ALL, |_| Ok(()));
        let ended = run(collector(vec![], &drains), throttle, |_| panic!("it began"), &orders, &closed);
        assert!(matches!(ended, Err(WorkerError::Pin(_))) && drains.get() == 0);
    }

    #[test]
    fn a_full_ring_lets_its_cpu_take_fewer_packets() {
        let mut applied = vec![];
        let mut throttle = Throttle::new(5, &AUTO, |rate| {
            applied.push(rate);
            Ok(())
        });
        for fill in [0.0, 0.9, 0.2, 1.0] {
            throttle.observe(drained(fill, false)).unwrap();
        }
        assert_eq!(applied, [2, 4]);
        let mut refused = Throttle::new(5, &AUTO, |_| Err(KernelError::Missing("valves")));
        assert!(refused.observe(drained(1.0, false)).is_err());
    }

    #[test]
    fn the_log_tells_why_the_rate_changes() {
        assert_eq!([cause(1, 2), cause(4, 2)], ["not keeping up", "there is room"]);
    }
}
