//! A small router: weir in a group with 40 MiB of memory and a fifth of a CPU, on two interfaces, reloaded and
//! restarted again and again. Every packet must be accounted for, and the memory must suffice.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use weir_common::ledger::Tally;
use weir_tests::{
    account::{self, Ledger},
    clock,
    daemon::{Daemon, Signal, weir_binary},
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    quiet::{self, QUIET_LINK, TIMEOUT},
    scratch::Scratch,
    table,
    traffic::{Mix, Plan, Traffic},
};

/// The limit of the group; the configuration takes half of it.
const MEMORY: u64 = 40 << 20;
/// Of each 100 ms, so much CPU time.
const CPU_MS: u64 = 20;
/// The second link: as [`QUIET_LINK`].
const SECOND_LINK: [&str; 2] = ["gen1", "obs1"];
/// How long one weir measures, with a reload in the middle.
const LIFE_SECONDS: u32 = 20;

/// Lets weir measure `rate` packets a second for `minutes`, one weir after the other; prints where the packets went.
///
/// # Errors
///
/// A packet is not accounted for, or weir ended otherwise than it was told to.
pub fn soak(minutes: u64, rate: u32) -> Result<bool> {
    let pair = Lab::quiet_pair()?;
    let [sends, receives] = SECOND_LINK;
    pair.observer.ip(&format!("link add {receives} type veth peer name {sends} netns {}", pair.generator.name()))?;
    pair.generator.ip(&format!("link set {sends} arp off up"))?;
    pair.observer.ip(&format!("link set {receives} arp off up"))?;
    let (group, state, scratch) = (Group::new()?, Scratch::new()?, Scratch::new()?);
    // In the namespace, /sys has no groups any more.
    let script = format!(
        "#!/bin/sh\n{}STATE_DIRECTORY='{}' exec ip netns exec {} '{}' \"$@\"\n",
        group.joining(),
        state.path().display(),
        pair.observer.name(),
        weir_binary()?.canonicalize()?.display()
    );
    let program = scratch.script(&script, "weir", 0o700)?;
    let (end, mut lives, mut all) = (clock::now() + Duration::from_secs(60 * minutes), 0, Ledger::default());
    let mut valve = BTreeMap::<String, u64>::new();
    while lives == 0 || clock::now() < end {
        all.add(&live(&pair, &program, rate / 2, lives, &mut valve)?);
        lives += 1;
    }
    let lost = all.all_lost().packets;
    table::say(format!(
        "{lives} lives of {LIFE_SECONDS} s: {} packets were seen, {} are in flows, {} were sampled out, {lost} were lost",
        all.seen.packets, all.attributed.packets, all.sampled_out.packets
    ))?;
    for (reason, tally) in all.lost.iter().filter(|(_, tally)| !tally.is_zero()) {
        table::say(format!("lost for the reason {reason}: {}", tally.packets))?;
    }
    for (line, times) in valve {
        table::say(format!("the log said {times} times: {line}"))?;
    }
    group.judge()
}

