//! The first rows of lists, side by side.

use std::io::{self, Write};

use weir_config::view::Standard;
use weir_system::numbers::{bit_rate, bytes, count, packet_rate, percent};

use super::{
    super::{
        Bounds, Estimate, Length, Row, Spread, Top, TopPrefix, Totals, TotalsBounds, View,
        grid::{
            self,
            Align::{Left, Right},
            Cell, Grid, Line,
            Tone::{Faint, Plain, Strong},
        },
        lists::name_of,
    },
    Style, ViewList,
    lists::{Entry, lists},
    rows::key_values,
    view_lists,
    words::{Aliases, off, ratio},
};

/// The most rows of a list.
const ROWS_MAX: usize = 5;
/// The fewest rows of a list if there is little room.
const ROWS_MIN: usize = 2;
/// This many of the first lists are shown even if all lists get fewer rows for that.
const ESSENTIAL: usize = 5;
/// The blanks between two lists.
const BETWEEN: usize = 2;

/// Writes the largest sources and destinations side by side.
///
/// # Errors
/// Those of `out`.
pub fn write_talkers(
    top: &Top,
    (totals, seconds): (&Totals, Length),
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut lists = Of { totals, seconds, together: false }.named(top, [Standard::Sources, Standard::Destinations]);
    lists.retain(|list| !list.is_empty());
    // Skip the empty line before them.
    for line in beside(&lists, style, None).0.iter().skip(1) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The context of the rows.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) totals: &'a Totals,
    /// The length of the window.
    pub(super) seconds: Length,
    /// True if the lists are about several windows, for which only bounds are known.
    pub(super) together: bool,
}

/// The first rows of a list.
pub(super) struct ShortList {
    title: String,
    rows: Vec<ShortRow>,
    measure: Measure,
    /// The unit that is counted, if neither the title nor the column says it.
    counted: &'static str,
    /// Of what the shares are: of all packets or bytes, or of those that a view matched.
    shares_of: &'static str,
    together: bool,
}

struct ShortRow {
    /// The parts of the key, which may get separate lines.
    what: Vec<String>,
    value: Estimate,
    /// The total of which the value is a part; 0 if there is none.
    whole: u64,
}

/// How a number of bytes or packets is shown.
#[derive(Clone, Copy)]
enum Measure {
    /// Bytes, as bits per second over this many seconds.
    Bits(f64),
    /// Packets per second over this many seconds.
    Packets(f64),
    /// Bytes of a window without a length.
    Bytes,
    /// A number of distinct things.
    Count,
}

impl Measure {
    fn text(self, value: u64) -> String {
        match self {
            Self::Bits(seconds) => bit_rate(value, seconds),
            Self::Packets(seconds) => packet_rate(value, seconds),
            Self::Bytes => bytes(value),
            Self::Count => count(value),
        }
    }
}

