//! A report as tables for a terminal of about a hundred columns.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    net::IpAddr,
};

use super::{
    Bits, Bounds, Distinct, Entropy, Estimate, Histogram, Interface, NewFlows, Observer, Report, Row, SelfMetrics,
    SinkMetrics, Spread, Tally, TcpBounds, TcpPackets, Top, TopFlow, TopPrefix, Totals, Union, Unique, View, Window,
    alert,
    grid::{
        Align::{Left, Right},
        Cell, Grid,
        Tone::{Alarm, Faint, Plain, Strong},
    },
    rates, sizes,
    units::{bytes, count, percent, scaled},
    view_table,
};
use crate::{names::services::service_name, text::grouped};

/// The widest that a list of flows or pairs gets before source and destination share one column, in columns.
const WIDTH_MAX: usize = 100;
/// The longest bar of a chart, in columns.
const BAR: usize = 32;
/// How many of each list are shown; a report in JSON has all.
const ROWS_MAX: usize = 10;
/// Below this share of an interface's packets something is wrong.
const COVERAGE_MIN: f64 = 0.999;
/// The longest error of a sink that is shown, in characters.
const ERROR_MAX: usize = 90;
/// The longest alias of an interface that is shown, in characters.
const ALIAS_MAX: usize = 30;
/// How tables look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether headings are bold, captions faint and trouble red.
    pub color: bool,
}

/// Writes a report as tables, without colour.
///
/// # Errors
/// Those of `out`.
pub fn write_tables(report: &Report, out: &mut impl Write) -> io::Result<()> {
    write_styled_tables(report, Style::default(), out)
}

/// Writes a report as tables in a style.
///
/// # Errors
/// Those of `out`.
pub fn write_styled_tables(report: &Report, style: Style, out: &mut impl Write) -> io::Result<()> {
    let Report {
        schema: _,
        id,
        previous: _,
        addresses: _,
        key_id: _,
        window,
        observer,
        alerts,
        interfaces,
        totals,
        unique,
        new_flows,
        top,
        top_by_packets,
        spread,
        views,
        answers,
        rates: each_second,
        histograms,
        self_metrics,
    } = report;
    let mut page = Page { style, together: false, out };
    page.head(observer, window, id)?;
    page.remarks(&remarks(window, totals))?;
    if !alerts.is_empty() {
        page.section("ALERTS", "", &alert::grid(alerts))?;
    }
    page.section("INTERFACES", "", &ledgers(interfaces))?;
    page.section("TRAFFIC", &mean_rates(totals, window), &shares(totals))?;
    if !each_second.is_empty() {
        page.section("RATES", "in each second", &rates::grid(each_second))?;
    }
    page.section("DISTINCT AND NEW", "", &distinct(unique, new_flows, false))?;
    for top in [top, top_by_packets] {
        page.top(top, totals)?;
        page.prefixes(top, totals)?;
    }
    page.spread(spread)?;
    let aliases = aliases(interfaces);
    for view in views {
        page.view(view, window, &aliases)?;
    }
    if !answers.is_empty() {
        page.section("ANSWERS", "", &view_table::answers(answers, window.seconds))?;
    }
    let all = &histograms.packet_size_bytes;
    page.section("PACKET SIZES", &quantiles(all), &chart(all))?;
    if let Some(grid) = sizes::grid(interfaces) {
        page.section("PACKET SIZES OF EACH INTERFACE", "shares of its packets, by bytes", &grid)?;
    }
    page.section("WEIR ITSELF", "", &costs(self_metrics))
}

/// Writes several windows taken together as tables.
///
/// # Errors
/// Those of `out`.
pub fn write_union(union: &Union, out: &mut impl Write) -> io::Result<()> {
    let Union {
        schema: _,
        reports,
        window,
        observer,
        interfaces,
        totals,
        unique,
        new_flows,
        top,
        top_by_packets,
        views,
        left_out,
    } = union;
    let mut page = Page { style: Style::default(), together: true, out };
    let several = match &reports[..] {
        [only] => format!("1 window   {only}"),
        [first, .., last] => format!("{} windows   {first} to {last}", reports.len()),
        [] => "no window".to_owned(),
    };
    page.head(observer, window, &several)?;
    page.remarks(&remarks(window, totals))?;
    page.section("INTERFACES", "", &ledgers(interfaces))?;
    page.section("TRAFFIC", &mean_rates(totals, window), &shares(totals))?;
    page.section("DISTINCT AND NEW", "", &distinct(unique, new_flows, true))?;
    page.top(top, totals)?;
    page.top(top_by_packets, totals)?;
    let aliases = aliases(interfaces);
    for view in views {
        page.view(view, window, &aliases)?;
    }
    if !left_out.is_empty() {
        let mut grid = Grid::new([Left]);
        grid.across([Cell::from(format!("  {}: what they count does not add up", left_out.join(", ")))]);
        page.section("VIEWS LEFT OUT", "", &grid)?;
    }
    Ok(())
}

