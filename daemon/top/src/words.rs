//! Times, durations and bounds in words.

use jiff::{SignedDuration, Timestamp};
use weir_schema::Estimate;

/// Says where the history begins.
pub fn beginning(began: Timestamp, now: Timestamp) -> String {
    format!("history begins {}{} UTC", date(began, now), time(began))
}

/// The time of day.
pub fn time(time: Timestamp) -> String {
    time.strftime("%H:%M:%S").to_string()
}

/// The day of a time with a blank, unless it is the day of `now`.
pub fn date(time: Timestamp, now: Timestamp) -> String {
    if day(time) == day(now) { String::new() } else { day(time) }
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d ").to_string()
}

/// A duration in words, to the second.
pub fn lasting(duration: SignedDuration) -> String {
    let seconds = (duration.as_millis() + 500) / 1000;
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let parts: Vec<_> =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count} {unit}")).collect();
    if parts.is_empty() { "0 s".to_owned() } else { parts.join(" ") }
}

/// Formats both bounds, or the number if it is exact.
pub fn range(estimate: &Estimate, text: impl Fn(u64) -> String) -> String {
    let [lower, upper] = [text(estimate.lower), text(estimate.upper)];
    if lower == upper { lower } else { format!("{lower} to {upper}") }
}
