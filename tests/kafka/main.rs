//! The sink `kafka` and its spool against a real broker: each report is in the topic, once by its id and in order.

mod login;

use std::{collections::BTreeSet, fs, ops::RangeInclusive, path::Path, process::ExitCode};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use weir_tests::{
    clock,
    kafka::{Broker, Record, TIMEOUT, requirements},
    nats::free_address,
    proxy::Proxy,
    router::{Router, encoded, id, line},
    scratch::Scratch,
    trial::{needed, run, trial},
};

fn main() -> ExitCode {
    let there = needed(requirements());
    let with_broker = |name, test| trial(name, test, &[&there]);
    run(vec![
        with_broker("a_report_is_a_record_under_its_id", a_report_is_a_record_under_its_id),
        with_broker("none_is_missing_after_a_restart_of_the_broker", none_is_missing_after_a_restart_of_the_broker),
        with_broker("a_restart_in_the_middle_loses_none", a_restart_in_the_middle_loses_none),
        with_broker("a_lost_acknowledgement_sends_the_same_ids_again", a_lost_acknowledgement_sends_the_same_ids_again),
        with_broker("a_broker_that_hangs_holds_no_other_sink_up", a_broker_that_hangs_holds_no_other_sink_up),
        with_broker("a_topic_that_is_missing_is_asked_for", a_topic_that_is_missing_is_asked_for),
        with_broker("a_connection_stays_between_reports", a_connection_stays_between_reports),
        with_broker("a_connection_is_encrypted_for_both", login::a_connection_is_encrypted_for_both),
        with_broker("a_password_is_read_anew_and_never_told", login::a_password_is_read_anew_and_never_told),
    ])
}

/// The topic of the tests.
const TOPIC: &str = "weir.reports";

/// A router with one sink, which sends to a broker, with these settings besides.
fn router(folder: &Path, broker: &Broker, settings: &str) -> Result<Router> {
    Router::with(folder, &format!("{{type: kafka, brokers: [\"{}\"], queue: 4096, {settings}}}", broker.address()))
}

/// A broker with the topic, which has three partitions.
fn with_topic() -> Result<(Scratch, Broker)> {
    let scratch = Scratch::new()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    broker.start()?;
    broker.create(TOPIC, 3)?;
    Ok((scratch, broker))
}

/// Checks that these records are exactly these reports, each once, in order, and as they were.
fn check(records: &[Record], numbers: RangeInclusive<u64>) -> Result<()> {
    let found: Vec<_> = records.iter().map(Record::id).collect();
    let expected: Vec<_> = numbers.clone().map(id).collect();
    ensure!(found == expected, "the topic has {found:?}\nexpected: {expected:?}");
    for (record, number) in records.iter().zip(numbers) {
        ensure!(record.value == line(number), "{:?} is not as it was", record.id());
    }
    Ok(())
}

/// The first record of each id.
fn distinct(records: Vec<Record>) -> Vec<Record> {
    let mut seen = BTreeSet::new();
    records.into_iter().filter(|record| seen.insert(record.id().to_owned())).collect()
}

fn a_report_is_a_record_under_its_id() -> Result<()> {
    let (scratch, broker) = with_topic()?;
    let router = router(scratch.path(), &broker, "")?;
    router.offer(1..=250);
    router.wait_for(250)?;
    let records = broker.records(TOPIC)?;
    check(&records, 1..=250)?;
    for record in &records {
        ensure!(record.key == "7f3c9a52" && record.partition == records[0].partition, "{record:?}");
        ensure!(record.header("content-type") == Some("application/json"), "{record:?}");
        serde_json::from_str::<Value>(&record.value)?;
    }
    // A window has just ended when its report is offered.
    let age = clock::since_epoch().as_millis().abs_diff(records[0].time.try_into()?);
    ensure!(age < 60_000, "{:?} of {age} ms", records[0]);
    let metrics = router.metrics();
    ensure!(metrics.name == format!("kafka:{}/{TOPIC}", broker.address()), "{metrics:?}");
    ensure!(metrics.last_error.is_none() && metrics.failed_attempts == 0, "{metrics:?}");
    Ok(())
}

fn none_is_missing_after_a_restart_of_the_broker() -> Result<()> {
    let (scratch, mut broker) = with_topic()?;
    let router = router(scratch.path(), &broker, "timeout: 1s")?;
    let mut kept = Vec::new();
    for restart in 0..2_u64 {
        let first = restart * 100 + 1;
        router.offer(first..=first + 49);
        router.wait_for(first + 49)?;
        // This broker keeps records only in memory, so read them before it is killed.
        kept.extend(broker.records(TOPIC)?);
        broker.kill()?;
        router.offer(first + 50..=first + 99);
        router.wait_for_error("onnect")?;
        broker.start()?;
        router.wait_for_error("shows weir no topic \"weir.reports\"")?;
        broker.create(TOPIC, 3)?;
    }
    router.wait_for(200)?;
    kept.extend(broker.records(TOPIC)?);
    ensure!(router.metrics().dropped == 0, "{:?}", router.metrics());
    check(&distinct(kept), 1..=200)
}

