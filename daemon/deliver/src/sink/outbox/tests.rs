//! A sink's queue with its threads, against sinks that fail in every way.

use std::{
    cell::Cell,
    collections::BTreeSet,
    net::TcpListener,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

use super::{
    super::{
        DeliveryError, Http, Stdout,
        http::tests::{Collector, LONG, settings},
        tests::{encoded, id},
    },
    *,
};
use crate::spool::{Item, command::Spools};

const FULL: Addresses = Addresses::Full;

fn outbox(address: &str, capacity: usize) -> Outbox {
    let sink = Http::new(&settings(&format!("http://{address}/"), LONG)).unwrap();
    Outbox::start(Box::new(sink), capacity, FULL, None).unwrap()
}

/// Waits for another thread's progress.
pub(in crate::sink) fn wait_until(what: &str, holds: impl Fn() -> bool) {
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

/// Panics on the second report.
struct PanicsOnce(mpsc::Sender<String>);

impl Sink for PanicsOnce {
    fn name(&self) -> String {
        "fragile".to_owned()
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let id = &batch[0].encoded.id;
        assert_ne!(id, "a/b/2", "this one is too much");
        self.0.send(id.clone()).unwrap();
        Ok(())
    }
}

#[test]
fn a_sink_that_panics_goes_on_with_the_next_report() {
    let (taken, reports) = mpsc::channel();
    let outbox = Outbox::start(Box::new(PanicsOnce(taken)), 4, FULL, None).unwrap();
    for seq in 1..=3 {
        outbox.offer(encoded(&format!("a/b/{seq}")));
    }
    wait_until("the third is delivered", || outbox.metrics().delivered == 2);
    let metrics = outbox.metrics();
    assert_eq!((metrics.failed_attempts, metrics.dropped, metrics.queued), (1, 1, 0));
    assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["a/b/1", "a/b/3"]);
    outbox.offer(encoded("a/b/2"));
    wait_until("the second again", || outbox.metrics().dropped == 2);
    let error = outbox.metrics().last_error.unwrap();
    assert!(error.contains("the sink panicked") && error.contains("this one is too much"), "{error}");
}

/// Refuses all reports until told otherwise, and always the one with this id.
struct RefusesSome {
    takes: Arc<AtomicBool>,
    never: &'static str,
    taken: mpsc::Sender<String>,
}

impl Sink for RefusesSome {
    fn name(&self) -> String {
        "choosy".to_owned()
    }

    fn batch(&self) -> usize {
        3
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let refuses = |parcel: &Item| parcel.is_report && parcel.encoded.id == self.never;
        if !self.takes.load(Ordering::Relaxed) || batch.iter().any(refuses) {
            return Err(DeliveryError::Refused("405 Method Not Allowed".to_owned()));
        }
        for parcel in batch {
            self.taken.send(parcel.encoded.id.clone()).unwrap();
        }
        Ok(())
    }
}

#[test]
fn a_sink_that_refuses_everything_costs_no_report() {
    let folder = Folder::new("refuses-everything");
    for spool in [None, Some(folder.place())] {
        let (taken, reports) = mpsc::channel();
        let takes = Arc::new(AtomicBool::new(false));
        let never = "7f3c9a52/0000b41d/4";
        let sink = Box::new(RefusesSome { takes: takes.clone(), never, taken });
        let spool = spool.as_ref().map(|place| (place, "choosy"));
        let outbox = Outbox::start(sink, 64, FULL, spool).unwrap();
        for seq in 1..=7 {
            outbox.offer(encoded(&id(seq)));
        }
        wait_until("some attempts, and it is known that all wait", || {
            let metrics = outbox.metrics();
            let all_wait = |error: String| error.contains("405") && error.contains("all reports wait");
            metrics.failed_attempts > 3 && metrics.last_error.is_some_and(all_wait)
        });
        let metrics = outbox.metrics();
        assert_eq!((metrics.queued, metrics.dropped, metrics.delivered), (7, 0, 0), "{metrics:?}");
        takes.store(true, Ordering::Relaxed);
        wait_until("all are settled", || outbox.metrics().queued == 0 && outbox.metrics().delivered == 6);
        assert_eq!(outbox.metrics().lost, [("refused".to_owned(), 1)].into());
        assert_eq!(outbox.finish(LONG), 0);
        let mut taken: Vec<_> = reports.try_iter().collect();
        taken.sort();
        let expected = [1, 2, 3, 4, 5, 6, 7].map(|seq| if seq == 4 { format!("{}-4", id(4)) } else { id(seq) });
        assert_eq!(taken, expected, "a tombstone for the one that is refused where others pass");
    }
}

/// Refuses every other report, and every tombstone.
struct RefusesHalf(mpsc::Sender<u64>);

impl Sink for RefusesHalf {
    fn name(&self) -> String {
        "half".to_owned()
    }

    fn batch(&self) -> usize {
        10
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let seq = |parcel: &Item| parcel.encoded.id.rsplit('/').next().unwrap().parse::<u64>();
        if batch.iter().any(|parcel| !parcel.is_report || seq(parcel).unwrap() % 2 == 1) {
            return Err(DeliveryError::Refused("422 Unprocessable Entity".to_owned()));
        }
        for parcel in batch {
            self.0.send(seq(parcel).unwrap()).unwrap();
        }
        Ok(())
    }
}

#[test]
fn refused_reports_delay_nothing_even_if_tombstones_are_refused() {
    let folder = Folder::new("half");
    for spool in [None, Some(folder.place())] {
        let (taken, reports) = mpsc::channel();
        let spool = spool.as_ref().map(|place| (place, "half"));
        let outbox = Outbox::start(Box::new(RefusesHalf(taken)), 256, FULL, spool).unwrap();
        // Far more reports are refused than accepted, so one accepted report has to settle several refused ones.
        for seq in 1..=40 {
            outbox.offer(encoded(&id(seq)));
        }
        wait_until("all are settled", || outbox.metrics().queued == 0 && outbox.metrics().delivered == 20);
        assert_eq!(outbox.metrics().lost, [("refused".to_owned(), 20)].into());
        // weir gives up every report that was refused before this one is accepted.
        outbox.offer(encoded(&id(42)));
        wait_until("no tombstone waits", || outbox.metrics().untold == 20);
        wait_until("no file of a tombstone is left", || {
            !folder.0.is_dir() || !walk(&folder.0).iter().any(|name| name.ends_with(".tombstone"))
        });
        assert_eq!(outbox.finish(LONG), 0);
        let taken: Vec<_> = reports.try_iter().collect();
        assert!(taken[1..].is_sorted(), "all but the first one, which was the newest, in order: {taken:?}");
        assert_eq!(BTreeSet::from_iter(taken), (1..=21).map(|nth| 2 * nth).collect());
    }
}

/// Accepts only reports from number 200 on, as if earlier ones had an older format.
struct RefusesOld(mpsc::Sender<u64>);

impl Sink for RefusesOld {
    fn name(&self) -> String {
        "modern".to_owned()
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let seq: u64 = batch[0].encoded.id.rsplit(['/', '-']).next().unwrap().parse().unwrap();
        if batch[0].is_report && seq < 200 {
            return Err(DeliveryError::Refused("400 Bad Request".to_owned()));
        }
        self.0.send(seq).unwrap();
        Ok(())
    }
}

#[test]
fn the_newest_report_passes_a_backlog_that_is_refused() {
    let (taken, reports) = mpsc::channel();
    let outbox = Outbox::start(Box::new(RefusesOld(taken)), 512, FULL, None).unwrap();
    for seq in 1..=199 {
        outbox.offer(encoded(&id(seq)));
    }
    wait_until("an attempt has failed", || outbox.metrics().failed_attempts > 0);
    outbox.offer(encoded(&id(200)));
    assert_eq!(reports.recv_timeout(LONG), Ok(200), "it does not wait for its turn");
    let next = Cell::new(201);
    wait_until("the others are settled", || {
        // Reports that were not tried before the newest one was accepted need another accepted report.
        outbox.offer(encoded(&id(next.replace(next.get() + 1))));
        outbox.metrics().lost == [("refused".to_owned(), 199)].into()
    });
    assert_eq!(outbox.finish(LONG), 0);
}

#[test]
fn refused_reports_are_tried_again_on_request() {
    let folder = Folder::new("retry");
    let (taken, reports) = mpsc::channel();
    let place = folder.place();
    let sink = |never| Box::new(RefusesSome { takes: Arc::new(AtomicBool::new(true)), never, taken: taken.clone() });
    let first = Outbox::start(sink("7f3c9a52/0000b41d/1"), 16, FULL, Some((&place, "choosy"))).unwrap();
    for seq in 1..=2 {
        first.offer(encoded(&id(seq)));
    }
    wait_until("one is refused", || first.metrics().dropped == 1 && first.metrics().queued == 0);
    let first_dropped = first.metrics().dropped;
    assert_eq!(first.finish(LONG), 0);
    let second = Outbox::start(sink("none"), 16, FULL, Some((&place, "choosy"))).unwrap();
    let spools = Spools::new(folder.0.clone());
    let refused = spools.list(&[]).unwrap();
    let wanted: Vec<_> = refused.iter().map(|item| spools.retry(item).unwrap()).collect();
    assert_eq!(wanted, [true], "{refused:?}");
    second.offer(encoded(&id(3)));
    wait_until("both came", || second.metrics().delivered == 2);
    let dropped = first_dropped + second.metrics().dropped;
    assert_eq!(dropped, 1, "counters do not go down: it was refused, and is delivered");
    assert_eq!(second.finish(LONG), 0);
    assert!(spools.list(&[]).unwrap().is_empty());
    let taken: BTreeSet<_> = reports.try_iter().collect();
    assert_eq!(taken, [id(1), format!("{}-1", id(1)), id(2), id(3)].into());
}

#[test]
fn reports_lost_with_their_folder_are_named() {
    let folder = Folder::new("removed");
    let (taken, reports) = mpsc::channel();
    let place = folder.place();
    let takes = Arc::new(AtomicBool::new(false));
    let sink = Box::new(RefusesSome { takes: takes.clone(), never: "none", taken });
    let outbox = Outbox::start(sink, 16, FULL, Some((&place, "choosy"))).unwrap();
    for seq in 1..=3 {
        outbox.offer(encoded(&id(seq)));
    }
    wait_until("all are on disk", || outbox.metrics().spool.is_some_and(|spool| spool.reports == 3));
    folder.remove();
    outbox.offer(encoded(&id(4)));
    wait_until("it is known", || outbox.metrics().lost == [("removed".to_owned(), 3)].into());
    wait_until("the new one is there", || outbox.metrics().spool.is_some_and(|spool| spool.reports == 1));
    takes.store(true, Ordering::Relaxed);
    wait_until("delivered", || outbox.metrics().queued == 0);
    assert_eq!(outbox.finish(LONG), 0);
    let taken: BTreeSet<_> = reports.try_iter().collect();
    assert_eq!(taken, [format!("{}-1", id(1)), format!("{}-2", id(2)), format!("{}-3", id(3)), id(4)].into());
}

#[test]
fn a_full_queue_keeps_the_newest() {
    let (arrived, arrivals) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let collector = Collector::new(3, move |_| {
        arrived.send(()).unwrap();
        // From the second request on the test's end of the channel is gone.
        let _ = released.recv();
        (200, String::new())
    });
    let outbox = outbox(&collector.address, 2);
    outbox.offer(encoded("a/b/1"));
    arrivals.recv().unwrap();
    for seq in 2..=6 {
        outbox.offer(encoded(&format!("a/b/{seq}")));
    }
    let metrics = outbox.metrics();
    assert_eq!((metrics.queued, metrics.dropped, metrics.delivered), (3, 3, 0));
    drop(release);
    assert_eq!(outbox.finish(LONG), 0);
    assert_eq!(collector.keys(), ["a/b/1", "a/b/5", "a/b/6"]);
}

#[test]
fn a_hanging_collector_neither_blocks_nor_fills_memory() {
    // The system accepts connections, but no program answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let outbox = outbox(&listener.local_addr().unwrap().to_string(), 8);
    let report = encoded("a/b/1");
    for _ in 0..1000 {
        outbox.offer(report.clone());
    }
    let metrics = outbox.metrics();
    assert_eq!((metrics.delivered, metrics.queued + metrics.dropped), (0, 1000));
    assert!(metrics.queued == 9, "eight wait, one is under way: {metrics:?}");
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
        for seq in 1..=3 {
            outbox.offer(encoded(&format!("a/b/{seq}")));
        }
        wait_until("an attempt has failed", || outbox.metrics().failed_attempts > 0);
    }
    for metrics in Outbox::finish_all(outboxes, Duration::from_millis(50)) {
        assert_eq!((metrics.queued, metrics.delivered, metrics.dropped), (3, 0, 0));
        assert!(metrics.last_error.as_ref().is_some_and(|error| error.contains("refused")), "{metrics:?}");
    }
}

