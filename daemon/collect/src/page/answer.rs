//! Answers the questions of browsers from the database.

use std::{path::PathBuf, sync::Arc};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::Serialize;
use weir_page::{Refusal, query::Times};
use weir_system::{clock, text::with_causes};

use super::{
    super::{
        counters::Counters,
        store::{self, StoreError},
    },
    fleet::{self, Fleet},
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
    /// All observers.
    Fleet,
    /// The last report.
    Report,
    /// The last few, as a list.
    Reports(usize),
    /// The traffic of each interface in this many equal steps.
    History(Times, usize),
    /// All windows of a time together.
    Span(Times),
}

/// Reads the database for browsers.
pub(super) struct Reader {
    database: PathBuf,
    counters: Arc<Counters>,
    started: Timestamp,
    /// The last answer about the fleet. It is valid until something new is stored.
    fleet: Option<(Newest, Fleet)>,
}

/// The last rows of the tables.
type Newest = (Option<i64>, Option<i64>);

impl Reader {
    pub(super) fn new(database: PathBuf, counters: Arc<Counters>) -> Self {
        Self { database, counters, started: clock::now().wall, fleet: None }
    }

    /// The answer as JSON.
    pub(super) fn answer(&mut self, Asked { observer, question }: Asked) -> Result<Vec<u8>, Refusal> {
        let unreadable = |error: StoreError| Refusal::Unavailable(with_causes(&error));
        let connection = store::look(&self.database).map_err(unreadable)?;
        let says = |cause| unreadable(StoreError::Sqlite { path: self.database.clone(), cause });
        let Some(observer) = observer else { return self.fleet(connection) };
        match question {
            Question::Fleet => self.fleet(connection),
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
                written(&past::history(&read, times, points))
            }
            Question::Span(times) => {
                let read = past::span(&connection, &observer, times).map_err(says)?;
                written(&read.map_err(Refusal::Refused)?)
            }
        }
    }

    fn fleet(&mut self, mut connection: Connection) -> Result<Vec<u8>, Refusal> {
        let says = |cause| StoreError::Sqlite { path: self.database.clone(), cause };
        let unreadable = |cause| Refusal::Unavailable(with_causes(&says(cause)));
        let transaction = connection.transaction().map_err(unreadable)?;
        let newest = "SELECT (SELECT max(number) FROM reports), (SELECT max(number) FROM tombstones)";
        let newest: Newest =
            transaction.query_row(newest, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(unreadable)?;
        let known = self.fleet.take().filter(|(known, _)| *known == newest);
        let (_, fleet) = match known {
            Some(known) => self.fleet.insert(known),
            None => self.fleet.insert((newest, fleet::read(&transaction).map_err(unreadable)?)),
        };
        written(&fleet.at(clock::now().wall, self.started, self.counters.read()))
    }
}

/// The last reports of an observer, the oldest first.
fn last(connection: &Connection, observer: &str, count: usize) -> rusqlite::Result<Vec<String>> {
    let mut sql = connection.prepare(
        "SELECT report FROM reports WHERE observer_id = ?1 ORDER BY window_start DESC, number DESC LIMIT ?2",
    )?;
    let rows = sql.query_map(params![observer, i64::try_from(count).unwrap_or(i64::MAX)], |row| row.get(0))?;
    let mut reports: Vec<String> = rows.collect::<Result<_, _>>()?;
    reports.reverse();
    Ok(reports)
}

fn nothing(observer: &str) -> Refusal {
    Refusal::Unavailable(format!("no report of {observer} is stored"))
}

fn written(answer: &impl Serialize) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(answer).map_err(|error| Refusal::Unavailable(error.to_string()))
}
