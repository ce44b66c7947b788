//! Whatever windows are kept and dropped, an answer counts each window once, says what is missing, and has true bounds.

use std::collections::HashMap;

use super::*;
use crate::reach::{WORST_BYTES, WORST_BYTES_OF_UNION};
use crate::testing::{Random, add, at, flooded, report, report_of, report_with_sketches, usual, worst};

const MIB: u64 = 1 << 20;

fn between(from: i64, to: i64) -> Time {
    Time { from: Some(at(from)), to: Some(at(to)) }
}

fn numbers(union: &Union) -> (u64, u64, f64) {
    (union.windows, union.totals.packets, union.window.seconds.seconds().unwrap_or(0.0).round())
}

#[test]
fn a_span_has_the_windows_that_it_touches_and_says_what_is_missing() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    assert_eq!((windows.span(&Time::default()), windows.oldest()), (None, None));
    for nth in 0..100 {
        if nth != 70 {
            add(&mut windows, &report(nth, &[(1, 10), (2, nth as u64)]));
        }
    }
    let sum = |range: Range<u64>| range.filter(|nth| *nth != 70).map(|nth| 10 + nth).sum::<u64>();
    for (from, to, expected) in
        [(0, 1000, 0..100), (5, 11, 0..2), (10, 20, 1..2), (695, 715, 69..72), (299, 301, 29..31)]
    {
        let union = windows.span(&between(from, to)).unwrap();
        let count = expected.clone().filter(|nth| *nth != 70).count() as u64;
        assert_eq!(numbers(&union), (count, sum(expected), 10.0 * count as f64), "{from} to {to}");
        let missing = if (from..to).contains(&705) { vec![Gap { start: at(700), end: at(710) }] } else { vec![] };
        assert_eq!(union.missing, missing, "{from} to {to}");
    }
    for (last, count) in [(1, 1), (7, 7), (99, 99), (500, 99)] {
        assert_eq!(windows.span(&windows.last(last, None).unwrap()).unwrap().windows, count);
    }
    let early = windows.span(&between(-100, 5)).unwrap();
    assert_eq!(early.missing, [Gap { start: at(-100), end: at(0) }]);
    assert_eq!(windows.span(&between(1000, 2000)), None);
    assert_eq!(windows.span(&between(701, 709)), None);
    let open_window = windows.span(&between(900, 1007)).unwrap();
    assert_eq!(open_window.missing, [], "the window that is open now is not missing");
    assert_eq!(windows.index(&Time::default()).len(), 99);
}

#[test]
fn windows_are_stepped_over_one_by_one_in_both_directions() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    for nth in (0..100).filter(|nth| !(40..50).contains(nth)) {
        add(&mut windows, &report(nth, &[(1, nth as u64)]));
    }
    let (mut time, mut back) = (windows.last(1, None), Vec::new());
    while let Some(Time { from, to }) = time {
        back.push(windows.span(&Time { from, to }).unwrap().window);
        time = windows.last(1, from);
    }
    let (mut time, mut forth) = (windows.first(1, None), Vec::new());
    while let Some(Time { from, to }) = time {
        forth.push(windows.span(&Time { from, to }).unwrap().window);
        time = windows.first(1, to);
    }
    back.reverse();
    assert_eq!((back.len(), back == forth), (90, true), "each once, also where some are missing");
    assert_eq!(windows.first(7, Some(at(995))), None);
    assert_eq!(windows.last(2, Some(at(9))), None);
    assert_eq!(windows.last(3, Some(at(705))), Some(between(670, 700)), "those that have ended by then");
    assert_eq!(windows.first(3, Some(at(705))), Some(between(710, 740)), "those that begin later");
}

