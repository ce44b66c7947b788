//! The history of a running weir: the traffic of each interface in equal steps, and the totals of windows.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Distinct, Estimate, KeyAnswer, KeySums, Length, ListKey, Report, Sums, Tally, Union, alert::is_zero, instant,
    union::distinct_names,
};

/// The schema that [`History`] serialises to.
pub const HISTORY_SCHEMA: &str = "weir.history/1";

/// The schema that [`KeyHistory`] serialises to.
pub const KEY_HISTORY_SCHEMA: &str = "weir.key_history/1";

/// The answer to `history` on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The schema's name and version.
    pub schema: String,
    /// The start of the first step, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub from: Timestamp,
    /// The end of the last step.
    #[serde(serialize_with = "instant::fixed")]
    pub to: Timestamp,
    /// The length of a step: whole seconds.
    pub step_seconds: u64,
    /// How far back weir remembers.
    pub reaches_back_to: Reach,
    /// Each interface and direction that existed in this time.
    pub interfaces: Vec<InterfaceHistory>,
    /// The windows of this time, the oldest first. If there are more windows than steps, neighbours are added together.
    pub windows: Vec<PastWindow>,
}

/// A time in equal steps of whole seconds, the fewest that cover it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The start of the first step, in seconds since 1970.
    pub first: i64,
    /// The length of a step in seconds.
    pub seconds: u64,
    /// The number of steps.
    pub count: usize,
}

impl Steps {
    /// The steps of a time, at most so many.
    pub fn new(from: Timestamp, to: Timestamp, most: usize) -> Self {
        let first = from.as_millisecond().div_euclid(1000);
        let end = (to.as_millisecond() + 999).div_euclid(1000);
        let span = u64::try_from(end - first).unwrap_or(0);
        let seconds = span.div_ceil(most as u64).max(1);
        Self { first, seconds, count: span.div_ceil(seconds) as usize }
    }
}

impl History {
    /// A history of these steps. If there are more windows than `points`, neighbours are added together.
    pub fn new(
        steps: Steps,
        reaches_back_to: Reach,
        interfaces: Vec<InterfaceHistory>,
        windows: &[PastWindow],
        points: usize,
    ) -> Self {
        let Steps { first, seconds, count } = steps;
        let last = first.saturating_add_unsigned(count as u64 * seconds);
        let time = |second| Timestamp::from_second(second).unwrap_or_default();
        let each = windows.len().div_ceil(points).max(1);
        let sum = |some: &[PastWindow]| {
            let mut sum = some[0].clone();
            for next in &some[1..] {
                sum.add(next);
            }
            sum
        };
        Self {
            schema: HISTORY_SCHEMA.to_owned(),
            from: time(first),
            to: time(last),
            step_seconds: seconds,
            reaches_back_to,
            interfaces,
            windows: windows.chunks(each).map(sum).collect(),
        }
    }
}

/// How far back weir remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Seconds of interfaces. Absent if it remembers none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Timestamp>,
    /// Windows; older windows may be several together. Absent if it remembers none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Timestamp>,
}

/// The traffic of an interface in one direction in each step: exact sums of the seconds that are known. `null` if no
/// second of the step is known. If only some are known, a rate is the sum by their number (`seconds`), not by the
/// length of the step. A second counts under the name that the interface had at the end of that second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InterfaceHistory {
    /// The name of the interface.
    pub name: String,
    /// `ingress` or `egress`; absent for `others`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// The packets of each step; `None` where they are unknown.
    pub packets: Vec<Option<u64>>,
    /// Bytes on the wire.
    pub bytes: Vec<Option<u64>>,
    /// Packets that were lost.
    pub lost: Vec<Option<u64>>,
    /// How many seconds of each step these numbers are of. Absent in answers of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<f64>,
}

impl InterfaceHistory {
    /// How many seconds of a step its numbers are of; `None` if that is none. Without `seconds`, it is the whole step.
    pub fn known_seconds(&self, nth: usize, step_seconds: u64) -> Option<f64> {
        let known = if self.seconds.is_empty() { step_seconds as f64 } else { *self.seconds.get(nth)? };
        (known > 0.0).then_some(known)
    }
}

