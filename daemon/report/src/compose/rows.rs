//! Makes the rows of views, of lists of floods and scans, and of answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use weir_config::view::{Measure, Standard, ViewKey};
use weir_datapath::interface::MeasuredInterface;
use weir_measure::{
    answer::{Answer, Rows, Table},
    entropy::Entropy as Measured,
    hosts::HostNumbers,
    look_up::{KeyAnswer, KeyValue},
    question::{Question, Views},
    ranking::Ranked,
};
use weir_schema::{Bits, Entropy, Estimate, Row, Spread, Sums, View, ViewTable};
use weir_sketch::{Estimate as Sketched, hyperloglog::CONFIDENCE};

use super::{estimates, host_numbers};

/// The lists of floods and scans from these answers. Lists that are switched off are empty.
pub(super) fn spread(plan: &Views, answers: &[Answer], interfaces: &[MeasuredInterface]) -> Spread {
    let mut confidence = CONFIDENCE;
    let mut list = |standard| {
        let Some(answer) = plan.standard(standard).and_then(|nth| answers.get(nth).zip(plan.questions.get(nth))) else {
            return Vec::new();
        };
        let (answer, question) = answer;
        confidence = answer.confidence;
        answer
            .tables
            .first()
            .map(|table| rows(plan, question, &table.rows, &answer.hosts, interfaces))
            .unwrap_or_default()
    };
    Spread {
        sources_per_destination: list(Standard::SourcesPerDestination),
        destinations_per_source: list(Standard::DestinationsPerSource),
        ports_per_source: list(Standard::PortsPerSource),
        confidence,
    }
}

/// The answers for the requested keys.
pub fn answers(plan: &Views, found: &[KeyAnswer], interfaces: &[MeasuredInterface]) -> Vec<Row> {
    let answer = |KeyAnswer { view: nth, key, known, host }: &KeyAnswer| {
        let Question { by, view, .. } = &plan.questions[*nth];
        let key = by.layout.show(key, plan.facts(), |slot, shown| show_interface(slot, interfaces, shown));
        let row = match known {
            KeyValue::Sums(sums) => of_sums(sums).with_host(host.map(|numbers| host_numbers(&numbers, sums))),
            KeyValue::Counted(count) => of_count(&view.measure, *count),
        };
        Row { view: Some(view.name.clone()), key, ..row }
    };
    found.iter().map(answer).collect()
}

/// The user's views in the order of the configuration, then the standard views with tables of interfaces.
pub(super) fn views(plan: &Views, answers: &[Answer], interfaces: &[MeasuredInterface]) -> Vec<View> {
    let views = plan.in_views().filter_map(|(nth, question)| Some((question, answers.get(nth)?)));
    views.map(|(question, answer)| view(plan, question, answer, interfaces)).collect()
}

/// A view with its tables.
pub(super) fn view(plan: &Views, question: &Question, answer: &Answer, interfaces: &[MeasuredInterface]) -> View {
    let view = &question.view;
    let rows = |table: &Table| rows(plan, question, &table.rows, &answer.hosts, interfaces);
    let table = |table: &Table| {
        let found = interfaces.iter().find(|interface| interface.slot.is_some() && interface.slot == table.slot);
        ViewTable {
            interface: found.map_or_else(|| "?".to_owned(), |interface| interface.name.clone()),
            direction: found.and_then(|interface| interface.direction).map(str::to_owned),
            total: table.total.as_ref().map(sums),
            rows: rows(table),
        }
    };
    let total = answer.tables.first().and_then(|table| table.total.as_ref()).map(sums);
    let (one, each) = if view.per_interface {
        (None, Some(answer.tables.iter().map(table).collect()))
    } else {
        (Some(answer.tables.first().map(rows).unwrap_or_default()), None)
    };
    View {
        name: view.name.clone(),
        question: Some(question.fingerprint.to_string()),
        by: view.by.iter().map(ToString::to_string).collect(),
        measure: if view.of_hosts { json!("hosts") } else { serde_json::to_value(&view.measure).unwrap_or_default() },
        counted: if question.is_fed_by_all { "per_interface" } else { "once" }.to_owned(),
        confidence: answer.confidence,
        total: total.filter(|_| !view.per_interface),
        entropy: answer.entropy.as_ref().map(entropy),
        unlisted: answer.ranking().and_then(|ranking| ranking.unlisted).map(|most| match view.measure {
            Measure::Packets => most.packets,
            _ => most.bytes,
        }),
        rows: one,
        tables: each,
    }
}

