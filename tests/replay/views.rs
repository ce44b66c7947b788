//! Views: every row of the answers to many questions is compared with the truth about a capture.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::BufWriter,
    net::IpAddr,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use serde_json::{Map, Value, json};
use weir::replay::Windows;
use weir_common::ledger::Tally;
use weir_config::Packets;
use weir_tests::{
    chance,
    oracle::{By, Oracle, proto},
    pcap::{SNAPLEN_MAX, Schedule, Writer},
    scratch::Scratch,
    traffic::{Plan, Traffic},
    truth::{Key, Lacks},
};

use crate::{
    command::{DONE, capture, text, weir_replay},
    library,
};

/// A question, with a function that returns the keys for which a flow counts, in the form of report rows.
struct Question {
    view: &'static str,
    /// Maximum number of rows.
    top: usize,
    by: By,
    keys: fn(&Key) -> Vec<Value>,
}

const QUESTIONS: [Question; 15] = [
    Question { view: "{by: [src_ip]}", top: 10, by: By::Bytes, keys: |flow| vec![json!({"src_ip": flow.src})] },
    Question {
        view: "{by: [dst_ip], match: {proto: udp}, measure: packets, top: 7}",
        top: 7,
        by: By::Packets,
        keys: |flow| only(flow.proto == 17, json!({"dst_ip": flow.dst})),
    },
    Question {
        view: "{by: [proto, ip_version]}",
        top: 10,
        by: By::Bytes,
        keys: |flow| vec![json!({"proto": flow.proto, "ip_version": version(flow)})],
    },
    Question {
        view: "{by: [src_ip/24, dst_port], match: {ip_version: 4, proto: [tcp, udp]}, top: 50}",
        top: 50,
        by: By::Bytes,
        keys: |flow| match flow.src {
            IpAddr::V4(src) if matches!(flow.proto, 6 | 17) => {
                let [a, b, c, _] = src.octets();
                vec![json!({"src_ip": format!("{a}.{b}.{c}.0/24"), "dst_port": flow.dst_port})]
            }
            _ => Vec::new(),
        },
    },
    Question {
        view: "{by: [dst_ip/24/56]}",
        top: 10,
        by: By::Bytes,
        keys: |flow| match flow.dst {
            IpAddr::V4(dst) => {
                let [a, b, c, _] = dst.octets();
                vec![json!({"dst_ip": format!("{a}.{b}.{c}.0/24")})]
            }
            IpAddr::V6(dst) => {
                let network = std::net::Ipv6Addr::from_bits(dst.to_bits() >> 72 << 72);
                vec![json!({"dst_ip": format!("{network}/56")})]
            }
        },
    },
    Question {
        view: "{by: [host], measure: packets}",
        top: 10,
        by: By::Packets,
        keys: |flow| {
            let mut hosts = vec![flow.src, flow.dst];
            hosts.dedup();
            hosts.into_iter().map(|host| json!({"host": host})).collect()
        },
    },
    Question {
        // Both addresses of a packet may be in the same network.
        view: "{by: [host/0], match: {ip_version: 4}}",
        top: 1,
        by: By::Bytes,
        keys: |flow| only(flow.src.is_ipv4(), json!({"host": "0.0.0.0/0"})),
    },
    Question {
        view: "{by: service}",
        top: 10,
        by: By::Bytes,
        keys: |flow| vec![json!({"proto": flow.proto, "port": port(flow)})],
    },
    Question {
        view: "{by: [port], match: {proto: tcp}, top: 100}",
        top: 100,
        by: By::Bytes,
        keys: |flow| only(flow.proto == 6, json!({"port": port(flow)})),
    },
    Question {
        view: "{match: {dst_port: [80, 400-500], not: {proto: udp}}}",
        top: 10,
        by: By::Bytes,
        keys: |flow| only(matches!(flow.dst_port, 80 | 400..=500) && flow.proto != 17, json!({})),
    },
    Question {
        view: "{by: [fragment], match: {not: {ip_version: 6}}}",
        top: 10,
        by: By::Packets,
        keys: |flow| only(flow.src.is_ipv4(), json!({"fragment": flow.lacks == Lacks::Fragment})),
    },
    Question {
        view: "{by: [dst_ip, src_port], match: {port: 53}}",
        top: 10,
        by: By::Bytes,
        keys: |flow| {
            let is_53 = flow.src_port == 53 || flow.dst_port == 53;
            only(is_53, json!({"dst_ip": flow.dst, "src_port": flow.src_port}))
        },
    },
    Question {
        view: "{by: [src_ip], match: {dst_ip: [100.64.0.0/10, \"2001:db8::/32\"], src_ip: 10.0.0.0/8}}",
        top: 10,
        by: By::Bytes,
        keys: |flow| {
            let has_source = matches!(flow.src, IpAddr::V4(src) if src.octets()[0] == 10);
            let has_destination = match flow.dst {
                IpAddr::V4(dst) => dst.octets()[0] == 100 && dst.octets()[1] >> 6 == 1,
                IpAddr::V6(dst) => dst.segments()[..2] == [0x2001, 0xdb8],
            };
            only(has_source && has_destination, json!({"src_ip": flow.src}))
        },
    },
    Question {
        view: "{by: [ip_version, proto], match: {host: 10.0.0.0/8}, top: 100}",
        top: 100,
        by: By::Bytes,
        keys: |flow| {
            let is_ten = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 10);
            let row = json!({"proto": flow.proto, "ip_version": version(flow)});
            only(is_ten(flow.src) || is_ten(flow.dst), row)
        },
    },
    Question {
        view: "{by: [interface, proto], top: 100}",
        top: 100,
        by: By::Bytes,
        keys: |flow| vec![json!({"interface": "views.pcap", "proto": flow.proto})],
    },
];

