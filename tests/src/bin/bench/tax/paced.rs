//! The cost of measuring on a router that is not saturated: packets come at a share of the rate that it can carry.
//!
//! A saturated router loses packets for every nanosecond that a tool takes. A router with room loses packets only if
//! the tool takes more than that room: this benchmark shows which tools do.

use std::{array, path::Path};

use anyhow::{Context, Result, ensure};
use weir_datapath::online_cpus;
use weir_tests::{
    livegen::{Flows, Generator},
    route::Route,
};

use super::{RUN, TRIAL_PACKETS, introduce, tool::Tool, with};
use crate::table::{self, least_and_median, thousands};

const ROUNDS: usize = 5;
/// Loads, in percent of the router's rate without a tool.
const LOADS: [u32; 4] = [70, 80, 85, 90];
const TOOLS: [Tool<'static>; 4] = [Tool::Nothing, Tool::Weir("auto"), Tool::Softflowd, Tool::Pmacctd];

/// The load that is offered to the router.
struct Load<'a> {
    /// Packets per second.
    rate: f64,
    generator: Generator<'a>,
}

/// The runs of a tool.
struct Runs {
    /// Delivered packets a second, by load and round.
    rates: [Vec<f64>; LOADS.len()],
    /// The share of the received packets that the tool reported, by round.
    reported: Vec<f64>,
}

/// Measures and prints; `other` is another build of weir, which takes turns with this one.
///
/// # Errors
///
/// No privilege, a missing command, a pace that is not kept, or a wrong account in weir's report.
pub fn bench(other: Option<&Path>) -> Result<()> {
    let cpu = *online_cpus()?.first().context("no CPU is online")?;
    introduce()?;
    let route = Route::new(cpu)?;
    let capacity = capacity(&route)?;
    let loads: Result<Vec<_>> = LOADS
        .iter()
        .map(|percent| {
            let rate = capacity * f64::from(*percent) / 100.0;
            Ok(Load { rate, generator: route.generator(Flows::Zipf, Some(rate))? })
        })
        .collect();
    let loads = loads?;
    let other = other.map(|program| Tool::Other(program, "auto"));
    let tools: Vec<_> = TOOLS.into_iter().filter(|tool| tool.is_there()).chain(other).collect();
    let mut runs: Vec<_> =
        tools.iter().map(|_| Runs { rates: [const { Vec::new() }; LOADS.len()], reported: Vec::new() }).collect();
    for _ in 0..ROUNDS {
        for (tool, runs) in tools.iter().zip(&mut runs) {
            runs.add(&route, &loads, *tool).with_context(|| tool.name())?;
        }
    }
    report(&loads, &tools, &runs)?;
    explain(capacity, cpu)
}

/// The packets per second that the router carries with nothing attached.
fn capacity(route: &Route) -> Result<f64> {
    let generator = route.generator(Flows::Zipf, None)?;
    let rate = |packets| anyhow::Ok(route.send(&generator, packets)?.rate());
    // The first packets warm up.
    rate(TRIAL_PACKETS)?;
    let packets = (rate(TRIAL_PACKETS)? * RUN.as_secs_f64() / 2.0) as u32;
    let rates: Result<Vec<_>> = (0..ROUNDS).map(|_| rate(packets)).collect();
    Ok(least_and_median(rates?).1)
}

impl Runs {
    /// Runs one more round: all loads, one after the other.
    fn add(&mut self, route: &Route, loads: &[Load<'_>], tool: Tool<'_>) -> Result<()> {
        let (received, reported) = with(route, tool, |_| {
            let mut received = 0;
            for (load, rates) in loads.iter().zip(&mut self.rates) {
                let passed = route.send(&load.generator, (load.rate * RUN.as_secs_f64() / 2.0) as u32)?;
                let (rate, most) = (passed.rate(), 1.01 * load.rate);
                ensure!(rate <= most, "{rate:.0} packets a second came, and {:.0} were to come", load.rate);
                rates.push(rate);
                received += passed.received.packets;
            }
            Ok(received)
        })?;
        self.reported.push(reported.packets as f64 / received.max(1) as f64);
        Ok(())
    }
}

fn report(loads: &[Load<'_>], tools: &[Tool<'_>], runs: &[Runs]) -> Result<()> {
    let median = |figures: &Vec<f64>| least_and_median(figures.clone()).1;
    let base = runs[0].rates.each_ref().map(median);
    let rows: Vec<_> = tools
        .iter()
        .zip(runs)
        .map(|(tool, runs)| {
            let rates = runs.rates.each_ref().map(median);
            let [a, b, c, d] = array::from_fn(|load| match tool {
                Tool::Nothing => thousands(rates[load] as u64),
                _ => format!("{:+.1} %", 100.0 * (rates[load] / base[load] - 1.0)),
            });
            let reported = match tool {
                Tool::Nothing => String::new(),
                _ => format!("{:.2} %", 100.0 * median(&runs.reported)),
            };
            [tool.name(), a, b, c, d, reported]
        })
        .collect();
    let offered: [_; LOADS.len()] =
        array::from_fn(|load| format!("{} %: {} pkt/s", LOADS[load], thousands(loads[load].rate as u64)));
    let [a, b, c, d] = offered.each_ref().map(String::as_str);
    table::write(["tool", a, b, c, d, "reported"], &rows)
}

fn explain(capacity: f64, cpu: u32) -> Result<()> {
    table::say(format!(
        "\nThe first line: forwarded packets per second without a tool. The others: the change with the tool. Medians of {ROUNDS}\n\
         runs of {:.1} s; the tools take turns. Packets are made and forwarded on CPU {cpu}, as in `tax`, but each batch waits\n\
         until it is due. The heads are shares of the {} packets per second that this router forwards at most.\n\
         A late batch is sent at once, as from a deep queue. The tools' processes may run on any CPU.",
        RUN.as_secs_f64() / 2.0,
        thousands(capacity as u64),
    ))
}
