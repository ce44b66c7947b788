//! The sink `nats` and its spool against the real `nats-server`: each report is in the stream once and in order.

mod login;

use std::{collections::BTreeSet, fs, ops::RangeInclusive, path::Path, process::ExitCode, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_tests::{
    clock,
    nats::{Message, Server, TIMEOUT, Talk, free_address, requirements},
    proxy::Proxy,
    router::{Router, answers, encoded, id, line},
    scratch::Scratch,
    trial::{needed, run, trial},
};

fn main() -> ExitCode {
    let there = needed(requirements());
    let with_server = |name, test| trial(name, test, &[&there]);
    let trials = vec![
        with_server("a_report_is_a_message_under_its_id", a_report_is_a_message_under_its_id),
        with_server(
            "each_comes_once_and_in_order_however_the_server_dies",
            each_comes_once_and_in_order_however_it_dies,
        ),
        with_server("a_lost_acknowledgement_makes_no_duplicate", a_lost_acknowledgement_makes_no_duplicate),
        with_server("a_server_that_is_down_holds_no_other_sink_up", a_server_that_is_down_holds_no_other_sink_up),
        with_server("a_stream_that_is_missing_is_asked_for", a_stream_that_is_missing_is_asked_for),
        with_server("a_server_without_jetstream_is_named", a_server_without_jetstream_is_named),
        with_server("a_report_that_is_too_large_is_put_aside", a_report_that_is_too_large_is_put_aside),
        with_server("a_full_stream_is_tried_again", a_full_stream_is_tried_again),
        with_server("a_connection_stays_while_nothing_is_sent", a_connection_stays_while_nothing_is_sent),
        with_server("a_secret_is_read_anew_and_never_told", login::a_secret_is_read_anew_and_never_told),
        with_server("credentials_sign_what_the_server_asks", login::credentials_sign_what_the_server_asks),
        with_server("a_missing_permission_is_reported", login::a_missing_permission_is_reported),
        with_server("a_connection_is_encrypted_for_both", login::a_connection_is_encrypted_for_both),
    ];
    run(trials)
}

/// The subject of the tests.
const SUBJECT: &str = "weir.reports";

/// A router with one sink, which sends to a server, with these settings besides.
fn router(folder: &Path, server: &Server, settings: &str) -> Result<Router> {
    Router::with(folder, &format!("{{type: nats, url: \"nats://{}\", queue: 4096, {settings}}}", server.address()))
}

/// Checks that the stream has exactly these reports, each once, in order, and as they were.
fn check(messages: &[Message], numbers: RangeInclusive<u64>) -> Result<()> {
    let found: Vec<_> = messages.iter().map(Message::id).collect();
    let expected: Vec<_> = numbers.clone().map(id).collect();
    ensure!(found == expected, "the stream has {found:?}\nexpected: {expected:?}");
    for (message, number) in messages.iter().zip(numbers) {
        ensure!(message.payload == line(number).as_bytes(), "{:?} is not as it was", message.id());
    }
    Ok(())
}

fn with_stream(settings: &Value) -> Result<(Scratch, Server, Talk)> {
    let scratch = Scratch::new()?;
    let server = Server::start(scratch.path(), "")?;
    let mut talk = server.talk()?;
    talk.stream("CREATE", SUBJECT, settings)?;
    Ok((scratch, server, talk))
}

fn a_report_is_a_message_under_its_id() -> Result<()> {
    let (scratch, server, mut talk) = with_stream(&json!({"subjects": ["edge.*"]}))?;
    let router = router(scratch.path(), &server, "subject: edge.weir")?;
    router.offer(1..=150);
    router.wait_for(150)?;
    let messages = talk.messages()?;
    check(&messages, 1..=150)?;
    for message in &messages {
        ensure!(message.header("Content-Type") == Some("application/json"), "{message:?}");
        ensure!(message.header("Nats-Subject") == Some("edge.weir"), "{message:?}");
        serde_json::from_slice::<Value>(&message.payload)?;
    }
    let metrics = router.metrics();
    ensure!(metrics.name == format!("nats:{}/edge.weir", server.address()), "{metrics:?}");
    ensure!(metrics.last_error.is_none() && metrics.failed_attempts == 0, "{metrics:?}");
    Ok(())
}

fn each_comes_once_and_in_order_however_it_dies() -> Result<()> {
    const KILLS: u64 = 6;
    const REPORTS: u64 = 600;
    let (scratch, mut server, talk) = with_stream(&json!({}))?;
    drop(talk);
    let router = router(scratch.path(), &server, "timeout: 1s")?;
    thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            for number in 1..=REPORTS {
                router.offer(number..=number);
                thread::sleep(Duration::from_millis(2));
            }
        });
        for kill in 0..KILLS {
            // Each kill comes at a different moment.
            thread::sleep(Duration::from_millis(120 + kill * 7919 % 97));
            server.kill()?;
            server.begin("")?;
            server.wait()?;
        }
        Ok(())
    })?;
    router.wait_for(REPORTS)?;
    ensure!(router.metrics().failed_attempts > 0, "no kill interrupted a delivery: {:?}", router.metrics());
    check(&server.talk()?.messages()?, 1..=REPORTS)
}

