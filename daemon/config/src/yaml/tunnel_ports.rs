//! The section `datapath.tunnel_ports`: the UDP ports that identify tunnels.

use std::ops::RangeInclusive;

use serde::{Serializer, ser::SerializeMap};
use weir_common::packet::{PORTS_MAX, TunnelPorts, UdpTunnel};

use super::section::{Field, Section};

/// Port 0 is not valid.
const PORT: RangeInclusive<u64> = 1..=u16::MAX as u64;

const fn key(kind: UdpTunnel) -> &'static str {
    match kind {
        UdpTunnel::Vxlan => "vxlan",
        UdpTunnel::VxlanGpe => "vxlan_gpe",
        UdpTunnel::Geneve => "geneve",
        UdpTunnel::GtpU => "gtpu",
    }
}

/// Reads the section `tunnel_ports`.
pub(super) fn tunnel_ports(field: &Field<'_>) -> Option<TunnelPorts> {
    field.section("{vxlan: [4789, 8472]}", read)
}

/// Reads the ports of each kind. A kind that is not set has its usual ports, except those given to another kind.
fn read(s: &mut Section<'_>) -> TunnelPorts {
    let mut given: Vec<(UdpTunnel, u16)> = Vec::new();
    let mut named = Vec::new();
    for kind in UdpTunnel::ALL {
        let Some(field) = s.field(key(kind)) else { continue };
        named.push(kind);
        for item in field.list(PORTS_MAX, "[4789, 8472]").unwrap_or_default() {
            let Some(port) = item.count(PORT).and_then(|port| u16::try_from(port).ok()) else { continue };
            match given.iter().find(|(_, other)| *other == port) {
                Some((other, _)) => item.refuse(format!("{port} is listed already, as a port of {}", key(*other))),
                None => given.push((kind, port)),
            }
        }
    }
    let is_given = |port: u16| given.iter().any(|(_, other)| *other == port);
    let usual = UdpTunnel::ALL.into_iter().filter(|kind| !named.contains(kind)).flat_map(|kind| {
        TunnelPorts::USUAL.of(kind).filter(|port| !is_given(*port)).map(move |port| (kind, port)).collect::<Vec<_>>()
    });
    let mut ports = TunnelPorts::NONE;
    for (kind, port) in given.iter().copied().chain(usual) {
        ports.add(kind, port);
    }
    ports
}

/// Writes the section with every kind.
pub(super) fn write<S: Serializer>(ports: &TunnelPorts, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(UdpTunnel::ALL.len()))?;
    for kind in UdpTunnel::ALL {
        map.serialize_entry(key(kind), &ports.of(kind).collect::<Vec<_>>())?;
    }
    map.end()
}
