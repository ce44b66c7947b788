//! A server that answers bulk requests with anything.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use weir_config::Addresses;

use super::{
    super::{
        Outbox, Sink,
        outbox::tests::wait_until,
        tests::{encoded, id, parcels},
    },
    tests::{LONG, settings},
    *,
};

/// An answer to a request for so many reports.
#[derive(Clone, Copy)]
struct Answer {
    name: &'static str,
    bytes: fn(usize) -> Vec<u8>,
    /// True if the connection stays open after the answer.
    is_held: bool,
    meaning: Meaning,
}

/// The expected outcome for one report, with a part of the message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The report is there.
    Delivered,
    /// It is not known to be there, and holds up no other.
    Refused(&'static str),
    /// All reports wait for another attempt.
    Waits(&'static str),
}

use Meaning::{Delivered, Refused, Waits};

const fn closing(name: &'static str, bytes: fn(usize) -> Vec<u8>, meaning: Meaning) -> Answer {
    Answer { name, bytes, is_held: false, meaning }
}

const fn held(name: &'static str, bytes: fn(usize) -> Vec<u8>, meaning: Meaning) -> Answer {
    Answer { name, bytes, is_held: true, meaning }
}

/// An answer of 200 with this body.
fn ok(body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// An answer of 200 with these items.
fn items(has_errors: bool, items: impl IntoIterator<Item = Value>) -> Vec<u8> {
    let items: Vec<Value> = items.into_iter().map(|item| json!({"create": item})).collect();
    ok(json!({"took": 1, "errors": has_errors, "items": items}).to_string())
}

/// This many items with this status.
fn all(count: usize, status: u16) -> impl Iterator<Item = Value> {
    (0..count).map(move |number| json!({"_id": number, "status": status}))
}

/// An answer of 200 with one item of this status, whose error is nested so deep.
fn deep(status: u16) -> Vec<u8> {
    let (open, close) = (r#"{"caused_by":["#.repeat(50_000), "]}".repeat(50_000));
    ok(format!(r#"{{"errors":{},"items":[{{"create":{{"error":{open}{close},"status":{status}}}}}]}}"#, status >= 300))
}

const REDIRECT: &str = "HTTP/1.1 307 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";

const ANSWERS: &[Answer] = &[
    closing("one item for each", |count| items(false, all(count, 201)), Delivered),
    closing("more items", |count| items(false, all(count + 1, 201)), Delivered),
    closing("only that there are no errors", |_| ok(r#"{"errors":false}"#), Delivered),
    closing("errors that no item has", |count| items(true, all(count, 201)), Delivered),
    closing("a status in quotes", |count| items(false, vec![json!({"status": "201"}); count]), Delivered),
    closing("a conflict", |count| items(true, all(count, 409)), Delivered),
    closing("deep", |_| deep(201), Delivered),
    held("whole, but its chunks have no end", |count| chunked(&items(false, all(count, 201))), Delivered),
    closing("fewer items", |count| items(false, all(count - 1, 201)), Refused("is incomplete: it tells about 0 of 1")),
    closing("fewer items and errors", |count| items(true, all(count - 1, 201)), Refused("is incomplete")),
    closing("no status", |count| items(true, vec![json!({}); count]), Refused("is incomplete")),
    closing("no item", |_| ok(r#"{"errors":true}"#), Refused("is incomplete")),
    closing("no status by its number", |count| items(true, all(count, 7)), Refused("is incomplete")),
    closing(
        "words for a status",
        |count| items(true, vec![json!({"status": "fine"}); count]),
        Refused("is incomplete"),
    ),
    closing("one without status", |count| items(true, all(count, 201).chain([json!({})])), Refused("is incomplete")),
    closing("a refusal without errors", |count| items(false, all(count, 400)), Refused("400 Bad Request for a report")),
    closing("a redirect of an item", |count| items(true, all(count, 302)), Refused("302 Found for a report")),
    closing("cut in the middle", |_| ok(r#"{"took":1,"items":[{"create":{"_id":"7","sta"#), Refused("breaks off")),
    closing("nothing more than that it is JSON", |_| ok("{"), Refused("breaks off")),
    closing("not JSON from some place on", |_| ok(r#"{"items":[<html>]}"#), Refused("is not JSON from some place on")),
    closing("shorter than it says", |_| short(r#"{"took":1,"items":["#), Refused("breaks off")),
    held("no end", |_| short(r#"{"took":1,"items":[{"create":{"#), Refused("breaks off")),
    held("chunks without end", |_| chunked(&ok(r#"{"took":1,"#)), Refused("breaks off")),
    closing("16 MiB of one error", |_| large(), Refused("is too large to be read")),
    closing("deep and refused", |_| deep(400), Refused("400 Bad Request for a report")),
    closing("413", |_| status("413 Too Large"), Refused("413")),
    closing("HTML", |_| ok("<html>Please log in</html>"), Waits("It is not JSON")),
    closing("another kind of JSON", |_| ok(r#"{"ok":true}"#), Waits("neither `errors` nor `items`")),
    closing("nothing", |_| ok(""), Waits("It is not JSON")),
    closing("too busy for one of them", busy, Waits("429 Too Many Requests for a report")),
    closing("a redirect to itself", |_| REDIRECT.into(), Waits("redirects are not followed")),
    closing("401", |_| status("401 No"), Waits("401")),
];

/// The body of this answer in one chunk; the last chunk is missing.
fn chunked(answer: &[u8]) -> Vec<u8> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap();
    let body = &answer[head + 4..];
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len());
    [head.as_bytes(), body, b"\r\n"].concat()
}

/// An answer of 200 that announces more bytes than it has.
fn short(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{body}").into()
}

fn status(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into()
}

fn large() -> Vec<u8> {
    let error = "x".repeat(16 << 20);
    ok(format!(r#"{{"errors":true,"items":[{{"create":{{"error":"{error}","status":400}}}}]}}"#))
}

fn busy(count: usize) -> Vec<u8> {
    items(true, all(count - 1, 201).chain(all(1, 429)))
}

/// A server of bulk requests. A request with the third report gets `answer`, and all others are confirmed.
fn serve(answer: Answer) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client may go before the answer has ended.
            thread::spawn(move || take(&stream, answer).unwrap_or_default());
        }
    });
    address
}

/// Answers one request. Then the connection ends.
fn take(stream: &TcpStream, Answer { bytes, is_held, .. }: Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.to_lowercase().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().unwrap(),
            Some(_) => {}
            None if line == "\r\n" => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let ids: Vec<Value> = serde_json::Deserializer::from_slice(&body)
        .into_iter::<Value>()
        .filter_map(|line| line.ok()?.pointer("/create/_id").cloned())
        .collect();
    let is_hostile = ids.contains(&json!(id(3)));
    let mut writer = stream;
    writer.write_all(&if is_hostile { bytes(ids.len()) } else { items(false, all(ids.len(), 201)) })?;
    if is_hostile && is_held {
        // Until the client goes, which is an error.
        reader.read_exact(&mut [0])?;
    }
    stream.shutdown(Shutdown::Write)
}

fn sink(answer: Answer) -> Http {
    // Only an answer that does not end takes this long.
    let timeout = if answer.is_held { Duration::from_millis(500) } else { LONG };
    let settings = settings(&format!("http://{}/_bulk", serve(answer)), timeout);
    Http::new(&config::Http { format: Format::Elasticsearch, ..settings }).unwrap()
}

#[test]
fn only_what_a_server_confirms_is_delivered_and_the_message_says_what_was_wrong() {
    for &answer in ANSWERS {
        let name = answer.name;
        let judged = sink(answer).deliver(&parcels([3]));
        match (answer.meaning, judged) {
            (Delivered, Ok(())) => {}
            (Refused(part), Err(DeliveryError::Refused(why))) => assert!(why.contains(part), "{name}: {why}"),
            (Waits(part), Err(DeliveryError::Unavailable { message, .. })) => {
                assert!(message.contains(part), "{name}: {message}");
            }
            (_, judged) => panic!("{name}: {judged:?}"),
        }
    }
}

#[test]
fn no_answer_holds_up_another_report() {
    for &answer in ANSWERS.iter().filter(|answer| matches!(answer.meaning, Refused(_))) {
        let outbox = Outbox::start(Box::new(sink(answer)), 16, Addresses::Full, None).unwrap();
        for seq in 1..=5 {
            outbox.offer(encoded(&id(seq)));
        }
        wait_until(answer.name, || outbox.metrics().delivered + outbox.metrics().dropped == 5);
        let metrics = outbox.metrics();
        assert_eq!((metrics.delivered, &metrics.lost), (4, &[("refused".to_owned(), 1)].into()), "{}", answer.name);
        assert_eq!(outbox.finish(LONG), 0);
    }
}
