//! The measurement's side of a sink: it hands over reports, and never waits.
//!
//! Behind it is a [`Queue`] with its threads: one delivers, and if reports wait on disk, another one writes them there.

use std::{io, sync::Arc, thread, time::Duration};

use crossbeam::channel;
use tracing::{info, warn};
use weir_config::Addresses;
use weir_schema::{Encoded, SinkMetrics};
use weir_system::{privileges, sandbox};

use super::{
    Copies, Sink, now,
    queue::{Delivery, Queue, Storage, Worker},
};
use crate::spool::{Limits, Spool, root::SpoolRoot};

/// The upper limit of the time that [`Outbox::finish`] waits.
const FINISH_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// One in this many of the reports in memory may wait to be written to a disk that hangs.
const INCOMING_PART: usize = 4;

/// Takes reports without ever blocking, and hands them to a sink on other threads, in order.
///
/// A report that fails is tried again until it succeeds or the sink refuses it. Meanwhile newer ones wait: in the
/// spool, or without one in memory. If there is no room, the oldest waiting report is dropped, because the newest
/// matter most, and a tombstone is delivered in its place. Dropping an outbox drops what waits in memory.
#[derive(Debug)]
pub struct Outbox(Arc<Queue>);

impl Outbox {
    /// Starts the sink's threads. At most `capacity` reports (at least one) wait in memory. `addresses` is the part
    /// of each address that the sink may see. `spool` is the place of all spools, and the sink's full target; `None` if
    /// nothing of this sink waits on disk.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(
        sink: Box<dyn Sink>,
        capacity: usize,
        addresses: Addresses,
        spool: Option<(&SpoolRoot, &str)>,
    ) -> io::Result<Self> {
        let capacity = capacity.max(1);
        let incoming_max = capacity.div_ceil(INCOMING_PART);
        let (opened, to_deliver) = channel::bounded(1);
        let storage = match spool {
            Some(_) => Storage::Disk { incoming_max },
            None => Storage::Memory(Arc::new(Spool::in_memory(Limits::in_memory(capacity)))),
        };
        if let Storage::Memory(spool) = &storage {
            // This cannot block: the channel has room for one spool.
            let _ = opened.send(spool.clone());
        }
        let outbox = Self(Arc::new(Queue::new(&*sink, addresses, storage)));
        outbox.spawn("sink", move |queue| {
            sandbox::pass();
            // `recv` fails if the writing thread could not be started: then nothing opens the spool.
            let Ok(spool) = to_deliver.recv() else { return };
            Delivery::new(sink, queue.clone(), spool).run();
        })?;
        if let Some((root, target)) = spool {
            let (root, target) = (root.clone(), target.to_owned());
            outbox.spawn("spool", move |queue| {
                let spool = root.open(&queue.name, &target, capacity - capacity / INCOMING_PART);
                // The delivering thread waits for the spool.
                let _ = opened.send(spool.clone());
                drop((opened, root));
                queue.write_to(&spool);
            })?;
        }
        Ok(outbox)
    }

    /// Starts a thread that works for the queue.
    fn spawn(&self, name: &str, work: impl FnOnce(&Arc<Queue>) + Send + 'static) -> io::Result<()> {
        let worker = Worker::new(self.0.clone());
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            work(&worker.0);
        });
        thread.map(drop)
    }

    /// Takes the copy of a report that the sink may see. If too many are waiting, the oldest of them is lost, and
    /// counted as lost.
    pub fn offer_report(&self, copies: &mut Copies<'_>) {
        self.0.offer(copies.of(self.0.addresses));
    }

    /// Takes a message, as [`Outbox::offer_report`] takes a report. What a sink may not see of it is removed when it is
    /// delivered.
    pub fn offer(&self, message: Encoded) {
        self.0.offer(message);
    }

    /// Returns true if the sink has stopped accepting reports for good.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// The sink's account since its start.
    pub fn metrics(&self) -> SinkMetrics {
        self.0.metrics()
    }

    /// Declares that no more reports will come, delivers what is waiting, and returns how many reports are undelivered
    /// after `timeout`. A pause between two attempts ends at once. A sink that still hangs by then is abandoned with
    /// its threads. A sink that fails and has everything on disk is not waited for.
    pub fn finish(self, timeout: Duration) -> u64 {
        Self::finish_all([self], timeout).iter().map(|metrics| metrics.queued).sum()
    }

    /// Finishes several outboxes within one `timeout`. Returns the last account of each, in order; `queued` is the
    /// number of undelivered reports.
    pub fn finish_all(outboxes: impl IntoIterator<Item = Self>, timeout: Duration) -> Vec<SinkMetrics> {
        let deadline = now() + timeout.min(FINISH_MAX);
        let outboxes: Vec<_> = outboxes.into_iter().collect();
        for outbox in &outboxes {
            outbox.0.end(deadline);
        }
        for outbox in &outboxes {
            outbox.0.wait_for_threads(deadline);
        }
        outboxes.iter().map(Self::metrics).collect()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.0.end(now());
    }
}

/// Lets sinks deliver what is waiting within `timeout`, and logs what they did not deliver.
pub fn finish(outboxes: Vec<Outbox>, timeout: Duration) {
    end_all(outboxes, timeout, "for the next start");
}

fn end_all(outboxes: Vec<Outbox>, timeout: Duration, until: &str) {
    let carried: Vec<_> = outboxes.iter().map(|outbox| outbox.0.carries).collect();
    for (sink, [_, several]) in Outbox::finish_all(outboxes, timeout).into_iter().zip(carried) {
        let on_disk = sink.spool.map_or(0, |spool| spool.reports);
        if on_disk > 0 {
            info!(sink = sink.name, waiting = on_disk, "these {several} wait in the spool {until}");
        }
        if sink.queued > on_disk {
            warn!(sink = sink.name, waiting = sink.queued - on_disk, "these {several} were not delivered");
        }
    }
}

/// Finishes sinks that the configuration has removed or changed, on a thread of its own, so that the caller does not
/// wait.
pub fn farewell(outboxes: Vec<Outbox>, timeout: Duration) {
    let until = "for a sink that sends to the same place";
    let end = move || end_all(outboxes, timeout, until);
    let farewell = thread::Builder::new().name("sink-farewell".to_owned()).spawn(end);
    if let Err(error) = farewell {
        warn!("reports of removed sinks may not be delivered: {error}");
    }
}

/// Notices when sinks stop accepting reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct SinkHealth {
    /// How many were closed at the last check.
    closed: usize,
}

impl SinkHealth {
    /// Checks whether sinks have closed since the last check, and logs where reports still go.
    ///
    /// # Errors
    ///
    /// All sinks are closed; the text names each with its cause. There is no error if there are no sinks.
    pub fn look(&mut self, outboxes: &[Outbox]) -> Result<(), String> {
        let (closed, open): (Vec<_>, Vec<_>) = outboxes.iter().partition(|outbox| outbox.is_closed());
        if std::mem::replace(&mut self.closed, closed.len()) == closed.len() {
            return Ok(());
        }
        if open.is_empty() {
            let why = |outbox: &&Outbox| {
                let metrics = outbox.metrics();
                format!("{}: {}", metrics.name, metrics.last_error.unwrap_or_default())
            };
            return Err(closed.iter().map(why).collect::<Vec<_>>().join("; "));
        }
        let open: Vec<_> = open.iter().map(|outbox| outbox.metrics().name).collect();
        info!(sinks = open.join(", "), "weir goes on: reports still go to the other sinks");
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