/// Writes what is known of keys in a window.
///
/// # Errors
/// Those of `out`.
pub fn write_answers(window: &Window, answers: &[Row], out: &mut impl Write) -> io::Result<()> {
    let mut page = Page { style: Style::default(), together: false, out };
    page.section("ANSWERS", &interval(window), &view_table::answers(answers, window.seconds))
}

/// Where sections are written to.
struct Page<'a, W> {
    style: Style,
    /// Whether it is about several windows: then a value is of those that list its key, and only bounds are shown.
    together: bool,
    out: &'a mut W,
}

impl<W: Write> Page<'_, W> {
    fn head(&mut self, Observer { name, version, site, .. }: &Observer, window: &Window, what: &str) -> io::Result<()> {
        let site = site.as_ref().map_or(String::new(), |site| format!(" at {site}"));
        Cell::new(format!("{name}{site}   {}", interval(window)), Strong).write(self.style.color, self.out)?;
        writeln!(self.out)?;
        Cell::new(format!("weir {version}   {what}"), Faint).write(self.style.color, self.out)?;
        writeln!(self.out)
    }

    fn remarks(&mut self, remarks: &[String]) -> io::Result<()> {
        for remark in remarks {
            Cell::new(remark, Alarm).write(self.style.color, self.out)?;
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn section(&mut self, title: &str, remark: &str, grid: &Grid) -> io::Result<()> {
        writeln!(self.out)?;
        Cell::new(title, Strong).write(self.style.color, self.out)?;
        if !remark.is_empty() {
            write!(self.out, "   ")?;
            Cell::new(remark, Plain).write(self.style.color, self.out)?;
        }
        writeln!(self.out)?;
        grid.write(self.style.color, self.out)
    }

    fn spread(&mut self, spread: &Spread) -> io::Result<()> {
        let Spread { confidence, sources_per_destination, destinations_per_source, ports_per_source } = spread;
        let lists = [
            ("DESTINATIONS WITH MOST SOURCES", "sources", sources_per_destination),
            ("SOURCES WITH MOST DESTINATIONS", "destinations", destinations_per_source),
            ("SOURCES WITH MOST PORTS", "ports", ports_per_source),
        ];
        for (title, counted, rows) in lists {
            let remark = format!("± for the whole list at {}", confidence_text(*confidence));
            self.section(title, if rows.is_empty() { "none" } else { &remark }, &view_table::spread(counted, rows))?;
        }
        Ok(())
    }

    fn view(&mut self, view: &View, window: &Window, aliases: &Aliases<'_>) -> io::Result<()> {
        let View { name, confidence, total, entropy, rows, tables, .. } = view;
        let one = rows.iter().map(|rows| (format!("VIEW {name}"), rows, total.as_ref()));
        let each = tables.iter().flatten().map(|table| {
            let direction = table.direction.as_ref().map_or(String::new(), |direction| format!(", {direction}"));
            let interface = aliases.show(&table.interface);
            (format!("VIEW {name}: {interface}{direction}"), &table.rows, table.total.as_ref())
        });
        for (title, rows, total) in one.chain(each) {
            let remark = match *confidence {
                1.0.. => "± always holds".to_owned(),
                confidence => format!("± for the whole list at {}", confidence_text(confidence)),
            };
            let remark = if rows.is_empty() { "nothing matched" } else { &remark };
            let remark = if self.together && !rows.is_empty() {
                &format!("{remark}; a value counts only windows that list its key")
            } else {
                remark
            };
            let mut grid = view_table::grid(view, (rows, total), window.seconds, aliases);
            if let Some(entropy) = entropy {
                grid.across([Cell::from(entropy_text(entropy))]);
            }
            self.section(&title, remark, &grid)?;
        }
        if tables.as_ref().is_some_and(Vec::is_empty) {
            self.section(&format!("VIEW {name}"), "nothing matched", &Grid::new([Left]))?;
        }
        Ok(())
    }

    fn top(&mut self, top: &Top, totals: &Totals) -> io::Result<()> {
        let Top { by, flows, sources, destinations, pairs, services, .. } = top;
        let remark = remark_of(top);
        let lists = [
            ("FLOWS", flows.iter().map(flow_entry).collect()),
            ("SOURCES", sources.iter().map(|e| Entry::new(e.rank, [address(e.src_ip)], e.packets, e.bytes)).collect()),
            (
                "DESTINATIONS",
                destinations.iter().map(|e| Entry::new(e.rank, [address(e.dst_ip)], e.packets, e.bytes)).collect(),
            ),
            (
                "PAIRS",
                pairs
                    .iter()
                    .map(|e| Entry::new(e.rank, [address(e.src_ip), towards(&address(e.dst_ip))], e.packets, e.bytes))
                    .collect(),
            ),
            (
                "SERVICES",
                services
                    .iter()
                    .map(|e| Entry::new(e.rank, [service(&e.proto, e.port)], e.packets, e.bytes))
                    .collect::<Vec<_>>(),
            ),
        ];
        for (what, entries) in lists {
            let title = format!("TOP {what} BY {}", by.to_uppercase());
            self.section(
                &title,
                if entries.is_empty() { "none" } else { &remark },
                &ranking(by, &entries, totals, self.together),
            )?;
        }
        Ok(())
    }

    fn prefixes(&mut self, top: &Top, totals: &Totals) -> io::Result<()> {
        let Top { by, source_prefixes, destination_prefixes, .. } = top;
        let remark = remark_of(top);
        for (what, prefixes) in [("SOURCE", source_prefixes), ("DESTINATION", destination_prefixes)] {
            let title = format!("TOP {what} PREFIXES BY {}", by.to_uppercase());
            let remark = if prefixes.is_empty() { "none" } else { &remark };
            self.section(&title, remark, &prefixes_grid(by, prefixes, totals))?;
        }
        Ok(())
    }
}

/// What the bounds of these lists mean.
fn remark_of(Top { sampling, confidence, .. }: &Top) -> String {
    match *confidence {
        1.0.. => "± always holds".to_owned(),
        confidence => {
            format!("one packet in {sampling} sampled, ± for the whole list at {}", confidence_text(confidence))
        }
    }
}

fn interval(window: &Window) -> String {
    let Window { start, end, seconds, clock_step_seconds: _, late_packets: _ } = window;
    let day = |time: &jiff::Timestamp| time.strftime("%Y-%m-%d").to_string();
    let [start, end] = [start, end].map(|time| time.round(jiff::Unit::Millisecond).unwrap_or(*time));
    let format = if day(&start) == day(&end) { "%H:%M:%S%.f" } else { "%Y-%m-%d %H:%M:%S%.f" };
    let seconds = (seconds * 1e3).round() / 1e3;
    format!("{} – {} UTC ({seconds} s)", start.strftime("%Y-%m-%d %H:%M:%S%.f"), end.strftime(format))
}

/// What a reader has to know before he reads the numbers of a window.
fn remarks(window: &Window, totals: &Totals) -> Vec<String> {
    let Window { start: _, end: _, seconds: _, clock_step_seconds, late_packets } = *window;
    let mut remarks = Vec::new();
    if totals.packets == 0 {
        remarks.push(match late_packets {
            Some(_) => "no packets: there are none in the capture, so this window stands for no time".to_owned(),
            None => "no packets: weir saw none in this window".to_owned(),
        });
    }
    if let Some(step) = clock_step_seconds {
        let (way, then) = if step < 0.0 { ("back", "overlap") } else { ("forward", "have a gap") };
        remarks.push(format!("clock stepped {way} by {} s: the times of windows {then}", step.abs()));
    }
    if let Some(late @ 1..) = late_packets {
        remarks.push(format!("late packets: {}, whose time is before this window", grouped(late)));
    }
    remarks
}

fn ledgers(interfaces: &[Interface]) -> Grid {
    let mut grid = Grid::new([Left, Right, Right, Right]);
    for (
        i,
        Interface {
            name,
            index: _,
            alias,
            mode,
            counts,
            direction,
            feeds,
            repeated,
            sampling,
            ledger,
            tcp,
            packet_sizes: _,
            coverage,
            kept,
        },
    ) in interfaces.iter().enumerate()
    {
        if i > 0 {
            grid.across([]);
        }
        let rate = match sampling {
            1 => "every packet".to_owned(),
            many => format!("1 packet in {}", grouped(u64::from(*many))),
        };
        let balanced = match ledger.balances() {
            true => Cell::new("balanced: yes", Plain),
            false => Cell::new("balanced: NO", Alarm),
        };
        let lost = ledger.lost.values().any(|tally| tally.packets > 0);
        let kept = Cell::new(format!("kept {}", percent(*kept)), if lost { Alarm } else { Plain });
        let mut line = vec![Cell::new(name, Strong)];
        line.extend(alias.as_ref().map(|alias| Cell::from(format!("({})", shortened(alias, ALIAS_MAX)))));
        line.push(Cell::from(mode));
        line.extend((counts != "packets").then(|| Cell::new(format!("counts {counts}"), Alarm)));
        line.extend(direction.as_ref().map(Cell::from));
        line.extend([Cell::from(rate), balanced, kept]);
        line.extend(coverage.map(|coverage| {
            let tone = if coverage < COVERAGE_MIN { Alarm } else { Plain };
            Cell::new(format!("coverage {}", percent(coverage)), tone)
        }));
        grid.across(line);
        grid.row(["", "packets", "bytes", "of packets"].map(|caption| Cell::new(caption, Faint)));
        let mut line = |what: String, tally: &Tally, tone| {
            let share = percent(ratio(tally.packets, ledger.seen.packets));
            grid.row([what, grouped(tally.packets), grouped(tally.bytes), share].map(|text| Cell::new(text, tone)));
        };
        line("seen".to_owned(), &ledger.seen, Plain);
        if *repeated != Tally::default() {
            line(format!("feeds elsewhere (feeds: {feeds})"), repeated, Faint);
        }
        line("attributed".to_owned(), &ledger.attributed, Plain);
        line("sampled out".to_owned(), &ledger.sampled_out, Plain);
        ledger.skipped.iter().for_each(|(reason, tally)| line(format!("skipped: {reason}"), tally, Plain));
        let lost = ledger.lost.iter().filter(|(_, tally)| **tally != Tally::default());
        lost.for_each(|(reason, tally)| line(format!("lost: {reason}"), tally, Alarm));
        if let Some(text) = connections(tcp) {
            grid.across([text.into()]);
        }
    }
    grid
}

/// Packets that begin or end TCP connections; nothing where there were none.
fn connections(tcp: &TcpPackets) -> Option<String> {
    let TcpPackets { syn, syn_ack, rst, fin, bounds } = *tcp;
    let bounds = bounds.map(|TcpBounds { confidence: _, syn, syn_ack, rst, fin }| [syn, syn_ack, rst, fin]);
    let counts = [("SYN", syn), ("SYN-ACK", syn_ack), ("RST", rst), ("FIN", fin)];
    let parts: Vec<_> = (0..)
        .zip(counts)
        .map(|(nth, (name, value))| match bounds.map(|bounds: [Bounds; 4]| bounds[nth]) {
            Some(Bounds { lower, upper }) => {
                format!("{name} {} ± {}", grouped(value), grouped(off(value, lower, upper)))
            }
            None => format!("{name} {}", grouped(value)),
        })
        .collect();
    counts.iter().any(|(_, value)| *value > 0).then(|| format!("TCP: {}", parts.join(", ")))
}

fn mean_rates(totals: &Totals, window: &Window) -> String {
    let Totals { packets, bytes, .. } = totals;
    let rate = |value: f64, unit| match window.seconds > 0.0 {
        true => format!(" ({})", scaled(value / window.seconds, unit)),
        false => String::new(),
    };
    let (packet_rate, bit_rate) = (rate(*packets as f64, "pkt/s"), rate(*bytes as f64 * 8.0, "bit/s"));
    format!("{} packets{packet_rate}, {} bytes{bit_rate}", grouped(*packets), grouped(*bytes))
}

fn shares(totals: &Totals) -> Grid {
    let Totals { packets, bytes: _, ipv4_packets, ipv6_packets, tcp_packets, udp_packets, icmp_packets, other_packets } =
        *totals;
    let mut grid = Grid::new([Left, Right, Right, Left]);
    let parts = [
        ("IPv4", ipv4_packets),
        ("IPv6", ipv6_packets),
        ("TCP", tcp_packets),
        ("UDP", udp_packets),
        ("ICMP", icmp_packets),
        ("other IP", other_packets),
    ];
    for (what, part) in parts {
        let share = ratio(part, packets);
        grid.row([what.into(), grouped(part).into(), percent(share).into(), bar(share).into()]);
    }
    grid
}

fn distinct(unique: &Unique, new_flows: &NewFlows, together: bool) -> Grid {
    let Unique { src_ip, dst_ip, flows } = unique;
    let mut grid = Grid::new([Left, Right, Right, Left, Left]);
    let mut line = |what: &str, value, lower, upper, remark: String| {
        let error = if value == 0 { String::new() } else { percent(ratio(off(value, lower, upper), value)) };
        let bounds = format!("{} – {}", grouped(lower), grouped(upper));
        let error = if error.is_empty() { error } else { format!("± {error}") };
        let (value, error) = if together { Default::default() } else { (grouped(value), error) };
        grid.row([what.into(), value.into(), error.into(), Cell::from(bounds), Cell::new(remark, Faint)]);
    };
    for (what, Distinct { value, lower, upper, confidence }) in
        [("source addresses", src_ip), ("destination addresses", dst_ip), ("flows", flows)]
    {
        line(what, *value, *lower, *upper, format!("at {}", confidence_text(*confidence)));
    }
    let NewFlows { value, lower, upper, confidence, false_positive_rate, fill } = *new_flows;
    let (sure, missed) = (confidence_text(confidence), percent(false_positive_rate));
    let remark = format!("at {sure}, {missed} missed, filter {} full", percent(fill));
    line("flows never seen before", value, lower, upper, remark);
    grid
}

/// One line of a ranking.
struct Entry {
    rank: u32,
    /// What it is about: one to three columns of text, the last of which may start with an arrow.
    what: Vec<String>,
    packets: Estimate,
    bytes: Estimate,
}

impl Entry {
    fn new<const N: usize>(rank: u32, what: [String; N], packets: Estimate, bytes: Estimate) -> Self {
        Self { rank, what: what.into(), packets, bytes }
    }
}

fn flow_entry(flow: &TopFlow) -> Entry {
    let TopFlow { rank, src_ip, dst_ip, src_port, dst_port, proto, fragment, packets, bytes } = flow;
    let (proto, src, dst) = match proto.as_ref() {
        _ if *fragment => (format!("{proto} fragments"), address(*src_ip), address(*dst_ip)),
        "icmp" | "icmpv6" => (format!("{proto} {src_port}/{dst_port}"), address(*src_ip), address(*dst_ip)),
        proto if has_ports(proto) => {
            // The lower port is that of the service.
            // The lower port is that of the service. Beside the longest addresses there is no room for its name.
            let named = with_name(proto.to_owned(), service_name(Some(proto), *src_port.min(dst_port)));
            (named, endpoint(*src_ip, *src_port), endpoint(*dst_ip, *dst_port))
        }
        proto => (proto.to_owned(), address(*src_ip), address(*dst_ip)),
    };
    Entry::new(*rank, [proto, src, towards(&dst)], *packets, *bytes)
}

/// A ranking in one line an entry, or, where that is too wide, with the last text column below the one before it.
fn ranking(by: &str, entries: &[Entry], totals: &Totals, together: bool) -> Grid {
    let flat = grid_of(by, entries, totals, (together, false));
    let foldable = entries.first().is_some_and(|entry| entry.what.len() > 1);
    if foldable && flat.width() > WIDTH_MAX { grid_of(by, entries, totals, (together, true)) } else { flat }
}

fn grid_of(by: &str, entries: &[Entry], totals: &Totals, (together, folded): (bool, bool)) -> Grid {
    let texts = entries.first().map_or(0, |entry| entry.what.len() - usize::from(folded));
    let columns = [Right].into_iter().chain(vec![Left; texts]).chain([Right; 4]);
    let mut grid = Grid::new(columns);
    let by_packets = by == "packets";
    if !entries.is_empty() {
        let captions = match (together, by_packets) {
            (false, true) => ["packets", "±", "share", "bytes"],
            (false, false) => ["bytes", "±", "share", "packets"],
            (true, true) => ["packets at least", "at most", "share", "bytes at least"],
            (true, false) => ["bytes at least", "at most", "share", "packets at least"],
        };
        let captions =
            captions.map(|caption| if caption == "share" { caption.to_owned() } else { format!("{caption}  ") });
        let blanks = vec![String::new(); 1 + texts];
        grid.row(blanks.into_iter().chain(captions).map(|caption| Cell::new(caption, Faint)));
    }
    for Entry { rank, what, packets, bytes } in entries.iter().take(ROWS_MAX) {
        let numbers = if together {
            let of = |estimate: &Estimate, show: &dyn Fn(u64) -> String| [show(estimate.lower), show(estimate.upper)];
            let (amount, bytes_of) = (in_column(count, ""), in_column(self::bytes, "B"));
            let ([least, most], share, other) = if by_packets {
                (of(packets, &amount), ratio(packets.lower, totals.packets), bytes_of(bytes.lower))
            } else {
                (of(bytes, &bytes_of), ratio(bytes.lower, totals.bytes), amount(packets.lower))
            };
            [least, most, percent(share), other]
        } else if by_packets {
            let [value, error] = measured(packets, in_column(count, ""));
            [value, error, percent(ratio(packets.value, totals.packets)), in_column(self::bytes, "B")(bytes.value)]
        } else {
            let [value, error] = measured(bytes, in_column(self::bytes, "B"));
            [value, error, percent(ratio(bytes.value, totals.bytes)), in_column(count, "")(packets.value)]
        };
        let [value, error, share, other] = numbers;
        let (texts, below) = what.split_at(texts);
        let texts = texts.iter().map(Cell::from);
        let numbers = [Cell::from(value), Cell::new(error, Faint), share.into(), other.into()];
        grid.row([Cell::new(rank.to_string(), Faint)].into_iter().chain(texts).chain(numbers));
        if let Some(below) = below.first() {
            let blanks = vec![Cell::default(); what.len() - 1];
            grid.row(blanks.into_iter().chain([Cell::from(below)]));
        }
    }
    if entries.len() > ROWS_MAX {
        grid.across([Cell::new(format!("… and {} more in the report's JSON", entries.len() - ROWS_MAX), Faint)]);
    }
    grid
}

/// A line for each network: what it has beyond its listed members, the share of that, all that it has, and its members.
fn prefixes_grid(by: &str, prefixes: &[TopPrefix], totals: &Totals) -> Grid {
    let mut grid = Grid::new([Right, Left].into_iter().chain([Right; 5]));
    let by_packets = by == "packets";
    if !prefixes.is_empty() {
        let captions = ["", "", "beyond  ", "±  ", "share", "in all  ", "members listed"];
        grid.row(captions.map(|caption| Cell::new(caption, Faint)));
    }
    for TopPrefix { rank, prefix, packets, bytes, beyond, members } in prefixes.iter().take(ROWS_MAX) {
        let (amount, beyond, all, total) = if by_packets {
            (in_column(count, ""), beyond.packets, packets, totals.packets)
        } else {
            (in_column(self::bytes, "B"), beyond.bytes, bytes, totals.bytes)
        };
        let [value, error] = measured(&beyond, &amount);
        let share = percent(ratio(beyond.value, total));
        grid.row([
            Cell::new(rank.to_string(), Faint),
            prefix.into(),
            value.into(),
            Cell::new(error, Faint),
            share.into(),
            amount(all.value).into(),
            members.to_string().into(),
        ]);
    }
    if prefixes.len() > ROWS_MAX {
        grid.across([Cell::new(format!("… and {} more in the report's JSON", prefixes.len() - ROWS_MAX), Faint)]);
    }
    grid
}

/// How evenly a view's measure is spread over its keys.
fn entropy_text(entropy: &Entropy) -> String {
    let Entropy { bits: Bits { value, lower, upper }, normalized, keys, confidence } = *entropy;
    let sure = if confidence < 1.0 { format!(" at {}", confidence_text(confidence)) } else { String::new() };
    let keys = in_words(&keys);
    format!(
        "entropy {value:.3} bits ({lower:.3} – {upper:.3}{sure}), {} of the most that {keys} may have",
        percent(normalized)
    )
}

fn in_words(keys: &Estimate) -> String {
    format!("{} {}", grouped(keys.value), if keys.value == 1 { "key" } else { "keys" })
}

/// A confidence with no more digits than it has, down to a hundredth of a percent.
fn confidence_text(confidence: f64) -> String {
    format!("{} % confidence", (confidence * 10_000.0).round() / 100.0)
}

/// An estimate and how far the truth may be off, both for a column.
pub(super) fn measured(estimate: &Estimate, text: impl Fn(u64) -> String) -> [String; 2] {
    let Estimate { value, lower, upper, sampled: _ } = *estimate;
    let error = match off(value, lower, upper) {
        0 => "exact  ".to_owned(),
        off => text(off),
    };
    [text(value), error]
}

/// Makes the numbers of a flush-right column stand below each other: what has no prefix gets a blank in its place.
pub(super) fn in_column(text: fn(u64) -> String, unit: &str) -> impl Fn(u64) -> String {
    let blanks = if unit.is_empty() { "  " } else { " " };
    move |value| if value < 1000 { text(value) + blanks } else { text(value) }
}

fn address(ip: IpAddr) -> String {
    ip.to_string()
}

fn endpoint(ip: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}

fn towards(destination: &str) -> String {
    format!("→ {destination}")
}

fn service(proto: &str, port: u16) -> String {
    match proto {
        proto if has_ports(proto) => with_name(format!("{proto}/{port}"), service_name(Some(proto), port)),
        proto => proto.to_owned(),
    }
}

/// A number with its name for people.
pub(super) fn with_name(number: String, name: Option<impl AsRef<str>>) -> String {
    match name {
        Some(name) => format!("{number} ({})", name.as_ref()),
        None => number,
    }
}

/// What the operator calls each interface.
pub(super) struct Aliases<'r>(BTreeMap<&'r str, &'r str>);

fn aliases(interfaces: &[Interface]) -> Aliases<'_> {
    Aliases(interfaces.iter().filter_map(|one| Some((one.name.as_str(), one.alias.as_deref()?))).collect())
}