#[test]
fn a_closed_pipe_stops_its_sink_quietly() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let outbox = Outbox::start(Box::new(Stdout::from(OwnedFd::from(writer))), 4, FULL, None).unwrap();
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
    let collector = Collector::answering([500; 8]);
    let outbox = outbox(&collector.address, 4);
    outbox.offer(encoded("a/b/1"));
    wait_until("an attempt has failed", || outbox.metrics().failed_attempts > 0);
    let queue = outbox.0.clone();
    drop(outbox);
    assert!(queue.wait_for_threads(now() + LONG));
}

/// A temporary folder of spools.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        Self(std::env::temp_dir().join(format!("weir-outbox-{}-{test}", std::process::id())))
    }

    fn place(&self) -> SpoolRoot {
        SpoolRoot::take(&self.0, Limits { bytes: 1 << 20, age: None, memory: 1, sync: false }).unwrap()
    }

    /// Removes it, also while a sink's thread makes files there.
    fn remove(&self) {
        wait_until("the folder is gone", || std::fs::remove_dir_all(&self.0).is_ok() || !self.0.exists());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A collector with the same name wherever it listens.
struct Named(Http);

impl Sink for Named {
    fn name(&self) -> String {
        "the collector".to_owned()
    }

    fn batch(&self) -> usize {
        self.0.batch()
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        self.0.deliver(batch)
    }
}

fn spooled(address: &str, place: &SpoolRoot) -> Outbox {
    let sink = Http::new(&settings(&format!("http://{address}/"), LONG)).unwrap();
    Outbox::start(Box::new(Named(sink)), 4, FULL, Some((place, "the collector"))).unwrap()
}

#[test]
fn reports_on_disk_are_delivered_by_the_next_run() {
    let folder = Folder::new("next-run");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let first = spooled(&address, &folder.place());
    for seq in 1..=9 {
        first.offer(encoded(&id(seq)));
        wait_until("it is on disk", || first.metrics().spool.is_some_and(|spool| spool.reports == seq));
    }
    // `finish` does not wait for a collector that does not answer.
    assert_eq!(first.finish(LONG), 9);

    let collector = Collector::answering([200]);
    let second = spooled(&collector.address, &folder.place());
    wait_until("delivered", || second.metrics().delivered == 9);
    let metrics = second.metrics();
    assert_eq!((metrics.queued, metrics.dropped), (0, 0));
    assert_eq!(metrics.spool.unwrap().reports, 0);
    assert_eq!(collector.keys(), [format!("{}..{}", id(1), id(9))], "one request");
}

#[test]
fn waiting_reports_are_masked_as_the_sink_requires_now() {
    let folder = Folder::new("masked");
    let collector = Collector::answering([200]);
    let place = folder.place();
    let spool = place.open("the collector", "the collector", 4);
    let mut full = encoded(&id(1));
    let text = String::from_utf8(full.line.to_vec()).unwrap().replace("\"addresses\":\"prefix\",", "");
    assert!(text.contains("\"192.0.2.1\""));
    full.line = text.into_bytes().into();
    spool.keep(full, 1).unwrap();
    let sink = Http::new(&settings(&format!("http://{}/", collector.address), LONG)).unwrap();
    let known = (&place, "the collector");
    let outbox = Outbox::start(Box::new(Named(sink)), 4, Addresses::None, Some(known)).unwrap();
    wait_until("delivered", || outbox.metrics().delivered == 1);
    let body = String::from_utf8_lossy(&collector.received()[0].body).into_owned();
    assert!(body.contains("\"addresses\":\"none\"") && !body.contains("192.0.2.1"), "{body}");
}

#[test]
fn a_refused_report_in_a_batch_costs_no_other_report() {
    let folder = Folder::new("poison");
    // The first request takes one report, so that the next three wait together.
    let (arrived, arrivals) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let collector = Collector::new(7, move |number| {
        let _ = arrived.send(());
        if number == 0 {
            released.recv().unwrap();
        }
        // The requests: all three; the first; the second; the third, which is accepted; the second again; its
        // tombstone.
        ([200, 422, 200, 422, 200, 422, 200][number], "no such table".to_owned())
    });
    let outbox = spooled(&collector.address, &folder.place());
    outbox.offer(encoded(&id(1)));
    arrivals.recv().unwrap();
    for seq in 2..=4 {
        outbox.offer(encoded(&id(seq)));
        wait_until("it is on disk", || outbox.metrics().spool.is_some_and(|spool| spool.reports == seq));
    }
    release.send(()).unwrap();
    wait_until("settled", || {
        let metrics = outbox.metrics();
        metrics.delivered == 3 && metrics.lost.contains_key("refused")
    });
    let metrics = outbox.metrics();
    assert_eq!((metrics.queued, metrics.dropped, metrics.lost["refused"]), (0, 1, 1));
    let tombstone = "7f3c9a52/0000b41d/3-3".to_owned();
    assert_eq!(
        collector.keys(),
        [id(1), format!("{}..{}", id(2), id(4)), id(2), id(3), id(4), id(3), tombstone],
        "each alone, and a tombstone for the one that was refused"
    );
    drop(outbox);
    let aside = walk(&folder.0).into_iter().find(|path| path.ends_with(".answer")).unwrap();
    assert!(std::fs::read_to_string(aside).unwrap().contains("no such table"));
}

fn walk(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path.display().to_string()] }).collect()
}

