//! What each interface has carried by hour, day and month, for thirteen months.
//!
//! `counting` adds up windows in memory, `hour` is an hour and its format on disk, and `files` has the hours that are
//! over, so memory does not grow with time. `calendar` knows months, and `rows` makes periods from hours. This module
//! has the thread that writes and reads the files: no other thread waits for the disk.

mod answer;
mod calendar;
mod counting;
mod files;
mod hour;
mod rows;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded, select};
use jiff::Timestamp;
use tracing::warn;
use weir_schema::{Interface, InterfaceUsage, Window};
use weir_system::{clock, memory::Part, privileges, sandbox};

use self::{
    answer::Known,
    calendar::{Period, last_second},
    counting::{Counting, Month, TRACK_BYTES},
    files::Files,
    hour::Block,
};
pub use self::{answer::Query, calendar::By};
use crate::{
    query::Answer,
    seconds::{Carried, TRACKS_MAX},
    writes::Writes,
};

/// How many queries may wait.
const QUERIES_MAX: usize = 4;
/// How often the open hour is written to disk.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);
/// How long a stopping weir waits for the disk.
const PATIENCE: Duration = Duration::from_secs(3);
/// An answer, and the steps of a month of one interface in one direction.
const ANSWER_BYTES: u64 = 768 << 10;
const STEPS_BYTES: u64 = 512 << 10;
/// A month of an interface in one direction on disk, at most.
const MONTH_BYTES: u64 = 744 * 120;

/// The memory of the usage, if it is kept, with this many interfaces and directions.
pub fn memory(is_on: bool, slots: usize) -> Part {
    let tracks = slots.min(TRACKS_MAX) as u64;
    let bytes = ANSWER_BYTES + STEPS_BYTES + tracks * (TRACK_BYTES as u64 + MONTH_BYTES);
    Part::new("usage", if is_on { bytes } else { 0 }, "the open hour, and room to read a month").if_any()
}

/// The usage of a running weir. It is written to disk when this is dropped.
#[derive(Debug)]
pub struct Usage {
    counting: Arc<Mutex<Counting>>,
    asker: Asker,
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

/// A waiting query.
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
            Err(TrySendError::Full(_)) => Err("too many queries about the usage are waiting: ask again".to_owned()),
            Err(TrySendError::Disconnected(_)) => Err("weir is stopping".to_owned()),
        }
    }
}

impl Usage {
    /// Reads what an earlier weir of this observer has left in the state directory, and starts the thread. Months begin
    /// on this day.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(state_directory: &Path, observer: &str, first_day: u8) -> io::Result<Self> {
        let mut disk = Disk::new(Files::new(state_directory, observer));
        let created = disk.files.create();
        disk.writes.note(created);
        let mut earlier = disk.load();
        earlier.first_day = first_day;
        let counting = Arc::new(Mutex::new(earlier));
        let (queries, queries_out) = bounded(QUERIES_MAX);
        let (stop, stopped) = bounded(0);
        let (end, ended) = bounded(1);
        let shared = counting.clone();
        thread::Builder::new().name("weir-usage".to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            sandbox::pass();
            disk.run(&shared, &queries_out, &stopped);
            let _ = end.send(());
        })?;
        Ok(Self { counting, asker: Asker(queries), stop: Some(stop), ended })
    }

    /// A handle that sends queries to the thread.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    /// Adds the traffic of each interface since the previous reading, which was this long ago.
    pub fn add_second<'a>(&self, time: Timestamp, length: Duration, interfaces: impl Iterator<Item = Carried<'a>>) {
        lock(&self.counting).add_second(time, length, interfaces);
    }

    /// Adds the window of a report.
    pub fn add_window(&self, window: &Window, interfaces: &[Interface]) {
        lock(&self.counting).add_window(window, interfaces);
    }

    /// What each interface has carried in the month of the last window so far, both directions together.
    pub fn of_month(&self) -> Vec<InterfaceUsage> {
        let counting = lock(&self.counting);
        let Some(until) = counting.until() else { return Vec::new() };
        let month = Period::of(last_second(until), By::Month, counting.first_day);
        let since = Timestamp::from_second(month.start).unwrap_or_default();
        let of = |(interface, month): (&str, Month)| InterfaceUsage {
            interface: interface.to_owned(),
            since,
            bytes: month.bytes(since, until),
        };
        counting.months(month).into_iter().map(of).collect()
    }

    /// Has months begin on this day from now on.
    pub fn begin_months_on(&self, day: u8) {
        lock(&self.counting).first_day = day;
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.ended.recv_timeout(PATIENCE).is_err() {
            warn!("the disk does not answer: the last minute of the usage is lost");
        }
    }
}

/// Locks the content. It is always consistent, so it does no harm if a thread panicked while it held the lock.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side.
struct Disk {
    files: Files,
    writes: Writes,
}

impl Disk {
    fn new(files: Files) -> Self {
        let writes = Writes::new("usage", files.path(), "The last hours wait in memory, and a restart loses them");
        Self { files, writes }
    }

    /// The last months and the open hour.
    fn load(&self) -> Counting {
        let mut counting = Counting::default();
        let months = self.files.months();
        // A month that begins late in a calendar month is in two of them.
        for month in &months[months.len().saturating_sub(2)..] {
            let damaged = self.files.visit(month, |block| counting.resume(&block));
            if damaged > 0 {
                let path = self.files.path().join(month);
                warn!("{}: {damaged} bytes are damaged: `weir usage` lacks their hours", path.display());
            }
        }
        if let Some(open) = self.files.open_hour() {
            counting.resume(&open);
            counting.reopen(open);
        }
        counting
    }

    fn run(mut self, counting: &Mutex<Counting>, queries: &Receiver<Waiting>, stopped: &Receiver<()>) {
        let mut due = clock::now().monotonic + WRITTEN_EVERY;
        loop {
            let left = due.saturating_sub(clock::now().monotonic);
            select! {
                recv(stopped) -> _ => break,
                recv(queries) -> waiting => {
                    let Ok(Waiting { query, reply, wake }) = waiting else { break };
                    let known = {
                        let counting = lock(counting);
                        let until = counting.until().unwrap_or_else(|| clock::now().wall);
                        Known { unwritten: counting.unwritten(), until, first_day: counting.first_day }
                    };
                    // The client may have disconnected.
                    let _ = reply.send(query.answer(&self.files, &known));
                    wake();
                }
                default(left) => {}
            }
            if due <= clock::now().monotonic {
                due = clock::now().monotonic + WRITTEN_EVERY;
                self.write(counting);
            }
        }
        self.write(counting);
    }

    /// Writes what is new since the last time.
    fn write(&mut self, counting: &Mutex<Counting>) {
        let (closed, open) = {
            let mut counting = lock(counting);
            counting.warn();
            (counting.closed(), counting.open_hour())
        };
        let written = self.write_hours(&closed, open.as_ref(), counting);
        self.writes.note(written);
    }

    fn write_hours(&self, closed: &[Block], open: Option<&Block>, counting: &Mutex<Counting>) -> io::Result<()> {
        for block in closed {
            self.files.append(block)?;
            lock(counting).forget(1);
        }
        open.map_or(Ok(()), |open| self.files.write_open(open))
    }
}
