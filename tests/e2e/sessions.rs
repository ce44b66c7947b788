//! Interfaces of a pattern that live for a moment: what passes them is in a ledger, as far as the kernel tells it.

use std::{thread, time::Duration};

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::Loss,
    inject::Pace,
    netns::Lab,
    oracle::Oracle,
    traffic::{Plan, Traffic},
};

use crate::{
    following::link,
    watch::{self, list, measure, number, stop},
};

tests![what_passes_short_sessions_is_known, what_passes_short_sessions_is_known_by_packet_sockets,];

/// How many interfaces come and go. They share a few names, as sessions of an access router do.
const SESSIONS: u64 = 20;
const NAMES: u64 = 5;

fn what_passes_short_sessions_is_known() -> Result<()> {
    check("auto")
}

fn what_passes_short_sessions_is_known_by_packet_sockets() -> Result<()> {
    check("afpacket")
}

fn check(mode: &str) -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let send = |[near, far]: [&str; 2], seed, packets| {
        let plan = Plan { seed, packets, flows: 20, ..Plan::default() };
        watch::send(&pair, [near, far], Traffic::new(plan)?, Pace::Unlimited, &mut Oracle::new())
    };
    // Packets that passed before weir was started are not lost.
    link(&pair, ["near-old", "ppp-old"])?;
    send(["near-old", "ppp-old"], 1, 3_000)?;
    let mut daemon = measure(
        &pair.observer,
        &format!("interfaces: [{{name: \"ppp*\", mode: {mode}, direction: both}}]\nreport: {{interval: 1s}}\n"),
    )?;
    let mut sent = Tally::default();
    for nth in 0..SESSIONS {
        let [near, far] = [format!("near{nth}"), format!("ppp{}", nth % NAMES)];
        link(&pair, [&near, &far])?;
        // Some live long enough for weir to attach, and some do not.
        thread::sleep(Duration::from_millis(nth % 4 * 25));
        sent.add(send([&near, &far], 2 + nth, 50 + nth)?);
        // A veth that is deleted has forgotten what it had received. One that moves away has not.
        pair.observer.ip(&format!("link set {far} netns {}", pair.generator.name()))?;
        pair.generator.ip(&format!("link delete {near}"))?;
    }
    let old = send(["near-old", "ppp-old"], 1_000, 30)?;
    // The kernel may report the last interface only now.
    let reported = daemon.reports()?.len();
    daemon.wait_for_reports(reported + 3, watch::TIMEOUT)?;
    let reports = stop(&mut daemon, Loss::Possible(&["blind"]))?;
    let mut seen = Ledgers::default();
    for report in &reports {
        for interface in list(&report["interfaces"])? {
            let is_old = interface["name"] == "ppp-old";
            let ledgers = Ledgers::of(&interface["ledger"])?;
            ensure!(!is_old || ledgers.lost == 0, "{interface}");
            if interface["direction"] == "ingress" && !is_old {
                seen.add(ledgers);
            }
        }
    }
    let on_old = watch::seen_in("ppp-old", "ingress", &reports)?;
    ensure!(on_old == old, "{on_old:?} of {old:?} on an interface that stays");
    let log = daemon.log()?;
    ensure!(seen.seen <= sent.packets, "more than was sent: {seen:?} of {sent:?}\n{log}");
    // The kernel may forget an interface before it reports the last counts. Then the true number stays unknown.
    ensure!(2 * (seen.seen + seen.uncertain) >= sent.packets, "{seen:?} of {sent:?}\n{log}");
    Ok(())
}

/// The numbers of ledgers that are compared.
#[derive(Clone, Copy, Debug, Default)]
struct Ledgers {
    seen: u64,
    lost: u64,
    /// How many more there may have been.
    uncertain: u64,
}

impl Ledgers {
    fn of(ledger: &Value) -> Result<Self> {
        let lost = &ledger["lost"]["blind"]["packets"];
        let [lower, upper] = ["lower", "upper"].map(|bound| &ledger["uncertain"]["packets"][bound]);
        let or_none = |value: &Value| if value.is_null() { Ok(0) } else { number(value) };
        let (seen, lost) = (number(&ledger["seen"]["packets"])?, or_none(lost)?);
        Ok(Self { seen, lost, uncertain: or_none(upper)? - or_none(lower)? })
    }

    const fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.lost += other.lost;
        self.uncertain += other.uncertain;
    }
}
