//! The receiver's answer to a request that it has accepted: it may still reject some of the points.

use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::{ExportMetricsPartialSuccess, ExportMetricsServiceResponse};
use prost::{
    Message,
    encoding::{WireType, decode_key, decode_varint},
};
use tracing::warn;
use weir_system::{
    clock,
    text::{escaped, short},
};

/// At most one line is logged in this time: a receiver that rejects some points does so with every report.
const PERIOD: Duration = Duration::from_secs(10 * 60);

/// Answers since the start.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Points rejected since the last log line.
    rejected: u64,
    /// The time of the last line in the log.
    logged: Option<Duration>,
}

impl Answers {
    /// Logs rejected points and warnings of the receiver. According to OTLP, they must not be sent again. An answer in
    /// another format is ignored: it may come from a proxy, or a receiver that answers in JSON.
    pub fn judge(&mut self, sink: &str, answer: &[u8]) {
        let now = clock::now().monotonic;
        if let Some(line) = self.line(answer, now) {
            warn!(sink, "{line}");
        }
    }

    /// The line to log, if one is due.
    fn line(&mut self, answer: &[u8], now: Duration) -> Option<String> {
        let ExportMetricsPartialSuccess { rejected_data_points, error_message } = partial_success(answer)?;
        let rejected = u64::try_from(rejected_data_points).unwrap_or_default();
        if rejected == 0 && error_message.is_empty() {
            return None;
        }
        self.rejected = self.rejected.saturating_add(rejected);
        if self.logged.is_some_and(|logged| now.saturating_sub(logged) < PERIOD) {
            return None;
        }
        self.logged = Some(now);
        let rejected = std::mem::take(&mut self.rejected);
        let said = escaped(&short(&error_message));
        Some(if rejected == 0 {
            format!("the receiver has taken the reports, and warns: {said:?}")
        } else {
            format!(
                "the receiver has taken the reports, but rejects some of their data points ({rejected} since the last \
                 such line), and says: {said:?}. weir does not send them again"
            )
        })
    }
}

/// Reads from an answer which points were rejected. If the answer is too large to be read whole, the fields before its
/// message are read.
fn partial_success(answer: &[u8]) -> Option<ExportMetricsPartialSuccess> {
    if let Ok(response) = ExportMetricsServiceResponse::decode(answer) {
        return response.partial_success;
    }
    let mut rest = answer;
    let (field, kind) = decode_key(&mut rest).ok()?;
    (field == 1 && kind == WireType::LengthDelimited).then_some(())?;
    let length = decode_varint(&mut rest).ok()?;
    (length > rest.len() as u64).then_some(())?;
    let mut partial_success = ExportMetricsPartialSuccess::default();
    // It ends with the field that is cut off.
    let _ = partial_success.merge(rest);
    (partial_success.rejected_data_points > 0).then_some(partial_success)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rejected_data_points: i64, error_message: &str) -> Vec<u8> {
        let partial_success =
            Some(ExportMetricsPartialSuccess { rejected_data_points, error_message: error_message.to_owned() });
        ExportMetricsServiceResponse { partial_success }.encode_to_vec()
    }

    #[test]
    fn rejected_points_are_always_counted_and_logged_from_time_to_time() {
        let mut answers = Answers::default();
        let seconds = Duration::from_secs;
        assert_eq!(answers.line(b"", seconds(0)), None);
        assert_eq!(answers.line(&answer(0, ""), seconds(0)), None);
        let first = answers.line(&answer(3, "no \x1b[31mdeltas"), seconds(0)).unwrap();
        assert!(first.contains("(3 since") && first.contains("no ") && !first.contains('\x1b'), "{first}");
        assert_eq!(answers.line(&answer(4, "no"), seconds(1)), None);
        let second = answers.line(&answer(5, "no"), PERIOD).unwrap();
        assert!(second.contains("(9 since"), "{second}");
        assert!(answers.line(&answer(0, "old"), PERIOD * 2).unwrap().contains("warns: \"old\""));
    }

    #[test]
    fn any_answer_may_come() {
        let mut answers = Answers::default();
        for odd in [b"ok".as_slice(), b"{}", b"<html>", &[0xff; 64], &answer(-1, ""), &answer(1, "x")[..3]] {
            assert_eq!(answers.line(odd, Duration::ZERO), None, "{odd:?}");
        }
        assert!(answers.line(&answer(i64::MAX, &"x".repeat(1 << 20)), Duration::ZERO).unwrap().len() < 400);
        let large = answer(7, &"x".repeat(1 << 20));
        let first = Answers::default().line(&large[..64 << 10], Duration::ZERO).unwrap();
        assert!(first.contains("(7 since"), "{first}");
    }
}
