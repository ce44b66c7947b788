//! How close the lists of long spans are, against an oracle that remembers everything.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::testing::{Random, add, at, report_with_sketches};

/// The length of a window in seconds, and the windows of a day.
const LENGTH: i64 = 30;
const DAY: i64 = 86_400 / LENGTH;
/// The sources of a window that are not drawn anew.
const SOURCES: u64 = 150;

/// The sources of a window with their packets.
type Traffic = fn(i64, &mut Random) -> Vec<(u32, u64)>;

/// The same sources all day, the k-th with a share of 1 / k on average.
fn zipf(_: i64, random: &mut Random) -> Vec<(u32, u64)> {
    (1..=SOURCES).map(|rank| (rank as u32, (20_000 / rank) * (70 + random.below(61)) / 100 + 1)).collect()
}

/// The same, but every ten minutes half of the sources are others.
fn churn(nth: i64, random: &mut Random) -> Vec<(u32, u64)> {
    let generation = |rank: u32| if rank.is_multiple_of(2) { 0 } else { (nth as u32 / 20 + rank) * 1000 };
    zipf(nth, random).into_iter().map(|(rank, packets)| (generation(rank) + rank, packets)).collect()
}

/// The same as at first, and each hour has a flood of ten minutes, from sources that come once.
fn floods(nth: i64, random: &mut Random) -> Vec<(u32, u64)> {
    let mut all = zipf(nth, random);
    if nth % 120 < 20 {
        all.extend((0..400).map(|_| (0x8000_0000 + random.below(1 << 31) as u32, 1 + random.below(60))));
    }
    all
}

/// How many distinct sources these windows have.
fn of_span(windows: &[Vec<(u32, u64)>]) -> u64 {
    windows.iter().flatten().map(|(source, _)| source).collect::<HashSet<_>>().len() as u64
}

/// The bounds of all rows hold, and the twentieth row of the truth is close: its value to a tenth, and its bounds.
fn compare(name: &str, span: (i64, i64), union: &Union, windows: &[Vec<(u32, u64)>]) -> f64 {
    let mut truth: HashMap<u32, u64> = HashMap::new();
    for (source, packets) in windows[span.0 as usize..span.1 as usize].iter().flatten() {
        *truth.entry(*source).or_default() += packets;
    }
    let of = |ip: std::net::IpAddr| match ip {
        std::net::IpAddr::V4(ip) => truth.get(&u32::from(ip)).copied().unwrap_or(0),
        std::net::IpAddr::V6(_) => 0,
    };
    let rows = &union.top_by_packets.sources;
    for row in rows {
        let truth = of(row.src_ip);
        assert!((row.packets.lower..=row.packets.upper).contains(&truth), "{name}: {row:?} of {truth}");
    }
    let mut sorted: Vec<_> = truth.iter().map(|(source, packets)| (*packets, *source)).collect();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let (packets, source) = sorted[19];
    let row = rows.iter().find(|row| row.src_ip == std::net::IpAddr::from(std::net::Ipv4Addr::from(source)));
    let row = row.unwrap_or_else(|| panic!("{name}: the twentieth source has no row among {}", rows.len()));
    let error = packets.abs_diff(row.packets.value) as f64 / packets as f64;
    let width = (row.packets.upper - row.packets.lower) as f64 / packets as f64;
    assert!(error <= 0.1, "{name}: {row:?} of {packets}");
    assert!(rows[19].packets.value.abs_diff(of(rows[19].src_ip)) * 10 <= of(rows[19].src_ip), "{name}");
    width
}

#[test]
#[expect(clippy::print_stdout, reason = "docs/HISTORY.md says how to print the widths")]
fn the_twentieth_row_of_twenty_minutes_an_hour_and_a_day_is_within_a_tenth() {
    for (name, traffic) in [("zipf", zipf as Traffic), ("churn", churn), ("floods", floods)] {
        let (mut windows, mut random) = (Windows::new(4 << 20, Addresses::Full), Random(7));
        let mut all = Vec::new();
        for nth in 0..DAY {
            let sources = traffic(nth, &mut random);
            add(&mut windows, &report_with_sketches(nth, LENGTH, 5, &sources));
            all.push(sources);
        }
        for (length, from) in [(40, DAY - 40), (120, DAY - 120), (DAY - 20, 20), (40, DAY / 2), (40, DAY - 45)] {
            let time = Time { from: Some(at(from * LENGTH)), to: Some(at((from + length) * LENGTH)) };
            let union = windows.span(&time).unwrap();
            let begun = (union.window.start.as_second() - crate::testing::START) / LENGTH;
            let ended = (union.window.end.as_second() - crate::testing::START) / LENGTH;
            assert_eq!(union.windows as i64, ended - begun, "{name}");
            let width = compare(name, (begun, ended), &union, &all);
            println!("{name}, {length} windows: bounds of the twentieth row are {width:.3} of its value apart");
            assert!(name == "churn" || width < 0.1, "{name}, {length} windows: {width}");
            let sources = of_span(&all[begun as usize..ended as usize]);
            let count = union.unique.src_ip;
            println!("{name}, {length} windows: {sources} sources, {count:?}");
            assert!((count.lower..=count.upper).contains(&sources), "{name}, {length} windows: {count:?} of {sources}");
            // The last one begins and ends in the middle of five minutes, and sources change just there.
            let enough = if from % 10 == 0 { 50 } else { 200 };
            assert!(count.value.abs_diff(sources) * 1000 <= enough * sources, "{name}: {count:?} of {sources}");
        }
        assert!(windows.memory() <= 4 << 20);
    }
}
