//! Writes the times in reports in a form that other programs can read and sort as text.

use jiff::Timestamp;
use serde::Serializer;

/// Writes a time, always with six digits after the second. Some readers, such as pandas, infer the format of a column
/// from its first value and reject later values in another format. With a fixed length, texts also sort by time. Most
/// databases keep six digits.
pub(super) fn fixed<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{time:.6}"))
}
