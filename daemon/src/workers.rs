//! All workers, and closing their windows together.
//!
//! Every worker fills one shard, and has one spare shard. The order to close a window gives the spare to the worker,
//! and the worker returns its full shard with the closed window. After the report that shard is cleared and becomes the
//! spare.
//!
//! A worker that does not answer in time is late: the window ends without its part, which counts in the window in which
//! it arrives. Until then the worker gets no new order.

use std::{
    cmp::Reverse,
    io,
    sync::Arc,
    thread::{self, Scope, ScopedJoinHandle},
    time::Duration,
};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::thread::CapabilitySet;
use thiserror::Error;
use weir_measure::{
    open::{OpenPart, OpenRequest},
    order::{Change, CloseOrder, Closed, Order, ReadOrder, WorkerError},
    question::Views,
    shard::Shard,
};
use weir_system::{clock, privileges, waker::Waker};

/// How often the coordinator checks that the workers are alive, while it waits for a window.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a window could not be closed.
#[derive(Debug, Error)]
pub enum WorkersError {
    /// A worker has failed.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// A worker ended without an error or an order.
    #[error("a worker thread ended unexpectedly: this is a bug in weir, please report it")]
    Gone,
}

/// The parts of a closed window that arrived in time.
pub struct Parts {
    /// The workers' parts. A worker that was late in the last window may have two.
    pub closed: Vec<Closed>,
    /// Workers whose part is incomplete, in the order in which they were started.
    pub late: Vec<usize>,
}

/// All workers, and the spare shards.
pub struct Workers<'scope> {
    workers: Vec<Worker<'scope>>,
    spares: Vec<Box<Shard>>,
    /// True if the next window is the last one.
    is_last: bool,
}

struct Worker<'scope> {
    orders: Sender<Order>,
    closed: Receiver<Closed>,
    /// True if it has not yet answered its last order to close a window.
    is_ordered: bool,
    /// True if it has been ordered to close its last window.
    is_ending: bool,
    /// The change that its next order will carry.
    change: Option<Change>,
    waker: Waker,
    thread: ScopedJoinHandle<'scope, Result<(), WorkerError>>,
}

impl<'scope> Workers<'scope> {
    /// No workers yet; `spares` are empty shards, one for each future worker.
    pub fn new(spares: Vec<Box<Shard>>) -> Self {
        Self { workers: Vec::with_capacity(spares.len()), spares, is_last: false }
    }

