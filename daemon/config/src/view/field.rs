//! The fields of a record: a view can group by them, match them, and count distinct values of them.
//!
//! [`FIELDS`] has a row for each field, and everything that depends on a field derives from its row: keys, conditions,
//! queries, messages and fingerprints. Only `weir_measure::fields` reads fields from records.

use std::{fmt, net::IpAddr};

use serde_json::{Value, json};
use weir_common::flow::{Address, FlowKey};

use super::{
    lengths::Lengths,
    values::{self, ECN, TCP_FLAGS, named},
};
use crate::{
    interface::{Directions, Way},
    names::{Facts, Geo, Networks, Scope, dscp::dscp_number, protocol::protocol_name},
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
    /// In a key, the service's port: the lower of the two ports, so that both directions of a conversation have the
    /// same one; 0 for ICMP. In a condition, either port.
    Port,
    /// The IP protocol.
    Proto,
    /// The IP version.
    IpVersion,
    /// A flag that is set for fragments.
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
    /// The network that an address is in, by its name in the configuration. Only conditions can be about the networks
    /// of both sides.
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

/// The facts about a field that the whole program shares.
#[derive(Clone, Copy, Debug)]
pub struct FieldRow {
    /// The field. Addresses are whole.
    pub field: Field,
    /// The name in views, conditions, queries and reports.
    pub name: &'static str,
    /// The place that it takes in a key.
    pub width: Width,
    /// The records that may have different values of the field.
    pub differs: Differs,
    /// The table in which its values are looked up, if they are not in the record.
    pub source: Option<Source>,
    /// True if 0 means that the value is unknown. Rows leave unknown values out.
    pub zero_is_unknown: bool,
    /// The value as rows show it. Addresses and interfaces are formatted by the code that has their names.
    shows: fn(u64, Facts<'_>) -> Value,
    /// Reads a value that a row shows, if conditions are written differently.
    reads: Option<fn(&str, Facts<'_>) -> Option<u64>>,
    /// An example of a value, if the name does not suggest one.
    pub example: &'static str,
    /// The values that conditions compare it with.
    pub condition: Comparison,
    /// Two fields that a condition tests together: either may match.
    pub either: Option<[Field; 2]>,
}

/// The place that a field takes in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The words of an address.
    Address,
    /// A fixed number of bits.
    Bits(u32),
    /// As many bits as the slots of interfaces need.
    Slots,
    /// The field takes no place: only conditions have it.
    None,
}

/// The records that may have different values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// Records of different flows only.
    Flows,
    /// Records of one flow, too.
    Packets,
    /// Records of different interfaces, so that every measured interface feeds the view.
    Interfaces,
}

/// The tables in which fields are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The names of networks.
    Networks,
    /// The networks that are the operator's own.
    OwnNetworks,
    /// The database of autonomous systems.
    Systems,
    /// The database of countries.
    Countries,
}

/// The values that a condition compares a field with, and how they are written.
#[derive(Clone, Copy, Debug)]
pub enum Comparison {
    /// Addresses and prefixes.
    Prefixes,
    /// Numbers and ranges of numbers up to `most`.
    Ranges {
        /// The largest number that is allowed.
        most: u32,
        /// The word for a value in messages.
        what: &'static str,
        /// Reads a number from text.
        read: fn(&str) -> Option<u32>,
    },
    /// A few small numbers, which may have names.
    Numbers {
        /// The word for a value in messages.
        what: &'static str,
        /// Reads a number or a name from text.
        read: fn(&str) -> Option<u8>,
    },
    /// Bits, one of which must be set.
    Flags {
        /// The word for a value in messages.
        what: &'static str,
        /// Reads the number of a bit.
        read: fn(&str) -> Option<u8>,
    },
    /// The letters of countries.
    Countries,
    /// Names of networks.
    Networks,
    /// Names and patterns of interfaces.
    Interfaces,
    /// One direction of an interface.
    Direction,
}

/// The defaults of a field that is the same in all records of a flow.
const OF_FLOWS: FieldRow = FieldRow {
    field: Field::Proto,
    name: "",
    width: Width::None,
    differs: Differs::Flows,
    source: None,
    zero_is_unknown: false,
    shows: |number, _| json!(number),
    reads: None,
    example: "",
    condition: Comparison::Prefixes,
    either: None,
};

