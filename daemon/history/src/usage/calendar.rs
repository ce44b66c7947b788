//! Hours, days and months in UTC. A month may begin on any day up to the 28th, as bills do.

use std::str::FromStr;

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};

const DAY_SECONDS: i64 = 86_400;
const HOUR_SECONDS: i64 = 3600;
/// The most periods of an answer: the hours of a month.
const PERIODS_MAX: u32 = 744;

/// The length of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A month, which begins on the day of the configuration.
    Month,
}

impl By {
    /// All of them, with their names.
    pub const ALL: [(&str, Self); 3] = [("hour", Self::Hour), ("day", Self::Day), ("month", Self::Month)];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// How many periods an answer has unless it is asked for another number.
    pub const fn usual(self) -> u32 {
        match self {
            Self::Hour => 24,
            Self::Day => 31,
            Self::Month => 13,
        }
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|(name, _)| *name == text);
        known.map(|(_, by)| by).ok_or_else(|| format!("{text:?} is no period: there are hour, day and month"))
    }
}

/// A period, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    /// Its first second.
    pub start: i64,
    /// The first second after it.
    pub end: i64,
}

impl Period {
    /// The period that has this second. Months begin on this day.
    pub fn of(second: i64, by: By, first_day: u8) -> Self {
        match by {
            By::Hour => Self::aligned(second, HOUR_SECONDS),
            By::Day => Self::aligned(second, DAY_SECONDS),
            By::Month => {
                let date = date(second);
                let begun = date.day() >= first_day.cast_signed();
                let month = if begun { date.first_of_month() } else { date.saturating_sub(1.month()).first_of_month() };
                let on_day = |month: Date| seconds(month.saturating_add((i64::from(first_day) - 1).days()));
                Self { start: on_day(month), end: on_day(month.saturating_add(1.month())) }
            }
        }
    }

    fn aligned(second: i64, length: i64) -> Self {
        let start = second.div_euclid(length) * length;
        Self { start, end: start + length }
    }

    /// The periods that a query asks for: so many, or as many as are usual, up to the one that `end` ends, or is in.
    ///
    /// # Errors
    ///
    /// They are none, or too many.
    pub fn asked(count: Option<u32>, end: Timestamp, by: By, first_day: u8) -> Result<Vec<Self>, String> {
        let count = count.unwrap_or(by.usual());
        if !(1..=PERIODS_MAX).contains(&count) {
            return Err(format!("{count} periods: ask for 1 to {PERIODS_MAX}, and for earlier ones with an end"));
        }
        Ok(Self::last(count, last_second(end), by, first_day))
    }

    /// The last periods up to the one that has this second, the oldest first.
    pub fn last(count: u32, second: i64, by: By, first_day: u8) -> Vec<Self> {
        let mut periods = vec![Self::of(second, by, first_day)];
        while periods.len() < count as usize {
            let Some(first) = periods.last().filter(|first| first.start > 0) else { break };
            periods.push(Self::of(first.start - 1, by, first_day));
        }
        periods.reverse();
        periods
    }

    /// The calendar months that it is in.
    pub fn months(&self) -> impl Iterator<Item = String> {
        let last = date(self.end - 1).first_of_month();
        let mut next = Some(date(self.start).first_of_month());
        std::iter::from_fn(move || {
            let month = next.filter(|month| *month <= last)?;
            next = month.checked_add(1.month()).ok();
            Some(name(month))
        })
    }
}

/// The second before this end, in seconds since 1970: an end is the first instant after a time.
pub fn last_second(end: Timestamp) -> i64 {
    let last = (end.as_nanosecond() - 1).div_euclid(1_000_000_000);
    i64::try_from(last).unwrap_or(i64::MAX)
}

/// The calendar month of this hour since 1970, as in names of files: `2026-11`.
pub fn month_of_hour(hour: i64) -> String {
    name(date(hour.saturating_mul(HOUR_SECONDS)).first_of_month())
}

fn name(month: Date) -> String {
    format!("{:04}-{:02}", month.year(), month.month())
}

fn date(second: i64) -> Date {
    Timestamp::from_second(second).unwrap_or_default().to_zoned(TimeZone::UTC).date()
}

fn seconds(date: Date) -> i64 {
    date.to_zoned(TimeZone::UTC).map_or(0, |midnight| midnight.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    #[test]
    fn months_have_their_days_and_begin_when_a_bill_does() {
        let month = |now: &str, day| {
            let Period { start, end } = Period::of(at(now), By::Month, day);
            [start, end].map(|second| date(second).to_string())
        };
        assert_eq!(month("2026-02-28T23:59:59Z", 1), ["2026-02-01", "2026-03-01"]);
        assert_eq!(month("2028-02-29T12:00:00Z", 1), ["2028-02-01", "2028-03-01"]);
        assert_eq!(month("2026-03-01T00:00:00Z", 28), ["2026-02-28", "2026-03-28"]);
        assert_eq!(month("2026-03-28T00:00:00Z", 28), ["2026-03-28", "2026-04-28"]);
        assert_eq!(month("2026-01-14T23:59:59Z", 15), ["2025-12-15", "2026-01-15"]);
    }

    #[test]
    fn the_last_periods_follow_each_other() {
        for (by, count) in [(By::Hour, 24), (By::Day, 31), (By::Month, 13)] {
            for day in [1, 15, 28] {
                let periods = Period::last(count, at("2026-03-01T00:00:00Z"), by, day);
                assert_eq!(periods.len(), count as usize);
                assert!(periods.windows(2).all(|pair| pair[0].end == pair[1].start), "{periods:?}");
                assert!(periods.last().is_some_and(|last| last.end > at("2026-03-01T00:00:00Z")));
            }
        }
        assert_eq!(Period::last(100, 7200, By::Hour, 1).len(), 3, "there is nothing before 1970");
    }

    #[test]
    fn a_period_is_in_one_or_two_calendar_months() {
        let months = |now: &str, by, day| Period::of(at(now), by, day).months().collect::<Vec<_>>();
        assert_eq!(months("2026-12-31T23:10:00Z", By::Hour, 1), ["2026-12"]);
        assert_eq!(months("2026-12-31T23:10:00Z", By::Month, 1), ["2026-12"]);
        assert_eq!(months("2026-12-31T23:10:00Z", By::Month, 15), ["2026-12", "2027-01"]);
        assert_eq!(month_of_hour(at("2026-12-31T23:00:00Z") / 3600), "2026-12");
    }
}
