//! What a rule may be about: numbers of a report, by their name and their place in it.

use std::fmt;

use super::unit::Dimension;
use crate::view::Standard;

/// Numbers of a report that have one name.
#[derive(Clone)]
pub struct Subject {
    /// The name.
    pub name: String,
    /// What they count.
    pub dimension: Dimension,
    /// Whether there are numbers of the largest keys only: a key that is not listed may have less.
    pub is_listed: bool,
    /// Whether each interface has numbers of its own.
    pub is_per_interface: bool,
    /// The standard view that they are of.
    pub standard: Option<Standard>,
    /// Where they stand.
    pub place: Place,
}

/// Where numbers stand in a report. Views are meant by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One of all traffic.
    Sum(Sum),
    /// One of each interface.
    Interface(OfInterface),
    /// One of each interface's busiest second.
    BusiestSecond(Amount),
    /// Those of a list's rows.
    Top(Standard, Amount),
    /// The same, beyond listed addresses.
    Beyond(Standard, Amount),
    /// Those of a list of floods or scans.
    Spread(Standard),
    /// Those of the rows of a view.
    Rows(String, Column),
    /// Those of all that a view matched.
    Total(String, Amount),
    /// One of the entropy of a view.
    Entropy(String, OfEntropy),
}

/// Packets or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
}

/// A number that a report has once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// All traffic.
    Total(Amount),
    /// Packets of IPv4 flows.
    Ipv4,
    /// Packets of IPv6 flows.
    Ipv6,
    /// Packets of TCP flows.
    Tcp,
    /// Packets of UDP flows.
    Udp,
    /// Packets of ICMP flows.
    Icmp,
    /// Packets of other flows.
    Other,
    /// Distinct source addresses.
    Sources,
    /// Distinct destination addresses.
    Destinations,
    /// Distinct flows.
    Flows,
    /// Flows that were not seen before.
    NewFlows,
    /// How full the filter of seen flows is.
    SeenFill,
    /// How full a ring was at most.
    RingFill,
    /// Packets whose flow was in the kernel's cache.
    CacheHitRate,
    /// The daemon's time for a packet.
    CpuPerPacket,
    /// The daemon's memory.
    ResidentBytes,
}

/// A number that each interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfInterface {
    /// One of its ledger.
    Ledger(Account, Amount),
    /// TCP packets with this flag.
    Tcp(Flag),
    /// What weir counted of what the interface itself says.
    Coverage,
    /// For how long weir may not have seen its packets.
    BlindSeconds,
    /// What was not lost.
    Kept,
    /// One in so many packets is counted.
    Sampling,
}

/// What opens and ends a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// SYN without ACK.
    Syn,
    /// SYN and ACK.
    SynAck,
    /// RST.
    Rst,
    /// FIN.
    Fin,
}

/// A part of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// All that came.
    Seen,
    /// What is in a flow.
    Attributed,
    /// What sampling left out.
    SampledOut,
    /// What the other end of a pair of interfaces counted already.
    Repeated,
    /// For all reasons, or for one.
    Skipped(Option<&'static str>),
    /// For all reasons, or for one.
    Lost(Option<&'static str>),
}

/// A number in each row of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Packets or bytes.
    Amount(Amount),
    /// Distinct flows.
    Flows,
    /// Flows that were not seen before.
    NewFlows,
    /// Distinct values.
    Distinct,
}

/// A number of an entropy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfEntropy {
    /// Bits.
    Bits,
    /// As a part of the most that so many keys may have.
    Normalized,
    /// How many keys there are.
    Keys,
}

impl Amount {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Packets, Self::Bytes];

    /// As reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
        }
    }

    /// What it counts.
    pub const fn dimension(self) -> Dimension {
        match self {
            Self::Packets => Dimension::Packets,
            Self::Bytes => Dimension::Bytes,
        }
    }
}

/// A name means one thing within a configuration.
impl PartialEq for Subject {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