/// The defaults of a field that may differ in packets of one flow.
const OF_PACKETS: FieldRow = FieldRow { differs: Differs::Packets, ..OF_FLOWS };

/// The defaults of a field that differs between interfaces.
const OF_INTERFACES: FieldRow = FieldRow { differs: Differs::Interfaces, ..OF_FLOWS };

const ADDRESS: FieldRow = FieldRow { width: Width::Address, condition: Comparison::Prefixes, ..OF_FLOWS };

const PORT: FieldRow = FieldRow {
    width: Width::Bits(16),
    condition: Comparison::Ranges { most: u16::MAX as u32, what: "port", read: values::number },
    ..OF_FLOWS
};

const NETWORK: FieldRow = FieldRow {
    source: Some(Source::Networks),
    zero_is_unknown: true,
    shows: |number, facts| json!(facts.networks.name(number as u8)),
    reads: Some(|text, facts| facts.networks.id(text).map(u64::from)),
    example: ": write the name of a network of the configuration",
    condition: Comparison::Networks,
    ..OF_FLOWS
};

const SYSTEM: FieldRow = FieldRow {
    width: Width::Bits(32),
    source: Some(Source::Systems),
    condition: Comparison::Ranges {
        most: u32::MAX,
        what: "number of an autonomous system",
        read: values::autonomous_system,
    },
    ..OF_FLOWS
};

const COUNTRY: FieldRow = FieldRow {
    width: Width::Bits(16),
    source: Some(Source::Countries),
    zero_is_unknown: true,
    shows: |number, _| json!(String::from_utf8_lossy(&(number as u16).to_be_bytes())),
    reads: Some(|text, _| values::two_letters(text).map(u64::from)),
    example: ": two letters, as DE",
    condition: Comparison::Countries,
    ..OF_FLOWS
};

