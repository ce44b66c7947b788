//! A report as tables for a terminal of 80 to 200 columns: the whole report, or one screen.
//!
//! `overview` is the screen, and `short` has its lists. `accounts` has the exact numbers, `horizons` those that need
//! a local key, `lists` the top lists, `rows`
//! the rows of views, `sizes` the packet sizes. `words` formats numbers and names.

mod accounts;
mod horizons;
mod lists;
mod overview;
mod rows;
mod short;
mod sizes;
mod words;

use std::{
    io::{self, Write},
    os::fd::AsFd,
};

use weir_system::{
    numbers::{bit_rate, grouped, packet_rate},
    terminal,
};

use self::{
    accounts::{chart, costs, distinct, ledgers, quantiles, shares},
    lists::{Ranking, lists},
    rows::Rows,
    words::{Aliases, aliases, confidence_text, entropy_text},
};
pub use self::{
    overview::{write_overview, write_union_overview},
    short::write_talkers,
};
use super::{
    Account, Gap, Length, NOT_MEASURED, Observer, PastAlert, Report, Row, Spread, Strays, Sums, Top, Totals, Union,
    View, Window, alert,
    grid::{
        self,
        Align::Left,
        Cell, Grid,
        Tone::{Alarm, Faint, Plain, Strong},
    },
    lists::{ListName, name_of},
    rates, usage,
};

/// The style of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// True to make headings bold, captions faint and problems red.
    pub color: bool,
    /// The number of columns. At least [`Style::WIDTH_MIN`] and at most [`Style::WIDTH_MAX`] are used.
    pub width: usize,
    /// How many lines an overview may have; `None` for any number.
    pub lines: Option<usize>,
}

impl Style {
    /// Tables need this many columns.
    pub const WIDTH_MIN: usize = 80;
    /// Longer lines are hard to read.
    pub const WIDTH_MAX: usize = 200;

    /// The style for this output, which may be a terminal.
    pub fn of_terminal(out: impl AsFd, is_terminal: bool) -> Self {
        let size = terminal::size(out).filter(|_| is_terminal);
        Self {
            color: terminal::has_colors(is_terminal),
            width: size.map_or(Self::default().width, |size| size.columns),
            lines: size.map(|size| size.lines),
        }
    }

    /// The width in which tables are drawn.
    fn columns(self) -> usize {
        self.width.clamp(Self::WIDTH_MIN, Self::WIDTH_MAX)
    }
}

/// The style of a file or pipe.
impl Default for Style {
    fn default() -> Self {
        Self { color: false, width: 100, lines: None }
    }
}

/// Writes the whole report as tables.
///
/// # Errors
/// `out` cannot be written to.
pub fn write_tables(report: &Report, style: Style, out: &mut impl Write) -> io::Result<()> {
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
        horizons,
        new_hosts,
        top,
        top_by_packets,
        spread,
        views,
        answers,
        usage,
        rates: each_second,
        histograms,
        // The sketches are for machines.
        sketches: _,
        self_metrics,
        sample: _,
    } = report;
    let mut page = Page { style, together: false, out };
    page.head(observer, window, id)?;
    page.remarks(&remarks(window, totals, &Account::of(interfaces)))?;
    if !alerts.is_empty() {
        page.section("ALERTS", "", &alert::grid(alerts))?;
    }
    page.section("INTERFACES", "", &ledgers(interfaces))?;
    page.section("TRAFFIC", &mean_rates(totals, window), &shares(totals))?;
    if !usage.is_empty() {
        page.section("USAGE", "of the month so far, both directions together", &usage::grid(usage))?;
    }
    if !each_second.is_empty() {
        page.section("RATES", "in each second", &rates::grid(each_second))?;
    }
    page.section("DISTINCT AND NEW", "", &distinct(unique, new_flows, false))?;
    if !horizons.is_empty() {
        page.section("HORIZONS", "distinct, up to the end of this window", &horizons::horizons(horizons))?;
    }
    if let Some(new) = new_hosts {
        page.section("NEW HOSTS", "", &horizons::new_hosts(new))?;
    }
    for top in [top, top_by_packets] {
        page.top(top, totals, window)?;
        page.prefixes(top, totals, window)?;
    }
    page.spread(spread)?;
    let aliases = aliases(interfaces);
    for view in views {
        page.view(view, window, &aliases)?;
    }
    if !answers.is_empty() {
        page.answers("", answers, window.seconds)?;
    }
    let all = &histograms.packet_size_bytes;
    page.section("PACKET SIZES", &quantiles(all), &chart(all))?;
    if let Some(grid) = sizes::grid(interfaces) {
        page.section("PACKET SIZES OF EACH INTERFACE", "shares of its packets, by bytes", &grid)?;
    }
    let seen = interfaces.iter().map(|of| of.ledger.seen.packets).sum();
    page.section("WEIR ITSELF", "", &costs(self_metrics, window, seen))
}