    /// Starts a worker on a thread with this name and only these capabilities. It runs until the sender of its orders
    /// is gone, and checks for orders when `waker` is woken.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn spawn<'env>(
        &mut self,
        scope: &'scope Scope<'scope, 'env>,
        name: String,
        keeps: CapabilitySet,
        waker: Waker,
        work: impl FnOnce(&Receiver<Order>, &Sender<Closed>) -> Result<(), WorkerError> + Send + 'scope,
    ) -> io::Result<()> {
        // Room for an order of each kind: the coordinator waits for none of them.
        let (orders, orders_out) = bounded(3);
        let (closed_in, closed) = bounded(1);
        let work = move || {
            privileges::give_up_silently(keeps);
            work(&orders_out, &closed_in)
        };
        let thread = thread::Builder::new().name(name).spawn_scoped(scope, work)?;
        self.workers.push(Worker { orders, closed, is_ordered: false, is_ending: false, change: None, waker, thread });
        Ok(())
    }

    /// Returns true if no worker is late: each has closed its last window, and answers within `patience` now.
    pub fn all_answer(&self, patience: Duration) -> bool {
        if self.workers.iter().any(|worker| worker.is_ordered) {
            return false;
        }
        let end = clock::now().monotonic + patience;
        let (reply, answers) = bounded(self.workers.len());
        let asked = self.workers.iter().all(|worker| {
            let is_asked = worker.orders.try_send(Order::Answer(reply.clone())).is_ok();
            worker.waker.wake();
            is_asked
        });
        let answer = |_: &Worker<'_>| answers.recv_timeout(end.saturating_sub(clock::now().monotonic)).is_ok();
        asked && self.workers.iter().all(answer)
    }

    /// Replaces the spare shards, because the next window has other views.
    pub fn renew(&mut self, mut make: impl FnMut() -> Box<Shard>) {
        for spare in &mut self.spares {
            *spare = make();
        }
    }

    /// Declares the next window that is closed to be the last one: workers read nothing after it.
    pub const fn end(&mut self) {
        self.is_last = true;
    }

    /// Returns true if the window that is closed is the last one.
    pub const fn is_last(&self) -> bool {
        self.is_last
    }

    /// The number of workers.
    pub const fn count(&self) -> usize {
        self.workers.len()
    }

    /// Lets every worker read its open window. The answers go to `reply`, which has room for one answer of each worker.
    /// Returns how many answers will come. If a worker is late, or has not finished an earlier reading, asks no worker
    /// and returns `None`.
    pub fn read(&self, number: u64, wanted: &OpenRequest, reply: &Sender<OpenPart>) -> Option<usize> {
        if self.workers.iter().any(|worker| worker.is_ordered || !worker.orders.is_empty()) {
            return None;
        }
        for (nth, worker) in self.workers.iter().enumerate() {
            let order = ReadOrder { wanted: wanted.clone(), of: (number, nth), reply: reply.clone() };
            // A worker that has ended is noticed elsewhere.
            let _ = worker.orders.try_send(Order::Read(order));
            worker.waker.wake();
        }
        Some(self.workers.len())
    }

    /// Closes the window of every worker. `equip` prepares each spare shard for the next window, with which `change`
    /// takes effect. Waits for `patience` at most. Where shards change to another kind, `patience` has no limit: see
    /// [`Workers::all_answer`].
    ///
    /// # Errors
    ///
    /// A worker has ended: without its records the window would be incomplete.
    pub fn close(
        &mut self,
        patience: Duration,
        change: Option<Change>,
        mut equip: impl FnMut(&mut Shard),
    ) -> Result<Parts, WorkersError> {
        // Prepare all spares before the first order, so that the windows of all workers end together.
        for spare in &mut self.spares {
            equip(spare);
        }
        let mut parts = Parts { closed: Vec::with_capacity(self.workers.len()), late: Vec::new() };
        for (nth, worker) in self.workers.iter_mut().enumerate() {
            worker.change = change.or(worker.change);
            // A late part may have arrived meanwhile.
            if worker.is_ordered
                && let Ok(closed) = worker.closed.try_recv()
            {
                worker.is_ordered = false;
                parts.closed.push(closed);
            }
            // There is one spare for each worker, but none for a late one: its shard comes back with this window.
            let spare = if self.is_last { None } else { self.spares.pop_if(|_| !worker.is_ordered) };
            if !worker.is_ordered && (self.is_last || spare.is_some()) && !worker.order(spare) {
                return Err(self.failure_of(nth));
            }
        }
        let end = clock::now().monotonic.saturating_add(patience);
        for (nth, worker) in self.workers.iter_mut().enumerate() {
            let had_spare = worker.is_ordered;
            while worker.is_ordered {
                let left = end.saturating_sub(clock::now().monotonic);
                match worker.closed.recv_timeout(left.min(LOOK_EVERY)) {
                    Ok(closed) => {
                        worker.is_ordered = false;
                        parts.closed.push(closed);
                        // Records that the worker has read since its late order belong to the last window, too.
                        if self.is_last && !worker.is_ending && !worker.order(None) {
                            return Err(self.failure_of(nth));
                        }
                    }
                    // A worker that ended after it had received its order sends nothing.
                    Err(RecvTimeoutError::Timeout) if !worker.thread.is_finished() => {
                        if left.is_zero() {
                            break;
                        }
                    }
                    Err(_) => return Err(self.failure_of(nth)),
                }
            }
            if worker.is_ordered || !had_spare {
                parts.late.push(nth);
            }
        }
        // All parts are merged into the first one, and the lists of an earlier window have other places. So the latest
        // window comes first.
        parts.closed.sort_by_key(|closed| Reverse(closed.shard.window()));
        Ok(parts)
    }

    /// Takes the shards back for later windows. A shard that does not belong to these `views` is replaced by one from
    /// `make`.
    pub fn take_back(
        &mut self,
        closed: impl IntoIterator<Item = Closed>,
        views: &Arc<Views>,
        mut make: impl FnMut() -> Box<Shard>,
    ) {
        for Closed { mut shard, .. } in closed {
            if Arc::ptr_eq(shard.plan(), views) {
                shard.clear();
            } else {
                drop(shard);
                shard = make();
            }
            self.spares.push(shard);
        }
    }

    /// Returns true if a worker has ended, which should not happen.
    pub fn has_failed(&self) -> bool {
        self.workers.iter().any(|worker| worker.thread.is_finished())
    }

    /// Why a worker ended.
    pub fn failure(&mut self) -> WorkersError {
        let finished = self.workers.iter().position(|worker| worker.thread.is_finished());
        finished.map_or(WorkersError::Gone, |nth| self.failure_of(nth))
    }

    /// Why this worker ended. It has closed its channels, so its thread has ended or is about to.
    fn failure_of(&mut self, nth: usize) -> WorkersError {
        match self.workers.swap_remove(nth).thread.join() {
            Ok(Err(error)) => error.into(),
            _ => WorkersError::Gone,
        }
    }
}

