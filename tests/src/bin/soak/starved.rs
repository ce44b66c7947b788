//! Bounds while the daemon cannot keep up: `sampling: {packets: auto}` in a flood, with hardly any CPU time; the daemon
//! is stopped again and again. The rate changes within the window, and some records are lost while packets are sampled.
//! Bounds must hold as often as stated.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use anyhow::{Context, Error, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account, chance,
    daemon::{Daemon, Signal},
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::{Dimension, Oracle},
    quiet::{self, ONE_WINDOW, QUIET_LINK, TIMEOUT, one_window},
    table,
    traffic::{Mix, Plan, Traffic},
};

const PACKETS: u64 = 200_000;
/// One datapath with room for all records, and one that is soon full.
const DATAPATHS: [&str; 2] = ["{ring: 64MiB}", "{ring: 64KiB, cache_flows: 256}"];
/// How long the daemon is stopped, and how long it then runs.
const PAUSE: Duration = Duration::from_millis(15);

/// How often bounds were stated, and how often they were wrong.
#[derive(Default)]
struct Count {
    said: u64,
    wrong: u64,
    confidence: f64,
}

/// Measures `floods` floods, each by another daemon; prints how often bounds failed.
///
/// # Errors
///
/// Nothing was sampled, so nothing was tested; or a report is wrong otherwise.
pub fn soak(floods: u64, seed: u64) -> Result<bool> {
    let pair = Lab::quiet_pair()?;
    let (mut counts, mut sampled, mut with_loss) = (BTreeMap::<String, Count>::new(), 0, 0);
    for nth in 0..floods {
        let (report, oracle) = flood(&pair, seed.wrapping_add(nth), DATAPATHS[nth as usize % DATAPATHS.len()])?;
        let ledger = account::add_up([&report])?;
        sampled += u64::from(ledger.sampled_out.packets > 0);
        with_loss += u64::from(ledger.sampled_out.packets > 0 && ledger.all_lost().packets > 0);
        judge(&report, &oracle, &mut counts)?;
    }
    table::say(format!("{floods} floods: {sampled} were sampled, and {with_loss} of these lost records, too"))?;
    ensure!(sampled * 2 >= floods, "the daemon kept up: this says nothing");
    let mut holds = true;
    for (name, Count { said, wrong, confidence }) in counts {
        let alarm = chance::failures_that_alarm(said, 1.0 - confidence);
        let verdict = if wrong < alarm { "" } else { ": more than chance explains" };
        holds &= wrong < alarm;
        table::say(format!("{name}: {wrong} of {said} failed, at {confidence}{verdict}"))?;
    }
    Ok(holds)
}

/// Runs one daemon for one window; returns its report and the truth.
fn flood(pair: &QuietPair, seed: u64, datapath: &str) -> Result<(Value, Oracle)> {
    one_window();
    let interface = QuietPair::OBSERVER_INTERFACE;
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        format!(
            "interfaces: [{{name: {interface}, mode: native}}]\n{ONE_WINDOW}\
             sampling: {{packets: auto, cpu: 0.01}}\ndatapath: {datapath}\n\
             sinks: [{{type: file, path: {}}}]\n",
            reports.display()
        )
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let mut oracle = Oracle::new();
    let mix = Mix { damaged: 0.0, ..Mix::plain() };
    let traffic = Traffic::new(Plan { seed, packets: PACKETS, flows: 1 << 20, zipf: 0.9, mix, ..Plan::default() })?;
    let is_over = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let starving = scope.spawn(|| starve(&mut daemon, &is_over));
        let sent = quiet::send(pair, QUIET_LINK, traffic, Pace::Unlimited, &mut oracle);
        is_over.store(true, Relaxed);
        starving.join().expect("starving does not panic")?;
        sent
    })?;
    let status = daemon.stop(TIMEOUT)?;
    ensure!(status.success(), "weir ended with {status}: {}", daemon.log()?);
    let reports = daemon.reports()?;
    let [report] = &reports[..] else { anyhow::bail!("{} reports of one window", reports.len()) };
    let ledger = account::add_up([report])?;
    ensure!(ledger.seen == sent && ledger.accounted() == sent, "{ledger:?} of {sent:?}");
    Ok((report.clone(), oracle))
}

/// Stops the daemon for half of the time.
fn starve(daemon: &mut Daemon, is_over: &AtomicBool) -> Result<()> {
    while !is_over.load(Relaxed) {
        for signal in [Signal::STOP, Signal::CONT] {
            daemon.signal(signal)?;
            thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn judge(report: &Value, oracle: &Oracle, counts: &mut BTreeMap<String, Count>) -> Result<()> {
    let mut note = |name: String, holds: bool, confidence: &Value| {
        let confidence = confidence.as_f64().with_context(|| format!("{name} has no confidence"))?;
        let count = counts.entry(name).or_default();
        ensure!(count.said == 0 || count.confidence == confidence, "another confidence than before: {confidence}");
        *count = Count { said: count.said + 1, wrong: count.wrong + u64::from(!holds), confidence };
        Ok(())
    };
    for dimension in Dimension::ALL {
        let truths = oracle.truths(dimension);
        for top in ["top", "top_by_packets"] {
            let list = &report[top][dimension.name()];
            let holds = truths.hold(list).map_err(Error::msg)?;
            note(format!("{top}.{}", dimension.name()), holds, &report[top]["confidence"])?;
        }
    }
    for (place, dimension) in [
        ("/unique/src_ip", Dimension::Sources),
        ("/unique/dst_ip", Dimension::Destinations),
        ("/unique/flows", Dimension::Flows),
        ("/new_flows", Dimension::Flows),
    ] {
        let unique = report.pointer(place).context(place)?;
        let [lower, upper] = ["lower", "upper"].map(|part| unique[part].as_u64());
        let holds = (lower.context(place)?..=upper.context(place)?).contains(&oracle.distinct(dimension));
        note(place[1..].replace('/', "."), holds, &unique["confidence"])?;
    }
    Ok(())
}
