//! Notifications: a log line and a message to the webhook when an alert begins, and when it ends.

use serde::Serialize;
use tracing::{info, warn};

use crate::{Alert, Encoded, Evidence, Observer, Report, Window};

/// The schema of a message.
pub const SCHEMA: &str = "weir.alert/1";

/// A message to the webhook.
#[derive(Serialize)]
struct Message<'r> {
    schema: &'static str,
    /// The id of the report that has the alert.
    report: &'r str,
    observer: &'r Observer,
    window: &'r Window,
    alert: &'r Alert,
}

/// The alerts of a report that begin or end with it.
fn changes(report: &Report) -> impl Iterator<Item = &Alert> {
    report.alerts.iter().filter(|alert| alert.change.is_some())
}

/// A message for each alert that begins or ends. Its id is unique.
pub fn messages(report: &Report) -> impl Iterator<Item = Encoded> {
    changes(report).map(|alert| message(report, alert))
}

/// The last messages to a webhook that the next configuration does not have: all alerts that it knows end.
pub fn parting(report: &Report) -> Vec<Encoded> {
    let last = report.alerts.iter().filter_map(|alert| match alert.change.as_deref() {
        // The webhook would never learn the end.
        Some("begins") => None,
        Some(_) => Some(message(report, alert)),
        None if goes_on(alert) => Some(message(report, &changed(alert, "withdrawn", "ends"))),
        None => None,
    });
    last.collect()
}

/// The first messages to a new webhook: ongoing alerts begin there.
pub fn taking_over(report: &Report) -> Vec<Encoded> {
    let going_on = report.alerts.iter().filter(|alert| goes_on(alert));
    going_on.map(|alert| message(report, &changed(alert, &alert.state, "begins"))).collect()
}

/// Returns true if an alert has begun and not ended.
fn goes_on(alert: &Alert) -> bool {
    ["firing", "clearing"].contains(&alert.state.as_str())
}

fn changed(alert: &Alert, state: &str, change: &str) -> Alert {
    Alert { state: state.to_owned(), change: Some(change.to_owned()), ..alert.clone() }
}

fn message(report: &Report, alert: &Alert) -> Encoded {
    let Report { id, observer, window, .. } = report;
    let message = Message { schema: SCHEMA, report: id, observer, window, alert };
    let mut line = serde_json::to_vec(&message).expect("a message has text keys and writes into memory");
    line.push(b'\n');
    Encoded { id: format!("{id}/{}", alert.rule), line: line.into() }
}

/// Logs a line for each alert that begins or ends.
pub fn log(report: &Report) {
    for Alert { rule, when, change, since, windows, unit, evidence, more, .. } in changes(report) {
        let evidence = shown(evidence, *more, unit.as_deref());
        if change.as_deref() == Some("begins") {
            warn!(rule, %since, windows, evidence, "alert begins: {when}");
        } else {
            info!(rule, %since, windows, evidence, "alert ends: {when}");
        }
    }
}

/// The numbers of an alert in one line.
fn shown(evidence: &[Evidence], more: u64, unit: Option<&str>) -> String {
    let one = |one: &Evidence| match one.holder() {
        holder if holder.is_empty() => one.amount(unit),
        holder => format!("{holder}: {}", one.amount(unit)),
    };
    let mut all: Vec<_> = evidence.iter().map(one).collect();
    all.extend((more > 0).then(|| format!("and {more} more")));
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The rule, the state and the change of each message.
    fn told(messages: &[Encoded]) -> Vec<String> {
        let one = |message: &Encoded| {
            let message: Value = serde_json::from_slice(&message.line).unwrap();
            let text = |name: &str| message["alert"][name].as_str().unwrap().to_owned();
            ["rule", "state", "change"].map(text).join(" ")
        };
        messages.iter().map(one).collect()
    }

    #[test]
    fn a_removed_webhook_gets_each_end_and_a_new_one_gets_the_ongoing_alerts() {
        let mut report: Report = serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap();
        let alert = report.alerts[0].clone();
        let alerts = [
            ("new", "firing", Some("begins")),
            ("old", "firing", None),
            ("nearly", "clearing", None),
            ("over", "cleared", Some("ends")),
            ("out", "withdrawn", Some("ends")),
            ("maybe", "pending", None),
        ];
        let make = |(rule, state, change): (&str, &str, Option<&str>)| Alert {
            rule: rule.to_owned(),
            state: state.to_owned(),
            change: change.map(str::to_owned),
            ..alert.clone()
        };
        report.alerts = alerts.into_iter().map(make).collect();
        let (last, first) = (parting(&report), taking_over(&report));
        let expected = ["old withdrawn ends", "nearly withdrawn ends", "over cleared ends", "out withdrawn ends"];
        assert_eq!(told(&last), expected);
        assert_eq!(told(&first), ["new firing begins", "old firing begins", "nearly clearing begins"]);
        assert_eq!(last[0].id, format!("{}/old", report.id));
    }
}
