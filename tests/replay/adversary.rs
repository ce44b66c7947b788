//! Attackers send packets, read every report, and adapt. What they learn helps them on the same day, as far as
//! `docs/SECURITY.md` states, and not at all after midnight UTC.
//!
//! A router here is a secret (a seed). Each window is a separate replay: windows start empty, and keys are derived from
//! the secret, the day and the start of the window. For the filter of seen flows, a new replay is like a pause after
//! which the filter has forgotten everything.

use std::{cell::Cell, collections::BTreeMap, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir::replay::Windows;
use weir_config::Config;
use weir_datapath::{Cpus, Shares};
use weir_tests::{chance, scratch::Scratch};

use crate::{
    frames::{self, Udp},
    library::{run_with, small},
};

const DAY: u64 = 86_400;
/// 2026-11-20T12:00:00Z.
const NOON: u64 = 1_795_176_000;
/// Routers, each with a secret of its own.
const ROUTERS: u64 = 6;

/// A router under attack.
struct Router {
    seed: u64,
    config: Config,
    kernel: bool,
    scratch: Scratch,
    /// The seconds since noon of all windows so far, so that no two windows begin at the same time.
    passed: Cell<u64>,
}

impl Router {
    fn new(seed: u64, config: Config) -> Result<Self> {
        Ok(Self { seed, config, kernel: false, scratch: Scratch::new()?, passed: Cell::default() })
    }

    /// The report of a window of these packets, with their lengths, `days` after the first.
    fn window(&self, days: u64, packets: &[(Udp, usize)]) -> Result<Value> {
        self.windows(days, &[packets])?.pop().context("no report")
    }

    /// The reports of windows that follow each other.
    fn windows(&self, days: u64, windows: &[&[(Udp, usize)]]) -> Result<Vec<Value>> {
        let file = self.scratch.file("windows.pcap");
        let start = Duration::from_secs(NOON + days * DAY + self.passed.get());
        self.passed.set(self.passed.get() + windows.len() as u64);
        let times = (0..).map(|second| (0..).map(move |nth| start + Duration::new(second, 1_000 * nth)));
        let packets = times.zip(windows).flat_map(|(times, packets)| times.zip(*packets));
        frames::write(&file, packets.map(|(time, (flow, bytes))| (time, flow.frame(*bytes))))?;
        let second = Windows::Every(Duration::from_secs(1));
        let reports = run_with(&self.config, &[file], second, self.kernel, self.seed)?.reports;
        ensure!(reports.len() == windows.len(), "{} reports", reports.len());
        for (report, packets) in reports.iter().zip(windows) {
            ensure!(report["totals"]["packets"] == packets.len(), "{}", report["totals"]);
        }
        Ok(reports)
    }
}

fn number(value: &Value) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is not a number"))
}

/// Removes as many elements from a set as possible, as long as `works` returns true.
fn least<T: Copy>(mut set: Vec<T>, mut works: impl FnMut(&[T]) -> Result<bool>) -> Result<Vec<T>> {
    let mut size = set.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < set.len() {
            let end = (at + size).min(set.len());
            let rest = [&set[..at], &set[end..]].concat();
            if works(&rest)? { set = rest } else { at = end }
        }
        if size == 1 {
            return Ok(set);
        }
        size = size.div_ceil(2);
    }
}

/// The victim of the attacks on the list of sources, and what it sends in a window.
const VICTIM: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const VICTIM_PACKETS: usize = 200;
const BYTES: usize = 1_000;

fn from(source: Ipv4Addr) -> Udp {
    Udp { source: source.into(), destination: Ipv4Addr::new(198, 51, 100, 7).into(), ports: (5_000, 53) }
}

fn attacker(nth: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + nth)
}

/// A window in which the attackers send first, `packets` each in turn, and then the victim. In between the attackers
/// evict all records from the flow cache with many small flows of one source, so that their own records reach the
/// sketches first.
fn against_the_victim(attackers: &[u32], packets: usize, bytes: usize) -> Vec<(Udp, usize)> {
    const PUSHING: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
    let turns = (0..packets).flat_map(|_| attackers.iter().map(|nth| (from(attacker(*nth)), bytes)));
    // There are ten flows for each slot, so one slot in 20,000 is missed.
    let pushing = (0..2_560).map(|port| (Udp { ports: (port, 53), ..from(PUSHING) }, 60));
    turns.chain(pushing).chain([(from(VICTIM), BYTES); VICTIM_PACKETS]).collect()
}

/// The distance of the victim's bounds as a share of all bytes; `None` if it is not in the list. Fails if a bound of
/// the list does not hold.
fn width(report: &Value, packets: &[(Udp, usize)]) -> Result<Option<f64>> {
    let mut truth = BTreeMap::new();
    for (flow, bytes) in packets.iter() {
        *truth.entry(flow.source.to_string()).or_default() += *bytes as u64;
    }
    let total: u64 = truth.values().sum();
    let mut victim = None;
    for entry in report["top"]["sources"].as_array().context("no list")? {
        let source = entry["src_ip"].as_str().context("no address")?;
        let (lower, upper) = (number(&entry["bytes"]["lower"])?, number(&entry["bytes"]["upper"])?);
        let sent = *truth.get(source).with_context(|| format!("{source} sent nothing"))?;
        ensure!((lower..=upper).contains(&sent), "the bounds do not hold: {sent} bytes, {entry}");
        if source == VICTIM.to_string() {
            victim = Some((upper - lower) as f64 / total as f64);
        }
    }
    Ok(victim)
}

