//! Alerts in a report.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use weir_system::text::escaped;

use super::grid::{
    Align::Left,
    Cell, Grid,
    Tone::{Alarm, Faint, Plain, Strong},
};
use super::{Report, instant};

/// The result of a rule of the configuration for this window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Alert {
    /// The name of the rule.
    pub rule: String,
    /// The condition, as in the configuration: a number, an operator, a limit.
    pub when: String,
    /// `pending`: the condition holds, but not for long enough. `firing`: it has held for long enough. `clearing`: it
    /// no longer holds, but not for long enough. `cleared`: the alert ended with this window. `withdrawn`: the alert
    /// ends because the next configuration does not have the rule, or its view asks another question then.
    pub state: String,
    /// `begins` if the alert begins with this window, `ends` if it ends. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// The start of the first window in which the condition held.
    #[serde(serialize_with = "instant::fixed")]
    pub since: Timestamp,
    /// How many windows were judged since then, including this one.
    #[schemars(range(min = 1))]
    pub windows: u64,
    /// How many windows in a row it takes to begin the alert, and to end it.
    #[serde(rename = "for")]
    #[schemars(range(min = 1))]
    pub needed: u32,
    /// The limit for ending: the alert ends when no number is beyond it.
    #[serde(serialize_with = "plain")]
    pub clear: f64,
    /// The unit of the limits and of the numbers in `evidence`. Absent if they have the units of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The numbers that decided, the farthest beyond the limit first; 10 at most. Empty if the report has no such
    /// number.
    pub evidence: Vec<Evidence>,
    /// How many more numbers are beyond the limit. Absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

impl Report {
    /// The rules whose alerts were firing in this window, even if their condition did not hold any more.
    pub fn firing(&self) -> impl Iterator<Item = &str> {
        self.alerts.iter().filter(|alert| is_firing(&alert.state)).map(|alert| alert.rule.as_str())
    }
}

/// Returns true if an alert with this state was firing.
pub fn is_firing(state: &str) -> bool {
    matches!(state, "firing" | "clearing")
}

/// A number that decided, with the key of its row, or its interface and direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// The fields of its key.
    #[serde(flatten)]
    pub key: Map<String, Value>,
    /// The value of the number in the window.
    #[serde(serialize_with = "plain")]
    pub value: f64,
    /// The true number is at least this, at the confidence that the report states for it. An upper limit is compared
    /// with this bound.
    #[serde(serialize_with = "plain")]
    pub lower: f64,
    /// The true number is at most this. A lower limit is compared with this bound. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "plain_or_none")]
    pub upper: Option<f64>,
}

pub(super) const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Writes a whole number without a fraction, if the float represents it exactly.
fn plain<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const WHOLE_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    if number.fract() == 0.0 && (0.0..WHOLE_MAX).contains(number) {
        serializer.serialize_u64(*number as u64)
    } else {
        serializer.serialize_f64(*number)
    }
}

fn plain_or_none<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => plain(number, serializer),
        None => serializer.serialize_none(),
    }
}

impl Evidence {
    /// The owner of the number, in words that are safe to print on a terminal. Empty if the number is about all
    /// traffic.
    pub fn holder(&self) -> String {
        let field = |(name, value): (&String, &Value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        };
        let fields: Vec<_> = self.key.iter().map(field).collect();
        escaped(&fields.join(", "))
    }

    /// The number in this unit, with its bounds if it has any.
    pub fn amount(&self, unit: Option<&str>) -> String {
        let Self { key: _, value, lower, upper } = self;
        let unit = unit.map_or_else(String::new, |unit| format!(" {unit}"));
        match upper {
            Some(upper) if lower == upper => format!("{value}{unit}"),
            Some(upper) => format!("{value} ({lower} to {upper}){unit}"),
            None if lower == value => format!("at least {value}{unit}"),
            None => format!("{value} (at least {lower}){unit}"),
        }
    }
}

/// A block for each alert: its rule and state, the condition, and the numbers that decided.
pub(super) fn grid(alerts: &[Alert]) -> Grid {
    let mut grid = Grid::new([Left, Left, Left]);
    for Alert { rule, when, state, change, since, windows, needed, clear: _, unit, evidence, more } in alerts {
        let tone = if matches!(state.as_str(), "firing" | "clearing") { Alarm } else { Plain };
        let said = match (state.as_str(), change.as_deref()) {
            ("pending", _) => format!("pending, {windows} of {needed} windows"),
            ("firing", Some(_)) => "firing, begins with this window".to_owned(),
            ("cleared", _) => "cleared with this window".to_owned(),
            ("withdrawn", _) => "withdrawn: another configuration".to_owned(),
            (state, _) => state.to_owned(),
        };
        let since = format!("since {} UTC", since.strftime("%Y-%m-%d %H:%M:%S"));
        grid.across([Cell::new(rule, Strong), Cell::new(said, tone), Cell::new(since, Faint)]);
        grid.row([Cell::default(), Cell::new(when, tone)]);
        for one in evidence {
            grid.row([Cell::default(), one.holder().into(), one.amount(unit.as_deref()).into()]);
        }
        if *more > 0 {
            grid.row([Cell::default(), Cell::new(format!("… and {more} more"), Faint)]);
        }
    }
    grid
}