impl Of<'_> {
    fn bits(&self) -> Measure {
        self.seconds.seconds().map_or(Measure::Bytes, Measure::Bits)
    }

    fn packets(&self) -> Measure {
        self.seconds.seconds().map_or(Measure::Count, Measure::Packets)
    }

    fn list(&self, title: impl Into<String>, measure: Measure, rows: Vec<ShortRow>) -> ShortList {
        ShortList { title: title.into(), rows, measure, counted: "", shares_of: "% of all", together: self.together }
    }

    fn by_bytes(&self, title: &str, entries: &[Entry]) -> ShortList {
        let row = |entry: &Entry| ShortRow { what: entry.what.clone(), value: entry.bytes, whole: self.totals.bytes };
        self.list(title, self.bits(), entries.iter().take(ROWS_MAX).map(row).collect())
    }

    /// These lists, in the order of the report.
    fn named<const N: usize>(&self, top: &Top, wanted: [Standard; N]) -> Vec<ShortList> {
        let lists = lists(top).filter(|(list, _)| wanted.contains(list));
        lists.map(|(list, entries)| self.by_bytes(name_of(list).title, &entries)).collect()
    }

    /// Hosts, sources, destinations and services.
    pub(super) fn talkers(&self, top: &Top) -> Vec<ShortList> {
        self.named(top, [Standard::Hosts, Standard::Sources, Standard::Destinations, Standard::Services])
    }

    /// Flows, pairs and prefixes.
    pub(super) fn others(&self, top: &Top) -> Vec<ShortList> {
        let mut others = self.named(top, [Standard::Flows, Standard::Pairs]);
        for (list, prefixes) in top.prefixes() {
            let title = format!("{}, UNLISTED HOSTS", name_of(list).title);
            let row = |of: &TopPrefix| ShortRow {
                what: vec![of.prefix.clone()],
                value: of.beyond.bytes,
                whole: self.totals.bytes,
            };
            others.push(self.list(title, self.bits(), prefixes.iter().take(ROWS_MAX).map(row).collect()));
        }
        others
    }

    pub(super) fn protocols(&self) -> ShortList {
        let Totals { tcp_packets, udp_packets, icmp_packets, other_packets, ipv6_packets, bounds, .. } = *self.totals;
        type BoundsOf = fn(&TotalsBounds) -> Bounds;
        let parts: [(&str, u64, BoundsOf); 5] = [
            ("TCP", tcp_packets, |bounds| bounds.tcp_packets),
            ("UDP", udp_packets, |bounds| bounds.udp_packets),
            ("ICMP", icmp_packets, |bounds| bounds.icmp_packets),
            ("other IP", other_packets, |bounds| bounds.other_packets),
            ("all of IPv6", ipv6_packets, |bounds| bounds.ipv6_packets),
        ];
        let row = |(name, value, bounds_of): (&str, u64, BoundsOf)| {
            let Bounds { lower, upper } = bounds.as_ref().map_or(Bounds { lower: value, upper: value }, bounds_of);
            let value = Estimate { value, lower, upper, sampled: None };
            ShortRow { what: vec![name.to_owned()], value, whole: self.totals.packets }
        };
        let is_there = |row: &ShortRow| row.value.value > 0;
        self.list("PROTOCOLS", self.packets(), parts.into_iter().map(row).filter(is_there).collect())
    }

    pub(super) fn view(&self, view: &View, aliases: &Aliases<'_>) -> Vec<ShortList> {
        let by_packets = view.measure == "packets";
        let list = |ViewList { title, rows, total }: ViewList<'_>| {
            let whole = total.map_or(0, |total| if by_packets { total.packets.value } else { total.bytes.value });
            let measure = match rows.first() {
                Some(Row { bytes: Some(_), .. }) if by_packets => self.packets(),
                Some(Row { bytes: Some(_), .. }) => self.bits(),
                _ => Measure::Count,
            };
            let row = |row: &Row| {
                let sums = if by_packets { row.packets } else { row.bytes };
                let value = sums.or(row.flows).or(row.new_flows).or(row.distinct).unwrap_or_default();
                ShortRow { what: vec![key_values(row, aliases)], value, whole }
            };
            let counted = match rows.first() {
                Some(Row { bytes: Some(_), .. }) => "",
                Some(Row { flows: Some(_), .. }) => "flows ",
                Some(Row { new_flows: Some(_), .. }) => "new flows ",
                Some(Row { distinct: Some(_), .. }) => "distinct ",
                _ => "",
            };
            let list = self.list(format!("VIEW {title}"), measure, rows.iter().take(ROWS_MAX).map(row).collect());
            ShortList { counted, shares_of: "% of view", ..list }
        };
        view_lists(view, aliases).into_iter().map(list).collect()
    }

    pub(super) fn spread(&self, spread: &Spread) -> Vec<ShortList> {
        let list = |(list, rows): (Standard, &[Row])| {
            let row = |row: &Row| ShortRow {
                what: vec![key_values(row, &Aliases::default())],
                value: row.distinct.unwrap_or_default(),
                whole: 0,
            };
            self.list(name_of(list).title, Measure::Count, rows.iter().take(ROWS_MAX).map(row).collect())
        };
        spread.lists().into_iter().map(list).collect()
    }
}

