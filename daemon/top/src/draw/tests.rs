//! Compares the screen with the pictures in `tests/golden/`. `UPDATE_EXPECT=1` writes the pictures anew; check them
//! then.

use expect_test::expect_file;
use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};
use serde_json::json;
use weir_schema::{
    Estimate, Fact, Gap, KEY_HISTORY_SCHEMA, KeyHistory, KeyWindow, LIVE_SCHEMA, Length, Live, NO_WINDOW, OpenWindow,
    Report, Row, Tally,
};
use weir_system::numbers::scaled;

use super::{Paint, draw};
use crate::{
    fleet::Fleet,
    history::{Line, Rate, tests::second},
    key::Key,
    list::{Amount, By, Entry, List, lists, of_union},
    past::{Look, earlier, later, tests::past},
    picture::{self, press},
    screen::{
        Screen,
        tests::{golden, screen},
    },
    source::{KeyDetails, Request, Update},
};

/// The window after that of the golden report, open for this many seconds. It has half of that report's bytes.
fn live(seconds: f64) -> Live {
    let Report { window, mut totals, mut unique, new_flows, mut top, top_by_packets, views, .. } = golden();
    for estimate in
        top.sources.iter_mut().map(|row| &mut row.bytes).chain(top.pairs.iter_mut().map(|row| &mut row.bytes))
    {
        estimate.value /= 2;
        estimate.lower /= 2;
        estimate.upper /= 2;
    }
    (top.source_prefixes, top.destination_prefixes) = Default::default();
    totals.bytes /= 2;
    let src = &mut unique.src_ip;
    for number in [&mut src.value, &mut src.lower, &mut src.upper] {
        *number -= 1000;
    }
    Live {
        schema: LIVE_SCHEMA.to_owned(),
        time: window.end + jiff::SignedDuration::from_secs_f64(seconds),
        window: OpenWindow { start: window.end, seconds },
        addresses: None,
        totals,
        unique,
        new_flows,
        top,
        top_by_packets,
        views,
        not_yet: vec!["source_prefixes".to_owned()],
    }
}

fn drawn(screen: &mut Screen, (columns, lines): (u16, u16), paint: Paint) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| {
        let area = frame.area();
        draw(screen, frame.buffer_mut(), area, paint);
    };
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

fn text(screen: &mut Screen, size: (u16, u16)) -> String {
    picture::text(&drawn(screen, size, Paint::new(false)))
}

/// A screen after two minutes, with a report of IPv4 addresses that are not masked.
fn busy() -> Screen {
    let mut screen = screen();
    for nth in 0..120_u64 {
        let bytes = 60_000_000 + (nth * 7919 % 50) * 1_000_000;
        let mut one = second(nth as i64, &[("eth0", bytes / 800, bytes), ("wan0.100", 10_000, 4_000_000)]);
        one.interfaces[1].mode = "xdp-generic".to_owned();
        one.interfaces[1].trouble = (nth > 100).then(|| "program 42 runs before weir's program".to_owned());
        one.skipped = if nth == 90 { 2 } else { 0 };
        screen.take(Update::Second(one));
    }
    screen.now = later(golden().window.end, 3);
    screen
}

