//! The settings of sketches: which ones a constructor accepts.

use core::{fmt, ops::RangeInclusive};

/// A setting with which a sketch would not keep its promise. It says the value, and what is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SettingError {
    /// A rate or an error is out of range, or no number.
    Share {
        /// The name of the setting.
        setting: &'static str,
        /// The value that was given.
        found: f64,
        /// The lowest value that is allowed.
        least: f64,
        /// The highest value that is allowed.
        most: f64,
    },
    /// A number is out of range.
    Number {
        /// The name of the setting.
        setting: &'static str,
        /// The value that was given.
        found: u64,
        /// The lowest value that is allowed.
        least: u64,
        /// The highest value that is allowed.
        most: u64,
    },
    /// There is no room for so many.
    TooMany {
        /// The name of the setting.
        setting: &'static str,
        /// The value that was given.
        found: u64,
        /// The highest value that is allowed, with the other settings.
        most: u64,
    },
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { setting, found, least, most } => {
                write!(f, "{setting} is {found}, but must be from {least:.2e} to {most}")
            }
            Self::Number { setting, found, least, most } => {
                write!(f, "{setting} is {found}, but must be from {least} to {most}")
            }
            Self::TooMany { setting, found, most } => {
                write!(f, "{setting} is {found}, but with these settings there is room for at most {most}")
            }
        }
    }
}

impl core::error::Error for SettingError {}

/// Why `new` made no sketch.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BuildError {
    /// A setting is not allowed.
    Setting(SettingError),
    /// There is no random key.
    NoRandom(crate::hash::NoRandom),
}

#[cfg(feature = "std")]
impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::NoRandom(error) => error.fmt(f),
        }
    }
}

#[cfg(feature = "std")]
impl core::error::Error for BuildError {}

/// Checks a rate or an error. NaN is in no range.
pub(crate) fn check_share(setting: &'static str, found: f64, allowed: RangeInclusive<f64>) -> Result<(), SettingError> {
    let (least, most) = (*allowed.start(), *allowed.end());
    if allowed.contains(&found) { Ok(()) } else { Err(SettingError::Share { setting, found, least, most }) }
}

/// Checks a relative error, or a share of a total, whose lowest value is `least`. From 1 on it would mean nothing.
pub(crate) fn check_error(setting: &'static str, found: f64, least: f64) -> Result<(), SettingError> {
    // The lowest value is often a quotient: its last digits must not matter to whoever writes it down.
    check_share(setting, found, least * (1.0 - 1e-6)..=1.0 - 1e-6)
}

/// Checks a number that must be within a range.
pub(crate) fn check_number(
    setting: &'static str,
    found: u64,
    allowed: RangeInclusive<u64>,
) -> Result<(), SettingError> {
    let (least, most) = (*allowed.start(), *allowed.end());
    if allowed.contains(&found) { Ok(()) } else { Err(SettingError::Number { setting, found, least, most }) }
}

