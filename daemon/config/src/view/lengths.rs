//! Prefix lengths: how much of an address counts, and how networks are written.

use std::{fmt::Write as _, net::IpAddr};

use weir_common::flow::{Address, ip};

/// A mask of address bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask([u64; 2]);

impl Mask {
    /// The address with only these bits; the others are 0.
    #[inline]
    pub const fn network(self, Address([high, low]): Address) -> Address {
        Address([high & self.0[0], low & self.0[1]])
    }
}

/// How many leading bits of an address count, by IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lengths {
    /// The length for IPv4, 0 to 32.
    pub v4: u8,
    /// The length for IPv6, 0 to 128.
    pub v6: u8,
}

impl Lengths {
    /// The lengths of whole addresses.
    pub const WHOLE: Self = Self { v4: 32, v6: 128 };
    /// The lengths in the standard views.
    pub const PREFIX: Self = Self { v4: 24, v6: Self::V6 };
    /// The length for IPv6 if only the length for IPv4 is given.
    pub const V6: u8 = 48;

    /// The network of an address: its leading bits. The others are 0.
    #[inline]
    pub fn network(self, address: Address, is_v6: bool) -> Address {
        self.mask(is_v6).network(address)
    }

    /// The mask of a network with this IP version.
    #[inline]
    pub fn mask(self, is_v6: bool) -> Mask {
        // IPv4 addresses are mapped into IPv6. The 96 bits before them always stay.
        let length = if is_v6 { self.v6 } else { 96 + self.v4 };
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0).to_be_bytes();
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&mask[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Mask([word(0), word(8)])
    }

    /// Returns true if every bit counts.
    #[inline]
    pub const fn is_whole(self) -> bool {
        self.v4 == Self::WHOLE.v4 && self.v6 == Self::WHOLE.v6
    }

    /// The length for an IP version.
    pub const fn of(self, is_v6: bool) -> u8 {
        if is_v6 { self.v6 } else { self.v4 }
    }

    const fn whole(is_v6: bool) -> u8 {
        Self::WHOLE.of(is_v6)
    }
}

/// The network of an address.
pub fn network(address: IpAddr, lengths: Lengths) -> IpAddr {
    let is_v6 = address.is_ipv6();
    ip(lengths.network(address.into(), is_v6), is_v6)
}

/// An address, or a network with its length.
pub fn show_address(address: Address, is_v6: bool, lengths: Lengths) -> String {
    let mut shown = String::new();
    write_address(address, is_v6, lengths, &mut shown);
    shown
}

/// Appends an address, or a network with its length.
pub(super) fn write_address(address: Address, is_v6: bool, lengths: Lengths, out: &mut String) {
    match ip(address, is_v6) {
        // Much faster than formatting, and most addresses of an export are of this kind.
        IpAddr::V4(ip) => {
            for (nth, octet) in ip.octets().into_iter().enumerate() {
                if nth > 0 {
                    out.push('.');
                }
                push_number(octet.into(), out);
            }
        }
        // Writing into a text does not fail.
        IpAddr::V6(ip) => _ = write!(out, "{ip}"),
    }
    let length = lengths.of(is_v6);
    if length != Lengths::whole(is_v6) {
        out.push('/');
        push_number(length.into(), out);
    }
}

/// Appends a number in decimal digits.
pub(super) fn push_number(number: u64, out: &mut String) {
    if number >= 10 {
        push_number(number / 10, out);
    }
    out.push((b'0' + (number % 10) as u8).into());
}
