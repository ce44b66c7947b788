//! Answers the questions of `weir top` about the past: from the history of a running weir, or from the reports of a
//! replay so far.

use jiff::Timestamp;
use weir_history::{Carried, Counts, History, Settings};
use weir_schema::{FromJson, KeyHistory, Length, Report, Union};
use weir_top::{KeyDetails, Look, POINTS, Past, Request, Update, earlier, later};

use crate::control::{past::query, protocol::Command};

/// Windows that a replay remembers, in bytes.
const MEMORY: u64 = 4 << 20;
/// How much of a key is shown, in seconds, and in how many steps.
const HOUR: u64 = 3600;
const STEPS: u32 = 60;

/// Asks a history; the answer is JSON.
pub type Ask<'a> = &'a dyn Fn(Command) -> Result<String, String>;

/// Reads all keys of a time from a history.
///
/// # Errors
///
/// Why it has nothing.
pub fn past(ask: Ask<'_>, look: Look) -> Result<Box<Past>, String> {
    let before = |to| union(ask, [None, to], Some(1), None);
    let after = |from| union(ask, [from, None], None, Some(1));
    // A span ends or begins with a window, so that it crosses a time without data.
    let until = |window: Union, seconds| {
        let to = window.window.end;
        union(ask, [Some(earlier(to, seconds)), Some(to)], None, None)
    };
    let since = |window: Union, seconds| {
        // A span that reaches beyond the last window ends with it, and begins earlier.
        let to = later(window.window.start, seconds).min(before(None)?.window.end);
        union(ask, [Some(earlier(to, seconds)), Some(to)], None, None)
    };
    let union = match look {
        Look::WindowBefore(to) => before(Some(to))?,
        Look::WindowAfter(from) => after(Some(from))?,
        Look::SpanBefore { to, seconds } => until(before(Some(to))?, seconds)?,
        Look::SpanAfter { from, seconds } => since(after(Some(from))?, seconds)?,
        Look::Last(seconds) => until(before(None)?, seconds)?,
        Look::Oldest(None) => after(None)?,
        Look::Oldest(Some(seconds)) => since(after(None)?, seconds)?,
    };
    let (from, to) = (text(Some(union.window.start)), text(Some(union.window.end)));
    let history = ask(Command::History { from, to, points: Some(POINTS), key: None, view: None })?;
    Ok(Box::new(Past { union, history: read(&history)? }))
}

fn union(
    ask: Ask<'_>,
    [from, to]: [Option<Timestamp>; 2],
    last: Option<u32>,
    first: Option<u32>,
) -> Result<Union, String> {
    read(&ask(Command::Span { from: text(from), to: text(to), last, first })?)
}

/// Reads a key from a history, in the hour until `to`, or until the end of the last window.
///
/// # Errors
///
/// Why it has nothing.
pub fn of_key(ask: Ask<'_>, key: &str, view: Option<String>, to: Option<Timestamp>) -> Result<Box<KeyHistory>, String> {
    let to = to.map_or_else(|| Ok(union(ask, [None, None], Some(1), None)?.window.end), Ok::<_, String>)?;
    let (from, to, key) = (text(Some(earlier(to, HOUR))), text(Some(to)), Some(key.to_owned()));
    read(&ask(Command::History { from, to, points: Some(STEPS), key, view })?).map(Box::new)
}

fn text(time: Option<Timestamp>) -> Option<String> {
    time.map(|time| time.to_string())
}

fn read<T: FromJson>(answer: &str) -> Result<T, String> {
    T::from_json(answer.as_bytes()).map_err(|error| format!("the answer is not of this version of weir: {error}"))
}

/// The reports of a replay so far. They are kept like the history of a running weir, without a disk.
pub struct Replayed(History);

impl Replayed {
    /// Makes a history without reports.
    ///
    /// # Errors
    ///
    /// No thread can be started.
    pub fn new() -> std::io::Result<Self> {
        let (observer, addresses) = (String::new(), weir_config::Addresses::Full);
        let default = weir_config::History::default();
        let (rows, limits) = (default.rows, crate::history::limits(&default));
        // No key of the screen asks the flow records.
        let settings = Settings { memory: MEMORY, rows, sample: 0, folder: None, limits, observer, addresses };
        History::start(settings).map(Self)
    }

    /// Adds a report to the history.
    pub fn add(&self, report: Report) {
        self.0.add_waiting(Box::new(report));
    }

    /// Adds a second of the capture.
    pub fn add_second(&self, second: &weir_schema::Second) {
        let carried = second.interfaces.iter().map(|of| {
            let counts = of.counted.map(|counted| Counts { packets: counted.packets, bytes: counted.bytes, lost: 0 });
            Carried { name: &of.name, direction: of.direction.as_deref(), counts }
        });
        let length = std::time::Duration::try_from_secs_f64(second.seconds).unwrap_or_default();
        self.0.add_second(second.time, length, carried);
    }

    /// Answers a request of the screen.
    pub fn answer(&self, request: Request) -> Update {
        let ask = |command| self.ask(command);
        match request {
            // A replay does not keep the sketches of a window.
            Request::Key { key, .. } => Update::KeyDetails(KeyDetails {
                key,
                rows: Err("a replay cannot be asked".to_owned()),
                seconds: Length::default(),
            }),
            Request::Past(look) => Update::Past(look, past(&ask, look)),
            Request::PastOfKey { key, view, to } => {
                let past = of_key(&ask, &key, view, to);
                Update::PastOfKey(key, past)
            }
        }
    }

