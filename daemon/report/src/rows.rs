//! Rows in a report. Views, lists of floods and scans, and answers have the same form of row.

use std::iter;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use weir_config::view::{Measure, Standard, ViewKey};
use weir_datapath::interface::MeasuredInterface;
use weir_measure::{
    answer::{Answer, Rows, Table},
    entropy::Entropy as Measured,
    look_up::{KeyAnswer, KeyValue},
    question::{Question, Views},
    ranking::Ranked,
};
use weir_sketch::{Estimate as Sketched, hyperloglog::CONFIDENCE};

use super::Estimate;

/// The result of a view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct View {
    /// Its name.
    pub name: String,
    /// The fingerprint of the question: 16 hex digits. Two answers can be added up only if theirs are equal, and then
    /// `match`, `by`, `measure`, `per` and everything that they refer to (networks, databases, tunnels) mean the same.
    /// Routers with the same configuration have the same one. Absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub question: Option<String>,
    /// The fields that make a row's key.
    pub by: Vec<String>,
    /// The measure: `bytes` or `packets` (rows have both, and this one orders them), `flows`, `new_flows`, or
    /// `distinct` with the fields whose different values are counted.
    #[schemars(with = "serde_json::Value")]
    pub measure: Value,
    /// `once`: each packet counts once, on however many interfaces it was seen. `per_interface`: a packet counts on
    /// each interface, because the view distinguishes interfaces.
    pub counted: String,
    /// The probability that the true numbers of all rows and totals lie between their bounds, 0 to 1; 1 if they always
    /// do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// All packets and bytes that the view matched. The rows are parts of it. Absent if each interface has its own
    /// table, and if flows or different values are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Sums>,
    /// How evenly packets or bytes are spread over all keys, listed or not. Absent if the view does not have `entropy:
    /// true`, and if nothing matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy: Option<Entropy>,
    /// The rows, the largest first. Absent if each interface has its own table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<Row>>,
    /// The most that a key without a row has, in bytes or packets as the rows are ordered. Absent if each interface has
    /// its own table, and if flows or different values are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<u64>,
    /// A table for each interface and direction that has rows. Absent if there is one table for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<Vec<ViewTable>>,
}

/// The rows of one interface and direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ViewTable {
    /// The interface's name.
    pub interface: String,
    /// `ingress` or `egress`; absent for a capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// All packets and bytes that the view matched there. The rows are parts of it. Absent if flows or different values
    /// are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Sums>,
    /// The rows, the largest first.
    pub rows: Vec<Row>,
}

/// Shannon's entropy of the distribution of packets or bytes over keys: 0 if one key has everything, and log2 of the
/// number of keys if all keys have the same amount.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entropy {
    /// The entropy in bits.
    pub bits: Bits,
    /// The entropy divided by the entropy of the same number of equal keys, 0 to 1; 0 if there is one key.
    #[schemars(range(min = 0, max = 1))]
    pub normalized: f64,
    /// How many different keys there are.
    pub keys: Estimate,
    /// The probability that the true numbers of bits and keys lie between their bounds, 0 to 1; 1 if they always do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
}

/// A number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bits {
    /// The estimate.
    #[schemars(range(min = 0))]
    pub value: f64,
    /// The true number is at least this, at the stated confidence.
    #[schemars(range(min = 0))]
    pub lower: f64,
    /// The true number is at most this, at the stated confidence.
    #[schemars(range(min = 0))]
    pub upper: f64,
}

impl Entropy {
    fn new(entropy: &Measured) -> Self {
        /// Bits are rounded to this precision, and bounds outwards.
        const PARTS: f64 = 1e6;
        let Measured { value, lower, upper, keys, confidence } = *entropy;
        let bits = Bits {
            value: (value * PARTS).round() / PARTS,
            lower: (lower * PARTS).floor() / PARTS,
            upper: (upper * PARTS).ceil() / PARTS,
        };
        let normalized = (entropy.normalized() * PARTS).round() / PARTS;
        Self { bits, normalized, keys: Estimate::new(keys, None), confidence }
    }
}

