//! Address prefixes as people write them: `192.0.2.0/24`, `2001:db8::/32`, or a single address.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Serialize, Serializer};
use weir_system::text::short;

/// All addresses of one IP version that start with the same bits.
///
/// Prefixes are ordered by first address, IPv4 before IPv6. Of two with the same first address, the larger one comes
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    first: IpAddr,
    length: u8,
}

/// Why a text is not a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The text has something after the prefix.
    #[error("{0:?} is more than one prefix: write each by itself, in a file one per line, and `#` before a comment")]
    Several(String),
    /// The part before the slash is not an address.
    #[error("{0:?} is not an IP address, and not a prefix such as 192.0.2.0/24 or 2001:db8::/32")]
    Address(String),
    /// The part after the slash is not a number.
    #[error("{text:?} has {length:?} for its length, which is a number from 0 to {max}")]
    Length {
        /// The text in place of a prefix.
        text: String,
        /// The part after the slash.
        length: String,
        /// The number of bits of an address.
        max: u8,
    },
    /// The length exceeds that of an address.
    #[error("{text} is longer than an address, which has {max} bits: write /{max} or less")]
    TooLong {
        /// The text in place of a prefix.
        text: String,
        /// The number of bits of an address.
        max: u8,
    },
    /// The length is given as a mask.
    #[error("{text} has its length as a mask: write {meant}")]
    Mask {
        /// The text in place of a prefix.
        text: String,
        /// The same prefix with a numeric length.
        meant: Prefix,
    },
    /// The address has bits set beyond the length.
    #[error("{text} is an address within a prefix: write {meant} for the prefix, or {address} for the address alone")]
    HostBits {
        /// The text in place of a prefix.
        text: String,
        /// The prefix with these bits cleared.
        meant: Prefix,
        /// The part before the slash.
        address: IpAddr,
    },
}

/// The ranges of private addresses: RFC 1918, unique local addresses (RFC 4193), and link-local addresses (RFC 3927
/// and RFC 4291). The shared address space of carriers (RFC 6598) is not among them, because it is on the outside of
/// routers.
pub const PRIVATE: [Prefix; 6] = [
    Prefix { first: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), length: 8 },
    Prefix { first: IpAddr::V4(Ipv4Addr::new(172, 16, 0, 0)), length: 12 },
    Prefix { first: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 0)), length: 16 },
    Prefix { first: IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), length: 16 },
    Prefix { first: IpAddr::V6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0)), length: 7 },
    Prefix { first: IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), length: 10 },
];

impl Prefix {
    /// The prefix of this length that contains the address. A length that is too large gives the address alone.
    pub fn of(address: IpAddr, length: u8) -> Self {
        let length = length.min(bits(address));
        let first = match address {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !below_v4(length))),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !below_v6(length))),
        };
        Self { first, length }
    }

    /// Returns the first address of the prefix.
    pub const fn first(self) -> IpAddr {
        self.first
    }

    /// Returns the last address of the prefix.
    pub fn last(self) -> IpAddr {
        match self.first {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() | below_v4(self.length))),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() | below_v6(self.length))),
        }
    }

    /// The prefix length in bits.
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Returns true if it contains an address. An IPv6 prefix contains no IPv4 addresses, and vice versa.
    pub fn contains(self, address: IpAddr) -> bool {
        Self::of(address, self.length) == self
    }
}

const fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// A mask of the address bits after a prefix of this length.
fn below_v4(length: u8) -> u32 {
    u32::MAX.checked_shr(length.into()).unwrap_or(0)
}

fn below_v6(length: u8) -> u128 {
    u128::MAX.checked_shr(length.into()).unwrap_or(0)
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        if text.contains(|c: char| c.is_whitespace() || ",;".contains(c)) {
            return Err(PrefixError::Several(short(text)));
        }
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().map_err(|_| PrefixError::Address(short(text)))?;
        let max = bits(address);
        let length = match length {
            None => max,
            Some(length) => parse_length(text, address, length)?,
        };
        let prefix = Self::of(address, length);
        if prefix.first != address {
            return Err(PrefixError::HostBits { text: short(text), meant: prefix, address });
        }
        Ok(prefix)
    }
}

fn parse_length(text: &str, address: IpAddr, length: &str) -> Result<u8, PrefixError> {
    let max = bits(address);
    if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) {
        let length = length.parse().ok().filter(|length| *length <= max);
        return length.ok_or_else(|| PrefixError::TooLong { text: short(text), max });
    }
    let mask = length.parse().ok().map(Ipv4Addr::to_bits).filter(|mask| address.is_ipv4() && is_mask(*mask));
    Err(match mask {
        Some(mask) => PrefixError::Mask { text: short(text), meant: Prefix::of(address, mask.leading_ones() as u8) },
        None => PrefixError::Length { text: short(text), length: short(length), max },
    })
}

