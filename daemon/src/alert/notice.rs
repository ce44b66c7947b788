//! Telling people: a line of the log, and a message for the webhook, when an alert begins and when it ends.

use serde::Serialize;
use tracing::{info, warn};

use crate::{
    report::{Alert, Evidence, Observer, Report, Window},
    sink::Encoded,
};

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

/// A message for each alert that begins or ends. Its id is that of no other one.
pub fn messages(report: &Report) -> impl Iterator<Item = Encoded> {
    changes(report).map(|alert| {
        let Report { id, observer, window, .. } = report;
        let message = Message { schema: SCHEMA, report: id, observer, window, alert };
        let mut line = serde_json::to_vec(&message).expect("a message has text keys and writes into memory");
        line.push(b'\n');
        Encoded { id: format!("{id}/{}", alert.rule), line: line.into() }
    })
}

/// Writes a line of the log for each alert that begins or ends.
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
