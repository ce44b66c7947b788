//! The last reports and the status, which the coordinator publishes once a window, and clients query.
//!
//! The coordinator must never wait for a client. So it publishes once a window what most clients want, and the threads
//! that serve clients read it here. None of them holds the lock while a client is served. Only questions about keys go
//! to the coordinator.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use jiff::Timestamp;
use tokio::sync::watch;
use weir_config::Addresses;
use weir_measure::question::Views;
use weir_schema::{Encoded, LastReport, REPORTS_KEPT, Report, Second};
use weir_system::waker::Waker;

use super::status::{Identity, Status};

/// Maximum number of browsers that get a message each second.
const WATCHING_MAX: usize = 16;

/// The answers that do not need the coordinator.
#[derive(Debug)]
pub struct Board {
    known: Mutex<Published>,
    /// How many clients get a message each second.
    subscribers: AtomicUsize,
    /// Woken when a second is published.
    reader: OnceLock<Waker>,
    /// The number of the last second, for browsers. Each has a receiver.
    seconds: watch::Sender<u64>,
}

/// A subscription to the seconds, until it is dropped.
#[derive(Debug)]
pub struct Watching {
    board: Arc<Board>,
    seconds: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Published {
    identity: Identity,
    latest: Option<Latest>,
    /// The end of the open window.
    window_end: Option<Timestamp>,
    /// Why weir does not see all packets now.
    troubles: Vec<String>,
    /// The last second, if a client subscribes.
    second: Option<LastSecond>,
    /// The last reports of one configuration, as the sinks get them, the oldest first; the last one is `latest`.
    reports: VecDeque<Encoded>,
}

/// The last report, with the window behind it.
#[derive(Clone, Debug)]
struct Latest {
    status: Status,
    /// The views and facts for questions about its window.
    askable: Askable,
}

/// The message of a second, for all subscribers.
#[derive(Clone, Debug)]
pub struct LastSecond {
    /// The number of the second, one more than that of the second before.
    pub number: u64,
    /// A JSON object without its opening brace.
    pub fields: Arc<[u8]>,
}

/// Everything that questions about a window need.
#[derive(Clone, Debug)]
pub struct Askable {
    /// The views of the window.
    pub views: Arc<Views>,
    /// The names of its interfaces.
    pub interfaces: Vec<String>,
    /// How much of addresses a client may see.
    pub addresses: Addresses,
}

impl Board {
    /// A board before the first report.
    pub fn new(identity: Identity) -> Self {
        Self {
            known: Mutex::new(Published {
                identity,
                latest: None,
                window_end: None,
                troubles: Vec::new(),
                second: None,
                reports: VecDeque::new(),
            }),
            subscribers: AtomicUsize::new(0),
            reader: OnceLock::new(),
            seconds: watch::Sender::new(0),
        }
    }

    /// Publishes a report, and what can be asked about its window.
    pub fn publish(&self, report: &Report, encoded: &Encoded, views: &Arc<Views>) {
        let mut published = self.lock();
        let status = Status::new(&published.identity, Some(report));
        // Another configuration may use the same names for other questions.
        if published.latest.as_ref().is_some_and(|latest| !Arc::ptr_eq(&latest.askable.views, views)) {
            published.reports.clear();
        }
        let interfaces = report.interfaces.iter().map(|interface| interface.name.clone()).collect();
        let addresses = report.shown_addresses();
        published.latest = Some(Latest { status, askable: Askable { views: views.clone(), interfaces, addresses } });
        if published.reports.len() == REPORTS_KEPT {
            published.reports.pop_front();
        }
        published.reports.push_back(encoded.clone());
    }

    /// A window has begun, and will end then.
    pub fn open_window(&self, end: Timestamp) {
        self.lock().window_end = Some(end);
    }

    /// Publishes why weir does not see all packets now, or did not in the open window.
    pub fn warn(&self, troubles: Vec<String>) {
        self.lock().troubles = troubles;
    }

    /// Why weir did not see all packets in the window of the last report, since then, or now.
    pub fn troubles(&self) -> Vec<String> {
        let published = self.lock();
        let mut all = published.troubles.clone();
        let interfaces = published.latest.iter().filter_map(|latest| latest.status.last_report.as_ref());
        for one in interfaces.flat_map(|last| &last.interfaces) {
            let of = [one.name.as_str(), one.direction.as_deref().unwrap_or("both")];
            all.extend(one.blind_seconds.map(|seconds| {
                format!("{} ({}): was blind for up to {seconds:.1} s of the last window", of[0], of[1])
            }));
            all.extend(one.trouble.as_ref().map(|trouble| format!("{} ({}): {trouble}", of[0], of[1])));
        }
        all.dedup();
        all
    }

    /// Notes that this many clients want each second. `reader` is woken when one is published.
    pub fn subscribe(&self, clients: usize, reader: &Waker) {
        self.reader.get_or_init(|| reader.clone());
        self.subscribers.store(clients, Ordering::Relaxed);
    }

