//! The example views that are shipped: each is run over a capture with traffic for it, and each row is compared with
//! the truth.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::BufWriter,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use weir_common::ledger::Tally;
use weir_config::{
    Config, Report,
    view::{Measure, View},
};
use weir_tests::{
    oracle::{By, Oracle},
    pcap::{SNAPLEN_MAX, Schedule, Writer},
    scratch::Scratch,
    traffic::{Mix, Packet, Plan, Traffic},
    truth::{Key, Truth},
};

use crate::{
    command::{DONE, text, weir_replay},
    views::{judge_distinct, judge_entropy, judge_sums, only, port, version},
};

/// The fields of a packet that views can use.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PacketFields {
    flow: Key,
    tcp_flags: u8,
    tos: u8,
    vlan: u16,
}

/// The true answer to a view, computed packet by packet.
#[derive(Clone, Copy)]
enum TrueAnswer {
    /// The rows in which a packet counts.
    Rows(fn(&PacketFields) -> Vec<Value>),
    /// The rows in which a packet counts, and the value that is counted as distinct.
    Items(fn(&PacketFields) -> Vec<(Value, Value)>),
}

use TrueAnswer::{Items, Rows};

/// The true answers to each view of each example. There may be no other views.
const EXAMPLES: [(&str, &[(&str, TrueAnswer)]); 7] = [
    ("flowsketch.yaml", &FLOWSKETCH),
    ("pktvisor.yaml", &PKTVISOR),
    ("autonomous-systems.yaml", &AUTONOMOUS_SYSTEMS),
    ("networks.yaml", &NETWORKS),
    ("quality-of-service.yaml", &QUALITY_OF_SERVICE),
    ("scans-and-floods.yaml", &SCANS_AND_FLOODS),
    ("services.yaml", &SERVICES),
];

const FLOWSKETCH: [(&str, TrueAnswer); 4] = [
    ("top_talkers", Rows(|seen| vec![pair(seen)])),
    (
        "suspected_scanners",
        Items(|seen| {
            let counts = seen.flow.proto == 6 && matches!(seen.flow.dst_port, 22 | 80 | 443 | 5432 | 6379);
            item(counts, src_ip(seen), json!(seen.flow.dst))
        }),
    ),
    ("protocol_bytes", Rows(|seen| vec![proto(seen)])),
    ("source_entropy", Rows(|seen| vec![src_ip(seen)])),
];

const PKTVISOR: [(&str, TrueAnswer); 25] = [
    ("src_ips_bytes", Rows(|seen| vec![src_ip(seen)])),
    ("src_ips_packets", Rows(|seen| vec![src_ip(seen)])),
    ("dst_ips_bytes", Rows(|seen| vec![dst_ip(seen)])),
    ("dst_ips_packets", Rows(|seen| vec![dst_ip(seen)])),
    ("src_ports_bytes", Rows(src_port)),
    ("src_ports_packets", Rows(src_port)),
    ("dst_ports_bytes", Rows(dst_port)),
    ("dst_ports_packets", Rows(dst_port)),
    ("src_ip_ports_bytes", Rows(src_ip_port)),
    ("src_ip_ports_packets", Rows(src_ip_port)),
    ("dst_ip_ports_bytes", Rows(dst_ip_port)),
    ("dst_ip_ports_packets", Rows(dst_ip_port)),
    ("conversations_bytes", Rows(conversation)),
    ("conversations_packets", Rows(conversation)),
    ("dscp", Rows(|seen| vec![json!({"dscp": seen.tos >> 2})])),
    ("ecn", Rows(|seen| vec![json!({"ecn": seen.tos & 3})])),
    ("protocols", Rows(|seen| vec![proto(seen)])),
    ("ip_versions", Rows(|seen| vec![json!({"ip_version": version(&seen.flow)})])),
    ("interfaces_bytes", Rows(|_| vec![json!({"interface": CAPTURE})])),
    ("interfaces_packets", Rows(|_| vec![json!({"interface": CAPTURE})])),
    ("conversations", Items(|seen| item(has_ports(seen), json!({}), json!(format!("{:?}", seen.flow))))),
    ("src_ips", Items(|seen| item(true, json!({}), json!(seen.flow.src)))),
    ("dst_ips", Items(|seen| item(true, json!({}), json!(seen.flow.dst)))),
    ("src_ports", Items(|seen| item(has_ports(seen), json!({}), json!(seen.flow.src_port)))),
    ("dst_ports", Items(|seen| item(has_ports(seen), json!({}), json!(seen.flow.dst_port)))),
];

