//! The upper part of the screen: title, interfaces, reliability of the numbers, distinct and new flows, alerts.

use std::fmt::Display;

use jiff::{SignedDuration, Timestamp};
use weir_schema::{
    Alert, Distinct, Estimate, Fact, Interface, Live, NOT_MEASURED, NewFlows, NewHosts, Report, Unique, Verdict,
    is_measured,
};
use weir_system::{
    numbers::{bytes, count, percent, scaled},
    text::escaped,
};

use super::{
    paint::Paint,
    sheet::{GAP, Piece, Sheet},
    spark::spark,
};
use crate::{
    fleet::Fleet,
    history::{Line, Rate},
    list::{By, away},
    past::{self, Look, Past},
    screen::Screen,
    text::{fit, left, right, width, wrapped},
    words::{beginning, date, lasting, range, time},
};

/// The longest name of an interface, in columns.
const NAME_MAX: usize = 24;
/// The longest name of the observer and its site, in columns.
const OBSERVER_MAX: usize = 30;
/// The columns of a rate with its unit.
const RATE: usize = 12;
/// From this width, in columns, there is room for more.
const WIDE: usize = 100;
/// One line in this many, of those that are left, is for facts about reliability.
const LINES_PER_FACTS: usize = 6;
/// A report that is older than this, in seconds, is late, unless its window is as long.
const LATE: f64 = 15.0;
/// The lists of the open window come each second. If they are this old, in seconds, something is wrong.
const OLD: i64 = 4;

/// Draws the observer, the window, and its age. A long name of the observer is cut, because all else is needed.
pub fn title(screen: &Screen, sheet: &mut Sheet<'_>, paint: Paint) {
    let shown = shown(screen, paint);
    let mut pieces = vec![Piece::new("weir top", paint.strong())];
    let used: usize = pieces.iter().chain(&shown).map(|piece| width(&piece.text) + GAP).sum();
    if let Some(report) = &screen.report {
        let site = report.observer.site.as_ref().map_or_else(String::new, |site| format!(" at {site}"));
        let room = sheet.columns().saturating_sub(used).min(OBSERVER_MAX);
        let name = fit(&escaped(&format!("{}{site}", report.observer.name)), room);
        pieces.extend((!name.is_empty()).then(|| Piece::new(name, paint.strong())));
    }
    if let Some(fleet) = &screen.fleet {
        let of = if fleet.routers.len() == 1 { "router" } else { "routers" };
        pieces.push(Piece::new(format!("{} {of}", fleet.routers.len()), paint.strong()));
    }
    pieces.extend(shown);
    sheet.words(pieces);
}

/// The time that is shown, its age, and whether it goes on.
fn shown(screen: &Screen, paint: Paint) -> Vec<Piece> {
    let held = screen.held.is_some().then(|| Piece::new("HELD", paint.warning()));
    if let Some((look, past)) = &screen.past {
        return passed(*look, past, screen.now, paint).into_iter().chain(held).collect();
    }
    let mut pieces: Vec<Piece> = match (screen.open_of_list(), &screen.report) {
        (Some(live), _) => open(live, screen.now, paint).into(),
        (None, Some(report)) => closed(report, screen.now, paint).into(),
        (None, None) => screen.fleet.iter().flat_map(|fleet| of_fleet(fleet, screen.now, paint)).collect(),
    };
    let kind = match &screen.ended {
        Some(why) => Some(Piece::new(escaped(why), paint.warning())),
        None if held.is_some() => None,
        None if screen.notice.is_some() => Some(Piece::new("NO ANSWER", paint.warning())),
        // A window that has ended is not live, though the next one will take its place.
        None if screen.live.is_some() && screen.open_of_list().is_none() && screen.fleet.is_none() => {
            Some(Piece::new("last window", paint.plain()))
        }
        None => Some(Piece::new(screen.kind.clone(), paint.good())),
    };
    pieces.extend(held.into_iter().chain(kind));
    pieces
}

fn age(since: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(since).max(SignedDuration::ZERO).as_secs()
}

