//! The cost of measuring on a router: the lost forwarding rate, and the CPU time of the tool; for weir and for other
//! tools.
//!
//! Everything runs in network namespaces (`weir_tests::route`). Tools take turns, so that a disturbance of the machine
//! affects all of them. After each of weir's runs its ledger must balance, and it must have seen what the interface
//! received, because the time of a wrong answer is worthless. What other tools report is printed, but not checked.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use aya::sys::{Stats, enable_stats};
use weir_common::ledger::Tally;
use weir_datapath::online_cpus;
use weir_tests::{
    livegen::{Flows, Generator, ZIPF_FLOWS},
    route::{Passed, Route},
};

use crate::table::{self, least_and_median, thousands};

mod flood;
mod paced;
pub mod process;
mod tool;

pub use flood::bench as flood;
pub use paced::bench as paced;
use tool::{Reported, Running, Tool};

const ROUNDS: usize = 5;
/// How long a run without a tool should take.
const RUN: Duration = Duration::from_secs(3);
/// A run is sent in so many parts, one after the other. The fastest quarter of them says what a packet costs: whatever
/// else the machine does makes a part slower, and never faster.
const PARTS: usize = 10;
/// Packets of a trial, which shows how many packets such a run needs.
const TRIAL_PACKETS: u32 = 300_000;
const TOOLS: [Tool<'static>; 9] = [
    Tool::Nothing,
    Tool::EmptyXdp,
    Tool::EmptyTcx,
    Tool::Weir("auto"),
    Tool::Weir("native"),
    Tool::Weir("generic"),
    Tool::Weir("afpacket"),
    Tool::Softflowd,
    Tool::Pmacctd,
];

/// The modes in which another build of weir is measured.
const OTHER_MODES: [&str; 2] = ["auto", "native"];

/// The results of a run.
struct Run {
    /// Delivered packets a second.
    rate: f64,
    /// CPU time of generating and forwarding, with what a tool adds on that CPU, in ns per delivered packet: of each
    /// part.
    forwarding: Vec<f64>,
    /// CPU time of the tool's processes, in ns per received packet.
    daemon: f64,
    passed: Passed,
    reported: Reported,
}

/// Measures and prints; `other` is another build of weir, which takes turns with this one.
///
/// # Errors
///
/// No privilege, a missing command, or a wrong ledger of weir.
pub fn bench(other: Option<&Path>) -> Result<()> {
    let cpus = online_cpus()?;
    let cpu = *cpus.first().context("no CPU is online")?;
    introduce()?;
    let route = Route::new(cpu)?;
    let generator = route.generator(Flows::Zipf, None)?;
    // The first packets warm up, the second trial counts.
    route.send(&generator, TRIAL_PACKETS)?;
    let making = route.making(&generator, TRIAL_PACKETS)?.cpu_time.as_nanos() as f64 / f64::from(TRIAL_PACKETS);
    let trial = route.send(&generator, TRIAL_PACKETS)?;
    let packets = f64::from(TRIAL_PACKETS) * RUN.as_secs_f64() / trial.sent.elapsed.as_secs_f64();
    let others = OTHER_MODES.into_iter().filter_map(|mode| Some(Tool::Other(other?, mode)));
    let tools: Vec<_> = TOOLS.into_iter().filter(|tool| tool.is_there()).chain(others).collect();
    let mut runs: Vec<Vec<Run>> = tools.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (tool, runs) in tools.iter().zip(&mut runs) {
            runs.push(run(&route, &generator, *tool, packets as u32).with_context(|| tool.name())?);
        }
    }
    let kernel: Result<Vec<_>> = tools.iter().map(|tool| in_kernel(&route, &generator, *tool)).collect();
    let undelivered = runs.iter().flatten().map(|run| run.passed.undelivered()).sum();
    report(&tools, &runs, &kernel?)?;
    explain(packets as u32, cpu, making, undelivered)
}

fn run(route: &Route, generator: &Generator<'_>, tool: Tool<'_>, packets: u32) -> Result<Run> {
    let ((parts, taken), reported) = with(route, tool, |pid| {
        let taken = pid.map(process::cpu_time).transpose()?.unwrap_or_default();
        let parts: Result<Vec<Passed>> = (0..PARTS).map(|_| route.send(generator, packets / PARTS as u32)).collect();
        let taken = pid.map(process::cpu_time_at_rest).transpose()?.unwrap_or_default().saturating_sub(taken);
        Ok((parts?, taken))
    })?;
    let cost = |part: &Passed| part.sent.cpu_time.as_nanos() as f64 / part.delivered.packets.max(1) as f64;
    let forwarding = parts.iter().map(cost).collect();
    let passed = parts.into_iter().reduce(Passed::and).context("a run has parts")?;
    let received = passed.received;
    Ok(Run {
        rate: passed.rate(),
        forwarding,
        daemon: taken.as_nanos() as f64 / received.packets.max(1) as f64,
        passed,
        reported,
    })
}

/// Runs `work` while a tool runs, with the tool's process id. Also returns what the tool reported.
fn with<T>(route: &Route, tool: Tool<'_>, work: impl FnOnce(Option<u32>) -> Result<T>) -> Result<(T, Reported)> {
    let before_start = route.received()?;
    let running = tool.start(route.router())?;
    let started = route.received()?;
    let done = work(running.pid())?;
    let before_stop = route.received()?;
    let reported = running.stop()?;
    let stopped = route.received()?;
    if let Some(seen) = reported.seen {
        check(seen, before_stop.since(started), stopped.since(before_start))?;
    }
    Ok((done, reported))
}

