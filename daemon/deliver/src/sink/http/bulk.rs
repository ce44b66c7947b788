//! An answer to a bulk request of Elasticsearch, read as it comes: whatever its size is, only the status and the reason
//! of one action are in memory.

use std::io::{BufReader, Bytes, Read};

use ureq::http::StatusCode;

use super::{super::DeliveryError, answer::may_pass};

/// How much of an answer is read: some 80 KiB for each report of a request.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How much of a text in it is kept: enough for a sentence.
const TEXT_BYTES_MAX: usize = 200;
/// Answers are no deeper than a few levels.
const DEPTH_MAX: usize = 64;

/// What an answer of 2xx means for a batch of so many reports: the server may have refused single ones.
///
/// An answer that cannot be read to its end does not tell about all reports. Then each of several is sent alone. For
/// one alone, the status of the answer counts, unless it says that there are errors.
pub(super) fn judge(answer: impl Read, reports: usize) -> Result<(), DeliveryError> {
    let mut bulk = Bulk::default();
    let end = Scanner::new(answer.take(ANSWER_BYTES_MAX)).scan(&mut bulk);
    bulk.item_ended();
    let no_bulk = |why| {
        let message = format!("no answer to a bulk request, does the URL end with /_bulk? {why}");
        Err(DeliveryError::unavailable(message))
    };
    match end {
        End::NoJson if !bulk.is_bulk => return no_bulk("It is not JSON"),
        End::Whole if !bulk.is_bulk => return no_bulk("It has neither `errors` nor `items`"),
        _ if bulk.has_errors == Some(false) => return Ok(()),
        _ => {}
    }
    if let Some(message) = bulk.passing {
        return Err(DeliveryError::unavailable(message));
    }
    if let Some(message) = bulk.refused {
        return Err(DeliveryError::Refused(message));
    }
    let (known, all) = (bulk.items, reports);
    let is_known = end == End::Whole || known >= all || all == 1 && bulk.has_errors != Some(true);
    if is_known {
        return Ok(());
    }
    Err(DeliveryError::Refused(format!("the answer can be read only for {known} of {all} reports")))
}

/// What was read of an answer.
#[derive(Default)]
struct Bulk {
    /// Whether it has `errors` or `items`.
    is_bulk: bool,
    has_errors: Option<bool>,
    items: usize,
    /// The item that is being read.
    status: Option<u16>,
    reason: String,
    /// The first error after which another attempt may succeed.
    passing: Option<String>,
    /// The first refusal.
    refused: Option<String>,
}

impl Bulk {
    /// A value that is no list and no object, with the names on the way to it; that of an element of a list is empty.
    fn value(&mut self, path: &[Level], text: &str) {
        let names: Vec<&str> = path.iter().map(|level| &*level.name).collect();
        match names[..] {
            ["errors"] => self.has_errors = text.parse().ok(),
            ["items", "", _, "status"] => self.status = text.parse().ok(),
            ["items", "", _, "error"] | ["items", "", _, "error", "reason"] => text.clone_into(&mut self.reason),
            _ => {}
        }
    }

    fn item_ended(&mut self) {
        let Some(status) = self.status.take() else { return };
        let reason = std::mem::take(&mut self.reason);
        self.items += 1;
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A conflict: the report is there already.
        if status.is_success() || status == StatusCode::CONFLICT {
            return;
        }
        let message = || format!("{status} for a report: {reason}");
        if !status.is_client_error() || may_pass(status) {
            self.passing.get_or_insert_with(message);
        } else {
            self.refused.get_or_insert_with(message);
        }
    }
}

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// It is too large, or its end did not come.
    Cut,
    NoJson,
}

/// A list or an object that is open.
struct Level {
    is_object: bool,
    /// The name of the value that is being read; empty in a list.
    name: String,
}

/// Reads JSON byte by byte. Strings may have any bytes.
struct Scanner<R> {
    bytes: Bytes<BufReader<R>>,
    /// A byte that was read too far.
    back: Option<u8>,
}

impl<R: Read> Scanner<R> {
    fn new(answer: R) -> Self {
        Self { bytes: BufReader::new(answer).bytes(), back: None }
    }

    /// The next byte; `None` at the end, also if the connection breaks.
    fn next(&mut self) -> Option<u8> {
        self.back.take().or_else(|| self.bytes.next()?.ok())
    }

    fn next_after_space(&mut self) -> Option<u8> {
        loop {
            let byte = self.next()?;
            if !byte.is_ascii_whitespace() {
                return Some(byte);
            }
        }
    }

    fn scan(&mut self, bulk: &mut Bulk) -> End {
        let mut path: Vec<Level> = Vec::new();
        loop {
            let Some(byte) = self.next_after_space() else {
                return if path.is_empty() { End::NoJson } else { End::Cut };
            };
            match byte {
                b'{' | b'[' if path.len() < DEPTH_MAX => {
                    path.push(Level { is_object: byte == b'{', name: String::new() });
                }
                b'}' | b']' if path.pop().is_some() => match path.len() {
                    0 => return End::Whole,
                    3 => bulk.item_ended(),
                    _ => {}
                },
                b',' if !path.is_empty() => {}
                b'"' if !path.is_empty() => {
                    let Some(text) = self.string() else { return End::Cut };
                    let Some(after) = self.next_after_space() else { return End::Cut };
                    if after == b':' && path.last().is_some_and(|level| level.is_object) {
                        bulk.is_bulk |= path.len() == 1 && ["errors", "items"].contains(&&*text);
                        path.last_mut().into_iter().for_each(|level| level.name.clone_from(&text));
                    } else {
                        self.back = Some(after);
                        bulk.value(&path, &text);
                    }
                }
                b'-' | b'0'..=b'9' | b'a'..=b'z' if !path.is_empty() => {
                    let Some(text) = self.word(byte) else { return End::Cut };
                    bulk.value(&path, &text);
                }
                _ => return End::NoJson,
            }
        }
    }

