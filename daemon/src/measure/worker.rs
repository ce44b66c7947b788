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
    collector::{Collector, KernelSource},
    order::{Closed, Order, WorkerError},
    sampling_control::{Load, SamplingControl},
};
use crate::{
    clock,
    config::Sampling,
    datapath::{cpu::on_cpu, error::KernelError, maps::Valves, ring::Drained},
};

/// A worker looks at its ring at least this often, woken or not.
const PATIENCE: Duration = Duration::from_millis(250);

/// Sets the sampling rate of a CPU by the load that its worker sees.
pub struct Throttle {
    control: SamplingControl,
    valves: Valves,
}

impl Throttle {
    /// A throttle for these settings.
    pub const fn new(sampling: &Sampling, valves: Valves) -> Self {
        Self { control: SamplingControl::new(sampling), valves }
    }

    fn observe(&mut self, cpu: u32, drained: Drained) -> Result<(), KernelError> {
        if !self.control.is_automatic() {
            return Ok(());
        }
        let load = Load { fill: drained.fill, now: clock::now().monotonic, cpu: clock::thread_cpu_time() };
        let before = self.control.rate();
        let Some(rate) = self.control.observe(load) else { return Ok(()) };
        if rate > before {
            info!(cpu, rate, "not keeping up: taking one packet in {rate}");
        } else {
            info!(cpu, rate, "there is room: taking one packet in {rate}");
        }
        self.valves.set(cpu, rate)
    }
}

/// Runs a worker until the sender of its orders is gone.
///
/// # Errors
///
/// The thread cannot be pinned, or the kernel refused something.
pub fn run(
    mut collector: Collector<KernelSource<'_>>,
    mut throttle: Throttle,
    orders: &Receiver<Order>,
    closed: &Sender<Closed>,
) -> Result<(), WorkerError> {
    let cpu = collector.cpu();
    // Find out now whether this is allowed, and not when the first window ends.
    on_cpu(cpu, || ())?;
    loop {
        let drained = collector.drain();
        throttle.observe(cpu, drained)?;
        if !drained.more {
            collector.wait(PATIENCE)?;
        }
        match orders.try_recv() {
            Ok(Order::Close(spare)) => {
                // Read as much as possible before this thread takes time from the ring's CPU.
                collector.drain();
                let window = on_cpu(cpu, || collector.close(spare))??;
                if closed.send(window).is_err() {
                    return Ok(());
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}