#[test]
fn the_screen_is_complete_in_80_columns_and_better_in_160() {
    let mut screen = busy();
    expect_file!["../../tests/golden/sources-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    expect_file!["../../tests/golden/sources-160x50.txt"].assert_eq(&text(&mut screen, (160, 50)));
    press(&mut screen, "1");
    expect_file!["../../tests/golden/hosts-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    expect_file!["../../tests/golden/hosts-160x50.txt"].assert_eq(&text(&mut screen, (160, 50)));
    press(&mut screen, "5↓");
    expect_file!["../../tests/golden/flows-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    expect_file!["../../tests/golden/flows-160x50.txt"].assert_eq(&text(&mut screen, (160, 50)));
    press(&mut screen, "?");
    expect_file!["../../tests/golden/help-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    assert_eq!(text(&mut screen, (80, 24)), text(&mut screen, (160, 24)), "no line of the help is cut");
}

#[test]
fn the_help_scrolls_to_its_end_and_covers_no_line() {
    let mut screen = busy();
    press(&mut screen, "?");
    let whole = text(&mut screen, (80, 60));
    let whole: Vec<&str> = whole.lines().skip(1).collect();
    for word in ["unsampled", "attached", "exact", "at least", "src, dst", "new", "of all", "floods", "scans"] {
        assert!(whole.iter().any(|line| line.starts_with(&format!("  {word}"))), "{word}");
    }
    let mut fleet = Screen { fleet: Some(Fleet::default()), ..Screen::default() };
    press(&mut fleet, "?");
    for screen in [&mut screen, &mut fleet] {
        assert_eq!(text(screen, (80, 60)), text(screen, (160, 60)), "no line is cut");
    }
    let narrow = text(&mut screen, (40, 99));
    let words = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("port:443, proto:, a text") && !narrow.contains("…\n"), "{narrow}");
    let last = whole.iter().rfind(|line| line.starts_with("  ")).unwrap();
    for lines in [24, 16, 6] {
        let mut seen = Vec::new();
        for _ in 0..60 {
            let shown = text(&mut screen, (80, lines));
            let shown: Vec<&str> = shown.lines().collect();
            assert_eq!(shown[shown.len() - 1], "↑ ↓ scroll  any other key: back  q quit");
            let middle = &shown[1..shown.len() - 1];
            assert!(middle.iter().all(|line| whole.contains(line)), "{shown:?}");
            seen.extend(middle.iter().map(|line| (*line).to_owned()));
            press(&mut screen, "↓");
        }
        assert!(seen.iter().any(|line| line == last), "{last} is not in {lines} lines");
        let end = text(&mut screen, (80, lines));
        press(&mut screen, "↑");
        assert_ne!(text(&mut screen, (80, lines)), end, "the first key up scrolls");
        press(&mut screen, "x?");
    }
}

#[test]
fn the_detail_view_has_related_rows_and_the_answers_of_all_views() {
    let mut screen = busy();
    screen.can_ask = true;
    press(&mut screen, "2\n");
    let row = |view: &str, key: serde_json::Value, lower, upper| {
        let estimate = Some(Estimate { value: lower, lower, upper, sampled: None });
        let key = key.as_object().unwrap().clone();
        Row { view: Some(view.to_owned()), key, packets: estimate, bytes: estimate, ..Row::default() }
    };
    let rows = vec![row("sources", json!({"src_ip": "192.0.2.1"}), 302_000_000, 302_100_000)];
    screen.take(Update::KeyDetails(KeyDetails {
        key: "src_ip=192.0.2.1".to_owned(),
        rows: Ok(rows),
        seconds: Length::new(10.0),
    }));
    expect_file!["../../tests/golden/detail-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    // Nothing of a key is cut, and the port has a line of its own if need be.
    for columns in [40, 60, 80, 100] {
        let shown = text(&mut screen, (columns, 60));
        let (_, rows) = shown.split_once("in the lists of this window").unwrap();
        let words = rows.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("flows tcp 192.0.2.1:51000 → 198.51.100.7:443 (https)"), "{shown}");
        assert!(!rows.contains('…'), "{shown}");
    }
}

/// An hour of a source until the end of `past`: for ten minutes nothing is known, then it is not in the list, and then
/// it is, in two of three windows of the last minutes.
fn hour() -> KeyHistory {
    let to = past().union.window.end;
    let from = earlier(to, 3600);
    let window = |minute: u64| {
        let [start, end] = [minute, minute + 1].map(|at| later(from, 60 * at));
        let bytes = 60_000_000 * minute;
        let estimate = |value| Estimate { value, lower: value, upper: value + 750_000, sampled: None };
        let is_listed = minute >= 25;
        KeyWindow {
            start,
            end,
            seconds: Length::new(60.0),
            windows: 6,
            listed: if is_listed && minute >= 50 { 4 } else { 6 * u64::from(is_listed) },
            packets: is_listed.then(|| estimate(bytes / 1000)),
            bytes: is_listed.then(|| estimate(bytes)),
            at_most: Tally { packets: 90_000, bytes: if is_listed { bytes + 750_000 } else { 75_000_000 } },
        }
    };
    KeyHistory {
        schema: KEY_HISTORY_SCHEMA.to_owned(),
        key: "src_ip=192.0.2.1".to_owned(),
        view: None,
        from,
        to,
        confidence: 0.99,
        left_out: 0,
        windows: (10..60).map(window).collect(),
    }
}

/// A screen that shows a time ten minutes ago.
fn passed() -> Screen {
    let mut screen = Screen { can_ask: true, ..busy() };
    press(&mut screen, "<");
    let look = screen.awaited.unwrap();
    screen.take(Update::Past(look, Ok(Box::new(past()))));
    screen.requests.clear();
    screen
}

#[test]
fn a_time_that_has_passed_is_shown_as_such() {
    expect_file!["../../tests/golden/past-80x24.txt"].assert_eq(&text(&mut passed(), (80, 24)));
    expect_file!["../../tests/golden/past-100x30.txt"].assert_eq(&text(&mut passed(), (100, 30)));
    expect_file!["../../tests/golden/past-160x50.txt"].assert_eq(&text(&mut passed(), (160, 50)));
    let mut gap = past();
    let (start, end) = (gap.union.window.start, gap.union.window.end);
    gap.union.missing = vec![Gap { start, end }];
    gap.union.interfaces[0].trouble = None;
    let mut screen = passed();
    (screen.past, screen.now) = (Some((Look::Last(60), Box::new(gap.clone()))), later(end, 40 * 3600));
    let shown = text(&mut screen, (80, 24));
    for part in
        ["1 min to 2026-11-20 07:50:20 UTC", "40 h ago", "NOT LIVE", "NOT KNOWN 20 s", "ALERT in this time: flood"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(!shown.contains("history begins"), "{shown}");
    gap.union.missing = vec![Gap { start: earlier(start, 3580), end: start }];
    gap.history.reaches_back_to.windows = Some(start);
    for (look, now, parts) in [
        (Look::Last(3600), later(end, 9), ["20 s of 1 h to 07:50:20 UTC", "history begins 07:50:00 UTC"]),
        (Look::Last(5), later(end, 86_400), ["20 s to 2026-11-20 07:50:20 UTC", "begins 2026-11-20 07:50:00 UTC"]),
        (Look::WindowBefore(end), later(end, 9), ["07:50:00 – 07:50:20 UTC", "history begins 07:50:00 UTC"]),
    ] {
        (screen.past, screen.now) = (Some((look, Box::new(gap.clone()))), now);
        let shown = text(&mut screen, (80, 24));
        for part in parts.into_iter().chain(["coverage 98.7 %"]) {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
        assert!(!shown.contains("NOT KNOWN"), "weir did not run yet:\n{shown}");
    }
    press(&mut screen, "9");
    let shown = text(&mut screen, (80, 24));
    assert!(
        shown.contains("not kept in the history: only of the last window (End, then w)") && !shown.contains("bounds"),
        "{shown}"
    );
    press(&mut screen, "t");
    assert!(text(&mut screen, (80, 24)).contains("the last:  1 = 1m  2 = 5m  3 = 20m  4 = 1h  5 = 24h   0 = now"));
    assert!(text(&mut screen, (40, 10)).contains("1=1m 2=5m 3=20m 4=1h 5=24h  0=now"));
}

#[test]
fn a_list_says_what_its_numbers_are_of() {
    for (key, note) in [("7", "unlisted hosts"), ("8", "unlisted hosts"), ("9", "busy servers"), ("0", "busy clients")]
    {
        let mut screen = busy();
        press(&mut screen, key);
        let shown = text(&mut screen, (80, 24));
        assert!(shown.contains(note) && shown.contains(" % sure") && !shown.contains("…\n"), "{shown}");
        assert!(shown.contains("> 1 "), "the rows are below it:\n{shown}");
    }
    let mut screen = busy();
    press(&mut screen, "\n");
    assert!(text(&mut screen, (80, 40)).contains("source nets, unlisted hosts"));
}

/// A span with these sources: address, bytes at least, and how many more at most.
fn span_of(sources: &[(&str, u64, u64)]) -> Screen {
    let mut past = past();
    let rows = &mut past.union.top.sources;
    let row = rows[0];
    rows.clear();
    rows.extend((1..).zip(sources).map(|(rank, &(address, least, more))| {
        let bytes = Estimate { value: least, lower: least, upper: least + more, sampled: None };
        weir_schema::TopSource { rank, src_ip: address.parse().unwrap(), bytes, ..row }
    }));
    let mut screen = passed();
    screen.past = Some((Look::Last(1200), Box::new(past)));
    screen
}

#[test]
fn a_span_has_the_amount_beside_the_rate_and_a_bound_in_one_direction_in_80_columns() {
    let mut screen = span_of(&[
        ("10.0.0.21", 447_800_000, 33_500_000),
        ("255.255.255.255", 249_900_000, 99_975_000),
        ("10.0.0.9", 5, 0),
    ]);
    expect_file!["../../tests/golden/span-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
}

#[test]
fn a_narrow_screen_has_no_bar_and_then_no_share_but_always_the_key() {
    let mut screen = span_of(&[("198.51.100.7", 447_800_000, 33_500_000)]);
    let long = &mut span_of(&[("2001:db8::8a2e:370:7348", 447_800_000, 33_500_000)]);
    let row = |screen: &mut Screen, columns, key: &str| {
        let shown = text(screen, (columns, 14));
        shown.lines().find(|line| line.contains(key)).unwrap_or_else(|| panic!("no {key} in\n{shown}")).to_owned()
    };
    for (columns, has_bar, has_share) in [(60, true, true), (48, false, true), (40, false, false)] {
        let row = row(&mut screen, columns, "198.51.100.7");
        assert_eq!([row.contains('━'), row.contains('%')], [has_bar, has_share], "{row}");
        assert!(row.contains("179.1 Mbit/s"), "{row}");
    }
    let row = row(long, 48, "2001:db8::8a2e:370:7348");
    assert!(row.contains("179.1 Mbit/s") && !row.contains('%'), "{row}");
}

#[test]
fn now_an_amount_never_takes_the_place_of_the_bounds() {
    for columns in 60..140 {
        let shown = text(&mut busy(), (columns, 24));
        let head = shown.lines().find(|line| line.contains("by bytes")).unwrap();
        assert!(!head.contains("  bytes") || head.contains("bounds"), "{head}");
    }
}

#[test]
fn a_line_that_is_cut_says_so_and_the_last_key_quits() {
    let area = ratatui::layout::Rect::new(0, 0, 8, 2);
    let mut buffer = Buffer::empty(area);
    let mut sheet = super::Sheet::new(&mut buffer, area);
    for line in ["12345678  ", "123456789"] {
        sheet.line([super::Piece::new(line, Paint::new(false).plain())]);
    }
    assert_eq!(picture::text(&buffer), "12345678\n1234567…\n");
    for (keys, part) in [("", "?help"), ("\n", "Esc back"), (" ", "?help")] {
        let mut screen = passed();
        press(&mut screen, keys);
        let shown = text(&mut screen, (30, 24));
        let foot = shown.lines().last().unwrap();
        assert!(foot.starts_with(part) && foot.ends_with("q quit"), "{foot}");
    }
    let mut held = busy();
    press(&mut held, " ");
    assert!(text(&mut held, (80, 24)).contains("Space go on"));
}

#[test]
fn a_message_is_never_cut_and_a_span_that_follows_now_is_read_in_silence() {
    let mut screen = passed();
    press(&mut screen, "<");
    let asked = screen.awaited.unwrap();
    assert!(text(&mut screen, (80, 24)).contains("asking the history"));
    let why =
        "there is no data for this time: the history has windows from 2026-11-20T07:50:00Z to 2026-11-20T08:00:00Z";
    screen.take(Update::Past(asked, Err(why.to_owned())));
    for size in [(80, 24), (100, 30), (160, 50), (40, 10)] {
        let shown = text(&mut screen, size);
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.ends_with(why), "{shown}");
    }
    screen.past = Some((Look::Last(60), Box::new(past())));
    screen.told = None;
    screen.take(Update::Report(Box::new(golden())));
    assert_eq!(screen.awaited, Some(Look::Last(60)));
    assert!(!text(&mut screen, (80, 24)).contains("asking the history"));
}

/// At each size and in both orders: each row that is on the screen has the numbers of the union.
#[test]
fn every_number_of_a_time_that_has_passed_is_that_of_its_union() {
    let union = past().union;
    let seconds = union.window.seconds.seconds().unwrap();
    for (size, least) in [((80, 24), 5), ((100, 30), 9), ((160, 50), 9)] {
        let mut rows = 0;
        for (keys, by) in [("b", By::Bytes), ("p", By::Packets)] {
            for (nth, list) in (1..=5).zip(of_union(&union, by)) {
                let mut screen = passed();
                press(&mut screen, &format!("{keys}{nth}"));
                let shown = text(&mut screen, size);
                for entry in &list.entries {
                    let key = entry.key.show(&|address| address.to_string());
                    let Some(line) =
                        shown.lines().skip(8).find(|line| line.contains(&format!(" {} {}", entry.rank, key[0])))
                    else {
                        continue;
                    };
                    let value = entry.amount.of(by).value as f64 / seconds;
                    let number = if by == By::Bytes { scaled(value * 8.0, "bit/s") } else { scaled(value, "pkt/s") };
                    assert!(line.contains(&number), "{number} is not in {line}");
                    rows += 1;
                }
            }
        }
        assert!(rows >= least, "{rows} rows in {size:?}");
    }
    let shown = text(&mut passed(), (160, 50));
    for of in &union.interfaces {
        let line = shown.lines().find(|line| line.contains(&of.name)).unwrap();
        let [bits, packets] = [of.ledger.seen.bytes * 8, of.ledger.seen.packets].map(|sum| sum as f64 / seconds);
        assert!(line.contains(&scaled(bits, "bit/s")) && line.contains(&scaled(packets, "pkt/s")), "{line}");
    }
}

#[test]
fn the_last_hour_of_a_row_says_where_it_is_not_in_the_list() {
    let mut screen = passed();
    press(&mut screen, "\n");
    let asked = text(&mut screen, (80, 24));
    assert!(asked.contains("asking the history"), "{asked}");
    screen.take(Update::PastOfKey("src_ip=192.0.2.1".to_owned(), Ok(Box::new(hour()))));
    expect_file!["../../tests/golden/hour-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    expect_file!["../../tests/golden/hour-100x30.txt"].assert_eq(&text(&mut screen, (100, 30)));
    let shown = text(&mut screen, (160, 50));
    for part in ["no data", "not in the list then: at most 10.0 Mbit/s", "in the list in 40 of 60 windows"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    screen.take(Update::PastOfKey("src_ip=192.0.2.1".to_owned(), Err(NO_WINDOW.to_owned())));
    assert!(text(&mut screen, (80, 24)).contains(&format!("its last hour: {NO_WINDOW}")));
}

#[test]
fn an_hour_has_no_more_parts_than_windows() {
    for (windows, parts, size) in
        [(0, 1, (80, 24)), (1, 1, (80, 24)), (2, 2, (80, 24)), (5, 3, (80, 24)), (5, 5, (80, 50))]
    {
        let mut hour = hour();
        hour.windows.truncate(windows);
        if let (Some(first), Some(last)) = (hour.windows.first(), hour.windows.last()) {
            (hour.from, hour.to) = (first.start, last.end);
        }
        let mut screen = passed();
        press(&mut screen, "\n");
        screen.take(Update::PastOfKey("src_ip=192.0.2.1".to_owned(), Ok(Box::new(hour))));
        let shown = text(&mut screen, size);
        let found = shown.lines().filter(|line| line.contains(" – ")).count() - 1;
        assert_eq!(found, parts, "{windows} windows:\n{shown}");
        assert_eq!(shown.contains("no data"), windows == 0, "{shown}");
    }
}

#[test]
fn a_held_screen_says_so_also_when_the_capture_has_ended() {
    for keys in ["", "<"] {
        let mut screen = passed();
        press(&mut screen, "⇲");
        screen.take(Update::Ended("capture ended".to_owned()));
        press(&mut screen, keys);
        if !keys.is_empty() {
            screen.take(Update::Past(screen.awaited.unwrap(), Ok(Box::new(past()))));
        }
        assert!(!text(&mut screen, (80, 24)).contains("HELD"));
        press(&mut screen, " ");
        let shown = text(&mut screen, (80, 24));
        let title = shown.lines().next().unwrap();
        assert!(title.contains("HELD") && (title.contains("capture ended") || keys == "<"), "{title}");
        screen.report.as_mut().unwrap().observer.name = "router-with-a-long-name.example.net".to_owned();
        let shown = text(&mut screen, (80, 24));
        let title = shown.lines().next().unwrap();
        assert!(title.starts_with("weir top  router-with") && title.contains("HELD"), "{title}");
    }
}

#[test]
fn every_number_is_that_of_the_report() {
    let mut screen = busy();
    let shown = text(&mut screen, (160, 50));
    // 302,149,000 bytes in 10 s, and the same numbers as in the tables of the report.
    let Report { top, .. } = golden();
    let rate = scaled(top.sources[0].bytes.value as f64 * 8.0 / 10.0, "bit/s");
    for part in [
        "edge-1 at fra1",
        "08:00:00 – 08:00:10 UTC",
        "3 s ago",
        "33.1 %",
        &rate,
        "lost 280",
        "sampled 1 in 4",
        "(wan0.100)",
    ] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

#[test]
fn the_line_of_reliability_is_complete_in_80_columns() {
    let parts = [
        "kept >99.9 %",
        "lost 280",
        "BLIND 1.2 s",
        "attached 2 of 2",
        "in lists 99.9 % of packets, >99.9 % of bytes",
        "not in lists: arp 0.1 % and 2 more",
        "sampled 1 in 4",
        "coverage 98.7 % (wan0.100)",
    ];
    for size in [(80, 24), (160, 50)] {
        let shown = text(&mut busy(), size);
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(words.contains(part), "{part} is not in\n{shown}");
        }
    }
}

#[test]
fn an_interface_that_is_not_measured_has_no_rate_and_nothing_is_green() {
    for mode in ["detached", "absent", "waiting", "refused", "blind", "gone"] {
        let mut screen = Screen::default();
        let mut report = golden();
        report.alerts.clear();
        report.interfaces.truncate(1);
        for lost in report.interfaces[0].ledger.lost.values_mut() {
            *lost = Tally::default();
        }
        screen.take(Update::Report(Box::new(report)));
        // Of the second in which it was detached, a part was counted.
        let mut now = second(1, &[("eth0", 5, 500)]);
        mode.clone_into(&mut now.interfaces[0].mode);
        screen.take(Update::Second(now));
        screen.kind.clear();
        for size in [(40, 12), (80, 24), (160, 50)] {
            let shown = text(&mut screen, size);
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in ["!eth0", "not measured", "attached 0 of 1", &format!("not measured: eth0 ({mode})")] {
                assert!(words.contains(part), "{part} is not in\n{shown}");
            }
            let first = shown.lines().find(|line| line.starts_with("!eth0")).unwrap();
            assert!(!first.split("max").next().unwrap().contains("bit/s"), "{first}");
            let buffer = drawn(&mut screen, size, Paint::new(true));
            assert!(buffer.content.iter().all(|cell| cell.fg != Color::Green), "{mode}, {size:?}:\n{shown}");
        }
    }
}

#[test]
fn a_capture_that_is_not_read_says_so() {
    let mut screen = Screen::default();
    let mut report = golden();
    report.interfaces.truncate(1);
    let one = &mut report.interfaces[0];
    one.mode = "replay".to_owned();
    one.ledger.skipped = [("link_type".to_owned(), one.ledger.seen)].into();
    (one.ledger.attributed, one.ledger.sampled_out) = Default::default();
    for lost in one.ledger.lost.values_mut() {
        *lost = Tally::default();
    }
    screen.take(Update::Report(Box::new(report)));
    for size in [(40, 24), (80, 24), (160, 50)] {
        let shown = text(&mut screen, size);
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["in lists 0.0 % of packets, 0.0 % of bytes", "not in lists: link_type 100.0 %"] {
            assert!(words.contains(part), "{part} is not in\n{shown}");
        }
    }
}

#[test]
fn the_open_window_is_shown_and_named_once_it_is_a_second_old() {
    let mut screen = busy();
    // The window has just begun.
    screen.take(Update::Live(Box::new(live(0.4))));
    let before = text(&mut screen, (80, 24));
    assert!(before.contains("08:00:00 – 08:00:10 UTC  3 s ago") && before.contains("192.0.2.1 "), "{before}");
    screen.take(Update::Live(Box::new(live(3.0))));
    expect_file!["../../tests/golden/open-80x24.txt"].assert_eq(&text(&mut screen, (80, 24)));
    press(&mut screen, "7");
    let nets = text(&mut screen, (80, 24));
    assert!(nets.contains("08:00:00 – 08:00:10 UTC  3 s ago"), "these lists come with the report:\n{nets}");
    assert!(nets.contains("src 100.6 k"), "all numbers below the title are of its window:\n{nets}");
    press(&mut screen, "2w");
    let last = text(&mut screen, (80, 24));
    assert!(last.contains("08:00:00 – 08:00:10 UTC  3 s ago") && last.contains("241.7 Mbit/s"), "{last}");
    assert!(
        last.lines().next().unwrap().ends_with("3 s ago  last window"),
        "a window that has ended is not live:\n{last}"
    );
    press(&mut screen, "w");
    screen.can_ask = true;
    press(&mut screen, "\n");
    assert_eq!(screen.requests[0], Request::Key { key: "src_ip=192.0.2.1".to_owned(), is_open: true });
    let shown = text(&mut screen, (80, 40));
    let (open, last) = shown.split_once("in the lists of the last window\n").unwrap();
    let (_, open) = open.split_once("in the lists of the open window so far\n").unwrap();
    for name in ["sources", "source nets, unlisted hosts", "scans"] {
        let is_in = |part: &str| {
            let words = part.split_whitespace().collect::<Vec<_>>().join(" ");
            words.contains(&format!(" {name} 192.0.2."))
        };
        assert_eq!([is_in(open), is_in(last)], [name == "sources", name != "sources"], "{name}:\n{shown}");
    }
    press(&mut screen, "\x1b");
    screen.now = later(screen.now, 9);
    assert!(text(&mut screen, (80, 24)).contains("08:00:10 – now  so far, 3 s, 9 s ago"));
    screen.take(Update::Report(Box::new(golden())));
    assert!(!text(&mut screen, (80, 24)).contains("so far"), "the report of that window has come");
}

#[test]
fn in_the_first_window_only_the_open_window_is_shown() {
    let mut screen = Screen::default();
    screen.take(Update::Live(Box::new(live(0.4))));
    let shown = text(&mut screen, (80, 24));
    for part in ["so far, 0 s", "no report yet: what is lost", "192.0.2.1", "src 99.6 k"] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
}

/// A fleet whose numbers are those of the golden report, with a router that is late.
fn fleet(name: &str) -> Screen {
    let Report { window, .. } = golden();
    let line = |trouble: Option<&str>| {
        let mut last = second(1, &[(name, 1, 1)]).interfaces.remove(0);
        last.trouble = trouble.map(str::to_owned);
        let rate = trouble.is_none().then_some(Rate { bits: 1e6, packets: 100.0 });
        Line { last, rates: [Some(Rate { bits: 2e6, packets: 200.0 }), rate].into() }
    };
    let rename = |mut list: List| {
        list.is_floor = true;
        list.entries.push(Entry {
            is_certain: false,
            ..Entry::new(99, Key::new([("", name.to_owned())]), Amount::Count(estimate(7)))
        });
        list
    };
    let all = |by| lists(&golden(), by).into_iter().map(rename).collect();
    let mut screen = Screen { now: later(window.end, 3), kind: "live".to_owned(), can_ask: true, ..Screen::default() };
    screen.take(Update::Fleet(Box::new(Fleet {
        window: Some((window.start, window.end)),
        is_open: false,
        routers: (0..9).map(|nth| line((nth == 7).then_some(name))).collect(),
        facts: vec![Fact::judged(format!("routers {name}"), true); 7],
        note: name.to_owned(),
        troubles: vec![name.to_owned()],
        distinct: vec![("unique.src_ip".to_owned(), estimate(5)), (name.to_owned(), estimate(6))],
        by_bytes: all(By::Bytes),
        by_packets: all(By::Packets),
    })));
    screen
}

const fn estimate(value: u64) -> Estimate {
    Estimate { value, lower: value, upper: value + 1, sampled: None }
}

#[test]
fn a_fleet_has_its_routers_its_facts_and_bounds_and_says_what_it_has_not() {
    let mut screen = fleet("edge");
    let shown = text(&mut screen, (80, 24));
    for part in ["weir top  9 routers  08:00:00 – 08:00:10 UTC  3 s ago  live", "!edge", "… and 6 more", "at least"]
    {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert_eq!(shown.matches("routers edge").count(), 7, "no fact is left out:\n{shown}");
    assert!(shown.lines().nth(1).unwrap().contains("unknown"), "the router with a trouble comes first:\n{shown}");
    assert!(text(&mut screen, (160, 50)).contains("at most"));
    press(&mut screen, "9");
    assert!(text(&mut screen, (160, 50)).contains(" 99?edge"), "{}", text(&mut screen, (160, 50)));
    press(&mut screen, "w");
    assert!(text(&mut screen, (80, 24)).contains("a fleet has no open window"));
    press(&mut screen, "<");
    assert!(matches!(screen.requests[..], [Request::Past(_)]));
    // While it is held, only the newest window waits.
    press(&mut screen, " ");
    for _ in 0..3 {
        screen.take(Update::Fleet(Box::default()));
    }
    assert_eq!((screen.held.as_ref().unwrap().len(), screen.fleet.as_ref().unwrap().routers.len()), (1, 9));
}

#[test]
fn no_size_of_the_terminal_is_too_small() {
    for keys in ["", "1", "5", "9", "?", "/port:99999\n", "2\n", "t", "<"] {
        for size in [(1, 1), (2, 3), (5, 2), (20, 5), (39, 10), (80, 1), (300, 2), (80, 24), (400, 100)] {
            for mut screen in [busy(), passed(), fleet("edge")] {
                press(&mut screen, keys);
                text(&mut screen, size);
            }
            text(&mut Screen::default(), size);
        }
    }
}

#[test]
fn control_characters_in_names_never_reach_the_terminal() {
    let mut report = golden();
    let evil = "\x1b]0;evil\x07\u{202e}";
    report.observer.name = evil.to_owned();
    report.interfaces[0].name = evil.to_owned();
    report.interfaces[0].trouble = Some(evil.to_owned());
    report.alerts[0].rule = evil.to_owned();
    report.views[0].name = evil.to_owned();
    report.top.flows[0].proto = evil.to_owned().into();
    for keys in ["", "1", "5", "5\n", "0\t", "/\x1b"] {
        let mut screen = screen();
        screen.take(Update::Report(Box::new(report.clone())));
        screen.take(Update::Second(second(1, &[(evil, 1, 1)])));
        screen.take(Update::Trouble(evil.to_owned()));
        for mut screen in [screen, fleet(evil)] {
            press(&mut screen, keys);
            let shown = text(&mut screen, (160, 50));
            let obeyed = |letter: char| letter != '\n' && weir_system::text::is_obeyed(letter);
            assert!(!shown.contains(obeyed), "{shown:?}");
        }
    }
}

#[test]
fn a_screen_whose_weir_is_gone_is_not_live() {
    let mut screen = busy();
    let title = |screen: &mut Screen| text(screen, (80, 24)).lines().next().unwrap().to_owned();
    assert!(title(&mut screen).ends_with("  live"));
    screen.take(Update::Trouble("weir is not running".to_owned()));
    assert!(title(&mut screen).ends_with("  NO ANSWER"));
    screen.take(Update::Second(second(200, &[("eth0", 1, 1)])));
    assert!(title(&mut screen).ends_with("  live"));
}

#[test]
fn a_replay_that_measures_nothing_says_why() {
    let why = "README.md: not a capture: expected pcap or pcapng, but it begins with 23 20 77";
    let mut screen = Screen::default();
    screen.take(Update::Trouble(why.to_owned()));
    screen.take(Update::Ended("replay failed".to_owned()));
    let shown = text(&mut screen, (80, 24));
    assert!(shown.contains(why) && shown.contains("replay failed"), "{shown}");
    assert!(shown.contains("nothing was measured") && !shown.contains("being counted"), "{shown}");
}

#[test]
fn without_colour_nothing_is_coloured_and_nothing_is_missing() {
    let [plain, colored] = [false, true].map(|color| drawn(&mut busy(), (80, 24), Paint::new(color)));
    assert_eq!(picture::text(&plain), picture::text(&colored));
    let has_color = |buffer: &Buffer| buffer.content.iter().any(|cell| cell.fg != Color::Reset);
    assert_eq!([has_color(&plain), has_color(&colored)], [false, true]);
}