fn a_lost_acknowledgement_makes_no_duplicate() -> Result<()> {
    const REPORTS: u64 = 90;
    let (scratch, server, mut talk) = with_stream(&json!({}))?;
    let address = free_address()?;
    let sink = format!("{{type: nats, url: \"nats://{address}\", timeout: 500ms, queue: 4096}}");
    let new =
        || clock::wait_for("the end of the sink before", TIMEOUT, || Ok(Router::with(scratch.path(), &sink).ok()));
    let first = new()?;
    first.offer(1..=REPORTS);
    clock::wait_for("all on disk", TIMEOUT, || {
        Ok(first.metrics().spool.is_some_and(|spool| spool.reports == REPORTS).then_some(()))
    })?;
    drop(first);

    // All of them are sent at once and stored, but neither this sink nor the next one gets an acknowledgement.
    // They are the only messages that a server sends to a sink.
    let proxy =
        Proxy::start(address, server.address(), |answer| answer.bytes.windows(5).any(|bytes| bytes == b"MSG _"))?;
    proxy.drop_acknowledgements();
    for _ in 0..2 {
        let deaf = new()?;
        deaf.wait_for_error("no stream has acknowledged it within")?;
        clock::wait_for("the stream to have them", TIMEOUT, || Ok((talk.count()? == REPORTS).then_some(())))?;
        ensure!(deaf.metrics().delivered == 0, "nothing was acknowledged: {:?}", deaf.metrics());
    }
    proxy.let_through();
    let last = new()?;
    last.wait_for(REPORTS)?;
    last.offer(REPORTS + 1..=REPORTS + 1);
    last.wait_for(REPORTS + 1)?;
    check(&talk.messages()?, 1..=REPORTS + 1)
}

fn a_server_that_is_down_holds_no_other_sink_up() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut server = Server::new(scratch.path(), free_address()?, None);
    let file = scratch.file("reports.ndjson");
    let sinks = format!(
        "{{type: nats, url: \"nats://{}\", queue: 4096}}, {{type: file, path: {}, queue: 4096}}",
        server.address(),
        file.display()
    );
    let router = Router::with(scratch.path(), &sinks)?;
    router.offer(1..=20);
    let written = || -> Result<usize> { Ok(fs::read_to_string(&file).unwrap_or_default().lines().count()) };
    clock::wait_for("the file to have all", TIMEOUT, || Ok((written()? == 20).then_some(())))?;
    router.wait_for_error("cannot connect to nats://127.0.0.1:")?;
    let metrics = router.metrics();
    ensure!((metrics.delivered, metrics.queued, metrics.dropped) == (0, 20, 0), "{metrics:?}");
    server.begin("")?;
    server.wait()?;
    let mut talk = server.talk()?;
    talk.stream("CREATE", SUBJECT, &json!({}))?;
    router.wait_for(20)?;
    check(&talk.messages()?, 1..=20)?;
    ensure!(written()? == 20, "the file has its own position");
    Ok(())
}

fn a_stream_that_is_missing_is_asked_for() -> Result<()> {
    let scratch = Scratch::new()?;
    let server = Server::start(scratch.path(), "")?;
    let router = router(scratch.path(), &server, "")?;
    router.offer(1..=5);
    let said = router.wait_for_error("no JetStream stream takes the subject \"weir.reports\"")?;
    ensure!(said.contains("nats stream add") && !said.contains("without JetStream"), "{said}");
    let mut talk = server.talk()?;
    talk.stream("CREATE", SUBJECT, &json!({}))?;
    router.wait_for(5)?;
    check(&talk.messages()?, 1..=5)
}

fn a_server_without_jetstream_is_named() -> Result<()> {
    let scratch = Scratch::new()?;
    let server = Server::start(scratch.path(), "jetstream: false")?;
    let router = router(scratch.path(), &server, "")?;
    router.offer(1..=1);
    router.wait_for_error("this server says that it runs without JetStream").map(drop)
}