pub fn only(counts: bool, row: Value) -> Vec<Value> {
    if counts { vec![row] } else { Vec::new() }
}

pub fn version(flow: &Key) -> u8 {
    if flow.src.is_ipv4() { 4 } else { 6 }
}

/// The port of a service.
pub fn port(flow: &Key) -> u16 {
    if matches!(flow.proto, 1 | 58) { 0 } else { flow.src_port.min(flow.dst_port) }
}

/// Replays a capture with these views, and returns the only report.
fn report(capture: &Path, views: &[String], more: &[&str]) -> Result<Value> {
    let mut args = vec!["--json", "--window", "all", "--seed", "7"];
    args.extend(views.iter().flat_map(|view| ["--view", view]));
    args.extend(more);
    args.push(text(capture));
    let mut reports = weir_replay(args)?.reports(DONE)?;
    ensure!(reports.len() == 1, "{} reports", reports.len());
    Ok(reports.remove(0))
}

fn plan() -> Plan {
    Plan { packets: 60_000, flows: 20_000, ..Plan::default() }
}

/// The key of a row: all fields that are not measures.
fn key(row: &Value) -> Result<Value> {
    let mut key: Map<String, Value> = row.as_object().context("a row is an object")?.clone();
    for other in ["rank", "packets", "bytes", "flows", "new_flows", "distinct"] {
        key.remove(other);
    }
    // An address without a name is like a row without that field.
    key.retain(|_, value| !value.is_null());
    // Protocols have more than one name.
    if let Some(name) = key.get("proto").and_then(Value::as_str) {
        let number = proto::number(name).with_context(|| format!("{name} is not a protocol"))?;
        key.insert("proto".to_owned(), json!(number));
    }
    Ok(Value::Object(key))
}

fn holds(estimate: &Value, truth: u64) -> bool {
    let number = |name: &str| estimate[name].as_u64();
    number("lower").is_some_and(|lower| lower <= truth) && number("upper").is_some_and(|upper| truth <= upper)
}

pub fn every_row_is_true() -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, plan())?;
    let views: Vec<String> = QUESTIONS.iter().map(|question| question.view.to_owned()).collect();
    let report = report(&path, &views, &[])?;
    let answers = report["views"].as_array().context("views")?;
    let names: Vec<_> = answers.iter().skip(QUESTIONS.len()).filter_map(|answer| answer["name"].as_str()).collect();
    ensure!(names == ["ip_versions", "protocols", "dscp"], "behind the user's views there are {names:?}");
    for (question, answer) in QUESTIONS.iter().zip(answers) {
        judge(question, answer, &oracle).with_context(|| question.view)?;
    }
    Ok(())
}