/// Checks a number of keys, or of other things that need room.
pub(crate) const fn check_room(setting: &'static str, found: u64, most: u64) -> Result<(), SettingError> {
    if found <= most { Ok(()) } else { Err(SettingError::TooMany { setting, found, most }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count_min::Plain;
    use crate::{
        BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountMin, CountingBloom, Cuckoo,
        HeavyLight, HyperLogLog, Quotient, SampleAndHold, ScalableBloom, Seen, SharedBloom, Spread, TopK, UltraLogLog,
        hash::Key,
    };
    use std::{format, string::String, vec::Vec};

    const KEY: Key = Key([1, 2]);
    const NONSENSE: [f64; 9] =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -0.0, 0.0, f64::MIN_POSITIVE, 1.0, f64::MAX];
    /// So many keys need more than 4 GiB, or more than a structure has room for.
    const TOO_MANY: [u64; 3] = [1 << 42, 1 << 63, u64::MAX];

    /// The name of a structure, and its constructor with one setting open.
    type Case<N> = (&'static str, fn(N) -> Result<(), SettingError>);

    /// Each constructor that takes a rate or an error.
    const OF_SHARES: [Case<f64>; 28] = [
        ("Bloom", |rate| Bloom::with_key(KEY, 100, rate).map(drop)),
        ("BlockedBloom", |rate| BlockedBloom::with_key(KEY, 100, rate).map(drop)),
        ("CountingBloom", |rate| CountingBloom::with_key(KEY, 100, rate).map(drop)),
        ("ScalableBloom", |rate| ScalableBloom::with_key(KEY, 100, rate).map(drop)),
        ("SharedBloom", |rate| SharedBloom::with_key(KEY, 100, rate).map(drop)),
        ("Seen", |rate| Seen::with_key(KEY, 100, rate).map(drop)),
        ("CountMin", |error| CountMin::<u64>::with_key(KEY, error, 0.1).map(drop)),
        ("CountMin, probability", |probability| CountMin::<u64>::with_key(KEY, 0.1, probability).map(drop)),
        ("BlockedCountMin", |error| BlockedCountMin::<u64>::with_key(KEY, error).map(drop)),
        ("HeavyLight", |error| HeavyLight::<u64>::with_key(KEY, error).map(drop)),
        ("HyperLogLog", |error| HyperLogLog::with_key(KEY, error).map(drop)),
        ("CompactHyperLogLog", |error| CompactHyperLogLog::with_key(KEY, error).map(drop)),
        ("UltraLogLog", |error| UltraLogLog::with_key(KEY, error).map(drop)),
        ("Spread", |error| Spread::<u64>::with_key(KEY, 100, 10, error).map(drop)),
        ("Bloom, of hashes", |rate| Bloom::with_capacity(100, rate, 7).map(drop)),
        ("BlockedBloom, of hashes", |rate| BlockedBloom::with_capacity(100, rate, 7).map(drop)),
        ("CountingBloom, of hashes", |rate| CountingBloom::with_capacity(100, rate, 7).map(drop)),
        ("ScalableBloom, of hashes", |rate| ScalableBloom::with_growth(100, rate, 2, 0.5, 7).map(drop)),
        ("SharedBloom, of hashes", |rate| SharedBloom::with_capacity(100, rate, 7).map(drop)),
        ("Seen, of hashes", |rate| Seen::with_capacity(100, rate, 7).map(drop)),
        ("CountMin, of hashes", |error| CountMin::<u64, Plain>::plain_with_error(error, 0.1, 7).map(drop)),
        ("BlockedCountMin, of hashes", |error| BlockedCountMin::<u64, Plain>::plain_with_error(error, 7).map(drop)),
        ("HeavyLight, of hashes", |error| HeavyLight::<u64>::with_error(error, 7).map(drop)),
        ("HyperLogLog, of hashes", |error| HyperLogLog::with_error(error, 7).map(drop)),
        ("CompactHyperLogLog, of hashes", |error| CompactHyperLogLog::with_error(error, 7).map(drop)),
        ("UltraLogLog, of hashes", |error| UltraLogLog::with_error(error, 7).map(drop)),
        ("TopK, of hashes", |error| TopK::<u64>::with_error(error, 100, 7).map(drop)),
        ("CandidateBuckets, of hashes", |error| CandidateBuckets::<u64>::with_error(error, 100, 7).map(drop)),
    ];

    /// Each constructor that takes a number.
    const OF_NUMBERS: [Case<u64>; 15] = [
        ("Bloom", |items| Bloom::with_key(KEY, items, 0.5).map(drop)),
        ("BlockedBloom", |items| BlockedBloom::with_key(KEY, items, 0.5).map(drop)),
        ("CountingBloom", |items| CountingBloom::with_key(KEY, items, 0.5).map(drop)),
        ("ScalableBloom", |items| ScalableBloom::with_key(KEY, items, 0.5).map(drop)),
        ("SharedBloom", |items| SharedBloom::with_key(KEY, items, 0.5).map(drop)),
        ("Seen", |items| Seen::with_key(KEY, items, 0.5).map(drop)),
        ("Cuckoo", |items| Cuckoo::with_key(KEY, items).map(drop)),
        ("Quotient", |items| Quotient::with_key(KEY, items).map(drop)),
        ("Spread", |pairs| Spread::<u64>::with_key(KEY, pairs, 1, 0.04).map(drop)),
        ("SampleAndHold", |keys| SampleAndHold::<u64>::with_key(KEY, keys as usize, 0.04).map(drop)),
        ("TopK", |keys| TopK::<u64>::with_key(KEY, keys as usize).map(drop)),
        ("Cuckoo, of hashes", |items| Cuckoo::with_capacity(items, 7).map(drop)),
        ("Quotient, of hashes", |items| Quotient::with_capacity(items, 7).map(drop)),
        ("TopK, with an error", |keys| TopK::<u64>::with_error(0.1, keys as usize, 7).map(drop)),
        ("CandidateBuckets", |keys| CandidateBuckets::<u64>::with_error(0.1, keys as usize, 7).map(drop)),
    ];

    #[test]
    fn no_sketch_is_made_with_a_share_that_it_cannot_keep() {
        let accepted: Vec<String> = OF_SHARES
            .into_iter()
            .flat_map(|(name, with)| NONSENSE.map(|share| (name, share, with(share))))
            .filter(|(.., made)| made.is_ok())
            .map(|(name, share, _)| format!("{name} with {share}"))
            .collect();
        assert!(accepted.is_empty(), "{accepted:?}");
        for (name, with) in OF_SHARES {
            assert_eq!([0.05, 0.1].map(with), [Ok(()); 2], "{name}");
        }
        let error = Bloom::with_key(KEY, 100, f64::NAN).map(drop).unwrap_err();
        assert_eq!(format!("{error}"), "false_positive_rate is NaN, but must be from 1.00e-9 to 0.5");
        assert!(SampleAndHold::<u64>::with_key(KEY, 10, f64::NAN).is_err());
    }

    #[test]
    fn no_sketch_is_made_for_more_than_it_has_room_for() {
        for (name, with) in OF_NUMBERS {
            for number in TOO_MANY {
                let Err(SettingError::TooMany { found, most, .. }) = with(number) else {
                    panic!("{name} has room for {number}")
                };
                assert!(found == number && most < number, "{name}: {most}");
            }
            assert_eq!([0, 1, 100].map(with), [Ok(()); 3], "{name}");
        }
        assert!(CandidateBuckets::<u64>::with_key(KEY, usize::MAX).is_err());
        let error = Cuckoo::with_key(KEY, u64::MAX).map(drop).unwrap_err();
        assert_eq!(
            format!("{error}"),
            "items is 18446744073709551615, but with these settings there is room for at most 2029372047"
        );
    }

    #[test]
    fn no_sketch_is_made_with_a_size_that_it_cannot_have() {
        for precision in [0, 3, 19, u32::MAX] {
            assert!(HyperLogLog::with_precision(precision, 7).is_err(), "{precision}");
            assert!(CompactHyperLogLog::with_precision(precision, 7).is_err(), "{precision}");
            assert!(UltraLogLog::with_precision(precision, 7).is_err(), "{precision}");
        }
        let error = HyperLogLog::with_precision(3, 7).map(drop).unwrap_err();
        assert_eq!(format!("{error}"), "precision is 3, but must be from 4 to 18");
        for count in [0, usize::MAX] {
            assert!(CandidateBuckets::<u64>::with_buckets(count, 7).is_err(), "{count}");
            assert!(CandidateBuckets::<u64>::with_memory(count, 7).is_err(), "{count}");
        }
        assert!(CandidateBuckets::<u64>::with_memory(10_000, 7).is_ok_and(|made| made.memory_bytes() <= 10_000));
    }

    #[cfg(feature = "std")]
    #[test]
    fn a_random_key_does_not_change_what_is_checked() {
        assert!(Bloom::new(100, 0.01).is_ok());
        let error = Bloom::new(100, 1.0).map(drop).unwrap_err();
        assert!(matches!(error, BuildError::Setting(SettingError::Share { found: 1.0, .. })), "{error}");
    }
}
