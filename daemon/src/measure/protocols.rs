//! Packets by IP version and protocol.

use weir_common::{flow::FlowKey, proto};

/// Packet counts by version and protocol: exact if every packet is taken, otherwise estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols {
    /// IPv4 packets.
    pub ipv4: u64,
    /// IPv6 packets.
    pub ipv6: u64,
    /// TCP packets.
    pub tcp: u64,
    /// UDP packets.
    pub udp: u64,
    /// ICMP and `ICMPv6` packets.
    pub icmp: u64,
    /// Packets of every other protocol.
    pub other: u64,
}

impl Protocols {
    /// Counts packets of a flow.
    #[inline]
    pub(super) fn add(&mut self, key: &FlowKey, packets: u64) {
        *(if key.is_v6() { &mut self.ipv6 } else { &mut self.ipv4 }) += packets;
        *(match key.proto() {
            proto::TCP => &mut self.tcp,
            proto::UDP => &mut self.udp,
            proto::ICMP | proto::ICMPV6 => &mut self.icmp,
            _ => &mut self.other,
        }) += packets;
    }

    /// Adds another shard's counts.
    pub fn merge(&mut self, other: &Self) {
        let Self { ipv4, ipv6, tcp, udp, icmp, other: rest } = other;
        self.ipv4 += ipv4;
        self.ipv6 += ipv6;
        self.tcp += tcp;
        self.udp += udp;
        self.icmp += icmp;
        self.other += rest;
    }
}