const AUTONOMOUS_SYSTEMS: [(&str, TrueAnswer); 8] = [
    ("src_as_bytes", Rows(|seen| vec![autonomous_system("src_as", seen.flow.src)])),
    ("src_as_packets", Rows(|seen| vec![autonomous_system("src_as", seen.flow.src)])),
    ("dst_as_bytes", Rows(|seen| vec![autonomous_system("dst_as", seen.flow.dst)])),
    ("dst_as_packets", Rows(|seen| vec![autonomous_system("dst_as", seen.flow.dst)])),
    ("src_country_bytes", Rows(|seen| vec![country("src_country", seen.flow.src)])),
    ("src_country_packets", Rows(|seen| vec![country("src_country", seen.flow.src)])),
    ("dst_country_bytes", Rows(|seen| vec![country("dst_country", seen.flow.dst)])),
    ("dst_country_packets", Rows(|seen| vec![country("dst_country", seen.flow.dst)])),
];

const NETWORKS: [(&str, TrueAnswer); 3] = [
    ("source_networks", Rows(|seen| vec![json!({"src_ip": network(seen.flow.src)})])),
    ("destination_networks", Rows(|seen| vec![json!({"dst_ip": network(seen.flow.dst)})])),
    ("vlans", Rows(|seen| vec![json!({"vlan": seen.vlan})])),
];

const QUALITY_OF_SERVICE: [(&str, TrueAnswer); 3] = [
    ("dscp", Rows(|seen| vec![json!({"interface": CAPTURE, "dscp": seen.tos >> 2})])),
    ("ecn", Rows(|seen| vec![json!({"ecn": seen.tos & 3})])),
    ("congested", Rows(|seen| only(seen.tos & 3 == 3, pair(seen)))),
];

const SCANS_AND_FLOODS: [(&str, TrueAnswer); 3] = [
    ("scanners", Items(|seen| item(true, src_ip(seen), json!([seen.flow.dst, seen.flow.dst_port])))),
    ("flooded", Items(|seen| item(true, dst_ip(seen), json!(seen.flow.src)))),
    // This uses the flags of a packet, but the view has those of a record. In this capture it makes no difference:
    // either all packets of a flow have an ACK, or none has.
    ("syn_only", Rows(|seen| only(seen.tcp_flags & (SYN | ACK) == SYN, src_ip(seen)))),
];

const SERVICES: [(&str, TrueAnswer); 2] = [
    ("services_by_interface", Rows(|seen| vec![json!({"proto": seen.flow.proto, "port": port(&seen.flow)})])),
    (
        "web_servers",
        Rows(|seen| {
            let is_web = matches!(seen.flow.dst_port, 80 | 443 | 8000..=8999);
            only(seen.flow.proto == 6 && is_web, dst_ip(seen))
        }),
    ),
];

/// The capture, and so the name of the interface.
const CAPTURE: &str = "examples.pcap";
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn item(counts: bool, row: Value, value: Value) -> Vec<(Value, Value)> {
    if counts { vec![(row, value)] } else { Vec::new() }
}

fn has_ports(seen: &PacketFields) -> bool {
    matches!(seen.flow.proto, 6 | 17)
}

fn src_ip(seen: &PacketFields) -> Value {
    json!({"src_ip": seen.flow.src})
}

fn dst_ip(seen: &PacketFields) -> Value {
    json!({"dst_ip": seen.flow.dst})
}

fn pair(seen: &PacketFields) -> Value {
    json!({"src_ip": seen.flow.src, "dst_ip": seen.flow.dst})
}

