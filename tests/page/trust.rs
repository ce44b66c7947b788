//! The line of trust: the page judges by the same rules, and in the same words, as the terminal.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_schema::{Interface, InterfaceSecond, Report, SECOND_SCHEMA, Second, Tally, trust};
use weir_tests::{chromium::Browser, daemon::weir_binary, netns::QuietPair};

use crate::{OBSERVED, PAGE, Watched};

/// Interfaces and their last second.
type Case = (Vec<Interface>, Option<Second>);

fn golden() -> Result<Vec<Interface>> {
    let report: Report = serde_json::from_str(include_str!("../../daemon/schema/tests/golden/report.json"))?;
    Ok(report.interfaces)
}

/// An interface without any trouble.
fn fine(name: &str, direction: &str) -> Result<Interface> {
    let mut one = golden()?.swap_remove(0);
    let tally = Tally { packets: 1_000, bytes: 800_000 };
    (one.name, one.direction, one.sampling) = (name.to_owned(), Some(direction.to_owned()), 1);
    (one.ledger.seen, one.ledger.attributed, one.ledger.sampled_out) = (tally, tally, Tally::default());
    one.ledger.skipped.clear();
    for lost in one.ledger.lost.values_mut() {
        *lost = Tally::default();
    }
    (one.coverage, one.coverage_lower, one.coverage_upper) = (Some(1.002), Some(0.99), Some(1.01));
    (one.repeated, one.blind_seconds, one.trouble) = Default::default();
    Ok(one)
}

fn skip(one: &mut Interface, reason: &str, packets: u64, bytes: u64) {
    one.ledger.attributed.packets -= packets;
    one.ledger.attributed.bytes -= bytes;
    one.ledger.skipped.insert(reason.to_owned(), Tally { packets, bytes });
}

fn second(interfaces: &[Interface], mode: &str, troubles: &[&str]) -> Second {
    let of = |of: &Interface| InterfaceSecond {
        name: of.name.clone(),
        direction: of.direction.clone(),
        mode: mode.to_owned(),
        counted: None,
        total: None,
        lost: Some(Tally { packets: 7, bytes: 700 }),
        trouble: None,
    };
    let time = jiff::Timestamp::UNIX_EPOCH;
    Second {
        schema: SECOND_SCHEMA.to_owned(),
        time,
        seconds: 1.0,
        skipped: 0,
        window_start: time,
        last_report: None,
        interfaces: interfaces.iter().map(of).collect(),
        troubles: troubles.iter().map(ToString::to_string).collect(),
    }
}

fn cases() -> Result<Vec<Case>> {
    let both = || anyhow::Ok(vec![fine("eth0", "ingress")?, fine("eth0", "egress")?]);
    let mut cases: Vec<Case> = vec![(golden()?, None), (both()?, None), (Vec::new(), None)];
    for mode in ["detached", "absent", "waiting", "refused", "blind", "gone", "no-default-route", "of a later weir"] {
        let mut one = both()?;
        mode.clone_into(&mut one[1].mode);
        (one[1].ledger.seen, one[1].ledger.attributed) = Default::default();
        cases.push((one.clone(), None));
        mode.clone_into(&mut one[0].mode);
        (one[0].ledger.seen, one[0].ledger.attributed) = Default::default();
        cases.push((one.clone(), Some(second(&one, "tcx", &[]))));
        cases.push((one, None));
        cases.push((both()?, Some(second(&both()?, mode, &[]))));
    }
    cases.push((both()?, Some(second(&both()?, "tcx", &["the kernel does not answer"]))));
    let mut skipped = both()?;
    skip(&mut skipped[0], "macsec", 100, 640_000);
    skip(&mut skipped[0], "arp", 150, 9_000);
    skip(&mut skipped[0], "lldp", 1, 90);
    skip(&mut skipped[1], "truncated_ip", 999, 799_000);
    cases.push((skipped.clone(), None));
    for repeated in [Tally { packets: 500, bytes: 400_000 }, skipped[1].ledger.seen] {
        skipped[1].repeated = repeated;
        cases.push((skipped.clone(), None));
    }
    let mut capture = fine("can.pcap", "ingress")?;
    (capture.mode, capture.direction, capture.coverage) = ("replay".to_owned(), None, None);
    cases.push((vec![capture.clone()], None));
    skip(&mut capture, "link_type", 1_000, 800_000);
    cases.push((vec![capture], None));
    let mut others = both()?;
    (others[0].coverage, others[0].coverage_lower, others[0].coverage_upper) = (Some(1.2), Some(1.1), Some(1.3));
    (others[1].coverage, others[1].coverage_lower, others[1].coverage_upper) = (Some(0.9), Some(0.8), Some(0.9999));
    cases.push((others.clone(), None));
    others[1].unmeasured_seconds = Some(20.0);
    others[0].ledger.lost.insert("ring_full".to_owned(), Tally { packets: 1, bytes: 60 });
    cases.push((others, None));
    Ok(cases)
}

pub fn the_page_trusts_what_the_terminal_trusts() -> Result<()> {
    let watched = Watched::start("report: {interval: 10s}\n")?;
    let mut browser = Browser::start(&watched.pair.observer)?;
    browser.open(PAGE)?;
    for (interfaces, second) in cases()? {
        let [of, now] = [json!(interfaces), json!(second)].map(|value| value.to_string());
        let shown = browser
            .value(&format!("import('./report/trust.js').then(({{ facts }}) => facts({of}, {now} ?? undefined))"))?;
        let told = serde_json::to_value(trust(&interfaces, second.as_ref()))?;
        ensure!(shown == told, "the page says {shown}\nand the terminal {told}\nof {of}\nand {now}");
    }
    Ok(())
}

pub fn a_detached_interface_is_not_measured() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 1s}\ncontrol: {socket: control.sock}\n")?;
    watched.with_traffic(|pair: &QuietPair, daemon| {
        let mut browser = Browser::start(&pair.observer)?;
        browser.open(PAGE)?;
        browser.wait_for("a rate", "document.querySelector('[data-rate]')")?;
        let socket = daemon.directory().join("control.sock");
        let status = Command::new(weir_binary()?).args(["detach", "--all", "--socket"]).arg(socket).status()?;
        ensure!(status.success(), "weir detach: {status}");
        let card = format!("document.querySelector('[data-interface={OBSERVED}] .ways').textContent");
        browser.wait_for("no rate", &format!("{card}.includes('not measured')"))?;
        let headline = "document.getElementById('trust').textContent";
        browser.wait_for("a window without it", &format!("{headline}.includes('kept unknown')"))?;
        let trust = browser.value(headline)?;
        let trust = trust.as_str().context("no line of trust")?;
        for words in [": not measured", "attached 0 of 1", &format!("not measured: {OBSERVED} (detached)")] {
            ensure!(trust.contains(words), "{words:?} is not in {trust}");
        }
        let good: Value = browser.value("document.querySelectorAll('#trust .good').length")?;
        ensure!(good == 0, "something is good: {trust}");
        ensure!(browser.value("document.querySelector('[data-rate]')")?.is_null(), "there is a rate: {trust}");
        Ok(())
    })
}
