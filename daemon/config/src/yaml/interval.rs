//! Intervals: windows and exports begin at multiples of them since midnight.

use std::time::Duration;

use super::{
    limits::{DAY_SECONDS, INTERVAL},
    section::Field,
    units::show_duration,
};

/// Reads the interval. Windows start at multiples of it since midnight (UTC), so that all routers have the same
/// windows.
pub(super) fn interval(field: &Field<'_>) -> Option<Duration> {
    let interval = field.duration(INTERVAL)?;
    let seconds = interval.as_secs();
    let divides = |seconds: &u64| DAY_SECONDS.is_multiple_of(*seconds);
    if interval.subsec_nanos() != 0 {
        field.refuse(format!("{} is not a whole number of seconds", show_duration(&interval)));
    } else if !divides(&seconds) {
        // Such values exist: 1 second and 1 hour, the ends of the range, both divide a day.
        let below = (1..seconds).rev().find(divides).unwrap_or(INTERVAL.start().as_secs());
        let above = (seconds..).find(divides).unwrap_or(INTERVAL.end().as_secs());
        let [tried, below, above] = [seconds, below, above].map(|s| show_duration(&Duration::from_secs(s)));
        field.refuse(format!("{tried} does not divide a day into equal windows, try {below} or {above}"));
    } else {
        return Some(interval);
    }
    None
}
