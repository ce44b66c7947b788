//! Times and lengths of time as they are typed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use weir_config::TypedTime;

/// An earlier time that a time is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// So much earlier.
    By(Duration),
    /// From this time on.
    From(Timestamp),
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
    Ok(TypedTime::parse(text)?.today(weir_system::clock::now().wall))
}

/// The end of a time: as its start, but without a date it is of the day of the start.
pub(super) fn end(text: &str) -> Result<TypedTime, String> {
    TypedTime::parse(text)
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
    fn a_length_is_not_zero() {
        assert_eq!((length("20m"), length("0s").is_err()), (Ok(Duration::from_secs(1200)), true));
        assert_eq!(length("7d"), Ok(Duration::from_secs(604_800)));
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
        let ever = Earlier::start(Some(Earlier::By(Duration::MAX)), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        assert_eq!(ever, None);
        assert!(earlier("last week").unwrap_err().ends_with("or a length such as 7d"));
    }
}