fn proto(seen: &PacketFields) -> Value {
    json!({"proto": seen.flow.proto})
}

fn src_port(seen: &PacketFields) -> Vec<Value> {
    only(has_ports(seen), json!({"src_port": seen.flow.src_port}))
}

fn dst_port(seen: &PacketFields) -> Vec<Value> {
    only(has_ports(seen), json!({"dst_port": seen.flow.dst_port}))
}

fn src_ip_port(seen: &PacketFields) -> Vec<Value> {
    only(has_ports(seen), json!({"src_ip": seen.flow.src, "src_port": seen.flow.src_port}))
}

fn dst_ip_port(seen: &PacketFields) -> Vec<Value> {
    only(has_ports(seen), json!({"dst_ip": seen.flow.dst, "dst_port": seen.flow.dst_port}))
}

fn conversation(seen: &PacketFields) -> Vec<Value> {
    let Key { src, dst, src_port, dst_port, proto, lacks: _ } = seen.flow;
    let row = json!({"src_ip": src, "dst_ip": dst, "src_port": src_port, "dst_port": dst_port, "proto": proto});
    only(has_ports(seen), row)
}

/// The network of 24 bits, or of 48 bits for IPv6.
fn network(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{}/24", Ipv4Addr::from_bits(ip.to_bits() & !0xff)),
        IpAddr::V6(ip) => format!("{}/48", std::net::Ipv6Addr::from_bits(ip.to_bits() >> 80 << 80)),
    }
}

/// The content of `traffic-asn.mmdb`, as `tests/corpus/geo.py` wrote it.
fn autonomous_system(side: &str, ip: IpAddr) -> Value {
    let number = match ip {
        IpAddr::V4(ip) => match ip.octets() {
            [10, 0..=127, ..] => 64_500,
            [10, 128..=191, ..] => 64_501,
            [100, 64..=95, ..] => 64_502,
            [100, 96..=111, ..] => 4_200_000_001,
            _ => 0,
        },
        IpAddr::V6(ip) => match ip.segments() {
            [0x2001, 0xdb8, 1, 0..=0x7fff, ..] => 64_503,
            [0x2001, 0xdb8, 2, ..] => 64_504,
            _ => 0_u32,
        },
    };
    json!({side: number})
}

/// The content of `traffic-country.mmdb`.
fn country(side: &str, ip: IpAddr) -> Value {
    let letters = match ip {
        IpAddr::V4(ip) => match ip.octets() {
            [10, 0..=127, ..] | [100, 96..=111, ..] => "XX",
            [100, 64..=95, ..] => "XY",
            _ => return json!({}),
        },
        IpAddr::V6(ip) if ip.segments()[..3] == [0x2001, 0xdb8, 2] => "XZ",
        IpAddr::V6(_) => return json!({}),
    };
    json!({side: letters})
}

/// Everything that a router sees, two sources that scan, and a destination that is flooded.
fn packets() -> Result<Vec<Packet>> {
    let everything = Plan { packets: 60_000, flows: 20_000, ..Plan::default() };
    let tcp = Mix { tcp: 1.0, udp: 0.0, ..Mix::PLAIN };
    // Only packets with SYN alone are sent, which are one in sixteen.
    let scan = Plan {
        seed: 2,
        packets: 200_000,
        flows: 100_000,
        zipf: 0.0,
        flows_per_source: 50_000,
        flows_per_destination: 2,
        mix: tcp,
    };
    let flood = Plan {
        seed: 3,
        packets: 20_000,
        flows: 10_000,
        zipf: 0.0,
        flows_per_source: 1,
        flows_per_destination: 10_000,
        mix: Mix { tcp: 0.0, udp: 1.0, ..Mix::PLAIN },
    };
    let is_scan = |packet: &Packet| packet.truth.tcp_flags & (SYN | ACK) == SYN;
    let ordinary = Traffic::new(everything)?.filter(|packet| !is_scan(packet));
    Ok(ordinary.chain(Traffic::new(scan)?.filter(is_scan)).chain(Traffic::new(flood)?).collect())
}

