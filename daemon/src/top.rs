//! The sources of `weir top`: a running weir, queried over its control socket, or captures, replayed at a chosen speed.

mod past;

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, bounded};
use jiff::Timestamp;
use weir_common::ledger::Tally;
use weir_config::Config;
use weir_report::{FromJson, InterfaceSecond, Live as Open, LiveAnswers, Report, SECOND_SCHEMA, Second};
use weir_system::clock;
use weir_top::{Known, Request, Source, Update};

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
/// How many requests wait while one is answered.
const REQUESTS_MAX: usize = 4;
/// How often a waiting replay checks whether it has to end.
const NAP: Duration = Duration::from_millis(50);

/// A running weir.
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
        let (requests, asked) = bounded(REQUESTS_MAX);
        let (path, answers) = (socket.clone(), send.clone());
        thread::Builder::new().name("weir-ask".to_owned()).spawn(move || {
            for request in asked {
                if answers.send(answer(&path, request)).is_err() {
                    return;
                }
            }
        })?;
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

/// Passes on each second, each new report, and each second the open window so far. Returns without an error when the
/// screen has closed.
fn follow(socket: &Path, send: &Sender<Update>) -> Result<(), AskError> {
    let (mut known, mut has_open) = (None, true);
    // It is no error if weir has no report yet.
    if let Ok(report) = last_report(socket) {
        known = Some(report.id.clone());
        drop(send.send(Update::Report(report)));
    }
    client::subscribe(socket, &mut |second| {
        let last = second.last_report.as_ref().map(|last| last.id.clone());
        let is_new = last.is_some() && last != known;
        if send.send(Update::Second(second)).is_err() {
            return false;
        }
        if is_new && let Ok(report) = last_report(socket) {
            known = last;
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
    let now = clock::now().wall;
    match request {
        Request::Key { key, is_open } => look_up(socket, key, is_open),
        Request::Past(look) => Update::Past(look, past::past(&ask, look, now)),
        Request::PastOfKey { key, view, to } => {
            let past = past::of_key(&ask, &key, view, to, now);
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
            (answers, window.seconds)
        } else {
            let KeyAnswers { window, answers, .. } = KeyAnswers::from_json(answer.get().as_bytes()).map_err(read)?;
            (answers, window.seconds)
        })
    });
    Update::Known(match known {
        Ok((rows, seconds)) => Known { key, rows: Ok(rows), seconds },
        Err(why) => Known { key, rows: Err(why), seconds: 0.0 },
    })
}

impl Source for Live {
    fn next(&mut self) -> Option<Update> {
        self.updates.try_recv().ok()
    }

    fn ask(&mut self, request: Request) {
        // If too many requests wait, this one is dropped.
        let _ = self.requests.try_send(request);
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
    now: Timestamp,
    speed: f64,
    is_over: Arc<AtomicBool>,
    past: past::Replayed,
    /// Answers that the screen has not taken yet.
    answers: VecDeque<Update>,
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
        let mut pace = Pace {
            send: send.clone(),
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
        let (past, answers) = (past::Replayed::new()?, VecDeque::new());
        Ok(Self { updates, now: Timestamp::UNIX_EPOCH, speed, is_over, past, answers })
    }
}

impl Drop for Replayed {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Source for Replayed {
    fn next(&mut self) -> Option<Update> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        let update = self.updates.try_recv().ok()?;
        match &update {
            Update::Second(second) => {
                self.now = second.time;
                self.past.add_second(second);
            }
            Update::Report(report) => {
                // The report of the last window comes after its last second.
                self.now = self.now.max(report.window.end);
                self.past.add(report);
            }
            _ => {}
        }
        Some(update)
    }

    fn ask(&mut self, request: Request) {
        let (past, now) = (&self.past, self.now);
        let ask = |command| past.ask(command);
        self.answers.extend(match request {
            // Nobody keeps the sketches of a window.
            Request::Key { .. } => None,
            Request::Past(look) => Some(Update::Past(look, past::past(&ask, look, now))),
            Request::PastOfKey { key, view, to } => {
                let past = past::of_key(&ask, &key, view, to, now);
                Some(Update::PastOfKey(key, past))
            }
        });
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
    speed: f64,
    name: String,
    /// When the next second is over, on the monotonic clock.
    due: Duration,
    /// The last second.
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
        self.pass(Update::Second(Second {
            schema: SECOND_SCHEMA.to_owned(),
            time,
            seconds: 1.0,
            skipped: 0,
            window_start: time,
            last_report: None,
            interfaces: vec![interface],
            troubles: Vec::new(),
        }))
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

    fn report(&mut self, report: &Report) -> io::Result<()> {
        self.pass(Update::Report(Box::new(report.clone())))
    }
}
