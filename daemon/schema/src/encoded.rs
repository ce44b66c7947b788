//! An encoded report, ready to be sent.

use std::sync::Arc;

use super::Report;

/// An encoded report, or the encoded message of an alert. It is cheap to clone for several sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The unique id of the report, the same in every attempt.
    pub id: String,
    /// The report as one line of JSON, including the newline.
    pub line: Arc<[u8]>,
}

impl Encoded {
    /// Encodes a report.
    pub fn new(report: &Report) -> Self {
        let mut line = serde_json::to_vec(report).expect("a report has text keys and writes into memory");
        line.push(b'\n');
        Self { id: report.id.clone(), line: line.into() }
    }

    /// Encodes a report: as sinks get it, and without the sketches, which only they need.
    pub fn both(report: &mut Report) -> [Self; 2] {
        let sent = Self::new(report);
        let sketches = report.sketches.take();
        let without = if sketches.is_some() { Self::new(report) } else { sent.clone() };
        report.sketches = sketches;
        [sent, without]
    }
}