    /// How many clients want to know of each second.
    pub fn subscribers(&self) -> usize {
        self.subscribers.load(Ordering::Relaxed)
    }

    /// Returns true if anything subscribes to the seconds.
    pub fn is_subscribed(&self) -> bool {
        self.subscribers() > 0 || self.seconds.receiver_count() > 0
    }

    /// Subscribes one more browser to the seconds; `None` if there are too many already.
    pub fn watch(self: &Arc<Self>) -> Option<Watching> {
        let is_full = self.seconds.receiver_count() >= WATCHING_MAX;
        (!is_full).then(|| Watching { board: self.clone(), seconds: self.seconds.subscribe() })
    }

    /// Publishes a second. Only the board knows the last report and the troubles, so it adds them.
    pub fn publish_second(&self, mut second: Second) {
        let mut known = self.lock();
        let last = known.latest.as_ref().and_then(|latest| latest.status.last_report.as_ref());
        second.last_report = last.map(|last| LastReport { id: last.id.clone(), end: last.end });
        second.troubles.clone_from(&known.troubles);
        let Ok(line) = serde_json::to_vec(&second) else { return };
        let number = known.second.as_ref().map_or(0, |before| before.number) + 1;
        known.second = Some(LastSecond { number, fields: line[1..].into() });
        drop(known);
        self.seconds.send_replace(number);
        if let Some(reader) = self.reader.get() {
            reader.wake();
        }
    }

    /// The last second; `None` before the first subscription.
    pub fn second(&self) -> Option<LastSecond> {
        self.lock().second.clone()
    }

    /// Notes that another configuration has taken effect.
    pub fn change(&self, interval_seconds: u64, memory_bytes: u64, addresses: Addresses) {
        let mut published = self.lock();
        let identity = &mut published.identity;
        (identity.interval_seconds, identity.memory_bytes) = (interval_seconds, memory_bytes);
        // The last window is still that of the earlier configuration.
        if let Some(latest) = &mut published.latest {
            latest.askable.addresses = latest.askable.addresses.max(addresses);
        }
    }

    /// The last report as a line of JSON; `None` before the first.
    pub fn report(&self) -> Option<Encoded> {
        self.lock().reports.back().cloned()
    }

    /// Returns so many of the last reports of the current configuration, or as many as there are, the oldest first.
    pub fn last(&self, count: usize) -> Vec<Encoded> {
        let published = self.lock();
        let passed = published.reports.len().saturating_sub(count);
        published.reports.iter().skip(passed).cloned().collect()
    }

    /// Returns what questions about the window of the last report need; `None` before the first.
    pub fn askable(&self) -> Option<Askable> {
        self.lock().latest.as_ref().map(|latest| latest.askable.clone())
    }

    /// The status of weir.
    pub fn status(&self) -> Status {
        let published = self.lock();
        let status = published.latest.as_ref().map(|latest| latest.status.clone());
        let status = status.unwrap_or_else(|| Status::new(&published.identity, None));
        Status { next_report: published.window_end, troubles: published.troubles.clone(), ..status }
    }

    /// The content is consistent at any time, so a thread that panicked with the lock held does no harm.
    fn lock(&self) -> MutexGuard<'_, Published> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watching {
    /// Waits for the next second, and returns the last one; `None` if there will be none.
    pub async fn next(&mut self) -> Option<LastSecond> {
        self.seconds.changed().await.ok()?;
        self.board.second()
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Estimates;

    use super::*;

    #[test]
    fn the_last_reports_are_those_of_one_configuration() {
        let golden = include_str!("../../schema/tests/golden/report.json");
        let mut report: Report = serde_json::from_str(golden).unwrap();
        let identity = Identity {
            pid: 7,
            version: "0".to_owned(),
            started: Timestamp::UNIX_EPOCH,
            interval_seconds: 10,
            memory_bytes: 0,
        };
        let board = Board::new(identity);
        let [first, second] = [10, 5].map(|top| Views::built_in(&Estimates::default(), top));
        let mut publish = |seq: u64, views| {
            report.id = format!("a/b/{seq}");
            board.publish(&report, &Encoded::new(&report), views);
        };
        let ids = |count| board.last(count).into_iter().map(|report| report.id).collect::<Vec<_>>();
        assert!(ids(5).is_empty());
        for seq in 1..=7 {
            publish(seq, &first);
        }
        assert_eq!(ids(5), ["a/b/3", "a/b/4", "a/b/5", "a/b/6", "a/b/7"]);
        assert_eq!((ids(2), ids(9).len()), (vec!["a/b/6".to_owned(), "a/b/7".to_owned()], REPORTS_KEPT));
        publish(8, &second);
        assert_eq!(ids(5), ["a/b/8"], "what was asked before may have meant something else");
        assert_eq!(board.report().unwrap().id, "a/b/8");
    }
}
