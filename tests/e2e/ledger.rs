//! Every packet is accounted for, exactly, and every estimate keeps its bounds.

use anyhow::{Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    netns::{Lab, QuietPair},
    oracle::{Dimension, Oracle},
    traffic::{Mix, Plan},
};

use crate::watch::{ONE_WINDOW, ROOMY_RINGS, Watch, judge, measure, modes, one_window};

alone![ordinary_traffic_is_exact, odd_traffic_is_exact, generic_mode_is_as_exact];
tests![the_largest_of_100_000_flows_are_found, distinct_flows_beyond_100_000_are_counted_within_2_percent];

/// Sends a plan's packets within one window, and checks everything in the report.
fn check(watch: Watch, plan: Plan) -> Result<Checked> {
    let mut oracle = Oracle::new();
    watch.send(plan, &mut oracle)?;
    let reports = watch.stop(Loss::None)?;
    ensure!(reports.len() == 1, "{} reports of one window", reports.len());
    judge(format_args!("{plan:?}"), oracle.check_report(&reports[0]))?;
    Ok(Checked { oracle, reports })
}

struct Checked {
    oracle: Oracle,
    reports: Vec<Value>,
}

fn ordinary_traffic_is_exact() -> Result<()> {
    let plan = Plan { seed: 11, packets: 60_000, flows: 5_000, ..Plan::default() };
    let Checked { reports, .. } = check(Watch::one_window("")?, plan)?;
    let modes = modes(QuietPair::OBSERVER_INTERFACE, &reports);
    ensure!(modes == ["xdp-native"], "{modes:?}");
    Ok(())
}

fn odd_traffic_is_exact() -> Result<()> {
    let plan = Plan { seed: 12, packets: 60_000, flows: 5_000, mix: Mix::odd(), ..Plan::default() };
    check(Watch::one_window("")?, plan).map(drop)
}

fn generic_mode_is_as_exact() -> Result<()> {
    one_window();
    let pair = Lab::quiet_pair()?;
    let settings = format!("interfaces: [{{name: {}, mode: generic}}]\n{ONE_WINDOW}", QuietPair::OBSERVER_INTERFACE);
    let daemon = measure(&pair.observer, &settings)?;
    let plan = Plan { seed: 13, packets: 40_000, flows: 5_000, mix: Mix::odd(), ..Plan::default() };
    let Checked { reports, .. } = check(Watch { pair, daemon }, plan)?;
    let modes = modes(QuietPair::OBSERVER_INTERFACE, &reports);
    ensure!(modes == ["xdp-generic"], "{modes:?}");
    Ok(())
}

fn the_largest_of_100_000_flows_are_found() -> Result<()> {
    let plan = Plan { seed: 14, packets: 500_000, flows: 100_000, zipf: 1.0, ..Plan::default() };
    check(Watch::one_window(ROOMY_RINGS)?, plan).map(drop)
}

fn distinct_flows_beyond_100_000_are_counted_within_2_percent() -> Result<()> {
    let plan = Plan { seed: 15, packets: 500_000, flows: 1_000_000, zipf: 1.0, ..Plan::default() };
    let Checked { oracle, .. } = check(Watch::one_window(ROOMY_RINGS)?, plan)?;
    let distinct = oracle.distinct(Dimension::Flows);
    ensure!(distinct >= 100_000, "the traffic had {distinct} flows only");
    Ok(())
}
