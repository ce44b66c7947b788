//! The alerts of several windows, each with the numbers that were farthest beyond its limit.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Union;
use crate::{
    Alert, Evidence, Report,
    alert::{is_firing, is_zero},
    alerting::EVIDENCE_MAX,
    instant,
};

/// An alert that was firing in some of the windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastAlert {
    /// The name of the rule.
    pub rule: String,
    /// Its condition.
    pub when: String,
    /// The start of the first window in which it was firing, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub start: Timestamp,
    /// The end of the last one.
    #[serde(serialize_with = "instant::fixed")]
    pub end: Timestamp,
    /// In how many windows it was firing.
    pub windows: u64,
    /// The unit of the numbers in `evidence`. Absent if they have the units of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The numbers that decided, the farthest beyond the limit first; of each key the farthest one of all windows; 10
    /// at most. They say who, whom, and which port, as far as the rule is about these.
    pub evidence: Vec<Evidence>,
    /// How many more numbers were beyond the limit, at least. Absent if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u64,
}

impl PastAlert {
    /// The alerts that were firing in the window of a report.
    pub(super) fn of(report: &Report) -> Vec<Self> {
        let (start, end) = (report.window.start, report.window.end);
        let past = |Alert { rule, when, unit, evidence, more, .. }: Alert| Self {
            rule,
            when,
            start,
            end,
            windows: 1,
            unit,
            evidence,
            more,
        };
        report.alerts.iter().filter(|alert| is_firing(&alert.state)).cloned().map(past).collect()
    }

    /// The alerts of all parts. One rule with another condition is another alert.
    pub(super) fn join(parts: &[Union]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for alert in parts.iter().flat_map(|part| &part.alerts) {
            match all.iter_mut().find(|known| (&known.rule, &known.when) == (&alert.rule, &alert.when)) {
                Some(known) => known.add(alert),
                None => all.push(alert.clone()),
            }
        }
        all
    }

    fn add(&mut self, next: &Self) {
        (self.start, self.end) = (self.start.min(next.start), self.end.max(next.end));
        self.windows += next.windows;
        let is_lower = is_lower_limit(&self.when);
        for one in &next.evidence {
            match self.evidence.iter_mut().find(|known| known.key == one.key) {
                Some(known) if order(is_lower, one, known) == Ordering::Less => *known = one.clone(),
                Some(_) => {}
                None => self.evidence.push(one.clone()),
            }
        }
        self.evidence.sort_by(|a, b| order(is_lower, a, b));
        // Those of several windows may be the same keys.
        let cut = self.evidence.len().saturating_sub(EVIDENCE_MAX) as u64;
        self.more = self.more.max(next.more).max(cut);
        self.evidence.truncate(EVIDENCE_MAX);
    }

    /// In words: when, and who.
    pub fn told(&self) -> String {
        let Self { rule, when, start, end, windows, unit, evidence, more } = self;
        let time = |time: &Timestamp| time.strftime("%Y-%m-%d %H:%M:%S");
        let mut told =
            format!("ALERT {rule} fired in {windows} windows, {} to {} UTC ({when})", time(start), time(end));
        let shown = evidence.iter().take(SHOWN).map(|one| {
            let (holder, amount) = (one.holder(), one.amount(unit.as_deref()));
            if holder.is_empty() { amount } else { format!("{holder}: {amount}") }
        });
        let shown: Vec<_> = shown.collect();
        if !shown.is_empty() {
            told = format!("{told}: {}", shown.join("; "));
        }
        let others = *more + evidence.len().saturating_sub(SHOWN) as u64;
        if others > 0 { format!("{told}; and {others} more") } else { told }
    }
}

/// How many numbers of an alert are told in words.
const SHOWN: usize = 3;

/// Whether a condition is for numbers that are too small.
fn is_lower_limit(when: &str) -> bool {
    when.contains(" < ")
}

/// The number that is farther beyond the limit comes first.
fn order(is_lower_limit: bool, one: &Evidence, other: &Evidence) -> Ordering {
    let upper = |of: &Evidence| of.upper.unwrap_or(f64::INFINITY);
    if is_lower_limit { upper(one).total_cmp(&upper(other)) } else { other.lower.total_cmp(&one.lower) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evidence(dst_ip: &str, value: f64) -> Evidence {
        let key = json!({ "dst_ip": dst_ip }).as_object().unwrap().clone();
        Evidence { key, value, lower: value - 1.0, upper: Some(value + 1.0) }
    }

    fn window(nth: i64, state: &str, evidence: Vec<Evidence>) -> Union {
        let mut report: Report = serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap();
        let second = |nth: i64| Timestamp::from_second(1_764_144_000 + nth * 10).unwrap();
        (report.window.start, report.window.end) = (second(nth), second(nth + 1));
        let alert = Alert { rule: "flood".to_owned(), state: state.to_owned(), evidence, ..report.alerts[0].clone() };
        report.alerts = vec![alert];
        Union::one(&report)
    }

    #[test]
    fn a_flood_that_is_over_still_has_its_victims() {
        let windows = [
            window(0, "pending", vec![evidence("192.0.2.1", 999.0)]),
            window(1, "firing", vec![evidence("192.0.2.1", 50.0)]),
            window(2, "firing", vec![evidence("192.0.2.1", 80.0), evidence("192.0.2.2", 60.0)]),
            window(3, "clearing", vec![]),
            window(4, "cleared", vec![]),
        ];
        let union = Union::join(&windows).unwrap();
        let [alert] = &union.alerts[..] else { panic!("{:?}", union.alerts) };
        assert_eq!((alert.windows, alert.more), (3, 0), "pending is not firing");
        assert_eq!(alert.evidence, [evidence("192.0.2.1", 80.0), evidence("192.0.2.2", 60.0)]);
        assert_eq!(
            (alert.end.as_second() - alert.start.as_second(), &union.fired[..]),
            (30, &["flood".to_owned()][..])
        );
        let text = serde_json::to_string(&union).unwrap();
        assert_eq!(serde_json::from_str::<Union>(&text).unwrap().alerts, union.alerts);
        let halves = [Union::join(&windows[..2]).unwrap(), Union::join(&windows[2..]).unwrap()];
        assert_eq!(Union::join(&halves).unwrap().alerts, union.alerts, "parts can be joined in any way");
        let told = alert.told();
        assert!(told.contains("dst_ip 192.0.2.1: 80 (79 to 81)") && told.contains("2025-11-26 08:00:10"), "{told}");
    }

    #[test]
    fn at_most_ten_numbers_stay_and_the_others_are_counted() {
        let many = (0..8).map(|nth| {
            window(
                nth,
                "firing",
                (0..3)
                    .map(|more| {
                        let victim = nth * 3 + more;
                        evidence(&format!("192.0.2.{victim}"), victim as f64)
                    })
                    .collect(),
            )
        });
        let union = Union::join(&many.collect::<Vec<_>>()).unwrap();
        let alert = &union.alerts[0];
        assert_eq!((alert.evidence.len(), alert.evidence[0].value), (EVIDENCE_MAX, 23.0));
        assert!(alert.more > 0 && alert.told().contains(" more"));
    }
}