fn a_report_that_is_too_large_is_put_aside() -> Result<()> {
    const LARGEST: usize = 4096;
    let scratch = Scratch::new()?;
    let server = Server::start(scratch.path(), &format!("max_payload: {LARGEST}"))?;
    let mut talk = server.talk()?;
    talk.stream("CREATE", SUBJECT, &json!({}))?;
    let router = router(scratch.path(), &server, "")?;
    // As the protocol counts them (HPUB): headers and payload.
    let sized = |number: u64, bytes: usize| {
        let headers = format!("NATS/1.0\r\nNats-Msg-Id: {}\r\nContent-Type: application/json\r\n\r\n", id(number));
        // Without its newline, and with one byte of padding.
        let least = headers.len() + encoded(number, 1).line.len() - 1;
        encoded(number, 1 + bytes - least)
    };
    for report in &[sized(1, LARGEST), sized(2, LARGEST + 1), encoded(3, 0)] {
        router.offer_one(report);
    }
    // The third is delivered beside a tombstone for the second.
    router.wait_for(2)?;
    clock::wait_for("a tombstone", TIMEOUT, || Ok((talk.count()? == 3).then_some(())))?;
    let messages = talk.messages()?;
    let ids: BTreeSet<_> = messages.iter().map(Message::id).collect();
    ensure!(ids == BTreeSet::from([&*id(1), &*format!("{}-2", id(2)), &*id(3)]), "{ids:?}");
    let second = messages.iter().find(|message| message.id() == format!("{}-2", id(2))).context("no tombstone")?;
    let tombstone: Value = serde_json::from_slice(&second.payload)?;
    ensure!(tombstone["reason"] == "refused" && tombstone["first_seq"] == 2, "{tombstone}");
    ensure!(router.metrics().lost["refused"] == 1, "{:?}", router.metrics());
    let answer = answers(&router.spool)?;
    ensure!(answer.contains(&format!("has {} bytes, and the server takes {LARGEST}", LARGEST + 1)), "{answer}");

    // A message that the stream itself refuses is put aside, too.
    talk.stream("UPDATE", SUBJECT, &json!({"max_msg_size": 1024}))?;
    router.offer_one(&encoded(4, 2048));
    router.offer(5..=5);
    router.wait_for(3)?;
    let is_told = || {
        let answer = answers(&router.spool)?;
        Ok(answer.contains("the stream refuses it: message size exceeds maximum allowed").then_some(()))
    };
    clock::wait_for("the stream's answer", TIMEOUT, is_told)?;
    Ok(())
}

fn a_full_stream_is_tried_again() -> Result<()> {
    let (scratch, server, mut talk) = with_stream(&json!({"max_msgs": 3}))?;
    let router = router(scratch.path(), &server, "")?;
    router.offer(1..=8);
    router.wait_for_error("the stream does not take it now: maximum messages exceeded")?;
    talk.stream("UPDATE", SUBJECT, &json!({"max_msgs": 100}))?;
    router.wait_for(8)?;
    ensure!(router.metrics().dropped == 0, "{:?}", router.metrics());
    check(&talk.messages()?, 1..=8)
}

fn a_connection_stays_while_nothing_is_sent() -> Result<()> {
    let scratch = Scratch::new()?;
    let monitor = free_address()?;
    let settings = format!("http: {monitor}\nping_interval: \"1s\"\nping_max: 2");
    let server = Server::start(scratch.path(), &settings)?;
    server.talk()?.stream("CREATE", SUBJECT, &json!({}))?;
    let number = |what: &str| -> Result<u64> {
        let answer = weir_tests::collecting::say(monitor, b"GET /varz HTTP/1.0\r\nHost: x\r\n\r\n", b"")?;
        answer.body[what].as_u64().with_context(|| format!("{what} of {answer:?}"))
    };
    let router = router(scratch.path(), &server, "")?;
    router.offer(1..=1);
    router.wait_for(1)?;
    let before = number("total_connections")?;
    // Meanwhile the server sends some five pings, and closes a connection that leaves two of them unanswered.
    thread::sleep(Duration::from_secs(5));
    router.offer(2..=2);
    router.wait_for(2)?;
    ensure!(number("total_connections")? == before, "it was made again");
    ensure!(router.metrics().failed_attempts == 0, "{:?}", router.metrics());
    ensure!(number("connections")? == 1, "one for all deliveries");
    drop(router);
    clock::wait_for("the connection to end with its sink", TIMEOUT, || Ok((number("connections")? == 0).then_some(())))
}