fn entropy(entropy: &Measured) -> Entropy {
    /// Bits are rounded to this precision, and bounds outwards.
    const PARTS: f64 = 1e6;
    let Measured { value, lower, upper, keys, confidence } = *entropy;
    let bits = Bits {
        value: (value * PARTS).round() / PARTS,
        lower: (lower * PARTS).floor() / PARTS,
        upper: (upper * PARTS).ceil() / PARTS,
    };
    let normalized = (entropy.normalized() * PARTS).round() / PARTS;
    Entropy { bits, normalized, keys: Estimate::new(keys, None), confidence }
}

fn rows(
    plan: &Views,
    question: &Question,
    rows: &Rows,
    hosts: &BTreeMap<ViewKey, HostNumbers>,
    interfaces: &[MeasuredInterface],
) -> Vec<Row> {
    let key = |key: &ViewKey| {
        let mut shown =
            question.by.layout.show(key, plan.facts(), |slot, shown| show_interface(slot, interfaces, shown));
        if question.view.per_interface {
            // The table already states the interface.
            shown.remove("interface");
            shown.remove("direction");
        }
        shown
    };
    match rows {
        // A standard view, which is a list of `top`.
        Rows::Prefixes(_) => Vec::new(),
        Rows::Tallies(ranking) => {
            let ranked =
                if question.view.measure == Measure::Packets { &ranking.by_packets } else { &ranking.by_bytes };
            let row = |(rank, row): (u32, &Ranked<ViewKey>)| {
                let host = hosts.get(&row.key).map(|numbers| host_numbers(numbers, row));
                Row { rank: Some(rank), key: key(&row.key), ..of_sums(row) }.with_host(host)
            };
            (1..).zip(ranked).map(row).collect()
        }
        Rows::Distinct(counted) => {
            let row = |(rank, (row, count)): (u32, &(ViewKey, Sketched))| Row {
                rank: Some(rank),
                key: key(row),
                ..of_count(&question.view.measure, *count)
            };
            (1..).zip(counted).map(row).collect()
        }
    }
}

fn show_interface(slot: usize, interfaces: &[MeasuredInterface], shown: &mut Map<String, Value>) {
    let found = interfaces.iter().find(|interface| interface.slot == Some(slot));
    shown.insert("interface".to_owned(), json!(found.map_or("?", |interface| interface.name.as_str())));
    if let Some(direction) = found.and_then(|interface| interface.direction) {
        shown.insert("direction".to_owned(), json!(direction));
    }
}

fn sums<K>(ranked: &Ranked<K>) -> Sums {
    let [packets, bytes] = estimates(ranked);
    Sums { packets, bytes }
}

/// A row of packets and bytes, without a key yet.
fn of_sums<K>(ranked: &Ranked<K>) -> Row {
    let [packets, bytes] = estimates(ranked);
    Row { packets: Some(packets), bytes: Some(bytes), ..Row::default() }
}

/// A row of flows, new flows or distinct values, without a key yet.
fn of_count(measure: &Measure, count: Sketched) -> Row {
    let counted = Some(Estimate::new(count, None));
    match measure {
        Measure::Flows => Row { flows: counted, ..Row::default() },
        Measure::NewFlows => Row { new_flows: counted, ..Row::default() },
        _ => Row { distinct: counted, ..Row::default() },
    }
}
