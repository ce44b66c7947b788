//! Packets by IP version and protocol.

use weir_common::{flow::FlowKey, ledger::Tally, proto, sketch::Metric};
use weir_sketch::Estimate;

use super::{heavy_hitters::KeyEstimate, ranking::Ranked, uncertainty::ViewUncertainty, whole::reconcile};

/// Packets by version and protocol: sums of records, or estimates for all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols<T = u64> {
    /// The number of IPv4 packets.
    pub ipv4: T,
    /// The number of IPv6 packets.
    pub ipv6: T,
    /// The number of TCP packets.
    pub tcp: T,
    /// The number of UDP packets.
    pub udp: T,
    /// ICMP and `ICMPv6` packets.
    pub icmp: T,
    /// Packets of every other protocol.
    pub other: T,
}

/// How many sums a packet contributes to: that of its version, and that of its protocol.
pub const PARTS: u64 = 2;

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

    /// The estimates for all packets. The bounds of all six hold together, as those of a list do.
    pub fn estimates(&self, uncertainty: &ViewUncertainty) -> Protocols<Estimate> {
        let &Self { ipv4, ipv6, tcp, udp, icmp, other } = self;
        let part = |packets: u64| {
            let sum = Tally::new(packets, 0);
            uncertainty.ranked(&KeyEstimate { key: (), value: sum, lower: sum, upper: sum }, Metric::Packets, 0)
        };
        let (mut versions, mut protocols) = ([ipv4, ipv6].map(part), [tcp, udp, icmp, other].map(part));
        reconcile(versions.iter_mut(), &mut uncertainty.as_total(), true);
        reconcile(protocols.iter_mut(), &mut uncertainty.as_total(), true);
        let packets = |part: Ranked<()>| part.packets;
        let ([ipv4, ipv6], [tcp, udp, icmp, other]) = (versions.map(packets), protocols.map(packets));
        Protocols { ipv4, ipv6, tcp, udp, icmp, other }
    }
}