/// Views with the same input share a sketch: each answers as if it were alone.
pub fn views_that_share_a_sketch_answer_as_alone() -> Result<()> {
    const SHARING: [&str; 4] = [
        "{by: [src_ip], match: {proto: tcp}, measure: bytes}",
        "{by: [src_ip], match: {proto: tcp}, measure: packets, top: 5}",
        "{by: [src_ip], match: {proto: tcp}, measure: packets, entropy: true}",
        "{by: [src_ip], match: {proto: tcp}, top: 1}",
    ];
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    capture(&path, plan())?;
    let answers = |views: &[String]| Ok::<_, Error>(report(&path, views, &[])?["views"].clone());
    let together = answers(&SHARING.map(str::to_owned))?;
    for (nth, view) in SHARING.iter().enumerate() {
        let (mut alone, mut shared) = (answers(&[(*view).to_owned()])?[0].clone(), together[nth].clone());
        ensure!(alone["rows"][0]["bytes"]["value"].as_u64() > Some(0), "{alone}");
        (alone["name"], shared["name"]) = (Value::Null, Value::Null);
        ensure!(alone == shared, "{view}: {shared} instead of {alone}");
    }
    Ok(())
}

fn judge(question: &Question, answer: &Value, oracle: &Oracle) -> Result<()> {
    let truths = oracle.grouped(|flow| (question.keys)(flow).iter().map(ToString::to_string).collect());
    let matched = oracle.attributed_where(|flow| !(question.keys)(flow).is_empty());
    ensure!(is_exactly(&answer["total"], matched), "the total {} is {matched:?}", answer["total"]);
    judge_sums(answer["rows"].as_array().context("rows")?, question.top, question.by, &truths)
}

/// Checks that the truth is within the bounds of an entropy, and that the bounds are close.
pub fn judge_entropy(entropy: &Value, by: By, truths: &HashMap<String, Tally>) -> Result<()> {
    let truth = bits(truths.values().map(|truth| by.of(*truth)));
    let number = |name: &str| entropy["bits"][name].as_f64().with_context(|| format!("no {name} in {entropy}"));
    let (value, lower, upper) = (number("value")?, number("lower")?, number("upper")?);
    ensure!(lower <= truth && truth <= upper, "{entropy}, truly {truth}");
    ensure!(upper - lower < 1.0 && (value - truth).abs() < 0.2, "the bounds say little: {entropy}, truly {truth}");
    ensure!(holds(&entropy["keys"], truths.len() as u64), "{entropy}, and there are {} keys", truths.len());
    let normalized = entropy["normalized"].as_f64().context("normalized")?;
    let even = (truths.len().max(2) as f64).log2();
    ensure!((normalized - truth / even).abs() < 0.05, "{entropy}, truly {truth} of {even}");
    Ok(())
}

/// Shannon's entropy of these sizes.
fn bits(sizes: impl Iterator<Item = u64> + Clone) -> f64 {
    let total = sizes.clone().sum::<u64>() as f64;
    sizes.map(|size| size as f64 / total).filter(|part| *part > 0.0).map(|part| -part * part.log2()).sum()
}

