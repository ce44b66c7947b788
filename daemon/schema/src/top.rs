//! The largest talkers of a window: the lists and their rows.

use std::{borrow::Cow, net::IpAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Estimate, HostNumbers, standard_lists};

/// The largest talkers in one order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Top {
    /// The order of the lists: `bytes` or `packets`.
    pub by: String,
    /// The sampling rate in force, even if no packet came. One packet in this many is sampled; for a part of the window
    /// it may have been more. 1 means every packet. If sampling left out no packet of the window, `confidence` is 1.
    #[serde(default = "every_packet")]
    #[schemars(range(min = 1))]
    pub sampling: u32,
    /// The probability that the true numbers of all entries of one list lie between their bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// The own addresses with the most traffic in both directions together. Own are the networks with `own: true`; if
    /// there are none, private addresses and those of networks that are directly connected, but not by the default
    /// route's interface.
    #[serde(default)]
    pub hosts: Vec<TopHost>,
    /// The largest flows.
    pub flows: Vec<TopFlow>,
    /// The source addresses that sent most.
    pub sources: Vec<TopSource>,
    /// The destination addresses that received most.
    pub destinations: Vec<TopDestination>,
    /// The largest pairs of source and destination address, in that direction.
    pub pairs: Vec<TopPair>,
    /// The largest services: protocol and port.
    pub services: Vec<TopService>,
    /// The networks of source addresses (/24 for IPv4, /48 for IPv6) whose unlisted addresses sent most. Unlisted means
    /// not in `sources`.
    #[serde(default)]
    pub source_prefixes: Vec<TopPrefix>,
    /// The networks of destination addresses (/24 for IPv4, /48 for IPv6) whose unlisted addresses received most.
    /// Unlisted means not in `destinations`.
    #[serde(default)]
    pub destination_prefixes: Vec<TopPrefix>,
    /// The most that a key without a row has, for each list.
    #[serde(default, skip_serializing_if = "TopUnlisted::is_unknown")]
    pub unlisted: TopUnlisted,
}

macro_rules! unlisted {
    ($($list:ident $rows:ident $row:ident $noun:literal: $($field:ident),* $(+ $more:ident)?;)*) => {
        /// Upper bounds for the keys that are not in a list, in bytes or packets as the lists are ordered. They hold
        /// with the lists' confidence, for keys as weir counts them, before addresses are masked. Absent for a list
        /// that weir does not make.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct TopUnlisted {
            $(
                #[doc = concat!("The most that any other ", $noun, " can have.")]
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $rows: Option<u64>,
            )*
        }
    };
}
standard_lists!(unlisted);

impl TopUnlisted {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

/// One of the own addresses with the most traffic.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopHost {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The own address.
    pub host: IpAddr,
    /// Packets to it and from it. A packet that it sends to itself counts twice.
    pub packets: Estimate,
    /// Bytes on the wire to it and from it.
    pub bytes: Estimate,
    /// Its numbers in each direction, and with whom.
    #[serde(flatten)]
    pub numbers: HostNumbers,
}

/// One of the largest flows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopFlow {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The source address.
    pub src_ip: IpAddr,
    /// The destination address.
    pub dst_ip: IpAddr,
    /// Source port; the type for ICMP and `ICMPv6`; 0 for protocols without ports, for all fragments including the
    /// first, and for packets that end before their ports.
    pub src_port: u16,
    /// Destination port; the code for ICMP and `ICMPv6`; 0 in the same cases as `src_port`.
    pub dst_port: u16,
    /// IP protocol: its name in lower case, or its IANA number as text.
    pub proto: Cow<'static, str>,
    /// The packets of the flow.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
}

/// One of the source addresses that sent most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopSource {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The source address.
    pub src_ip: IpAddr,
    /// The packets from this address.
    pub packets: Estimate,
    /// Bytes on the wire from it.
    pub bytes: Estimate,
}

/// One of the destination addresses that received most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopDestination {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The destination address.
    pub dst_ip: IpAddr,
    /// The packets to this address.
    pub packets: Estimate,
    /// Bytes on the wire to it.
    pub bytes: Estimate,
}

/// One of the largest pairs of source and destination address.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopPair {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// The source address.
    pub src_ip: IpAddr,
    /// The destination address.
    pub dst_ip: IpAddr,
    /// Packets from the source to the destination.
    pub packets: Estimate,
    /// Bytes on the wire from the source to the destination.
    pub bytes: Estimate,
}

/// One of the largest services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopService {
    /// The rank in the list, from 1.
    pub rank: u32,
    /// IP protocol: its name in lower case, or its IANA number as text.
    pub proto: Cow<'static, str>,
    /// The lower of the two ports, so that both directions of a conversation count; 0 for ICMP and for protocols
    /// without ports.
    pub port: u16,
    /// Packets to it and from it.
    pub packets: Estimate,
    /// Bytes on the wire to it and from it.
    pub bytes: Estimate,
}

/// A network, ranked by the traffic of its unlisted addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopPrefix {
    /// The rank by `beyond`, from 1.
    pub rank: u32,
    /// The network: its first address and its length, such as `192.0.2.0/24` or `2001:db8::/48`.
    pub prefix: String,
    /// All packets of the prefix.
    pub packets: Estimate,
    /// All its bytes on the wire.
    pub bytes: Estimate,
    /// The traffic of its unlisted addresses. The bounds hold if the bounds of this list and those of the list of
    /// addresses hold.
    pub beyond: Beyond,
    /// How many of its addresses are in the list of addresses of the same direction and order.
    pub members: u32,
}

/// The traffic of a network without its listed addresses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Beyond {
    /// The packets.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
}

const fn every_packet() -> u32 {
    1
}