    /// Asks it, as a running weir is asked.
    fn ask(&self, command: Command) -> Result<String, String> {
        let answer = self.0.asker().ask(query(command)?, || {})?;
        answer.recv().map_err(|_| "the replay has ended".to_owned())?
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const START: Timestamp = Timestamp::constant(1_764_144_000, 0);

    /// A replay of windows of ten seconds: sixty, ten minutes of nothing, and sixty more.
    fn replayed() -> Replayed {
        let mut golden: Report = serde_json::from_str(include_str!("../../schema/tests/golden/report.json")).unwrap();
        golden.addresses = None;
        let replayed = Replayed::new().unwrap();
        for nth in (0..60).chain(120..180) {
            let mut report = golden.clone();
            (report.window.start, report.window.end) = (at(10 * nth), at(10 * nth + 10));
            replayed.add(report);
        }
        replayed
    }

    fn at(seconds: u64) -> Timestamp {
        later(START, seconds)
    }

    /// Start, end and windows of the answer, and how much of the time that was asked for is missing.
    fn seen(replayed: &Replayed, look: Look) -> Result<(u64, u64, u64, SignedDuration), String> {
        let Update::Past(of, past) = replayed.answer(Request::Past(look)) else { panic!("another answer") };
        assert_eq!(of, look);
        let past = past?;
        let window = past.union.window;
        let [start, end] = [window.start, window.end].map(|time| time.duration_since(START).as_secs().unsigned_abs());
        Ok((start, end, past.union.windows, past.missing()))
    }

    #[test]
    fn windows_and_spans_are_stepped_over_across_a_gap_and_none_is_shown_twice() {
        let replayed = replayed();
        let none = SignedDuration::ZERO;
        let before = |to, seconds| Look::SpanBefore { to: at(to), seconds };
        let after = |from, seconds| Look::SpanAfter { from: at(from), seconds };
        for (look, expected) in [
            (Look::Last(300), (1500, 1800, 30, none)),
            (before(1500, 300), (1200, 1500, 30, none)),
            (before(1200, 300), (300, 600, 30, none)),
            (before(300, 300), (0, 300, 30, none)),
            (after(300, 300), (300, 600, 30, none)),
            (after(600, 300), (1200, 1500, 30, none)),
            (Look::Oldest(Some(300)), (0, 300, 30, none)),
            (before(900, 60), (540, 600, 6, none)),
            (after(900, 60), (1200, 1260, 6, none)),
            (Look::WindowBefore(at(1200)), (590, 600, 1, none)),
            (Look::WindowAfter(at(600)), (1200, 1210, 1, none)),
            (Look::Oldest(None), (0, 10, 1, none)),
            // The gap is within the span.
            (Look::Last(1200), (600 + 600, 1800, 60, SignedDuration::from_secs(600))),
            (Look::Last(1300), (500, 1800, 70, SignedDuration::from_secs(600))),
            // The history begins later than these spans. Windows are longer than this one.
            (Look::Last(86_400), (0, 1800, 120, SignedDuration::from_secs(600))),
            (Look::Oldest(Some(86_400)), (0, 1800, 120, SignedDuration::from_secs(600))),
            (after(1500, 600), (1200, 1800, 60, none)),
            (Look::Last(1), (1790, 1800, 1, none)),
        ] {
            assert_eq!(seen(&replayed, look), Ok(expected), "{look:?}");
        }
        for look in [Look::Last(86_400), Look::Oldest(Some(86_400)), Look::Last(1800)] {
            let Update::Past(_, Ok(past)) = replayed.answer(Request::Past(look)) else { panic!("no answer") };
            assert_eq!(past.begins_later().is_some(), look.length() > Some(1800), "{look:?}");
        }
        for look in [Look::WindowBefore(at(0)), before(0, 60), Look::WindowAfter(at(1800)), after(1800, 60)] {
            let why = seen(&replayed, look).unwrap_err();
            assert!(why.contains("the history has windows from 2025-11-26T08:00:00Z to 2025-11-26T08:30:00Z"), "{why}");
        }
    }

    #[test]
    fn the_hour_of_a_key_ends_with_the_last_window() {
        let of_key = |replayed: &Replayed, key: &str| {
            let request = Request::PastOfKey { key: key.to_owned(), view: None, to: None };
            let Update::PastOfKey(_, past) = replayed.answer(request) else { panic!("another answer") };
            past
        };
        let replayed = replayed();
        let hour = of_key(&replayed, "src_ip=192.0.2.1").unwrap();
        assert_eq!((hour.from, hour.to), (at(0), at(1800)));
        assert_eq!(hour.windows.iter().map(|window| window.listed).sum::<u64>(), 120);
        let why = of_key(&replayed, "src_ip=192.0.2.300").unwrap_err();
        assert!(why.contains("is not an address"), "{why}");
        let nothing = Replayed::new().unwrap();
        assert_eq!(of_key(&nothing, "src_ip=192.0.2.1").unwrap_err(), weir_schema::NO_WINDOW);
        assert_eq!(seen(&nothing, Look::Last(60)).unwrap_err(), weir_schema::NO_WINDOW);
    }
}