#[test]
fn the_union_of_a_few_windows_equals_that_of_their_reports() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    let mut random = Random(3);
    let reports: Vec<_> = (0..5).map(|nth| usual(nth, &mut random)).collect();
    for report in &reports {
        add(&mut windows, report);
    }
    let (known, together) = (windows.span(&Time::default()).unwrap(), Union::of(&reports).unwrap());
    assert_eq!(
        (&known.totals, &known.unique, &known.new_flows),
        (&together.totals, &together.unique, &together.new_flows)
    );
    assert_eq!(known.top.sources, together.top.sources);
    assert_eq!((known.reports, known.window.start), (together.reports, together.window.start));
    for (known, interface) in known.interfaces.iter().zip(&together.interfaces) {
        assert_eq!((&known.ledger, &known.tcp, known.kept), (&interface.ledger, &interface.tcp, interface.kept));
    }
}

#[test]
fn a_time_that_has_passed_has_the_same_answer_however_many_windows_follow() {
    let (mut windows, mut random, mut told) = (Windows::new(MIB, Addresses::Full), Random(9), Vec::new());
    for nth in 0..200 {
        add(&mut windows, &usual(nth, &mut random));
        if nth >= 8 {
            told.push(windows.span(&between(20, 60)).unwrap());
        }
    }
    assert_eq!((told[0].windows, told[0].unique.src_ip.upper), (4, 4 * 1016), "as close as in the reports");
    assert!(told.iter().all(|one| *one == told[0]), "{:?}", told.iter().find(|one| **one != told[0]));
}

/// A day of 8,640 windows, calm or flooded: memory stays within the plan, all sums in reach are exact, and every bound
/// holds.
#[test]
fn a_day_fits_the_planned_memory_and_its_bounds_hold() {
    type Make = fn(i64, &mut Random) -> Report;
    for (name, memory, make) in
        [("calm", 4 * MIB, usual as Make), ("flooded", 4 * MIB, flooded), ("small", MIB / 2, usual)]
    {
        let (mut windows, mut random) = (Windows::new(memory, Addresses::Full), Random(9));
        let (mut of_source, mut totals) = (HashMap::<_, Vec<(i64, u64)>>::new(), Vec::new());
        for nth in 0..8640 {
            let report = make(nth, &mut random);
            totals.push(report.totals.packets);
            for row in report.top.sources.iter().filter(|_| nth % 7 == 0) {
                of_source.entry(row.src_ip).or_default().push((nth, row.packets.value));
            }
            add(&mut windows, &report);
            let bytes = windows.memory();
            assert!(bytes <= memory, "{name}: {bytes} bytes after {nth} windows");
            assert!(windows.single.open().bytes() <= OPEN_MAX);
        }
        let first = (windows.oldest().unwrap().as_second() - crate::testing::START) / 10;
        for (from, to) in [(first, 8640), (8640 - 300, 8640), (8640 - 2000, 8640 - 100), (8200, 8201)] {
            let union = windows.span(&between(from * 10, to * 10)).unwrap();
            assert_eq!(union.missing, [], "{name}");
            let begun = (union.window.start.as_second() - crate::testing::START) / 10;
            let ended = (union.window.end.as_second() - crate::testing::START) / 10;
            // Older windows are kept five minutes at a time. An answer has the whole five minutes: 30 windows.
            assert!(
                (from - 30..=from).contains(&begun) && (to..to + 30).contains(&ended),
                "{name}: {begun} to {ended}"
            );
            let range = begun as usize..ended as usize;
            assert_eq!(union.windows, range.len() as u64, "{name}");
            assert_eq!(union.totals.packets, totals[range.clone()].iter().sum::<u64>(), "{name}: {from} to {to}");
            assert!(union.unique.src_ip.confidence > 0.998, "{name}: {:?}", union.unique);
            for row in &union.top.sources {
                // This test remembers a seventh of the windows, so this number is at most the true one.
                let known = of_source.get(&row.src_ip).map_or(0, |known| {
                    known.iter().filter(|(nth, _)| range.contains(&(*nth as usize))).map(|(_, packets)| packets).sum()
                });
                assert!(known <= row.packets.upper && row.packets.lower <= row.packets.upper, "{name}: {row:?}");
            }
        }
        let index = windows.index(&Time::default());
        assert!(index.windows(2).all(|pair| pair[0].end == pair[1].start), "{name}: each window is counted once");
        assert_eq!(index.iter().map(|past| past.windows).sum::<u64>(), 8640 - first as u64);
    }
}

