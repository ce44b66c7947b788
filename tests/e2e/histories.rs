//! Histories of an interface: it moves to another network namespace and back, is deleted and made again, is renamed,
//! and carries packets all the while, over the ends of windows. What all windows declare together is what the kernel's
//! own counters say, within the stated uncertainty.

use std::{thread, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::Daemon,
    inject::{self, Pace},
    netns::{Lab, Namespace, QuietPair},
    traffic::{Plan, Traffic},
};

use crate::watch::{self, INTERVAL, QUIET_LINK, ROOMY_RINGS, TIMEOUT, list, measure, modes};

tests![
    an_interface_that_was_away_when_a_window_ended_has_lost_only_what_passed_meanwhile,
    windows_declare_what_the_kernel_has_counted
];

const NEAR: &str = QUIET_LINK[0];
const INTERFACE: &str = QUIET_LINK[1];
const MODES: [&str; 5] = ["native", "generic", "tcx", "tc", "afpacket"];

/// weir on an interface that is not always there.
struct History {
    pair: QuietPair,
    daemon: Daemon,
    /// How many packets the interface has carried for weir, according to its own counters.
    carried: u64,
    /// The interface's own count when its packets last became weir's.
    since: u64,
    /// How many of these it carried elsewhere before weir is known to have seen it: weir may not know that it was here
    /// before.
    unknown: u64,
    /// How many reports there were when it was made, until weir is known to have seen it.
    made_at: Option<usize>,
}

impl History {
    fn new(mode: &str, before: u64) -> Result<Self> {
        let pair = Lab::quiet_pair()?;
        send(&pair, &pair.observer, INTERFACE, before)?;
        let settings = format!("interfaces: [{{name: {INTERFACE}, mode: {mode}}}]\n{INTERVAL}{ROOMY_RINGS}");
        let daemon = measure(&pair.observer, &settings)?;
        let since = pair.observer.counters(INTERFACE)?.received.packets;
        Ok(Self { pair, daemon, carried: 0, since, unknown: 0, made_at: None })
    }

    fn send(&self, packets: u64) -> Result<()> {
        send(&self.pair, &self.pair.observer, INTERFACE, packets)
    }

    /// Waits for the end of the open window, and of so many after it.
    fn windows_end(&mut self, more: usize) -> Result<()> {
        let before = self.daemon.reports()?.len();
        self.daemon.wait_for_reports(before + 1 + more, TIMEOUT).map(drop)
    }

    /// Moves the interface to the other namespace, where it carries so many packets, over the ends of so many windows.
    fn move_away_and_back(&mut self, packets: u64, windows: usize) -> Result<()> {
        if self.look_if_new()? {
            self.unknown += packets;
        }
        let QuietPair { generator, observer } = &self.pair;
        observer.ip(&format!("link set {INTERFACE} netns {}", generator.name()))?;
        set_up(generator, INTERFACE)?;
        send(&self.pair, generator, INTERFACE, packets)?;
        if windows > 0 {
            self.windows_end(windows - 1)?;
        }
        let QuietPair { generator, observer } = &self.pair;
        generator.ip(&format!("link set {INTERFACE} netns {}", observer.name()))?;
        set_up(observer, INTERFACE)
    }

    /// Returns true if no report shows that weir has seen the interface since it was made. The first report may still
    /// have the one before.
    fn look_if_new(&mut self) -> Result<bool> {
        if let Some(made_at) = self.made_at
            && is_attached(self.daemon.reports()?.get(made_at + 1..).unwrap_or_default())
        {
            self.made_at = None;
        }
        Ok(self.made_at.is_some())
    }

    /// Deletes the interface and makes it again, while so many windows end.
    fn make_again(&mut self, windows: usize) -> Result<()> {
        // The kernel drops what is in a queue of the interface.
        self.windows_end(usize::from(self.made_at.is_some()))?;
        let carried = self.pair.observer.counters(INTERFACE)?.received.packets - self.since;
        self.carried += carried;
        if self.look_if_new()? {
            self.unknown += carried;
        }
        self.pair.generator.ip(&format!("link delete {NEAR}"))?;
        if windows > 0 {
            self.windows_end(windows - 1)?;
        }
        let QuietPair { generator, observer } = &self.pair;
        observer.ip(&format!("link add {INTERFACE} type veth peer name {NEAR} netns {}", generator.name()))?;
        (self.since, self.made_at) = (0, Some(self.daemon.reports()?.len()));
        generator.ip(&format!("link set {NEAR} arp off up"))?;
        set_up(observer, INTERFACE)?;
        generator.wait_until_up(NEAR)
    }

    /// Gives the interface a name that the configuration does not have, and then its own again. It carries nothing
    /// meanwhile.
    fn rename(&mut self, windows: usize) -> Result<()> {
        const OTHER: &str = "other0";
        self.pair.observer.ip(&format!("link set {INTERFACE} name {OTHER}"))?;
        if windows > 0 {
            self.windows_end(windows - 1)?;
        }
        self.pair.observer.ip(&format!("link set {OTHER} name {INTERFACE}")).map(drop)
    }