/// All packets and bytes that a view matched. A packet counts once, even if it counts in two rows (`host`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sums {
    /// Packets.
    pub packets: Estimate,
    /// Bytes on the wire.
    pub bytes: Estimate,
}

/// One row of a view, of a list of floods or scans, or of the answers: the fields of its key by name, and the measured
/// numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Its rank in the list, from 1. Absent in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The name of the view that answers. Only in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// The fields of its key.
    #[serde(flatten)]
    pub key: Map<String, Value>,
    /// Packets. In the answer for a key that no list has, any number between the bounds is possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Estimate>,
    /// Bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Estimate>,
    /// Different flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Estimate>,
    /// Flows that were not seen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_flows: Option<Estimate>,
    /// Different values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<Estimate>,
}

/// Addresses with many different peers or ports: floods and scans. Each list has the largest rows, with bounds that
/// hold for all of them together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The probability that the true numbers of all rows of a list lie between their bounds, 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// Destinations by the number of different sources that send to them. A flooded destination has many.
    pub sources_per_destination: Vec<Row>,
    /// Sources by the number of different destinations that they send to. A scanner of a network has many.
    pub destinations_per_source: Vec<Row>,
    /// Sources by the number of different destination ports that they send to. A scanner of hosts has many.
    pub ports_per_source: Vec<Row>,
}

impl Spread {
    /// The lists from these answers. Lists that are switched off are empty.
    pub fn new(plan: &Views, answers: &[Answer], interfaces: &[MeasuredInterface]) -> Self {
        let mut confidence = CONFIDENCE;
        let mut list = |standard| {
            let Some(answer) = plan.standard(standard).and_then(|nth| answers.get(nth).zip(plan.questions.get(nth)))
            else {
                return Vec::new();
            };
            let (answer, question) = answer;
            confidence = answer.confidence;
            answer.tables.first().map(|table| rows(plan, question, &table.rows, interfaces)).unwrap_or_default()
        };
        Self {
            sources_per_destination: list(Standard::SourcesPerDestination),
            destinations_per_source: list(Standard::DestinationsPerSource),
            ports_per_source: list(Standard::PortsPerSource),
            confidence,
        }
    }
}

/// The answers for the requested keys.
pub fn answers(plan: &Views, found: &[KeyAnswer], interfaces: &[MeasuredInterface]) -> Vec<Row> {
    let answer = |KeyAnswer { view: nth, key, known }: &KeyAnswer| {
        let Question { by, view, .. } = &plan.questions[*nth];
        let key = by.show(key, plan.facts(), |slot, shown| show_interface(slot, interfaces, shown));
        let row = match known {
            KeyValue::Sums(sums) => Row::of_sums(sums),
            KeyValue::Counted(count) => Row::of_count(&view.measure, *count),
        };
        Row { view: Some(view.name.clone()), ..row.of(None, key) }
    };
    found.iter().map(answer).collect()
}

impl View {
    /// Its tables, each with its total and rows: one table for all, or one for each interface and direction.
    pub fn parts(&self) -> impl Iterator<Item = (Option<&ViewTable>, Option<&Sums>, &[Row])> {
        let whole = (None, self.total.as_ref(), self.rows.as_deref().unwrap_or_default());
        let tables = self.tables.iter().flatten().map(|table| (Some(table), table.total.as_ref(), &table.rows[..]));
        iter::once(whole).chain(tables)
    }

    /// Whether its rows become series in metrics databases. Such a database keeps a series for every key that ever had
    /// a row, so rows of addresses are exported only on request.
    pub fn has_series(&self) -> bool {
        self.name != Standard::Talkers.name()
    }

