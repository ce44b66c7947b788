//! The sources of `weir top`: a running weir, queried over its control socket, or captures, replayed at a chosen speed.

mod past;

use std::{
    io, iter,
    mem::discriminant,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use jiff::Timestamp;
use weir_common::ledger::Tally;
use weir_config::Config;
use weir_schema::{
    FromJson, InterfaceSecond, Length, Live as Open, LiveAnswers, NamesAnswer, Remembered, Report, SECOND_SCHEMA,
    Second,
};
use weir_system::clock;
use weir_top::{KeyDetails, Request, Source, Update};

use crate::{
    control::{
        client::{self, AskError},
        protocol::{Command, KeyAnswers},
    },
    replay::{self, Listener, Options},
};

/// How many updates may wait for the screen.
const WAITING_MAX: usize = 1024;
/// How long to wait before the next attempt to reach a weir that has ended.
const RETRY: Duration = Duration::from_secs(1);
/// A longer silence in a capture is skipped.
const SILENCE_MAX: u64 = 10;
/// How often a waiting replay checks whether it has to end.
const NAP: Duration = Duration::from_millis(50);

/// A running weir, as the source of `weir top`.
pub struct Live {
    updates: Receiver<Update>,
    requests: Sender<Request>,
}

impl Live {
    /// Follows the weir with this control socket. If that weir ends, tries again.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new(socket: PathBuf) -> io::Result<Self> {
        let (send, updates) = bounded(WAITING_MAX);
        let path = socket.clone();
        let requests = answering(send.clone(), move |request| answer(&path, request))?;
        thread::Builder::new().name("weir-seconds".to_owned()).spawn(move || {
            while let Err(error) = follow(&socket, &send) {
                if send.send(Update::Trouble(error.to_string())).is_err() {
                    return;
                }
                thread::sleep(RETRY);
            }
        })?;
        Ok(Self { updates, requests })
    }
}

/// Starts a thread that answers requests, so that the screen never waits.
fn answering(
    updates: Sender<Update>,
    answer: impl Fn(Request) -> Update + Send + 'static,
) -> io::Result<Sender<Request>> {
    // There are no more requests than keys pressed, and the thread takes all of them at once.
    let (requests, asked) = unbounded();
    thread::Builder::new().name("weir-ask".to_owned()).spawn(move || {
        while let Ok(first) = asked.recv() {
            for request in newest(iter::once(first).chain(asked.try_iter())) {
                if updates.send(answer(request)).is_err() {
                    return;
                }
            }
        }
    })?;
    Ok(requests)
}

/// The newest request of each kind: the screen does not show the answer to an earlier one.
fn newest(requests: impl Iterator<Item = Request>) -> Vec<Request> {
    let mut newest: Vec<Request> = Vec::new();
    for request in requests {
        newest.retain(|other| discriminant(other) != discriminant(&request));
        newest.push(request);
    }
    newest
}

/// Passes on each second, each new report, and each second the open window so far. Returns without an error when the
/// screen has closed.
fn follow(socket: &Path, send: &Sender<Update>) -> Result<(), AskError> {
    let (mut known, mut has_open) = (None, true);
    // It is no error if weir has no report yet.
    if let Ok(report) = last_report(socket) {
        known = Some(report.id.clone());
        drop(send.send(Update::Report(report)));
    }
    tell_names(socket, send);
    client::subscribe(socket, &mut |second| {
        let last = second.last_report.as_ref().map(|last| last.id.clone());
        let is_new = last.is_some() && last != known;
        if send.send(Update::Second(second)).is_err() {
            return false;
        }
        if is_new && let Ok(report) = last_report(socket) {
            known = last;
            tell_names(socket, send);
            if send.send(Update::Report(report)).is_err() {
                return false;
            }
        }
        if !has_open {
            return true;
        }
        match open_window(socket) {
            Ok(open) => send.send(Update::Live(open)).is_ok(),
            // An older weir does not know the command.
            Err(AskError::Refused(_)) => {
                has_open = false;
                true
            }
            // Try again in the next second.
            Err(_) => true,
        }
    })
}

fn open_window(socket: &Path) -> Result<Box<Open>, AskError> {
    let answer = client::ask(socket, Command::Live { list: None })?;
    let open = Open::from_json(answer.get().as_bytes()).map_err(|_| AskError::Foreign(socket.to_owned()))?;
    Ok(Box::new(open))
}