/// The totals of a window, or of several consecutive windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastWindow {
    /// The earliest start of a window, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// The latest end of a window.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// The number of windows.
    pub windows: u64,
    /// The sum of their lengths, in seconds: less than from start to end if windows are missing, and more if the clock
    /// was set back. Absent in answers of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The number of packets seen.
    pub packets: u64,
    /// The number of bytes seen.
    pub bytes: u64,
    /// Distinct source addresses: at least as many as in any one window, and at most the sum.
    pub src_ip: Distinct,
    /// The rules whose alerts were firing in any of these windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alerts: Vec<String>,
}

impl PastWindow {
    /// The totals of the window of a report.
    pub fn of(report: &Report) -> Self {
        Self {
            start: report.window.start,
            end: report.window.end,
            windows: 1,
            // Milliseconds are exact enough for a history.
            seconds: report.window.seconds.seconds().map(|seconds| (seconds * 1e3).round() / 1e3),
            packets: report.totals.packets,
            bytes: report.totals.bytes,
            src_ip: report.unique.src_ip,
            alerts: report.firing().map(str::to_owned).collect(),
        }
    }

    /// Adds the following windows.
    pub fn add(&mut self, next: &Self) {
        (self.start, self.end) = (self.start.min(next.start), self.end.max(next.end));
        self.windows += next.windows;
        self.seconds = self.seconds.zip(next.seconds).map(|(known, more)| known + more);
        self.packets = self.packets.saturating_add(next.packets);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self.src_ip = self.src_ip.or(next.src_ip);
        self.alerts = distinct_names(self.alerts.iter().chain(&next.alerts));
    }
}

/// The numbers of one key of a list over time: the answer to `history` with a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyHistory {
    /// The schema's name and version.
    pub schema: String,
    /// The key as it was asked for.
    pub key: String,
    /// The view whose list this is. Absent for a standard list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// The start of the time that was asked for, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub from: Timestamp,
    /// The end of the span.
    #[serde(serialize_with = "instant::fixed")]
    pub to: Timestamp,
    /// The probability that the bounds of all windows hold, 0 to 1.
    pub confidence: f64,
    /// How many windows of this time are left out, because the view asked another question then: all windows here
    /// answer the question of the last one. Absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The windows of this time, the oldest first; neighbours together where there are more than steps. A time without
    /// windows is not there.
    pub windows: Vec<KeyWindow>,
}

/// A [`KeyHistory`] that windows are being added to.
#[derive(Debug)]
pub struct KeySteps {
    history: KeyHistory,
    step_ms: u64,
    /// The windows of each question, the last one of which was asked last.
    questions: Vec<OfQuestion>,
}

/// The windows that answer one question.
#[derive(Debug)]
struct OfQuestion {
    question: Option<String>,
    windows: Vec<KeyWindow>,
    failures: f64,
}

impl KeySteps {
    /// The history of a key over this time in about `points` steps of equal length, without windows yet.
    pub fn new(key: &str, view: Option<&str>, (from, to): (Timestamp, Timestamp), points: usize) -> Self {
        let length = (to.as_millisecond() - from.as_millisecond()).unsigned_abs();
        let history = KeyHistory {
            schema: KEY_HISTORY_SCHEMA.to_owned(),
            key: key.to_owned(),
            view: view.map(str::to_owned),
            from,
            to,
            confidence: 1.0,
            left_out: 0,
            windows: Vec::new(),
        };
        Self { history, step_ms: length.div_ceil(points as u64).max(1), questions: Vec::new() }
    }

