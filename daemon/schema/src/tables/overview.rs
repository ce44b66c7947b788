//! One screen of a report: totals, their reliability, the interfaces, and the first rows of each list, side by side.

use std::io::{self, Write};

use weir_system::numbers::{bit_rate, bytes, count, packet_rate, percent};

use super::{
    super::{
        Account, Alert, Gap, Interface, NOT_MEASURED, NewFlows, Observer, PastAlert, Report, Spread, Top, Totals,
        Union, Unique, View, Window,
        grid::{
            self,
            Align::{Left, Right},
            Cell, Grid, Line,
            Tone::{Alarm, Faint, Plain, Strong},
        },
        is_measured,
    },
    CHANGED, Style,
    accounts::{is_range, judged},
    interval, missed, named, remarks, several,
    short::{self, ShortList},
    words::{ALIAS_MAX, off, ratio, shortened},
};

/// How many alerts are shown.
const ALERTS_MAX: usize = 3;
/// One line in this many is for an interface; at least one interface is shown.
const LINES_PER_INTERFACE: usize = 6;
/// How many interfaces are shown if the number of lines is not limited.
const INTERFACES_MAX: usize = 8;
/// The lines below the lists: an empty line, and how to see the whole report.
const LAST: usize = 2;
/// The line of the shell's prompt.
const PROMPT: usize = 1;

/// Writes the overview of a report. `more` says how to see the whole report.
///
/// # Errors
/// Those of `out`.
pub fn write_overview(report: &Report, style: Style, more: &str, out: &mut impl Write) -> io::Result<()> {
    let overview = Overview {
        observer: &report.observer,
        window: &report.window,
        what: String::new(),
        missing: &[],
        fired: &[],
        past: &[],
        changed: &[],
        alerts: &report.alerts,
        interfaces: &report.interfaces,
        totals: &report.totals,
        unique: &report.unique,
        new_flows: &report.new_flows,
        top: &report.top,
        views: &report.views,
        spread: Some(&report.spread),
        together: false,
    };
    overview.write(style, more, out)
}

/// Writes the overview of several windows together.
///
/// # Errors
/// Those of `out`.
pub fn write_union_overview(union: &Union, style: Style, more: &str, out: &mut impl Write) -> io::Result<()> {
    let overview = Overview {
        observer: &union.observer,
        window: &union.window,
        what: several(&union.reports, union.windows, union.reaches_back_to),
        missing: &union.missing,
        fired: &union.fired,
        past: &union.alerts,
        changed: &union.changed,
        alerts: &[],
        interfaces: &union.interfaces,
        totals: &union.totals,
        unique: &union.unique,
        new_flows: &union.new_flows,
        top: &union.top,
        views: &union.views,
        spread: None,
        together: true,
    };
    overview.write(style, more, out)
}

struct Overview<'a> {
    observer: &'a Observer,
    window: &'a Window,
    /// The names of the windows, if there are several.
    what: String,
    /// Requested times without windows.
    missing: &'a [Gap],
    /// The rules whose alerts were firing in any of several windows.
    fired: &'a [String],
    /// These with their evidence.
    past: &'a [PastAlert],
    /// The views whose question was not the same in all of them.
    changed: &'a [String],
    alerts: &'a [Alert],
    interfaces: &'a [Interface],
    totals: &'a Totals,
    unique: &'a Unique,
    new_flows: &'a NewFlows,
    top: &'a Top,
    views: &'a [View],
    spread: Option<&'a Spread>,
    /// True if only bounds of rows are known.
    together: bool,
}