/// Weir must have seen at least what came in while it certainly measured, and at most what came in while it may have
/// measured. Only generated packets come in, so that the two are nearly always the same number.
fn check(seen: Tally, least: Tally, most: Tally) -> Result<()> {
    ensure!(
        (least.packets..=most.packets).contains(&seen.packets) && (least.bytes..=most.bytes).contains(&seen.bytes),
        "seen {seen:?}, and the interface received {least:?} to {most:?}"
    );
    Ok(())
}

/// The mean time of weir's program in the kernel, in nanoseconds per packet, as the kernel counts it. This is measured
/// in a separate run, because counting takes time, too. The kernel counts until the file descriptor is closed.
fn in_kernel(route: &Route, generator: &Generator<'_>, tool: Tool<'_>) -> Result<Option<f64>> {
    let (Tool::Weir("auto" | "native" | "generic") | Tool::Other(..)) = tool else { return Ok(None) };
    let running = tool.start(route.router())?;
    let _stats = enable_stats(Stats::RunTime).context("the kernel gives no account of programs' time")?;
    route.send(generator, TRIAL_PACKETS)?;
    let (runs, nanoseconds) = match &running {
        Running::Weir(daemon) => process::busiest_program(daemon.pid())?,
        _ => return Ok(None),
    };
    running.stop()?;
    Ok(Some(nanoseconds as f64 / runs.max(1) as f64))
}

fn report(tools: &[Tool<'_>], runs: &[Vec<Run>], kernel: &[Option<f64>]) -> Result<()> {
    let median = |runs: &[Run], figure: fn(&Run) -> f64| least_and_median(runs.iter().map(figure).collect()).1;
    let rate = |runs: &[Run]| median(runs, |run| run.rate);
    let all = |runs: &[Run]| fastest(runs.iter().flat_map(|run| run.forwarding.iter().copied()));
    let base_rate = rate(&runs[0]);
    let mut rows = Vec::new();
    let without = &runs[0];
    for ((tool, runs), kernel) in tools.iter().zip(runs).zip(kernel) {
        // By round: what disturbs the machine for longer than a run disturbs both.
        let of = |run: &Run| fastest(run.forwarding.iter().copied());
        let mut added: Vec<_> = runs.iter().zip(without).map(|(run, base)| of(run) - of(base)).collect();
        added.sort_by(f64::total_cmp);
        let (least, most) = runs.iter().fold((f64::MAX, 0.0_f64), |(l, m), run| (l.min(run.rate), m.max(run.rate)));
        let share = median(runs, |run| run.reported.packets as f64 / run.passed.received.packets.max(1) as f64);
        let over_nothing = |figure: String| if *tool == Tool::Nothing { String::new() } else { figure };
        let is_tool = !matches!(tool, Tool::Nothing | Tool::EmptyXdp | Tool::EmptyTcx);
        let of_tool = |figure: String| if is_tool { figure } else { String::new() };
        rows.push([
            tool.name(),
            thousands(rate(runs) as u64),
            format!("{} - {}", thousands(least as u64), thousands(most as u64)),
            over_nothing(format!("{:+.1} %", 100.0 * (rate(runs) / base_rate - 1.0))),
            format!("{:.0}", all(runs)),
            over_nothing(format!("{:+.0}", all(runs) - all(without))),
            over_nothing(format!("{:+.0} to {:+.0}", added[0], added[added.len() - 1])),
            kernel.map(|nanoseconds| format!("{nanoseconds:.0}")).unwrap_or_default(),
            of_tool(format!("{:.0}", median(runs, |run| run.daemon))),
            of_tool(format!("{:.2} %", 100.0 * share)),
        ]);
    }
    let heads = [
        "tool",
        "forwarded pkt/s",
        "least - most",
        "change",
        "forwarding ns/pkt",
        "added ns/pkt",
        "in single rounds",
        "eBPF ns/pkt",
        "daemon CPU ns/pkt",
        "reported",
    ];
    table::write(heads, &rows)?;
    for tool in TOOLS.iter().filter(|tool| !tools.contains(tool)) {
        table::say(format!("\n{}: not installed", tool.name()))?;
    }
    Ok(())
}

/// The upper end of the fastest quarter.
fn fastest(figures: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<_> = figures.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 4).copied().unwrap_or_default()
}

/// The machine and its load: the figures are those of an idle machine only if the load is near 0.
fn introduce() -> Result<()> {
    let load = fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    table::say(format!("{}; load average {load} before the start\n", table::machine()?))
}

fn explain(packets: u32, cpu: u32, making: f64, undelivered: u64) -> Result<()> {
    table::say(format!(
        "\nMedians of {ROUNDS} runs of {} packets each; the tools take turns. The packets are UDP over IPv4 in {} flows, by\n\
         Zipf's law. The kernel makes them in batches on CPU {cpu} and forwards each batch on the same CPU before it makes the\n\
         next: so forwarding sets the pace. Of all the packets of all runs {} were not delivered. The tools'\n\
         processes may run on any CPU.\n\
         - forwarded: delivered packets per second; change: compared with no tool.\n\
         - forwarding: CPU time per packet for making it ({making:.0} ns), forwarding it, and what the tool does on that CPU\n\
           meanwhile: the fastest quarter of {PARTS} parts of each run; added: the tool's share of that, in all rounds and\n\
           in single ones. The empty program shows what any tool at that hook adds, and the noise.\n\
         - eBPF: mean run time of weir's program, as the kernel counts it (bpf_stats, with its own cost), in another run.\n\
         - daemon CPU: CPU time per packet of the tool's processes, until they are told to stop.\n\
         - reported: packets in the tool's flows, as a share of what the interface received.\n\
         Checked after each of weir's runs: its ledger balanced, and it had seen what the interface received, in packets\n\
         and in bytes.",
        thousands(u64::from(packets)),
        thousands(u64::from(ZIPF_FLOWS)),
        thousands(undelivered),
    ))
}
