//! Makes the reports of tests.

use std::sync::LazyLock;

use jiff::Timestamp;
use weir_schema::{
    Distinct, Estimate, HostNumbers, Interface, Ledger, Length, NewFlows, Remembered, Report, Sums, Top,
    TopDestination, TopFlow, TopHost, TopPair, TopService, TopSource, TopUnlisted, Unique,
    sketches::{DistinctSketch, Sketches, UNIQUE, encode},
};
use weir_sketch::{HyperLogLog, datasketches::hll, hash::mix};

use crate::windows::{Windows, of_report};

static GOLDEN: LazyLock<Report> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../schema/tests/golden/report.json")).unwrap());

/// Rows of each list of a window.
pub const ROWS: usize = 64;
/// The start of the first window. It is also the start of five minutes.
pub const START: i64 = 1_764_144_000;

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(START + second).unwrap()
}

/// Pseudorandom numbers, always the same ones.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The report of the window of ten seconds with this number. `sources` has each source with its packets.
pub fn report(nth: i64, sources: &[(u32, u64)]) -> Report {
    report_of(nth, 10, sources)
}

/// Makes a report whose windows have another length, in seconds.
pub fn report_of(nth: i64, length: i64, sources: &[(u32, u64)]) -> Report {
    let mut report = GOLDEN.clone();
    report.id = format!("7f3c9a52/b41d0c11/{}", nth + 1);
    (report.window.start, report.window.end) = (at(nth * length), at(nth * length + length));
    report.window.seconds = Length::new(length as f64 + 0.000_023);
    report.window.clock_step_seconds = None;
    report.addresses = None;
    let packets = sources.iter().map(|(_, packets)| packets).sum();
    (report.totals.packets, report.totals.bytes, report.totals.bounds) = (packets, packets * 100, None);
    let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
    let row = |rank, &(source, packets): &(u32, u64)| TopSource {
        rank,
        src_ip: std::net::Ipv4Addr::from(source).into(),
        packets: exact(packets),
        bytes: exact(packets * 100),
    };
    for top in [&mut report.top, &mut report.top_by_packets] {
        top.confidence = 1.0;
        top.sources = (1..).zip(sources).map(|(rank, source)| row(rank, source)).collect();
        top.sources.sort_by_key(|row| std::cmp::Reverse(row.packets.value));
        let most = top.sources.get(ROWS).map_or(0, |row| row.packets.value);
        let most = if top.by == "packets" { most } else { most * 100 };
        let [flows, sources, destinations, pairs, services] = [most + 1, most, most + 2, most + 3, most + 4].map(Some);
        top.unlisted = TopUnlisted { hosts: None, flows, sources, destinations, pairs, services };
        top.hosts.clear();
        top.sources.truncate(ROWS);
    }
    let distinct = Distinct { value: 1000, lower: 984, upper: 1016, confidence: 0.999 };
    report.unique = Unique { src_ip: distinct, dst_ip: distinct, flows: distinct };
    report.new_flows = NewFlows { value: 50, lower: 50, upper: 50, confidence: 0.999, ..report.new_flows };
    for Interface { ledger, .. } in &mut report.interfaces {
        let Ledger { seen, attributed, .. } = ledger;
        let more = weir_schema::Tally { packets, bytes: packets * 100 };
        (seen.packets, seen.bytes) = (seen.packets + more.packets, seen.bytes + more.bytes);
        (attributed.packets, attributed.bytes) = (attributed.packets + more.packets, attributed.bytes + more.bytes);
    }
    report
}

/// The same with sketches, whose hashes have this key. Each source has one destination and one flow.
pub fn report_with_sketches(nth: i64, length: i64, key_id: u64, sources: &[(u32, u64)]) -> Report {
    let mut sketch = HyperLogLog::with_precision(Remembered::LG_K, key_id).unwrap();
    for (source, _) in sources {
        sketch.insert(mix(u64::from(*source) ^ key_id << 40));
    }
    let one = |name: &str| DistinctSketch {
        name: name.to_owned(),
        question: None,
        key_id: format!("{key_id:016x}"),
        lg_k: Remembered::LG_K,
        missing_packets: 0,
        hll: encode(&hll::write_registers(&sketch)),
    };
    let mut report = report_of(nth, length, sources);
    let counted = sources.len() as u64;
    let distinct =
        Distinct { value: counted, lower: counted - counted / 50, upper: counted + counted / 50, confidence: 0.999 };
    report.unique = Unique { src_ip: distinct, dst_ip: distinct, flows: distinct };
    let (start, end, distinct) = (report.window.start, report.window.end, UNIQUE.map(one).into());
    let sketches = Sketches { start, end, windows: 1, distinct, lists: Vec::new(), spread: Vec::new() };
    Report { sketches: Some(Box::new(sketches)), ..report }
}