/// Writes the whole union of several windows as tables.
///
/// # Errors
/// `out` cannot be written to.
pub fn write_union(union: &Union, style: Style, out: &mut impl Write) -> io::Result<()> {
    let Union {
        schema: _,
        reports,
        window,
        observer,
        addresses: _,
        interfaces,
        totals,
        unique,
        new_flows,
        top,
        top_by_packets,
        views,
        left_out,
        changed,
        fired,
        alerts,
        windows,
        largest_packet_bytes: _,
        missing,
        reaches_back_to,
    } = union;
    let mut page = Page { style, together: true, out };
    page.head(observer, window, &several(reports, *windows, *reaches_back_to))?;
    page.remarks(&remarks(window, totals, &Account::of(interfaces)))?;
    page.remarks(&missing.iter().map(missed).collect::<Vec<_>>())?;
    page.remarks(&self::fired(fired, alerts).collect::<Vec<_>>())?;
    page.section("INTERFACES", "", &ledgers(interfaces))?;
    page.section("TRAFFIC", &mean_rates(totals, window), &shares(totals))?;
    page.section("DISTINCT AND NEW", "", &distinct(unique, new_flows, true))?;
    page.top(top, totals, window)?;
    page.top(top_by_packets, totals, window)?;
    let aliases = aliases(interfaces);
    for view in views {
        page.view(view, window, &aliases)?;
    }
    if !left_out.is_empty() {
        let mut grid = Grid::new([Left]);
        let others: Vec<&str> = left_out.iter().filter(|name| !changed.contains(name)).map(String::as_str).collect();
        if !others.is_empty() {
            let why = "their counts cannot be added up, or not every window has them";
            grid.across([Cell::from(format!("{}: {why}", others.join(", ")))]);
        }
        if !changed.is_empty() {
            grid.across([Cell::from(format!("{}: {CHANGED}", changed.join(", ")))]);
        }
        page.section("VIEWS LEFT OUT", "", &grid)?;
    }
    Ok(())
}

/// Why the answers of a view do not belong together.
const CHANGED: &str = "the question was not the same in all windows";

/// The alerts that were firing, each with its evidence. Of some, earlier versions kept only the names of the rules.
fn fired<'a>(rules: &'a [String], alerts: &'a [PastAlert]) -> impl Iterator<Item = String> + 'a {
    let without = rules.iter().filter(|rule| alerts.iter().all(|alert| alert.rule != **rule));
    let names: Vec<&str> = without.map(String::as_str).collect();
    let named = (!names.is_empty()).then(|| format!("ALERTS fired: {}", names.join(", ")));
    alerts.iter().map(PastAlert::told).chain(named)
}

/// Names the windows of a union.
fn several(reports: &[String], windows: u64, since: Option<jiff::Timestamp>) -> String {
    let windows = match reports {
        [only] => format!("1 window   {only}"),
        [first, .., last] => format!("{windows} windows   {first} to {last}"),
        [] => "no window".to_owned(),
    };
    since.map_or_else(|| windows.clone(), |since| format!("{windows}   weir remembers since {since:.0}"))
}

/// Writes the answers for keys in a window.
///
/// # Errors
/// `out` cannot be written to.
pub fn write_answers(window: &Window, answers: &[Row], style: Style, out: &mut impl Write) -> io::Result<()> {
    let mut page = Page { style, together: false, out };
    page.answers(&interval(window), answers, window.seconds)
}

