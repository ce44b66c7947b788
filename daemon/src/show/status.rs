//! `weir status`: what the running weir is doing now. It is available from the first second, long before the first
//! report.

use std::{
    io::{self, Write},
    path::Path,
};

use jiff::Timestamp;
use weir_config::interface::NO_ROUTE;
use weir_deliver::status::{Identity, InterfaceStatus, LastReport, Status};
use weir_schema::{
    InterfaceSecond, Length, Live, NOT_MEASURED, Report, Second, SinkMetrics, Style, Top, Totals,
    grid::{
        self,
        Align::{Left, Right},
        Cell, Grid,
        Tone::{Alarm, Faint, Plain, Strong},
    },
    is_measured, write_talkers,
};
use weir_system::{
    clock,
    numbers::{self, bit_rate, grouped, packet_rate, percent, short_time},
    screen::{self, Screen},
};

use super::{ShowError, style, tables, understood};
use crate::control::{client, protocol::Command};

/// Shows the status of the weir with this control socket.
///
/// # Errors
///
/// It does not answer.
pub fn show(socket: &Path, json: bool) -> Result<(), ShowError> {
    let answer = client::ask(socket, Command::Status)?;
    if json {
        return Ok(writeln!(Screen::stdout(screen::Form::Json), "{}", answer.get())?);
    }
    let mut out = tables();
    let status: Status = understood(&answer)?;
    let shown = Shown { status: &status, now: clock::now().wall, style: style() };
    shown.head(&mut out)?;
    // The rates need a second. Show the rest meanwhile.
    out.flush()?;
    shown.interfaces(second(socket).as_ref(), &mut out)?;
    if let Some(talkers) = Talkers::ask(socket) {
        shown.talkers(&talkers, &mut out)?;
    }
    writeln!(out)?;
    Ok(shown.costs(&mut out)?)
}

/// The message of the next second, if it is available.
fn second(socket: &Path) -> Option<Second> {
    let mut next = None;
    let subscribed = client::subscribe(socket, &mut |second| {
        next = Some(second);
        false
    });
    subscribed.ok().and(next)
}

/// The largest sources and destinations.
struct Talkers {
    /// The window in words.
    when: String,
    top: Top,
    totals: Totals,
    seconds: Length,
}

impl Talkers {
    /// Those of the open window so far. If that is empty or not available, those of the last report.
    fn ask(socket: &Path) -> Option<Self> {
        Self::so_far(socket).or_else(|| Self::reported(socket))
    }

    fn so_far(socket: &Path) -> Option<Self> {
        let answer = client::ask(socket, Command::Live { list: None }).ok()?;
        let Live { top, totals, window, .. } = understood(&answer).ok()?;
        let when = format!("in the open window, {:.1} s so far", window.seconds);
        (totals.packets > 0).then_some(Self { when, top, totals, seconds: Length::new(window.seconds) })
    }

    fn reported(socket: &Path) -> Option<Self> {
        let answer = client::ask(socket, Command::Report { last: None }).ok()?;
        let Report { top, totals, window, .. } = understood(&answer).ok()?;
        let when = match window.seconds.seconds() {
            Some(seconds) => format!("in the last window, {seconds:.0} s"),
            None => "in the last window, which is too short for rates".to_owned(),
        };
        Some(Self { when, top, totals, seconds: window.seconds })
    }
}

struct Shown<'a> {
    status: &'a Status,
    now: Timestamp,
    style: Style,
}