/// Ends all workers, without a last window. The scope joins their threads.
impl Drop for Workers<'_> {
    fn drop(&mut self) {
        for Worker { orders, waker, .. } in self.workers.drain(..) {
            drop(orders);
            waker.wake();
        }
    }
}

impl Worker<'_> {
    /// Orders it to close its window and to continue with `spare`; the last window has none. Returns whether it is
    /// there.
    fn order(&mut self, spare: Option<Box<Shard>>) -> bool {
        (self.is_ordered, self.is_ending) = (true, spare.is_none());
        let order = CloseOrder { spare, change: self.change.take() };
        let is_sent = self.orders.send(Order::Close(order)).is_ok();
        self.waker.wake();
        is_sent
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use weir_common::ledger::Tally;
    use weir_config::{Estimates, Packets, Sampling};
    use weir_datapath::edge::Edge;
    use weir_measure::open::Content;
    use weir_sketch::hash::Key;

    use super::*;

    /// Far longer than any test takes.
    const LONG: Duration = Duration::from_secs(60);

    const SETTINGS: Estimates = Estimates { unique_error: 0.05, top_error: 0.01, top_candidates: 64 };
    static VIEWS: LazyLock<Arc<Views>> = LazyLock::new(|| Views::built_in(&SETTINGS, 10));

    fn shard_of(views: &Arc<Views>) -> Box<Shard> {
        Box::new(Shard::new(&SETTINGS, views, Key([3, 4])))
    }

    fn shard() -> Box<Shard> {
        shard_of(&VIEWS)
    }

    /// Room for this many workers.
    fn workers<'scope>(workers: usize) -> Workers<'scope> {
        Workers::new((0..workers).map(|_| shard()).collect())
    }

    /// A worker that sees this many packets and records in every window.
    fn counting(packets: u64) -> impl FnOnce(&Receiver<Order>, &Sender<Closed>) -> Result<(), WorkerError> + Send {
        move |orders, closed| {
            let mut open = shard();
            for order in orders {
                let spare = match order {
                    Order::Close(CloseOrder { spare, .. }) => spare,
                    Order::Read(order) => {
                        order.answer(Content::Keys(Vec::new()));
                        continue;
                    }
                    Order::Answer(reply) => {
                        let _ = reply.send(());
                        continue;
                    }
                };
                let mut edge = Edge::empty(1);
                edge.counters[0].seen = Tally::new(packets, 0);
                open.records = packets;
                let is_last = spare.is_none();
                let shard = std::mem::replace(&mut open, spare.unwrap_or_else(shard));
                closed.send(Closed::new(shard, edge)).unwrap();
                if is_last {
                    break;
                }
            }
            Ok(())
        }
    }

    fn spawn<'scope>(
        workers: &mut Workers<'scope>,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce(&Receiver<Order>, &Sender<Closed>) -> Result<(), WorkerError> + Send + 'scope,
    ) {
        workers.spawn(scope, "worker".to_owned(), CapabilitySet::empty(), Waker::new().unwrap(), work).unwrap();
    }

    #[test]
    fn each_window_has_the_parts_of_all_workers_and_shards_return_empty() {
        thread::scope(|scope| {
            let mut workers = workers(3);
            for packets in [1, 10, 100] {
                spawn(&mut workers, scope, counting(packets));
            }
            for nth in 0..5 {
                let window = workers.close(LONG, None, |_| ()).unwrap();
                assert_eq!((window.closed.len(), window.late.len()), (3, 0), "window {nth}");
                let seen: Tally = window.closed.iter().map(|closed| closed.edge.counters[0].seen).sum();
                let records: u64 = window.closed.iter().map(|closed| closed.shard.records).sum();
                assert_eq!((seen.packets, records), (111, 111), "window {nth}");
                workers.take_back(window.closed, &VIEWS, || unreachable!("all answer the same questions"));
                assert!(workers.spares.len() == 3 && workers.spares.iter().all(|spare| spare.records == 0));
            }
            assert!(!workers.has_failed());
            drop(workers);
        });
    }

    #[test]
    fn shards_of_other_views_are_replaced_and_the_change_comes_with_the_first_new_shard() {
        let sampling = Sampling { packets: Packets::OneIn(1), cpu: 0.5 };
        let others = Views::built_in(&SETTINGS, 20);
        let (told, tells) = crossbeam::channel::unbounded();
        thread::scope(|scope| {
            let mut workers = workers(1);
            spawn(&mut workers, scope, move |orders, closed| {
                let mut open = shard();
                for order in orders {
                    let Order::Close(CloseOrder { spare: Some(spare), change }) = order else { continue };
                    told.send((spare.plan().clone(), change)).unwrap();
                    closed.send(Closed::new(std::mem::replace(&mut open, spare), Edge::empty(1))).unwrap();
                }
                Ok(())
            });
            let change = Some(Change { interfaces: 3, sampling });
            workers.renew(|| shard_of(&others));
            for (change, old) in [(change, true), (None, false)] {
                let window = workers.close(LONG, change, |_| ()).unwrap();
                let (views, told) = tells.recv().unwrap();
                assert!(Arc::ptr_eq(&views, &others) && told == change);
                assert_eq!(Arc::ptr_eq(window.closed[0].shard.plan(), &VIEWS), old);
                workers.take_back(window.closed, &others, || shard_of(&others));
                assert!(workers.spares.len() == 1 && Arc::ptr_eq(workers.spares[0].plan(), &others));
            }
            drop(workers);
        });
    }

    #[test]
    fn the_error_of_a_worker_that_fails_is_reported() {
        thread::scope(|scope| {
            let mut workers = workers(2);
            spawn(&mut workers, scope, counting(1));
            spawn(&mut workers, scope, |orders, _| {
                orders.recv().unwrap();
                Err(WorkerError::Tap(io::Error::other("gone")))
            });
            assert!(matches!(workers.close(LONG, None, |_| ()), Err(WorkersError::Worker(WorkerError::Tap(_)))));
            drop(workers);
        });
    }

    #[test]
    fn a_worker_that_ends_unexpectedly_is_noticed_without_an_order() {
        thread::scope(|scope| {
            let mut workers = workers(2);
            spawn(&mut workers, scope, |_, _| Ok(()));
            spawn(&mut workers, scope, counting(1));
            while !workers.has_failed() {
                thread::yield_now();
            }
            assert!(matches!(workers.failure(), WorkersError::Gone));
            drop(workers);
        });
    }

    #[test]
    fn a_worker_that_does_not_answer_is_late_and_its_part_comes_in_a_later_window() {
        thread::scope(|scope| {
            let mut workers = workers(2);
            let (go, stuck) = bounded(0);
            spawn(&mut workers, scope, counting(1));
            spawn(&mut workers, scope, move |orders, closed| {
                // It answers only once, when it is stopped.
                stuck.recv().unwrap();
                counting(10)(orders, closed)
            });
            let mut close = |patience| {
                let window = workers.close(patience, None, |_| ()).unwrap();
                let seen: Tally = window.closed.iter().map(|closed| closed.edge.counters[0].seen).sum();
                let late = window.late.clone();
                workers.take_back(window.closed, &VIEWS, || unreachable!("all answer the same questions"));
                (seen.packets, late)
            };
            let brief = Duration::from_millis(500);
            // The others are reported each time, and the late worker gets no second order.
            for _ in 0..3 {
                assert_eq!(close(brief), (1, vec![1]));
            }
            go.send(()).unwrap();
            // If its part came before this window ended, the worker has no spare, and the rest comes with the next
            // window.
            assert_eq!(close(LONG).0, 11);
            assert_eq!(close(LONG), (11, vec![]));
            assert_eq!(workers.spares.len(), 2);
            drop(workers);
        });
    }

    #[test]
    fn shards_change_only_if_no_worker_is_late() {
        let brief = Duration::from_millis(500);
        thread::scope(|scope| {
            let mut workers = workers(2);
            let (go, stuck) = bounded(0);
            spawn(&mut workers, scope, counting(1));
            spawn(&mut workers, scope, move |orders, closed| {
                stuck.recv().unwrap();
                counting(10)(orders, closed)
            });
            assert!(!workers.all_answer(brief), "it is stuck, although no window has ended without it");
            let window = workers.close(brief, None, |_| ()).unwrap();
            assert_eq!(window.late, [1]);
            workers.take_back(window.closed, &VIEWS, || unreachable!());
            go.send(()).unwrap();
            // It has an order, and its part may come only after the shards have changed.
            assert!(!workers.all_answer(LONG));
            while !workers.workers[1].closed.is_full() {
                thread::yield_now();
            }
            assert!(!workers.all_answer(LONG), "its part is not taken yet");
            let window = workers.close(LONG, None, |_| ()).unwrap();
            assert_eq!((window.closed.len(), &window.late[..]), (2, &[1][..]), "it has no spare for this window");
            workers.take_back(window.closed, &VIEWS, || unreachable!());
            assert!(workers.all_answer(LONG));
            let window = workers.close(Duration::MAX, None, |_| ()).unwrap();
            assert_eq!((window.closed.len(), window.late.len()), (2, 0));
            drop(workers);
        });
    }

    #[test]
    fn the_last_window_of_a_late_worker_is_not_left_out() {
        thread::scope(|scope| {
            let mut workers = workers(2);
            let (go, stuck) = bounded(0);
            spawn(&mut workers, scope, counting(1));
            spawn(&mut workers, scope, move |orders, closed| {
                stuck.recv().unwrap();
                counting(10)(orders, closed)
            });
            let window = workers.close(Duration::from_millis(500), None, |_| ()).unwrap();
            workers.take_back(window.closed, &VIEWS, || unreachable!());
            workers.end();
            go.send(()).unwrap();
            let window = workers.close(LONG, None, |_| ()).unwrap();
            let seen: u64 = window.closed.iter().map(|closed| closed.edge.counters[0].seen.packets).sum();
            assert_eq!((seen, window.late), (1 + 10 + 10, vec![]), "its late part, and what it has seen since");
            drop(workers);
        });
    }

    #[test]
    fn every_worker_reads_its_open_window_unless_one_is_late() {
        let (reply, parts) = bounded(2);
        thread::scope(|scope| {
            let mut workers = workers(2);
            let (go, stuck) = bounded(0);
            spawn(&mut workers, scope, counting(1));
            spawn(&mut workers, scope, move |orders, closed| {
                stuck.recv().unwrap();
                counting(10)(orders, closed)
            });
            assert_eq!(workers.read(7, &OpenRequest::Keys, &reply), Some(2));
            assert_eq!(workers.read(8, &OpenRequest::Keys, &reply), None, "one has not read the order yet");
            assert_eq!(parts.recv().unwrap().of, (7, 0));
            // Such an order does not keep the window from being closed.
            assert_eq!(workers.close(Duration::from_millis(500), None, |_| ()).unwrap().late, [1]);
            assert_eq!(workers.read(9, &OpenRequest::Keys, &reply), None, "it is late");
            go.send(()).unwrap();
            assert_eq!(parts.recv().unwrap().of, (7, 1));
            let window = workers.close(LONG, None, |_| ()).unwrap();
            workers.take_back(window.closed, &VIEWS, || unreachable!("all answer the same questions"));
            drop(workers);
        });
    }

    #[test]
    fn without_workers_an_empty_window_closes() {
        assert!(Workers::new(Vec::new()).close(LONG, None, |_| ()).unwrap().closed.is_empty());
    }
}
