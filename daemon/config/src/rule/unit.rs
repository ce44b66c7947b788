//! The units of a rule's limit, and of the numbers that are compared with it.

use std::fmt;

/// The dimension of a number. This determines which units are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Bytes in a window.
    Bytes,
    /// Bytes in a longer time, which have no rate.
    Volume,
    /// Packets in a window.
    Packets,
    /// New flows in a window.
    Flows,
    /// Bytes in a second.
    BytesOfSecond,
    /// Packets in a second.
    PacketsOfSecond,
    /// Items that may appear again in the next window, so they have no rate.
    Count,
    /// A part of a whole, where 1 is the whole.
    Share {
        /// True if the share can be more than 1.
        may_exceed: bool,
    },
    /// Any other number, which has no unit.
    Number,
}

/// A unit of a limit.
#[derive(Debug, PartialEq)]
pub struct Unit {
    /// The unit as it is written.
    pub name: &'static str,
    /// The factor that converts a value in this unit to the unit of the numbers.
    factor: f64,
    /// True if it is a rate per second of the window.
    pub per_second: bool,
}

const fn each(name: &'static str, factor: f64) -> Unit {
    Unit { name, factor, per_second: false }
}

const fn rate(name: &'static str, factor: f64) -> Unit {
    Unit { name, factor, per_second: true }
}

const BYTES: &[Unit] = &[
    rate("bit/s", 0.125),
    rate("kbit/s", 125.0),
    rate("Mbit/s", 125e3),
    rate("Gbit/s", 125e6),
    rate("Tbit/s", 125e9),
    rate("B/s", 1.0),
    rate("kB/s", 1e3),
    rate("MB/s", 1e6),
    rate("GB/s", 1e9),
    each("B", 1.0),
    each("kB", 1e3),
    each("MB", 1e6),
    each("GB", 1e9),
    each("TB", 1e12),
];
const VOLUMES: &[Unit] = &[
    each("B", 1.0),
    each("kB", 1e3),
    each("MB", 1e6),
    each("GB", 1e9),
    each("TB", 1e12),
    each("PB", 1e15),
    each("MiB", (1_u64 << 20) as f64),
    each("GiB", (1_u64 << 30) as f64),
    each("TiB", (1_u64 << 40) as f64),
];
const PACKETS: &[Unit] = &[rate("pkt/s", 1.0), rate("kpkt/s", 1e3), rate("Mpkt/s", 1e6)];
const FLOWS: &[Unit] = &[rate("flow/s", 1.0), rate("kflow/s", 1e3)];
const BYTES_OF_SECOND: &[Unit] = &[
    each("bit/s", 0.125),
    each("kbit/s", 125.0),
    each("Mbit/s", 125e3),
    each("Gbit/s", 125e6),
    each("Tbit/s", 125e9),
    each("B/s", 1.0),
    each("kB/s", 1e3),
    each("MB/s", 1e6),
    each("GB/s", 1e9),
];
const PACKETS_OF_SECOND: &[Unit] = &[each("pkt/s", 1.0), each("kpkt/s", 1e3), each("Mpkt/s", 1e6)];
const SHARES: &[Unit] = &[each("%", 0.01)];

/// Units as other tools write them, with our names.
const ELSEWHERE: [(&str, &str); 9] = [
    ("bps", "bit/s"),
    ("kbps", "kbit/s"),
    ("mbps", "Mbit/s"),
    ("gbps", "Gbit/s"),
    ("tbps", "Tbit/s"),
    ("pps", "pkt/s"),
    ("kpps", "kpkt/s"),
    ("mpps", "Mpkt/s"),
    ("fps", "flow/s"),
];

