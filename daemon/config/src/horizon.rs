//! The names of horizons: the longer times over which distinct counts are made.

/// A horizon in rules, in series and in the configuration: `90m`, `24h`. It is a number and the largest unit that makes
/// the number whole, without a space.
pub fn horizon_name(seconds: u64) -> String {
    let (unit, length) =
        [("h", 3600), ("m", 60)].into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit)).unwrap_or(("s", 1));
    format!("{}{unit}", seconds / length)
}
