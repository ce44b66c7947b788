//! Times in reports.

use jiff::Timestamp;
use serde::Serializer;

/// Writes a time with always six digits after the second. Readers that infer the format of a column from its first
/// value (pandas) reject a later value in another format, and with a fixed length the order of texts is the order of
/// time. Six digits are what most databases keep.
pub(super) fn fixed<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}
