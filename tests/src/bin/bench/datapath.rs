//! The cost of a packet in the kernel: test-run sends each kind of packet through a program a million times.
//!
//! Kinds take turns, and so do objects if there are several, so that a disturbance of the machine affects all of them.
//! `scripts/bench` runs this with a real-time priority, so that no other process interrupts a turn, and the CPU time of
//! this thread is measured, which leaves out what the kernel waits for before and after each call. After each turn the
//! window is closed. Its ledger must balance and have the right number of packets, because the time of a wrong answer
//! is worthless.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context, Result, ensure};
use aya::programs::{SchedClassifier, TestRun as _, TestRunOptions, Xdp};
use rustix::time::{ClockId, clock_gettime};
use weir_common::{
    control::Feeds,
    ledger::{Ledger, Tally},
    packet::{Link, TunnelPorts, Tunnels},
};
use weir_config::{Packets, interface::Way};
use weir_datapath::{Features, Kernel, Parts, Plan, online_cpus, pin};
use weir_sketch::hash::Key;
use weir_tests::cost::{self, Flows, frames};

use crate::{
    reader::Reader,
    table::{self, lowest_quarter_and_median, thousands},
};

/// Turns of each kind.
const ROUNDS: usize = 12;
/// A turn: (calls, runs per call). Calls should be few: the kernel waits for all CPUs before and after each, some 20 ms
/// together. The records of a call must fit into the ring.
const TURN: (u32, u32) = (8, 1 << 17);
/// The size of the cache in the default configuration.
const CACHE_FLOWS: u32 = 16384;
/// Large enough for a call of many runs: after the wait before a call the CPU's caches are cold.
const RING_BYTES: u32 = 16 << 20;
/// Test-run's packets come in on the loopback interface, which has this index in every network namespace.
const LOOPBACK: u32 = 1;
const XDP_PASS: u32 = 2;
const TCX_NEXT: u32 = u32::MAX;

/// weir's programs and the benchmark's own: `ebpf/src/bin/benchmark.rs`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/weir-ebpf-benchmark"));
/// The programs that only the benchmark has.
const PROGRAMS: [&str; 5] = ["baseline", "draw", "two_flows", "all_miss", "zipf"];

const PLAN: Plan = Plan {
    slot_key: Key([1, 2]),
    cache_flows: CACHE_FLOWS,
    ring_bytes: RING_BYTES,
    sampling: Packets::OneIn(1),
    interfaces: 1,
    tunnels: Tunnels::Outer,
    tunnel_ports: TunnelPorts::USUAL,
};
const INNER: Plan = Plan { tunnels: Tunnels::Inner, ..PLAN };
const SAMPLED: Plan = Plan { sampling: Packets::OneIn(10), ..PLAN };
/// An object is loaded once with each of these.
const PLANS: [Plan; 3] = [PLAN, INNER, SAMPLED];

/// Tells if and when the ring is read.
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

/// A row of the table.
struct Kind {
    cost: cost::Kind,
    /// The position of the plan in [`PLANS`].
    plan: usize,
    reading: Reading,
    /// True if the program counts the packet.
    counted: bool,
    /// The name of the kind whose time is subtracted.
    over: &'static str,
}

/// Programs that do not measure: one does nothing, and one only draws a random flow, as the other programs of the
/// benchmark do.
const EMPTY: &str = "empty program";
const DRAW: &str = "only draws a flow";

/// An object with one plan, loaded.
struct Loaded<'a> {
    parts: Parts<'a>,
    reader: Reader,
}

struct Turn {
    nanoseconds: f64,
    lost: Tally,
}

/// Measures and prints. `with` is the file of another build of the benchmark's object, whose maps have the same layout.
///
/// # Errors
///
/// No privilege, or a wrong ledger.
pub fn bench(with: Option<&Path>) -> Result<()> {
    let cpus = online_cpus()?;
    let cpu = *cpus.last().context("no CPU is online")?;
    pin(cpu)?;
    let mut objects = vec![("this", OBJECT.to_vec())];
    if let Some(path) = with {
        objects.push(("other", fs::read(path).with_context(|| format!("cannot read {}", path.display()))?));
    }
    let (mut kernels, mut readers) = (Vec::new(), Vec::new());
    for (_, object) in &objects {
        for plan in PLANS {
            let mut kernel = Kernel::load_object(object, &plan, Features::of_this_kernel())?;
            for program in PROGRAMS {
                kernel.load_other(program)?;
            }
            readers.push(Reader::new(kernel.ring(cpu)?));
            kernels.push(kernel);
        }
    }
    let loaded = kernels.iter_mut().zip(readers).map(|(kernel, reader)| {
        let parts = kernel.parts()?;
        parts.interfaces.insert(LOOPBACK, 0, Feeds::All)?;
        anyhow::Ok(Loaded { parts, reader })
    });
    let mut loaded = loaded.collect::<Result<Vec<_>>>()?;

    let kinds = kinds(cpus[0], cpu);
    let mut turns: Vec<Vec<Turn>> = kinds.iter().flat_map(|_| &objects).map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for (nth, kind) in kinds.iter().enumerate() {
            for other in 0..objects.len() {
                let object = (other + round) % objects.len();
                let loaded = &mut loaded[object * PLANS.len() + kind.plan];
                turns[nth * objects.len() + object].push(kind.turn(loaded)?);
            }
        }
    }
    report(&kinds, &objects, turns, cpu)
}