/// A row for each field, in the order of messages.
pub static FIELDS: &[FieldRow] = &[
    FieldRow { field: Field::Ip(Side::Src, Lengths::WHOLE), name: "src_ip", ..ADDRESS },
    FieldRow { field: Field::Ip(Side::Dst, Lengths::WHOLE), name: "dst_ip", ..ADDRESS },
    FieldRow {
        field: Field::Ip(Side::Host, Lengths::WHOLE),
        name: "host",
        either: Some([Field::Ip(Side::Src, Lengths::WHOLE), Field::Ip(Side::Dst, Lengths::WHOLE)]),
        ..ADDRESS
    },
    FieldRow { field: Field::SrcPort, name: "src_port", ..PORT },
    FieldRow { field: Field::DstPort, name: "dst_port", ..PORT },
    FieldRow { field: Field::Port, name: "port", either: Some([Field::SrcPort, Field::DstPort]), ..PORT },
    FieldRow {
        field: Field::Proto,
        name: "proto",
        width: Width::Bits(8),
        shows: |number, _| json!(protocol_name(number as u8)),
        condition: Comparison::Numbers { what: "protocol such as tcp, udp, icmp or 47", read: values::protocol },
        ..OF_FLOWS
    },
    FieldRow {
        field: Field::IpVersion,
        name: "ip_version",
        width: Width::Bits(1),
        shows: |number, _| json!(if number == 0 { 4 } else { 6 }),
        example: ": 4 or 6",
        condition: Comparison::Numbers { what: "IP version: 4 or 6", read: |text| named(text, &[("4", 0), ("6", 1)]) },
        ..OF_FLOWS
    },
    FieldRow {
        field: Field::Fragment,
        name: "fragment",
        width: Width::Bits(1),
        shows: |number, _| json!(number != 0),
        example: ": true or false",
        condition: Comparison::Numbers {
            what: "answer: true or false",
            read: |text| text.parse().ok().map(bool::into),
        },
        ..OF_PACKETS
    },
    FieldRow {
        field: Field::Interface,
        name: "interface",
        width: Width::Slots,
        condition: Comparison::Interfaces,
        ..OF_INTERFACES
    },
    FieldRow {
        field: Field::Direction,
        name: "direction",
        width: Width::Bits(2),
        zero_is_unknown: true,
        shows: |number, _| json!(Way::of_number(number).map(Way::name)),
        reads: Some(|text, _| values::direction(text)),
        example: ": ingress or egress",
        condition: Comparison::Direction,
        ..OF_INTERFACES
    },
    FieldRow {
        field: Field::Vlan,
        name: "vlan",
        width: Width::Bits(12),
        condition: Comparison::Ranges { most: 4095, what: "VLAN", read: values::number },
        ..OF_PACKETS
    },
    FieldRow {
        field: Field::Dscp,
        name: "dscp",
        width: Width::Bits(6),
        condition: Comparison::Numbers {
            what: "code point: 0 to 63, or a name such as ef, af41, cs6",
            read: |text| dscp_number(text).or_else(|| values::number(text).filter(|number| *number < 64)),
        },
        ..OF_PACKETS
    },
    FieldRow {
        field: Field::Ecn,
        name: "ecn",
        width: Width::Bits(2),
        reads: Some(|text, _| {
            let number = named(&text.to_ascii_lowercase(), &ECN);
            number.or_else(|| values::number(text).filter(|number| *number < 4)).map(u64::from)
        }),
        condition: Comparison::Numbers { what: "value: not-ect, ect0, ect1 or ce", read: |text| named(text, &ECN) },
        ..OF_PACKETS
    },
    FieldRow {
        field: Field::TcpFlags,
        name: "tcp_flags",
        width: Width::Bits(8),
        shows: |number, _| json!(values::flag_letters(number as u8)),
        reads: Some(|text, _| values::flags(text).map(u64::from)),
        example: ": write the letters of the flags, as SA for SYN and ACK",
        condition: Comparison::Flags {
            what: "TCP flag: fin, syn, rst, psh, ack, urg, ece or cwr",
            read: |text| TCP_FLAGS.iter().position(|(name, _)| *name == text).map(|bit| bit as u8),
        },
        ..OF_PACKETS
    },
    FieldRow { field: Field::Net(Side::Src), name: "src_net", width: Width::Bits(8), ..NETWORK },
    FieldRow { field: Field::Net(Side::Dst), name: "dst_net", width: Width::Bits(8), ..NETWORK },
    FieldRow {
        field: Field::Net(Side::Host),
        name: "net",
        either: Some([Field::Net(Side::Src), Field::Net(Side::Dst)]),
        ..NETWORK
    },
    FieldRow { field: Field::As(Side::Src), name: "src_as", ..SYSTEM },
    FieldRow { field: Field::As(Side::Dst), name: "dst_as", ..SYSTEM },
    FieldRow { field: Field::Country(Side::Src), name: "src_country", ..COUNTRY },
    FieldRow { field: Field::Country(Side::Dst), name: "dst_country", ..COUNTRY },
    FieldRow {
        field: Field::Scope,
        name: "scope",
        width: Width::Bits(2),
        source: Some(Source::OwnNetworks),
        shows: |number, _| json!(Scope::ALL[number as usize % Scope::ALL.len()].name()),
        example: ": in, out, transit or internal",
        condition: Comparison::Numbers { what: "scope: in, out, transit or internal", read: values::scope },
        ..OF_FLOWS
    },
];