/// Small domains are counted exactly, others within bounds. This also holds with one packet in ten.
pub fn entropies_hold() -> Result<()> {
    type Keys = fn(&Key) -> Vec<Value>;
    let questions: [(&str, By, Keys); 4] = [
        ("{by: [src_ip], measure: packets, entropy: true}", By::Packets, |flow| vec![json!(flow.src)]),
        ("{by: flow, entropy: true}", By::Bytes, |flow| vec![json!(format!("{:?}", flow.flow()))]),
        ("{by: [dst_ip], match: {proto: udp}, entropy: true}", By::Bytes, |flow| {
            only(flow.proto == 17, json!(flow.dst))
        }),
        ("{by: [proto], entropy: true}", By::Bytes, |flow| vec![json!(flow.proto)]),
    ];
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, plan())?;
    let truths = |keys: Keys| oracle.grouped(|flow| keys(flow).iter().map(ToString::to_string).collect());
    let views: Vec<String> = questions.iter().map(|(view, ..)| (*view).to_owned()).collect();
    let whole = report(&path, &views, &[])?;
    for ((view, by, keys), answer) in questions.iter().zip(whole["views"].as_array().context("views")?) {
        let truths = truths(*keys);
        judge_entropy(&answer["entropy"], *by, &truths).with_context(|| (*view).to_owned())?;
        let bound = |name: &str| answer["entropy"]["bits"][name].as_f64().unwrap_or(f64::NAN);
        let is_exact = answer["entropy"]["confidence"].as_f64() == Some(1.0);
        ensure!(is_exact == (*view == questions[3].0), "{view}: {}", answer["entropy"]);
        ensure!(!is_exact || bound("upper") - bound("lower") < 1e-5, "{}", answer["entropy"]);
    }
    let sampled = scratch.file("sampled.yaml");
    std::fs::write(&sampled, "sampling: {packets: 10}\n")?;
    let sampled = report(&path, &views, &["--config", text(&sampled)])?;
    for ((view, by, keys), answer) in questions.iter().zip(sampled["views"].as_array().context("views")?) {
        let truth = bits(truths(*keys).values().map(|truth| by.of(*truth)));
        let bound = |name: &str| answer["entropy"]["bits"][name].as_f64().unwrap_or(f64::NAN);
        let holds = bound("lower") <= truth && truth <= bound("upper");
        ensure!(holds, "{view} with one packet in ten: {}, truly {truth}", answer["entropy"]);
    }
    Ok(())
}

/// Returns true if packets and bytes have exactly these values, with equal bounds.
fn is_exactly(sums: &Value, truth: Tally) -> bool {
    let exact = |number: u64| json!({"value": number, "lower": number, "upper": number});
    sums["packets"] == exact(truth.packets) && sums["bytes"] == exact(truth.bytes)
}

/// A list may lack one of the truly largest keys per this many rows.
const MISSING_PER_ROWS: usize = 50;

/// Checks that these rows are the largest, in order, and true.
pub fn judge_sums(rows: &[Value], top: usize, by: By, truths: &HashMap<String, Tally>) -> Result<()> {
    ensure!(rows.len() == top.min(truths.len()), "{} rows of {} keys", rows.len(), truths.len());
    ensure!(!rows.is_empty(), "the question is about nothing");
    let mut listed = Vec::new();
    for (nth, row) in rows.iter().enumerate() {
        ensure!(row["rank"] == nth as u64 + 1, "rank {}", row["rank"]);
        let key = key(row)?.to_string();
        let truth = truths.get(&key).with_context(|| format!("there is no {key}"))?;
        ensure!(holds(&row["packets"], truth.packets) && holds(&row["bytes"], truth.bytes), "{row} of {truth:?}");
        listed.push(key);
    }
    let value = |row: &Value| row[by.name()]["value"].as_u64().unwrap_or(0);
    ensure!(rows.is_sorted_by(|one, next| value(one) >= value(next)), "the rows are in no order");
    // A key that has more than the upper bound of the last row must be listed. Which keys become candidates depends on
    // chance, so a long list may lack a few.
    let last = rows.last().and_then(|row| row[by.name()]["upper"].as_u64()).unwrap_or(0);
    let missing: Vec<_> = truths.iter().filter(|(key, truth)| by.of(**truth) > last && !listed.contains(key)).collect();
    ensure!(missing.len() <= top / MISSING_PER_ROWS, "{missing:?} are not listed");
    Ok(())
}

/// Checks that these distinct counts are true, and that no larger one is missing.
pub fn judge_distinct(rows: &[Value], truths: &HashMap<String, u64>) -> Result<()> {
    ensure!(!rows.is_empty(), "no rows");
    let counted = |row: &Value| {
        let names = ["flows", "new_flows", "distinct"];
        names.into_iter().map(|name| row[name].clone()).find(|count| !count.is_null()).unwrap_or_default()
    };
    let mut listed = Vec::new();
    for row in rows {
        let key = key(row)?.to_string();
        let truth = truths.get(&key).with_context(|| format!("there is no {key}"))?;
        ensure!(holds(&counted(row), *truth), "{row}, and it has {truth}");
        listed.push(key);
    }
    let last = rows.last().and_then(|row| counted(row)["upper"].as_u64()).context("an upper bound")?;
    let missing = truths.iter().find(|(key, truth)| **truth > last && !listed.contains(key));
    ensure!(missing.is_none(), "{missing:?} is not listed");
    Ok(())
}