/// With windows of a second, five minutes are many blocks, and the oldest blocks are dropped one by one. Still no
/// window is counted twice, and none is missing. With windows of an hour, each window is a block.
#[test]
fn windows_of_every_length_are_counted_once() {
    for (length, count) in [(1, 4000_i64), (7, 2000), (60, 1000), (3600, 300)] {
        let mut windows = Windows::new(MIB / 4, Addresses::Full);
        for nth in 0..count {
            let sources: Vec<_> = (0..12).map(|key| (key * 7 + nth as u32, u64::from(key) + 1)).collect();
            add(&mut windows, &report_of(nth, length, &sources));
            if nth % 97 == 0 {
                let index = windows.index(&Time::default());
                assert!(index.windows(2).all(|pair| pair[0].end == pair[1].start), "{length} s, after {nth}");
                let first = index[0].start.as_second() - crate::testing::START;
                assert_eq!(index.iter().map(|past| past.windows as i64).sum::<i64>(), nth + 1 - first / length);
                let union = windows.span(&Time::default()).unwrap();
                assert_eq!((union.windows as i64, union.missing), (nth + 1 - first / length, vec![]), "{length} s");
            }
        }
        assert!(windows.single.first() > 0, "{length} s: nothing was dropped");
    }
}

/// The sizes of windows and of unions, usual and in the worst case.
#[test]
#[expect(clippy::print_stdout, reason = "docs/HISTORY.md says how to print the sizes")]
fn windows_take_no_more_than_planned() {
    type Make = fn(i64, &mut Random) -> Report;
    for (name, make, limits) in [
        ("worst", worst as Make, [WORST_BYTES, WORST_BYTES_OF_UNION, WORST_BYTES_OF_UNION]),
        ("usual", usual, [3000, 6000, 6000]),
    ] {
        let (mut windows, mut random) = (Windows::new(256 * MIB, Addresses::Full), Random(5));
        for nth in 0..720 {
            add(&mut windows, &make(nth, &mut random));
        }
        let rings = [&windows.single, &windows.fives.ring, &windows.hours.ring];
        for ((ring, what), limit) in rings.into_iter().zip(["window", "five minutes", "hour"]).zip(limits) {
            let blocks: Vec<_> = ring.in_memory(0..u64::MAX, &Time::default()).collect();
            let kept: usize = blocks.iter().map(|block| block.entries).sum();
            let bytes = blocks.iter().map(Block::bytes).sum::<usize>() / kept;
            println!("{name}: {bytes} bytes a {what}");
            assert!(bytes as u64 <= limit, "{name}: {bytes} bytes a {what}");
        }
    }
}

#[test]
fn setting_the_clock_loses_no_window() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    for nth in [0, 1, 2, 1, 2, 3, 400, 401, 50] {
        add(&mut windows, &report(nth, &[(1, 1)]));
    }
    assert_eq!(windows.index(&Time::default()).len(), 9);
    assert_eq!(numbers(&windows.span(&Time::default()).unwrap()).1, 9);
    assert_eq!(numbers(&windows.span(&between(10, 30)).unwrap()).1, 4, "two windows, each measured twice");
}

/// A stricter configuration also applies to older windows.
#[test]
fn addresses_that_may_no_longer_be_shown_are_masked() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    for nth in 0..90 {
        let mut report = report(nth, &[(1, 1)]);
        report.addresses = match nth {
            0..30 => None,
            30..60 => Some("prefix".to_owned()),
            60..75 => Some("none".to_owned()),
            // An unknown name: it may show nothing.
            _ => Some("of a later weir".to_owned()),
        };
        add(&mut windows, &report);
    }
    for (addresses, count) in [(Addresses::Full, 90), (Addresses::Prefix, 60), (Addresses::None, 30)] {
        windows.mask(addresses);
        assert_eq!(windows.span(&Time::default()).unwrap().windows, count, "{addresses:?}");
    }
}

