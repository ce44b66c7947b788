//! The thread that packs windows, writes the history to disk, and answers queries. No other thread waits for it.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded, select};
use jiff::Timestamp;
use serde::Serialize;
use tracing::warn;
use weir_config::Addresses;
use weir_report::{FromJson, NO_WINDOW, Report};
use weir_system::{clock, privileges, sandbox};

use crate::{
    answer::{self, POINTS, POINTS_MAX},
    block::Open,
    disk::Disk,
    of_key::{self, OfKey},
    seconds::{Carried, Seconds},
    windows::{Time, Windows, of_report},
};

/// How many reports may wait while the thread answers or waits for the disk.
const REPORTS_MAX: usize = 16;
/// How many queries may wait.
const QUERIES_MAX: usize = 4;
/// How often the history is written to disk.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);
/// How long a stopping weir waits for the disk.
const PATIENCE: Duration = Duration::from_secs(3);

/// The settings of a history.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The memory for windows, in bytes.
    pub memory: u64,
    /// The state directory, if the history is kept across restarts.
    pub state_directory: Option<PathBuf>,
    /// The identity of the observer.
    pub observer: String,
    /// How much of addresses answers may show.
    pub addresses: Addresses,
}

/// The history of a running weir. It is written to disk when this is dropped.
#[derive(Debug)]
pub struct History {
    seconds: Arc<Mutex<Seconds>>,
    /// How much of addresses answers may show.
    addresses: Arc<Mutex<Addresses>>,
    /// Reports, each a line of JSON.
    reports: Option<Sender<Arc<[u8]>>>,
    asker: Asker,
    ended: Receiver<()>,
    /// Whether the thread could not take the last report.
    lags: bool,
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The seconds and the totals of windows in this time, in at most this many steps.
    History(Time, Option<usize>),
    /// The union of the windows in this time.
    Span(Time),
    /// The union of this many of the last windows that ended by this time.
    Last(u32, Option<Timestamp>),
    /// The union of this many of the first windows that began at this time or later.
    First(u32, Option<Timestamp>),
    /// What the windows of this time say about a key, in at most this many steps.
    OfKey(OfKey, Time, Option<usize>),
}

/// A waiting query.
struct Waiting {
    query: Query,
    reply: Sender<Answer>,
    wake: Box<dyn FnOnce() + Send>,
}

/// The answer as JSON, or why there is none.
pub type Answer = Result<String, String>;

/// Sends queries to the thread.
#[derive(Clone, Debug)]
pub struct Asker(Sender<Waiting>);

impl Asker {
    /// Sends a query. `wake` is called when the answer has arrived.
    ///
    /// # Errors
    ///
    /// Too many queries wait already.
    pub fn ask(&self, query: Query, wake: impl FnOnce() + Send + 'static) -> Result<Receiver<Answer>, String> {
        let (reply, answer) = bounded(1);
        match self.0.try_send(Waiting { query, reply, wake: Box::new(wake) }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err("the history has too many queries: ask again".to_owned()),
            Err(TrySendError::Disconnected(_)) => Err("weir is stopping".to_owned()),
        }
    }
}

impl History {
    /// Starts the thread, which first reads the files of an earlier weir.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let (reports, reports_out) = bounded(REPORTS_MAX);
        let (queries, queries_out) = bounded(QUERIES_MAX);
        let (end, ended) = bounded(1);
        let seconds = Arc::new(Mutex::new(Seconds::default()));
        let addresses = Arc::new(Mutex::new(settings.addresses));
        let shared = (seconds.clone(), addresses.clone());
        thread::Builder::new().name("weir-history".to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            sandbox::pass();
            Recorder::new(&settings, shared.0, shared.1).run(&reports_out, &queries_out);
            let _ = end.send(());
        })?;
        Ok(Self { seconds, addresses, reports: Some(reports), asker: Asker(queries), ended, lags: false })
    }

    /// A handle that sends queries to the thread.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Adds the traffic of each interface since the previous reading, which was this long ago.
    pub fn add_second<'a>(&self, time: Timestamp, length: Duration, interfaces: impl Iterator<Item = Carried<'a>>) {
        lock(&self.seconds).add(time, length, interfaces);
    }

    /// Adds a report in the form in which it is sent. If the thread lags behind, the history misses it.
    pub fn add(&mut self, line: Arc<[u8]>) {
        let Some(reports) = &self.reports else { return };
        let lags = reports.try_send(line).is_err();
        if lags && !std::mem::replace(&mut self.lags, lags) {
            warn!("the history misses windows: its thread cannot keep up, or waits for the disk");
        }
        self.lags = lags;
    }

    /// Adds a report, and waits if the thread lags behind: for a source that can wait.
    pub fn add_waiting(&self, line: Arc<[u8]>) {
        if let Some(reports) = &self.reports {
            // The thread ends only when this is dropped.
            let _ = reports.send(line);
        }
    }

    /// Limits how much of addresses answers show from now on.
    pub fn mask(&self, addresses: Addresses) {
        *lock(&self.addresses) = addresses;
    }
}

impl Drop for History {
    fn drop(&mut self) {
        drop(self.reports.take());
        if self.ended.recv_timeout(PATIENCE).is_err() {
            warn!("the disk does not answer: the last minute of the history is lost");
        }
    }
}