fn write(path: &Path, packets: &[Packet]) -> Result<()> {
    let schedule =
        Schedule { start: Duration::from_secs(1_700_000_000), packets_per_second: packets.len() as u32 / 10 };
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), SNAPLEN_MAX)?;
    for (nth, packet) in (0..).zip(packets) {
        writer.write(schedule.at(nth), &packet.frame)?;
    }
    writer.finish()?;
    Ok(())
}

/// The packets that have a flow, with the traffic of each kind.
fn seen(packets: &[Packet]) -> HashMap<PacketFields, Tally> {
    let mut seen: HashMap<PacketFields, Tally> = HashMap::new();
    for Truth { flow, tcp_flags, tos, vlan, bytes } in packets.iter().map(|packet| packet.truth) {
        if let Ok(flow) = flow {
            seen.entry(PacketFields { flow, tcp_flags, tos, vlan }).or_default().add(Tally::new(1, bytes));
        }
    }
    seen
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

pub fn every_example_is_answered_truly() -> Result<()> {
    let mut shipped: Vec<String> = fs::read_dir(folder("config/examples/views"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    shipped.sort();
    let mut known = EXAMPLES.map(|(file, _)| file.to_owned());
    known.sort();
    ensure!(shipped == known, "{shipped:?} are shipped, but there are true answers for {known:?}");

    let scratch = Scratch::new()?;
    let capture = scratch.file(CAPTURE);
    let packets = packets()?;
    write(&capture, &packets)?;
    let seen = seen(&packets);
    for (file, truths) in EXAMPLES {
        run(&scratch, file, truths, &capture, &seen).with_context(|| file.to_owned())?;
    }
    Ok(())
}

/// Replays the capture with an example, and judges its views.
fn run(
    scratch: &Scratch,
    file: &str,
    truths: &[(&str, TrueAnswer)],
    capture: &Path,
    seen: &HashMap<PacketFields, Tally>,
) -> Result<()> {
    let mut yaml = fs::read_to_string(folder("config/examples/views").join(file))?;
    // Everything is as shipped, except for the paths of the databases.
    for (installed, ours) in [("GeoLite2-ASN", "traffic-asn"), ("GeoLite2-Country", "traffic-country")] {
        let ours = folder("tests/corpus").join(format!("{ours}.mmdb"));
        yaml = yaml.replace(&format!("/var/lib/GeoIP/{installed}.mmdb"), text(&ours));
    }
    let config = scratch.file(file);
    fs::write(&config, &yaml)?;
    let views = match Config::parse(&yaml, file) {
        Ok(config) => config.views,
        Err(mistakes) => bail!("{mistakes}"),
    };
    ensure!(
        views.len() == truths.len(),
        "it has {} views, but there are true answers for {}",
        views.len(),
        truths.len()
    );

    let arguments = ["--json", "--window", "all", "--seed", "7", "--config", text(&config), text(capture)];
    let mut reports = weir_replay(arguments)?.reports(DONE)?;
    ensure!(reports.len() == 1, "{} reports", reports.len());
    let report = reports.remove(0);
    let answers = report["views"].as_array().context("views")?;
    ensure!(answers.len() >= views.len(), "{} answers to {} views", answers.len(), views.len());
    for ((view, (name, says)), answer) in views.iter().zip(truths).zip(answers) {
        ensure!(view.name == *name && answer["name"] == *name, "{name} is {} and {}", view.name, answer["name"]);
        judge(view, *says, answer, seen).with_context(|| (*name).to_owned())?;
    }
    // A view of the example replaces the standard view with the same name.
    let (own, standard) = answers.split_at(views.len());
    for (name, keys) in STANDARD {
        let has_name = |answer: &&Value| answer["name"] == name;
        ensure!(own.iter().chain(standard).filter(has_name).count() == 1, "there is no single view {name}");
        if let Some(answer) = standard.iter().find(has_name) {
            judge_table(answer, keys, seen).with_context(|| format!("the standard view {name}"))?;
        }
    }
    Ok(())
}

/// The row in which a packet counts.
type RowOf = fn(&PacketFields) -> Value;

/// The standard views that have a table for each interface.
const STANDARD: [(&str, RowOf); 3] = [
    ("ip_versions", |seen| json!({"ip_version": version(&seen.flow)})),
    ("protocols", proto),
    ("dscp", |seen| json!({"dscp": seen.tos >> 2})),
];

/// The only table of a standard view, which is exact.
fn judge_table(answer: &Value, key: RowOf, seen: &HashMap<PacketFields, Tally>) -> Result<()> {
    let tables = answer["tables"].as_array().context("tables")?;
    ensure!(tables.len() == 1 && tables[0]["interface"] == CAPTURE, "a replay has one interface: {tables:?}");
    let mut truths: HashMap<String, Tally> = HashMap::new();
    for (packet, tally) in seen.iter() {
        truths.entry(key(packet).to_string()).or_default().add(*tally);
    }
    let rows = tables[0]["rows"].as_array().context("rows")?;
    let is_exact = |row: &Value| row["bytes"]["lower"] == row["bytes"]["upper"];
    ensure!(rows.iter().chain([&tables[0]["total"]]).all(is_exact), "not exact: {answer}");
    let all: Tally = truths.values().copied().sum();
    ensure!(tables[0]["total"]["bytes"]["value"] == all.bytes, "{}, and there is {all:?}", tables[0]["total"]);
    judge_sums(rows, Report::default().top, By::Bytes, &truths)
}

fn judge(view: &View, says: TrueAnswer, answer: &Value, seen: &HashMap<PacketFields, Tally>) -> Result<()> {
    let rows = if view.per_interface {
        let tables = answer["tables"].as_array().context("tables")?;
        ensure!(tables.len() == 1 && tables[0]["interface"] == CAPTURE, "a replay has one interface: {tables:?}");
        &tables[0]["rows"]
    } else {
        &answer["rows"]
    };
    let rows = rows.as_array().context("rows")?;
    match (says, &view.measure) {
        (Rows(keys), Measure::Bytes | Measure::Packets) => {
            let mut truths: HashMap<String, Tally> = HashMap::new();
            for (packet, tally) in seen {
                for key in keys(packet).iter() {
                    truths.entry(key.to_string()).or_default().add(*tally);
                }
            }
            let by = if view.measure == Measure::Bytes { By::Bytes } else { By::Packets };
            ensure!(view.has_entropy != answer["entropy"].is_null(), "an entropy that was not asked for, or none");
            if view.has_entropy {
                judge_entropy(&answer["entropy"], by, &truths)?;
            }
            judge_sums(rows, view.top, by, &truths)
        }
        (Items(items), Measure::Flows | Measure::Distinct(_)) => {
            let mut sets: HashMap<String, Map<String, Value>> = HashMap::new();
            for (key, value) in seen.keys().flat_map(items) {
                sets.entry(key.to_string()).or_default().insert(value.to_string(), Value::Null);
            }
            let truths = sets.into_iter().map(|(key, values)| (key, values.len() as u64)).collect();
            judge_distinct(rows, &truths)
        }
        _ => bail!("there is no true answer of the measure {:?}", view.measure),
    }
}

/// Every report has the packet sizes that other tools are asked for.
pub fn packet_sizes_are_exact() -> Result<()> {
    let scratch = Scratch::new()?;
    let capture = scratch.file(CAPTURE);
    let packets = packets()?;
    write(&capture, &packets)?;
    let mut oracle = Oracle::new();
    for packet in packets.iter() {
        oracle.add(&packet.truth);
    }
    let example = folder("config/examples/views/flowsketch.yaml");
    let arguments = ["--json", "--window", "all", "--config", text(&example), text(&capture)];
    let reports = weir_replay(arguments)?.reports(DONE)?;
    let sizes = &reports.first().context("no report")?["histograms"]["packet_size_bytes"];
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        ensure!(sizes[name].as_u64() == oracle.size_at(share), "{name} of {sizes} is {:?}", oracle.size_at(share));
    }
    Ok(())
}