impl Shown<'_> {
    fn line(&self, cells: &[Cell], out: &mut impl Write) -> io::Result<()> {
        for line in grid::heading(cells, self.style.width, self.style.color) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    /// Prints the version and process of weir, its troubles, and when reports come.
    fn head(&self, out: &mut impl Write) -> io::Result<()> {
        let Status { identity, last_report, next_report, troubles } = self.status;
        let Identity { version, pid, started, interval_seconds, .. } = identity;
        let age = numbers::time(self.now.duration_since(*started));
        let name = Cell::new(format!("weir {version}"), Strong);
        self.line(&[name, Cell::from(format!("process {pid}, runs for {age}"))], out)?;
        for trouble in troubles {
            self.line(&[Cell::new(format!("TROUBLE {trouble}"), Alarm)], out)?;
        }
        let next = next_report.map_or_else(
            || format!("every {interval_seconds} s"),
            |next| {
                let left = next.duration_since(self.now).as_secs_f64().max(0.0).ceil();
                format!("at {} UTC, in {left} s", next.strftime("%H:%M:%S"))
            },
        );
        let text = match last_report {
            None => format!("first report {next}"),
            Some(LastReport { id, end, .. }) => {
                format!("last report {id}, {} ago; next {next}", numbers::time(self.now.duration_since(*end)))
            }
        };
        self.line(&[Cell::from(text)], out)
    }

    /// Prints the traffic of each interface now and in the last window.
    fn interfaces(&self, second: Option<&Second>, out: &mut impl Write) -> io::Result<()> {
        let last = self.status.last_report.as_ref();
        let mut grid = Grid::new([Left, Left, Left, Right, Right, Right, Right, Left]);
        let last_caption = match last {
            Some(last) => {
                last.seconds.seconds().map_or_else(|| "last".to_owned(), |seconds| format!("in {seconds:.0} s"))
            }
            None => String::new(),
        };
        let captions = ["", "", "", "now", "", &last_caption, "", ""].map(str::to_owned);
        grid.row(captions.map(|caption| Cell::new(caption, Faint)));
        for line in lines(second, last) {
            let now = second.map_or(1.0, |second| second.seconds);
            line.add_to(&mut grid, Length::new(now), last.map_or_else(Length::default, |last| last.seconds));
        }
        writeln!(out)?;
        grid.write_within(self.style.width, self.style.color, out)
    }

    /// Prints the largest sources and destinations.
    fn talkers(&self, Talkers { when, top, totals, seconds }: &Talkers, out: &mut impl Write) -> io::Result<()> {
        writeln!(out)?;
        if totals.packets == 0 {
            return self.line(&[Cell::new(format!("{when}: no packets in the lists"), Faint)], out);
        }
        self.line(&[Cell::new(when, Faint)], out)?;
        write_talkers(top, (totals, *seconds), self.style, out)
    }

    /// Prints weir's own CPU and memory, and the state of its sinks.
    fn costs(&self, out: &mut impl Write) -> io::Result<()> {
        let memory_bytes = self.status.identity.memory_bytes;
        let Some(last) = &self.status.last_report else {
            return self.line(&[Cell::from(format!("memory planned: {} MiB", memory_bytes >> 20))], out);
        };
        let each = last.cpu_ns_per_packet.map_or(String::new(), |ns| format!(" ({} per packet)", short_time(ns)));
        let cpu = last.cpu_share().map_or("unknown".to_owned(), |share| format!("{} of a core{each}", percent(share)));
        let memory = last.rss_bytes.map_or("unknown".to_owned(), |rss| format!("{} MiB", rss >> 20));
        let text = format!("daemon CPU {cpu}, memory {memory} (planned: {} MiB)", memory_bytes >> 20);
        self.line(&[Cell::from(text)], out)?;
        last.sinks.iter().try_for_each(|sink| self.line(&[sink_in_words(sink)], out))
    }
}

fn sink_in_words(sink: &SinkMetrics) -> Cell {
    let SinkMetrics { name, queued, delivered, failed_attempts: _, dropped, lost, untold, spool, last_error } = sink;
    let mut text = format!("sink {name}: {} delivered, {} waiting", grouped(*delivered), grouped(*queued));
    if let Some(spool) = spool.filter(|spool| spool.reports > 0) {
        text += &format!(", {} of them on disk", grouped(spool.reports));
    }
    if *dropped > 0 {
        let why = lost.iter().map(|(reason, count)| format!("{reason} {}", grouped(*count)));
        text += &format!(", {} DROPPED ({})", grouped(*dropped), why.collect::<Vec<_>>().join(", "));
    }
    if *untold > 0 {
        text += &format!(", it was not told of {} that are lost", grouped(*untold));
    }
    if let Some(error) = last_error {
        text += &format!(": {error}");
    }
    Cell::new(text, if *dropped > 0 || last_error.is_some() { Alarm } else { Plain })
}

