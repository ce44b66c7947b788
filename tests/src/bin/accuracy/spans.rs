//! How close the lists of long times are that the history keeps, with as many rows of each window as today, and with
//! ten, as the first format had.
//!
//! Each seed is a day of windows with exact lists, so all that is lost is what the history leaves out. A span ends at a
//! random time of the day.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use jiff::Timestamp;
use weir_config::Addresses;
use weir_history::{History, Limits, Query, Settings, Time};
use weir_schema::{Estimate, FromJson as _, Length, Report, TopSource, TopUnlisted, Union};

use crate::tally::Tallies;

/// The length of a window in seconds, and the windows of a day.
const LENGTH: i64 = 30;
const DAY: i64 = 86_400 / LENGTH;
/// Midnight.
const START: i64 = 1_764_115_200;
/// The sources of a window that are not drawn anew.
const SOURCES: u64 = 150;
/// How many rows of a window are kept: today, and in the first format.
pub const FORMATS: [usize; 2] = [64, 10];
/// The lengths of spans in minutes.
pub const MINUTES: [i64; 3] = [20, 60, 1_440];
/// The memory for windows, as configured by default.
const MEMORY: u64 = 4 << 20;
/// The row that is judged.
const ROW: usize = 20;

/// Sources with their packets in a window.
type Sources = Vec<(u32, u64)>;

/// A kind of traffic.
#[derive(Debug)]
pub struct Traffic {
    /// Its name in tables and pictures.
    pub name: &'static str,
    window: fn(i64, &mut Random) -> Sources,
}

/// Every kind.
pub const ALL: [Traffic; 3] = [
    Traffic { name: "the same all day", window: zipf },
    Traffic { name: "half are others each 10 min", window: churn },
    Traffic { name: "floods each hour", window: floods },
];

/// Pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The k-th source has a share of 1 / k on average.
fn zipf(_: i64, random: &mut Random) -> Sources {
    (1..=SOURCES).map(|rank| (rank as u32, (20_000 / rank) * (70 + random.below(61)) / 100 + 1)).collect()
}

fn churn(nth: i64, random: &mut Random) -> Sources {
    let generation = |rank: u32| if rank.is_multiple_of(2) { 0 } else { (nth as u32 / 20 + rank) * 1000 };
    zipf(nth, random).into_iter().map(|(rank, packets)| (generation(rank) + rank, packets)).collect()
}

/// Ten minutes of each hour have sources that come once.
fn floods(nth: i64, random: &mut Random) -> Sources {
    let mut all = zipf(nth, random);
    if nth % 120 < 20 {
        all.extend((0..400).map(|_| (0x8000_0000 + random.below(1 << 31) as u32, 1 + random.below(60))));
    }
    all
}

/// Measures a day of this traffic in both formats.
///
/// # Errors
///
/// The history does not answer.
pub fn measure(traffic: &'static Traffic, seed: u64, tallies: &mut Tallies) -> Result<()> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let windows: Vec<Sources> = (0..DAY).map(|nth| (traffic.window)(nth, &mut random)).collect();
    let golden: Report = serde_json::from_str(include_str!("../../../../daemon/schema/tests/golden/report.json"))?;
    let spans = MINUTES.map(|minutes| {
        let length = minutes * 60 / LENGTH;
        let first = random.below((DAY - length) as u64 + 1) as i64;
        (minutes, first, first + length)
    });
    for rows in FORMATS {
        let limits = Limits { bytes: u64::MAX, age: None, has_samples: false };
        let observer = golden.observer.id.clone();
        let addresses = Addresses::Full;
        let settings = Settings { memory: MEMORY, sample: 0, rows, folder: None, limits, observer, addresses };
        let history = History::start(settings)?;
        for (nth, sources) in windows.iter().enumerate() {
            history.add_waiting(Box::new(report(&golden, nth as i64, sources)));
        }
        for (minutes, first, end) in spans {
            let time = Time { from: Some(at(first)), to: Some(at(end)) };
            let answer = history.asker().ask(Query::Span(time), || ()).map_err(|why| anyhow!(why))?;
            let answer = answer.recv().context("the history has ended")?.map_err(|why| anyhow!(why))?;
            let union = Union::from_json(answer.as_bytes())?;
            judge(&union, &windows, (traffic.name, rows, minutes), tallies)?;
        }
    }
    Ok(())
}

