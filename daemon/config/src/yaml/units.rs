//! Durations (`10s`, `1h 30m`, `100ms`) and sizes (`1MiB`, `64KiB`) as people write them.

use std::time::Duration;

use jiff::{
    SpanRelativeTo,
    fmt::friendly::{SpanParser, SpanPrinter},
};
use serde::Serializer;

use super::NONE;

/// Units of size, the largest first.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Parses a duration with units. A day has 24 hours. `None` if it is malformed, negative or too large.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let span = SpanParser::new().parse_span(text).ok()?;
    // Years and months have no fixed length, and the largest unit of the configuration is the day.
    if (span.get_years(), span.get_months(), span.get_weeks()) != (0, 0, 0) {
        return None;
    }
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

/// A duration in the form that [`parse_duration`] accepts, exact to the nanosecond.
pub(super) fn show_duration(duration: &Duration) -> String {
    SpanPrinter::new().unsigned_duration_to_string(duration)
}

/// Parses a size in bytes, an integer with a binary unit. `None` if it is malformed or too large.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text[digits.len()..].trim_start();
    let (_, bytes) = SIZES.iter().find(|(name, _)| *name == unit)?;
    digits.parse::<u64>().ok()?.checked_mul(*bytes)
}

/// A size in the largest unit that represents it exactly; 0 in bytes.
pub(super) fn show_bytes(bytes: u64) -> String {
    let (name, unit) =
        SIZES.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit)).unwrap_or(&SIZES[3]);
    format!("{}{name}", bytes / unit)
}

/// For `#[serde(serialize_with)]`: a duration as text.
pub(super) fn write_duration<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show_duration(duration))
}

/// For `#[serde(serialize_with)]`: a duration as text, or `none`.
pub(super) fn write_duration_or_none<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => write_duration(duration, serializer),
        None => serializer.serialize_str(NONE),
    }
}

/// For `#[serde(serialize_with)]`: a size as text.
pub(super) fn write_bytes<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&show_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let cases = [
            ("10s", 10_000),
            ("5m", 300_000),
            ("100ms", 100),
            ("24h", 86_400_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("10 seconds", 10_000),
            ("7d", 604_800_000),
            ("1d 12h", 129_600_000),
            ("30 days", 2_592_000_000),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in
            ["", "10", "s", "-5s", "5M", "1y", "1mo", "1w", "-1d", "10s ago", "ten seconds", "99999999999999999999h"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        for ms in [0, 1, 100, 1_000, 10_000, 61_001, 300_000, 86_400_000] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse_duration(&show_duration(&duration)), Some(duration));
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("0B", 0), ("512B", 512), ("64KiB", 65_536), ("1MiB", 1 << 20), ("1 MiB", 1 << 20), ("2GiB", 2 << 30)]
        {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "1", "MiB", "1MB", "1mib", "-1MiB", "1.5MiB", "1MiB2", "99999999999GiB", "1éB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
        for (bytes, text) in [(0, "0B"), (1000, "1000B"), (65_536, "64KiB"), (1 << 20, "1MiB"), (3 << 30, "3GiB")] {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