fn kinds(other: u32, cpu: u32) -> Vec<Kind> {
    let kind = |name, program, frame, reading| {
        let flows = if PROGRAMS.contains(&program) { Flows::OfProgram } else { Flows::One };
        let cost = cost::Kind { name, program, frame, tag: None, plan: PLAN, flows };
        Kind { cost, plan: 0, reading, counted: true, over: EMPTY }
    };
    let one = |name, frame| kind(name, "weir", frame, Reading::Needless);
    let tc = |name, frame| kind(name, "weir_ingress", frame, Reading::Needless);
    let planned = |plan: usize, one: Kind| Kind { plan, cost: cost::Kind { plan: PLANS[plan], ..one.cost }, ..one };
    let varied = |name, program, reading| kind(name, program, frames::tcp_v4(), reading);
    let mut kinds = vec![
        Kind { counted: false, ..varied(EMPTY, "baseline", Reading::Needless) },
        Kind { counted: false, ..varied(DRAW, "draw", Reading::Needless) },
        one("one flow: TCP, IPv4", frames::tcp_v4()),
        one("one flow: TCP, IPv4, one VLAN tag", frames::tagged_v4(&[5])),
        one("one flow: TCP, IPv4, two VLAN tags", frames::tagged_v4(&[5, 6])),
        one("one flow: TCP, IPv4, PPP over Ethernet", frames::session_v4()),
        one("one flow: UDP, IPv6", frames::udp_v6()),
        one("one flow: UDP, IPv6, one VLAN tag", frames::tagged_v6(&[5])),
        one("one flow: deepest headers", frames::deepest()),
        planned(1, one("one flow: inside GRE", frames::gre_v4())),
        planned(1, one("one flow: inside VXLAN", frames::vxlan_v4())),
        planned(2, one("one flow: sampled, one in ten", frames::tcp_v4())),
        tc("one flow, tc: TCP, IPv4", frames::tcp_v4()),
        tc("one flow, tc: UDP, IPv6", frames::udp_v6()),
        varied("two flows in turn", "two_flows", Reading::Needless),
        one("skipped: ARP", frames::arp()),
        Kind { over: DRAW, ..varied("2^20 flows, drawn (Zipf 1.1)", "zipf", Reading::Between) },
        varied("every packet evicts: room in the ring", "all_miss", Reading::Between),
        varied("every packet evicts: ring full", "all_miss", Reading::Nobody),
    ];
    if other != cpu {
        kinds.push(varied("every packet evicts: another CPU reads", "all_miss", Reading::Beside(other)));
    }
    kinds
}

/// A program that test-run can run.
#[derive(Clone, Copy)]
enum Program<'a> {
    Xdp(&'a Xdp),
    Tc(&'a SchedClassifier),
}

impl Program<'_> {
    /// Runs it; it must pass the packet on.
    fn run(self, options: TestRunOptions<'_>) -> Result<()> {
        let (result, pass) = match self {
            Self::Xdp(program) => (program.test_run(options)?, XDP_PASS),
            Self::Tc(program) => (program.test_run(options)?, TCX_NEXT),
        };
        ensure!(result.return_value == pass, "returned {}, not {pass}", result.return_value);
        Ok(())
    }
}

impl Kind {
    fn turn(&self, loaded: &mut Loaded<'_>) -> Result<Turn> {
        let Loaded { parts: Parts { xdp, tc, flush, others, .. }, reader } = loaded;
        let name = self.cost.program;
        let program = match others.iter().find(|(other, _)| *other == name) {
            Some((_, program)) => Program::Xdp(program),
            None if name == "weir" => Program::Xdp(xdp.native),
            None => Program::Tc(tc.get(Link::Ethernet, Way::Ingress)?.context("there is no such program")?),
        };
        let calls = || self.calls(program, || {});
        let (nanoseconds, before) = match self.reading {
            Reading::Needless => (calls()?, 0),
            Reading::Between => (self.calls(program, || reader.drain())?, 0),
            Reading::Nobody => {
                // Fills the cache and the ring.
                calls()?;
                (calls()?, runs())
            }
            Reading::Beside(other) => (beside(reader, other, calls)?, 0),
        };
        let ledger = reader.close(*flush)?;
        self.check(&ledger, before + runs())?;
        Ok(Turn { nanoseconds, lost: ledger.lost() })
    }