/// The broker ends while records are on their way to it, and while it writes them; what it has acknowledged, it has.
fn a_restart_in_the_middle_loses_none() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    broker.keep_in(free_address()?)?;
    broker.start()?;
    broker.create(TOPIC, 3)?;
    let router = router(scratch.path(), &broker, "timeout: 1s")?;
    let mut offered = 0;
    let mut offer = |reports| {
        router.offer(offered + 1..=offered + reports);
        offered += reports;
        offered
    };
    for signal in [Signal::KILL, Signal::TERM, Signal::KILL] {
        let before = router.metrics().delivered;
        offer(500);
        router.wait_for(before + 1)?;
        broker.end(signal)?;
        offer(50);
        router.wait_for_error("onnect")?;
        broker.start()?;
    }
    let offered = offer(1);
    router.wait_for(offered)?;
    let metrics = router.metrics();
    ensure!((metrics.delivered, metrics.dropped, metrics.queued) == (offered, 0, 0), "{metrics:?}");
    check(&distinct(broker.records(TOPIC)?), 1..=offered)
}

fn a_lost_acknowledgement_sends_the_same_ids_again() -> Result<()> {
    const REPORTS: u64 = 90;
    let scratch = Scratch::new()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    let seen = free_address()?;
    broker.start_behind(seen, &[])?;
    // Before it sends records, a connection sends far fewer bytes.
    let proxy = Proxy::start(seen, broker.address(), |answer| answer.sent >= 4096)?;
    let router =
        Router::with(scratch.path(), &format!("{{type: kafka, brokers: [\"{seen}\"], timeout: 500ms, queue: 4096}}"))?;
    // The other client goes through the proxy, too: the broker tells only that address.
    broker.create(TOPIC, 1)?;
    router.offer(1..=REPORTS);
    router.wait_for(REPORTS)?;
    check(&distinct(broker.records(TOPIC)?), 1..=REPORTS)?;

    proxy.drop_acknowledgements();
    router.offer(REPORTS + 1..=2 * REPORTS);
    router.wait_for_error("no acknowledgement within 500ms")?;
    ensure!(router.metrics().delivered == REPORTS, "nothing was acknowledged: {:?}", router.metrics());
    proxy.let_through();
    router.wait_for(2 * REPORTS)?;
    let records = broker.records(TOPIC)?;
    ensure!(records.len() as u64 > 2 * REPORTS, "nothing was sent again: {} records", records.len());
    check(&distinct(records), 1..=2 * REPORTS)
}

fn a_broker_that_hangs_holds_no_other_sink_up() -> Result<()> {
    let (scratch, broker) = with_topic()?;
    let file = scratch.file("reports.ndjson");
    let sinks = format!(
        "{{type: kafka, brokers: [\"{}\"], timeout: 500ms, queue: 4096}}, {{type: file, path: {}, queue: 4096}}",
        broker.address(),
        file.display()
    );
    let router = Router::with(scratch.path(), &sinks)?;
    router.offer(1..=10);
    router.wait_for(10)?;
    broker.signal(Signal::STOP)?;
    router.offer(11..=400);
    let written = || -> Result<usize> { Ok(fs::read_to_string(&file).unwrap_or_default().lines().count()) };
    clock::wait_for("the file to have all", TIMEOUT, || Ok((written()? == 400).then_some(())))?;
    // The connection that is open, and a new one.
    router.wait_for_error("no acknowledgement within 500ms")?;
    router.wait_for_error("no answer within 500ms")?;
    let metrics = router.metrics();
    ensure!((metrics.delivered, metrics.dropped) == (10, 0), "all wait on the disk: {metrics:?}");
    broker.signal(Signal::CONT)?;
    router.wait_for(400)?;
    check(&distinct(broker.records(TOPIC)?), 1..=400)
}

fn a_topic_that_is_missing_is_asked_for() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut broker = Broker::new(scratch.path(), free_address()?, None);
    broker.start()?;
    let router = router(scratch.path(), &broker, "topic: edge.weir")?;
    router.offer_one(&encoded(1, 0));
    let said = router.wait_for_error("no topic \"edge.weir\": create it")?;
    ensure!(said.contains(&format!("--topic edge.weir --bootstrap-server {}", broker.address())), "{said}");
    broker.create("edge.weir", 1)?;
    router.wait_for(1)?;
    check(&broker.records("edge.weir")?, 1..=1)
}

fn a_connection_stays_between_reports() -> Result<()> {
    let (scratch, broker) = with_topic()?;
    let router = router(scratch.path(), &broker, "")?;
    let connections = || -> Result<BTreeSet<String>> {
        let all = fs::read_to_string("/proc/self/net/tcp")?;
        let port = format!(":{:04X}", broker.address().port());
        // The local address of each established connection to the broker.
        let lines = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let open = lines.filter(|words| words.len() > 3 && words[2].ends_with(&port) && words[3] == "01");
        Ok(open.map(|words| words[1].to_owned()).collect())
    };
    router.offer(1..=1);
    router.wait_for(1)?;
    let before = connections()?;
    for number in 2..=20 {
        router.offer(number..=number);
        router.wait_for(number)?;
    }
    ensure!(connections()? == before && (1..=2).contains(&before.len()), "{before:?}");
    check(&broker.records(TOPIC)?, 1..=20)?;
    drop(router);
    clock::wait_for("the connections to end with their sink", TIMEOUT, || Ok(connections()?.is_empty().then_some(())))
}