impl FieldRow {
    /// The fields that a key can have.
    pub fn of_keys() -> impl Iterator<Item = &'static Self> {
        FIELDS.iter().filter(|row| row.width != Width::None)
    }

    /// The value as reports show it; null if there is nothing to show.
    pub fn show(&self, number: u64, facts: Facts<'_>) -> Value {
        if self.zero_is_unknown && number == 0 { Value::Null } else { (self.shows)(number, facts) }
    }

    /// The number of a value as rows show it. An empty value is one that rows leave out.
    pub fn parse(&self, text: &str, facts: Facts<'_>) -> Option<u64> {
        if self.zero_is_unknown && text.is_empty() {
            return Some(0);
        }
        match (self.reads, self.condition) {
            (Some(reads), _) => reads(text, facts),
            (None, Comparison::Numbers { read, .. }) => read(&text.to_ascii_lowercase()).map(u64::from),
            (None, Comparison::Ranges { most, read, .. }) => read(text).filter(|number| *number <= most).map(u64::from),
            (None, _) => None,
        }
    }

    /// The row of a field with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FIELDS.iter().find(|row| row.name == name)
    }

    /// A value as rows show it, from one that a person wrote. Values that need the names of a configuration stay as
    /// they are.
    ///
    /// # Errors
    ///
    /// A description of what was expected.
    pub fn as_shown(&self, written: &str) -> Result<String, String> {
        if self.width == Width::Address {
            let address: IpAddr =
                written.parse().map_err(|_| "is not an address, such as 192.0.2.7 or 2001:db8::7".to_owned())?;
            return Ok(address.to_string());
        }
        let what = match (self.reads, self.condition) {
            (None, Comparison::Ranges { what, .. } | Comparison::Numbers { what, .. }) if self.source.is_none() => what,
            _ => return Ok(written.to_owned()),
        };
        let (networks, geo, directions) = (Networks::new(&[]), Geo::default(), Directions::default());
        let facts = Facts { networks: &networks, geo: &geo, directions: &directions };
        let number = self.parse(written, facts).ok_or_else(|| format!("is not a valid {what}"))?;
        Ok(match self.show(number, facts) {
            Value::String(text) => text,
            other => other.to_string(),
        })
    }
}

impl Field {
    /// Returns the field's row in the table.
    pub fn row(self) -> &'static FieldRow {
        let plain = match self {
            Self::Ip(side, _) => Self::Ip(side, Lengths::WHOLE),
            other => other,
        };
        // There is a row for each field of a configuration, because the table is where the field comes from.
        FIELDS.iter().find(|row| row.field == plain).unwrap_or(&FIELDS[0])
    }

    /// The names of all fields that keys can have, without prefix lengths.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FieldRow::of_keys().map(|row| row.name)
    }

    /// The name without a prefix length, as in the rows of reports.
    pub fn name(self) -> &'static str {
        self.row().name
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
        let field = FieldRow::of_keys().find(|row| row.name == name).ok_or(None)?.field;
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

    /// Returns true if all records of a flow have the same value.
    pub fn is_of_flow(self) -> bool {
        self.row().differs == Differs::Flows
    }

    /// Returns true if it distinguishes interfaces, so that every measured interface feeds the view.
    pub fn is_of_interface(self) -> bool {
        self.row().differs == Differs::Interfaces
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        interface::Directions,
        names::{Geo, Network, Networks},
    };

    #[test]
    fn every_row_has_a_field_and_a_name_of_its_own() {
        for (nth, row) in FIELDS.iter().enumerate() {
            assert!(std::ptr::eq(row.field.row(), row), "{} is the second row of its field", row.name);
            assert!(FIELDS[..nth].iter().all(|other| other.name != row.name), "{} is there twice", row.name);
            let parsed = Field::parse(row.name);
            assert_eq!(parsed, if row.width == Width::None { Err(None) } else { Ok(row.field) }, "{}", row.name);
        }
        // All parts of a flow are the same for all its records.
        assert!(super::super::FLOW.into_iter().all(Field::is_of_flow));
    }

    /// A row of a report can be queried, whatever its fields are.
    #[test]
    fn every_value_that_a_row_shows_can_be_read_back() {
        let network = |name: &str| Network { name: name.to_owned(), prefixes: Vec::new(), file: None, own: false };
        let networks = Networks::new(&[network("lan"), network("DMZ 1")]);
        let facts = Facts { networks: &networks, geo: &Geo::default(), directions: &Directions::default() };
        for row in FieldRow::of_keys() {
            let Width::Bits(bits) = row.width else { continue };
            let most = (1_u64 << bits) - 1;
            let numbers = (0..=most.min(300)).chain([most]).chain([u64::from(u16::from_be_bytes(*b"DE")) & most]);
            let mut shown = 0;
            for number in numbers {
                let text = match row.show(number, facts) {
                    Value::Null if number > 0 => continue,
                    Value::Null => String::new(),
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                // Databases have no other countries.
                if matches!(row.field, Field::Country(_)) && !text.bytes().all(|byte| byte.is_ascii_uppercase()) {
                    continue;
                }
                assert_eq!(row.parse(&text, facts), Some(number), "{} shows {text:?}", row.name);
                shown += 1;
            }
            assert!(shown > 1, "{}", row.name);
        }
    }
}