    /// The user's views in the order of the configuration, then the standard views with tables of interfaces.
    pub fn all(plan: &Views, answers: &[Answer], interfaces: &[MeasuredInterface]) -> Vec<Self> {
        let views = plan.in_views().filter_map(|(nth, question)| Some((question, answers.get(nth)?)));
        views.map(|(question, answer)| Self::new(plan, question, answer, interfaces)).collect()
    }

    pub(super) fn new(plan: &Views, question: &Question, answer: &Answer, interfaces: &[MeasuredInterface]) -> Self {
        let view = &question.view;
        let rows = |table: &Table| rows(plan, question, &table.rows, interfaces);
        let table = |table: &Table| {
            let found = interfaces.iter().find(|interface| interface.slot.is_some() && interface.slot == table.slot);
            ViewTable {
                interface: found.map_or_else(|| "?".to_owned(), |interface| interface.name.clone()),
                direction: found.and_then(|interface| interface.direction).map(str::to_owned),
                total: table.total.as_ref().map(Sums::new),
                rows: rows(table),
            }
        };
        let total = answer.tables.first().and_then(|table| table.total.as_ref()).map(Sums::new);
        let (one, each) = if view.per_interface {
            (None, Some(answer.tables.iter().map(table).collect()))
        } else {
            (Some(answer.tables.first().map(rows).unwrap_or_default()), None)
        };
        Self {
            name: view.name.clone(),
            question: Some(question.fingerprint.to_string()),
            by: view.by.iter().map(ToString::to_string).collect(),
            measure: serde_json::to_value(&view.measure).unwrap_or_default(),
            counted: if question.is_fed_by_all { "per_interface" } else { "once" }.to_owned(),
            confidence: answer.confidence,
            total: total.filter(|_| !view.per_interface),
            entropy: answer.entropy.as_ref().map(Entropy::new),
            unlisted: answer.ranking().and_then(|ranking| ranking.unlisted).map(|most| match view.measure {
                Measure::Packets => most.packets,
                _ => most.bytes,
            }),
            rows: one,
            tables: each,
        }
    }
}

fn rows(plan: &Views, question: &Question, rows: &Rows, interfaces: &[MeasuredInterface]) -> Vec<Row> {
    let key = |key: &ViewKey| {
        let mut shown = question.by.show(key, plan.facts(), |slot, shown| show_interface(slot, interfaces, shown));
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
            (1..).zip(ranked).map(|(rank, row)| Row::of_sums(row).of(Some(rank), key(&row.key))).collect()
        }
        Rows::Distinct(counted) => {
            let row = |(rank, (row, count)): (u32, &(ViewKey, Sketched))| {
                Row::of_count(&question.view.measure, *count).of(Some(rank), key(row))
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

impl Sums {
    fn new<K>(sums: &Ranked<K>) -> Self {
        let Ranked { key: _, packets, bytes, sampled } = sums;
        Self {
            packets: Estimate::new(*packets, sampled.map(|sampled| sampled.packets)),
            bytes: Estimate::new(*bytes, sampled.map(|sampled| sampled.bytes)),
        }
    }
}

impl Row {
    /// A row of packets and bytes, without a key yet.
    fn of_sums<K>(row: &Ranked<K>) -> Self {
        let Sums { packets, bytes } = Sums::new(row);
        Self { packets: Some(packets), bytes: Some(bytes), ..Self::default() }
    }

    /// A row of flows, new flows or distinct values, without a key yet.
    fn of_count(measure: &Measure, count: Sketched) -> Self {
        let counted = Some(Estimate::new(count, None));
        match measure {
            Measure::Flows => Self { flows: counted, ..Self::default() },
            Measure::NewFlows => Self { new_flows: counted, ..Self::default() },
            _ => Self { distinct: counted, ..Self::default() },
        }
    }

    /// Adds the rank and the key.
    fn of(self, rank: Option<u32>, key: Map<String, Value>) -> Self {
        Self { rank, key, ..self }
    }
}
