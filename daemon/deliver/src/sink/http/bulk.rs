//! Reads an answer to a bulk request of Elasticsearch as it comes: an answer of any size takes only the memory of one
//! action's status and reason.

#[cfg(test)]
mod tests;

use std::io::{BufReader, Bytes, Read};

use ureq::http::StatusCode;

use super::{super::DeliveryError, answer::may_pass};

/// How much of an answer is read: some 80 KiB for each report of a request.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How much of a text in it is kept: enough for a sentence.
const TEXT_BYTES_MAX: usize = 200;
/// The deepest level of an answer at which the scanner looks for fields.
const DEPTH_MAX: usize = 8;

/// Judges an answer of 2xx for a batch of so many reports: the server may have refused single ones.
///
/// The items for single reports count more than the fields for all. If the answer does not have an item for each
/// report, weir sends each of several reports alone. A report that is alone is then refused: it may not have arrived,
/// and must not hold up others. Only if the answer is too large to be read, and does not say that there are errors, its
/// status counts for a report that is alone.
pub(super) fn judge(answer: impl Read, reports: usize) -> Result<(), DeliveryError> {
    let mut bulk = Bulk::default();
    let end = Scanner::new(answer.take(ANSWER_BYTES_MAX)).scan(&mut bulk);
    bulk.status_ended();
    let no_bulk = |why| {
        let message = format!("no answer to a bulk request, does the URL end with /_bulk? {why}");
        Err(DeliveryError::unavailable(message))
    };
    match end {
        End::NoJson if !bulk.is_bulk => return no_bulk("It is not JSON"),
        End::Whole if !bulk.is_bulk => return no_bulk("It has neither `errors` nor `items`"),
        _ => {}
    }
    if let Some(message) = bulk.passing {
        return Err(DeliveryError::unavailable(message));
    }
    if let Some(message) = bulk.refused {
        return Err(DeliveryError::Refused(message));
    }
    // The URL may ask for less than all of the answer (`filter_path`).
    let items = if end == End::Whole { bulk.items } else { None };
    let has_no_errors = bulk.has_errors == Some(false) && items.is_none_or(|items| items >= reports);
    let is_known = bulk.accepted >= reports.max(items.unwrap_or(0));
    if is_known || has_no_errors || end == End::TooLarge && reports == 1 && bulk.has_errors != Some(true) {
        return Ok(());
    }
    let how = match end {
        End::Whole => "is incomplete",
        End::Cut => "breaks off",
        End::TooLarge => "is too large to be read",
        End::NoJson => "is not JSON from some place on",
    };
    let known = bulk.accepted;
    Err(DeliveryError::Refused(format!(
        "the answer to a bulk request {how}: it tells about {known} of {reports} reports"
    )))
}

/// The relevant fields of an answer, as far as it was read.
#[derive(Default)]
struct Bulk {
    /// True if it has `errors` or `items`.
    is_bulk: bool,
    has_errors: Option<bool>,
    /// The number of items, whatever their content. `None` if the answer has no list of them.
    items: Option<usize>,
    /// How many reports are there, by their own status.
    accepted: usize,
    /// The item that is being read.
    status: Option<StatusCode>,
    reason: String,
    /// The first error after which another attempt may succeed.
    passing: Option<String>,
    /// The first refusal, in the server's words.
    refused: Option<String>,
}

impl Bulk {
    /// A value that is no list and no object, with the names on the way to it; that of an element of a list is empty.
    fn value(&mut self, path: &[Level], text: &str) {
        let names: Vec<&str> = path.iter().map(|level| &*level.name).collect();
        match names[..] {
            ["errors"] => self.has_errors = text.parse().ok(),
            ["items", "", _, "status"] => {
                self.status = text.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
            }
            ["items", "", _, "error"] | ["items", "", _, "error", "reason"] => text.clone_into(&mut self.reason),
            _ => {}
        }
    }

    /// A list or an object has begun.
    fn opened(&mut self, path: &[Level]) {
        if let [list, ..] = path
            && list.name == "items"
        {
            let items = self.items.get_or_insert_default();
            *items += usize::from(path.len() == 2);
        }
    }

    /// A list or an object has ended, in what has these names on the way to it.
    fn closed(&mut self, path: &[Level]) {
        if path.len() == 3 {
            self.status_ended();
        }
    }

    /// Notes the outcome for one report.
    fn status_ended(&mut self) {
        let reason = std::mem::take(&mut self.reason);
        let Some(status) = self.status.take() else { return };
        let message = || format!("{status} for a report: {reason}");
        // A conflict: the report is there already.
        if status.is_success() || status == StatusCode::CONFLICT {
            self.accepted += 1;
        } else if status.is_server_error() || may_pass(status) {
            self.passing.get_or_insert_with(message);
        } else {
            self.refused.get_or_insert_with(message);
        }
    }
}

/// The way in which reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// The answer was cut off before its end.
    Cut,
    TooLarge,
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
    /// How many were read.
    read: u64,
    /// A byte that was read too far.
    back: Option<u8>,
    /// The number of open lists and objects inside the deepest one whose name matters.
    deeper: usize,
}

impl<R: Read> Scanner<R> {
    fn new(answer: R) -> Self {
        Self { bytes: BufReader::new(answer).bytes(), read: 0, back: None, deeper: 0 }
    }

    /// The next byte; `None` at the end, also if the connection breaks.
    fn next(&mut self) -> Option<u8> {
        self.back.take().or_else(|| {
            let byte = self.bytes.next()?.ok()?;
            self.read += 1;
            Some(byte)
        })
    }

    /// Decides how reading ended if there is no next byte.
    const fn cut(&self) -> End {
        if self.read < ANSWER_BYTES_MAX { End::Cut } else { End::TooLarge }
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
                return if path.is_empty() { End::NoJson } else { self.cut() };
            };
            match byte {
                b'{' | b'[' if path.len() == DEPTH_MAX => self.deeper += 1,
                b'{' | b'[' => {
                    bulk.opened(&path);
                    path.push(Level { is_object: byte == b'{', name: String::new() });
                }
                b'}' | b']' if self.deeper > 0 => self.deeper -= 1,
                b'}' | b']' if path.pop().is_some() => {
                    bulk.closed(&path);
                    if path.is_empty() {
                        return End::Whole;
                    }
                }
                b',' if !path.is_empty() => {}
                b'"' if !path.is_empty() => {
                    let Some(text) = self.string() else { return self.cut() };
                    let Some(after) = self.next_after_space() else { return self.cut() };
                    if after == b':' && (self.deeper > 0 || path.last().is_some_and(|level| level.is_object)) {
                        bulk.is_bulk |= path.len() == 1 && ["errors", "items"].contains(&&*text);
                        path.last_mut().into_iter().for_each(|level| level.name.clone_from(&text));
                    } else {
                        self.back = Some(after);
                        bulk.value(&path, &text);
                    }
                }
                b'-' | b'0'..=b'9' | b'a'..=b'z' if !path.is_empty() => {
                    let Some(text) = self.word(byte) else { return self.cut() };
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