    /// Ends it. Returns the reports.
    fn end(&mut self) -> Result<Vec<Value>> {
        self.windows_end(0)?;
        let attached = || Ok(is_attached(&self.daemon.reports()?).then_some(()));
        clock::wait_for("the attachment", TIMEOUT, attached).with_context(|| self.pair.observer.name().to_owned())?;
        let reports = watch::stop(&mut self.daemon, Loss::Possible(&["blind"]))?;
        self.carried += self.pair.observer.counters(INTERFACE)?.received.packets - self.since;
        Ok(reports)
    }
}

fn is_attached(reports: &[Value]) -> bool {
    modes(INTERFACE, reports).last().is_some_and(|mode| !["gone", "absent", "waiting"].contains(mode))
}

/// Sends so many packets to the interface, which is in this namespace, and waits until it has counted them. While a
/// native program comes or goes, the kernel drops packets of a veth's queue, and nobody counts them: then it waits
/// until no more come.
fn send(pair: &QuietPair, of: &Namespace, interface: &str, packets: u64) -> Result<()> {
    const CALM: Duration = Duration::from_secs(2);
    let before = of.counters(interface)?.received.packets;
    let traffic = Traffic::new(Plan { seed: 150, packets, ..Plan::default() })?;
    pair.generator.enter(|| inject::send(NEAR, traffic, Pace::Unlimited))??;
    let mut latest = (before, clock::now());
    let arrived = || {
        let now = of.counters(interface)?.received.packets;
        if now != latest.0 {
            latest = (now, clock::now());
        }
        Ok((now >= before + packets || latest.1.elapsed() > CALM).then_some(()))
    };
    clock::wait_for("the arrival of all packets", TIMEOUT, arrived)
}

fn set_up(namespace: &Namespace, interface: &str) -> Result<()> {
    namespace.ip(&format!("link set {interface} arp off up"))?;
    namespace.wait_until_up(interface)
}

/// Returns the packets of the interface that the reports declare: all, those that are lost, and how many more there may
/// be.
fn declared(reports: &[Value]) -> Result<[u64; 3]> {
    let mut sums = [0; 3];
    for report in reports {
        for one in list(&report["interfaces"])? {
            let ledger = &one["ledger"];
            let uncertain = &ledger["uncertain"]["packets"];
            let beyond = uncertain["upper"].as_u64().unwrap_or(0) - uncertain["lower"].as_u64().unwrap_or(0);
            let parts = [tally(&ledger["seen"])?.packets, tally(&ledger["lost"]["blind"])?.packets, beyond];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += part;
            }
        }
    }
    Ok(sums)
}

/// Packets that it carried before weir began are no concern. weir's program stays on an interface that moves until weir
/// hears of that. If it sees packets there under another index, they are in the account `others`, and may be declared
/// twice.
fn an_interface_that_was_away_when_a_window_ended_has_lost_only_what_passed_meanwhile() -> Result<()> {
    for mode in MODES {
        let mut history = History::new(mode, 5_000)?;
        history.send(100)?;
        history.move_away_and_back(7, 2)?;
        let reports = history.end()?;
        let ([all, lost, beyond], log) = (declared(&reports)?, history.daemon.log()?);
        let others = reports.iter().filter_map(|report| list(&report["interfaces"]).ok()).flatten();
        let elsewhere = others.filter(|one| one["name"] == "others").map(|one| tally(&one["ledger"]["seen"]));
        let elsewhere = elsewhere.sum::<Result<Tally>>()?.packets;
        ensure!(
            all == 107 && lost <= 7 && beyond == elsewhere,
            "{mode}: {all} declared, of which {lost} are lost, and {beyond} uncertain; {elsewhere} were seen elsewhere, \
             and the interface has counted {}\n{log}",
            history.carried
        );
    }
    Ok(())
}

/// A small generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn upto(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % (most + 1)
    }
}

fn windows_declare_what_the_kernel_has_counted() -> Result<()> {
    for round in 0..watch::times().unwrap_or(1) {
        thread::scope(|scope| {
            let running: Vec<_> = (1..)
                .zip(MODES)
                .map(|(nth, mode)| scope.spawn(move || one_history(u64::from(round) * 10 + nth, mode)))
                .collect();
            running.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow!("a history panicked"))?)
        })?;
    }
    Ok(())
}

fn one_history(seed: u64, mode: &str) -> Result<()> {
    const STEPS: u64 = 12;
    let mut random = Random(seed * 2 + 1);
    let mut steps = Vec::new();
    let before = random.upto(3_000);
    let mut history = History::new(mode, before)?;
    for _ in 0..STEPS {
        let (what, packets, windows) = (random.upto(7), random.upto(500), random.upto(2));
        steps.push((what, packets, windows));
        match what {
            0..=2 => history.send(packets)?,
            3 => history.windows_end(0)?,
            4 | 5 => history.move_away_and_back(packets, windows as usize)?,
            6 => history.make_again(windows as usize)?,
            _ => history.rename(windows as usize)?,
        }
    }
    let reports = history.end()?;
    let [seen, lost, beyond] = declared(&reports)?;
    let (carried, unknown, log) = (history.carried, history.unknown, history.daemon.log()?);
    ensure!(
        seen <= carried && seen + beyond + unknown >= carried,
        "{mode}, seed {seed}: {seen} declared, of which {lost} are lost, and {beyond} uncertain, of {carried}, of which \
         {unknown} are perhaps no concern; the steps were {steps:?}\n{log}"
    );
    Ok(())
}