/// The smallest set of sources that together widen the victim's bounds a little, found by watching the bounds. Also
/// returns the number of reports that the search took.
fn those_that_widen(router: &Router) -> Result<(Vec<u32>, u64)> {
    let mut windows = 0;
    let widens = |set: &[u32]| {
        windows += 1;
        let packets = against_the_victim(set, 1, 100);
        Ok(width(&router.window(0, &packets)?, &packets)?.is_none_or(|width| width > 0.0))
    };
    // There are some twenty sources for each of fifty blocks.
    Ok((least((0..1_000).collect(), widens)?, windows))
}

/// The results of attacks on the victim's place in the list.
#[derive(Debug, Default)]
struct Outcome {
    attempts: u64,
    /// How often the victim was not in the list, where it belongs.
    missing: u64,
    /// How often its bounds were further apart than the configured error.
    wide: u64,
    /// The largest distance of its bounds, as a share of all bytes.
    widest: f64,
}

impl Outcome {
    /// Makes an attempt with these sources in this many windows, in each of which they send a little more.
    fn attack(&mut self, router: &Router, days: u64, sources: &[u32], packets: usize) -> Result<()> {
        const ATTEMPTS: usize = 5;
        for more in 0..ATTEMPTS {
            let packets = against_the_victim(sources, packets + more, BYTES);
            let width = width(&router.window(days, &packets)?, &packets)?;
            self.attempts += 1;
            self.missing += u64::from(width.is_none());
            self.wide += u64::from(width.is_some_and(|width| width > router.config.estimates.top_error));
            self.widest = self.widest.max(width.unwrap_or_default());
        }
        Ok(())
    }

    fn harmless(&self) -> bool {
        (self.missing, self.wide) == (0, 0)
    }
}

/// (a) and (b): tries to push the victim out of the list, or to make its bounds wide.
///
/// To widen the victim's bounds, an attacker needs sources that fill the victim's bucket, and others that share its
/// cell there. A report shows which these may be. But in the next window other sources share the cell, so what the
/// attacker has learned is out of date.
pub fn the_lists() -> Result<()> {
    // Each attacker sends a quarter of what the victim sends, so the victim belongs at the head of the list.
    let less = VICTIM_PACKETS / 4;
    let (mut reports, mut sources) = (0, 0);
    let [mut learned, mut blind, mut later, mut flood] = [(); 4].map(|()| Outcome::default());
    for seed in 0..ROUTERS / 2 {
        let router = Router::new(seed, small())?;
        let (found, windows) = those_that_widen(&router)?;
        (reports, sources) = (reports + windows, sources + found.len() as u64);
        learned.attack(&router, 0, &found, less)?;
        let others: Vec<u32> = (5_000..).take(found.len()).collect();
        blind.attack(&router, 0, &others, less)?;
        later.attack(&router, 1, &found, less)?;
        // As many packets, each from a different source.
        let many: Vec<u32> = (10_000..).take(found.len() * less).collect();
        flood.attack(&router, 0, &many, 1)?;
    }
    for (who, outcome) in
        [("blind", blind), ("on the next day", later), ("a blind flood", flood), ("who reads reports", learned)]
    {
        ensure!(outcome.attempts == 5 * ROUTERS / 2, "{who}: {outcome:?}");
        ensure!(outcome.harmless(), "{who}: {outcome:?}");
    }
    // These are the figures in docs/SECURITY.md for an attacker who reads reports. The seeds make them repeatable.
    let [reports, sources] = [reports, sources].map(|sum| sum / (ROUTERS / 2));
    ensure!(reports > 300 && sources > 100, "it took {reports} reports to find {sources} sources");
    Ok(())
}

/// A flow that did not occur before.
fn flow(nth: u32) -> (Udp, usize) {
    let ports = (1_024 + (nth % 50_000) as u16, 53);
    (Udp { ports, ..from(Ipv4Addr::from_bits(0x0a00_0000 + nth / 50_000)) }, 100)
}

