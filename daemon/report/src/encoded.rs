//! An encoded report, ready to be sent.

use std::sync::Arc;

use super::Report;

/// An encoded report, or the encoded message of an alert. It is cheap to clone for several sinks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its unique id, the same in every attempt.
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
}
