//! One key is one row: with generated views and odd packets, no list shows a key twice, the order of fields makes no
//! difference, and every row of a list can be asked for.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Map, Value, json};
use weir::replay::{Options, Windows, replay, write_json};
use weir_config::{Config, Packets, view::Field};
use weir_sketch::hash::mix;
use weir_tests::{
    oracle::{Dimension, Oracle},
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::{
    command::capture,
    library::{self, SEED},
};

/// Some prefixes, besides every field.
const PREFIXES: [&str; 3] = ["src_ip/16", "dst_ip/24/56", "host/12"];
/// The fields of a flow: the order of the standard list is among the drawn ones.
const FLOW: [&str; 5] = ["src_ip", "dst_ip", "src_port", "dst_port", "proto"];
const MEASURES: [&str; 6] =
    ["bytes", "packets", "flows", "new_flows", "{distinct: dst_ip}", "{distinct: [src_port, proto]}"];
const MATCHES: [&str; 4] =
    ["", "match: {fragment: true}, ", "match: {proto: [udp, icmp]}, ", "match: {not: {vlan: 0}}, "];
/// Pairs of a view and the same view with its fields in another order.
const PAIRS: usize = 12;
/// The measures that a row may have.
const AMOUNTS: [&str; 5] = ["packets", "bytes", "flows", "new_flows", "distinct"];

/// A number below `limit`, from a stream of them.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 += 1;
        (mix(self.0) % limit as u64) as usize
    }

    fn shuffled<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        let mut items = items.to_vec();
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
        items
    }
}

/// A few flows with every oddity, so that a flow has whole packets, fragments and damaged ones.
fn plan(seed: u64) -> Plan {
    Plan { seed, packets: 20_000, flows: 400, mix: Mix::odd(), ..Plan::default() }
}

/// A configuration with pairs of random views that its check accepts.
fn config(draw: &mut Draw) -> Result<Config> {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let text = format!(
        "networks: {{ten: {{prefixes: [10.0.0.0/9], own: true}}, six: {{prefixes: [\"2001:db8::/33\"]}}}}\n\
         geo: {{asn: {corpus}/asn.mmdb, country: {corpus}/country.mmdb}}\nreport: {{top: 100}}"
    );
    let mut config = Config::parse(&text, "a test").map_err(|mistakes| anyhow!("{mistakes}"))?;
    let all: Vec<&str> = Field::names().chain(PREFIXES).collect();
    let mut pairs = 0;
    while pairs < PAIRS {
        let fields = match draw.below(4) {
            0 => FLOW.to_vec(),
            _ => {
                let count = 1 + draw.below(5);
                draw.shuffled(&all)[..count].to_vec()
            }
        };
        let measure = MEASURES[draw.below(MEASURES.len())];
        let matches = MATCHES[draw.below(MATCHES.len())];
        let per = ["", ", per: interface"][draw.below(2)];
        let orders = [fields.clone(), draw.shuffled(&fields)];
        let views = orders.map(|fields| {
            let view = format!("{{{matches}by: [{}], measure: {measure}{per}}}", fields.join(", "));
            let name = format!("view{}", config.views.len());
            config.parse_view(&view, "a test", &name)
        });
        // Views that make no sense, such as two prefix lengths of one address, are refused.
        let [Ok(one), Ok(mut other)] = views else { continue };
        other.name = format!("view{}", config.views.len() + 1);
        config.views.extend([one, other]);
        pairs += 1;
    }
    Ok(config)
}

fn report(config: &Config, path: &Path, asks: Vec<String>) -> Result<Value> {
    let options = Options {
        files: vec![path.to_owned()],
        windows: Windows::All,
        kernel: false,
        seed: Some(SEED),
        asks,
        progress: false,
    };
    let mut lines = Vec::new();
    replay(config, &options, &mut |report| write_json(report, &mut lines))?;
    library::reports(&lines)?.pop().context("a report")
}

/// A list of the report: its view, the heading fields of its table, and its rows.
struct List<'a> {
    view: &'a str,
    above: Map<String, Value>,
    rows: &'a [Value],
}

/// Every list of a report.
fn lists(report: &Value) -> Vec<List<'_>> {
    let mut all = Vec::new();
    for section in ["top", "top_by_packets", "spread"] {
        for (name, rows) in report[section].as_object().into_iter().flatten() {
            all.extend(rows.as_array().map(|rows| List { view: name, above: Map::new(), rows }));
        }
    }
    for view in report["views"].as_array().into_iter().flatten() {
        let name = view["name"].as_str().unwrap_or_default();
        all.extend(view["rows"].as_array().map(|rows| List { view: name, above: Map::new(), rows }));
        for table in view["tables"].as_array().into_iter().flatten() {
            let above = ["interface", "direction"].iter().filter_map(|field| {
                Some(((*field).to_owned(), table.get(*field).filter(|value| !value.is_null())?.clone()))
            });
            all.extend(table["rows"].as_array().map(|rows| List { view: name, above: above.collect(), rows }));
        }
    }
    all
}

/// The key of a row.
fn key(row: &Value) -> Map<String, Value> {
    let mut key = row.as_object().cloned().unwrap_or_default();
    key.retain(|name, _| !weir_schema::NOT_KEY.contains(&&**name));
    key
}

