//! One thread per CPU: drains its ring into its shard, wherever the scheduler finds room for it, so that a CPU which has
//! its hands full with forwarding need not do this, too. It goes to that CPU to close windows.
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

use std::{io, sync::Arc, time::Duration};

use crossbeam::channel::{Receiver, Sender, TryRecvError};
use thiserror::Error;
use tracing::info;
use weir_common::{control::Flush, record::Entry};
use weir_sketch::Seen;

use super::{
    batch::Batch,
    sampling_control::{Load, Valve},
    shard::Shard,
};
use crate::{
    clock,
    config::Sampling,
    datapath::{
        cpu::{PinError, on_cpu},
        edge::{Edge, EdgeReader},
        kernel::{FlushProgram, KernelError, Valves},
        ring::{Drained, Ring},
    },
};

/// A worker looks at its ring at least this often, woken or not.
const PATIENCE: Duration = Duration::from_millis(250);

/// What a worker is told to do.
pub enum Order {
    /// Close the window, and go on with this empty shard.
    Close(Box<Shard>),
}

/// A window closed on one CPU.
pub struct Closed {
    /// Its sketches.
    pub shard: Box<Shard>,
    /// Its exact counters.
    pub edge: Edge,
    /// The fullest that the ring was, 0 to 1.
    pub ring_peak: f64,
}

impl Closed {
    /// The highest sampling rate in force, at least 1: of the packets that were taken, and of the draw that left out
    /// the last ones.
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

/// Reads one ring into shards: the part of a worker that replay through the kernel uses too.
pub struct Collector<'a> {
    ring: Ring,
    flush: FlushProgram<'a>,
    seen: Arc<Seen>,
    edges: EdgeReader,
    epoch: u8,
    batch: Batch,
    ring_peak: f64,
}

impl<'a> Collector<'a> {
    /// A collector that fills `shard` from `ring`.
    pub fn new(ring: Ring, flush: FlushProgram<'a>, seen: Arc<Seen>, interfaces: usize, shard: Box<Shard>) -> Self {
        Self {
            ring,
            flush,
            seen,
            edges: EdgeReader::new(interfaces),
            epoch: 0,
            batch: Batch::new(shard),
            ring_peak: 0.0,
        }
    }

    /// Takes what is in the ring.
    pub fn drain(&mut self) -> Drained {
        self.drain_across(None).drained
    }

    /// Takes what is in the ring while a window may be closing: what belongs to the next one goes to `next`. Returns
    /// the edge, once it came.
    fn drain_across(&mut self, mut next: Option<&mut Batch>) -> Taken {
        let Self { ring, seen, edges, epoch, batch, ring_peak, flush: _ } = self;
        let mut closed = None;
        let drained = ring.drain(|entry| match entry {
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
        // Once, not until it is empty: under load it never is, and the window is not closed before `flush` has run.
        self.drain();
        let mut state = Flush::Again;
        loop {
            // Once it is done, the edge is in the ring; another run would close the next window.
            if state != Flush::Done {
                state = self.flush.run()?;
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

/// Turns a CPU's valve by what its worker sees.
pub struct Throttle {
    valve: Valve,
    valves: Valves,
}

impl Throttle {
    /// A throttle that does what `sampling` asks for.
    pub const fn new(sampling: &Sampling, valves: Valves) -> Self {
        Self { valve: Valve::new(sampling), valves }
    }

    fn observe(&mut self, cpu: u32, drained: Drained) -> Result<(), KernelError> {
        if !self.valve.is_automatic() {
            return Ok(());
        }
        let load = Load { fill: drained.fill, now: clock::now().monotonic, cpu: clock::thread_cpu_time() };
        let before = self.valve.rate();
        let Some(rate) = self.valve.observe(load) else { return Ok(()) };
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
    mut collector: Collector<'_>,
    mut throttle: Throttle,
    orders: &Receiver<Order>,
    closed: &Sender<Closed>,
) -> Result<(), WorkerError> {
    let cpu = collector.ring.cpu();
    // Whether that is allowed should be known now, not when the first window ends.
    on_cpu(cpu, || ())?;
    loop {
        let drained = collector.drain();
        throttle.observe(cpu, drained)?;
        if !drained.more {
            collector.ring.wait(PATIENCE)?;
        }
        match orders.try_recv() {
            Ok(Order::Close(spare)) => {
                // What can be read elsewhere is.
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