/// (c): finds flows that the filter of seen flows takes for known, because of other flows that the attacker sends
/// first.
pub fn the_filter_of_seen_flows() -> Result<()> {
    const FILL: u32 = 1_000;
    const GROUP: u32 = 32;
    const GROUPS: u32 = 12;
    let mut config = small();
    config.seen_flows.capacity = FILL.into();
    config.seen_flows.false_positive_rate = 0.1;
    let (mut tried, mut hidden_blind, mut known, mut hidden_learned, mut hidden_later) = (0, 0, 0, 0, 0);
    let mut worst = 0.0_f64;
    for seed in 0..ROUTERS / 2 {
        let router = Router::new(seed, config.clone())?;
        // The first window fills the filter, and the second one has the flows.
        let hidden = |days, flows: &[u32]| {
            let fill = (0..FILL).map(flow).collect::<Vec<_>>();
            let flows: Vec<_> = flows.iter().copied().map(flow).collect();
            let report = router.windows(days, &[&fill, &flows])?.pop().context("no report")?;
            let new = &report["new_flows"];
            let rate = new["false_positive_rate"].as_f64().context("no rate")?;
            anyhow::Ok((flows.len() as u64 - number(&new["value"])?, rate))
        };
        let mut learned = Vec::new();
        for group in 0..GROUPS {
            let first = FILL + group * GROUP;
            let mut parts = vec![(first..first + GROUP).collect::<Vec<u32>>()];
            (tried, hidden_blind) = (tried + u64::from(GROUP), hidden_blind + hidden(0, &parts[0])?.0);
            while let Some(part) = parts.pop() {
                match hidden(0, &part)?.0 {
                    0 => {}
                    all if all == part.len() as u64 => learned.extend(part),
                    _ => {
                        let (one, other) = part.split_at(part.len() / 2);
                        parts.extend([one.to_vec(), other.to_vec()]);
                    }
                }
            }
        }
        known += learned.len() as u64;
        hidden_learned += hidden(0, &learned)?.0;
        let (later, rate) = hidden(1, &learned)?;
        (hidden_later, worst) = (hidden_later + later, worst.max(rate));
    }
    ensure!(worst < 0.11, "the filter is fuller than planned: {worst}");
    ensure!(hidden_learned == known && known > 20, "{hidden_learned} of {known} learned flows are hidden");
    // The stated rate is that at the end of the window, which is its highest.
    let alarm = |trials| chance::failures_that_alarm(trials, worst);
    ensure!(hidden_blind < alarm(tried), "{hidden_blind} of {tried} flows are hidden from a blind attacker's count");
    ensure!(hidden_later < alarm(known), "{hidden_later} of {known} learned flows are hidden on the next day");
    Ok(())
}

/// (d): finds a flow in the victim's slot of the flow cache, by the share of packets that found their flow there.
pub fn the_flow_cache(kernel: bool) -> Result<()> {
    let victim = flow(0);
    // The kernel verifies all programs again for each window: one router in the kernel takes longer than all others.
    let routers = if kernel { 1 } else { ROUTERS / 2 };
    for seed in 0..routers {
        let router = Router { kernel, ..Router::new(seed, small())? };
        let hit_rate = |packets: &[_]| {
            let report = router.window(0, packets)?;
            report["self"]["cache_hit_rate"].as_f64().context("no rate")
        };
        // The victim's packets are between the others: it misses once, and once more for each flow in its slot.
        let disturbs = |flows: &[u32]| {
            let packets: Vec<_> = flows.iter().flat_map(|nth| [victim, flow(*nth)]).chain([victim]).collect();
            let misses = (1.0 - hit_rate(&packets)?) * packets.len() as f64;
            Ok(misses.round() as usize > flows.len() + 1)
        };
        let slots = Shares::new(&router.config.datapath, &Cpus::of(1)).cache_flows;
        let mates = least((1..8 * slots).collect(), disturbs)?;
        ensure!(mates.len() == 1, "router {seed}: {} flows for one slot", mates.len());
        let in_turn = |nth: u32| (0..500).flat_map(|_| [victim, flow(nth)]).collect::<Vec<_>>();
        let (learned, blind) = (hit_rate(&in_turn(mates[0]))?, hit_rate(&in_turn(100_000 + seed as u32))?);
        ensure!(learned == 0.0, "router {seed}: {learned} of the packets find their flow");
        ensure!(blind > 0.99, "router {seed}: {blind} of a blind attacker's packets find their flow");
    }
    Ok(())
}

/// (d) without a report: flows that differ only in the highest bits of their addresses must not share a slot with every
/// key, as they once did.
pub fn flows_of_one_slot_under_every_key(kernel: bool) -> Result<()> {
    let v6 = |source: u128, destination: u128| {
        let [source, destination] = [source, destination].map(|ip| std::net::Ipv6Addr::from_bits(ip).into());
        (Udp { source, destination, ports: (5_000, 53) }, 100)
    };
    let network = 0x2001_0db8_u128 << 96;
    let high = 1 << 63;
    for seed in 0..2 * ROUTERS {
        let router = Router { kernel, ..Router::new(seed, small())? };
        let pair = [v6(network + 1, network + 2), v6(network + high + 1, network + high + 2)];
        let packets: Vec<_> = (0..100).flat_map(|_| pair).collect();
        let rate = router.window(0, &packets)?["self"]["cache_hit_rate"].as_f64().context("no rate")?;
        // One router in 256 has both in one slot; with these seeds none has.
        ensure!(rate > 0.98, "router {seed}: {rate} of the packets find their flow");
    }
    Ok(())
}