/// Passes on the names of hosts. An older weir does not know the command, and one with masked addresses refuses it.
fn tell_names(socket: &Path, send: &Sender<Update>) {
    let answer = client::ask(socket, Command::Names).ok();
    if let Some(Ok(answer)) = answer.map(|answer| NamesAnswer::from_json(answer.get().as_bytes())) {
        drop(send.send(Update::Names(answer.names)));
    }
}

fn last_report(socket: &Path) -> Result<Box<Report>, AskError> {
    let answer = client::ask(socket, Command::Report { last: None })?;
    let report = Report::from_json(answer.get().as_bytes()).map_err(|_| AskError::Foreign(socket.to_owned()))?;
    Ok(Box::new(report))
}

/// The answer of a running weir.
fn answer(socket: &Path, request: Request) -> Update {
    let ask = |command| match client::ask(socket, command) {
        Ok(answer) => Ok(answer.get().to_owned()),
        Err(error) => Err(error.to_string()),
    };
    match request {
        Request::Key { key, is_open } => look_up(socket, key, is_open),
        Request::Past(look) => Update::Past(look, past::past(&ask, look)),
        Request::PastOfKey { key, view, to } => {
            let past = past::of_key(&ask, &key, view, to);
            Update::PastOfKey(key, past)
        }
    }
}

fn look_up(socket: &Path, key: String, is_open: bool) -> Update {
    let answer = client::ask(socket, Command::Ask { keys: vec![key.clone()], live: is_open });
    let known = answer.map_err(|error| error.to_string()).and_then(|answer| {
        let read = |error: serde_json::Error| error.to_string();
        Ok(if is_open {
            let LiveAnswers { window, answers, .. } = LiveAnswers::from_json(answer.get().as_bytes()).map_err(read)?;
            (answers, Length::new(window.seconds))
        } else {
            let KeyAnswers { window, answers, .. } = KeyAnswers::from_json(answer.get().as_bytes()).map_err(read)?;
            (answers, window.seconds)
        })
    });
    Update::KeyDetails(match known {
        Ok((rows, seconds)) => KeyDetails { key, rows: Ok(rows), seconds },
        Err(why) => KeyDetails { key, rows: Err(why), seconds: Length::default() },
    })
}

impl Source for Live {
    fn next(&mut self) -> Option<Update> {
        self.updates.try_recv().ok()
    }

    fn ask(&mut self, request: Request) {
        // The thread ends only when this is dropped.
        let _ = self.requests.send(request);
    }

    fn knows_keys(&self) -> bool {
        true
    }

    fn now(&self) -> Timestamp {
        clock::now().wall
    }

    fn kind(&self) -> String {
        "live".to_owned()
    }
}

/// Captures that are replayed.
pub struct Replayed {
    updates: Receiver<Update>,
    requests: Sender<Request>,
    now: Timestamp,
    speed: f64,
    is_over: Arc<AtomicBool>,
}

impl Replayed {
    /// Replays captures, `speed` seconds of them in each real second.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new(config: Config, options: Options, speed: f64) -> io::Result<Self> {
        let (send, updates) = bounded(WAITING_MAX);
        let is_over = Arc::new(AtomicBool::new(false));
        let past = Arc::new(past::Replayed::new()?);
        let asked = past.clone();
        let requests = answering(send.clone(), move |request| asked.answer(request))?;
        let mut pace = Pace {
            send: send.clone(),
            past,
            speed,
            name: replay::interface_name(&options.files),
            due: clock::now().monotonic,
            before: None,
            total: Tally::default(),
            is_over: is_over.clone(),
        };
        thread::Builder::new().name("weir-replay".to_owned()).spawn(move || {
            let (end, trouble) = match replay::replay_to(&config, &options, &mut pace) {
                Ok(broken) => ("capture ended", broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
                Err(error) => ("replay failed", error.to_string()),
            };
            if !trouble.is_empty() {
                drop(send.send(Update::Trouble(trouble)));
            }
            drop(send.send(Update::Ended(end.to_owned())));
        })?;
        Ok(Self { updates, requests, now: Timestamp::UNIX_EPOCH, speed, is_over })
    }
}

impl Drop for Replayed {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Source for Replayed {
    fn next(&mut self) -> Option<Update> {
        let update = self.updates.try_recv().ok()?;
        match &update {
            Update::Second(second) => self.now = second.time,
            // The report of the last window comes after its last second.
            Update::Report(report) => self.now = self.now.max(report.window.end),
            _ => {}
        }
        Some(update)
    }

