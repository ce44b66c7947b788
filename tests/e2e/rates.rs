//! Rates of live traffic: in each mode, a burst is counted in its own second, and the seconds around it are empty.

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use weir_tests::{account::Loss, clock, netns::QuietPair, oracle::Oracle, traffic::Plan};

use crate::{
    tcx::watch_by,
    watch::{self, Watch, list},
};

alone![a_burst_at_xdp, a_burst_at_the_tc_hook, a_burst_at_a_packet_socket];

const BURST: u64 = 4_000;

fn a_burst_at_xdp() -> Result<()> {
    check(Watch::one_window(watch::ROOMY_RINGS)?)
}

fn a_burst_at_the_tc_hook() -> Result<()> {
    check(watch_by("tcx", "ingress")?)
}

fn a_burst_at_a_packet_socket() -> Result<()> {
    check(watch_by("afpacket", "ingress")?)
}

fn check(watch: Watch) -> Result<()> {
    // The window begins with the daemon.
    thread::sleep(Duration::from_millis(1_500));
    // The burst must fit into one second; on a busy machine this may take several attempts.
    let mut bursts = 0_u64;
    loop {
        let since = clock::since_epoch().subsec_millis();
        thread::sleep(Duration::from_millis(u64::from((1_200 - since) % 1_000)));
        let before = clock::since_epoch();
        let plan = Plan { seed: bursts, packets: BURST, ..Plan::default() };
        watch.send(plan, &mut Oracle::new())?;
        bursts += 1;
        let after = clock::since_epoch();
        if before.as_secs() == after.as_secs() && after.subsec_millis() < 900 {
            break;
        }
        ensure!(bursts < 10, "a burst takes longer than a second");
    }
    thread::sleep(Duration::from_millis(1_500));
    let reports = watch.stop(Loss::None)?;
    let report = &reports[0];
    let rates = list(&report["rates"])?.first().context("there are no rates")?;
    ensure!(rates["interface"] == QuietPair::OBSERVER_INTERFACE && rates["direction"] == "ingress", "{rates}");
    let packets = &rates["packets"];
    let number = |name: &str| packets[name].as_u64().with_context(|| format!("no {name} in {packets}"));
    let (longest, max) = (rates["longest_second"].as_f64().context("the longest second")?, number("max")? as f64);
    // A second that was cut a little late is longer, and its rate is its mean.
    ensure!(max * longest >= 0.99 * BURST as f64, "{BURST} packets came within a second: {rates}");
    ensure!(max <= 2.0 * BURST as f64, "{rates}");
    ensure!(number("min")? == 0, "most of the time nothing came: {rates}");
    let seconds = report["window"]["seconds"].as_f64().context("the window")?;
    // The first and the last second are not whole.
    let without = seconds - number("count")? as f64;
    ensure!((-0.5..=2.5).contains(&without), "{seconds} s, {rates}");
    let buckets = list(&packets["buckets"])?.iter().map(|bucket| bucket[1].as_u64().unwrap_or(0)).sum::<u64>();
    ensure!(buckets == number("count")?, "{packets}");
    Ok(())
}