    /// Makes the calls of a turn; returns nanoseconds per run.
    fn calls(&self, program: Program<'_>, mut between: impl FnMut()) -> Result<f64> {
        let (calls, runs) = TURN;
        let mut nanoseconds = 0;
        for _ in 0..calls {
            let options = TestRunOptions { data_in: Some(&self.cost.frame), repeat: runs, ..TestRunOptions::new() };
            let before = cpu_time_ns();
            program.run(options).with_context(|| format!("cannot run: {}", self.cost.name))?;
            nanoseconds += cpu_time_ns() - before;
            between();
        }
        Ok(nanoseconds as f64 / f64::from(calls) / f64::from(runs))
    }

    fn check(&self, ledger: &Ledger, runs: u64) -> Result<()> {
        let name = self.cost.name;
        let expected =
            if self.counted { Tally::new(runs, runs * self.cost.frame.len() as u64) } else { Tally::default() };
        let seen = ledger.counters.seen;
        ensure!(seen == expected, "{name}: {expected:?} were sent and {seen:?} were seen");
        ensure!(ledger.balances(), "{name}: the ledger does not balance: {ledger:?}");
        let may_lose = matches!(self.reading, Reading::Beside(_) | Reading::Nobody);
        ensure!(may_lose || ledger.lost().is_zero(), "{name}: lost {:?}", ledger.lost());
        Ok(())
    }
}

/// Timed runs in a turn.
const fn runs() -> u64 {
    TURN.0 as u64 * TURN.1 as u64
}

/// The CPU time of this thread. Test-run reports whole nanoseconds only.
fn cpu_time_ns() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
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

/// The figures of a kind with an object.
struct Figures {
    low: f64,
    median: f64,
    lost: u64,
}

fn report(kinds: &[Kind], objects: &[(&str, Vec<u8>)], turns: Vec<Vec<Turn>>, cpu: u32) -> Result<()> {
    let figures: Vec<_> = turns
        .into_iter()
        .map(|turns| {
            let lost = turns.iter().map(|turn| turn.lost.packets).sum();
            let (low, median) = lowest_quarter_and_median(turns.iter().map(|turn| turn.nanoseconds).collect());
            Figures { low, median, lost }
        })
        .collect();
    let of = |kind: usize, object: usize| &figures[kind * objects.len() + object];
    let mut rows = Vec::new();
    for (nth, kind) in kinds.iter().enumerate() {
        let over = kinds.iter().position(|other| other.cost.name == kind.over).context("nothing to compare with")?;
        let above = |object| of(nth, object).low - of(over, object).low;
        for (object, (name, bytes)) in objects.iter().enumerate() {
            let Figures { low, median, lost } = of(nth, object);
            let per_turn = if kind.reading == Reading::Nobody { 2 * runs() } else { runs() };
            let share = 100.0 * *lost as f64 / (per_turn * ROUNDS as u64) as f64;
            rows.push([
                format!("{} ({} bytes)", kind.cost.name, kind.cost.frame.len()),
                (*name).to_owned(),
                format!("{:.0}", kind.cost.instructions(bytes)?),
                format!("{low:.1}"),
                format!("{:+.1}", above(object)),
                format!("{median:.1}"),
                if object == 0 || over == nth || above(0) <= 0.0 {
                    "-".to_owned()
                } else {
                    format!("{:.2}", above(object) / above(0))
                },
                if *lost == 0 { "0".to_owned() } else { format!("{share:.1} %") },
            ]);
        }
    }
    table::say(format!("{}, on CPU {cpu}\n", table::machine()?))?;
    table::write(
        ["packet", "object", "instructions", "ns", "above empty", "median ns", "ratio to this", "lost"],
        &rows,
    )?;
    table::say(format!(
        "\nNanoseconds of CPU time per packet, measured by BPF_PROG_TEST_RUN: {ROUNDS} turns of {} packets each, and the kinds\n\
         take turns. \"ns\" is the mean of the lowest quarter of the turns. \"Above empty\" is that less the same of the empty\n\
         program. The packets drawn by Zipf's law are an exception: drawing a flow takes time that no real packet needs, so\n\
         theirs is less that of \"{DRAW}\". The distance to the median shows how noisy this machine is.\n\
         The instructions are counted, not measured: they are the same on every machine. Where a flow is drawn, those of the\n\
         draw are included.\n\
         Checked after each turn: every call passed the packet on, the ledger balanced, and weir had seen every packet.\n\
         The flow cache has {CACHE_FLOWS} slots, the ring {} KiB.",
        thousands(runs()),
        RING_BYTES >> 10,
    ))
}