    fn ask(&mut self, request: Request) {
        // The thread ends only when this is dropped.
        let _ = self.requests.send(request);
    }

    fn knows_keys(&self) -> bool {
        false
    }

    fn now(&self) -> Timestamp {
        self.now
    }

    fn kind(&self) -> String {
        format!("replay {}x", self.speed)
    }
}

/// Holds a replay back to its speed.
struct Pace {
    send: Sender<Update>,
    /// Remembers everything that is passed on.
    past: Arc<past::Replayed>,
    speed: f64,
    name: String,
    /// When the next second is over, on the monotonic clock.
    due: Duration,
    /// The last second that was passed on.
    before: Option<u64>,
    total: Tally,
    is_over: Arc<AtomicBool>,
}

impl Pace {
    fn pass(&mut self, update: Update) -> io::Result<()> {
        self.send.send(update).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Waits until the next second is over.
    fn wait(&mut self) -> io::Result<()> {
        self.due += Duration::try_from_secs_f64(1.0 / self.speed).unwrap_or_default();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let left = self.due.saturating_sub(clock::now().monotonic);
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(NAP));
        }
    }

    fn show(&mut self, second: u64, counted: Tally) -> io::Result<()> {
        self.wait()?;
        self.total.add(counted);
        let time = Timestamp::from_second(second.saturating_add(1) as i64).unwrap_or(Timestamp::MAX);
        let interface = InterfaceSecond {
            name: self.name.clone(),
            direction: None,
            mode: "replay".to_owned(),
            counted: Some(counted.into()),
            total: Some(self.total.into()),
            lost: None,
            trouble: None,
        };
        let second = Second {
            schema: SECOND_SCHEMA.to_owned(),
            time,
            seconds: 1.0,
            skipped: 0,
            window_start: time,
            last_report: None,
            interfaces: vec![interface],
            troubles: Vec::new(),
        };
        self.past.add_second(&second);
        self.pass(Update::Second(second))
    }
}

impl Listener for Pace {
    fn second(&mut self, second: u64, counted: Tally) -> io::Result<()> {
        let silent = self.before.map_or(0..0, |before| before + 1..second);
        if silent.end.saturating_sub(silent.start) <= SILENCE_MAX {
            for silent in silent {
                self.show(silent, Tally::default())?;
            }
        }
        self.before = Some(second);
        self.show(second, counted)
    }

    fn remember(&mut self, report: &Report, longer: Option<Remembered>) -> io::Result<()> {
        self.past.add(Remembered::report(longer, report));
        Ok(())
    }

    fn report(&mut self, report: &Report) -> io::Result<()> {
        self.pass(Update::Report(Box::new(report.clone())))
    }
}

#[cfg(test)]
mod tests {
    use weir_top::Look;

    use super::*;

    #[test]
    fn of_the_requests_that_wait_the_newest_of_each_kind_is_answered() {
        let (send, updates) = bounded(WAITING_MAX);
        let (begin, may_begin) = bounded::<()>(0);
        let requests = answering(send, move |request| {
            let _ = may_begin.recv();
            match request {
                Request::Key { key, .. } => {
                    Update::KeyDetails(KeyDetails { key, rows: Ok(Vec::new()), seconds: Length::new(1.0) })
                }
                Request::Past(look) => Update::Past(look, Err("none".to_owned())),
                Request::PastOfKey { key, .. } => Update::PastOfKey(key, Err("none".to_owned())),
            }
        })
        .unwrap();
        let ask = |request| requests.send(request).unwrap();
        // While the first one is answered, many others wait.
        ask(Request::Past(Look::Last(1)));
        while !requests.is_empty() {
            thread::sleep(NAP);
        }
        for nth in 2..100 {
            ask(Request::Key { key: nth.to_string(), is_open: false });
            ask(Request::PastOfKey { key: nth.to_string(), view: None, to: None });
            ask(Request::Past(Look::Last(nth)));
        }
        drop(begin);
        drop(requests);
        let told = updates.iter().map(|update| match update {
            Update::KeyDetails(known) => format!("key {}", known.key),
            Update::Past(look, _) => format!("past {:?}", look.length()),
            Update::PastOfKey(key, _) => format!("past of key {key}"),
            other => panic!("{other:?}"),
        });
        assert_eq!(told.collect::<Vec<_>>(), ["past Some(1)", "key 99", "past of key 99", "past Some(99)"]);
    }
}
