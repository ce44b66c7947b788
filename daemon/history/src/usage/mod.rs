//! What each interface has carried by hour, day and month, for thirteen months, and each own host and network by day.
//!
//! `counting` adds up windows in memory, `hour` is an hour and its format on disk, and `files` has the hours that are
//! over, so memory does not grow with time. `calendar` knows months, and `rows` makes periods from hours. `hosts` does
//! all of that for hosts and networks. This module has the thread that writes and reads the files: no other thread
//! waits for the disk.

mod answer;
mod calendar;
mod counting;
mod entry;
mod files;
mod hosts;
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
use weir_config::{Addresses, names::Prefix};
use weir_schema::{Interface, InterfaceUsage, Top, Window};
use weir_system::{clock, memory::Part, privileges, sandbox};

use self::{
    answer::Known,
    calendar::{Period, last_second},
    counting::{Counting, Month, TRACK_BYTES},
    entry::Entry,
    files::Files,
    hosts::{Day, Days},
    hour::Block,
};
pub use self::{
    answer::Query,
    calendar::By,
    hosts::{HostQuery, NetworkBytes, Sums, Whose},
};
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
    let kept = tracks * (TRACK_BYTES as u64 + MONTH_BYTES) + hosts::MEMORY_BYTES as u64;
    // One answer is made at a time: of interfaces, or of hosts.
    let bytes = kept + ANSWER_BYTES + STEPS_BYTES.max(hosts::ANSWER_BYTES as u64);
    Part::new("usage", if is_on { bytes } else { 0 }, "the open hour and day, and room to read a month").if_any()
}

/// What answers depend on besides the traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The day on which months begin.
    pub first_day: u8,
    /// How much of addresses answers show.
    pub addresses: Addresses,
    /// Where hosts are.
    pub own: Vec<Prefix>,
}

/// The usage of a running weir. It is written to disk when this is dropped.
#[derive(Debug)]
pub struct Usage {
    counting: Arc<Mutex<Counting>>,
    days: Arc<Mutex<Days>>,
    asker: Asker,
    /// Ends the thread when it is dropped.
    stop: Option<Sender<()>>,
    ended: Receiver<()>,
}

/// A question about the usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Of interfaces.
    Interfaces(Query),
    /// Of hosts or networks.
    Hosts(HostQuery),
}

/// A waiting query.
struct Waiting {
    query: Asked,
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
    pub fn ask(&self, query: Asked, wake: impl FnOnce() + Send + 'static) -> Result<Receiver<Answer>, String> {
        let (reply, answer) = bounded(1);
        match self.0.try_send(Waiting { query, reply, wake: Box::new(wake) }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err("too many queries about the usage are waiting: ask again".to_owned()),
            Err(TrySendError::Disconnected(_)) => Err("weir is stopping".to_owned()),
        }
    }
}