impl ShortList {
    pub(super) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn lines(&self, style: Style, rows: usize) -> Vec<Line> {
        let rows = &self.rows[..rows.min(self.rows.len())];
        let beside = self.grid(rows, false);
        let grid = if beside.least_width() <= style.columns() { beside } else { self.grid(rows, true) };
        let mut title = vec![Cell::new(&self.title, Strong), Cell::new(self.error(rows), Faint)];
        let has_shares = rows.iter().any(|row| row.whole > 0);
        title.extend(has_shares.then(|| Cell::new(self.shares_of, Faint)));
        let mut lines = grid::heading(&title, style.columns(), style.color);
        lines.extend(grid.lines(style.columns(), style.color));
        lines
    }

    /// The maximum error of all rows.
    fn error(&self, rows: &[ShortRow]) -> String {
        let most = rows.iter().map(|ShortRow { value, .. }| match self.together {
            true => value.upper - value.lower,
            false => off(value.value, value.lower, value.upper),
        });
        let error = match (most.max().unwrap_or(0), self.together) {
            (0, _) => "exact".to_owned(),
            (most, true) => format!("at least, and up to {} more", self.measure.text(most)),
            (most, false) => format!("± {}", self.measure.text(most)),
        };
        format!("{}{error}", self.counted)
    }

    /// A line for each row, or one for each part of its key.
    fn grid(&self, rows: &[ShortRow], is_below: bool) -> Grid {
        let mut grid = Grid::new([Left, Right, Right]).with_optional(1);
        for ShortRow { what, value, whole } in rows {
            let (beside, below) = what.split_at(if is_below { what.len().div_ceil(2).max(1) } else { what.len() });
            let value = if self.together { value.lower } else { value.value };
            let share = if *whole > 0 { percent(ratio(value, *whole)) } else { String::new() };
            grid.row([beside.join(" "), self.measure.text(value), share].map(|text| Cell::new(text, Plain)));
            for below in below {
                grid.across([Cell::from(format!("  {below}"))]);
            }
        }
        grid
    }
}

/// Puts the lists side by side in `room` lines. Also returns how many lists have no room.
pub(super) fn beside(lists: &[ShortList], style: Style, room: Option<usize>) -> (Vec<Line>, usize) {
    let mut rows = ROWS_MAX;
    while rows > ROWS_MIN && place(&lists[..ESSENTIAL.min(lists.len())], style, (rows, room)).1 > 0 {
        rows -= 1;
    }
    place(lists, style, (rows, room))
}

fn place(lists: &[ShortList], style: Style, (rows, room): (usize, Option<usize>)) -> (Vec<Line>, usize) {
    let drawn: Vec<Vec<Line>> = lists.iter().map(|list| list.lines(style, rows)).collect();
    let (mut lines, mut left_out) = (Vec::new(), 0);
    for beside in in_rows(&drawn, style.columns()) {
        let height = 1 + beside.iter().map(|nth| drawn[*nth].len()).max().unwrap_or(0);
        if room.is_some_and(|room| lines.len() + height > room) {
            left_out += beside.len();
            continue;
        }
        lines.push(Line::default());
        let blocks: Vec<&[Line]> = beside.iter().map(|nth| drawn[*nth].as_slice()).collect();
        lines.extend((0..height - 1).map(|nth| joined(&blocks, nth)));
    }
    (lines, left_out)
}

/// Decides which lists are side by side. Each list is in the first row that has room for it.
fn in_rows(drawn: &[Vec<Line>], width: usize) -> Vec<Vec<usize>> {
    let mut rows: Vec<(usize, Vec<usize>)> = Vec::new();
    for (nth, lines) in drawn.iter().enumerate() {
        let own = width_of(lines);
        match rows.iter_mut().find(|(used, _)| used + BETWEEN + own <= width) {
            Some((used, row)) => {
                *used += BETWEEN + own;
                row.push(nth);
            }
            None => rows.push((own, vec![nth])),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}

fn width_of(lines: &[Line]) -> usize {
    lines.iter().map(Line::width).max().unwrap_or(0)
}

/// The `nth` line of all blocks, each block in its place.
fn joined(blocks: &[&[Line]], nth: usize) -> Line {
    let (mut line, mut at) = (Line::default(), 0);
    for block in blocks {
        if let Some(own) = block.get(nth) {
            line.append(at - line.width(), own);
        }
        at += width_of(block) + BETWEEN;
    }
    line
}
