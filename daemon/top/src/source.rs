//! Where the numbers come from.

use jiff::Timestamp;
use weir_report::{Live, Report, Row, Second};

/// What is known of a key that was asked for.
#[derive(Clone, Debug)]
pub struct Known {
    /// The key, as `weir ask` takes it.
    pub key: String,
    /// The rows of all views that have such a key, or why there are none.
    pub rows: Result<Vec<Row>, String>,
    /// How long the window was that they are about, in seconds.
    pub seconds: f64,
}

/// What a source says.
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
    /// Something that the user has to know, until the next update: such as a lost connection.
    Trouble(String),
    /// Nothing will come any more, and why.
    Ended(String),
}

/// A running weir, or a capture that is replayed. Nothing here waits: what takes time, takes it on another thread.
pub trait Source {
    /// What has come, one at a time; `None` if nothing has.
    fn next(&mut self) -> Option<Update>;

    /// Asks for everything about a key: of the open window so far, or of the last one. The answer comes as
    /// [`Update::Known`]. Returns whether this source can be asked.
    fn ask(&mut self, key: &str, is_open: bool) -> bool;

    /// The time that the numbers are about: now, or the time within a capture.
    fn now(&self) -> Timestamp;

    /// What it is, in a word or two: `live`, `replay 10x`.
    fn kind(&self) -> String;
}
