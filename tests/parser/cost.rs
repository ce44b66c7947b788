//! How many instructions the programs execute for a packet of each kind, and the most that it may be.
//!
//! A row is raised only on purpose, by a commit that says what the instructions are for. It is lowered whenever a
//! program gets shorter.

use std::mem::offset_of;

use anyhow::{Result, ensure};
use weir_common::{
    cpu::Cpu,
    packet::{Link, Parsed, Tunnels, parse},
    record::{Record, read},
};
use weir_config::Packets;
use weir_datapath::{Plan, object};
use weir_tests::{
    cost::{Flows, Kind, frames, loaded},
    interpreter::Arrival,
    object::PLAN,
    traffic::{Mix, Packet, Plan as TrafficPlan, Traffic},
};

/// Each kind of packet, and the most instructions.
fn rows() -> Vec<(u32, Kind)> {
    const INNER: Plan = Plan { tunnels: Tunnels::Inner, ..PLAN };
    const SAMPLED: Plan = Plan { sampling: Packets::OneIn(10), ..PLAN };
    /// The protocol and the content of a VLAN tag.
    const TAG: Option<[u16; 2]> = Some([0x8100, 5]);
    let kind = |program, name, frame| Kind { name, program, frame, tag: None, plan: PLAN, flows: Flows::One };
    let xdp = |name, frame| kind("weir", name, frame);
    vec![
        (165, xdp("TCP, IPv4", frames::tcp_v4())),
        (193, xdp("TCP, IPv4, one VLAN tag", frames::tagged_v4(&[5]))),
        (513, xdp("TCP, IPv4, two VLAN tags", frames::tagged_v4(&[5, 6]))),
        (485, xdp("TCP, IPv4, PPP over Ethernet", frames::session_v4())),
        (220, xdp("UDP, IPv6", frames::udp_v6())),
        (258, xdp("UDP, IPv6, one VLAN tag", frames::tagged_v6(&[5]))),
        (104, xdp("ARP, skipped", frames::arp())),
        (969, xdp("deepest headers", frames::deepest())),
        (165, Kind { plan: INNER, ..xdp("TCP, IPv4, looking into tunnels", frames::tcp_v4()) }),
        (663, Kind { plan: INNER, ..xdp("inside GRE: TCP, IPv4", frames::gre_v4()) }),
        (695, Kind { plan: INNER, ..xdp("inside VXLAN: TCP, IPv4", frames::vxlan_v4()) }),
        (139, Kind { plan: SAMPLED, ..xdp("sampled, one in ten: TCP, IPv4", frames::tcp_v4()) }),
        (252, Kind { flows: Flows::Evicting, ..xdp("every packet evicts: TCP, IPv4", frames::tcp_v4()) }),
        (163, kind("weir_linear", "before Linux 5.18: TCP, IPv4", frames::tcp_v4())),
        (180, kind("weir_generic", "generic mode: TCP, IPv4", frames::tcp_v4())),
        (195, kind("weir_ingress", "tc, received: TCP, IPv4", frames::tcp_v4())),
        (248, kind("weir_ingress", "tc, received: UDP, IPv6", frames::udp_v6())),
        (206, Kind { tag: TAG, ..kind("weir_ingress", "tc, received: TCP, IPv4, one VLAN tag", frames::tcp_v4()) }),
        (130, kind("weir_ingress", "tc, received: ARP, skipped", frames::arp())),
        (181, kind("weir_egress", "tc, sent: TCP, IPv4", frames::tcp_v4())),
    ]
}

pub fn no_kind_of_packet_takes_more_instructions() -> Result<()> {
    let object = object();
    let mut above = Vec::new();
    for (most, kind) in rows() {
        let executed = kind.instructions(&object)?.ceil() as u32;
        if executed > most {
            above.push(format!("{executed} > {most}: {}", kind.name));
        }
    }
    ensure!(above.is_empty(), "instructions per packet:\n{}", above.join("\n"));
    Ok(())
}

/// The interpreter executes the programs as the kernel does: they find what the parser finds in userspace. Also if the
/// outer VLAN tag is in the metadata of the buffer, which a test run in the kernel cannot make.
pub fn interpreted_programs_agree_with_userspace() -> Result<()> {
    const VLANS: [u16; 2] = [0x8100, 0x88a8];
    let object = object();
    for (program, tunnels) in
        [("weir", Tunnels::Outer), ("weir_ingress", Tunnels::Outer), ("weir_ingress", Tunnels::Inner)]
    {
        let mut interpreter = loaded(&object, program, &Plan { tunnels, ..PLAN })?;
        // Each packet with a key makes a record at once.
        interpreter.set("CPUS", offset_of!(Cpu, busy), &[1])?;
        let mut in_metadata = 0;
        for Packet { frame, .. } in
            Traffic::new(TrafficPlan { packets: 4_000, mix: Mix::odd(), ..TrafficPlan::default() })?
        {
            let [protocol, content] = [12, 14].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
            let mut shown = frame.clone();
            let mut tag = None;
            if program == "weir_ingress" && VLANS.contains(&protocol) {
                shown.drain(12..16);
                tag = Some([protocol, content]);
                in_metadata += 1;
            }
            interpreter.run(&Arrival { tag, ..Arrival::new(&shown) })?;
            let records = interpreter.take_records();
            let found = read(&records).and_then(|records| records.first()).map(parsed);
            let expected = parse(&frame[..], Link::Ethernet, tunnels).ok();
            ensure!(found == expected, "{program}: {found:?}\nshould be {expected:?}, tag {tag:x?}: {frame:02x?}");
        }
        ensure!(program == "weir" || in_metadata > 100, "{in_metadata} tags in the metadata");
    }
    Ok(())
}

const fn parsed(record: &Record) -> Parsed {
    let &Record { key, tcp_flags, tos, vlan, .. } = record;
    Parsed { key: key.without_scope(), tcp_flags, tos, vlan }
}