fn at(nth: i64) -> Timestamp {
    Timestamp::from_second(START + nth * LENGTH).unwrap_or_default()
}

/// A report with the sources of a window, as many as weir hands to the history.
fn report(golden: &Report, nth: i64, sources: &[(u32, u64)]) -> Report {
    /// Candidates of a window.
    const KNOWN: usize = 64;
    let mut report = golden.clone();
    report.addresses = None;
    report.interfaces.clear();
    (report.window.start, report.window.end) = (at(nth), at(nth + 1));
    report.window.seconds = Length::new(LENGTH as f64);
    let mut sorted = sources.to_vec();
    sorted.sort_unstable_by_key(|(source, packets)| (std::cmp::Reverse(*packets), *source));
    let packets: u64 = sources.iter().map(|(_, packets)| packets).sum();
    (report.totals.packets, report.totals.bytes, report.totals.bounds) = (packets, packets, None);
    let exact = |value| Estimate { value, lower: value, upper: value, sampled: None };
    for top in [&mut report.top, &mut report.top_by_packets] {
        top.confidence = 1.0;
        (top.flows, top.pairs, top.destinations, top.services) = Default::default();
        let rows = (1..).zip(sorted.iter().take(KNOWN)).map(|(rank, &(source, packets))| TopSource {
            rank,
            src_ip: Ipv4Addr::from(source).into(),
            packets: exact(packets),
            bytes: exact(packets),
        });
        top.sources = rows.collect();
        let most = sorted.get(KNOWN).map_or(0, |(_, packets)| *packets);
        top.unlisted = TopUnlisted { sources: Some(most), ..TopUnlisted::default() };
    }
    report
}

/// Compares the rows with the truth: whether all bounds hold, and the value and the bounds of the twentieth largest
/// source. A source without a row has the value 0, and the bounds of keys without a row.
fn judge(union: &Union, windows: &[Sources], place: (&'static str, usize, i64), tallies: &mut Tallies) -> Result<()> {
    let nth = |time: Timestamp| (time.as_second() - START) / LENGTH;
    let (first, end) = (nth(union.window.start), nth(union.window.end));
    ensure!(union.windows as i64 == end - first, "{} windows of {first} to {end}", union.windows);
    let mut truth: HashMap<u32, u64> = HashMap::new();
    for (source, packets) in windows[first as usize..end as usize].iter().flatten() {
        *truth.entry(*source).or_default() += packets;
    }
    let mut sorted: Vec<_> = truth.iter().map(|(source, packets)| (*packets, *source)).collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let mut found: HashMap<u32, Estimate> = HashMap::new();
    for TopSource { src_ip, packets, .. } in &union.top_by_packets.sources {
        if let IpAddr::V4(source) = src_ip {
            found.insert(source.to_bits(), *packets);
        }
    }
    let unlisted = union.top_by_packets.unlisted.sources.unwrap_or(u64::MAX);
    let bounds = |source: u32| found.get(&source).map_or((0, unlisted), |of| (of.lower, of.upper));
    let is_within = |(source, packets): (&u32, &u64)| (bounds(*source).0..=bounds(*source).1).contains(packets);
    let has_failed = !truth.iter().all(is_within);
    let (packets, source) = sorted[ROW - 1];
    let value = found.get(&source).map_or(0, |of| of.value);
    let (lower, upper) = bounds(source);
    let share = |of: u64| of as f64 / packets as f64;
    tallies.span(place, (share(packets.abs_diff(value)), share(upper - lower)), has_failed);
    Ok(())
}
