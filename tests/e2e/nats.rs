//! Reports are in a JetStream stream once and in order, even if the server or weir is killed.

use std::{collections::BTreeSet, net::Ipv4Addr};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal},
    nats::{Server, Talk},
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{TIMEOUT, check_accounts, number, waiting, weir_with};

tests![a_stream_has_each_report_once_and_in_order];

/// The programs that this test needs.
pub fn requirements() -> Result<(), String> {
    weir_tests::netns::requirements()?;
    weir_tests::nats::requirements()
}

const SUBJECT: &str = "edge.weir";

/// A router and its server, in one namespace, and the folder that outlives each weir.
struct Delivery {
    pair: QuietPair,
    server: Server,
    state: Scratch,
}

impl Delivery {
    fn new() -> Result<Self> {
        let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
        let mut server = Server::new(state.path(), (Ipv4Addr::LOCALHOST, 4222).into(), Some(&pair.observer));
        start(&mut server, &pair)?;
        pair.observer.enter(|| server.talk()?.stream("CREATE", SUBJECT, &json!({})))??;
        Ok(Self { pair, server, state })
    }

    fn weir(&self) -> Result<Daemon> {
        let scratch = Scratch::new()?;
        let program = weir_with(&[("STATE_DIRECTORY", self.state.path())], &scratch)?;
        let mut daemon = Daemon::start_program(&program, Some(&self.pair.observer), |_| {
            let nats =
                format!("{{type: nats, url: \"nats://127.0.0.1\", subject: {SUBJECT}, timeout: 1s, addresses: none}}");
            let file = format!("{{type: file, path: {}}}", self.state.file("reports.ndjson").display());
            let interface = QuietPair::OBSERVER_INTERFACE;
            format!("interfaces: [{interface}]\nreport: {{interval: 1s}}\nsinks: [{nats}, {file}]\n")
        })?;
        daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
        Ok(daemon)
    }

    /// The ids of the reports that wait on disk for the server.
    fn waiting(&self) -> Result<BTreeSet<String>> {
        waiting(&self.state, "nats")
    }

    fn wait_for_waiting(&self, what: &str, is_it: impl Fn(usize) -> bool) -> Result<BTreeSet<String>> {
        clock::wait_for(what, TIMEOUT, || Ok(Some(self.waiting()?).filter(|waiting| is_it(waiting.len()))))
    }
}

fn start(server: &mut Server, pair: &QuietPair) -> Result<()> {
    server.begin("")?;
    pair.observer.enter(|| server.wait())?
}

fn a_stream_has_each_report_once_and_in_order() -> Result<()> {
    let mut delivery = Delivery::new()?;
    let mut weir = delivery.weir()?;
    let mut on_disk = BTreeSet::new();
    for _ in 0..2 {
        let count = || delivery.pair.observer.enter(|| delivery.server.talk()?.count())?;
        let before = count()?;
        clock::wait_for("reports in the stream", TIMEOUT, || Ok((count()? >= before + 2).then_some(())))?;
        delivery.server.kill()?;
        delivery.wait_for_waiting("reports on the disk", |waiting| waiting > 2)?;
        weir.signal(Signal::KILL)?;
        weir.wait(TIMEOUT)?;
        ensure!(!weir.log()?.contains("panicked"), "{}", weir.log()?);
        on_disk.extend(delivery.waiting()?);
        weir = delivery.weir()?;
        start(&mut delivery.server, &delivery.pair)?;
        weir.wait_for_line("the sink accepts reports again", TIMEOUT).or_else(|error| {
            // Perhaps no delivery has failed.
            if delivery.waiting()?.is_empty() { Ok(String::new()) } else { Err(error) }
        })?;
    }
    delivery.wait_for_waiting("an empty spool", |waiting| waiting == 0)?;
    weir.signal(Signal::TERM)?;
    ensure!(weir.wait(TIMEOUT)?.success(), "{}", weir.log()?);
    ensure!(!weir.log()?.contains("async_nats"), "the client's own lines are no lines of weir's: {}", weir.log()?);

    let messages =
        delivery.pair.observer.enter(|| delivery.server.talk().and_then(|mut talk: Talk| talk.messages()))??;
    let reports: Vec<Value> =
        messages.iter().map(|message| Ok(serde_json::from_slice(&message.payload)?)).collect::<Result<_>>()?;
    let ids: Vec<&str> = messages.iter().map(|message| message.id()).collect();
    for (report, id) in reports.iter().zip(&ids) {
        ensure!(report["id"] == *id, "{id} has the report {}", report["id"]);
    }
    let once: BTreeSet<_> = ids.iter().map(|id| (*id).to_owned()).collect();
    ensure!(once.len() == ids.len(), "a report is there twice: {ids:?}");
    let missing: Vec<_> = on_disk.difference(&once).collect();
    ensure!(
        missing.is_empty() && !on_disk.is_empty(),
        "on the disk, and never in the stream: {missing:?}; there: {ids:?}"
    );
    let seqs = reports.iter().map(|report| number(&report["observer"]["seq"])).collect::<Result<Vec<_>>>()?;
    ensure!(seqs.is_sorted(), "not in order: {seqs:?}");
    check_accounts(&reports, Loss::None).map(drop)
}
