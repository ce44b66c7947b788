//! The queue of a sink: takes reports from the measurement without ever blocking it, and holds them until the sink has
//! them.
//!
//! Reports wait in a [`Spool`]. A spool in memory takes them at once. A spool on disk may hang, so a limited number of
//! reports wait in front of it until a thread has written them ([`writer`]). Another thread delivers them
//! ([`delivery`]).

mod counters;
mod delivery;
mod refusals;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    collections::VecDeque,
    mem::take,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tracing::warn;
use weir_config::Addresses;
use weir_schema::{Encoded, Ids, SinkMetrics};

use self::counters::{SinkCounters, why};
pub(super) use self::delivery::Delivery;
use super::{Sink, now};
use crate::spool::Spool;

/// The queue of one sink, with its account.
#[derive(Debug)]
pub(super) struct Queue {
    /// The name of the sink.
    pub name: String,
    /// The word for what the sink carries, singular and plural.
    pub carries: [&'static str; 2],
    /// How much of each address the sink may see.
    pub addresses: Addresses,
    storage: Storage,
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the spool is queried, which may wait for its disk, so that an older answer never replaces a newer
    /// one.
    asking: Mutex<()>,
}

/// The place where reports wait.
#[derive(Debug)]
pub(super) enum Storage {
    /// Reports wait in a spool in memory, which never blocks.
    Memory(Arc<Spool>),
    /// In a spool on disk; at most this many wait to be written.
    Disk { incoming_max: usize },
}

#[derive(Debug, Default)]
struct State {
    counters: SinkCounters,
    /// Reports that wait to be written to the disk.
    incoming: VecDeque<Encoded>,
    /// Reports that were dropped because too many waited to be written. They are older than `incoming`.
    dropped: Vec<Ids>,
    /// True if a report has come since the last wait.
    has_news: bool,
    /// When to give up; from then on no more reports are offered.
    deadline: Option<Instant>,
    /// Threads that work for the queue.
    threads: usize,
}

/// Why [`Queue::wait`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Something may be waiting for delivery.
    News,
    /// The queue is to end.
    Ending,
    /// The time is over, or nothing can come any more.
    Nothing,
}

/// Proof that a thread works for the queue.
pub(super) struct Worker(pub Arc<Queue>);

impl Queue {
    /// A queue for this sink.
    pub fn new(sink: &dyn Sink, addresses: Addresses, storage: Storage) -> Self {
        Self {
            name: sink.name(),
            carries: sink.carries(),
            addresses,
            storage,
            state: Mutex::default(),
            changed: Condvar::new(),
            asking: Mutex::default(),
        }
    }

    /// Returns true if reports wait on disk.
    pub const fn has_disk(&self) -> bool {
        matches!(self.storage, Storage::Disk { .. })
    }

    /// Adds a report that is masked for this sink. If too many are waiting, the oldest of them is dropped, and counted
    /// as lost.
    pub fn offer(&self, report: Encoded) {
        match &self.storage {
            Storage::Memory(spool) => {
                // Keeping in memory never fails.
                let _ = spool.keep(report, 0);
                self.note(spool, |_| {});
                self.announce();
            }
            Storage::Disk { incoming_max } => {
                let mut state = self.state();
                state.incoming.push_back(report);
                state.counters.incoming += 1;
                if state.incoming.len() > *incoming_max
                    && let Some(oldest) = state.incoming.pop_front()
                {
                    state.drop_incoming(&oldest);
                }
                drop(state);
                self.changed.notify_all();
            }
        }
    }

    /// Wakes the delivery, because a report may be waiting.
    fn announce(&self) {
        self.state().has_news = true;
        self.changed.notify_all();
    }

    /// Waits until `until`. Returns earlier if a report comes and `for_news` is set, or if the queue is to end: then
    /// this sets `deadline`. If `deadline` is already set, the wait ends there at the latest.
    fn wait(&self, deadline: &mut Option<Instant>, until: Option<Instant>, for_news: bool) -> Woken {
        let until = [until, *deadline].into_iter().flatten().min();
        let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(now()));
        let is_idle = |state: &mut State| {
            let has_ended = state.deadline.is_some();
            // The only thread left may be the caller's own.
            let has_finished = has_ended && state.threads <= 1;
            !(for_news && (state.has_news || has_finished)) && (deadline.is_some() || !has_ended)
        };
        let waited = self.changed.wait_timeout_while(self.state(), left, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if for_news && take(&mut state.has_news) {
            Woken::News
        } else if deadline.is_none() && state.deadline.is_some() {
            *deadline = state.deadline;
            Woken::Ending
        } else {
            Woken::Nothing
        }
    }

    /// Declares that no more reports will be offered, and that those that wait must be delivered by `deadline`. If this
    /// is called again, the first deadline counts.
    pub fn end(&self, deadline: Instant) {
        self.state().deadline.get_or_insert(deadline);
        self.changed.notify_all();
    }

    /// When to give up; `None` while reports may still come.
    fn deadline(&self) -> Option<Instant> {
        self.state().deadline
    }

    /// Waits until the queue's threads have ended, but no longer than this. Returns whether they have.
    pub fn wait_for_threads(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(now());
        let ended = self.changed.wait_timeout_while(self.state(), left, |state| state.threads > 0);
        ended.unwrap_or_else(PoisonError::into_inner).0.threads == 0
    }

    /// Changes the counters.
    fn counters<T>(&self, change: impl FnOnce(&mut SinkCounters) -> T) -> T {
        change(&mut self.state().counters)
    }

    /// Notes what the spool holds, together with another change of the counters.
    fn note(&self, spool: &Spool, change: impl FnOnce(&mut SinkCounters)) {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let holding = spool.holding();
        let due = self.counters(|counters| {
            change(counters);
            counters.update(holding)
        });
        for (reason, count) in due {
            let [_, several] = self.carries;
            warn!(sink = self.name, lost = count, "{several} are lost: {}", why(reason));
        }
    }

    /// Returns true if the sink has stopped accepting reports for good.
    pub fn is_closed(&self) -> bool {
        self.counters(|counters| counters.is_closed)
    }

    /// The sink's account since its start. This waits neither for a disk nor for a collector.
    pub fn metrics(&self) -> SinkMetrics {
        self.counters(|counters| counters.metrics(self.name.clone(), self.has_disk()))
    }

    /// Locks the state, for a few instructions. It is never left half changed, so a poisoned lock does no harm.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Notes that this report was dropped before it was written.
    fn drop_incoming(&mut self, report: &Encoded) {
        self.counters.incoming -= 1;
        self.counters.lost_incoming += 1;
        let Some(ids) = Ids::of(&report.id) else { return };
        match self.dropped.last_mut().and_then(|last| Some((last.and(&ids)?, last))) {
            Some((joined, last)) => *last = joined,
            None => self.dropped.push(ids),
        }
    }
}

impl Worker {
    /// Counts the calling thread as working for this queue.
    pub fn new(queue: Arc<Queue>) -> Self {
        queue.state().threads += 1;
        Self(queue)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.state().threads -= 1;
        self.0.changed.notify_all();
    }
}
