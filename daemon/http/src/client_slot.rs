//! Which clients are being served, and which of them weir waits for.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::AbortHandle;
use weir_system::clock;

/// The slot of one client, with the time since when weir has been waiting for it.
#[derive(Debug)]
pub struct ClientSlot {
    /// The address of the client.
    address: IpAddr,
    /// When its connection or its last request began, in milliseconds of the monotonic clock.
    since_ms: AtomicU64,
    /// How many tasks work for it. While there are any, weir does not wait for the client.
    working: AtomicUsize,
}

/// While this exists, weir works for the client: its slot is not taken away, and its time does not run out.
#[derive(Debug)]
pub struct Busy(Arc<ClientSlot>);

impl ClientSlot {
    /// A slot for a client that connects now.
    pub(super) fn new(address: IpAddr, now: Duration) -> Self {
        Self { address, since_ms: AtomicU64::new(millis(now)), working: AtomicUsize::new(0) }
    }

    /// The client's address, or that of a proxy before it.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Marks that weir works for the client, until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.working.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Notes that the client reads its answer, so that its time begins again.
    pub fn goes_on(&self) {
        self.request_begins(clock::now().monotonic);
    }

    /// The head of a request has arrived.
    pub(super) fn request_begins(&self, now: Duration) {
        self.since_ms.store(millis(now), Ordering::Relaxed);
    }

    /// How much of `all`, the total time that weir waits for a client, is left.
    pub(super) fn left(&self, all: Duration, now: Duration) -> Duration {
        if self.is_busy() {
            return all;
        }
        let waited = millis(now).saturating_sub(self.since_ms.load(Ordering::Relaxed));
        all.saturating_sub(Duration::from_millis(waited))
    }

    fn is_busy(&self) -> bool {
        self.working.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The number of connections of each client.
#[derive(Debug)]
pub(super) struct ClientSlots {
    max: usize,
    taken: Vec<(Arc<ClientSlot>, AbortHandle)>,
}

impl ClientSlots {
    pub(super) const fn new(max: usize) -> Self {
        Self { max, taken: Vec::new() }
    }

    /// Frees a slot if all are taken, by disconnecting the client that weir has waited for longest. Returns false if
    /// weir waits for none of them.
    pub(super) fn free_one(&mut self) -> bool {
        self.taken.retain(|(_, task)| !task.is_finished());
        if self.taken.len() < self.max {
            return true;
        }
        let waiting = self.taken.iter().enumerate().filter(|(_, (slot, _))| !slot.is_busy());
        let longest = waiting.min_by_key(|(_, (slot, _))| slot.since_ms.load(Ordering::Relaxed));
        let Some((nth, _)) = longest else { return false };
        let (_, task) = self.taken.remove(nth);
        task.abort();
        true
    }

    pub(super) fn take(&mut self, slot: Arc<ClientSlot>, task: AbortHandle) {
        self.taken.push((slot, task));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    const fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_clients_time_runs_while_weir_waits_for_it() {
        let slot = Arc::new(ClientSlot::new(HERE, at(1_000)));
        assert_eq!(slot.left(at(300), at(1_100)), at(200));
        assert_eq!(slot.left(at(300), at(1_300)), at(0));
        let busy = slot.busy();
        assert_eq!(slot.left(at(300), at(9_000)), at(300));
        drop(busy);
        slot.request_begins(at(9_000));
        assert_eq!(slot.left(at(300), at(9_050)), at(250));
    }

    #[tokio::test]
    async fn the_one_that_has_waited_longest_goes() {
        let mut slots = ClientSlots::new(2);
        let sit = |slots: &mut ClientSlots, since| {
            let slot = Arc::new(ClientSlot::new(HERE, at(since)));
            let task = tokio::spawn(std::future::pending::<()>());
            slots.take(slot.clone(), task.abort_handle());
            (slot, task)
        };
        let (old, old_task) = sit(&mut slots, 1);
        assert!(slots.free_one(), "one is free");
        let (_new, new_task) = sit(&mut slots, 2);
        let busy = old.busy();
        assert!(slots.free_one());
        assert!(new_task.await.unwrap_err().is_cancelled(), "the older one is being served");
        let (newest, _task) = sit(&mut slots, 3);
        let both = newest.busy();
        assert!(!slots.free_one(), "weir waits for none");
        drop((busy, both));
        assert!(slots.free_one());
        assert!(old_task.await.unwrap_err().is_cancelled());
    }
}
