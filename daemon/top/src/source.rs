//! The source of the numbers.

use jiff::Timestamp;
use weir_schema::{KeyHistory, Length, Live, NameOf, Report, Row, Second};

use crate::{
    fleet::Fleet,
    past::{Look, Past},
};

/// The answer about a key.
#[derive(Clone, Debug)]
pub struct KeyDetails {
    /// The key, as `weir ask` takes it.
    pub key: String,
    /// The rows of all views that have such a key, or why there are none.
    pub rows: Result<Vec<Row>, String>,
    /// The length of their window so far.
    pub seconds: Length,
}

/// An update from the source.
#[derive(Clone, Debug)]
pub enum Update {
    /// A second is over.
    Second(Second),
    /// There is a newer report.
    Report(Box<Report>),
    /// The lists of the open window were read.
    Live(Box<Live>),
    /// The answer to [`Request::Key`].
    KeyDetails(KeyDetails),
    /// The answer to [`Request::Past`], or why there is none.
    Past(Look, Result<Box<Past>, String>),
    /// The answer to [`Request::PastOfKey`] for this key, or why there is none.
    PastOfKey(String, Result<Box<KeyHistory>, String>),
    /// The names of hosts that weir knows.
    Names(Vec<NameOf>),
    /// The newest window of a fleet, instead of seconds and reports.
    Fleet(Box<Fleet>),
    /// A problem that is shown until the next update, such as a lost connection.
    Trouble(String),
    /// The source has ended, for this reason.
    Ended(String),
}

/// A request to a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Ask for everything about a key.
    Key {
        /// The key, as `weir ask` takes it.
        key: String,
        /// True to ask about the open window so far, false for the last one.
        is_open: bool,
    },
    /// The history of all keys in a time.
    Past(Look),
    /// The history of one key.
    PastOfKey {
        /// The key, as the history reads it.
        key: String,
        /// The view whose list it is in; `None` for a standard list.
        view: Option<String>,
        /// The end of the hour; now if it is `None`.
        to: Option<Timestamp>,
    },
}

/// A running weir, a replayed capture, or a fleet. No method blocks: slow work is done on another thread.
pub trait Source {
    /// The next update that has arrived, if any.
    fn next(&mut self) -> Option<Update>;

    /// Asks. The answer comes as an update.
    fn ask(&mut self, request: Request);

    /// Returns true if it can answer questions about keys that no list has ([`Request::Key`]).
    fn knows_keys(&self) -> bool;

    /// The time of the numbers: now, or the time within a capture.
    fn now(&self) -> Timestamp;

    /// The kind of source in a word or two: `live`, `replay 10x`.
    fn kind(&self) -> String;
}