#[test]
fn the_next_sink_with_a_spool_waits_for_the_one_before() {
    let folder = Folder::new("berth");
    let place = folder.place();
    let (arrived, arrivals) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let collector = Collector::new(2, move |number| {
        arrived.send(()).unwrap();
        if number == 0 {
            released.recv().unwrap();
        }
        (200, String::new())
    });
    let first = spooled(&collector.address, &place);
    first.offer(encoded(&id(1)));
    arrivals.recv().unwrap();
    let second = spooled(&collector.address, &place);
    second.offer(encoded(&id(2)));
    drop(first);
    wait_until("both are on disk", || second.metrics().spool.is_some_and(|spool| spool.reports == 2));
    assert_eq!(second.metrics().delivered, 0, "the first one still delivers");
    release.send(()).unwrap();
    wait_until("delivered", || second.metrics().delivered == 1);
    assert_eq!(collector.keys(), [id(1), id(2)]);
}

/// A sink that has been offered a report, and whose reader is present or gone.
fn piped(reader_stays: bool) -> (Outbox, Option<io::PipeReader>) {
    let (reader, writer) = io::pipe().unwrap();
    let reader = reader_stays.then_some(reader);
    let outbox = Outbox::start(Box::new(Stdout::from(OwnedFd::from(writer))), 4, FULL, None).unwrap();
    outbox.offer(encoded("a/b/1"));
    let settled = || outbox.metrics().queued == 0 && outbox.is_closed() != reader_stays;
    while !settled() {
        thread::yield_now();
    }
    (outbox, reader)
}

#[test]
fn only_the_last_open_sink_that_closes_is_an_error() {
    let (closed, _) = piped(false);
    let (open, _reader) = piped(true);
    let outboxes = [closed, open];
    let mut sinks = SinkHealth::default();
    assert_eq!(sinks.look(&outboxes), Ok(()));
    assert_eq!(sinks.look(&outboxes), Ok(()));
    let [closed, _open] = outboxes;
    let why = SinkHealth::default().look(&[closed]).unwrap_err();
    assert!(why.starts_with("stdout: cannot write to standard output: "), "{why}");
}

#[test]
fn without_sinks_none_closes() {
    assert_eq!(SinkHealth::default().look(&[]), Ok(()));
}