/// Wherever the clock was set to, a span has all windows that touch its time, and the rest of that time is missing.
#[test]
fn a_span_has_all_its_windows_wherever_the_clock_was_set() {
    let mut random = Random(21);
    for _ in 0..25 {
        let (mut windows, mut nth) = (Windows::new(4 * MIB, Addresses::Full), 200);
        let mut known = Vec::new();
        for _ in 0..1 + random.below(120) {
            add(&mut windows, &report(nth, &[(1, nth as u64)]));
            known.push(nth);
            nth += match random.below(12) {
                0 => -(random.below(100) as i64),
                1 => random.below(60) as i64,
                _ => 1,
            };
            nth = nth.max(0);
        }
        let times = |nth: &i64| (nth * 10, nth * 10 + 10);
        let latest = known.iter().map(times).map(|(_, end)| end).max().unwrap();
        assert_eq!(windows.newest(), Some(at(latest)));
        assert_eq!(windows.oldest(), known.iter().map(|nth| at(nth * 10)).min());
        for _ in 0..12 {
            let from = 10 * random.below(300) as i64;
            let to = from + 10 + 10 * random.below(200) as i64;
            let touched: Vec<i64> =
                known.iter().copied().filter(|nth| times(nth).0 < to && from < times(nth).1).collect();
            let Some(union) = windows.span(&between(from, to)) else {
                assert_eq!(touched, [0; 0], "{from} to {to}");
                continue;
            };
            let packets = touched.iter().map(|nth| *nth as u64).sum();
            assert_eq!(numbers(&union), (touched.len() as u64, packets, 10.0 * touched.len() as f64));
            assert_eq!(Some(union.window.start), touched.iter().map(|nth| at(nth * 10)).min());
            assert_eq!(Some(union.window.end), touched.iter().map(|nth| at(nth * 10 + 10)).max());
            for second in (from..to.min(latest)).step_by(10) {
                let is_known = touched.iter().any(|nth| (times(nth).0..times(nth).1).contains(&second));
                let is_missing = union.missing.iter().any(|gap| (gap.start..gap.end).contains(&at(second)));
                assert!(is_known != is_missing || union.missing.len() == GAPS_MAX, "{second} of {from} to {to}");
            }
        }
        let last = windows.span(&windows.last(3, None).unwrap()).unwrap();
        assert!(last.windows >= known.len().min(3) as u64, "the last windows are among them");
    }
}

/// An answer names an outage of two minutes even where the windows around it are kept five minutes at a time.
#[test]
fn what_is_missing_within_five_minutes_is_said() {
    let mut windows = Windows::new(MIB / 16, Addresses::Full);
    let mut random = Random(3);
    for nth in (0..400).filter(|nth| !(67..79).contains(nth)) {
        add(&mut windows, &usual(nth, &mut random));
    }
    assert!(windows.single().first() > 100, "these windows are kept five minutes at a time");
    let union = windows.span(&between(600, 1200)).unwrap();
    assert_eq!(union.missing, [Gap { start: at(670), end: at(790) }]);
    assert_eq!(union.windows, 48);
    let past = windows.index(&between(600, 900))[0].clone();
    assert_eq!((past.windows, past.seconds.map(f64::round)), (18, Some(180.0)));
}

