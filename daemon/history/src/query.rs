//! Queries about the past, and their answers as JSON.

use std::sync::Mutex;

use jiff::Timestamp;
use serde::Serialize;
use weir_schema::{Changes, NO_WINDOW, listing::summable_list};

use crate::{
    answer::{self, POINTS, POINTS_MAX},
    asked_flows::{asked_flows, why_none},
    find,
    of_key::{self, OfKey},
    seconds::{Seconds, lock},
    time::Time,
    windows::Windows,
};

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
    /// What the windows of this time have of these keys.
    Find(Vec<String>, Time),
    /// What has changed in a list since an earlier time.
    Changes(Compared),
    /// What the flow records of this time have of a question, and the fields of its rows.
    Flows(String, Vec<String>, Time),
}

/// Two times of a list that are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The name of the list.
    pub list: String,
    /// `bytes` or `packets`.
    pub by: String,
    /// The start and the end of the later time.
    pub now: (Timestamp, Timestamp),
    /// The start of the earlier time, which is as long.
    pub before: Timestamp,
}

impl Compared {
    fn answer(&self, windows: &Windows) -> Answer {
        let Self { list, by, now: (from, to), before } = self;
        let by_packets = match by.as_str() {
            "bytes" => false,
            "packets" => true,
            _ => return Err(format!("by: {by:?} is no order: take bytes or packets")),
        };
        let (list, now) = (summable_list(list)?, Time { from: Some(*from), to: Some(*to) });
        check(&now)?;
        let end = before.checked_add(to.duration_since(*from)).map_err(|error| error.to_string())?;
        let earlier = Time { from: Some(*before), to: Some(end) };
        let union = |time: &Time| windows.span(time).ok_or_else(|| nothing(windows));
        let of_earlier =
            union(&earlier).map_err(|why| format!("{before:.0} to {end:.0}, with which it is compared: {why}"))?;
        json(&Changes::of(&of_earlier, &union(&now)?, list, by_packets)?)
    }
}

/// The answer as JSON, or why there is none.
pub type Answer = Result<String, String>;

impl Query {
    /// The answer of these windows and seconds.
    pub fn answer(&self, windows: &Windows, seconds: &Mutex<Seconds>) -> Answer {
        match self {
            Self::History(time, points) => {
                check(time)?;
                let points = points.unwrap_or(POINTS);
                if !(1..=POINTS_MAX).contains(&points) {
                    return Err(format!("{points} points: ask for 1 to {POINTS_MAX}"));
                }
                // The coordinator also needs the seconds, so release the lock before encoding the answer as JSON.
                let history = answer::history(&lock(seconds), windows, time, points);
                json(&history)
            }
            Self::Span(time) => {
                check(time)?;
                span(windows, time)
            }
            Self::Last(count, to) => span_of(windows, windows.last((*count).into(), *to)),
            Self::First(count, from) => span_of(windows, windows.first((*count).into(), *from)),
            Self::OfKey(of, time, points) => {
                check(time)?;
                let points = points.unwrap_or(of_key::POINTS);
                if !(1..=of_key::POINTS_MAX).contains(&points) {
                    return Err(format!("{points} points of a key: ask for 1 to {}", of_key::POINTS_MAX));
                }
                json(&of_key::of_key(windows, time, of, points)?)
            }
            Self::Find(keys, time) => {
                check(time)?;
                json(&find::find(windows, time, keys)?.ok_or_else(|| nothing(windows))?)
            }
            Self::Changes(compared) => compared.answer(windows),
            Self::Flows(question, by, time) => {
                check(time)?;
                let answer = asked_flows(windows, time, question, by)?;
                json(&answer.ok_or_else(|| why_none(windows, time, question, by))?)
            }
        }
    }
}

fn span_of(windows: &Windows, time: Option<Time>) -> Answer {
    span(windows, &time.ok_or_else(|| nothing(windows))?)
}

fn span(windows: &Windows, time: &Time) -> Answer {
    json(&windows.span(time).ok_or_else(|| nothing(windows))?)
}

fn nothing(windows: &Windows) -> String {
    match windows.oldest().zip(windows.newest()) {
        None => NO_WINDOW.to_owned(),
        Some((from, to)) => {
            format!("there is no data for this time: the history has windows from {from:.0} to {to:.0}")
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
