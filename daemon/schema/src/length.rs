//! The length of a window, by which its rates are divided.

use std::{iter::Sum, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The length of a window in seconds, if it is known and long enough for rates. A number that is there can be divided
/// by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Length(Option<f64>);

impl Length {
    /// Windows that are shorter have no rates, in seconds: a single packet in a microsecond is no traffic of a gigabit
    /// a second.
    pub const LEAST: f64 = 0.001;

    /// The length of so many seconds.
    pub fn new(seconds: f64) -> Self {
        Self(Some(seconds).filter(|seconds| seconds.is_finite() && *seconds >= Self::LEAST))
    }

    /// Returns the length in seconds; `None` if it has no rates.
    pub const fn seconds(self) -> Option<f64> {
        self.0
    }

    /// The rate of so many in this time.
    pub fn rate(self, number: f64) -> Option<f64> {
        self.0.map(|seconds| number / seconds)
    }

    /// A rate as text, such as `bit_rate` of this number; nothing if there is none.
    pub fn rate_text(self, number: u64, text: fn(u64, f64) -> String) -> Option<String> {
        self.0.map(|seconds| text(number, seconds))
    }
}

impl From<Duration> for Length {
    fn from(length: Duration) -> Self {
        Self::new(length.as_secs_f64())
    }
}

/// The length of several windows together, as far as it is known.
impl Sum for Length {
    fn sum<I: Iterator<Item = Self>>(lengths: I) -> Self {
        Self(lengths.filter_map(Self::seconds).reduce(|sum, next| sum + next))
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::deserialize(deserializer)?.map_or_else(Self::default, Self::new))
    }
}

impl JsonSchema for Length {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Length".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "null"], "format": "double", "minimum": 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_rate_where_there_is_no_time() {
        for seconds in [0.0, 1e-9, 0.000_999, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Length::new(seconds).seconds(), None, "{seconds}");
        }
        assert_eq!(Length::new(0.5).rate(10.0), Some(20.0));
        assert_eq!(Length::from(Duration::from_secs(10)).seconds(), Some(10.0));
        assert_eq!(Length::default().rate(1.0), None);
    }

    #[test]
    fn it_is_a_number_or_null() {
        let json = |length: Length| serde_json::to_string(&length).unwrap();
        assert_eq!([json(Length::new(10.0)), json(Length::new(1e-9))], ["10.0", "null"]);
        // Earlier versions wrote a nanosecond for one packet.
        for (text, seconds) in [("10.0", Some(10.0)), ("1e-9", None), ("0.0", None), ("null", None)] {
            assert_eq!(serde_json::from_str::<Length>(text).unwrap().seconds(), seconds, "{text}");
        }
    }

    #[test]
    fn several_windows_have_the_length_that_is_known() {
        let sum = |all: &[f64]| all.iter().copied().map(Length::new).sum::<Length>().seconds();
        assert_eq!((sum(&[10.0, 0.0, 2.5]), sum(&[0.0]), sum(&[])), (Some(12.5), None, None));
    }
}