/// The output for sections.
struct Page<'a, W> {
    style: Style,
    /// True if the page is about several windows. Then a value covers only the windows that list its key, and only
    /// bounds are shown.
    together: bool,
    out: &'a mut W,
}

impl<W: Write> Page<'_, W> {
    fn head(&mut self, observer: &Observer, window: &Window, what: &str) -> io::Result<()> {
        self.heading(&[Cell::new(named(observer), Strong), Cell::new(interval(window), Strong)])?;
        self.heading(&[Cell::new(format!("weir {}", observer.version), Faint), Cell::new(what, Faint)])
    }

    fn heading(&mut self, cells: &[Cell]) -> io::Result<()> {
        for line in grid::heading(cells, self.style.columns(), self.style.color) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn remarks(&mut self, remarks: &[String]) -> io::Result<()> {
        for remark in remarks {
            self.heading(&[Cell::new(remark, Alarm)])?;
        }
        Ok(())
    }

    /// The answers for the requested keys: sums first, then counts.
    fn answers(&mut self, remark: &str, answers: &[Row], seconds: Length) -> io::Result<()> {
        let (sums, counts): (Vec<&Row>, Vec<&Row>) = answers.iter().partition(|row| row.bytes.is_some());
        if !sums.is_empty() || counts.is_empty() {
            self.section("ANSWERS", remark, &rows::answers(&sums, seconds))?;
        }
        if !counts.is_empty() {
            self.section("COUNTS", remark, &rows::counts(&counts))?;
        }
        Ok(())
    }

    fn section(&mut self, title: &str, remark: &str, grid: &Grid) -> io::Result<()> {
        writeln!(self.out)?;
        self.heading(&[Cell::new(title, Strong), Cell::new(remark, Plain)])?;
        grid.write_within(self.style.columns(), self.style.color, self.out)
    }

    fn spread(&mut self, spread: &Spread) -> io::Result<()> {
        let remark = format!("± for the whole list at {}", confidence_text(spread.confidence));
        for (list, rows) in spread.lists() {
            let ListName { title, counted, .. } = name_of(list);
            let counted = counted.unwrap_or_default();
            self.section(title, if rows.is_empty() { "none" } else { &remark }, &rows::spread(counted, rows))?;
        }
        Ok(())
    }

    fn view(&mut self, view: &View, window: &Window, aliases: &Aliases<'_>) -> io::Result<()> {
        for ViewList { title, rows, total } in view_lists(view, aliases) {
            let title = format!("VIEW {title}");
            let remark = match view.confidence {
                1.0.. => "± always holds".to_owned(),
                confidence => format!("± for the whole list at {}", confidence_text(confidence)),
            };
            let remark = if rows.is_empty() { "nothing matched" } else { &remark };
            let remark = if self.together && !rows.is_empty() {
                &format!("{remark}; a value counts only windows that list its key")
            } else {
                remark
            };
            let of_view = Rows { rows, total, seconds: window.seconds };
            let mut grid = rows::grid(view, of_view, aliases, self.style.columns());
            if let Some(entropy) = &view.entropy {
                grid.across([Cell::from(entropy_text(entropy))]);
            }
            self.section(&title, remark, &grid)?;
        }
        if view.tables.as_ref().is_some_and(Vec::is_empty) {
            self.section(&format!("VIEW {}", view.name), "nothing matched", &Grid::new([Left]))?;
        }
        Ok(())
    }

    fn top(&mut self, top: &Top, totals: &Totals, window: &Window) -> io::Result<()> {
        let ranking = Ranking { by: &top.by, totals, seconds: window.seconds, together: self.together };
        let remark = remark_of(top.sampling, top.confidence);
        for (list, entries) in lists(top) {
            let title = format!("TOP {} BY {}", name_of(list).title, top.by.to_uppercase());
            let remark = if entries.is_empty() { "none" } else { &remark };
            self.section(&title, remark, &ranking.grid(&entries, self.style.columns()))?;
        }
        Ok(())
    }

    fn prefixes(&mut self, top: &Top, totals: &Totals, window: &Window) -> io::Result<()> {
        let ranking = Ranking { by: &top.by, totals, seconds: window.seconds, together: self.together };
        // The traffic of unlisted hosts also depends on the bounds of the list of hosts: see `TopPrefix::beyond`.
        let both = (1.0 - 2.0 * (1.0 - top.confidence)).max(0.0);
        let remark = remark_of(top.sampling, both);
        for (list, prefixes) in top.prefixes() {
            let title = format!("TOP {} BY {}", name_of(list).title, top.by.to_uppercase());
            let remark = if prefixes.is_empty() { "none" } else { &remark };
            self.section(&title, remark, &ranking.prefixes(prefixes))?;
        }
        Ok(())
    }
}

