//! Times in reports.

use jiff::Timestamp;
use serde::Serializer;

/// A time with six digits after the second, whatever they are. Readers that guess the form of a column from its first
/// value (pandas) refuse the next one if it has another, and texts are in the order of time. Six digits are what most
/// databases keep.
pub(super) fn fixed<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}