    /// The rest of a string, up to a limit; `None` if its end does not come.
    fn string(&mut self) -> Option<String> {
        let (mut text, mut is_escaped) = (Vec::new(), false);
        loop {
            let byte = self.next()?;
            if byte == b'"' && !is_escaped {
                break;
            }
            is_escaped = byte == b'\\' && !is_escaped;
            if text.len() < TEXT_BYTES_MAX {
                text.push(byte);
            }
        }
        let text = String::from_utf8_lossy(&text);
        Some(serde_json::from_str(&format!("\"{text}\"")).unwrap_or_else(|_| text.into_owned()))
    }

    /// A number or a literal that begins with this byte; `None` if its end does not come.
    fn word(&mut self, first: u8) -> Option<String> {
        let mut text = String::from(char::from(first));
        loop {
            let byte = self.next()?;
            if !byte.is_ascii_alphanumeric() && !b"+-.".contains(&byte) {
                self.back = Some(byte);
                return Some(text);
            }
            if text.len() < TEXT_BYTES_MAX {
                text.push(char::from(byte));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An answer of 400 for each of so many reports, with reasons of this length.
    fn refusing(reports: usize, reason: &str) -> String {
        let error = json!({"reason": reason, "type": "document_parsing_exception", "caused_by": {"reason": reason}});
        let item = format!(r#"{{"create":{{"_index":"weir","_id":"7f/b/1","status":400,"error":{error}}}}}"#);
        format!(r#"{{"took":3,"errors":true,"items":[{}]}}"#, vec![item; reports].join(","))
    }

    fn is_refused(judged: &Result<(), DeliveryError>) -> bool {
        matches!(judged, Err(DeliveryError::Refused(_)))
    }

    #[test]
    fn answers_of_every_size_are_judged() {
        for size in [0, 100, 1_500, 30_000, 200_000, 6_000_000] {
            let judged = judge(refusing(50, &"x".repeat(size)).as_bytes(), 50);
            assert!(is_refused(&judged), "{size}: {judged:?}");
            let message = judged.unwrap_err().to_string();
            assert!(message.starts_with("400 Bad Request for a report: ") && message.len() < 300, "{message}");
            // A report is refused alone, too, although its answer does not end within the limit.
            assert!(is_refused(&judge(refusing(1, &"x".repeat(size)).as_bytes(), 1)), "{size}");
        }
    }

    #[test]
    fn an_answer_that_is_not_whole_is_judged_as_far_as_it_goes() {
        let whole = refusing(2, "no\u{e4} \"so\"");
        for end in 0..whole.len() {
            let cut = &whole.as_bytes()[..end];
            let text = String::from_utf8_lossy(cut);
            let has_errors = text.contains("\"errors\":true,");
            assert_eq!(is_refused(&judge(cut, 1)), has_errors, "{text}");
            let has_status = text.contains("\"status\":400,");
            assert!(
                !has_status || judge(cut, 2).is_err_and(|error| error.to_string().starts_with("400 Bad")),
                "{text}"
            );
        }
        assert!(judge(whole.as_bytes(), 1).unwrap_err().to_string().contains("no\u{e4} \"so\""));
        // Of two reports, one is known.
        let first = r#"{"errors":true,"items":[{"create":{"status":201}},{"cre"#;
        let judged = judge(first.as_bytes(), 2);
        assert!(is_refused(&judged) && judged.unwrap_err().to_string().contains("1 of 2 reports"));
        assert_eq!(judge(first.as_bytes(), 1), Ok(()));
        assert_eq!(judge(&br#"{"errors":false,"items":[{"#[..], 2), Ok(()), "there are no errors");
        assert_eq!(judge(format!("{{\"took\":\"{}", "x".repeat(5 << 20)).as_bytes(), 1), Ok(()), "as the status says");
    }

    #[test]
    fn an_answer_may_have_any_bytes() {
        let odd =
            b"{\"errors\":true,\"items\":[{\"create\":{\"status\":400,\"error\":{\"reason\":\"a \xff\xfe \\q\"}}}]}";
        assert!(is_refused(&judge(&odd[..], 1)));
        let text = r#"{"errors" : true, "items" : [ {"create" : {"error" : "as a text", "status" : 429} } ] }"#;
        let judged = judge(text.as_bytes(), 1).unwrap_err();
        assert_eq!(judged, DeliveryError::unavailable("429 Too Many Requests for a report: as a text".to_owned()));
        for (no_bulk, why) in
            [("", ""), ("<html>", "not JSON"), ("{}", "neither"), ("[1]", "neither"), ("}", "not JSON")]
        {
            let judged = judge(no_bulk.as_bytes(), 2).unwrap_err();
            assert!(judged.to_string().contains(why), "{no_bulk}: {judged}");
            assert!(no_bulk.is_empty() || matches!(judged, DeliveryError::Unavailable { .. }), "{no_bulk}: {judged}");
        }
        assert!(judge("[".repeat(100_000).as_bytes(), 1).is_err());
    }
}
