//! The fields of a record. A view can group by them, and count distinct values of them.

use std::{
    fmt::{self, Write as _},
    net::IpAddr,
};

use serde_json::{Value, json};
use weir_common::{
    flow::{Address, FlowKey, class, ip},
    record::Record,
};

use crate::{
    interface::Way,
    names::{Facts, Scope, protocol::protocol_name},
};

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The address of this side, or its network with these prefix lengths.
    Ip(Side, Lengths),
    /// The source port; for ICMP, the type.
    SrcPort,
    /// The destination port; for ICMP, the code.
    DstPort,
    /// The service's port: the lower of the two ports, so that both directions of a conversation have the same one. 0
    /// for ICMP.
    Port,
    /// The IP protocol.
    Proto,
    /// The IP version.
    IpVersion,
    /// Whether the packets are fragments.
    Fragment,
    /// The interface, with its direction.
    Interface,
    /// The direction: whether the interface received or sent the packets.
    Direction,
    /// The VLAN; 0 if there is none.
    Vlan,
    /// The differentiated services code point.
    Dscp,
    /// The bits of explicit congestion notification.
    Ecn,
    /// All TCP flags of the record.
    TcpFlags,
    /// The network that an address is in, by its name in the configuration.
    Net(Side),
    /// The autonomous system of an address; 0 if unknown.
    As(Side),
    /// The country of an address, as two letters.
    Country(Side),
    /// The direction of the packets relative to the operator's own networks.
    Scope,
}

/// A side of a record: which of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The sender.
    Src,
    /// The receiver.
    Dst,
    /// Either address: a record counts for both, but only once if both are the same.
    Host,
}

impl Side {
    /// The sides that this includes.
    pub const fn each(self) -> &'static [Self] {
        match self {
            Self::Src => &[Self::Src],
            Self::Dst => &[Self::Dst],
            Self::Host => &[Self::Src, Self::Dst],
        }
    }

    /// The address on this side of a flow; for [`Side::Host`], the sender's.
    #[inline]
    pub const fn address(self, key: &FlowKey) -> Address {
        if matches!(self, Self::Dst) { key.dst } else { key.src }
    }
}

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
    /// The whole address.
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

    /// Whether every bit counts.
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

impl Field {
    /// The fields without lengths, and their names.
    const PLAIN: [(&'static str, Self); 22] = [
        ("src_ip", Self::Ip(Side::Src, Lengths::WHOLE)),
        ("dst_ip", Self::Ip(Side::Dst, Lengths::WHOLE)),
        ("host", Self::Ip(Side::Host, Lengths::WHOLE)),
        ("src_port", Self::SrcPort),
        ("dst_port", Self::DstPort),
        ("port", Self::Port),
        ("proto", Self::Proto),
        ("ip_version", Self::IpVersion),
        ("fragment", Self::Fragment),
        ("interface", Self::Interface),
        ("direction", Self::Direction),
        ("vlan", Self::Vlan),
        ("dscp", Self::Dscp),
        ("ecn", Self::Ecn),
        ("tcp_flags", Self::TcpFlags),
        ("src_net", Self::Net(Side::Src)),
        ("dst_net", Self::Net(Side::Dst)),
        ("src_as", Self::As(Side::Src)),
        ("dst_as", Self::As(Side::Dst)),
        ("src_country", Self::Country(Side::Src)),
        ("dst_country", Self::Country(Side::Dst)),
        ("scope", Self::Scope),
    ];

    /// The names of all fields, without prefix lengths.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::PLAIN.into_iter().map(|(name, _)| name)
    }

