//! The time of a query.

use jiff::Timestamp;
use weir_schema::PastWindow;

/// The time of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Its start; `None` means as early as possible.
    pub from: Option<Timestamp>,
    /// Its end; `None` means as late as possible.
    pub to: Option<Timestamp>,
}

impl Time {
    /// Whether all of a time is within it.
    pub fn covers(&self, start: Timestamp, end: Timestamp) -> bool {
        self.from.is_none_or(|from| from <= start) && self.to.is_none_or(|to| end <= to)
    }

    /// Whether a time that is not empty touches it.
    pub fn overlaps(&self, start: Timestamp, end: Timestamp) -> bool {
        self.from.is_none_or(|from| from < end) && self.to.is_none_or(|to| start < to)
    }

    /// Whether a window touches it.
    pub fn is_touched(&self, past: &PastWindow) -> bool {
        self.overlaps(past.start, past.end)
    }
}