/// The key of a row in the form for `--ask`.
fn asked(List { view, above, .. }: &List<'_>, row: &Value) -> String {
    let fields = above.clone().into_iter().chain(key(row));
    let fields: Vec<_> = fields
        .map(|(field, value)| match value {
            Value::String(text) => format!("{field}={text}"),
            other => format!("{field}={other}"),
        })
        .collect();
    if fields.is_empty() { format!("view={view}") } else { fields.join(",") }
}

/// The lower and the upper bound of an amount.
fn bounds(row: &Value, amount: &str) -> Option<[u64; 2]> {
    Some([row[amount]["lower"].as_u64()?, row[amount]["upper"].as_u64()?])
}

pub fn no_list_shows_a_key_twice() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut draw = Draw(1);
    let mut shared = 0;
    for round in 0..4 {
        let path = scratch.path().join(format!("keys{round}.pcap"));
        let oracle = capture(&path, plan(round))?;
        ensure!(has_fragments_beside_whole_packets(&oracle), "no flow has both whole packets and fragments");
        let report = report(&config(&mut draw)?, &path, Vec::new())?;
        oracle.check_report(&report).map_err(|deviations| anyhow!("{}", deviations.join("\n")))?;
        let mut rows: BTreeMap<(&str, String), BTreeMap<String, &Value>> = BTreeMap::new();
        for list in lists(&report) {
            let mut keys = BTreeMap::new();
            for row in list.rows {
                let twice = keys.insert(Value::from(key(row)).to_string(), row);
                ensure!(twice.is_none(), "{}: {row} beside {}", list.view, twice.unwrap_or(&Value::Null));
            }
            rows.insert((list.view, Value::from(list.above).to_string()), keys);
        }
        for nth in (0..2 * PAIRS).step_by(2) {
            let [one, other] = [nth, nth + 1].map(|nth| format!("view{nth}"));
            let tables = rows.iter().filter(|((view, _), _)| *view == one);
            for ((_, above), keys) in tables {
                let other = rows.get(&(other.as_str(), above.clone())).context("the same tables")?;
                for (key, row) in keys {
                    let Some(again) = other.get(key) else { continue };
                    for amount in AMOUNTS {
                        let Some(([low, high], [least, most])) = bounds(row, amount).zip(bounds(again, amount)) else {
                            continue;
                        };
                        ensure!(low <= most && least <= high, "in another order {row} is {again}");
                        shared += 1;
                    }
                }
            }
        }
    }
    ensure!(shared > 1_000, "only {shared} rows are in both orders");
    Ok(())
}

/// Returns true if a flow has both whole packets and fragments, so that a key that tells them apart has two rows.
fn has_fragments_beside_whole_packets(oracle: &Oracle) -> bool {
    let classes = oracle.grouped(|flow| vec![*flow]).len() as u64;
    classes > oracle.distinct(Dimension::Flows) + 10
}

pub fn every_listed_row_can_be_asked_for() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut draw = Draw(1_000);
    for (round, sampling) in [(0, Packets::OneIn(1)), (1, Packets::OneIn(1)), (2, Packets::OneIn(4))] {
        let path = scratch.path().join(format!("keys{round}.pcap"));
        capture(&path, plan(round))?;
        let mut config = config(&mut draw)?;
        config.sampling.packets = sampling;
        let listed = report(&config, &path, Vec::new())?;
        let lists = lists(&listed);
        let asks = lists.iter().flat_map(|list| list.rows.iter().map(|row| asked(list, row))).collect();
        let answered = report(&config, &path, asks)?;
        let mut answers: BTreeMap<(&str, String), Vec<&Value>> = BTreeMap::new();
        for answer in answered["answers"].as_array().context("answers")? {
            let view = answer["view"].as_str().context("a view")?;
            answers.entry((view, Value::from(key(answer)).to_string())).or_default().push(answer);
        }
        let mut rows = 0;
        for list in &lists {
            for row in list.rows {
                let mut wanted: Map<String, Value> = list.above.clone().into_iter().chain(key(row)).collect();
                // The field of the key has another name in lists of networks than in views.
                if let Some(prefix) = wanted.remove("prefix") {
                    let side = if list.view == "source_prefixes" { "src_ip" } else { "dst_ip" };
                    wanted.insert(side.to_owned(), prefix);
                }
                let wanted = json!(wanted).to_string();
                let own = answers.get(&(list.view, wanted.clone()));
                // If two views share a sketch, only one of them answers.
                let others = answers.iter().filter(|((_, key), _)| *key == wanted).flat_map(|(_, found)| found);
                let found: Vec<&&Value> = own.map_or_else(|| others.collect(), |own| own.iter().collect());
                let agrees = |answer: &&&Value| {
                    AMOUNTS.iter().all(|amount| match (bounds(row, amount), bounds(answer, amount)) {
                        (Some([low, high]), Some([least, most])) => low <= least && most <= high,
                        (None, None) => true,
                        _ => false,
                    })
                };
                ensure!(
                    found.iter().any(agrees),
                    "{} has {row}, and {:?} is answered by {found:?}",
                    list.view,
                    asked(list, row)
                );
                rows += 1;
            }
        }
        ensure!(rows > 1_000, "{rows} rows were asked for");
    }
    Ok(())
}
