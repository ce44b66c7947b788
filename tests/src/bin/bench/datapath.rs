//! The cost of a packet in the kernel: test-run sends each kind of packet through a program a million times.
//!
//! Kinds take turns, so that a disturbance of the machine affects all of them. After each turn the window is closed.
//! Its ledger must balance and have the right number of packets, because the time of a wrong answer is worthless.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context, Result, ensure};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use weir_common::{
    ledger::{Ledger, Tally},
    packet::{TunnelPorts, Tunnels},
};
use weir_config::Packets;
use weir_datapath::{Features, FlushProgram, Kernel, Parts, Plan, online_cpus, pin};
use weir_sketch::hash::Key;

use crate::{
    frames,
    reader::Reader,
    table::{self, least_and_median, thousands},
};

/// Turns of each kind.
const ROUNDS: usize = 11;
/// A turn: (calls, runs per call). Calls should be few: the kernel waits for all CPUs before and after each, some 20 ms
/// together. Runs per call should be many: the kernel gives their mean in whole nanoseconds.
const TURN: (u32, u32) = (8, 1 << 17);
/// The same if the ring is read between the calls: the records of a call must fit into the ring.
const TURN_DRAINED: (u32, u32) = (8, 1 << 17);
/// The size of the cache in the default configuration.
const CACHE_FLOWS: u32 = 16384;
/// Large enough for a call of many runs: after the wait before a call the CPU's caches are cold.
const RING_BYTES: u32 = 16 << 20;
/// Test-run's packets come in on the loopback interface, which has this index in every network namespace.
const LOOPBACK: u32 = 1;
const XDP_PASS: u32 = 2;

/// weir's programs and the benchmark's own: `ebpf/src/bin/benchmark.rs`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/weir-ebpf-benchmark"));
/// The benchmark's own.
const PROGRAMS: [&str; 5] = ["baseline", "draw", "two_flows", "all_miss", "zipf"];

/// Whether and when the ring is read.
#[derive(Clone, Copy, PartialEq)]
enum Reading {
    /// The ring need not be read, because nothing is evicted.
    Needless,
    /// This CPU reads it between the calls, so the ring always has room.
    Between,
    /// Another CPU reads it all the time.
    Beside(u32),
    /// The ring is never read, so it is full.
    Nobody,
}

struct Kind<'a> {
    name: &'static str,
    program: &'a Xdp,
    frame: Vec<u8>,
    reading: Reading,
    /// Whether the program counts the packet.
    counted: bool,
    /// The name of the kind whose time is subtracted.
    over: &'static str,
}

/// Programs that do not measure: one does nothing, and one only draws a random flow, as the other programs of the
/// benchmark do.
const EMPTY: &str = "empty program";
const DRAW: &str = "only draws a flow";

struct CacheOutcome {
    nanoseconds: f64,
    lost: Tally,
}

/// Measures and prints.
///
/// # Errors
///
/// No privilege, or a wrong ledger.
pub fn bench() -> Result<()> {
    let cpus = online_cpus()?;
    let cpu = *cpus.last().context("no CPU is online")?;
    pin(cpu)?;
    let plan = Plan {
        slot_key: Key([1, 2]),
        cache_flows: CACHE_FLOWS,
        ring_bytes: RING_BYTES,
        sampling: Packets::OneIn(1),
        interfaces: 1,
        tunnels: Tunnels::Outer,
        tunnel_ports: TunnelPorts::USUAL,
    };
    let mut kernel = Kernel::load_object(OBJECT, &plan, Features::of_this_kernel())?;
    for program in PROGRAMS {
        kernel.load_other(program)?;
    }
    let mut reader = Reader::new(kernel.ring(cpu)?);
    let Parts { xdp, flush, others, interfaces, rings: _, replay: _, tc: _ } = kernel.parts()?;
    interfaces.insert(LOOPBACK, 0, weir_common::control::Feeds::All)?;

    let kinds = kinds(xdp.native, &others, cpus[0], cpu)?;
    let mut turns: Vec<Vec<CacheOutcome>> = kinds.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (kind, turns) in kinds.iter().zip(&mut turns) {
            turns.push(kind.turn(&mut reader, flush)?);
        }
    }
    report(&kinds, turns, cpu)
}

