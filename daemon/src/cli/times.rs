//! Times and lengths of time as they are typed.

use std::time::Duration;

use jiff::{SignedDuration, Span, Timestamp, civil, tz::TimeZone};

/// The end of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndTime {
    /// This time.
    At(Timestamp),
    /// This time of the day on which the time begins, or of the next day if that is before its start.
    OfDay(civil::Time),
}

/// An earlier time that a time is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// So much earlier.
    By(Duration),
    /// From this time on.
    From(Timestamp),
}

impl EndTime {
    /// The end of a time that begins at `start`, or of one that begins today.
    pub fn after(self, start: Option<Timestamp>, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::OfDay(time) => {
                let on = |day: civil::Date| day.to_datetime(time).to_zoned(TimeZone::UTC).map(|time| time.timestamp());
                let day = start.unwrap_or(now).to_zoned(TimeZone::UTC).date();
                let end = on(day).unwrap_or(now);
                let next = || day.checked_add(Span::new().days(1)).and_then(on).unwrap_or(end);
                if start.is_some_and(|start| end <= start) { next() } else { end }
            }
        }
    }
}

impl Earlier {
    /// The start of the earlier time, if the later one is from `from` to `to`. `None` if that is before all times.
    pub fn start(earlier: Option<Self>, from: Timestamp, to: Timestamp) -> Option<Timestamp> {
        match earlier {
            None => from.checked_sub(to.duration_since(from)).ok(),
            Some(Self::By(by)) => from.checked_sub(SignedDuration::try_from(by).ok()?).ok(),
            Some(Self::From(start)) => Some(start),
        }
    }
}

/// A length of time until now.
pub(super) fn length(text: &str) -> Result<Duration, String> {
    let length = weir_config::parse_duration(text).filter(|length| !length.is_zero());
    length.ok_or_else(|| "expected a length such as 20m, 3h or 7d".to_owned())
}

/// A time in UTC, of today if it has no date, or with an offset.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let now = weir_system::clock::now().wall;
    end(text).map(|end| end.after(None, now))
}

/// The end of a time: as its start, but without a date it is of the day of the start.
pub(super) fn end(text: &str) -> Result<EndTime, String> {
    let with_offset = text.parse::<Timestamp>().ok();
    let with_date = || Some(text.parse::<civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    let of_day = || text.parse::<civil::Time>().ok().map(EndTime::OfDay);
    with_offset.or_else(with_date).map(EndTime::At).or_else(of_day).ok_or_else(|| {
        "expected a time such as 14:30, 2026-11-26 14:30 (both in UTC) or 2026-11-26T14:30:00+01:00".to_owned()
    })
}

/// The time that a time is compared with.
pub(super) fn earlier(text: &str) -> Result<Earlier, String> {
    let by = length(text).map(Earlier::By);
    by.or_else(|_| time(text).map(Earlier::From)).map_err(|why| format!("{why}; or a length such as 7d"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn times_are_in_utc_or_have_an_offset() {
        let read = |text: &str| time(text).map(|time| time.to_string());
        assert_eq!(read("2026-11-26 14:30").unwrap(), "2026-11-26T14:30:00Z");
        assert_eq!(read("2026-11-26T14:30:05").unwrap(), "2026-11-26T14:30:05Z");
        assert_eq!(read("2026-11-26T14:30:00+01:00").unwrap(), "2026-11-26T13:30:00Z");
        assert!(read("14:30").unwrap().ends_with("T14:30:00Z"), "today");
        assert!(read("yesterday").unwrap_err().contains("such as 14:30"));
        assert_eq!((length("20m"), length("0s").is_err()), (Ok(Duration::from_secs(1200)), true));
        assert_eq!(length("7d"), Ok(Duration::from_secs(604_800)));
    }

    #[test]
    fn an_end_without_a_date_is_of_the_day_of_the_start() {
        let now = at("2026-11-28T09:00:00Z");
        let of = |text: &str, start: Option<&str>| end(text).unwrap().after(start.map(at), now).to_string();
        assert_eq!(of("15:00", Some("2026-11-24T14:00:00Z")), "2026-11-24T15:00:00Z");
        assert_eq!(of("01:00", Some("2026-11-24T23:00:00Z")), "2026-11-25T01:00:00Z", "over midnight");
        assert_eq!(of("15:00", None), "2026-11-28T15:00:00Z");
        assert_eq!(of("2026-11-26 15:00", Some("2026-11-24T14:00:00Z")), "2026-11-26T15:00:00Z");
    }

    #[test]
    fn an_earlier_time_is_just_before_or_as_was_asked() {
        let start = |text: Option<&str>| {
            let asked = text.map(|text| earlier(text).unwrap());
            Earlier::start(asked, at("2026-11-24T14:00:00Z"), at("2026-11-24T15:00:00Z")).map(|time| time.to_string())
        };
        assert_eq!(start(None).unwrap(), "2026-11-24T13:00:00Z");
        assert_eq!(start(Some("7d")).unwrap(), "2026-11-17T14:00:00Z");
        assert_eq!(start(Some("2026-11-20 08:00")).unwrap(), "2026-11-20T08:00:00Z");
        assert_eq!(start(Some("9999999d")), None);
        assert!(earlier("last week").unwrap_err().ends_with("or a length such as 7d"));
    }
}
