//! Answers the questions of browsers from the database.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::Serialize;
use weir_page::{Refusal, query::Times};
use weir_system::{
    clock,
    text::{short, with_causes},
};

use super::{
    super::{
        counters::Counters,
        query::LAST_WINDOWS,
        store::{self, StoreError},
    },
    fleet::Fleet,
    past,
};

/// A question about the fleet or one observer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) observer: Option<String>,
    pub(super) question: Question,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// All observers; or one of them, in short.
    Now,
    /// The last report of an observer.
    Report,
    /// The last few, as a list.
    Reports(usize),
    /// The traffic of each interface in this many equal steps.
    History(Times, usize),
    /// A key of a list over time, perhaps of a view's list, in about this many steps.
    OfKey { key: String, view: Option<String>, times: Times, points: usize },
    /// All windows of a time together.
    Span(Times),
}

/// Reads the database for browsers.
pub(super) struct Reader {
    database: PathBuf,
    counters: Arc<Counters>,
    started: Timestamp,
    /// The fleet as it was for the last answer.
    fleet: Fleet,
}

impl Reader {
    pub(super) fn new(database: PathBuf, counters: Arc<Counters>) -> Self {
        Self { database, counters, started: clock::now().wall, fleet: Fleet::default() }
    }

    /// The answer as JSON.
    pub(super) fn answer(&mut self, Asked { observer, question }: Asked) -> Result<Vec<u8>, Refusal> {
        let Self { database, counters, started, fleet } = self;
        let unreadable = |error: StoreError| Refusal::Unavailable(with_causes(&error));
        let connection = store::look(database).map_err(unreadable)?;
        let says = |cause| unreadable(StoreError::Sqlite { path: database.clone(), cause });
        // All that is read about the fleet is of the same moment.
        let transaction = connection.unchecked_transaction().map_err(says)?;
        fleet.update(&transaction).map_err(says)?;
        let now = clock::now().wall;
        let Some(observer) = observer else { return written(&fleet.at(now, *started, counters.read())) };
        let Some(one) = fleet.one(&observer, now) else { return Err(unknown(&observer)) };
        match question {
            Question::Now => written(&one),
            Question::Report => {
                let mut reports = last(&connection, &observer, 1).map_err(says)?;
                reports.pop().map(String::into_bytes).ok_or_else(|| nothing(&observer))
            }
            Question::Reports(count) => {
                let reports = last(&connection, &observer, count).map_err(says)?;
                if reports.is_empty() {
                    return Err(nothing(&observer));
                }
                Ok(format!("[{}]", reports.join(",")).into_bytes())
            }
            Question::History(times, points) => {
                let read = past::windows(&connection, &observer, times).map_err(says)?;
                written(&past::history(&read.map_err(Refusal::Refused)?, times, points))
            }
            Question::OfKey { key, view, times, points } => {
                let read =
                    past::of_key(&connection, &observer, (&key, view.as_deref()), times, points).map_err(says)?;
                written(&read.map_err(Refusal::Refused)?)
            }
            Question::Span(times) => {
                let read = past::span(&connection, &observer, times).map_err(says)?;
                written(&read.map_err(Refusal::Refused)?)
            }
        }
    }
}

/// The last reports of an observer, the oldest first.
fn last(connection: &Connection, observer: &str, count: usize) -> rusqlite::Result<Vec<String>> {
    let mut sql = connection
        .prepare(&format!("SELECT report FROM reports WHERE number IN {LAST_WINDOWS} ORDER BY window_start, number"))?;
    let rows = sql.query_map(params![observer, i64::try_from(count).unwrap_or(i64::MAX)], |row| row.get(0))?;
    rows.collect()
}

fn unknown(observer: &str) -> Refusal {
    let observer = short(observer);
    Refusal::Unknown(format!(
        "no router {observer:?} reports to this collector: the page of all routers lists those that do"
    ))
}

fn nothing(observer: &str) -> Refusal {
    Refusal::Unavailable(format!("no report of {observer} is stored"))
}

fn written(answer: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(answer).map_err(|error| Refusal::Unavailable(error.to_string()))
}