fn kinds<'a>(weir: &'a Xdp, others: &[(&str, &'a Xdp)], other: u32, cpu: u32) -> Result<Vec<Kind<'a>>> {
    let mut programs = [weir; PROGRAMS.len()];
    for (found, name) in programs.iter_mut().zip(PROGRAMS) {
        let (_, program) = others.iter().find(|(other, _)| *other == name).with_context(|| format!("no {name}"))?;
        *found = program;
    }
    let [baseline, draw, two_flows, all_miss, zipf] = programs;
    let kind = |name, program, frame, reading| Kind { name, program, frame, reading, counted: true, over: EMPTY };
    let mut kinds = vec![
        Kind { counted: false, ..kind(EMPTY, baseline, frames::tcp_v4(), Reading::Needless) },
        Kind { counted: false, ..kind(DRAW, draw, frames::tcp_v4(), Reading::Needless) },
        kind("one flow: TCP, IPv4", weir, frames::tcp_v4(), Reading::Needless),
        kind("one flow: UDP, IPv6", weir, frames::udp_v6(), Reading::Needless),
        kind("one flow: deepest headers", weir, frames::deepest(), Reading::Needless),
        kind("two flows in turn", two_flows, frames::tcp_v4(), Reading::Needless),
        kind("skipped: ARP", weir, frames::arp(), Reading::Needless),
        Kind { over: DRAW, ..kind("2^20 flows, drawn (Zipf 1.1)", zipf, frames::tcp_v4(), Reading::Between) },
        kind("every packet evicts: room in the ring", all_miss, frames::tcp_v4(), Reading::Between),
        kind("every packet evicts: ring full", all_miss, frames::tcp_v4(), Reading::Nobody),
    ];
    if other != cpu {
        kinds.insert(
            9,
            kind("every packet evicts: another CPU reads", all_miss, frames::tcp_v4(), Reading::Beside(other)),
        );
    }
    Ok(kinds)
}

impl Kind<'_> {
    fn turn(&self, reader: &mut Reader, flush: FlushProgram<'_>) -> Result<CacheOutcome> {
        let calls = || self.calls(|| {});
        let (spent, before) = match self.reading {
            Reading::Needless => (calls()?, 0),
            Reading::Between => {
                let drain = || {
                    reader.drain();
                };
                (self.calls(drain)?, 0)
            }
            Reading::Nobody => {
                // Fills the cache and the ring.
                calls()?;
                (calls()?, self.runs())
            }
            Reading::Beside(other) => (beside(reader, other, calls)?, 0),
        };
        let ledger = reader.close(flush)?;
        self.check(&ledger, before + self.runs())?;
        Ok(CacheOutcome { nanoseconds: spent, lost: ledger.lost() })
    }

    const fn size(&self) -> (u32, u32) {
        if matches!(self.reading, Reading::Between) { TURN_DRAINED } else { TURN }
    }

    /// Timed runs in a turn.
    const fn runs(&self) -> u64 {
        let (calls, runs) = self.size();
        calls as u64 * runs as u64
    }

    /// Makes the calls of a turn; returns nanoseconds per run.
    fn calls(&self, mut between: impl FnMut()) -> Result<f64> {
        let (calls, runs) = self.size();
        let mut nanoseconds = 0.0;
        for _ in 0..calls {
            let options = TestRunOptions { data_in: Some(&self.frame), repeat: runs, ..TestRunOptions::new() };
            let result = self.program.test_run(options).with_context(|| format!("cannot run: {}", self.name))?;
            ensure!(result.return_value == XDP_PASS, "{}: returned {}, not XDP_PASS", self.name, result.return_value);
            nanoseconds += result.duration.as_nanos() as f64;
            between();
        }
        Ok(nanoseconds / f64::from(calls))
    }

    fn check(&self, ledger: &Ledger, runs: u64) -> Result<()> {
        let expected = if self.counted { Tally::new(runs, runs * self.frame.len() as u64) } else { Tally::default() };
        let seen = ledger.counters.seen;
        ensure!(seen == expected, "{}: {expected:?} were sent and {seen:?} were seen", self.name);
        ensure!(ledger.balances(), "{}: the ledger does not balance: {ledger:?}", self.name);
        let may_lose = matches!(self.reading, Reading::Beside(_) | Reading::Nobody);
        ensure!(may_lose || ledger.lost().is_zero(), "{}: lost {:?}", self.name, ledger.lost());
        Ok(())
    }
}

/// Runs `work` while another CPU reads the ring.
fn beside<T>(reader: &mut Reader, cpu: u32, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| -> Result<()> {
            pin(cpu)?;
            while !stop.load(Ordering::Relaxed) {
                reader.drain();
            }
            Ok(())
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        reading.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        result
    })
}

fn report(kinds: &[Kind<'_>], turns: Vec<Vec<CacheOutcome>>, cpu: u32) -> Result<()> {
    let figures: Vec<_> = turns
        .into_iter()
        .map(|turns| {
            let lost: u64 = turns.iter().map(|turn| turn.lost.packets).sum();
            let (least, median) = least_and_median(turns.iter().map(|turn| turn.nanoseconds).collect());
            (least, median, lost)
        })
        .collect();
    let empty = figures[0].1;
    let median_of = |name| {
        let found = kinds.iter().position(|kind| kind.name == name).context("nothing to compare with")?;
        anyhow::Ok(figures[found].1)
    };
    let rows: Vec<_> = kinds
        .iter()
        .zip(&figures)
        .map(|(kind, (least, median, lost))| {
            let per_turn = if kind.reading == Reading::Nobody { 2 * kind.runs() } else { kind.runs() };
            let share = 100.0 * *lost as f64 / (per_turn * ROUNDS as u64) as f64;
            anyhow::Ok([
                format!("{} ({} bytes)", kind.name, kind.frame.len()),
                format!("{median:.1}"),
                format!("{least:.1}"),
                format!("{:+.1}", median - median_of(kind.over)?),
                format!("{:.2}", median / empty),
                if *lost == 0 { "0".to_owned() } else { format!("{share:.1} %") },
            ])
        })
        .collect::<Result<_>>()?;
    table::say(format!("{}, on CPU {cpu}\n", table::machine()?))?;
    table::write(["packet", "median ns", "least ns", "above empty", "ratio to empty", "lost"], &rows)?;
    table::say(format!(
        "\nNanoseconds per packet, measured by BPF_PROG_TEST_RUN: {ROUNDS} turns of {} packets each, and the kinds take turns.\n\
         \"Above empty\" is the median less the median of the empty program. The packets drawn by Zipf's law are an exception:\n\
         drawing a flow takes time that no real packet needs, so theirs is the median less that of \"{DRAW}\".\n\
         The distance from the least to the median shows how noisy this machine is.\n\
         Checked after each turn: every call returned XDP_PASS, the ledger balanced, and weir had seen every packet.\n\
         The flow cache has {CACHE_FLOWS} slots, the ring {} KiB.",
        thousands(kinds.iter().map(Kind::runs).max().unwrap_or_default()),
        RING_BYTES >> 10,
    ))
}
