//! The thread that packs windows, writes the history to disk, and answers queries. No other thread waits for it.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded, select};
use jiff::Timestamp;
use tracing::warn;
use weir_config::Addresses;
use weir_schema::Report;
use weir_system::{clock, privileges, sandbox};

use crate::{
    archive::Limits,
    block::Open,
    disk::Disk,
    query::{Answer, Query},
    samples,
    seconds::{Carried, Seconds, lock},
    windows::{Windows, of_report, share_of_samples},
};

/// How many reports may wait while the thread answers or waits for the disk.
pub const REPORTS_MAX: usize = 3;
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
    /// How many rows it keeps of each list of a window.
    pub rows: usize,
    /// How many flow records it keeps of each minute.
    pub sample: usize,
    /// Its folder on disk, if it is kept there.
    pub folder: Option<PathBuf>,
    /// What it may take there.
    pub limits: Limits,
    /// The identity of the observer.
    pub observer: String,
    /// How much of addresses answers may show.
    pub addresses: Addresses,
}

/// The settings that can change while it runs.
#[derive(Clone, Copy, Debug)]
pub struct Changeable {
    /// How many rows it keeps of each list of a window.
    pub rows: usize,
    /// How many flow records it keeps of each minute.
    pub sample: usize,
    /// What it may take on disk.
    pub limits: Limits,
    /// How much of addresses answers may show.
    pub addresses: Addresses,
}

impl Settings {
    const fn changeable(&self) -> Changeable {
        Changeable { rows: self.rows, sample: self.sample, limits: self.limits, addresses: self.addresses }
    }
}

/// The history of a running weir. It is written to disk when this is dropped.
#[derive(Debug)]
pub struct History {
    seconds: Arc<Mutex<Seconds>>,
    changeable: Arc<Mutex<Changeable>>,
    reports: Option<Sender<Box<Report>>>,
    asker: Asker,
    ended: Receiver<()>,
    /// True if the thread could not take the last report.
    lags: bool,
}

/// A query that waits for its answer.
struct Waiting {
    query: Query,
    reply: Sender<Answer>,
    wake: Box<dyn FnOnce() + Send>,
}

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
        let changeable = Arc::new(Mutex::new(settings.changeable()));
        let shared = (seconds.clone(), changeable.clone());
        thread::Builder::new().name("weir-history".to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            sandbox::pass();
            Recorder::new(&settings, shared.0, shared.1).run(&reports_out, &queries_out);
            let _ = end.send(());
        })?;
        Ok(Self { seconds, changeable, reports: Some(reports), asker: Asker(queries), ended, lags: false })
    }

    /// A handle that sends queries to the thread.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Adds the traffic of each interface since the previous reading, which was this long ago.
    pub fn add_second<'a>(&self, time: Timestamp, length: Duration, interfaces: impl Iterator<Item = Carried<'a>>) {
        lock(&self.seconds).add(time, length, interfaces);
    }

    /// Adds a report. If the thread lags behind, the history misses it.
    pub fn add(&mut self, report: Box<Report>) {
        let Some(reports) = &self.reports else { return };
        let lags = reports.try_send(report).is_err();
        if lags && !std::mem::replace(&mut self.lags, lags) {
            warn!("the history misses windows: its thread cannot keep up, or waits for the disk");
        }
        self.lags = lags;
    }

    /// Adds a report, and waits if the thread lags behind: for a source that can wait.
    pub fn add_waiting(&self, report: Box<Report>) {
        if let Some(reports) = &self.reports {
            // The thread ends only when this is dropped.
            let _ = reports.send(report);
        }
    }

    /// Changes these settings from now on.
    pub fn change(&self, changed: Changeable) {
        *lock(&self.changeable) = changed;
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

/// The thread's side.
struct Recorder {
    windows: Windows,
    seconds: Arc<Mutex<Seconds>>,
    changeable: Arc<Mutex<Changeable>>,
    disk: Option<Disk>,
    /// The windows that are not written yet.
    minute: Open,
    /// When the history is written next, on the monotonic clock.
    due: Duration,
}

impl Recorder {
    fn new(settings: &Settings, seconds: Arc<Mutex<Seconds>>, changeable: Arc<Mutex<Changeable>>) -> Self {
        let samples = share_of_samples(settings.memory, settings.sample);
        let packed = samples.saturating_sub(samples::pending_bytes(settings.sample, REPORTS_MAX));
        let mut windows = Windows::with_samples(settings.memory - samples, packed, settings.addresses);
        let mut disk = settings.folder.as_ref().map(|folder| Disk::new(folder, &settings.observer));
        if let Some(disk) = &mut disk {
            // Read the disk without the lock, so that the coordinator does not wait.
            let mut earlier = Seconds::default();
            disk.load(&mut windows, &mut earlier, settings.limits);
            let mut seconds = lock(&seconds);
            let since = seconds.part(0);
            earlier.resume(&since);
            *seconds = earlier;
        }
        let minute = Open::new(windows.single().next());
        Self { windows, seconds, changeable, disk, minute, due: clock::now().monotonic + WRITTEN_EVERY }
    }

    fn run(mut self, reports: &Receiver<Box<Report>>, queries: &Receiver<Waiting>) {
        loop {
            let left = self.due.saturating_sub(clock::now().monotonic);
            select! {
                recv(reports) -> report => match report {
                    Ok(report) => self.add(&report),
                    Err(_) => break,
                },
                recv(queries) -> waiting => {
                    // The answer must include every report that was published before the query.
                    for report in reports.try_iter() {
                        self.add(&report);
                    }
                    let Ok(Waiting { query, reply, wake }) = waiting else { break };
                    self.windows.mask(lock(&self.changeable).addresses);
                    // The client may have disconnected.
                    let _ = reply.send(query.answer(&self.windows, &self.seconds));
                    wake();
                }
                default(left) => {}
            }
            if self.due <= clock::now().monotonic {
                self.write();
            }
        }
        self.windows.finish_samples();
        self.write();
    }

    fn add(&mut self, report: &Report) {
        let Changeable { rows, sample: size, limits, addresses: _ } = *lock(&self.changeable);
        self.windows.limit(limits);
        let (mut kept, addresses) = (of_report(report, rows), report.shown_addresses());
        let number = self.windows.single().next();
        if let Some(sample) = report.sample.as_ref().filter(|_| size > 0) {
            self.windows.add_sample(&kept.past, (**sample).clone(), size, addresses);
        }
        let has_closed = self.windows.add(&mut kept, addresses);
        let Some(disk) = &mut self.disk else { return };
        if has_closed {
            // Windows in closed blocks are already written.
            disk.write_open(&self.windows);
            self.minute = Open::new(self.windows.single().next());
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
}
