//! Packets that begin or end TCP connections are counted exactly. Packets of a flow with different TOS bytes or VLANs
//! have separate records.

use std::{
    io::Read,
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;
use weir_datapath::{online_cpus, pin};
use weir_tests::{
    account::Loss,
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::{Mix, Packet, Plan},
    truth::{Key, Lacks, Truth},
};

use crate::{
    tcx::{segments_sent, watch_by},
    watch::{
        self, ONE_WINDOW, QUIET_LINK, ROOMY_PACKET_RINGS, TIMEOUT, Watch, judge, list, measure, number, one_window,
    },
};

tests![
    real_connections_are_counted_in_native_mode,
    real_connections_are_counted_at_the_tc_hook,
    real_connections_are_counted_by_the_classic_filter,
    real_connections_are_counted_by_packet_sockets,
    sampled_counts_have_bounds,
    each_tos_and_each_vlan_has_a_record_of_its_own,
];

const OPEN_PORT: u16 = 7100;
const CLOSED_PORT: u16 = 7101;
/// Numbers of connections that both sides end, that the server refuses, and that the client resets.
const ENDED: u64 = 7;
const REFUSED: u64 = 5;
const BROKEN: u64 = 3;

fn real_connections_are_counted_in_native_mode() -> Result<()> {
    check_connections("native", "ingress")
}

fn real_connections_are_counted_at_the_tc_hook() -> Result<()> {
    check_connections("auto", "both")
}

fn real_connections_are_counted_by_the_classic_filter() -> Result<()> {
    check_connections("tc", "both")
}

fn real_connections_are_counted_by_packet_sockets() -> Result<()> {
    check_connections("afpacket", "both")
}

/// The client's packets come in by one interface of the router, and the server's by the other. If both directions are
/// measured, each packet is also counted where it leaves.
fn check_connections(mode: &str, direction: &str) -> Result<()> {
    one_window();
    let [wan, lan] = Lab::router_interfaces();
    let lab = Lab::new()?;
    let interface = |name| format!("{{name: {name}, mode: {mode}, direction: {direction}}}");
    let settings = format!("interfaces: [{}, {}]\n{ROOMY_PACKET_RINGS}{ONE_WINDOW}", interface(wan), interface(lan));
    let mut daemon = measure(&lab.router, &settings)?;
    let repeated = || anyhow::Ok(segments_sent(&lab.client)?[1] + segments_sent(&lab.server)?[1]);
    let before = repeated()?;
    for server in Lab::SERVER {
        connect(&lab, server.parse()?)?;
    }
    let repeated = repeated()? - before;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    ensure!(reports.len() == 1, "{} reports of one window", reports.len());
    let families = Lab::SERVER.len() as u64;
    let client = [ENDED + REFUSED + BROKEN, 0, BROKEN, ENDED].map(|packets| packets * families);
    let server = [0, ENDED + BROKEN, REFUSED, ENDED].map(|packets| packets * families);
    let ways: &[_] = if direction == "both" { &["ingress", "egress"] } else { &["ingress"] };
    for way in ways {
        for (name, expected) in
            if *way == "ingress" { [(wan, client), (lan, server)] } else { [(lan, client), (wan, server)] }
        {
            let found = tcp(&reports[0], name, way)?;
            // Retransmitted segments are counted again.
            let is_right =
                found.iter().zip(expected).all(|(found, expected)| (expected..=expected + repeated).contains(found));
            ensure!(is_right, "{name} {way}: {found:?} should be {expected:?}, and {repeated} segments were repeated");
        }
    }
    Ok(())
}

/// SYN, SYN-ACK, RST and FIN of an interface, which must be exact.
fn tcp(report: &Value, name: &str, direction: &str) -> Result<[u64; 4]> {
    let interface = list(&report["interfaces"])?
        .iter()
        .find(|interface| interface["name"] == name && interface["direction"] == direction)
        .with_context(|| format!("there is no {name} {direction}"))?;
    let tcp = &interface["tcp"];
    ensure!(tcp.get("bounds").is_none(), "{name} {direction}: not exact: {tcp}");
    Ok([number(&tcp["syn"])?, number(&tcp["syn_ack"])?, number(&tcp["rst"])?, number(&tcp["fin"])?])
}

/// Connections of each kind from the client to this address of the server, one after the other.
fn connect(lab: &Lab, server: IpAddr) -> Result<()> {
    let [open, closed] = [OPEN_PORT, CLOSED_PORT].map(|port| SocketAddr::new(server, port));
    let listener = lab.server.enter(|| TcpListener::bind(open))??;
    let serving = thread::spawn(move || -> Result<()> {
        for _ in 0..ENDED + BROKEN {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            // Waits until the client closes or resets the connection.
            let _ = stream.read(&mut [0; 1]);
        }
        Ok(())
    });
    lab.client.enter(|| -> Result<()> {
        for _ in 0..ENDED {
            let mut stream = TcpStream::connect_timeout(&open, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.shutdown(Shutdown::Write)?;
            ensure!(stream.read(&mut [0; 1])? == 0, "the server has sent something");
        }
        for _ in 0..REFUSED {
            ensure!(TcpStream::connect_timeout(&closed, TIMEOUT).is_err(), "a process listens at {closed}");
        }
        for _ in 0..BROKEN {
            let stream = TcpStream::connect_timeout(&open, TIMEOUT)?;
            // With a linger time of zero, closing the socket resets the connection.
            set_socket_linger(&stream, Some(Duration::ZERO))?;
        }
        Ok(())
    })??;
    serving.join().expect("serving does not panic")
}

fn sampled_counts_have_bounds() -> Result<()> {
    let watch = Watch::one_window("sampling: {packets: 10}\n")?;
    let mut oracle = Oracle::new();
    let mix = Mix { vlan: 0.2, ..Mix::plain() };
    watch.send(Plan { seed: 82, packets: 100_000, mix, ..Plan::default() }, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    judge("one packet in ten", oracle.check_report(&reports[0]))?;
    let tcp = &reports[0]["interfaces"][0]["tcp"];
    for (name, truth) in oracle.tcp() {
        let [lower, upper] = ["lower", "upper"].map(|end| number(&tcp["bounds"][name][end]));
        let (lower, upper, value) = (lower?, upper?, number(&tcp[name])?);
        ensure!(truth > 1_000 && lower < value && value < upper, "{name}: {truth}, {tcp}");
        ensure!(lower > truth / 2 && upper < truth * 2, "{name}: so wide bounds say nothing: {truth}, {tcp}");
    }
    Ok(())
}

/// The VLAN tag is found at XDP, at the tc hook (where the kernel keeps it outside of the packet), and by a packet
/// socket.
fn each_tos_and_each_vlan_has_a_record_of_its_own() -> Result<()> {
    for mode in ["native", "auto", "afpacket"] {
        check_records(mode).with_context(|| mode.to_owned())?;
    }
    Ok(())
}

fn check_records(mode: &str) -> Result<()> {
    const EACH: u64 = 50;
    const TOS: [u8; 4] = [0, 0x02, 0x03, 0xb8];
    /// A tag with only a priority is no VLAN.
    const TAGS: [Option<u16>; 5] = [None, Some(0x6000), Some(5), Some(0xa007), Some(0x0fff)];
    const VLANS: u64 = 4;
    let watch = watch_by(mode, "ingress")?;
    let mut oracle = Oracle::new();
    let all = TOS.into_iter().flat_map(|tos| TAGS.map(|tag| packet(tos, tag)));
    let packets = all.flat_map(|packet| (0..EACH).map(move |_| packet.clone()));
    // One CPU sends all packets.
    let cpu = *online_cpus()?.last().context("no CPU is online")?;
    let packets = packets.enumerate().map(move |(nth, packet)| {
        if nth == 0 {
            pin(cpu).expect("a CPU that is online");
        }
        packet
    });
    watch::send(&watch.pair, QUIET_LINK, packets, Pace::Unlimited, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    judge(mode, oracle.check_report(&reports[0]))?;
    let (records, expected) = (number(&reports[0]["self"]["records"])?, TOS.len() as u64 * VLANS);
    ensure!(records == expected, "{records} records, not {expected}, on {}", QuietPair::OBSERVER_INTERFACE);
    Ok(())
}

/// A UDP packet of one flow with this TOS, behind this tag.
fn packet(tos: u8, tag: Option<u16>) -> Packet {
    let mut frame = vec![2; 12];
    if let Some(control) = tag {
        frame.extend([0x81, 0x00]);
        frame.extend(control.to_be_bytes());
    }
    frame.extend([0x08, 0x00, 0x45, tos, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 7]);
    frame.extend([0x30, 0x39, 0x00, 0x35, 0, 26, 0, 0]);
    frame.extend([0; 18]);
    let (src, dst) = ([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
    let key = Key { src, dst, src_port: 12_345, dst_port: 53, proto: 17, lacks: Lacks::Nothing };
    let (bytes, vlan) = (frame.len() as u64, tag.map_or(0, |control| control & 0x0fff));
    Packet { frame, truth: Truth { flow: Ok(key), tcp_flags: 0, tos, vlan, bytes } }
}
