//! Packets are counted by size for each interface and direction, in every mode. The traffic passes a router whose
//! interfaces carry different sizes in each direction.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    ops::Range,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::{Loss, sizes},
    netns::Lab,
};

use crate::watch::{self, ONE_WINDOW, ROOMY_PACKET_RINGS, TIMEOUT, list, measure, one_window};

tests![
    each_interface_has_its_sizes_in_native_mode,
    each_interface_has_its_sizes_in_generic_mode,
    each_direction_has_its_sizes_at_the_tc_hook,
    each_direction_has_its_sizes_by_the_classic_filter,
    each_direction_has_its_sizes_by_packet_sockets,
    sizes_are_exact_where_most_packets_are_left_out,
];

const PORT: u16 = 7200;
/// The sizes of the frames: both sides of each class edge.
const FRAMES: [u64; 8] = [255, 256, 511, 512, 1023, 1024, 1518, 1519];
/// How many packets of each size go from the client to the server, and how many come back.
const SENT: Range<u64> = 20..28;
const ANSWERED: Range<u64> = 40..48;
/// The hosts' own packets are at most this long: multicast reports and neighbour discovery.
const OWN_MAX: u64 = 255;

fn each_interface_has_its_sizes_in_native_mode() -> Result<()> {
    check("native", "ingress", "")
}

fn each_interface_has_its_sizes_in_generic_mode() -> Result<()> {
    check("generic", "ingress", "")
}

fn each_direction_has_its_sizes_at_the_tc_hook() -> Result<()> {
    check("auto", "both", "")
}

fn each_direction_has_its_sizes_by_the_classic_filter() -> Result<()> {
    check("tc", "both", "")
}

fn each_direction_has_its_sizes_by_packet_sockets() -> Result<()> {
    check("afpacket", "both", ROOMY_PACKET_RINGS)
}

fn sizes_are_exact_where_most_packets_are_left_out() -> Result<()> {
    check("auto", "both", "sampling: {packets: 100}\n")
}

/// Packets that enter the router by one interface leave it by the other one.
fn check(mode: &str, direction: &str, settings: &str) -> Result<()> {
    one_window();
    let [wan, lan] = Lab::router_interfaces();
    let lab = Lab::new()?;
    // The MTU has room for the longest frames.
    for (namespace, interface) in [(&lab.client, "eth0"), (&lab.router, wan), (&lab.router, lan), (&lab.server, "eth0")]
    {
        namespace.ip(&format!("link set {interface} mtu 1600"))?;
    }
    let interface = |name| format!("{{name: {name}, mode: {mode}, direction: {direction}}}");
    let settings = format!("interfaces: [{}, {}]\n{settings}{ONE_WINDOW}", interface(wan), interface(lan));
    let mut daemon = measure(&lab.router, &settings)?;
    for server in Lab::SERVER {
        exchange(&lab, server.parse()?)?;
    }
    let reports = watch::stop(&mut daemon, Loss::None)?;
    ensure!(reports.len() == 1, "{} reports of one window", reports.len());
    let ways: &[_] = if direction == "both" { &["ingress", "egress"] } else { &["ingress"] };
    for way in ways {
        let (sent, answered) = if *way == "ingress" { (wan, lan) } else { (lan, wan) };
        check_sizes(&reports[0], (sent, way), SENT)?;
        check_sizes(&reports[0], (answered, way), ANSWERED)?;
    }
    Ok(())
}

/// Compares the sizes of an interface with the frames that it carried.
fn check_sizes(report: &Value, (name, direction): (&str, &str), counts: Range<u64>) -> Result<()> {
    let interface = list(&report["interfaces"])?
        .iter()
        .find(|interface| interface["name"] == name && interface["direction"] == direction)
        .with_context(|| format!("there is no {name} {direction}"))?;
    let (found, mut above) = (sizes(interface)?, 0);
    for (edge, packets) in &found {
        let frames = FRAMES.into_iter().zip(counts.clone()).filter(|(bytes, _)| (above..=*edge).contains(bytes));
        let expected = frames.map(|(_, packets)| packets).sum::<u64>() * Lab::SERVER.len() as u64;
        let is_right = if *edge <= OWN_MAX { *packets >= expected } else { *packets == expected };
        ensure!(
            is_right,
            "{name} {direction}: {packets} packets from {above} to {edge} bytes, not {expected}: {found:?}"
        );
        above = edge + 1;
    }
    Ok(())
}

/// Sends datagrams of all sizes to this address of the server, one after the other, and then answers back.
fn exchange(lab: &Lab, server: IpAddr) -> Result<()> {
    const ETHERNET: u64 = 14;
    const UDP: u64 = 8;
    let headers = ETHERNET + UDP + if server.is_ipv6() { 40 } else { 20 };
    let bound = |address: SocketAddr| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(socket)
    };
    let any: IpAddr = if server.is_ipv6() { "::".parse()? } else { "0.0.0.0".parse()? };
    let (near, far) =
        (lab.client.enter(|| bound((any, 0).into()))??, lab.server.enter(|| bound((server, PORT).into()))??);
    near.connect((server, PORT))?;
    let mut from = None;
    for (bytes, packets) in FRAMES.into_iter().zip(SENT) {
        for _ in 0..packets {
            near.send(&vec![7; (bytes - headers) as usize])?;
            from = Some(far.recv_from(&mut [0; 2_000])?.1);
        }
    }
    far.connect(from.context("nothing was sent")?)?;
    for (bytes, packets) in FRAMES.into_iter().zip(ANSWERED) {
        for _ in 0..packets {
            far.send(&vec![8; (bytes - headers) as usize])?;
            near.recv(&mut [0; 2_000])?;
        }
    }
    Ok(())
}
