//! The source of the numbers.

use jiff::Timestamp;
use weir_report::{Live, Report, Row, Second};

/// The answer about a key.
#[derive(Clone, Debug)]
pub struct Known {
    /// The key, as `weir ask` takes it.
    pub key: String,
    /// The rows of all views that have such a key, or why there are none.
    pub rows: Result<Vec<Row>, String>,
    /// The length of their window so far, in seconds.
    pub seconds: f64,
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
    /// The answer to [`Source::ask`].
    Known(Known),
    /// A problem that is shown until the next update, such as a lost connection.
    Trouble(String),
    /// The source has ended, for this reason.
    Ended(String),
}

/// A running weir, or a replayed capture. No method blocks: slow work is done on another thread.
pub trait Source {
    /// The next update that has arrived, if any.
    fn next(&mut self) -> Option<Update>;

    /// Asks about a key in the open window so far, or in the last one. The answer comes as [`Update::Known`]. Returns
    /// whether this source can answer.
    fn ask(&mut self, key: &str, is_open: bool) -> bool;

    /// The time of the numbers: now, or the time within a capture.
    fn now(&self) -> Timestamp;

    /// The kind of source in a word or two: `live`, `replay 10x`.
    fn kind(&self) -> String;
}