/// With one packet in ten, totals are right on average, and their bounds hold as often as stated.
pub fn totals_hold_with_sampling() -> Result<()> {
    const SEEDS: u64 = 100;
    const RATE: u64 = 10;
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, Plan { packets: 10_000, flows: 3_000, ..Plan::default() })?;
    let truth = oracle.attributed_where(|flow| flow.proto == 17);
    let mut config = library::small();
    config.sampling.packets = Packets::OneIn(RATE as u32);
    for view in ["{by: [src_ip]}", "{by: [src_ip], per: interface}", "{by: [dst_port], per: interface}"] {
        let view = format!("{{match: {{proto: udp}}, {}", &view[1..]);
        let name = format!("view{}", config.views.len());
        config.views.push(config.parse_view(&view, "a test", &name).map_err(|mistakes| anyhow!("{mistakes}"))?);
    }
    let mut sampled = config.views.iter().map(|_| Vec::new()).collect::<Vec<_>>();
    let mut missed = 0;
    for seed in 0..SEEDS {
        let reports = library::run_with(&config, std::slice::from_ref(&path), Windows::All, false, seed)?.reports;
        for (answer, sampled) in reports[0]["views"].as_array().context("views")?.iter().zip(&mut sampled) {
            let total = if answer["tables"].is_null() { &answer["total"] } else { &answer["tables"][0]["total"] };
            let bytes = total["bytes"]["sampled"].as_u64().context("what was sampled")?;
            sampled.push((bytes * RATE) as f64);
            missed += u64::from(!(holds(&total["packets"], truth.packets) && holds(&total["bytes"], truth.bytes)));
            let width = |bound: &str| total["packets"][bound].as_u64().context("a bound");
            ensure!(width("upper")? - width("lower")? < truth.packets, "the bounds say nothing: {total}");
        }
    }
    let alarm = chance::failures_that_alarm(SEEDS * sampled.len() as u64, 0.001);
    ensure!(missed < alarm, "{missed} totals of {SEEDS} draws have a false bound");
    for sampled in sampled {
        chance::unbiased(&sampled, truth.bytes as f64).map_err(Error::msg)?;
    }
    Ok(())
}

pub fn distinct_counts_hold() -> Result<()> {
    type Pairs = fn(&Key) -> Vec<(Value, Value)>;
    let questions: [(&str, Pairs); 4] = [
        ("{by: [src_ip], measure: {distinct: [dst_ip, dst_port]}}", |flow| {
            vec![(json!({"src_ip": flow.src}), json!([flow.dst, flow.dst_port]))]
        }),
        ("{by: [dst_port], measure: {distinct: src_ip}, match: {proto: tcp}}", |flow| {
            if flow.proto == 6 { vec![(json!({"dst_port": flow.dst_port}), json!(flow.src))] } else { Vec::new() }
        }),
        ("{measure: {distinct: dst_ip}, match: {ip_version: 6}}", |flow| {
            if flow.src.is_ipv6() { vec![(json!({}), json!(flow.dst))] } else { Vec::new() }
        }),
        ("{by: [proto], measure: flows}", |flow| {
            let ports = [flow.src_port, flow.dst_port];
            vec![(json!({"proto": flow.proto}), json!([flow.src, flow.dst, ports]))]
        }),
    ];
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, plan())?;
    let views: Vec<String> = questions.iter().map(|(view, _)| (*view).to_owned()).collect();
    let report = report(&path, &views, &[])?;
    for ((view, pairs), answer) in questions.iter().zip(report["views"].as_array().context("views")?) {
        let truths: HashMap<String, u64> = oracle
            .spread(|flow| pairs(flow).into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect());
        let rows = answer["rows"].as_array().context("rows")?;
        judge_distinct(rows, &truths).with_context(|| (*view).to_owned())?;
    }
    Ok(())
}