/// An interface in one direction, now and in the last window.
struct Line<'a> {
    name: &'a str,
    direction: &'a str,
    mode: &'a str,
    now: Option<&'a InterfaceSecond>,
    last: Option<&'a InterfaceStatus>,
}

/// The interfaces that are measured now or, if that is unknown, those of the last window.
fn lines<'a>(second: Option<&'a Second>, last: Option<&'a LastReport>) -> Vec<Line<'a>> {
    let in_report = || last.iter().flat_map(|last| &last.interfaces);
    let direction = |direction: &'a Option<String>| direction.as_deref().unwrap_or("");
    let Some(second) = second else {
        let of = |of: &'a InterfaceStatus| Line {
            name: &of.name,
            direction: direction(&of.direction),
            mode: &of.mode,
            now: None,
            last: Some(of),
        };
        return in_report().map(of).collect();
    };
    let of = |now: &'a InterfaceSecond| Line {
        name: &now.name,
        direction: direction(&now.direction),
        mode: &now.mode,
        now: Some(now),
        last: in_report().find(|of| of.name == now.name && of.direction == now.direction),
    };
    second.interfaces.iter().map(of).collect()
}

impl Line<'_> {
    fn add_to(&self, grid: &mut Grid, now_seconds: Length, last_seconds: Length) {
        let is_measured_now = is_measured(self.mode);
        let [now_bits, now_packets] = match self.now.and_then(|now| now.counted).filter(|_| is_measured_now) {
            Some(counted) => rates(counted.bytes, counted.packets, now_seconds),
            None if is_measured_now => ["unknown".to_owned(), String::new()],
            None => [NOT_MEASURED.to_owned(), String::new()],
        };
        let [last_bits, last_packets] = match self.last {
            Some(last) if is_measured(&last.mode) => rates(last.bytes, last.packets, last_seconds),
            Some(_) => [NOT_MEASURED.to_owned(), String::new()],
            None => Default::default(),
        };
        let lost = self.last.map_or(0, |last| last.lost_packets);
        let lost = if lost > 0 { format!("{} LOST", grouped(lost)) } else { String::new() };
        let mode = if self.mode == NO_ROUTE { "carries no default route now" } else { self.mode };
        grid.row([
            Cell::new(self.name, Strong),
            self.direction.into(),
            Cell::new(mode, if is_measured_now { Plain } else { Alarm }),
            Cell::new(now_bits, Strong),
            now_packets.into(),
            last_bits.into(),
            last_packets.into(),
            Cell::new(lost, Alarm),
        ]);
        if let Some(seconds) = self.last.and_then(|last| last.blind_seconds) {
            grid.across([Cell::new(format!("  BLIND for up to {seconds:.1} s"), Alarm)]);
        }
        let trouble =
            self.now.and_then(|now| now.trouble.as_ref()).or(self.last.and_then(|last| last.trouble.as_ref()));
        if let Some(trouble) = trouble {
            grid.across([Cell::new(format!("  TROUBLE: {trouble}"), Alarm)]);
        }
    }
}

/// Bit rate and packet rate; if there is none, bytes and packets.
fn rates(bytes: u64, packets: u64, length: Length) -> [String; 2] {
    match length.seconds() {
        Some(seconds) => [bit_rate(bytes, seconds), packet_rate(packets, seconds)],
        None => [numbers::bytes(bytes), format!("{} packets", grouped(packets))],
    }
}

#[cfg(test)]
mod tests {
    use weir_schema::Tally;

