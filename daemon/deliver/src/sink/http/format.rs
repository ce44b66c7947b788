//! Bodies for servers that want reports in a form of their own.

use std::{borrow::Cow, collections::BTreeMap};

use serde::Serialize;
use serde_json::json;
use weir_config::Format;

use super::{super::DeliveryError, BATCH};
use crate::spool::Item;

/// Actions in a bulk request: the errors of so many, with their reasons, are some hundred KiB.
const BULK_BATCH: usize = 50;

/// The type of the body.
pub(super) const fn content_type(format: Format) -> &'static str {
    match format {
        Format::Ndjson | Format::Elasticsearch => "application/x-ndjson",
        Format::Loki => "application/json",
    }
}

/// Maximum number of reports in one request.
pub(super) const fn batch(format: Format) -> usize {
    match format {
        Format::Ndjson | Format::Loki => BATCH,
        Format::Elasticsearch => BULK_BATCH,
    }
}

/// The body with these reports, in parts.
pub(super) fn body<'a>(format: Format, items: &'a [Item]) -> Result<Vec<Cow<'a, [u8]>>, DeliveryError> {
    let unfit = |error: serde_json::Error| DeliveryError::Refused(format!("weir cannot convert it: {error}"));
    match format {
        Format::Ndjson => Ok(items.iter().map(|item| Cow::Borrowed(&*item.encoded.line)).collect()),
        // `create` refuses an id that is there already, also where `index` is not allowed: in a data stream.
        Format::Elasticsearch => {
            let parts = |item: &'a Item| [Cow::Owned(create_action(item)), Cow::Borrowed(&*item.encoded.line)];
            Ok(items.iter().flat_map(parts).collect())
        }
        Format::Loki => {
            let streams = items.iter().map(Stream::of).collect::<Result<Vec<_>, _>>().map_err(unfit)?;
            Ok(vec![Cow::Owned(serde_json::to_vec(&BTreeMap::from([("streams", streams)])).map_err(unfit)?)])
        }
    }
}

fn create_action(item: &Item) -> Vec<u8> {
    format!("{}\n", json!({"create": {"_id": item.encoded.id}})).into_bytes()
}

/// A report for Loki. Its time is the same in every attempt, so Loki keeps one of several: same labels, time and line.
#[derive(Serialize)]
struct Stream<'a> {
    stream: BTreeMap<&'static str, &'a str>,
    values: [(String, &'a str); 1],
}

impl<'a> Stream<'a> {
    fn of(item: &'a Item) -> Result<Self, serde_json::Error> {
        // Parsing only checks that the line is text.
        let line = item.encoded.line.strip_suffix(b"\n").unwrap_or(&item.encoded.line);
        let line = std::str::from_utf8(line).map_err(serde::ser::Error::custom)?;
        let labels = BTreeMap::from([("service_name", "weir"), ("observer", item.observer())]);
        Ok(Self { stream: labels, values: [(format!("{}000000000", item.time), line)] })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{
        super::{
            super::{Sink, tests::parcels},
            tests::{Collector, LONG, settings},
        },
        *,
    };
    use crate::sink::Http;

    fn sink(collector: &Collector, path: &str, format: Format) -> Http {
        let url = format!("http://{}{path}", collector.address);
        Http::new(&weir_config::Http { format, ..settings(&url, LONG) }).unwrap()
    }

    fn bulk(statuses: &[u16]) -> String {
        let items: Vec<_> = statuses
            .iter()
            .map(|status| match status {
                201 => json!({"create": {"_id": "x", "status": 201}}),
                _ => {
                    json!({"create": {"status": status, "error": {"type": "t", "reason": format!("because {status}")}}})
                }
            })
            .collect();
        json!({"took": 3, "errors": statuses.iter().any(|status| *status != 201), "items": items}).to_string()
    }

    /// A refusal with a long reason.
    fn bulk_error(length: usize) -> Value {
        json!({"create": {"status": 400, "error": {"reason": "x".repeat(length)}}})
    }

    #[test]
    fn elasticsearch_gets_a_report_once_by_its_id() {
        let collector = Collector::new(2, |number| (200, bulk(if number == 0 { &[201, 201] } else { &[409, 409] })));
        let mut sink = sink(&collector, "/weir/_bulk", Format::Elasticsearch);
        let items = parcels([1, 2]);
        assert_eq!(sink.deliver(&items), Ok(()));
        assert_eq!(sink.deliver(&items), Ok(()), "they are there already");
        assert_eq!(sink.batch(), BULK_BATCH);
        for request in collector.received() {
            assert_eq!(request.header("Content-Type"), Some("application/x-ndjson"));
            let lines: Vec<&[u8]> = request.body.split_inclusive(|&byte| byte == b'\n').collect();
            assert_eq!(lines[0], b"{\"create\":{\"_id\":\"7f3c9a52/0000b41d/1\"}}\n");
            assert_eq!((lines[1], lines[3]), (&*items[0].encoded.line, &*items[1].encoded.line));
            assert_eq!(lines.len(), 4);
        }
    }

    #[test]
    fn errors_of_single_reports_are_read() {
        let answers = [
            (bulk(&[201, 400]), "400 Bad Request for a report: because 400", true),
            // Another attempt may succeed: first of all that.
            (bulk(&[400, 429]), "429 Too Many Requests for a report: because 429", false),
            (bulk(&[503, 201]), "503 Service Unavailable for a report: because 503", false),
            (
                format!("{{\"errors\":true,\"items\":[{}]}}", bulk_error(80_000)),
                "400 Bad Request for a report: xxx",
                true,
            ),
            ("{}".to_owned(), "does the URL end with /_bulk?", false),
            (String::new(), "does the URL end with /_bulk?", false),
        ];
        let bodies = answers.clone().map(|(body, ..)| body);
        let collector = Collector::new(answers.len(), move |number| (200, bodies[number].clone()));
        let mut sink = sink(&collector, "/_bulk", Format::Elasticsearch);
        for (body, message, is_refused) in answers {
            let error = sink.deliver(&parcels([1, 2])).unwrap_err();
            assert!(error.to_string().contains(message), "{body}: {error}");
            assert_eq!(matches!(error, DeliveryError::Refused(_)), is_refused, "{body}: {error}");
        }
    }

    #[test]
    fn loki_gets_lines_with_the_time_of_the_window() {
        let collector = Collector::answering([204]);
        let mut sink = sink(&collector, "/loki/api/v1/push", Format::Loki);
        let mut items = parcels([1, 2]);
        for item in &mut items {
            item.time = 1_700_000_000;
        }
        assert_eq!(sink.deliver(&items), Ok(()));
        let [request] = &collector.received()[..] else { panic!("one request") };
        assert_eq!(request.header("Content-Type"), Some("application/json"));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["streams"].as_array().unwrap().len(), 2);
        for (stream, item) in body["streams"].as_array().unwrap().iter().zip(&items) {
            assert_eq!(stream["stream"], json!({"service_name": "weir", "observer": "7f3c9a52"}));
            assert_eq!(stream["values"][0][0], "1700000000000000000");
            assert_eq!(format!("{}\n", stream["values"][0][1].as_str().unwrap()).as_bytes(), &*item.encoded.line);
        }
    }
}