impl Aliases<'_> {
    /// An interface's name, with its alias if it has one.
    pub(super) fn show(&self, name: &str) -> String {
        with_name(name.to_owned(), self.0.get(name).map(|alias| shortened(alias, ALIAS_MAX)))
    }
}

fn has_ports(proto: &str) -> bool {
    matches!(proto, "tcp" | "udp" | "sctp" | "dccp" | "udplite")
}

fn quantiles(sizes: &Histogram) -> String {
    let Histogram { count, min, p50, p90, p99, max, buckets: _ } = sizes;
    if *count == 0 {
        return "none".to_owned();
    }
    let [min, p50, p90, p99, max] = [min, p50, p90, p99, max].map(|bytes| grouped(*bytes));
    format!("smallest {min}, median {p50}, p90 {p90}, p99 {p99}, largest {max} bytes")
}

fn chart(sizes: &Histogram) -> Grid {
    let mut grid = Grid::new([Right, Right, Right, Left]);
    let most = sizes.buckets.iter().map(|(_, packets)| *packets).max().unwrap_or_default();
    let mut least = 0;
    for (edge, packets) in &sizes.buckets {
        let range = format!("{least} – {edge:>4}");
        let share = percent(ratio(*packets, sizes.count));
        grid.row([range.into(), grouped(*packets).into(), share.into(), bar(ratio(*packets, most)).into()]);
        least = edge.saturating_add(1);
    }
    grid
}