/// The rows of a view, or those of one interface.
struct ViewList<'a> {
    title: String,
    rows: &'a [Row],
    total: Option<&'a Sums>,
}

fn view_lists<'a>(view: &'a View, aliases: &Aliases<'_>) -> Vec<ViewList<'a>> {
    let View { name, total, rows, tables, .. } = view;
    let one = rows.iter().map(|rows| ViewList { title: name.clone(), rows, total: total.as_ref() });
    let each = tables.iter().flatten().map(|table| {
        let direction = table.direction.as_ref().map_or(String::new(), |direction| format!(", {direction}"));
        let title = format!("{name}: {}{direction}", aliases.show(&table.interface));
        ViewList { title, rows: &table.rows, total: table.total.as_ref() }
    });
    one.chain(each).collect()
}

/// The observer, with its site.
fn named(Observer { name, site, .. }: &Observer) -> String {
    site.as_ref().map_or_else(|| name.clone(), |site| format!("{name} at {site}"))
}

/// Explains the bounds of these lists.
fn remark_of(sampling: u32, confidence: f64) -> String {
    match confidence {
        1.0.. => "± always holds".to_owned(),
        confidence => {
            format!("one packet in {sampling} sampled, ± for the whole list at {}", confidence_text(confidence))
        }
    }
}

fn interval(window: &Window) -> String {
    let Window { start, end, seconds, .. } = window;
    let [start, end] = [start, end].map(|time| time.round(jiff::Unit::Millisecond).unwrap_or(*time));
    let format = if day(&start) == day(&end) { "%H:%M:%S%.f" } else { "%Y-%m-%d %H:%M:%S%.f" };
    let seconds = match seconds.seconds() {
        Some(seconds) => format!("{} s", (seconds * 1e3).round() / 1e3),
        None => "too short for rates".to_owned(),
    };
    format!("{} – {} UTC ({seconds})", start.strftime("%Y-%m-%d %H:%M:%S%.f"), end.strftime(format))
}