impl Overview<'_> {
    fn write(&self, style: Style, more: &str, out: &mut impl Write) -> io::Result<()> {
        let mut lines = self.head(style);
        let room = style.lines.map(|all| all.saturating_sub(lines.len() + LAST + PROMPT));
        let (lists, left_out) = short::beside(&self.lists(), style, room);
        lines.extend(lists);
        let left_out = if left_out > 0 { format!("{left_out} more lists") } else { String::new() };
        if !(left_out.is_empty() && more.is_empty()) {
            lines.push(Line::default());
            let last = [Cell::new(left_out, Faint), Cell::new(more, Faint)];
            lines.extend(grid::heading(&last, style.columns(), style.color));
        }
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn head(&self, style: Style) -> Vec<Line> {
        let version = Cell::new(format!("weir {}", self.observer.version), Faint);
        let title = [Cell::new(named(self.observer), Strong), Cell::new(interval(self.window), Strong), version];
        let account = Account::of(self.interfaces);
        let mut paragraphs = vec![title.to_vec()];
        if !self.what.is_empty() {
            paragraphs.push(vec![Cell::new(&self.what, Faint)]);
        }
        let missed = self.missing.iter().map(missed).chain(super::fired(self.fired, self.past));
        let changed = self.changed.iter().map(|view| format!("view {view} left out: {CHANGED}"));
        let remarks = remarks(self.window, self.totals, &account).into_iter().chain(missed).chain(changed);
        paragraphs.extend(remarks.map(|remark| vec![Cell::new(remark, Alarm)]));
        paragraphs.extend(self.alerts());
        paragraphs.extend([self.traffic(&account), trust(&account), self.distinct(&account)]);
        let mut lines = Vec::new();
        for paragraph in paragraphs {
            lines.extend(grid::heading(&paragraph, style.columns(), style.color));
        }
        let most = style.lines.map_or(INTERFACES_MAX, |lines| (lines / LINES_PER_INTERFACE).max(1));
        lines.extend(self.interfaces(most).lines(style.columns(), style.color));
        lines
    }

    fn alerts(&self) -> Vec<Vec<Cell>> {
        let one = |alert: &Alert| {
            let Alert { rule, when, state, evidence, unit, .. } = alert;
            let is_on = matches!(state.as_str(), "firing" | "clearing");
            let number = evidence.first().map(|first| format!("{} {}", first.holder(), first.amount(unit.as_deref())));
            vec![
                Cell::new(format!("ALERT {rule}: {state}"), if is_on { Alarm } else { Strong }),
                Cell::new(when, Plain),
                Cell::new(number.unwrap_or_default().trim(), Plain),
            ]
        };
        let mut alerts: Vec<_> = self.alerts.iter().take(ALERTS_MAX).map(one).collect();
        if self.alerts.len() > ALERTS_MAX {
            alerts.push(vec![Cell::new(format!("… and {} more alerts", self.alerts.len() - ALERTS_MAX), Alarm)]);
        }
        alerts
    }

    fn traffic(&self, account: &Account) -> Vec<Cell> {
        let Totals { packets, bytes, .. } = *self.totals;
        let mut cells = vec![Cell::new("TRAFFIC", Strong)];
        if account.is_nothing() {
            cells.push(Cell::new(NOT_MEASURED, Alarm));
            return cells;
        }
        if !account.is_whole() {
            cells.push(Cell::from("at least"));
        }
        if let Some(seconds) = self.window.seconds.seconds() {
            cells.push(Cell::new(bit_rate(bytes, seconds), Strong));
            cells.push(Cell::new(packet_rate(packets, seconds), Plain));
        }
        cells.push(Cell::from(format!("{}, {} packets", self::bytes(bytes), count(packets))));
        cells
    }

    fn distinct(&self, account: &Account) -> Vec<Cell> {
        if account.is_nothing() {
            return vec![Cell::new("DISTINCT", Strong), Cell::new(NOT_MEASURED, Alarm)];
        }
        let NewFlows { value, lower, upper, .. } = *self.new_flows;
        let Unique { src_ip, dst_ip, flows } = self.unique;
        let of = |one: &super::super::Distinct| [one.value, one.lower, one.upper];
        let numbers = [
            ("sources", of(src_ip)),
            ("destinations", of(dst_ip)),
            ("flows", of(flows)),
            ("new flows", [value, lower, upper]),
        ];
        let mut cells = vec![Cell::new("DISTINCT", Strong)];
        for (name, [value, lower, upper]) in numbers {
            let text = match (self.together && is_range([value, lower, upper]), off(value, lower, upper)) {
                (true, _) => format!("{name} {} to {}", count(lower), count(upper)),
                (_, 0) => format!("{name} {}", count(value)),
                (_, off) => format!("{name} {} ± {}", count(value), percent(ratio(off, value))),
            };
            cells.push(Cell::from(text));
        }
        cells
    }

    /// A line for each of the busiest interfaces, and their troubles.
    fn interfaces(&self, most: usize) -> Grid {
        let mut grid = Grid::new([Left, Left, Left, Right, Right, Left]);
        let mut all: Vec<&Interface> = self.interfaces.iter().collect();
        if all.len() > most {
            let is_fine = |of: &Interface| {
                let is_measured = is_measured(&of.mode) && of.unmeasured_seconds.is_none();
                is_measured && of.trouble.is_none() && of.blind_seconds.is_none() && lost_packets(of) == 0
            };
            all.sort_by_key(|of| (is_fine(of), std::cmp::Reverse(of.ledger.seen.bytes)));
        }
        for of in all.iter().take(most) {
            self.interface(of, &mut grid);
        }
        if all.len() > most {
            grid.across([Cell::new(format!("… and {} more interfaces", all.len() - most), Faint)]);
        }
        grid
    }

    fn interface(&self, of: &Interface, grid: &mut Grid) {
        let alias = of.alias.as_ref().map_or_else(String::new, |alias| format!(" ({})", shortened(alias, ALIAS_MAX)));
        let seen = &of.ledger.seen;
        let is_measured = is_measured(&of.mode);
        // Of a part of the time there is no rate.
        let is_part = !is_measured || of.unmeasured_seconds.is_some();
        let rates = match self.window.seconds.seconds().filter(|_| !is_part) {
            Some(seconds) => [bit_rate(seen.bytes, seconds), packet_rate(seen.packets, seconds)],
            None if is_part && seen.packets == 0 => [NOT_MEASURED.to_owned(), String::new()],
            None => [bytes(seen.bytes), format!("{} packets", count(seen.packets))],
        };
        let lost = lost_packets(of);
        let lost = if lost > 0 { format!("lost {}", count(lost)) } else { String::new() };
        let [bits, packets] = rates.map(Cell::from);
        grid.row([
            Cell::new(format!("{}{alias}", of.name), Strong),
            of.direction.as_deref().unwrap_or_default().into(),
            Cell::new(&of.mode, if is_measured { Plain } else { Alarm }),
            bits,
            packets,
            Cell::new(lost, Alarm),
        ]);
        if let Some(seconds) = of.blind_seconds {
            grid.across([Cell::new(format!("  BLIND for up to {seconds:.1} s"), Alarm)]);
        }
        if let Some(trouble) = &of.trouble {
            grid.across([Cell::new(format!("  TROUBLE: {trouble}"), Alarm)]);
        }
    }

    /// The lists, the most important ones first.
    fn lists(&self) -> Vec<ShortList> {
        let Self { top, totals, views, window, together, .. } = *self;
        let of = short::Of { totals, seconds: window.seconds, together };
        let mut lists = of.talkers(top);
        lists.push(of.protocols());
        for view in views {
            lists.extend(of.view(view, &super::aliases(self.interfaces)));
        }
        lists.extend(of.others(top));
        if let Some(spread) = self.spread {
            lists.extend(of.spread(spread));
        }
        lists.retain(|list| !list.is_empty());
        lists
    }
}

fn lost_packets(of: &Interface) -> u64 {
    of.ledger.lost.values().fold(0, |sum, lost| sum.saturating_add(lost.packets))
}

/// The reliability of the numbers.
fn trust(account: &Account) -> Vec<Cell> {
    [Cell::new("TRUST", Strong)].into_iter().chain(account.facts(None).into_iter().map(judged)).collect()
}
