//! The subjects of rules: numbers of a report, by their name and their place in it.

use std::fmt;

use super::unit::Dimension;
use crate::view::Standard;

/// Numbers of a report that share a name.
#[derive(Clone)]
pub struct Subject {
    /// The name.
    pub name: String,
    /// What they count.
    pub dimension: Dimension,
    /// Whether only the largest keys have numbers: a key that is not listed may have less.
    pub is_listed: bool,
    /// Whether each interface has numbers of its own.
    pub is_per_interface: bool,
    /// The standard view that they come from.
    pub standard: Option<Standard>,
    /// Where they are in a report.
    pub place: Place,
}

/// Where numbers are in a report. Views are given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A number of all traffic.
    Sum(Sum),
    /// A number of each interface.
    Interface(OfInterface),
    /// A number of each interface's busiest second.
    BusiestSecond(Amount),
    /// The numbers in the rows of a list.
    Top(Standard, Amount),
    /// The same, without listed addresses.
    Beyond(Standard, Amount),
    /// The numbers in a list of floods or scans.
    Spread(Standard),
    /// The numbers in the rows of a view.
    Rows(String, Column),
    /// The numbers of everything that a view matched.
    Total(String, Amount),
    /// A number of the entropy of a view.
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
    /// The highest fill of a ring.
    RingFill,
    /// The share of packets whose flow was in the kernel's cache.
    CacheHitRate,
    /// The daemon's CPU time per packet.
    CpuPerPacket,
    /// The daemon's memory.
    ResidentBytes,
}

/// A number that each interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfInterface {
    /// A number of its ledger.
    Ledger(Account, Amount),
    /// TCP packets with this flag.
    Tcp(Flag),
    /// The share of the interface's own count that weir saw.
    Coverage,
    /// For how long weir may not have seen its packets.
    BlindSeconds,
    /// The share that was not lost.
    Kept,
    /// The N of one-in-N sampling.
    Sampling,
}

/// The flags that open and end a TCP connection.
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
    /// All packets that came.
    Seen,
    /// Packets in a flow.
    Attributed,
    /// Packets that sampling left out.
    SampledOut,
    /// Packets that the other end of a pair of interfaces counted already.
    Repeated,
    /// Skipped packets, for all reasons or for one.
    Skipped(Option<&'static str>),
    /// Lost packets, for all reasons or for one.
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
    /// In bits.
    Bits,
    /// As a part of the most that this many keys can have.
    Normalized,
    /// How many keys there are.
    Keys,
}

impl Amount {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Packets, Self::Bytes];

    /// Its name in reports.
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

/// A name is unique within a configuration.
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