impl Usage {
    /// Reads what an earlier weir of this observer has left in the state directory, and starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(state_directory: &Path, observer: &str, settings: Settings) -> io::Result<Self> {
        let mut disk = Disk::new(Files::new(state_directory, observer));
        let created = disk.files.create();
        disk.writes.note(created);
        let (counting, days) = (Arc::new(Mutex::new(disk.load())), Arc::new(Mutex::new(disk.load_days())));
        let (queries, queries_out) = bounded(QUERIES_MAX);
        let (stop, stopped) = bounded(0);
        let (end, ended) = bounded(1);
        let shared = (counting.clone(), days.clone());
        thread::Builder::new().name("weir-usage".to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            sandbox::pass();
            disk.run((&shared.0, &shared.1), &queries_out, &stopped);
            let _ = end.send(());
        })?;
        let usage = Self { counting, days, asker: Asker(queries), stop: Some(stop), ended };
        usage.change(settings);
        Ok(usage)
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

    /// Adds the hosts and the networks of a report. `top` are its lists before addresses are masked.
    pub fn add_hosts(&self, window: &Window, interfaces: &[Interface], top: &Top, networks: Vec<NetworkBytes>) {
        lock(&self.days).add_window(window, interfaces, top, networks);
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

    /// Has these settings from now on.
    pub fn change(&self, Settings { first_day, addresses, own }: Settings) {
        lock(&self.counting).first_day = first_day;
        let mut days = lock(&self.days);
        (days.addresses, days.own) = (addresses, own);
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
        let months = self.files.months::<Block>();
        // A month that begins late in a calendar month is in two of them.
        for month in &months[months.len().saturating_sub(2)..] {
            self.read(month, |block: Block| counting.resume(&block));
        }
        if let Some(open) = self.files.open_entry::<Block>() {
            counting.resume(&open);
            counting.reopen(open);
        }
        counting
    }

    /// The open day. Those before it are only checked.
    fn load_days(&self) -> Days {
        let mut days = Days::default();
        if let Some(month) = self.files.months::<Day>().last() {
            self.read(month, |_: Day| ());
        }
        if let Some(open) = self.files.open_entry() {
            days.reopen(open);
        }
        days
    }

    /// Calls `each` with every entry of a month, and logs how much of its file is damaged.
    fn read<E: Entry>(&self, month: &str, each: impl FnMut(E)) {
        let damaged = self.files.visit(month, each);
        if damaged > 0 {
            let path = self.files.path_of::<E>(month);
            warn!("{}: {damaged} bytes are damaged: `weir usage` lacks what they had", path.display());
        }
    }

    fn run(
        mut self,
        (counting, days): (&Mutex<Counting>, &Mutex<Days>),
        queries: &Receiver<Waiting>,
        stopped: &Receiver<()>,
    ) {
        let mut due = clock::now().monotonic + WRITTEN_EVERY;
        loop {
            let left = due.saturating_sub(clock::now().monotonic);
            select! {
                recv(stopped) -> _ => break,
                recv(queries) -> waiting => {
                    let Ok(Waiting { query, reply, wake }) = waiting else { break };
                    let answer = match query {
                        Asked::Interfaces(query) => query.answer(&self.files, &known(counting)),
                        Asked::Hosts(query) => query.answer(&self.files, &known_days(counting, days)),
                    };
                    // The client may have disconnected.
                    let _ = reply.send(answer);
                    wake();
                }
                default(left) => {}
            }
            if due <= clock::now().monotonic {
                due = clock::now().monotonic + WRITTEN_EVERY;
                self.write(counting, days);
            }
        }
        self.write(counting, days);
    }

    /// Writes what is new since the last time.
    fn write(&mut self, counting: &Mutex<Counting>, days: &Mutex<Days>) {
        let hours = {
            let mut counting = lock(counting);
            counting.warn();
            (counting.closed(), counting.open_hour())
        };
        let written = self.write_entries(&hours.0, hours.1.as_ref(), || lock(counting).forget(1));
        let all = {
            let mut days = lock(days);
            days.warn();
            (days.closed(), days.open_day())
        };
        let written = written.and(self.write_entries(&all.0, all.1.as_ref(), || lock(days).forget(1)));
        self.writes.note(written);
    }

    /// Writes closed entries and the open one. Calls `forget` after each closed one.
    fn write_entries<E: Entry>(&self, closed: &[E], open: Option<&E>, forget: impl Fn()) -> io::Result<()> {
        for entry in closed {
            self.files.append(entry)?;
            forget();
        }
        open.map_or(Ok(()), |open| self.files.write_open(open))
    }
}

/// What is known besides the files.
fn known(counting: &Mutex<Counting>) -> Known {
    let counting = lock(counting);
    let until = counting.until().unwrap_or_else(|| clock::now().wall);
    Known { unwritten: counting.unwritten(), until, first_day: counting.first_day }
}

/// What is known of hosts besides the files.
fn known_days(counting: &Mutex<Counting>, days: &Mutex<Days>) -> hosts::Known {
    let Known { until, first_day, .. } = known(counting);
    let days = lock(days);
    let (unwritten, own) = (days.unwritten(), days.own.clone());
    hosts::Known { unwritten, until, first_day, addresses: days.addresses, own }
}
