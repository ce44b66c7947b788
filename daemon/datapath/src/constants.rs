//! The constants that the loader writes into the programs: what a [`Plan`] says about each packet.

use weir_common::{hash::SlotKey, packet::Tunnels};

use crate::plan::Plan;

/// The constants of a plan, by the names that they have in `ebpf/src/maps.rs`.
pub struct Constants {
    slot_key: Vec<u8>,
    sampling: [u8; 4],
    tunnels: [u8; 4],
    tunnel_ports: Vec<u8>,
}

impl Constants {
    /// The constants of this plan.
    pub fn of(plan: &Plan) -> Self {
        Self {
            slot_key: SlotKey::new(plan.slot_key).0.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            sampling: u32::from(plan.sampling.leaves_out()).to_ne_bytes(),
            tunnels: u32::from(plan.tunnels == Tunnels::Inner).to_ne_bytes(),
            tunnel_ports: (0..=u16::MAX)
                .map(|port| plan.tunnel_ports.kind(port).map_or(0, |kind| kind as u8))
                .collect(),
        }
    }

    /// Returns each constant's name and bytes.
    pub fn named(&self) -> [(&'static str, &[u8]); 4] {
        [
            ("SLOT_KEY", &self.slot_key),
            ("SAMPLING", &self.sampling),
            ("LOOK_INTO_TUNNELS", &self.tunnels),
            ("TUNNEL_PORTS", &self.tunnel_ports),
        ]
    }
}
