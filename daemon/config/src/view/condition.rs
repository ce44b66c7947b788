//! The conditions of a view, as the configuration states them. They select its records.

use super::Side;
use crate::{interface::Way, names::Prefix};

/// A condition of a view: one key of `match`, or of `not` in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The key.
    pub key: &'static str,
    /// Whether the condition is in `not`.
    pub is_negated: bool,
    /// The values as they were written.
    pub texts: Vec<String>,
    /// The meaning of the values.
    pub values: Values,
}

impl Condition {
    /// Whether either all records of a flow meet the condition, or none of them.
    pub const fn is_of_flow(&self) -> bool {
        match &self.values {
            Values::Interfaces(_) | Values::Direction(_) => false,
            Values::Ranges(of, _) | Values::Numbers(of, _) => of.is_of_flow(),
            Values::Prefixes(..) | Values::Networks(..) => true,
        }
    }
}

impl Of {
    /// Whether all records of a flow have the same value.
    pub const fn is_of_flow(self) -> bool {
        !matches!(self, Self::Slot | Self::Fragment | Self::Vlan | Self::Dscp | Self::Ecn | Self::TcpFlags)
    }
}

/// The meaning of a condition's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Addresses in these prefixes.
    Prefixes(Side, Vec<Prefix>),
    /// Numbers in these ranges.
    Ranges(Of, Vec<(u32, u32)>),
    /// Numbers.
    Numbers(Of, Vec<u8>),
    /// Interfaces by name or pattern.
    Interfaces(Vec<String>),
    /// A direction.
    Direction(Way),
    /// Networks by name.
    Networks(Side, Vec<String>),
}

/// The field of a record that a condition tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// An address; for [`Side::Host`], one of the two must match.
    Ip(Side),
    /// The source port.
    SrcPort,
    /// The destination port.
    DstPort,
    /// One of the two ports.
    Port,
    /// The protocol.
    Proto,
    /// The IP version.
    IpVersion,
    /// Whether the packets are fragments.
    Fragment,
    /// The interface, by its slot.
    Slot,
    /// The VLAN.
    Vlan,
    /// The differentiated services code point.
    Dscp,
    /// Explicit congestion notification.
    Ecn,
    /// TCP flags: one of these must be set.
    TcpFlags,
    /// A network by its id; for [`Side::Host`], one of the two must match.
    Net(Side),
    /// An autonomous system by its number; 0 if unknown.
    As(Side),
    /// A country, by its two letters as a number.
    Country(Side),
    /// The scope, by the number of a [`crate::names::Scope`].
    Scope,
}