    /// The name without a prefix length, as in the rows of reports.
    pub fn name(self) -> &'static str {
        let plain = match self {
            Self::Ip(side, _) => Self::Ip(side, Lengths::WHOLE),
            other => other,
        };
        Self::PLAIN.into_iter().find(|(_, field)| *field == plain).map_or("host", |(name, _)| name)
    }

    /// The field with this name: one of [`Field::names`]. An address may have lengths: `src_ip/24` or `src_ip/24/56`.
    ///
    /// # Errors
    ///
    /// A description of the mistake; `None` if the text does not begin with the name of a field.
    pub fn parse(text: &str) -> Result<Self, Option<String>> {
        let mut parts = text.split('/');
        let name = parts.next().unwrap_or_default();
        let lengths: Vec<&str> = parts.collect();
        let (_, field) = Self::PLAIN.into_iter().find(|(plain, _)| *plain == name).ok_or(None)?;
        let Self::Ip(side, whole) = field else {
            return if lengths.is_empty() {
                Ok(field)
            } else {
                Err(Some(format!("{name} is not an address: it has no length")))
            };
        };
        let length = |text: &str, max: u8, version: &str| {
            let number = text.parse().ok().filter(|length| *length <= max);
            number.ok_or_else(|| Some(format!("{text:?} is not a valid {version} prefix length: expected 0 to {max}")))
        };
        let lengths = match lengths[..] {
            [] => whole,
            [v4] => Lengths { v4: length(v4, 32, "IPv4")?, v6: Lengths::V6 },
            [v4, v6] => Lengths { v4: length(v4, 32, "IPv4")?, v6: length(v6, 128, "IPv6")? },
            _ => return Err(Some(format!("{text:?} has more than two lengths: one for IPv4, one for IPv6"))),
        };
        Ok(Self::Ip(side, lengths))
    }

    /// How many bits its values take in a key, apart from the words of an address. `interfaces` is the number of slots
    /// in use.
    pub fn bits(self, interfaces: usize) -> u32 {
        match self {
            Self::Ip(..) => 0,
            Self::As(_) => 32,
            Self::SrcPort | Self::DstPort | Self::Port | Self::Country(_) => 16,
            Self::Vlan => 12,
            Self::Proto | Self::TcpFlags | Self::Net(_) => 8,
            Self::Dscp => 6,
            Self::Ecn | Self::Scope | Self::Direction => 2,
            Self::IpVersion | Self::Fragment => 1,
            Self::Interface => interfaces.next_power_of_two().trailing_zeros(),
        }
    }

    /// Whether all records of a flow have the same value.
    pub const fn is_of_flow(self) -> bool {
        let is_of_packets = matches!(self, Self::Fragment | Self::Vlan | Self::Dscp | Self::Ecn | Self::TcpFlags);
        !(self.is_of_interface() || is_of_packets)
    }

    /// Its value in a record, as a number of [`Field::bits`] bits. Addresses have none.
    #[inline]
    pub fn number(self, record: &Record, facts: Facts<'_>) -> u64 {
        let key = &record.key;
        let is_v6 = key.is_v6();
        let net = |side: Side| facts.networks.of(side.address(key), is_v6);
        let address = |side| if side == Side::Dst { key.dst_ip() } else { key.src_ip() };
        match self {
            Self::Ip(..) => 0,
            Self::SrcPort => key.src_port().into(),
            Self::DstPort => key.dst_port().into(),
            Self::Port => key.port().into(),
            Self::Proto => key.proto().into(),
            Self::IpVersion => is_v6.into(),
            Self::Fragment => (key.class() & class::FRAGMENT != 0).into(),
            Self::Interface => key.interface().into(),
            Self::Direction => facts.directions.number(key.interface()).into(),
            Self::Vlan => (record.vlan & 0xfff).into(),
            Self::Dscp => (record.tos >> 2).into(),
            Self::Ecn => (record.tos & 3).into(),
            Self::TcpFlags => record.tcp_flags.into(),
            Self::Net(side) => net(side).into(),
            Self::As(side) => facts.geo.autonomous_system(address(side)).map_or(0, |(number, _)| number.into()),
            Self::Country(side) => {
                facts.geo.country(address(side)).map_or(0, |letters| u16::from_be_bytes(letters).into())
            }
            Self::Scope => facts.networks.scope(net(Side::Src), net(Side::Dst)) as u64,
        }
    }

    /// Whether it distinguishes interfaces, so that every measured interface feeds the view.
    pub const fn is_of_interface(self) -> bool {
        matches!(self, Self::Interface | Self::Direction)
    }

    /// The value as reports show it; null if there is nothing to show. The caller shows interfaces, because it has
    /// their names.
    pub fn show(self, number: u64, facts: Facts<'_>) -> Value {
        match self {
            Self::Proto => json!(protocol_name(number as u8)),
            Self::IpVersion => json!(if number == 0 { 4 } else { 6 }),
            Self::Fragment => json!(number != 0),
            Self::TcpFlags => json!(flag_letters(number as u8)),
            Self::Direction => Way::of_number(number).map_or(Value::Null, |way| json!(way.name())),
            Self::Net(_) => facts.networks.name(number as u8).map_or(Value::Null, |name| json!(name)),
            Self::Country(_) if number == 0 => Value::Null,
            Self::Country(_) => json!(String::from_utf8_lossy(&(number as u16).to_be_bytes())),
            Self::Scope => json!(Scope::ALL[number as usize % Scope::ALL.len()].name()),
            _ => json!(number),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Ip(_, lengths) if *lengths != Lengths::WHOLE => write!(f, "/{}/{}", lengths.v4, lengths.v6),
            _ => Ok(()),
        }
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

/// TCP flags and their letters, from the lowest bit on (RFC 9293): FIN, SYN, RST, PSH, ACK, URG, ECE, CWR.
pub const TCP_FLAGS: [(&str, char); 8] =
    [("fin", 'F'), ("syn", 'S'), ("rst", 'R'), ("psh", 'P'), ("ack", 'A'), ("urg", 'U'), ("ece", 'E'), ("cwr", 'C')];

/// Explicit congestion notification (RFC 3168).
pub const ECN: [(&str, u8); 4] = [("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

/// The letters of the flags that are set, in the order of their bits.
fn flag_letters(flags: u8) -> String {
    TCP_FLAGS.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1).map(|(_, (_, letter))| letter).collect()
}