fn costs(metrics: &SelfMetrics) -> Grid {
    let SelfMetrics {
        cpu_ns_per_packet,
        rss_bytes,
        late_cpus,
        memory_bytes,
        records,
        cache_hit_rate,
        kernel_ns_per_packet,
        rings,
        spool,
        sinks,
    } = metrics;
    let mut grid = Grid::new([Left, Left]);
    let kernel = kernel_ns_per_packet.map_or(String::new(), |ns| format!(", {ns:.1} ns in the kernel"));
    let mut line = |what: &str, text: String, tone| grid.row([Cell::from(what), Cell::new(text, tone)]);
    line("CPU per packet", format!("{cpu_ns_per_packet:.1} ns in the daemon{kernel}"), Plain);
    if !late_cpus.is_empty() {
        let cpus: Vec<_> = late_cpus.iter().map(u32::to_string).collect();
        line("late CPUs", format!("{}: the rest comes in a later report", cpus.join(", ")), Plain);
    }
    line("memory", format!("{} resident, {} planned", bytes(*rss_bytes), bytes(*memory_bytes)), Plain);
    line("flow cache", format!("{} hits, {} records evicted", percent(*cache_hit_rate), grouped(*records)), Plain);
    line("rings", format!("at most {} full", percent(rings.peak_fill)), Plain);
    let waiting = format!("{} reports, {}", grouped(spool.reports), bytes(spool.bytes));
    line("spool", with_dropped(waiting, spool.dropped), if spool.dropped > 0 { Alarm } else { Plain });
    for SinkMetrics { name, queued, delivered, failed_attempts, dropped, lost: _, spool: _, last_error } in sinks {
        let mut text = format!("{name}: {} delivered, {} queued", grouped(*delivered), grouped(*queued));
        if *failed_attempts > 0 {
            text += &format!(", {} failed attempts", grouped(*failed_attempts));
        }
        line("sink", with_dropped(text, *dropped), if *dropped > 0 { Alarm } else { Plain });
        if let Some(error) = last_error {
            line("", shortened(error, ERROR_MAX), Alarm);
        }
    }
    grid
}

