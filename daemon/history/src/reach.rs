//! Estimates how far back a history will reach.

use std::{fmt, time::Duration};

use crate::windows::{SECONDS_OF_MANY, share_of_many};

/// Bytes of a window with the usual lists, of one interface in one direction. The usual size is for traffic that has
/// the same talkers for some minutes, the worst for windows that share no rows.
const USUAL_BYTES: u64 = 750;
pub(crate) const WORST_BYTES: u64 = 4800;
/// The same for a union of five minutes.
const USUAL_BYTES_OF_MANY: u64 = 1200;
pub(crate) const WORST_BYTES_OF_MANY: u64 = 6300;
/// Bytes written to disk for a window: first in a minute, later in a block.
const USUAL_BYTES_WRITTEN: u64 = 1100 + USUAL_BYTES;
/// Bytes written to disk for the seconds of a day.
const SECONDS_WRITTEN: u64 = 2 << 20;

/// How far back a history of this many bytes reaches, with windows of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Windows one by one: usually, and at least.
    pub single: [Duration; 2],
    /// Windows five minutes at a time.
    pub many: [Duration; 2],
    /// Bytes that are usually written to disk in a day.
    pub written: u64,
}

impl Reach {
    /// The reach of this many bytes with windows of this length.
    pub fn new(memory: u64, interval: Duration) -> Self {
        let many = share_of_many(memory);
        let reach =
            |bytes: u64, of_each: u64, each: Duration| each * u32::try_from(bytes / of_each).unwrap_or(u32::MAX);
        let long = interval.max(Duration::from_secs(SECONDS_OF_MANY.unsigned_abs()));
        let windows_of_a_day = 86_400 / interval.as_secs().max(1);
        Self {
            single: [USUAL_BYTES, WORST_BYTES].map(|bytes| reach(memory - many, bytes, interval)),
            many: [USUAL_BYTES_OF_MANY, WORST_BYTES_OF_MANY].map(|bytes| reach(many, bytes, long)),
            written: windows_of_a_day * USUAL_BYTES_WRITTEN + SECONDS_WRITTEN,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { single, many, written } = self;
        let hours = |[usual, least]: &[Duration; 2]| {
            let [usual, least] = [usual, least].map(|time| time.as_secs_f64() / 3600.0);
            format!("usually {usual:.1} hours back, {least:.1} at least")
        };
        writeln!(f, "  seconds of each interface     1.0 hour back")?;
        writeln!(f, "  windows one by one            {}", hours(single))?;
        writeln!(f, "  windows five minutes at once  {}", hours(many))?;
        writeln!(f, "  written to the state directory, if there is one: usually {} MiB a day", written >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_usual_windows_fits_the_default_memory() {
        let reach = Reach::new(4 << 20, Duration::from_secs(10));
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert!(reach.many[1] >= hours(24) && reach.many[0] >= hours(120), "{reach}");
        assert!(reach.single[1] >= hours(1) && reach.single[0] >= hours(7), "{reach}");
        let fast = Reach::new(4 << 20, Duration::from_secs(1));
        assert!(fast.many == reach.many && fast.single[0] < hours(1) && fast.written > reach.written);
        assert!(reach.to_string().contains("windows one by one"), "{reach}");
    }
}
