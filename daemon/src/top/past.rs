//! What `weir top` asks of the history: of a running weir's, or of what a replay has reported so far.

use jiff::Timestamp;
use weir_history::{Carried, Counts, History, Settings};
use weir_report::{FromJson, KeyHistory, Report, Union};
use weir_top::{Look, POINTS, Past, earlier};

use crate::control::{past::query, protocol::Command};

/// Windows that a replay remembers, in bytes.
const MEMORY: u64 = 4 << 20;
/// How much of a key is shown, in seconds, and in how many steps.
const HOUR: u64 = 3600;
const STEPS: u32 = 60;

/// Asks a history; the answer is JSON.
pub type Ask<'a> = &'a dyn Fn(Command) -> Result<String, String>;

/// What a history has of a time.
///
/// # Errors
///
/// Why it has nothing.
pub fn past(ask: Ask<'_>, look: Look, now: Timestamp) -> Result<Box<Past>, String> {
    let span = |from: Option<Timestamp>, to: Option<Timestamp>, last, first| {
        read::<Union>(&ask(Command::Span { from: text(from), to: text(to), last, first })?)
    };
    let union = match look {
        Look::WindowBefore(to) => span(None, Some(to), Some(1), None),
        Look::WindowAfter(from) => span(Some(from), None, None, Some(1)),
        Look::Last(seconds) => span(Some(earlier(now, seconds)), None, None, None),
        Look::Span { from, to } => span(Some(from), Some(to), None, None),
        Look::Oldest(None) => span(None, None, None, Some(1)),
        Look::Oldest(Some(seconds)) => {
            let from = span(None, None, None, Some(1))?.window.start;
            span(Some(from), Some(earlier(from, 0) + jiff::SignedDuration::from_secs(seconds as i64)), None, None)
        }
    }?;
    let (from, to) = (text(Some(union.window.start)), text(Some(union.window.end)));
    let history = ask(Command::History { from, to, points: Some(POINTS), key: None, view: None })?;
    Ok(Box::new(Past { union, history: read(&history)? }))
}

/// What a history has of a key, in the hour until `to`.
///
/// # Errors
///
/// Why it has nothing.
pub fn of_key(
    ask: Ask<'_>,
    key: &str,
    view: Option<String>,
    to: Option<Timestamp>,
    now: Timestamp,
) -> Result<Box<KeyHistory>, String> {
    let from = text(Some(earlier(to.unwrap_or(now), HOUR)));
    let key = Some(key.to_owned());
    read(&ask(Command::History { from, to: text(to), points: Some(STEPS), key, view })?).map(Box::new)
}

fn text(time: Option<Timestamp>) -> Option<String> {
    time.map(|time| time.to_string())
}

fn read<T: FromJson>(answer: &str) -> Result<T, String> {
    T::from_json(answer.as_bytes()).map_err(|error| format!("the answer is not of this version of weir: {error}"))
}

/// What a replay has reported so far. It is the history of a running weir, without a disk.
pub struct Replayed(History);

impl Replayed {
    /// Nothing yet.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new() -> std::io::Result<Self> {
        let (observer, addresses) = (String::new(), weir_config::Addresses::Full);
        let settings = Settings { memory: MEMORY, state_directory: None, observer, addresses };
        History::start(settings).map(Self)
    }

    /// Adds a report.
    pub fn add(&self, report: &Report) {
        if let Ok(line) = serde_json::to_vec(report) {
            self.0.add_waiting(line.into());
        }
    }

    /// Adds a second of the capture.
    pub fn add_second(&self, second: &weir_report::Second) {
        let carried = second.interfaces.iter().map(|of| {
            let counts = of.counted.map(|counted| Counts { packets: counted.packets, bytes: counted.bytes, lost: 0 });
            Carried { name: &of.name, direction: of.direction.as_deref(), counts }
        });
        self.0.add_second(second.time, carried);
    }

    /// Asks it, as a running weir is asked.
    ///
    /// # Errors
    ///
    /// Why it has nothing.
    pub fn ask(&self, command: Command) -> Result<String, String> {
        let answer = self.0.asker().ask(query(command)?, || {})?;
        answer.recv().map_err(|_| "the replay has ended".to_owned())?
    }
}