fn with_dropped(text: String, dropped: u64) -> String {
    if dropped > 0 { format!("{text}, {} dropped", grouped(dropped)) } else { text }
}

fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// How far the truth may be from an estimate, on the side where it may be farther.
const fn off(value: u64, lower: u64, upper: u64) -> u64 {
    let (below, above) = (value.saturating_sub(lower), upper.saturating_sub(value));
    if below > above { below } else { above }
}

pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A bar for a share of 1, in eighths of a column; the least share that is not nothing shows.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let eighths = if share > 0.0 { eighths.max(1) } else { eighths };
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap()
    }

    fn tables(report: &Report, style: Style) -> String {
        let mut out = Vec::new();
        write_styled_tables(report, style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_golden_report_looks_as_it_did() {
        let text = tables(&golden(), Style::default());
        assert_eq!(text, include_str!("../../tests/golden/report.txt"), "\n{text}");
    }

    #[test]
    fn what_is_odd_about_a_window_is_said_before_its_numbers() {
        let mut report = golden();
        report.totals.packets = 0;
        report.window = Window { late_packets: None, clock_step_seconds: Some(7.5), ..report.window };
        let said =
            |report: &Report| tables(report, Style::default()).lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
        let live = [
            "no packets: weir saw none in this window",
            "clock stepped forward by 7.5 s: the times of windows have a gap",
            "",
        ];
        assert_eq!(said(&report)[..3], live);
        report.window = Window { late_packets: Some(0), clock_step_seconds: None, ..report.window };
        assert_eq!(
            said(&report)[..2],
            ["no packets: there are none in the capture, so this window stands for no time", ""]
        );
        report.totals.packets = 2_000;
        report.window.late_packets = Some(1_999);
        assert_eq!(said(&report)[..2], ["late packets: 1,999, whose time is before this window", ""]);
    }

    #[test]
    fn no_line_is_too_wide_or_ends_in_blanks() {
        let mut report = golden();
        let longest = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        for flow in &mut report.top.flows {
            (flow.src_ip, flow.dst_ip, flow.src_port, flow.dst_port) = (longest, longest, u16::MAX, 3389);
        }
        let text = tables(&report, Style::default());
        assert!(text.contains("tcp (ms-wbt-server)"), "the longest name of a service for TCP");
        for line in text.lines() {
            assert!(line.chars().count() <= 120 && line == line.trim_end(), "{line:?}");
        }
    }

    #[test]
    fn an_interface_has_its_alias_beside_its_name_and_the_terminal_obeys_none_of_it() {
        let mut report = golden();
        let text = tables(&report, Style::default());
        assert!(text.contains("eth0  (uplink to ACME)  xdp-native"), "{text}");
        assert!(text.contains("VIEW dscp: eth0 (uplink to ACME), ingress"), "{text}");
        report.interfaces[0].alias = Some("up\u{202e}\x1b[2J".to_owned() + &"x".repeat(255));
        let key = serde_json::json!({"interface": "eth0", "direction": "ingress"});
        let view = &mut report.views[0];
        view.by = vec!["interface".to_owned(), "direction".to_owned()];
        view.rows.as_mut().unwrap()[0].key = key.as_object().unwrap().clone();
        let text = tables(&report, Style::default());
        let shown = format!("(up\u{fffd}\u{fffd}[2J{}…)", "x".repeat(ALIAS_MAX - 7));
        assert!(text.contains(&format!("eth0  {shown}  xdp-native")), "{text}");
        assert!(text.contains(&format!("eth0 {shown}  ingress ")), "{text}");
        let heading = text.lines().find(|line| line.starts_with("     interface")).unwrap();
        assert_eq!(heading.matches("direction").count(), 1, "{heading}");
    }

    #[test]
    fn a_flow_and_a_service_are_named_by_the_port_of_the_service() {
        let flow = |src_port, dst_port| {
            let flow = TopFlow { src_port, dst_port, ..golden().top.flows[0].clone() };
            flow_entry(&flow).what
        };
        assert_eq!(flow(443, 50_000), ["tcp (https)", "192.0.2.1:443", "→ 198.51.100.7:50000"]);
        assert_eq!(flow(50_000, 22), ["tcp (ssh)", "192.0.2.1:50000", "→ 198.51.100.7:22"]);
        assert_eq!(flow(1, 443), ["tcp", "192.0.2.1:1", "→ 198.51.100.7:443"], "443 is not the service here");
        assert_eq!([service("udp", 443), service("udp", 22), service("253", 0)], ["udp/443 (https)", "udp/22", "253"]);
    }

    #[test]
    fn a_ledger_that_does_not_balance_says_so() {
        let mut report = golden();
        assert!(!tables(&report, Style::default()).contains("balanced: NO"));
        report.interfaces[0].ledger.attributed.packets -= 1;
        let text = tables(&report, Style { color: true });
        assert!(text.contains("\x1b[31mbalanced: NO\x1b[0m"), "{text}");
        assert_eq!(text.matches("balanced: yes").count(), 1, "the other interface");
    }

    #[test]
    fn colour_is_on_request_only_and_changes_no_text() {
        let mut colored = tables(&golden(), Style { color: true });
        for sgr in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"] {
            assert!(colored.contains(sgr), "{sgr:?}");
            colored = colored.replace(sgr, "");
        }
        let mut plain = Vec::new();
        write_tables(&golden(), &mut plain).unwrap();
        assert_eq!(colored.as_bytes(), plain);
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        let mut report = golden();
        let source = report.top.sources[0];
        report.top.sources = vec![source; ROWS_MAX + 3];
        let text = tables(&report, Style::default());
        assert!(text.contains("… and 3 more in the report's JSON"), "{text}");
    }

    #[test]
    fn a_window_without_packets_has_tables_too() {
        let mut report = golden();
        let nothing = Distinct { value: 0, lower: 0, upper: 0, confidence: 0.95 };
        report.interfaces.clear();
        report.totals = Totals::default();
        report.unique = Unique { src_ip: nothing, dst_ip: nothing, flows: nothing };
        report.histograms.packet_size_bytes = Histogram::default();
        report.window.seconds = 0.0;
        for top in [&mut report.top, &mut report.top_by_packets] {
            (top.flows, top.sources, top.destinations) = (Vec::new(), Vec::new(), Vec::new());
            (top.pairs, top.services) = (Vec::new(), Vec::new());
            (top.source_prefixes, top.destination_prefixes) = (Vec::new(), Vec::new());
        }
        let text = tables(&report, Style::default());
        assert!(text.contains("TOP FLOWS BY BYTES   none\n") && text.contains("PACKET SIZES   none\n"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn bars_grow_with_their_share() {
        assert_eq!((bar(0.0), bar(1e-9), bar(0.5)), (String::new(), "▏".to_owned(), "█".repeat(BAR / 2)));
        assert_eq!((bar(1.0), bar(f64::NAN)), ("█".repeat(BAR), String::new()));
    }
}