    use super::*;

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../schema/tests/golden/report.json")).unwrap()
    }

    fn identity(now: Timestamp) -> Identity {
        Identity { version: "0.1.0".to_owned(), pid: 7, started: now, interval_seconds: 60, memory_bytes: 1 << 20 }
    }

    fn second() -> Second {
        let interface = |name: &str, mode: &str, counted| InterfaceSecond {
            name: name.to_owned(),
            direction: Some("ingress".to_owned()),
            mode: mode.to_owned(),
            counted,
            total: None,
            lost: None,
            trouble: None,
        };
        let time = golden().window.end;
        Second {
            schema: weir_schema::SECOND_SCHEMA.to_owned(),
            time,
            seconds: 1.0,
            skipped: 0,
            window_start: time,
            last_report: None,
            interfaces: vec![
                interface("eth0", "tcx", Some(Tally { packets: 5_200, bytes: 7_550_000 })),
                interface("tap0", "afpacket", None),
            ],
            troubles: Vec::new(),
        }
    }

    fn text(status: &Status, second: Option<&Second>) -> String {
        let now = status.identity.started;
        let shown = Shown { status, now, style: Style::default() };
        let mut out = Vec::new();
        shown.head(&mut out).unwrap();
        shown.interfaces(second, &mut out).unwrap();
        shown.costs(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn before_the_first_report_it_shows_the_traffic_now_and_when_the_report_comes() {
        let now = golden().window.end;
        let next = now.checked_add(jiff::SignedDuration::from_millis(6_500)).unwrap();
        let status = Status { next_report: Some(next), ..Status::new(&identity(now), None) };
        let said = text(&status, Some(&second()));
        assert!(said.contains("first report at 08:00:16 UTC, in 7 s"), "{said}");
        assert!(said.contains("  eth0  ingress  tcx       60.4 Mbit/s  5.2 kpkt/s\n"), "{said}");
        assert!(said.contains("  tap0  ingress  afpacket      unknown\n"), "{said}");
        // The programs may have counted some packets of this second before they were removed.
        for (mode, counted) in [("detached", None), ("blind", Some(Tally { packets: 9, bytes: 900 }))] {
            let mut second = second();
            (second.interfaces[0].mode, second.interfaces[0].counted) = (mode.to_owned(), counted);
            let said = text(&status, Some(&second));
            let line = said.lines().find(|line| line.starts_with("  eth0")).unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            assert_eq!(words.join(" "), format!("eth0 ingress {mode} not measured"));
        }
    }

    #[test]
    fn an_interface_without_a_default_route_is_not_shown_as_gone() {
        let mut report = golden();
        let now = report.window.end;
        let mut told = |mode: &str| {
            mode.clone_into(&mut report.interfaces[0].mode);
            text(&Status::new(&identity(now), Some(&report)), None)
        };
        assert!(told("gone").contains("  gone  "));
        let without_route = told(NO_ROUTE);
        assert!(without_route.contains("carries no default route now"), "{without_route}");
    }

    #[test]
    fn after_a_report_it_shows_both_windows_with_losses_and_costs() {
        let report = golden();
        let mut status = Status::new(&identity(report.window.end), Some(&report));
        let said = text(&status, Some(&second()));
        let line = said.lines().find(|line| line.starts_with("  eth0")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let expected = "eth0 ingress tcx 60.4 Mbit/s 5.2 kpkt/s 697.9 Mbit/s 110.0 kpkt/s 280 LOST";
        assert_eq!(words.join(" "), expected);
        assert!(said.contains("daemon CPU 0.1 % of a core (9.1 ns per packet), memory 40 MiB"), "{said}");
        assert!(said.contains("1 DROPPED"), "{said}");
        let last = status.last_report.as_mut().unwrap();
        (last.cpu_ns_per_packet, last.rss_bytes) = (None, None);
        let unknown = text(&status, None);
        assert!(unknown.contains("daemon CPU unknown, memory unknown (planned: 1 MiB)"), "{unknown}");
    }
}