    /// Adds the window that follows, if it has such a list.
    pub fn add(&mut self, past: &PastWindow, union: &Union, key: &ListKey) {
        let (sums, question) = match union.of_key(key) {
            KeyAnswer::NoList => return,
            KeyAnswer::LeftOut => return self.history.left_out += past.windows,
            KeyAnswer::Asked(sums, question) => (sums, question),
        };
        let next = KeyWindow::new(past, union.window.seconds, &sums);
        let first = self.history.from.as_millisecond();
        let step_of = |start: Timestamp| (start.as_millisecond() - first).max(0).unsigned_abs() / self.step_ms;
        let mut of = match self.questions.iter().position(|of| of.question == question) {
            Some(known) => self.questions.remove(known),
            None => OfQuestion { question, windows: Vec::new(), failures: 0.0 },
        };
        of.failures += 1.0 - sums.confidence;
        match of.windows.last_mut().filter(|last| step_of(last.start) == step_of(next.start)) {
            Some(last) => last.add(&next),
            None => of.windows.push(next),
        }
        self.questions.push(of);
    }

    /// The history of the windows that answer the question of the last one.
    pub fn finish(self) -> KeyHistory {
        let Self { mut history, mut questions, .. } = self;
        let Some(OfQuestion { mut windows, failures, .. }) = questions.pop() else { return history };
        let others = questions.iter().flat_map(|of| &of.windows);
        history.left_out += others.map(|window| window.windows).sum::<u64>();
        // If the clock was set back, later windows have earlier times.
        windows.sort_by_key(|window| window.start);
        KeyHistory { confidence: f64::max(1.0 - failures, 0.0), windows, ..history }
    }
}

/// The numbers of a key in a window, or in a few consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyWindow {
    /// The earliest start, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// The end of the last of these windows.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// The sum of their lengths, in seconds. `null` if they have no rates.
    pub seconds: Length,
    /// How many these are.
    pub windows: u64,
    /// How many of them have the key in their list. Windows that are kept five minutes at a time have it all, or none.
    pub listed: u64,
    /// The packets of the key. The value is the sum of the windows that list the key, and the bounds are those of all
    /// windows. Absent if none lists it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Estimate>,
    /// The bytes of the key on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Estimate>,
    /// The most that the key can have had, listed or not.
    pub at_most: Tally,
}

impl KeyWindow {
    /// Takes the numbers of a key in these windows from a list.
    pub fn new(past: &PastWindow, seconds: Length, of: &KeySums) -> Self {
        let PastWindow { start, end, windows, .. } = *past;
        let KeySums { sums, at_most, .. } = *of;
        let listed = if sums.is_some() { windows } else { 0 };
        let (packets, bytes) = (sums.map(|sums: Sums| sums.packets), sums.map(|sums| sums.bytes));
        Self { start, end, seconds, windows, listed, packets, bytes, at_most }
    }

    /// Adds the windows that follow.
    pub fn add(&mut self, next: &Self) {
        (self.start, self.end) = (self.start.min(next.start), self.end.max(next.end));
        self.seconds = [self.seconds, next.seconds].into_iter().sum();
        self.windows += next.windows;
        self.listed += next.listed;
        let Tally { packets, bytes } = self.at_most;
        self.packets = joined([self.packets, next.packets], [packets, next.at_most.packets]);
        self.bytes = joined([self.bytes, next.bytes], [bytes, next.at_most.bytes]);
        self.at_most = Tally {
            packets: packets.saturating_add(next.at_most.packets),
            bytes: bytes.saturating_add(next.at_most.bytes),
        };
    }
}

/// Adds two numbers. A number that is unknown is at most as in `at_most`.
fn joined(of: [Option<Estimate>; 2], at_most: [u64; 2]) -> Option<Estimate> {
    of.iter().any(Option::is_some).then(|| {
        let mut sum = Estimate::default();
        for (one, at_most) in of.into_iter().zip(at_most) {
            let one = one.unwrap_or(Estimate { upper: at_most, ..Estimate::default() });
            sum.value = sum.value.saturating_add(one.value);
            sum.lower = sum.lower.saturating_add(one.lower);
            sum.upper = sum.upper.saturating_add(one.upper);
        }
        sum
    })
}