fn day(time: &jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// Returns remarks that a reader needs before the numbers of a window.
fn remarks(window: &Window, totals: &Totals, account: &Account) -> Vec<String> {
    let Window { start: _, end: _, seconds: _, clock_step_seconds, late_packets, untimed_packets, strays } = *window;
    let mut remarks = Vec::new();
    if totals.packets == 0 {
        remarks.push(match late_packets {
            _ if account.is_nothing() => {
                let all: Vec<_> = account.unmeasured().iter().map(String::as_str).collect();
                format!("{NOT_MEASURED}: nothing is known about {}", all.join(", "))
            }
            None if !account.is_whole() => "no packets on the interfaces that weir measured".to_owned(),
            Some(_) => "no packets: the capture has none, so this window covers no time".to_owned(),
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
    if let Some(untimed @ 1..) = untimed_packets {
        remarks.push(format!("packets without a time: {}, which are in no second", grouped(untimed)));
    }
    if let Some(Strays { packets, earliest, latest }) = strays {
        let [earliest, latest] = [earliest, latest].map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string());
        let times = if earliest == latest { earliest } else { format!("{earliest} – {latest}") };
        remarks.push(format!("strays: {} packets whose time is far from all others, {times} UTC", grouped(packets)));
    }
    remarks
}

/// A message about a requested time without windows.
fn missed(Gap { start, end }: &Gap) -> String {
    let seconds = end.duration_since(*start).as_secs_f64();
    let window = Window { start: *start, end: *end, seconds: Length::new(seconds), ..Window::default() };
    format!("no data for {}", interval(&window))
}

fn mean_rates(totals: &Totals, window: &Window) -> String {
    let Totals { packets, bytes, .. } = totals;
    let rate = |value: u64, rate: fn(u64, f64) -> String| {
        window.seconds.rate_text(value, rate).map_or_else(String::new, |text| format!(" ({text})"))
    };
    let (packet_rate, bit_rate) = (rate(*packets, packet_rate), rate(*bytes, bit_rate));
    format!("{} packets{packet_rate}, {} bytes{bit_rate}", grouped(*packets), grouped(*bytes))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Bounds, Distinct, Histogram, TopFlow, Uncertain, Unique},
        accounts::{BAR, bar},
        lists::{ROWS_MAX, what},
        words::{ALIAS_MAX, service},
        *,
    };
    use expect_test::expect_file;

    fn golden() -> Report {
        serde_json::from_str(include_str!("../../tests/golden/report.json")).unwrap()
    }

    fn tables(report: &Report, style: Style) -> String {
        let mut out = Vec::new();
        write_tables(report, style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_golden_report_has_its_golden_tables() {
        let text = tables(&golden(), Style::default());
        expect_file!["../../tests/golden/report.txt"].assert_eq(&text);
    }

    fn overview(report: &Report, width: usize, lines: Option<usize>) -> String {
        let mut out = Vec::new();
        write_overview(report, Style { width, lines, ..Style::default() }, "--full shows all", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// Returns the golden report with these addresses, which may be long or short.
    fn with_addresses([src_ip, dst_ip]: [&str; 2]) -> Report {
        let mut report = golden();
        let [src_ip, dst_ip] = [src_ip, dst_ip].map(|address| address.parse().unwrap());
        let top = &mut report.top;
        for flow in &mut top.flows {
            (flow.src_ip, flow.dst_ip) = (src_ip, dst_ip);
        }
        for pair in &mut top.pairs {
            (pair.src_ip, pair.dst_ip) = (src_ip, dst_ip);
        }
        for source in &mut top.sources {
            source.src_ip = src_ip;
        }
        for destination in &mut top.destinations {
            destination.dst_ip = dst_ip;
        }
        report
    }

    const SHORT: [&str; 2] = ["192.0.2.1", "198.51.100.77"];
    const LONG: [&str; 2] = ["2001:db8:1111:2222:3333:4444:5555:6666", "2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff"];

    #[test]
    fn nothing_that_is_not_measured_is_shown_as_zero() {
        let mut report = golden();
        report.totals = Totals::default();
        report.window.late_packets = None;
        for (interface, mode) in report.interfaces.iter_mut().zip(["detached", "absent"]) {
            mode.clone_into(&mut interface.mode);
            (interface.ledger.seen, interface.ledger.attributed, interface.ledger.sampled_out) = Default::default();
            interface.ledger.skipped.clear();
            interface.ledger.lost.clear();
        }
        let text = overview(&report, 120, None);
        for words in [
            "not measured: nothing is known about eth0 (detached), wan0.100 (absent)",
            "TRAFFIC   not measured",
            "TRUST   kept unknown",
            "attached 0 of 2   not measured: eth0 (detached), wan0.100 (absent)",
            "DISTINCT   not measured",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
        let head = text.split("SOURCES").next().unwrap();
        assert!(!head.contains(" 0 bit/s") && !head.contains("weir saw none"), "{text}");
        let text = tables(&report, Style { width: 120, ..Style::default() });
        assert!(text.contains("balanced: yes  not measured") && !text.contains("kept 100.0 %"), "{text}");
        // One of two is measured: totals are lower bounds.
        let mut part = golden();
        "detached".clone_into(&mut part.interfaces[1].mode);
        let text = overview(&part, 120, None);
        assert!(text.contains("TRAFFIC   at least   729.9 Mbit/s"), "{text}");
        let line = text.lines().find(|line| line.starts_with("  wan0.100")).unwrap();
        assert!(
            line.contains("40.0 MB") && !line.contains("bit/s"),
            "of a part of the window there is no rate: {line}"
        );
    }

    #[test]
    fn windows_together_show_no_rate_of_an_interface_that_was_not_measured_in_all() {
        let mut detached = golden();
        "detached".clone_into(&mut detached.interfaces[0].mode);
        let union = Union::of(&[detached, golden()]).unwrap();
        assert_eq!(union.interfaces[0].unmeasured_seconds, Some(10.0));
        let mut out = Vec::new();
        write_union_overview(&union, Style { width: 120, ..Style::default() }, "", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = text.lines().find(|line| line.starts_with("  eth0")).unwrap();
        assert!(!line.contains("bit/s"), "{line}");
        assert!(text.contains("attached 1 of 2   not measured: eth0 (for 10 s)"), "{text}");
    }

    #[test]
    fn shares_say_of_what_they_are() {
        let text = overview(&golden(), 120, None);
        for title in ["SOURCES   ± 40.3 kbit/s   % of all", "PROTOCOLS   ± 7.5 kpkt/s   % of all"] {
            assert!(text.contains(title), "{title}:\n{text}");
        }
        assert!(text.contains("VIEW web_by_server   ± 10.1 kbit/s   % of view"), "{text}");
        assert!(text.contains("VIEW scanners   distinct ± 820\n") || !text.contains("distinct ± 820   %"), "{text}");
        let text = tables(&golden(), Style { width: 200, ..Style::default() });
        assert!(text.contains("of all") && text.contains("of view") && !text.contains("share  "), "{text}");
    }

    #[test]
    fn the_golden_report_has_its_golden_overview() {
        let mut quiet = with_addresses(SHORT);
        quiet.alerts.clear();
        quiet.interfaces.truncate(1);
        quiet.window.clock_step_seconds = None;
        let small = overview(&quiet, 80, Some(24));
        expect_file!["../../tests/golden/overview-80x24.txt"].assert_eq(&small);
        let large = overview(&golden(), 120, Some(50));
        expect_file!["../../tests/golden/overview-120x50.txt"].assert_eq(&large);
    }

    #[test]
    fn an_overview_fits_the_screen_and_has_the_lists_that_matter_most() {
        for addresses in [SHORT, LONG] {
            let mut report = with_addresses(addresses);
            report.alerts.clear();
            report.window.clock_step_seconds = None;
            (report.interfaces[1].trouble, report.interfaces[1].blind_seconds) = (None, None);
            let source = report.top.sources[0];
            report.top.sources = vec![source; 5];
            for (width, lines) in [(40, 24), (80, 24), (100, 30), (120, 40), (200, 60), (400, 60)] {
                let text = overview(&report, width, Some(lines));
                assert!(text.lines().count() < lines, "{width}x{lines}:\n{text}");
                for line in text.lines() {
                    let columns = line.chars().count();
                    assert!(columns <= width.clamp(80, 200) && line == line.trim_end(), "{width}: {line:?}");
                }
                assert!(text.contains("SOURCES ") && text.contains("SERVICES "), "{width}x{lines}:\n{text}");
            }
            // Without a limit of lines every list is shown.
            let text = overview(&report, 100, None);
            for title in ["DESTINATIONS ", "FLOWS ", "PAIRS ", "VIEW scanners", "SOURCE PREFIXES", "WITH MOST SOURCES"]
            {
                assert!(text.contains(title), "{title}:\n{text}");
            }
            assert!(!text.contains("more lists"), "{text}");
        }
    }

    #[test]
    fn a_pair_of_long_addresses_fits_a_line_of_120_columns() {
        let arrow = format!("{}  → {}", LONG[0], LONG[1]);
        for (width, is_one_line) in [(80, false), (119, true), (120, true), (200, true)] {
            let text = tables(&with_addresses(LONG), Style { width, ..Style::default() });
            let pairs = text.split("TOP PAIRS BY BYTES").nth(1).unwrap();
            assert_eq!(pairs.split("\nTOP ").next().unwrap().contains(&arrow), is_one_line, "{width}");
        }
    }

    #[test]
    fn several_windows_together_have_an_overview_of_bounds() {
        let union = Union::of(&[golden(), golden()]).unwrap();
        let mut out = Vec::new();
        write_union_overview(&union, Style::default(), "--full shows all", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("2 windows") && text.contains("SOURCES   at least, and up to "), "{text}");
    }

    #[test]
    fn slightly_more_than_full_coverage_is_shown_as_full_and_much_more_is_explained() {
        let mut report = golden();
        let mut shown = |coverage, lower, upper| {
            let of = &mut report.interfaces[0];
            (of.coverage, of.coverage_lower, of.coverage_upper) = (Some(coverage), Some(lower), Some(upper));
            tables(&report, Style { width: 200, ..Style::default() })
        };
        assert!(shown(1.006, 0.98, 1.03).contains("  coverage 100.0 %\n"));
        assert!(shown(1.06, 1.02, 1.1).contains("  coverage 106.0 %: the interface counted fewer\n"));
        assert!(shown(0.991, 0.95, 1.02).contains("  coverage 99.1 %\n"));
    }

    #[test]
    fn the_cost_of_a_live_window_is_a_share_of_a_core() {
        let mut report = golden();
        report.window.late_packets = None;
        report.self_metrics.cpu_ns_per_packet = Some(7_551.8);
        for interface in &mut report.interfaces {
            interface.ledger.seen.packets = 10_000;
        }
        let text = tables(&report, Style::default());
        assert!(text.contains("CPU, daemon  1.5 % of a core, 7.6 µs per packet"), "{text}");
    }

    #[test]
    fn remarks_about_a_window_come_before_its_numbers() {
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
        assert_eq!(said(&report)[..2], ["no packets: the capture has none, so this window covers no time", ""]);
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
        for width in [80, 100, 120, 200] {
            let text = tables(&report, Style { width, ..Style::default() });
            assert!(text.contains("tcp (ms-wbt-server)"), "the longest name of a service for TCP");
            for line in text.lines() {
                assert!(line.chars().count() <= width && line == line.trim_end(), "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn an_alias_is_shown_beside_the_interface_without_control_characters() {
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
        let shown = format!("(up\\u{{202e}}\\u{{1b}}[2J{}…)", "x".repeat(ALIAS_MAX - 19));
        assert!(text.contains(&format!("eth0  {shown}  xdp-native")), "{text}");
        assert!(text.contains(&format!("eth0 {shown}  ingress ")), "{text}");
        let heading = text.lines().find(|line| line.starts_with("     interface")).unwrap();
        assert_eq!(heading.matches("direction").count(), 1, "{heading}");
    }

    #[test]
    fn a_flow_and_a_service_are_named_by_the_port_of_the_service() {
        let flow = |src_port, dst_port| {
            let flow = TopFlow { src_port, dst_port, ..golden().top.flows[0].clone() };
            what(flow.in_list().key)
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
        let text = tables(&report, Style { color: true, ..Style::default() });
        assert!(text.contains("\x1b[31mbalanced: NO\x1b[0m"), "{text}");
        assert_eq!(text.matches("balanced: yes").count(), 1, "the other interface");
    }

    #[test]
    fn uncertain_packets_have_bounds() {
        let mut report = golden();
        assert!(!tables(&report, Style::default()).contains("uncertain"));
        let bounds = |lower, upper| Bounds { lower, upper };
        report.interfaces[0].ledger.uncertain = Some(Uncertain { packets: bounds(3, 4), bytes: bounds(300, 7_410) });
        let text = tables(&report, Style::default());
        let words = |part: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(part)).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("of these uncertain, at least")[5..7], ["3", "300"]);
        assert_eq!(words("at most")[2..4], ["4", "7,410"]);
    }

    #[test]
    fn colour_is_off_by_default_and_changes_no_text() {
        let mut colored = tables(&golden(), Style { color: true, ..Style::default() });
        for sgr in ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"] {
            assert!(colored.contains(sgr), "{sgr:?}");
            colored = colored.replace(sgr, "");
        }
        let mut plain = Vec::new();
        write_tables(&golden(), Style::default(), &mut plain).unwrap();
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
        report.window.seconds = Length::default();
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