#[test]
fn a_span_says_which_alerts_were_firing_and_which_views_changed() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    let texts = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let view = |question: &str| weir_schema::View {
        question: Some(question.to_owned()),
        ..report(0, &[]).views.iter().find(|view| view.name == "web_by_server").unwrap().clone()
    };
    for nth in 0..100 {
        let mut report = report(nth, &[(1, 10)]);
        let alert = report.alerts[0].clone();
        report.alerts = [(20, "flood", "firing"), (60, "scan", "clearing"), (80, "loss", "pending")]
            .into_iter()
            .filter(|(from, ..)| (*from..from + 5).contains(&nth))
            .map(|(_, rule, state)| weir_schema::Alert {
                rule: rule.to_owned(),
                state: state.to_owned(),
                ..alert.clone()
            })
            .collect();
        report.views = vec![view(if nth < 50 { "aa" } else { "bb" })];
        if nth < 10 {
            report.views.push(weir_schema::View { name: "early".to_owned(), ..view("cc") });
        }
        add(&mut windows, &report);
    }
    for (from, to, fired, views, left_out, changed) in [
        (0, 1000, &["flood", "scan"][..], 0, &["web_by_server", "early"][..], &["web_by_server"][..]),
        (0, 100, &[], 2, &[], &[]),
        (50, 210, &["flood"], 1, &["early"], &[]),
        (620, 1000, &["scan"], 1, &[], &[]),
    ] {
        let union = windows.span(&between(from, to)).unwrap();
        let others = union.left_out.iter().filter(|name| !name.ends_with("_prefixes")).cloned();
        assert_eq!((&union.fired[..], union.views.len()), (&texts(fired)[..], views));
        assert_eq!((others.collect(), union.changed), (texts(left_out), texts(changed)));
    }
}

/// In each window ten sources that never come again.
fn ten_sources(nth: i64) -> Report {
    let sources: Vec<_> = (1..=10).map(|one| ((nth * 10 + one) as u32, 5)).collect();
    report_with_sketches(nth, 10, 5, &sources)
}

#[test]
fn windows_before_a_restart_count_without_their_sketches() {
    let mut before = Windows::new(MIB, Addresses::Full);
    for nth in 0..15 {
        add(&mut before, &ten_sources(nth));
    }
    let mut windows = Windows::new(MIB, Addresses::Full);
    windows.resume_open(&before.single.open().pack().unwrap());
    for nth in 15..90 {
        add(&mut windows, &ten_sources(nth));
    }
    let count = windows.span(&between(0, 900)).unwrap().unique.src_ip;
    assert!((count.lower..=count.upper).contains(&900), "{count:?}");
    assert!(count.lower > 500 && count.upper < 1100, "two of three unions have sketches: {count:?}");
    let later = windows.span(&between(300, 900)).unwrap().unique.src_ip;
    assert!((later.lower..=later.upper).contains(&600) && later.value.abs_diff(600) < 40, "{later:?}");
}

#[test]
fn sources_of_the_open_five_minutes_are_counted_together_too() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    for nth in 0..47 {
        let sources: Vec<_> = (1..=70).map(|source| (source, 5)).collect();
        add(&mut windows, &report_with_sketches(nth, 10, 5, &sources));
    }
    for (from, to) in [(0, 470), (300, 470), (100, 470)] {
        let count = windows.span(&between(from, to)).unwrap().unique.src_ip;
        assert!((60..=70).contains(&count.lower) && (70..=80).contains(&count.upper), "{from} to {to}: {count:?}");
        assert!((66..=74).contains(&count.value), "{from} to {to}: {count:?}");
    }
    // What is within five minutes has the counts of its windows, which stay the same when more come.
    let few = windows.span(&between(400, 450)).unwrap().unique;
    assert_eq!((few.src_ip.lower >= 69, few.src_ip.upper >= 5 * 70), (true, true), "{few:?}");
    add(&mut windows, &report_with_sketches(47, 10, 5, &[(9999, 5)]));
    assert_eq!(windows.span(&between(400, 450)).unwrap().unique, few);
}

#[test]
fn beyond_midnight_the_bounds_are_those_of_both_days() {
    let mut windows = Windows::new(MIB, Addresses::Full);
    let sources: Vec<_> = (1..=70).map(|source| (source, 5)).collect();
    for nth in 0..60 {
        add(&mut windows, &report_with_sketches(nth, 10, if nth < 30 { 5 } else { 6 }, &sources));
    }
    let count = windows.span(&between(0, 600)).unwrap().unique.src_ip;
    assert!(count.lower <= 70 && count.value <= 80 && (130..160).contains(&count.upper), "{count:?}");
}
