//! An independent parser, `etherparse`, finds the same flow in a frame as weir's parser.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};
use weir_common::{
    ledger::Skip,
    packet::{Link, Parsed, Tunnels, parse},
};
use weir_tests::traffic::{Mix, Packet, Plan, Traffic};

/// Addresses, protocol, ports (unless 0), the TOS byte or traffic class, and the outermost VLAN (0 if there is none).
type ComparedFields = ((IpAddr, IpAddr, u8, u16, u16), u8, u16);

pub fn etherparse_finds_the_same_flows() -> Result<()> {
    // etherparse knows neither PPP over Ethernet nor MPLS.
    for (seed, mix, share) in
        [(1, Mix::plain(), 1.0), (2, Mix::default(), 0.85), (3, Mix { shims: 0.0, ..Mix::odd() }, 0.45)]
    {
        let plan = Plan { seed, packets: 10_000, mix, ..Plan::default() };
        let (mut compared, mut marked, mut tagged) = (0_u32, 0, 0);
        for Packet { frame, .. } in Traffic::new(plan)? {
            let Some(theirs) = opinion(&frame) else { continue };
            let ours = parse(&frame[..], Link::Ethernet, Tunnels::Outer).map(|Parsed { key, tos, vlan, .. }| {
                ((key.src_ip(), key.dst_ip(), key.proto(), key.src_port(), key.dst_port()), tos, vlan)
            });
            // weir stops at its limits; etherparse parses on.
            if matches!(ours, Err(Skip::VlanDepth | Skip::ExtensionDepth)) {
                continue;
            }
            ensure!(ours == Ok(theirs), "weir: {ours:?}\netherparse: {theirs:?}\n{frame:02x?}");
            compared += 1;
            marked += u32::from(theirs.1 != 0);
            tagged += u32::from(theirs.2 != 0);
        }
        ensure!(
            marked > compared / 4 && (mix.vlan == 0.0 || tagged > compared / 8),
            "{marked} and {tagged} of {compared}"
        );
        let least = share * plan.packets as f64;
        ensure!(f64::from(compared) >= least, "etherparse had an opinion on {compared} frames of {mix:?}");
    }
    Ok(())
}

/// The flow that etherparse finds in a frame; `None` if it stops before the transport header for any reason.
fn opinion(frame: &[u8]) -> Option<ComparedFields> {
    let packet = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let (src, dst, tos, payload): (IpAddr, IpAddr, _, _) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let (header, payload) = (ip.header(), ip.payload());
            let tos = header.dcp().value() << 2 | header.ecn().value();
            (header.source_addr().into(), header.destination_addr().into(), tos, payload)
        }
        LaxNetSlice::Ipv6(ip) => {
            let (header, payload) = (ip.header(), ip.payload());
            (header.source_addr().into(), header.destination_addr().into(), header.traffic_class(), payload)
        }
        LaxNetSlice::Arp(_) => return None,
    };
    if packet.stop_err.is_some() {
        return None;
    }
    let vlan = packet.vlan_ids().first().map_or(0, |identifier| identifier.value());
    let (src_port, dst_port) = match packet.transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        Some(TransportSlice::Icmpv4(icmp)) => (icmp.type_u8().into(), icmp.code_u8().into()),
        Some(TransportSlice::Igmp(_)) => (0, 0),
        Some(TransportSlice::Icmpv6(icmp)) => (icmp.type_u8().into(), icmp.code_u8().into()),
        None if payload.fragmented => (0, 0),
        // It does not read the ports of other protocols.
        None => return None,
    };
    Some(((src, dst, payload.ip_number.0, src_port, dst_port), tos, vlan))
}
