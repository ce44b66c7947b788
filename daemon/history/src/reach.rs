//! Estimates how far back a history will reach.

use std::{fmt, time::Duration};

use weir_config::History;

use crate::windows::{
    SECONDS_OF_FIVES, SECONDS_OF_HOURS, share_of_fives, share_of_hours, share_of_samples, share_of_samples_on_disk,
    share_of_windows_on_disk,
};

/// Bytes of a window with the usual lists of 64 rows, of one interface in one direction. The usual size is for traffic
/// that has the same talkers for some minutes, the worst for windows that share no rows.
const USUAL_BYTES: u64 = 4500;
pub(crate) const WORST_BYTES: u64 = 41_500;
/// The same for a union of five minutes or of an hour.
const USUAL_BYTES_OF_UNION: u64 = 7000;
pub(crate) const WORST_BYTES_OF_UNION: u64 = 58_500;
/// Bytes written to disk for a window: first in a minute, later in a block.
const USUAL_BYTES_WRITTEN: u64 = 5500 + USUAL_BYTES;
/// Bytes of a record in the sample of a minute, in memory and on disk, and of a sample besides its records.
pub(crate) const BYTES_OF_RECORD: u64 = 12;
const BYTES_OF_SAMPLE: u64 = 600;
const MINUTES_OF_A_DAY: u64 = 1440;
/// Bytes written to disk for the seconds of a day.
const SECONDS_WRITTEN: u64 = 2 << 20;

/// How far back a history reaches, with windows of this length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Windows one by one in memory: usually, and at least.
    pub single: [Duration; 2],
    /// Windows five minutes at a time.
    pub fives: [Duration; 2],
    /// Windows an hour at a time.
    pub hours: [Duration; 2],
    /// Windows one by one on disk.
    pub on_disk: [Duration; 2],
    /// Samples of flow records on disk, a minute at a time; `None` if there are none.
    pub samples: Option<Duration>,
    /// Bytes that are usually written to disk in a day.
    pub written: u64,
}

impl Reach {
    /// The reach of a history with windows of this length.
    pub fn new(history: &History, interval: Duration) -> Self {
        let has_samples = history.sample > 0;
        let memory = history.memory - share_of_samples(history.memory, history.sample);
        let (fives, hours) = (share_of_fives(memory), share_of_hours(memory));
        let reach = |bytes: u64, of_each: u64, each: Duration| {
            Duration::try_from_secs_f64(each.as_secs_f64() * (bytes / of_each) as f64).unwrap_or(Duration::MAX)
        };
        let long = |seconds: i64| interval.max(Duration::from_secs(seconds.unsigned_abs()));
        let of_unions = |bytes, seconds| {
            [USUAL_BYTES_OF_UNION, WORST_BYTES_OF_UNION].map(|of_each| reach(bytes, of_each, long(seconds)))
        };
        let windows = [USUAL_BYTES, WORST_BYTES];
        let on_disk = share_of_windows_on_disk(history.max_size, has_samples);
        let windows_of_a_day = 86_400 / interval.as_secs().max(1);
        let sample = BYTES_OF_SAMPLE + history.sample as u64 * BYTES_OF_RECORD;
        let samples_of_a_day = if has_samples { MINUTES_OF_A_DAY.min(windows_of_a_day) } else { 0 };
        let samples = reach(share_of_samples_on_disk(history.max_size), sample, long(60));
        Self {
            single: windows.map(|bytes| reach(memory - fives - hours, bytes, interval)),
            fives: of_unions(fives, SECONDS_OF_FIVES),
            hours: of_unions(hours, SECONDS_OF_HOURS),
            on_disk: windows.map(|bytes| reach(on_disk, bytes, interval).min(history.max_age.unwrap_or(Duration::MAX))),
            samples: has_samples.then(|| samples.min(history.max_age.unwrap_or(Duration::MAX))),
            written: windows_of_a_day * USUAL_BYTES_WRITTEN + SECONDS_WRITTEN + samples_of_a_day * sample,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { single, fives, hours, on_disk, samples, written } = self;
        let back = |[usual, least]: &[Duration; 2]| {
            let [usual, least] = [usual, least].map(|time| time.as_secs_f64() / 3600.0);
            format!("usually {usual:.1} hours back, {least:.1} at least")
        };
        writeln!(f, "  seconds of each interface     1.0 hour back")?;
        writeln!(f, "  windows one by one            {}", back(single))?;
        writeln!(f, "  windows five minutes at once  {}", back(fives))?;
        writeln!(f, "  windows an hour at once       {}", back(hours))?;
        writeln!(f, "  on disk, windows one by one   {}", back(on_disk))?;
        if let Some(samples) = samples {
            let hours = samples.as_secs_f64() / 3600.0;
            writeln!(f, "  on disk, samples of records   usually {hours:.1} hours back a minute at a time")?;
        }
        writeln!(f, "  written to disk, if it is kept there: usually {} MiB a day", written >> 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_of_usual_windows_fit_the_default_memory_and_a_month_the_disk() {
        let reach = Reach::new(&History::default(), Duration::from_secs(10));
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert!(reach.hours[0] >= hours(64) && reach.fives[0] >= hours(16), "{reach}");
        assert!(reach.single[0] >= hours(1), "{reach}");
        assert!(reach.on_disk == [hours(720), reach.on_disk[1]] && reach.on_disk[1] >= hours(80), "{reach}");
        let fast = Reach::new(&History::default(), Duration::from_secs(1));
        assert!(fast.fives == reach.fives && fast.single[0] < hours(1) && fast.written > reach.written);
        assert!(reach.to_string().contains("windows one by one"), "{reach}");
        assert_eq!(reach.samples, Some(hours(720)), "{reach}");
        let without = Reach::new(&History { sample: 0, ..History::default() }, Duration::from_secs(10));
        assert!(without.samples.is_none() && without.single[0] > reach.single[0] && without.written < reach.written);
    }
}
