//! Sampling in the running daemon: `auto` samples fewer packets when the daemon uses too much CPU, and later measures
//! all again.

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{self, Ledger, Loss},
    chance,
    oracle::Oracle,
    traffic::{Mix, Plan},
};

use crate::watch::{ROOMY_RINGS, TIMEOUT, Watch};

alone![one_packet_in_ten_is_taken_and_the_rest_is_counted, auto_samples_when_the_cpu_budget_is_used_up_and_stops_later,];

/// Nearly every packet belongs to a different flow, which costs the daemon most.
fn flood(packets: u64) -> Plan {
    let mix = Mix { damaged: 0.0, ..Mix::plain() };
    Plan { seed: 81, packets, flows: 4_000_000, zipf: 0.0, mix, ..Plan::default() }
}

fn one_packet_in_ten_is_taken_and_the_rest_is_counted() -> Result<()> {
    check_one_in_ten(Watch::start("sampling: {packets: 10}\n")?)
}

/// Compares the windows of these reports with what was sent in them: one packet in `rate` is taken, and the others are
/// counted.
pub fn check_one_in(rate: u64, reports: &[Value], sent: Tally) -> Result<()> {
    let Ledger { seen, attributed, sampled_out, .. } = account::add_up(reports)?;
    ensure!(seen == sent, "{seen:?} of {sent:?} were seen");
    ensure!(attributed.packets + sampled_out.packets == sent.packets, "{attributed:?} taken, {sampled_out:?} left out");
    // The number is binomial, which for so many draws is close to normal.
    let expected = sent.packets as f64 / rate as f64;
    let most = chance::deviations(chance::FALSE_ALARM) * (expected * (1.0 - 1.0 / rate as f64)).sqrt();
    let taken = attributed.packets;
    ensure!((taken as f64 - expected).abs() < most, "{taken} packets were taken, expected {expected} ± {most:.0}");
    Ok(())
}

/// One packet in ten is taken, and the others are counted.
pub fn check_one_in_ten(watch: Watch) -> Result<()> {
    ensure!(watch.daemon.log()?.contains("measuring one packet in 10"), "{}", watch.daemon.log()?);
    let sent = watch.send(flood(100_000), &mut Oracle::new())?;
    let reports = watch.stop(Loss::None)?;
    check_one_in(10, &reports, sent)?;
    ensure!(reports.iter().any(|report| report["interfaces"][0]["sampling"] == 10), "no report says so");
    Ok(())
}

fn auto_samples_when_the_cpu_budget_is_used_up_and_stops_later() -> Result<()> {
    let settings = format!("report: {{interval: 1s}}\nsampling: {{packets: auto, cpu: 0.03}}\n{ROOMY_RINGS}");
    let mut watch = Watch::start(&settings)?;
    let sent = watch.send(flood(400_000), &mut Oracle::new())?;
    watch.daemon.wait_for_line("not keeping up: taking one packet in 2", TIMEOUT)?;
    watch.daemon.wait_for_line("there is room: taking one packet in 1", TIMEOUT)?;
    // A window states the highest rate that was in force. Waits for a window with only the lowest rate on all CPUs.
    let so_far = watch.daemon.reports()?.len();
    for count in so_far + 1..so_far + 30 {
        let reports = watch.daemon.wait_for_reports(count, TIMEOUT)?;
        if reports.last().is_some_and(|report| report["interfaces"][0]["sampling"] == 1) {
            break;
        }
    }
    let reports = watch.stop(Loss::None)?;
    let Ledger { seen, attributed, sampled_out, .. } = account::add_up(&reports)?;
    ensure!(seen == sent, "{seen:?} of {sent:?} were seen");
    let accounted = attributed.packets + sampled_out.packets;
    ensure!(sampled_out.packets > 0 && accounted == sent.packets, "{attributed:?} taken, {sampled_out:?} left out");
    let rates: Vec<_> = reports.iter().filter_map(|report| report["interfaces"][0]["sampling"].as_u64()).collect();
    ensure!(rates.iter().any(|rate| *rate > 1) && rates.last() == Some(&1), "{rates:?}");
    Ok(())
}