/// Measures both links with one weir, and checks that every packet is in its reports.
fn live(pair: &QuietPair, program: &Path, rate: u32, seed: u64, valve: &mut BTreeMap<String, u64>) -> Result<Ledger> {
    let interfaces = [QUIET_LINK[1], SECOND_LINK[1]];
    let mut daemon = Daemon::start_program(program, None, |reports| {
        format!(
            "interfaces: [{}]\nmemory: 20MiB\nreport: {{interval: 1s}}\nsampling: {{packets: auto}}\n\
             sinks: [{{type: file, path: {}}}]\n",
            interfaces.join(", "),
            reports.display()
        )
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let sent = thread::scope(|scope| -> Result<[Tally; 2]> {
        let senders = [QUIET_LINK, SECOND_LINK].map(|link| {
            let packets = u64::from(rate) * u64::from(LIFE_SECONDS);
            let plan =
                Plan { seed: 2 * seed + u64::from(link == SECOND_LINK), packets, mix: Mix::PLAIN, ..Plan::default() };
            let pace = Pace::PacketsPerSecond(rate);
            scope.spawn(move || quiet::send(pair, link, Traffic::new(plan)?, pace, &mut Oracle::new()))
        });
        thread::sleep(Duration::from_secs(u64::from(LIFE_SECONDS) / 2));
        daemon.signal(Signal::HUP)?;
        let [one, other] = senders.map(|sender| sender.join().expect("sending does not panic"));
        Ok([one?, other?])
    })?;
    let status = daemon.stop(TIMEOUT)?;
    let log = daemon.log()?;
    ensure!(status.success() && log.contains("the configuration is valid"), "weir ended with {status}: {log}");
    let reports = daemon.reports()?;
    let mut whole = Ledger::default();
    for report in &reports {
        whole.add(&account::add_up([report])?);
        ensure!(whole.seen == whole.accounted(), "a report does not add up: {report}");
    }
    for (interface, sent) in interfaces.into_iter().zip(sent) {
        let mut seen = Tally::default();
        for one in reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten() {
            if one["name"] == interface {
                seen.add(Ledger::read(one)?.seen);
            }
        }
        ensure!(seen == sent, "{interface}: {seen:?} of {sent:?}");
    }
    // The words without the time and without their numbers.
    for line in log.lines().filter(|line| line.contains("taking one packet in")) {
        let words = line.split_once(' ').map_or(line, |(_, rest)| rest);
        let words: String = words.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        *valve.entry(words).or_default() += 1;
    }
    Ok(whole)
}

/// A control group, of either version; removed on drop.
struct Group {
    memory: PathBuf,
    cpu: PathBuf,
    is_unified: bool,
}

impl Group {
    fn new() -> Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let is_unified = root.join("cgroup.controllers").exists();
        let name = format!("weir-soak-{}", std::process::id());
        let of = |controller: &str| if is_unified { root.join(&name) } else { root.join(controller).join(&name) };
        let group = Self { memory: of("memory"), cpu: of("cpu"), is_unified };
        for folder in [&group.memory, &group.cpu] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let write = |path: PathBuf, text: String| {
            fs::write(&path, text).with_context(|| format!("cannot write {}: is the controller on?", path.display()))
        };
        if is_unified {
            write(root.join("cgroup.subtree_control"), "+memory +cpu".to_owned())?;
            write(group.memory.join("memory.max"), MEMORY.to_string())?;
            write(group.memory.join("memory.swap.max"), "0".to_owned())?;
            write(group.cpu.join("cpu.max"), format!("{} 100000", CPU_MS * 1_000))?;
        } else {
            write(group.memory.join("memory.limit_in_bytes"), MEMORY.to_string())?;
            write(group.cpu.join("cpu.cfs_period_us"), "100000".to_owned())?;
            write(group.cpu.join("cpu.cfs_quota_us"), (CPU_MS * 1_000).to_string())?;
        }
        Ok(group)
    }

    /// Lines of a shell script that moves itself into the group.
    fn joining(&self) -> String {
        [&self.memory, &self.cpu].map(|folder| format!("echo $$ >'{}/cgroup.procs'\n", folder.display())).concat()
    }

    /// Prints the memory and the CPU time; returns true if the memory was enough.
    fn judge(&self) -> Result<bool> {
        let (peak, events, throttled) = if self.is_unified {
            ("memory.peak", "memory.events", "throttled_usec")
        } else {
            ("memory.max_usage_in_bytes", "memory.oom_control", "throttled_time")
        };
        let read = |path: PathBuf| fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()));
        let peak: u64 = read(self.memory.join(peak))?.trim().parse()?;
        let events = read(self.memory.join(events))?;
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill ")).context("no oom_kill")?.to_owned();
        let cpu = read(self.cpu.join("cpu.stat"))?;
        let throttled = cpu.lines().find(|line| line.starts_with(throttled)).unwrap_or_default();
        table::say(format!(
            "memory of the group, kernel maps and pages of files included: at most {:.1} MiB of {} MiB; killed for lack of \
             it: {killed}; {throttled}",
            peak as f64 / f64::from(1 << 20),
            MEMORY >> 20
        ))?;
        Ok(killed == "0" && peak <= MEMORY)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.memory);
        let _ = fs::remove_dir(&self.cpu);
    }
}