/// A report of a window with many sources, some of which send most packets.
pub fn usual(nth: i64, random: &mut Random) -> Report {
    let sources: Vec<_> = (1..40).map(|key| (0x0a00_0000 + key, random.below(90_000) / u64::from(key) + 1)).collect();
    report(nth, &sources)
}

/// The same for a flood, in which no source appears twice.
pub fn flooded(nth: i64, random: &mut Random) -> Report {
    let sources: Vec<_> = (0..40).map(|_| (random.below(1 << 32) as u32, random.below(90) + 1)).collect();
    report(nth, &sources)
}

/// The same for the worst case: every row of every list is new, as long as possible, and has wide bounds, because
/// packets are sampled or lost.
pub fn worst(nth: i64, random: &mut Random) -> Report {
    let mut report = report(nth, &[]);
    (report.totals.packets, report.totals.bytes) = (1 << 40, 1 << 50);
    for top in [&mut report.top, &mut report.top_by_packets] {
        let mut address = || {
            let bits = u128::from(random.below(u64::MAX >> 33)) << 96 | u128::from(random.below(u64::MAX >> 33)) << 65;
            let bits = bits | u128::from(random.below(u64::MAX >> 33)) << 34 | u128::from(random.below(u64::MAX >> 33));
            std::net::IpAddr::from(std::net::Ipv6Addr::from(bits))
        };
        let keys: Vec<_> = (1..=ROWS as u32).map(|rank| (rank, [address(), address(), address(), address()])).collect();
        let mut estimate = || {
            let value = 1_000_000 + random.below(1 << 30);
            let (lower, upper) = (value - random.below(1_000_000), value + random.below(1_000_000));
            Estimate { value, lower, upper, sampled: None }
        };
        let mut counts = || (estimate(), estimate());
        let proto = std::borrow::Cow::Borrowed("udp");
        *top = Top { confidence: 0.99, ..top.clone() };
        (top.flows, top.pairs, top.sources) = (Vec::new(), Vec::new(), Vec::new());
        (top.destinations, top.services) = (Vec::new(), Vec::new());
        let mut most = || Some(counts().0.value);
        let unlisted = TopUnlisted {
            hosts: most(),
            flows: most(),
            sources: most(),
            destinations: most(),
            pairs: most(),
            services: most(),
        };
        top.unlisted = unlisted;
        top.hosts.clear();
        for (rank, [src_ip, dst_ip, other_source, other_destination]) in keys {
            let [src_port, dst_port, port] = [1, 2, 3].map(|_| counts().0.value as u16);
            let proto = proto.clone();
            let (packets, bytes) = counts();
            top.services.push(TopService { rank, proto: proto.clone(), port, packets, bytes });
            let (packets, bytes) = counts();
            top.flows.push(TopFlow { rank, src_ip, dst_ip, src_port, dst_port, proto, packets, bytes });
            let (packets, bytes) = counts();
            top.pairs.push(TopPair { rank, src_ip: other_source, dst_ip, packets, bytes });
            let (packets, bytes) = counts();
            top.sources.push(TopSource { rank, src_ip: other_source, packets, bytes });
            let (packets, bytes) = counts();
            top.destinations.push(TopDestination { rank, dst_ip: other_destination, packets, bytes });
            let [(packets, bytes), down, up, (flows, peers)] = [(); 4].map(|()| counts());
            let [down, up] = [down, up].map(|(packets, bytes)| Sums { packets, bytes });
            let numbers = HostNumbers { down, up, flows, peers };
            top.hosts.push(TopHost { rank, host: other_source, packets, bytes, numbers });
        }
    }
    report
}

pub fn add(windows: &mut Windows, report: &Report) -> bool {
    let addresses = report.shown_addresses();
    windows.add(&mut of_report(report, ROWS), addresses)
}