/// A smaller `error` makes the bounds of different values closer, and they still hold.
pub fn distinct_counts_are_as_exact_as_asked() -> Result<()> {
    type Of = fn(&Key) -> Value;
    let questions: [(&str, Of, [f64; 2]); 2] = [
        ("by: []", |_| json!({}), [0.002, 0.05]),
        ("by: [dst_port]", |flow| json!({"dst_port": flow.dst_port}), [0.03, 0.06]),
    ];
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, plan())?;
    for (by, key, errors) in questions {
        let views = errors.map(|error| format!("{{{by}, measure: {{distinct: src_ip}}, error: {error}}}"));
        let report = report(&path, &views, &[])?;
        let truths = oracle.spread(|flow| vec![(key(flow).to_string(), flow.src)]);
        let mut widths = Vec::new();
        for (view, answer) in views.iter().zip(report["views"].as_array().context("views")?) {
            let rows = answer["rows"].as_array().context("rows")?;
            judge_distinct(rows, &truths).with_context(|| view.clone())?;
            let width = |row: &Value| Some(row["distinct"]["upper"].as_f64()? - row["distinct"]["lower"].as_f64()?);
            widths.push(rows.iter().map(width).sum::<Option<f64>>().context("bounds")?);
        }
        let [close, wide] = widths[..] else { bail!("{} views", widths.len()) };
        ensure!(close < 0.9 * wide, "{views:?}: bounds are {close} and {wide} apart");
    }
    Ok(())
}

/// As long as all keys have counters, small counts are nearly exact: all but a few values are distinguished.
pub fn few_keys_are_counted_exactly() -> Result<()> {
    const VALUES_MAX: u64 = 3_000;
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, plan())?;
    let view = "{by: [proto, ip_version], measure: {distinct: src_port}}".to_owned();
    let truths = oracle.spread(|flow| {
        let version = if flow.src.is_ipv4() { 4 } else { 6 };
        vec![(json!({"proto": flow.proto, "ip_version": version}).to_string(), flow.src_port)]
    });
    let of_few_values = "{by: [src_ip], measure: {distinct: ip_version}}".to_owned();
    let report = report(&path, &[view, of_few_values], &[])?;
    let [rows, few] = [0, 1].map(|nth| report["views"][nth]["rows"].as_array());
    for row in few.context("rows")? {
        ensure!(holds(&row["distinct"], 1) && row["distinct"]["upper"].as_u64() <= Some(2), "{row}");
    }
    let rows = rows.context("rows")?;
    judge_distinct(rows, &truths)?;
    let mut counted = 0;
    for row in rows {
        let truth = truths[&key(row)?.to_string()];
        let [lower, upper] = ["lower", "upper"].map(|bound| row["distinct"][bound].as_u64().unwrap_or_default());
        if (1..=VALUES_MAX).contains(&truth) {
            ensure!(lower + 3 >= truth && upper - lower <= 12, "{row}, and it has {truth}");
            counted += u64::from(truth > 100);
        }
    }
    ensure!(counted > 0, "no row has more than 100: {truths:?}");
    Ok(())
}

/// The first window has only new flows, and every later one some that are known.
pub fn new_flows_by_key_are_those_that_did_not_come_before() -> Result<()> {
    type Keys = fn(&Key) -> Vec<Value>;
    let questions: [(&str, Keys); 4] = [
        ("{by: [src_ip], measure: new_flows}", |flow| vec![json!({"src_ip": flow.src})]),
        ("{by: [proto], measure: new_flows, top: 100}", |flow| vec![json!({"proto": flow.proto})]),
        ("{match: {ip_version: 4}, measure: new_flows}", |flow| only(flow.src.is_ipv4(), json!({}))),
        ("{by: [dst_port], match: {proto: [tcp, udp]}, measure: new_flows}", |flow| {
            only(matches!(flow.proto, 6 | 17), json!({"dst_port": flow.dst_port}))
        }),
    ];
    const WINDOWS: usize = 5;
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let packets: Vec<_> = Traffic::new(plan())?.collect();
    let schedule =
        Schedule { start: Duration::from_secs(1_700_000_000), packets_per_second: (packets.len() / WINDOWS) as u32 };
    let mut writer = Writer::new(BufWriter::new(File::create(&path)?), SNAPLEN_MAX)?;
    for (nth, packet) in (0..).zip(&packets) {
        writer.write(schedule.at(nth), &packet.frame)?;
    }
    writer.finish()?;
    let mut args: Vec<&str> = vec!["--json", "--window", "1s", "--seed", "7"];
    args.extend(questions.iter().flat_map(|(view, _)| ["--view", view]));
    args.push(text(&path));
    let reports = weir_replay(args)?.reports(DONE)?;
    ensure!(reports.len() == WINDOWS, "{} reports", reports.len());
    let mut seen = HashSet::new();
    for (nth, (report, packets)) in reports.iter().zip(packets.chunks(packets.len() / WINDOWS)).enumerate() {
        let flows = packets.iter().filter_map(|packet| Some(packet.truth.flow.ok()?.flow()));
        let new: Vec<Key> = flows.filter(|flow| seen.insert(*flow)).collect();
        ensure!(new.len() as u64 >= report["new_flows"]["lower"].as_u64().context("new flows")?);
        ensure!(nth == 0 || new.len() * 2 < packets.len(), "most flows of window {nth} are known");
        for ((view, keys), answer) in questions.iter().zip(report["views"].as_array().context("views")?) {
            let mut truths: HashMap<String, u64> = HashMap::new();
            for key in new.iter().flat_map(keys) {
                *truths.entry(key.to_string()).or_default() += 1;
            }
            judge_distinct(answer["rows"].as_array().context("rows")?, &truths)
                .with_context(|| format!("window {nth}: {view}"))?;
        }
    }
    Ok(())
}

