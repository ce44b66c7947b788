//! A sink's thread and the bounded queue in front of it.
//!
//! The rule of its account: every report that is offered is queued, delivered or dropped.

use std::{
    any::Any,
    collections::hash_map::RandomState,
    convert::Infallible,
    hash::{BuildHasher, Hasher},
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use tracing::{error, info, warn};

use super::{DeliveryError, Encoded, Sink};
use crate::{privileges, report::SinkMetrics};

/// The pause after a first failed attempt: a collector that restarts needs a few of these.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// The longest pause: a collector that was down all night gets its reports within half a minute.
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// The longest that [`Outbox::finish`] waits, whatever it is told.
const FINISH_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Takes reports without ever blocking, and hands them to a sink on another thread, in order.
///
/// A report that fails is tried again until it succeeds or the sink refuses it, while newer ones wait. If the queue is
/// full, the oldest waiting report is dropped, because the newest matter most. Dropping an outbox drops what waits.
#[derive(Debug)]
pub struct Outbox {
    account: Arc<Account>,
    queue: Sender<Encoded>,
    /// The courier's end of the queue, to take the oldest report back.
    oldest: Receiver<Encoded>,
    ending: Sender<Instant>,
    /// Disconnected when the courier is gone.
    gone: Receiver<Infallible>,
}

impl Outbox {
    /// Starts the sink's thread behind a queue of `capacity` reports (at least one).
    ///
    /// # Errors
    /// The system grants no thread.
    pub fn start(sink: Box<dyn Sink>, capacity: usize) -> io::Result<Self> {
        let account = Arc::new(Account { name: sink.name(), carries: sink.carries(), tally: Mutex::default() });
        let (queue, oldest) = channel::bounded(capacity.max(1));
        let (ending, ends) = channel::bounded(1);
        let (here, gone) = channel::bounded(0);
        let courier = Courier {
            sink,
            account: Arc::clone(&account),
            queue: oldest.clone(),
            ends,
            deadline: None,
            failing: false,
            _here: here,
        };
        thread::Builder::new().name("sink".to_owned()).spawn(|| {
            privileges::give_up_all_but_files();
            courier.run();
        })?;
        Ok(Self { account, queue, oldest, ending, gone })
    }

    /// Queues a report; in place of the oldest waiting one, which is counted as dropped, if the queue is full.
    pub fn offer(&self, report: Encoded) {
        self.account.tally().offered += 1;
        let mut unqueued = self.queue.try_send(report);
        // The queue cannot be disconnected while this outbox holds its other end; full, it has an oldest report unless
        // the courier took it just now.
        while let Err(full) = unqueued {
            if self.oldest.try_recv().is_ok() {
                self.account.tally().dropped += 1;
            }
            unqueued = self.queue.try_send(full.into_inner());
        }
    }

    /// Whether the sink takes no more reports, for good.
    pub fn is_closed(&self) -> bool {
        self.account.tally().closed
    }

    /// The sink's account since its start.
    pub fn metrics(&self) -> SinkMetrics {
        self.account.metrics()
    }

    /// No more reports come: delivers what waits, and returns how many reports are left undelivered after `timeout`.
    ///
    /// A pause between two attempts ends at once. A sink that still hangs then is left behind with its thread.
    pub fn finish(self, timeout: Duration) -> u64 {
        self.end(deadline_in(timeout)).metrics().queued
    }

    /// Finishes several outboxes within one `timeout`; returns the last account of each, in order, where `queued` is
    /// what was left undelivered.
    pub fn finish_all(outboxes: impl IntoIterator<Item = Self>, timeout: Duration) -> Vec<SinkMetrics> {
        let deadline = deadline_in(timeout);
        let endings: Vec<_> = outboxes.into_iter().map(|outbox| outbox.end(deadline)).collect();
        endings.into_iter().map(Ending::metrics).collect()
    }

    fn end(self, deadline: Instant) -> Ending {
        let Self { account, ending, gone, .. } = self;
        // The channel has room for this one message; a courier that is gone needs none.
        let _ = ending.try_send(deadline);
        Ending { account, gone, deadline }
    }
}

/// An outbox that takes no more reports.
struct Ending {
    account: Arc<Account>,
    gone: Receiver<Infallible>,
    deadline: Instant,
}

impl Ending {
    /// The last account, when the courier is gone or the deadline has passed.
    fn metrics(self) -> SinkMetrics {
        let _ = self.gone.recv_deadline(self.deadline);
        self.account.metrics()
    }
}

/// Lets sinks deliver what waits within `timeout`, and says in the log what they did not deliver.
pub fn finish(outboxes: Vec<Outbox>, timeout: Duration) {
    let carried: Vec<_> = outboxes.iter().map(|outbox| outbox.account.carries).collect();
    for (sink, [_, several]) in Outbox::finish_all(outboxes, timeout).into_iter().zip(carried) {
        if sink.queued > 0 {
            warn!(sink = sink.name, waiting = sink.queued, "these {several} were not delivered");
        }
    }
}

/// The same, on a thread of its own: whoever calls has better things to do.
pub fn farewell(outboxes: Vec<Outbox>, timeout: Duration) {
    if outboxes.is_empty() {
        return;
    }
    let farewell = thread::Builder::new().name("sink-farewell".to_owned()).spawn(move || finish(outboxes, timeout));
    if let Err(error) = farewell {
        warn!("reports of sinks that the configuration has no more may not be delivered: {error}");
    }
}

/// The sink's thread.
struct Courier {
    sink: Box<dyn Sink>,
    account: Arc<Account>,
    queue: Receiver<Encoded>,
    ends: Receiver<Instant>,
    /// When to give up; none while reports may still come.
    deadline: Option<Instant>,
    failing: bool,
    _here: Sender<Infallible>,
}

/// How carrying a report ended.
enum Carried {
    /// It is delivered or dropped: on to the next.
    Settled,
    /// The deadline has passed.
    TooLate,
    /// The sink takes no more.
    Closed,
}

impl Courier {
    fn run(mut self) {
        while let Ok(report) = self.queue.recv() {
            // The sink's own state is of one delivery at a time: the next one begins anew.
            match panic::catch_unwind(AssertUnwindSafe(|| self.carry(&report))) {
                Ok(Carried::Settled) => {}
                Ok(Carried::TooLate) => return,
                Ok(Carried::Closed) => break,
                Err(cause) => self.panicked(cause.as_ref()),
            }
        }
        self.queue.iter().for_each(|_| self.account.tally().dropped += 1);
    }

    fn carry(&mut self, report: &Encoded) -> Carried {
        let mut pause = BACKOFF_MIN;
        while !self.too_late() {
            let error = match self.sink.deliver(report) {
                Ok(()) => {
                    self.delivered();
                    return Carried::Settled;
                }
                Err(error) => error,
            };
            self.failed(&error);
            match error {
                DeliveryError::Unavailable(_) => pause = self.rest(pause),
                DeliveryError::Refused(_) => return Carried::Settled,
                DeliveryError::Closed(_) => return Carried::Closed,
            }
        }
        Carried::TooLate
    }

    fn too_late(&mut self) -> bool {
        if self.deadline.is_none() {
            self.deadline = match self.ends.try_recv() {
                Ok(deadline) => Some(deadline),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(now()),
            };
        }
        self.deadline.is_some_and(|deadline| now() >= deadline)
    }

    /// Pauses before the next attempt and returns the pause after that; the end interrupts it and starts over with the
    /// shortest.
    fn rest(&mut self, pause: Duration) -> Duration {
        let longer = (pause * 2).min(BACKOFF_MAX);
        if let Some(deadline) = self.deadline {
            thread::sleep(jittered(pause).min(deadline.saturating_duration_since(now())));
            return longer;
        }
        self.deadline = match self.ends.recv_timeout(jittered(pause)) {
            Ok(deadline) => Some(deadline),
            Err(RecvTimeoutError::Timeout) => return longer,
            Err(RecvTimeoutError::Disconnected) => Some(now()),
        };
        BACKOFF_MIN
    }

    /// The report that the sink panicked over is dropped, because it would panic over it again.
    fn panicked(&mut self, cause: &(dyn Any + Send)) {
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no message");
        {
            let mut tally = self.account.tally();
            tally.failed_attempts += 1;
            tally.dropped += 1;
            tally.last_error = Some(format!("the sink panicked: {text}"));
        }
        self.failing = true;
        error!(
            sink = self.account.name,
            "the sink panicked, and begins anew with the next report: this is a defect of weir, please report it: {text}"
        );
    }

    fn delivered(&mut self) {
        {
            let mut tally = self.account.tally();
            tally.delivered += 1;
            tally.last_error = None;
        }
        if std::mem::take(&mut self.failing) {
            let [_, several] = self.account.carries;
            info!(sink = self.account.name, "the sink accepts {several} again");
        }
    }

    fn failed(&mut self, error: &DeliveryError) {
        {
            let mut tally = self.account.tally();
            tally.failed_attempts += 1;
            tally.last_error = Some(error.to_string());
            if !matches!(error, DeliveryError::Unavailable(_)) {
                tally.dropped += 1;
            }
            tally.closed |= matches!(error, DeliveryError::Closed(_));
        }
        if std::mem::replace(&mut self.failing, true) {
            return;
        }
        let [one, several] = self.account.carries;
        let consequence = match error {
            DeliveryError::Unavailable(_) => {
                format!("cannot deliver {one}: weir tries again, and newer {several} wait")
            }
            DeliveryError::Refused(_) => format!("the sink refused {one}: weir drops it"),
            DeliveryError::Closed(_) => format!("the sink accepts no more {several}: weir drops them"),
        };
        warn!(sink = self.account.name, %error, "{consequence}");
    }
}

/// What became of the reports, shared by the outbox and its courier.
#[derive(Debug)]
struct Account {
    name: String,
    carries: [&'static str; 2],
    tally: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    offered: u64,
    delivered: u64,
    failed_attempts: u64,
    dropped: u64,
    last_error: Option<String>,
    closed: bool,
}

impl Account {
    /// The tally, for a few instructions; it is never left half changed, so that a poisoned lock does no harm.
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn metrics(&self) -> SinkMetrics {
        let Tally { offered, delivered, failed_attempts, dropped, ref last_error, closed: _ } = *self.tally();
        SinkMetrics {
            name: self.name.clone(),
            queued: offered - delivered - dropped,
            delivered,
            failed_attempts,
            dropped,
            last_error: last_error.clone(),
        }
    }
}

/// Between a half and the whole of a pause, at random: the windows of all routers end together, but their retries
/// should not come together.
fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    pause.mul_f64(0.5 + random as f64 / u64::MAX as f64 / 2.0)
}

fn deadline_in(timeout: Duration) -> Instant {
    now() + timeout.min(FINISH_MAX)
}

#[expect(clippy::disallowed_methods, reason = "deadlines of I/O, which the measurement never sees")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::fd::OwnedFd, sync::mpsc};

    use super::{
        super::{
            Http, Stdout,
            http::tests::{Collector, LONG},
            tests::encoded,
        },
        *,
    };

    fn outbox(address: &str, capacity: usize) -> Outbox {
        let sink = Http::new(&format!("http://{address}/"), LONG, false, Vec::new()).unwrap();
        Outbox::start(Box::new(sink), capacity).unwrap()
    }

    /// Waits for another thread's progress.
    fn wait_until(what: &str, holds: impl Fn() -> bool) {
        let pause = Duration::from_millis(5);
        let tries = LONG.as_millis() / pause.as_millis();
        assert!(
            (0..tries).any(|_| holds() || {
                thread::sleep(pause);
                false
            }),
            "not in {LONG:?}: {what}"
        );
    }

    #[test]
    fn a_failed_report_is_tried_again_under_the_same_key() {
        let collector = Collector::answering([500, 503, 200, 200]);
        let outbox = outbox(&collector.address, 4);
        outbox.offer(encoded("a/b/1"));
        outbox.offer(encoded("a/b/2"));
        wait_until("both delivered", || outbox.metrics().delivered == 2);
        let metrics = outbox.metrics();
        assert_eq!((metrics.failed_attempts, metrics.dropped, metrics.queued, metrics.last_error), (2, 0, 0, None));
        assert_eq!(outbox.finish(LONG), 0);
        assert_eq!(collector.keys(), ["a/b/1", "a/b/1", "a/b/1", "a/b/2"]);
    }

    /// Panics over the second report.
    struct Fragile(mpsc::Sender<String>);

    impl Sink for Fragile {
        fn name(&self) -> String {
            "fragile".to_owned()
        }

        fn deliver(&mut self, report: &Encoded) -> Result<(), DeliveryError> {
            assert_ne!(report.id, "a/b/2", "this one is too much");
            self.0.send(report.id.clone()).unwrap();
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_panics_goes_on_with_the_next_report() {
        let (taken, reports) = mpsc::channel();
        let outbox = Outbox::start(Box::new(Fragile(taken)), 4).unwrap();
        (1..=3).for_each(|seq| outbox.offer(encoded(&format!("a/b/{seq}"))));
        wait_until("the third is delivered", || outbox.metrics().delivered == 2);
        let metrics = outbox.metrics();
        assert_eq!((metrics.failed_attempts, metrics.dropped, metrics.queued), (1, 1, 0));
        assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["a/b/1", "a/b/3"]);
        outbox.offer(encoded("a/b/2"));
        wait_until("the second again", || outbox.metrics().dropped == 2);
        let error = outbox.metrics().last_error.unwrap();
        assert!(error.contains("the sink panicked") && error.contains("this one is too much"), "{error}");
    }

    #[test]
    fn a_refused_report_is_dropped_and_the_next_one_sent() {
        let collector = Collector::answering([400, 200, 413]);
        let outbox = outbox(&collector.address, 4);
        (1..=3).for_each(|seq| outbox.offer(encoded(&format!("a/b/{seq}"))));
        let [metrics] = Outbox::finish_all([outbox], LONG).try_into().unwrap();
        assert_eq!((metrics.delivered, metrics.failed_attempts, metrics.dropped, metrics.queued), (1, 2, 2, 0));
        assert!(metrics.last_error.as_ref().is_some_and(|error| error.starts_with("413 ")), "{metrics:?}");
        assert_eq!(collector.keys(), ["a/b/1", "a/b/2", "a/b/3"]);
    }

    #[test]
    fn a_full_queue_keeps_the_newest() {
        let (arrived, arrivals) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let collector = Collector::new(3, move |_| {
            arrived.send(()).unwrap();
            // From the second request on the test's end is gone.
            let _ = released.recv();
            (200, String::new())
        });
        let outbox = outbox(&collector.address, 2);
        outbox.offer(encoded("a/b/1"));
        arrivals.recv().unwrap();
        (2..=6).for_each(|seq| outbox.offer(encoded(&format!("a/b/{seq}"))));
        let metrics = outbox.metrics();
        assert_eq!((metrics.queued, metrics.dropped, metrics.delivered), (3, 3, 0));
        drop(release);
        assert_eq!(outbox.finish(LONG), 0);
        assert_eq!(collector.keys(), ["a/b/1", "a/b/5", "a/b/6"]);
    }

    #[test]
    fn a_hanging_collector_neither_blocks_nor_fills_memory() {
        // Connections are accepted by the system, and never answered.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let outbox = outbox(&listener.local_addr().unwrap().to_string(), 8);
        let report = encoded("a/b/1");
        (0..1000).for_each(|_| outbox.offer(report.clone()));
        let metrics = outbox.metrics();
        assert_eq!((metrics.delivered, metrics.queued + metrics.dropped), (0, 1000));
        assert!((8..=9).contains(&metrics.queued), "eight wait, one may be under way: {metrics:?}");
        let left = outbox.finish(Duration::from_millis(50));
        assert_eq!(left, metrics.queued, "nothing was delivered, and the thread that hangs was left behind");
    }

    #[test]
    fn a_dead_collector_leaves_its_reports_undelivered_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let outboxes = [outbox(&address, 4), outbox(&address, 4)];
        for outbox in &outboxes {
            (1..=3).for_each(|seq| outbox.offer(encoded(&format!("a/b/{seq}"))));
            wait_until("an attempt has failed", || outbox.metrics().failed_attempts > 0);
        }
        for metrics in Outbox::finish_all(outboxes, Duration::from_millis(50)) {
            assert_eq!((metrics.queued, metrics.delivered, metrics.dropped), (3, 0, 0));
            assert!(metrics.last_error.as_ref().is_some_and(|error| error.contains("refused")), "{metrics:?}");
        }
    }

    #[test]
    fn the_end_interrupts_a_pause() {
        let (ending, ends) = channel::bounded(1);
        let (_queue, queue) = channel::bounded(1);
        let (reader, writer) = io::pipe().unwrap();
        let mut courier = Courier {
            sink: Box::new(Stdout::from(OwnedFd::from(writer))),
            account: Arc::new(Account {
                name: "stdout".to_owned(),
                carries: ["a report", "reports"],
                tally: Mutex::default(),
            }),
            queue,
            ends,
            deadline: None,
            failing: true,
            _here: channel::bounded(0).0,
        };
        assert_eq!(courier.rest(Duration::ZERO), Duration::ZERO, "an uninterrupted pause doubles");
        let deadline = deadline_in(LONG);
        ending.send(deadline).unwrap();
        assert_eq!(courier.rest(BACKOFF_MAX), BACKOFF_MIN, "an interrupted one starts over");
        assert_eq!(courier.deadline, Some(deadline));
        drop(reader);
    }

    #[test]
    fn a_pause_doubles_to_its_maximum_and_varies_by_half() {
        let pauses: Vec<_> = (0..100).map(|_| jittered(BACKOFF_MAX)).collect();
        assert!(pauses.iter().all(|pause| (BACKOFF_MAX / 2..=BACKOFF_MAX).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "not at random");
    }

    #[test]
    fn a_closed_pipe_stops_its_sink_quietly() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let outbox = Outbox::start(Box::new(Stdout::from(OwnedFd::from(writer))), 4).unwrap();
        assert!(!outbox.is_closed());
        outbox.offer(encoded("a/b/1"));
        wait_until("the sink is closed", || outbox.is_closed());
        outbox.offer(encoded("a/b/2"));
        outbox.offer(encoded("a/b/3"));
        let [metrics] = Outbox::finish_all([outbox], LONG).try_into().unwrap();
        assert_eq!((metrics.dropped, metrics.failed_attempts, metrics.queued), (3, 1, 0), "tried once only");
    }

    #[test]
    fn a_dropped_outbox_ends_its_thread() {
        let collector = Collector::answering([500]);
        let outbox = outbox(&collector.address, 4);
        outbox.offer(encoded("a/b/1"));
        wait_until("an attempt has failed", || outbox.metrics().failed_attempts > 0);
        let gone = outbox.gone.clone();
        drop(outbox);
        assert_eq!(gone.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
    }
}
