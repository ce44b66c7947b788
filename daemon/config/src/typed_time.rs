//! Times as people type them on the command line and in `weir top`.

use jiff::{Span, Timestamp, civil, tz::TimeZone};

/// A time as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypedTime {
    /// This time.
    At(Timestamp),
    /// This time of a day, in UTC.
    OfDay(civil::Time),
}

impl TypedTime {
    /// Reads a time in UTC, with a date or without, or one with an offset.
    ///
    /// # Errors
    ///
    /// It is none; the error has examples.
    pub fn parse(text: &str) -> Result<Self, String> {
        let with_offset = text.parse::<Timestamp>().ok();
        let with_date = || Some(text.parse::<civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
        let of_day = || text.parse::<civil::Time>().ok().map(Self::OfDay);
        with_offset.or_else(with_date).map(Self::At).or_else(of_day).ok_or_else(|| {
            "expected a time such as 14:30, 2026-11-26 14:30 (both in UTC) or 2026-11-26T14:30:00+01:00".to_owned()
        })
    }

    /// The time; without a date it is of the day of `now`.
    pub fn today(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::OfDay(time) => on(now.to_zoned(TimeZone::UTC).date(), time).unwrap_or(now),
        }
    }

    /// The first such time after another one, such as the end of a span after its start. One with a date stays as it
    /// is.
    pub fn after(self, start: Timestamp) -> Timestamp {
        let end = self.today(start);
        let Self::OfDay(time) = self else { return end };
        let next = || start.to_zoned(TimeZone::UTC).date().checked_add(Span::new().days(1)).ok();
        if end <= start { next().and_then(|day| on(day, time)).unwrap_or(end) } else { end }
    }
}

fn on(day: civil::Date, time: civil::Time) -> Option<Timestamp> {
    Some(day.to_datetime(time).to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_in_utc_or_have_an_offset() {
        let now = at("2026-11-28T09:00:00Z");
        let read = |text: &str| TypedTime::parse(text).map(|time| time.today(now).to_string());
        assert_eq!(read("2026-11-26 14:30").unwrap(), "2026-11-26T14:30:00Z");
        assert_eq!(read("2026-11-26T14:30:05").unwrap(), "2026-11-26T14:30:05Z");
        assert_eq!(read("2026-11-26T14:30:00+01:00").unwrap(), "2026-11-26T13:30:00Z");
        assert_eq!(read("14:30").unwrap(), "2026-11-28T14:30:00Z");
        assert!(read("yesterday").unwrap_err().contains("such as 14:30"));
    }

    #[test]
    fn an_end_without_a_date_is_of_the_day_of_the_start() {
        let end = |text: &str, start: &str| TypedTime::parse(text).unwrap().after(at(start)).to_string();
        assert_eq!(end("15:00", "2026-11-24T14:00:00Z"), "2026-11-24T15:00:00Z");
        assert_eq!(end("01:00", "2026-11-24T23:00:00Z"), "2026-11-25T01:00:00Z", "over midnight");
        assert_eq!(end("2026-11-26 15:00", "2026-11-24T14:00:00Z"), "2026-11-26T15:00:00Z");
    }
}