pub fn any_key_can_be_asked_for() -> Result<()> {
    let scratch = Scratch::new()?;
    let path = scratch.path().join("views.pcap");
    let oracle = capture(&path, plan())?;
    let sources = oracle.grouped(|flow| vec![flow.src]);
    let mut some: Vec<_> = sources.iter().collect();
    some.sort_by_key(|(ip, _)| **ip);
    // Asks for large and small keys, and for one that did not occur.
    let asked: Vec<(IpAddr, Tally)> = some.iter().step_by(97).take(30).map(|(ip, tally)| (**ip, **tally)).collect();
    let nobody: IpAddr = "192.0.2.7".parse()?;
    let all: Vec<(IpAddr, Tally)> = asked.into_iter().chain([(nobody, Tally::default())]).collect();
    let asks: Vec<String> = all.iter().map(|(ip, _)| format!("src_ip={ip}")).collect();
    let mut args: Vec<&str> = asks.iter().flat_map(|ask| ["--ask", ask.as_str()]).collect();
    // The second view has only some of the traffic, and its name shows that.
    args.extend(["--ask", "src_ip=0.0.0.0/0", "--ask", "dst_port=443", "--ask", "proto=tcp,port=443"]);
    let views = ["{name: all, by: [src_ip/0]}", "{name: web, by: [dst_port], match: {proto: tcp}}"];
    let report = report(&path, &views.map(str::to_owned), &args)?;
    // Other lists with these keys answer, too.
    let of_sums = |answer: &&Value| !answer["bytes"].is_null();
    let answers: Vec<&Value> = report["answers"].as_array().context("answers")?.iter().filter(of_sums).collect();
    ensure!(answers.len() == all.len() + 3, "{} answers", answers.len());
    let v4 = oracle.attributed_where(|flow| flow.src.is_ipv4());
    let web = oracle.attributed_where(|flow| flow.proto == 6 && flow.dst_port == 443);
    for (answer, (view, truth)) in answers[all.len()..].iter().zip([("all", v4), ("web", web)]) {
        ensure!(
            answer["view"] == view && holds(&answer["bytes"], truth.bytes) && truth.bytes > 0,
            "{answer}: {truth:?}"
        );
    }
    ensure!(answers.iter().all(|answer| answer.get("rank").is_none()), "an answer has a rank, but is in no list");
    for ((ip, truth), answer) in all.iter().zip(&answers) {
        ensure!(answer["src_ip"] == ip.to_string() && answer["view"] == "sources", "{answer} is not about {ip}");
        ensure!(
            holds(&answer["packets"], truth.packets) && holds(&answer["bytes"], truth.bytes),
            "{answer}: {truth:?}"
        );
    }
    let web = oracle.attributed_where(|flow| flow.proto == 6 && port(flow) == 443);
    let answer = answers.last().context("an answer")?;
    ensure!(answer["proto"] == "tcp" && answer["port"] == 443, "{answer}");
    ensure!(holds(&answer["bytes"], web.bytes) && web.bytes > 0, "{answer}: {web:?}");
    Ok(())
}