/// A time that has passed, and that it has. A span has the length that was asked for, also if less of it is known.
fn passed(look: Look, past: &Past, now: Timestamp, paint: Paint) -> [Piece; 3] {
    let window = past.union.window;
    let date = date(window.end, now);
    let shown = match look.length() {
        None => format!("{date}{} – {} UTC", time(window.start), time(window.end)),
        Some(asked) => {
            // Windows may be longer than the span.
            let length = past::duration(asked).max(past::length(&past.union));
            let known = past.begins_later().map(|began| lasting(window.end.duration_since(began)));
            let known = known.map_or_else(String::new, |known| format!("{known} of "));
            format!("{known}{} to {date}{} UTC", lasting(length), time(window.end))
        }
    };
    [
        Piece::new(shown, paint.strong()),
        Piece::new(ago(window.end, now), paint.plain()),
        Piece::new("NOT LIVE", paint.warning()),
    ]
}

fn ago(time: Timestamp, now: Timestamp) -> String {
    match age(time, now) {
        seconds @ 0..120 => format!("{seconds} s ago"),
        seconds @ 120..7200 => format!("{} min ago", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h ago", seconds / 3600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// The window of a report, and the time since its end.
fn closed(report: &Report, now: Timestamp, paint: Paint) -> [Piece; 2] {
    let window = format!("{} – {} UTC", time(report.window.start), time(report.window.end));
    let age = age(report.window.end, now);
    let is_late = age as f64 > LATE.max(2.0 * report.window.seconds.seconds().unwrap_or(0.0));
    let style = if is_late { paint.warning() } else { paint.plain() };
    [Piece::new(window, paint.plain()), Piece::new(format!("{age} s ago"), style)]
}

/// The window of a fleet, and the time since its end.
fn of_fleet(fleet: &Fleet, now: Timestamp, paint: Paint) -> Vec<Piece> {
    let Some((start, end)) = fleet.window else { return Vec::new() };
    let window = format!("{}{} – {} UTC", date(end, now), time(start), time(end));
    let so_far = fleet.is_open.then(|| Piece::new("so far", paint.warning()));
    [Piece::new(window, paint.plain())]
        .into_iter()
        .chain(so_far)
        .chain([Piece::new(ago(end, now), paint.plain())])
        .collect()
}

/// The open window, and how long it has been open.
fn open(live: &Live, now: Timestamp, paint: Paint) -> [Piece; 2] {
    let window = format!("{} – now", time(live.window.start));
    let (so_far, age) = (format!("so far, {:.0} s", live.window.seconds), age(live.time, now));
    let so_far = match age > OLD {
        true => Piece::new(format!("{so_far}, {age} s ago"), paint.warning()),
        false => Piece::new(so_far, paint.plain()),
    };
    [Piece::new(window, paint.plain()), so_far]
}

/// Draws a line for each interface, as many as fit.
pub fn interfaces(screen: &Screen, sheet: &mut Sheet<'_>, paint: Paint, lines: usize) {
    if let Some(past) = screen.past() {
        let all = past.lines();
        let all: Vec<_> = all.iter().map(|(line, mean)| (line, *mean)).collect();
        return rates(&all, (screen.by, "mean"), sheet, paint, lines);
    }
    if let Some(fleet) = &screen.fleet {
        return rates(&fleet.lines(lines), (screen.by, "last"), sheet, paint, lines);
    }
    let all: Vec<_> = screen.history.lines().iter().map(|line| (line, line.now())).collect();
    if all.is_empty() {
        return means(screen, sheet, paint, lines);
    }
    rates(&all, (screen.by, "now"), sheet, paint, lines);
}

/// A line for each interface with its rate now, or its mean rate.
fn rates(all: &[(&Line, Option<Rate>)], (by, when): (By, &str), sheet: &mut Sheet<'_>, paint: Paint, lines: usize) {
    let shown = if all.len() > lines { lines.saturating_sub(1) } else { all.len() };
    let name = all.iter().take(shown).map(|(line, _)| width(&line.last.name)).max().unwrap_or(0).min(NAME_MAX);
    for (line, rate) in &all[..shown] {
        interface(line, *rate, (by, name, when), sheet, paint);
    }
    if shown < all.len() {
        let rest = &all[shown..];
        let sum = rest.iter().filter_map(|(_, rate)| *rate).fold(Rate::default(), |sum, rate| Rate {
            bits: sum.bits + rate.bits,
            packets: sum.packets + rate.packets,
        });
        // A packet that passes two of them counts twice, and the sum lacks interfaces that are not measured.
        let is_known = rest.iter().all(|(line, rate)| rate.is_some() && is_measured(&line.last.mode));
        let text = format!(
            "… and {} more, added up: {}{}, {}",
            rest.len(),
            if is_known { "" } else { "at least " },
            scaled(sum.bits, "bit/s"),
            scaled(sum.packets, "pkt/s")
        );
        sheet.line([Piece::new(text, paint.faint())]);
    }
}

fn interface(
    line: &Line,
    rate: Option<Rate>,
    (by, name, when): (By, usize, &str),
    sheet: &mut Sheet<'_>,
    paint: Paint,
) {
    let is_measured = is_measured(&line.last.mode);
    let shown = |of: fn(Rate) -> f64, unit| {
        let text = match rate.filter(|_| is_measured) {
            Some(rate) => scaled(of(rate), unit),
            None if is_measured => "unknown".to_owned(),
            None => NOT_MEASURED.to_owned(),
        };
        right(&text, RATE)
    };
    let of = |rate: Rate| if by == By::Packets { rate.packets } else { rate.bits };
    let most = line.most(of);
    let is_blind = line.last.trouble.is_some() || !is_measured;
    let mark = if is_blind { "!" } else { " " };
    let name = left(&escaped(&line.last.name), name);
    let direction = left(line.last.direction.as_deref().unwrap_or(""), 7);
    let mut pieces = vec![
        Piece::new(mark, paint.alarm()),
        Piece::new(name, if is_blind { paint.alarm() } else { paint.strong() }),
        Piece::new(format!(" {direction} {when} "), paint.faint()),
        Piece::new(shown(|rate| rate.bits, "bit/s"), paint.strong()),
        Piece::new(format!("  {}  ", shown(|rate| rate.packets, "pkt/s")), paint.plain()),
    ];
    if sheet.columns() >= WIDE {
        let unit = if by == By::Packets { "pkt/s" } else { "bit/s" };
        let most = if line.rates.iter().any(Option::is_some) { scaled(most, unit) } else { "unknown".to_owned() };
        pieces.push(Piece::new(format!("max {}  ", right(&most, RATE)), paint.faint()));
    }
    let used: usize = pieces.iter().map(|piece| width(&piece.text)).sum();
    let room = sheet.columns().saturating_sub(used);
    pieces.push(Piece::new(spark(&line.within(room), of, most, room), paint.bar()));
    sheet.line(pieces);
}

/// Draws the mean rates of the window while no second is known.
fn means(screen: &Screen, sheet: &mut Sheet<'_>, paint: Paint, lines: usize) {
    let Some(report) = screen.report.as_ref() else {
        if screen.ended.is_none() {
            sheet.line([Piece::new("the first second is being counted", paint.faint())]);
        }
        return;
    };
    for Interface { name, direction, ledger, mode, .. } in report.interfaces.iter().take(lines) {
        let ([bits, packets], what) = match Rate::of(ledger.seen, report.window.seconds) {
            _ if !is_measured(mode) => ([NOT_MEASURED; 2].map(str::to_owned), "mean of the window"),
            Some(Rate { bits, packets }) => ([scaled(bits, "bit/s"), scaled(packets, "pkt/s")], "mean of the window"),
            None => ([bytes(ledger.seen.bytes), count(ledger.seen.packets)], "bytes and packets of the window"),
        };
        let text = format!(
            " {} {} {}  {}  {what}",
            left(&escaped(name), width(name).clamp(8, NAME_MAX)),
            left(direction.as_deref().unwrap_or(""), 7),
            right(&bits, RATE),
            right(&packets, RATE)
        );
        sheet.line([Piece::new(text, paint.plain())]);
    }
}

/// Draws how reliable the numbers are.
pub fn trust(screen: &Screen, sheet: &mut Sheet<'_>, paint: Paint) {
    if let Some(past) = screen.past() {
        gaps(past, screen.now, sheet, paint);
        return facts(&weir_schema::trust(&past.union.interfaces, None), sheet, paint);
    }
    if let Some(fleet) = &screen.fleet {
        all_facts(&fleet.facts, sheet, paint);
        return sheet.line([Piece::new(escaped(&fleet.note), paint.faint())]);
    }
    let Some(report) = screen.report.as_ref() else {
        let text = match (&screen.ended, &screen.live) {
            (Some(_), _) => "nothing was measured",
            (None, None) => "no report yet: lists come when the first window ends",
            (None, Some(_)) => "no report yet: what is lost is known when the first window ends",
        };
        return sheet.line([Piece::new(text, paint.warning())]);
    };
    facts(&weir_schema::trust(&report.interfaces, screen.second.as_ref()), sheet, paint);
}

/// Draws how reliable the numbers are. Where there is little room, only problems stay.
fn facts(all: &[Fact], sheet: &mut Sheet<'_>, paint: Paint) {
    let most = (sheet.left() / LINES_PER_FACTS).max(1);
    let mut shown: Vec<&Fact> = all.iter().collect();
    while lines_of(&shown, sheet.columns()) > most
        && let Some(last) = shown.iter().rposition(|fact| fact.verdict != Verdict::Bad)
    {
        shown.remove(last);
    }
    all_facts(shown, sheet, paint);
}

/// How many lines these facts need.
fn lines_of(facts: &[&Fact], columns: usize) -> usize {
    let (mut lines, mut used) = (1, 0);
    for fact in facts {
        let own = width(&fact.text);
        if used > 0 && used + own > columns {
            (lines, used) = (lines + 1, 0);
        }
        lines += own.saturating_sub(1) / columns.max(1);
        used += own + GAP;
    }
    lines
}

/// Draws facts, in as many lines as they need.
fn all_facts<'f>(facts: impl IntoIterator<Item = &'f Fact>, sheet: &mut Sheet<'_>, paint: Paint) {
    let columns = sheet.columns();
    sheet.wrap(facts.into_iter().flat_map(|Fact { text, verdict }| {
        let style = match verdict {
            Verdict::Good => paint.good(),
            Verdict::Neutral => paint.plain(),
            Verdict::Bad => paint.warning(),
        };
        wrapped(&escaped(text), columns).into_iter().map(move |part| Piece::new(part, style))
    }));
}

/// Draws how much of a time is not known, and when the history began, if that is a part of the time.
fn gaps(past: &Past, now: Timestamp, sheet: &mut Sheet<'_>, paint: Paint) {
    let (missing, mut pieces) = (past.missing(), Vec::new());
    if missing.is_positive() {
        pieces.push(Piece::new(format!("NOT KNOWN {}", lasting(missing)), paint.alarm()));
    }
    if let Some(began) = past.begins_later() {
        pieces.push(Piece::new(beginning(began, now), paint.warning()));
    }
    if !pieces.is_empty() {
        sheet.words(pieces);
    }
}

/// All reasons why weir does not see all packets.
pub fn troubles(screen: &Screen) -> Vec<String> {
    let mut all: Vec<String> = screen.notice.iter().cloned().collect();
    if let Some(past) = screen.past() {
        let of = past.union.interfaces.iter();
        all.extend(of.filter_map(|of| Some(format!("{}: {}", of.name, of.trouble.as_ref()?))));
        return all;
    }
    if let Some(fleet) = &screen.fleet {
        all.extend(fleet.all_troubles());
    }
    if let Some(second) = &screen.second {
        all.extend(second.troubles.iter().cloned());
        let of = second.interfaces.iter().filter_map(|of| Some(format!("{}: {}", of.name, of.trouble.as_ref()?)));
        all.extend(of);
    }
    if all.is_empty() {
        let of = screen.report.as_ref().into_iter().flat_map(|report| &report.interfaces);
        all.extend(of.filter_map(|of| Some(format!("{}: {}", of.name, of.trouble.as_ref()?))));
    }
    all
}

/// Draws the first trouble, and how many more there are.
pub fn trouble(all: &[String], sheet: &mut Sheet<'_>, paint: Paint) {
    let Some(first) = all.first() else { return };
    let more = if all.len() > 1 { format!(" (and {} more)", all.len() - 1) } else { String::new() };
    let room = sheet.columns().saturating_sub(width(&more));
    sheet.line([Piece::new(fit(&escaped(first), room) + &more, paint.alarm())]);
}

/// Draws distinct addresses and flows, and new flows.
pub fn distinct(unique: &Unique, new: &NewFlows, sheet: &mut Sheet<'_>, paint: Paint) {
    let is_wide = sheet.columns() >= WIDE;
    let names =
        if is_wide { ["sources", "destinations", "flows", "new flows"] } else { ["src", "dst", "flows", "new"] };
    let of = |Distinct { value, lower, upper, .. }: Distinct| [value, lower, upper];
    let numbers = [of(unique.src_ip), of(unique.dst_ip), of(unique.flows), [new.value, new.lower, new.upper]];
    counts(names.into_iter().zip(numbers), sheet, paint);
}

/// Draws the hosts of the last report that were not seen for a long time, if weir knows hosts for long enough.
pub fn new_hosts(of: &NewHosts, sheet: &mut Sheet<'_>, paint: Paint) {
    let NewHosts { value, lower, upper, learning, hosts, .. } = of;
    if *learning || *value == 0 {
        return;
    }
    let number = if lower == upper { count(*value) } else { format!("{} to {}", count(*lower), count(*upper)) };
    let addresses: Vec<_> = hosts.iter().map(|host| host.src_ip.to_string()).collect();
    let line = format!("new hosts {number}: {}", addresses.join(", "));
    sheet.line([Piece::new(fit(&line, sheet.columns()), paint.strong())]);
}

/// Draws the distinct counts of a fleet.
pub fn distinct_of_fleet(fleet: &Fleet, sheet: &mut Sheet<'_>, paint: Paint) {
    let is_wide = sheet.columns() >= WIDE;
    let name = |name: &str| match (name.strip_prefix("unique."), is_wide) {
        (Some("src_ip"), true) => "sources".to_owned(),
        (Some("dst_ip"), true) => "destinations".to_owned(),
        (Some("src_ip"), false) => "src".to_owned(),
        (Some("dst_ip"), false) => "dst".to_owned(),
        (Some(other), _) => escaped(other),
        (None, _) => escaped(name),
    };
    if !fleet.distinct.is_empty() {
        counts(fleet.distinct.iter().map(|(of, count)| (name(of), numbers(count))), sheet, paint);
    }
}

fn numbers(of: &Estimate) -> [u64; 3] {
    [of.value, of.lower, of.upper]
}

/// A line of numbers with their bounds.
fn counts<N: Display>(all: impl IntoIterator<Item = (N, [u64; 3])>, sheet: &mut Sheet<'_>, paint: Paint) {
    let mut pieces = Vec::new();
    if sheet.columns() >= WIDE {
        pieces.push(Piece::new("distinct", paint.faint()));
    }
    for (name, [value, lower, upper]) in all {
        // Of several windows together: as many as in any one of them, or as many as all of them have.
        let estimate = Estimate { value, lower, upper, sampled: None };
        let number = match upper - upper.min(value) > value {
            true => range(&estimate, count),
            false => {
                let of_value = |off: u64| percent(off as f64 / value.max(1) as f64);
                format!("{} {}", count(value), away(&estimate, of_value))
            }
        };
        pieces.push(Piece::new(format!("{name} {number}"), paint.plain()));
    }
    sheet.words(pieces);
}

/// Which alerts were firing in a time that has passed.
pub fn past_alerts(past: &Past, sheet: &mut Sheet<'_>, paint: Paint) {
    let all = past.alerts();
    if !all.is_empty() {
        sheet.line([Piece::new(format!("ALERT in this time: {}", escaped(&all.join(", "))), paint.alarm())]);
    }
}

/// Draws an alert with the number that raised it.
pub fn alert(alert: &Alert, sheet: &mut Sheet<'_>, paint: Paint) {
    let Alert { rule, when, state, evidence, unit, .. } = alert;
    let style = if state == "firing" { paint.alarm() } else { paint.warning() };
    let number = evidence.first().map_or_else(String::new, |first| {
        let key: Vec<_> =
            first.key.values().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
        let unit = unit.as_ref().map_or_else(String::new, |unit| format!(" {unit}"));
        format!(": {} {}{unit}", key.join(" "), first.value)
    });
    let mark = if state == "firing" { "ALERT" } else { "alert" };
    sheet.line([
        Piece::new(format!("{mark} {} {state}", escaped(rule)), style),
        Piece::new(escaped(&number), paint.strong()),
        Piece::new(format!("  {}", escaped(when)), paint.faint()),
    ]);
}
