//! Sampling in the running daemon: `auto` samples fewer packets when the daemon uses too much CPU, and later measures
//! all again.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_datapath::online_cpus;
use weir_tests::{
    account::{self, Ledger, Loss},
    chance, clock,
    livegen::{HEAVY_EVERY, HEAVY_FLOWS, heavy_packets, heavy_source},
    oracle::Oracle,
    route::{Route, WAN},
    traffic::{Mix, Plan},
};

use crate::watch::{self, ROOMY_RINGS, TIMEOUT, Watch, list, measure, native, number};

alone![
    one_packet_in_ten_is_taken_and_the_rest_is_counted,
    auto_samples_when_the_cpu_budget_is_used_up_and_stops_later,
    a_flood_above_capacity_on_one_cpu_is_sampled_until_it_ends,
    a_flood_above_capacity_on_two_cpus_is_sampled_until_it_ends,
];

/// Packets that a flood sends from each CPU.
const FLOOD_PACKETS: u32 = 4_000_000;

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

fn a_flood_above_capacity_on_one_cpu_is_sampled_until_it_ends() -> Result<()> {
    flood_a_router(1)
}

fn a_flood_above_capacity_on_two_cpus_is_sampled_until_it_ends() -> Result<()> {
    flood_a_router(2)
}

/// A router forwards a flood as fast as it can, with a few heavy sources in it. The daemon cannot keep up: it takes
/// fewer packets, says so, and takes all again afterwards.
#[expect(clippy::print_stderr, reason = "the figures are for people; docs/ has them")]
fn flood_a_router(cpus: usize) -> Result<()> {
    let all = online_cpus()?;
    ensure!(all.len() >= cpus, "this test needs {cpus} CPUs, and this machine has {}", all.len());
    let route = Route::new(all[0])?;
    let before_start = route.received()?;
    // Rings that a few milliseconds fill.
    let settings = format!(
        "interfaces: [{}]\nreport: {{interval: 1s}}\ndatapath: {{ring: 64KiB}}\nsampling: {{packets: auto}}\n",
        native(WAN)
    );
    let mut daemon = measure(route.router(), &settings)?;
    let started = route.received()?;
    let flooded = route.flood(&all[..cpus], FLOOD_PACKETS)?;
    daemon.wait_for_line("not keeping up: taking one packet in 2", TIMEOUT)?;
    daemon.wait_for_line("there is room: taking one packet in 1", 2 * TIMEOUT)?;
    let calms = || Ok(has_calmed(&daemon.reports()?).then_some(()));
    clock::wait_for("a window in which all packets were taken", 2 * TIMEOUT, calms)?;
    let calm_after = daemon.reports()?.len();
    // The following packets are measured without sampling.
    let few = route.flood(&all[..1], HEAVY_EVERY * HEAVY_FLOWS)?;
    daemon.wait_for_reports(calm_after + 2, TIMEOUT)?;
    let before_stop = route.received()?;
    let reports = watch::stop(&mut daemon, Loss::Possible(&["ring_full"]))?;
    let sent: Tally = [flooded, few].into_iter().sum();
    // On a busy machine most packets are dropped before they reach the router.
    ensure!(flooded.packets >= u64::from(FLOOD_PACKETS) / 10, "the router received {flooded:?} only");

    // Nothing is missing without being declared.
    let Ledger { seen, attributed, sampled_out, skipped, lost } = account::add_up(&reports)?;
    let (least, most) = (before_stop.since(started).packets, route.received()?.since(before_start).packets);
    ensure!((least..=most).contains(&seen.packets), "seen {seen:?}, received {least} to {most}");
    let declared: u64 = skipped.values().chain(lost.values()).map(|tally| tally.packets).sum();
    ensure!(attributed.packets + sampled_out.packets + declared == seen.packets, "{attributed:?}, {sampled_out:?}");
    ensure!(sampled_out.packets > 0, "nothing was left out");

    // The bounds of the heavy sources hold, and are the wider the fewer packets were taken.
    let (mut widths, mut most_sampled) = (Vec::new(), 1);
    for report in &reports {
        let sampling = number(&report["interfaces"][0]["sampling"])?;
        most_sampled = most_sampled.max(sampling);
        let total = number(&report["totals"]["packets"])?;
        for nth in (0..HEAVY_FLOWS).filter(|_| total > u64::from(FLOOD_PACKETS) / 100) {
            let Some(packets) = packets_of(report, &heavy_source(nth))? else { continue };
            let [lower, upper] = [&packets["lower"], &packets["upper"]].map(number);
            widths.push((sampling, (upper? - lower?) as f64 / total as f64));
        }
    }
    for nth in 0..HEAVY_FLOWS {
        check_heavy(nth, cpus, sent, &reports)?;
    }
    let widest = widths.iter().filter(|(sampling, _)| *sampling > 1).map(|(_, width)| *width).fold(0.0, f64::max);
    ensure!(widest > 0.0, "no window says that its numbers are estimates: {widths:?}");
    let last = reports.last().context("no report")?;
    ensure!(last["interfaces"][0]["sampling"] == 1, "the last window was sampled");
    let lost: u64 = lost.values().map(|tally| tally.packets).sum();
    eprintln!(
        "flood on {cpus} CPUs: {} packets, {:.2} % lost and declared, {:.1} % left out, at most one in {most_sampled} \
         taken; bounds of the heavy sources at most {:.2} % of a window apart",
        seen.packets,
        100.0 * lost as f64 / seen.packets as f64,
        100.0 * sampled_out.packets as f64 / seen.packets as f64,
        100.0 * widest
    );
    Ok(())
}

/// Returns true if the last window was measured without sampling.
fn has_calmed(reports: &[Value]) -> bool {
    reports.last().is_some_and(|report| report["interfaces"][0]["sampling"] == 1)
}

/// The packets of a source in the list of a report.
fn packets_of<'a>(report: &'a Value, source: &str) -> Result<Option<&'a Value>> {
    let rows = list(&report["top_by_packets"]["sources"])?;
    Ok(rows.iter().find(|row| row["src_ip"] == source).map(|row| &row["packets"]))
}

/// The bounds of a heavy source over all windows contain what it sent.
fn check_heavy(nth: u32, cpus: usize, received: Tally, reports: &[Value]) -> Result<()> {
    let source = heavy_source(nth);
    let sent = cpus as u64 * u64::from(heavy_packets(nth, FLOOD_PACKETS))
        + u64::from(heavy_packets(nth, HEAVY_EVERY * HEAVY_FLOWS));
    // Packets that the router had no room for may have been of any source.
    let all = cpus as u64 * u64::from(FLOOD_PACKETS) + u64::from(HEAVY_EVERY * HEAVY_FLOWS);
    let missing = all.saturating_sub(received.packets);
    let (mut lower, mut upper) = (0, 0);
    for report in reports {
        match packets_of(report, &source)? {
            Some(packets) => {
                lower += number(&packets["lower"])?;
                upper += number(&packets["upper"])?;
            }
            // It may have sent everything that the window has.
            None => upper += number(&report["totals"]["packets"])?,
        }
    }
    ensure!(
        lower <= sent && sent <= upper + missing,
        "{source} sent {sent}, reported are {lower} to {upper}, {missing} missing"
    );
    Ok(())
}
