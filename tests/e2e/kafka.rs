//! Reports are in a topic by their ids, in order, even if weir is killed and its broker hangs.

use std::{collections::BTreeSet, net::Ipv4Addr};

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal},
    kafka::Broker,
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{TIMEOUT, check_accounts, number, waiting, weir_with};

tests![a_topic_has_each_report_by_its_id_and_in_order];

/// The programs that this test needs.
pub fn requirements() -> Result<(), String> {
    weir_tests::netns::requirements()?;
    weir_tests::kafka::requirements()
}

const TOPIC: &str = "edge.weir";

fn start(pair: &QuietPair, state: &Scratch) -> Result<Daemon> {
    let scratch = Scratch::new()?;
    let program = weir_with(&[("STATE_DIRECTORY", state.path())], &scratch)?;
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |_| {
        let kafka = format!("{{type: kafka, brokers: [127.0.0.1], topic: {TOPIC}, timeout: 1s, addresses: none}}");
        let interface = QuietPair::OBSERVER_INTERFACE;
        format!("interfaces: [{interface}]\nreport: {{interval: 1s}}\nsinks: [{kafka}]\n")
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    Ok(daemon)
}

fn a_topic_has_each_report_by_its_id_and_in_order() -> Result<()> {
    let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
    let mut broker = Broker::new(state.path(), (Ipv4Addr::LOCALHOST, 9092).into(), Some(&pair.observer));
    broker.start()?;
    broker.create(TOPIC, 3)?;
    let mut weir = start(&pair, &state)?;
    let mut on_disk = BTreeSet::new();
    for _ in 0..2 {
        let count = || Ok::<_, anyhow::Error>(broker.records(TOPIC)?.len());
        let before = count()?;
        clock::wait_for("reports in the topic", TIMEOUT, || Ok((count()? >= before + 2).then_some(())))?;
        broker.signal(Signal::STOP)?;
        let waits = || Ok(Some(waiting(&state, "kafka")?).filter(|ids| ids.len() > 2));
        clock::wait_for("reports on the disk", TIMEOUT, waits)?;
        weir.signal(Signal::KILL)?;
        weir.wait(TIMEOUT)?;
        on_disk.extend(waiting(&state, "kafka")?);
        ensure!(!weir.log()?.contains("panicked"), "{}", weir.log()?);
        weir = start(&pair, &state)?;
        weir.wait_for_line("no answer within", TIMEOUT)?;
        broker.signal(Signal::CONT)?;
        weir.wait_for_line("the sink accepts reports again", TIMEOUT)?;
    }
    weir.signal(Signal::TERM)?;
    ensure!(weir.wait(TIMEOUT)?.success(), "{}", weir.log()?);
    ensure!(!weir.log()?.contains("rskafka"), "the client's own lines are no lines of weir's: {}", weir.log()?);

    let mut ids = BTreeSet::new();
    let records: Vec<_> =
        broker.records(TOPIC)?.into_iter().filter(|record| ids.insert(record.id().to_owned())).collect();
    let reports: Vec<Value> =
        records.iter().map(|record| Ok(serde_json::from_str(&record.value)?)).collect::<Result<_>>()?;
    for (report, record) in reports.iter().zip(&records) {
        ensure!(report["id"] == record.id() && report["observer"]["id"] == *record.key, "{record:?}");
    }
    let missing: Vec<_> = on_disk.difference(&ids).collect();
    ensure!(
        missing.is_empty() && !on_disk.is_empty(),
        "on the disk, and never in the topic: {missing:?}; there: {ids:?}"
    );
    let seqs = reports.iter().map(|report| number(&report["observer"]["seq"])).collect::<Result<Vec<_>>>()?;
    ensure!(seqs.is_sorted(), "not in order: {seqs:?}");
    check_accounts(&reports, Loss::None).map(drop)
}
