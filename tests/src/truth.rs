//! The truth about a generated packet.

use std::net::IpAddr;

use weir_common::{
    flow::{FlowKey, class},
    packet::Parsed,
};

/// The flow key that a packet must have: the meaning of [`FlowKey`], stated independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Source port; the type for ICMP and `ICMPv6`; 0 for protocols without ports.
    pub src_port: u16,
    /// Destination port; the code for ICMP and `ICMPv6`; 0 for protocols without ports.
    pub dst_port: u16,
    /// IP protocol number (IANA).
    pub proto: u8,
    /// The part that the packet should have and lacks.
    pub lacks: Lacks,
}

/// Why a key has no ports although its protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lacks {
    /// It lacks nothing.
    Nothing,
    /// A piece of a fragmented packet, the first or a later one: only the first has the ports.
    Fragment,
    /// The packet ends before its transport header.
    Transport,
}

impl Key {
    /// The identity of the flow, which does not depend on the part that a packet lacks.
    #[must_use]
    pub fn flow(self) -> Self {
        Self { lacks: Lacks::Nothing, ..self }
    }

    /// Returns the key without ports.
    #[must_use]
    pub fn without_ports(self, lacks: Lacks) -> Self {
        Self { src_port: 0, dst_port: 0, lacks, ..self }
    }
}

impl From<Key> for FlowKey {
    fn from(key: Key) -> Self {
        let Key { src, dst, src_port, dst_port, proto, lacks } = key;
        let version = if src.is_ipv6() { class::V6 } else { 0 };
        let lacking = match lacks {
            Lacks::Nothing => 0,
            Lacks::Fragment => class::FRAGMENT,
            Lacks::Transport => class::NO_TRANSPORT,
        };
        Self::new(src.into(), dst.into(), proto, version | lacking).with_ports(src_port, dst_port)
    }
}

/// Everything that weir must find in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truth {
    /// The key of its flow, or the reason, by its name in reports, why it has none.
    pub flow: Result<Key, &'static str>,
    /// The TCP flags; 0 for other protocols, and if the TCP header is not in the packet.
    pub tcp_flags: u8,
    /// The TOS byte, or the traffic class of IPv6; 0 for a packet without a flow.
    pub tos: u8,
    /// The outermost VLAN; 0 if there is none, and for a packet without a flow.
    pub vlan: u16,
    /// The length of the frame, without the frame check sequence.
    pub bytes: u64,
}

impl Truth {
    /// The result that weir's parser must return.
    ///
    /// # Errors
    ///
    /// The reason why the packet has no flow.
    pub fn parsed(&self) -> Result<Parsed, &'static str> {
        let &Self { flow, tcp_flags, tos, vlan, bytes: _ } = self;
        Ok(Parsed { key: flow?.into(), tcp_flags, tos, vlan })
    }
}