const fn is_mask(mask: u32) -> bool {
    mask.leading_ones() + mask.trailing_zeros() >= u32::BITS
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn prefixes_and_addresses_are_read_and_written() {
        let cases = [
            ("192.0.2.0/24", "192.0.2.0/24", "192.0.2.255"),
            ("192.0.2.1", "192.0.2.1/32", "192.0.2.1"),
            ("0.0.0.0/0", "0.0.0.0/0", "255.255.255.255"),
            ("128.0.0.0/1", "128.0.0.0/1", "255.255.255.255"),
            ("255.255.255.255/32", "255.255.255.255/32", "255.255.255.255"),
            ("2001:DB8::/032", "2001:db8::/32", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("::/0", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            ("::1", "::1/128", "::1"),
            ("::ffff:192.0.2.0/120", "::ffff:192.0.2.0/120", "::ffff:192.0.2.255"),
        ];
        for (text, shown, last) in cases {
            let prefix = prefix(text);
            assert_eq!((prefix.to_string().as_str(), prefix.last().to_string().as_str()), (shown, last));
            assert!(prefix.contains(prefix.first()) && prefix.contains(prefix.last()), "{text}");
        }
    }

    #[test]
    fn a_prefix_contains_its_addresses_and_no_others() {
        for (text, within, beyond) in [
            ("192.0.2.0/24", ["192.0.2.0", "192.0.2.255"], ["192.0.1.255", "192.0.3.0"]),
            ("2001:db8::/33", ["2001:db8::", "2001:db8:7fff::1"], ["2001:db8:8000::", "2001:db7:ffff::"]),
            ("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "::ffff:192.0.2.1"]),
            ("::/0", ["::", "::ffff:192.0.2.1"], ["0.0.0.0", "192.0.2.1"]),
        ] {
            let contains = |address: &str| prefix(text).contains(address.parse().unwrap());
            assert!(within.into_iter().all(contains) && !beyond.into_iter().any(contains), "{text}");
        }
    }

    #[test]
    fn the_larger_prefix_comes_first() {
        let mut prefixes = ["::/0", "10.0.0.0/9", "10.0.0.0/8", "9.0.0.0/32", "10.128.0.0/9"].map(prefix);
        prefixes.sort();
        assert_eq!(
            prefixes.map(|prefix| prefix.to_string()),
            ["9.0.0.0/32", "10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "::/0"]
        );
    }

    #[test]
    fn mistakes_say_what_was_meant() {
        let not_one = "is not an IP address, and not a prefix such as 192.0.2.0/24 or 2001:db8::/32";
        let cases = [
            ("", format!("\"\" {not_one}")),
            ("customers", format!("\"customers\" {not_one}")),
            ("10.0.0/8", format!("\"10.0.0/8\" {not_one}")),
            ("192.0.2.256", format!("\"192.0.2.256\" {not_one}")),
            ("fe80::1%eth0", format!("\"fe80::1%eth0\" {not_one}")),
            ("/24", format!("\"/24\" {not_one}")),
            ("192.0.2.0/", "\"192.0.2.0/\" has \"\" for its length, which is a number from 0 to 32".into()),
            ("192.0.2.0/+24", "\"192.0.2.0/+24\" has \"+24\" for its length, which is a number from 0 to 32".into()),
            ("2001:db8::/x", "\"2001:db8::/x\" has \"x\" for its length, which is a number from 0 to 128".into()),
            ("192.0.2.0/33", "192.0.2.0/33 is longer than an address, which has 32 bits: write /32 or less".into()),
            (
                "2001:db8::/129",
                "2001:db8::/129 is longer than an address, which has 128 bits: write /128 or less".into(),
            ),
            ("10.0.0.0/999", "10.0.0.0/999 is longer than an address, which has 32 bits: write /32 or less".into()),
            ("10.0.0.0/255.0.0.0", "10.0.0.0/255.0.0.0 has its length as a mask: write 10.0.0.0/8".into()),
            ("10.1.2.3/255.255.0.0", "10.1.2.3/255.255.0.0 has its length as a mask: write 10.1.0.0/16".into()),
            (
                "10.0.0.0/0.0.0.255",
                "\"10.0.0.0/0.0.0.255\" has \"0.0.0.255\" for its length, which is a number from 0 to 32".into(),
            ),
            (
                "192.0.2.7/24",
                "192.0.2.7/24 is an address within a prefix: write 192.0.2.0/24 for the prefix, or 192.0.2.7 for the \
                 address alone"
                    .into(),
            ),
            (
                "2001:db8::1/64",
                "2001:db8::1/64 is an address within a prefix: write 2001:db8::/64 for the prefix, or 2001:db8::1 for \
                 the address alone"
                    .into(),
            ),
            (
                "192.0.2.0/24 ; SBL1",
                "\"192.0.2.0/24 ; SBL1\" is more than one prefix: write each by itself, in a file one per line, and `#` \
                 before a comment"
                    .into(),
            ),
        ];
        for (text, message) in cases {
            assert_eq!(text.parse::<Prefix>().map_err(|error| error.to_string()), Err(message));
        }
    }

    #[test]
    fn masks_are_known() {
        for mask in [0, 0x8000_0000, 0xffff_ff00, u32::MAX] {
            assert!(is_mask(mask), "{mask:#x}");
        }
        for mask in [1, 0xff, 0x7fff_ffff, 0xff00_ff00] {
            assert!(!is_mask(mask), "{mask:#x}");
        }
    }
}