impl Dimension {
    /// The units that are allowed. A limit may also have no unit.
    pub const fn units(self) -> &'static [Unit] {
        match self {
            Self::Bytes => BYTES,
            Self::Volume => VOLUMES,
            Self::Packets => PACKETS,
            Self::Flows => FLOWS,
            Self::BytesOfSecond => BYTES_OF_SECOND,
            Self::PacketsOfSecond => PACKETS_OF_SECOND,
            Self::Share { .. } => SHARES,
            Self::Count | Self::Number => &[],
        }
    }

    /// The meaning of a limit without a unit, for messages.
    pub const fn plain(self) -> &'static str {
        match self {
            Self::Bytes => "bytes in a window",
            Self::Volume => "bytes",
            Self::Packets => "packets in a window",
            Self::Flows => "flows in a window",
            Self::BytesOfSecond => "bytes in a second",
            Self::PacketsOfSecond => "packets in a second",
            Self::Count => "how many in a window",
            Self::Share { .. } => "a share, where 1 is all",
            Self::Number => "the number as reports have it",
        }
    }

    /// The unit with this name.
    pub fn unit(self, name: &str) -> Option<&'static Unit> {
        self.units().iter().find(|unit| unit.name == name)
    }

    /// The unit that an unknown name probably means: another spelling, or the name in another tool.
    pub fn meant(self, name: &str) -> Option<&'static str> {
        let lower = name.to_lowercase();
        let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| *theirs == lower).map(|(_, ours)| *ours);
        let fits = |ours: &&Unit| Some(ours.name) == elsewhere || ours.name.to_lowercase() == lower;
        self.units().iter().find(fits).map(|unit| unit.name)
    }
}

impl Unit {
    /// The factor that converts a value in this unit to the unit of the numbers, in a window of `seconds`.
    pub fn scale(&self, seconds: f64) -> f64 {
        if self.per_second { self.factor * seconds } else { self.factor }
    }

    /// The factor that converts a value in this unit to the unit `other`; `None` if only one of them is per second.
    pub fn per(&self, other: &Self) -> Option<f64> {
        (self.per_second == other.per_second).then_some(self.factor / other.factor)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Dimension; 8] = [
        Dimension::Bytes,
        Dimension::Packets,
        Dimension::Flows,
        Dimension::BytesOfSecond,
        Dimension::PacketsOfSecond,
        Dimension::Count,
        Dimension::Share { may_exceed: false },
        Dimension::Number,
    ];

    #[test]
    fn a_rate_scales_with_the_length_of_the_window() {
        let gigabit = Dimension::Bytes.unit("Gbit/s").unwrap();
        assert_eq!((gigabit.scale(10.0), gigabit.scale(0.5)), (1.25e9, 62.5e6));
        assert_eq!(Dimension::Bytes.unit("MB").unwrap().scale(10.0), 1e6, "not a rate");
        assert_eq!(Dimension::BytesOfSecond.unit("Gbit/s").unwrap().scale(10.0), 125e6, "already per second");
        assert_eq!(Dimension::Packets.unit("kpkt/s").unwrap().scale(10.0), 1e4);
    }

    #[test]
    fn each_unit_is_found_by_its_name_and_by_other_spellings() {
        for dimension in ALL {
            for unit in dimension.units() {
                assert_eq!(dimension.unit(unit.name), Some(unit));
                assert_eq!(
                    dimension.meant(&unit.name.to_uppercase()).map(str::to_lowercase),
                    Some(unit.name.to_lowercase())
                );
            }
        }
        for (theirs, ours) in ELSEWHERE {
            assert!(ALL.iter().any(|dimension| dimension.meant(theirs) == Some(ours)), "{theirs}");
        }
        assert_eq!(Dimension::Packets.meant("gbps"), None, "packets have no bits");
    }

    #[test]
    fn units_convert_if_both_or_neither_are_rates() {
        let unit = |name| Dimension::Bytes.unit(name).unwrap();
        assert_eq!(unit("Mbit/s").per(unit("Gbit/s")), Some(0.001));
        assert_eq!(unit("GB").per(unit("MB")), Some(1000.0));
        assert_eq!(unit("GB").per(unit("GB/s")), None);
    }
}