/// Locks the content. It is always consistent, so it does no harm if a thread panicked while it held the lock.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side.
struct Recorder {
    windows: Windows,
    seconds: Arc<Mutex<Seconds>>,
    addresses: Arc<Mutex<Addresses>>,
    disk: Option<Disk>,
    /// The windows that are not written yet.
    minute: Open,
    /// When the history is written next, on the monotonic clock.
    due: Duration,
}

impl Recorder {
    fn new(settings: &Settings, seconds: Arc<Mutex<Seconds>>, addresses: Arc<Mutex<Addresses>>) -> Self {
        let mut windows = Windows::new(settings.memory, settings.addresses);
        let mut disk = settings.state_directory.as_ref().map(|folder| Disk::new(folder, &settings.observer));
        if let Some(disk) = &mut disk {
            // Read the disk without the lock, so that the coordinator does not wait.
            let mut earlier = Seconds::default();
            disk.load(&mut windows, &mut earlier);
            let mut seconds = lock(&seconds);
            let since = seconds.part(0);
            earlier.resume(&since);
            *seconds = earlier;
        }
        let minute = Open::new(windows.single().next());
        Self { windows, seconds, addresses, disk, minute, due: clock::now().monotonic + WRITTEN_EVERY }
    }

    fn run(mut self, reports: &Receiver<Arc<[u8]>>, queries: &Receiver<Waiting>) {
        loop {
            let left = self.due.saturating_sub(clock::now().monotonic);
            select! {
                recv(reports) -> line => match line {
                    Ok(line) => self.take(&line),
                    Err(_) => break,
                },
                recv(queries) -> waiting => {
                    // The answer must include every report that was published before the query.
                    for line in reports.try_iter() {
                        self.take(&line);
                    }
                    let Ok(Waiting { query, reply, wake }) = waiting else { break };
                    self.windows.mask(*lock(&self.addresses));
                    // The client may have disconnected.
                    let _ = reply.send(self.answer(&query));
                    wake();
                }
                default(left) => {}
            }
            if self.due <= clock::now().monotonic {
                self.write();
            }
        }
        self.write();
    }

    fn take(&mut self, line: &[u8]) {
        match Report::from_json(line) {
            Ok(report) => self.add(&report),
            Err(error) => warn!("the history misses a window: its report is not readable: {error}"),
        }
    }

    fn add(&mut self, report: &Report) {
        let (kept, addresses) = (of_report(report), report.shown_addresses());
        let number = self.windows.single().next();
        let closed = self.windows.add(&kept, addresses);
        let Some(disk) = &mut self.disk else { return };
        if let Some(block) = &closed.single {
            disk.write_single(block, &self.windows);
        }
        if let Some(block) = &closed.many {
            disk.write_many(block, &self.windows);
        }
        // Windows in closed blocks are already written.
        let open = self.windows.single().open();
        if closed.single.is_some() {
            self.minute = Open::new(open.next());
        } else {
            if self.minute.is_empty() {
                self.minute = Open::new(number);
            }
            self.minute.push(&kept, addresses);
        }
    }

    fn write(&mut self) {
        self.due = clock::now().monotonic + WRITTEN_EVERY;
        let Some(disk) = &mut self.disk else { return };
        if let Some(block) = std::mem::take(&mut self.minute).pack() {
            disk.append(&block);
        }
        let (next, part) = {
            let seconds = lock(&self.seconds);
            (seconds.next(), seconds.part(disk.next_row()))
        };
        disk.write_seconds(next, &part);
    }

    fn answer(&self, query: &Query) -> Answer {
        match query {
            Query::History(time, points) => {
                check(time)?;
                let points = points.unwrap_or(POINTS);
                if !(1..=POINTS_MAX).contains(&points) {
                    return Err(format!("{points} points: ask for 1 to {POINTS_MAX}"));
                }
                // The coordinator also needs the seconds, so release the lock before encoding the answer as JSON.
                let history = answer::history(&lock(&self.seconds), &self.windows, time, points);
                json(&history)
            }
            Query::Span(time) => {
                check(time)?;
                self.span(time)
            }
            Query::Last(windows, to) => self.span_of(self.windows.last((*windows).into(), *to)),
            Query::First(windows, from) => self.span_of(self.windows.first((*windows).into(), *from)),
            Query::OfKey(of, time, points) => {
                check(time)?;
                let points = points.unwrap_or(of_key::POINTS);
                if !(1..=of_key::POINTS_MAX).contains(&points) {
                    return Err(format!("{points} points of a key: ask for 1 to {}", of_key::POINTS_MAX));
                }
                json(&of_key::of_key(&self.windows, time, of, points)?)
            }
        }
    }

    fn span_of(&self, time: Option<Time>) -> Answer {
        self.span(&time.ok_or_else(|| self.nothing())?)
    }

    fn span(&self, time: &Time) -> Answer {
        json(&self.windows.span(time).ok_or_else(|| self.nothing())?)
    }

    fn nothing(&self) -> String {
        match self.windows.oldest().zip(self.windows.newest()) {
            None => NO_WINDOW.to_owned(),
            Some((from, to)) => {
                format!("no window of this time is known: there are some from {from:.0} to {to:.0}")
            }
        }
    }
}

fn check(Time { from, to }: &Time) -> Result<(), String> {
    match from.zip(*to) {
        Some((from, to)) if from >= to => Err(format!("this time ends ({to}) before it begins ({from})")),
        _ => Ok(()),
    }
}

fn json(answer: &impl Serialize) -> Answer {
    serde_json::to_string(answer).map_err(|error| format!("weir cannot encode its answer: {error}"))
}
