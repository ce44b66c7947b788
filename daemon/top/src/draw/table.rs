//! Draws the names of the lists, and the rows of the list that is shown. In a narrow terminal, rows have fewer columns.

use weir_schema::{Estimate, Length, Sums};
use weir_system::{
    numbers::{bytes, count, percent, scaled},
    text::escaped,
};

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
    whisker::whisker,
};
use crate::{
    list::{Amount, By, List, away},
    screen::{Row, Screen},
    text::{left, right, width},
};

// Widths in cells of the terminal.
/// The rank, with the mark of the selected row before it and the mark of an uncertain one after it.
const RANK: usize = 4;
/// A rate.
const RATE: usize = 12;
/// The bounds of a rate.
const BOUNDS: usize = 13;
/// An amount of bytes or packets.
const AMOUNT: usize = 8;
/// A share.
const SHARE: usize = 7;
/// The narrowest bar. Its scale, in the head of the list, needs this much and the gap before it.
const BAR_MIN: usize = 11;
/// The longest bar.
const BAR_MAX: usize = 48;
/// The narrowest column of keys.
const KEY_MIN: usize = 15;
/// The blanks between two columns.
const GAP: usize = 2;

/// Draws the names of all lists, with the keys that choose the first ten. The list that is shown is in brackets.
pub fn tabs(lists: &[List], nth: usize, sheet: &mut Sheet<'_>, paint: Paint) {
    let label = |(place, list): (usize, &List)| {
        let key = if place < 10 { format!("{} ", (place + 1) % 10) } else { String::new() };
        let name = escaped(&list.name);
        if place == nth { format!("[{key}{name}]") } else { format!("{key}{name}") }
    };
    let labels: Vec<String> = lists.iter().enumerate().map(label).collect();
    // Start as far left as possible, with the shown list still visible.
    let room = sheet.columns().saturating_sub(3);
    let mut first = 0;
    while first < nth && labels[first..=nth].iter().map(|label| width(label) + GAP).sum::<usize>() > room {
        first += 1;
    }
    let mut pieces = Vec::new();
    if first > 0 {
        pieces.push(Piece::new("…", paint.faint()));
    }
    let mut used = pieces.len() * 3;
    for (place, label) in labels.into_iter().enumerate().skip(first) {
        used += width(&label) + GAP;
        if used > sheet.columns() + GAP {
            break;
        }
        pieces.push(Piece::new(label, if place == nth { paint.strong() } else { paint.faint() }));
    }
    sheet.words(pieces);
}

/// How the numbers of a list are written.
pub struct Measure<'l> {
    list: &'l List,
    /// The order of the list.
    pub by: By,
    seconds: Length,
}

impl<'l> Measure<'l> {
    /// Writes the numbers of this list, which is in this order.
    pub const fn new(list: &'l List, by: By) -> Self {
        Self { list, by, seconds: list.seconds }
    }

    /// A number in the list's own unit.
    pub fn text(&self, number: u64) -> String {
        if self.list.counted.is_some() { count(number) } else { self.rate(number, self.by) }
    }

    /// The rate of so many bytes or packets; if there is none, their number.
    fn rate(&self, number: u64, by: By) -> String {
        match (self.seconds.rate(number as f64), by) {
            (Some(rate), By::Bytes) => scaled(rate * 8.0, "bit/s"),
            (Some(rate), By::Packets) => scaled(rate, "pkt/s"),
            (None, By::Bytes) => bytes(number),
            (None, By::Packets) => count(number),
        }
    }

    /// How far the true number may be from the estimate. For a list of lower bounds, it is the upper bound instead.
    pub fn bounds(&self, estimate: &Estimate) -> String {
        if self.list.is_floor && estimate.upper > estimate.lower {
            return self.text(estimate.upper);
        }
        away(estimate, |off| self.text(off))
    }

    /// One direction of a host.
    fn direction(&self, Sums { packets, bytes }: &Sums) -> String {
        self.text(if self.by == By::Bytes { bytes.value } else { packets.value })
    }

    /// The bytes or packets of a row, depending on the order of the list.
    pub fn amount(&self, amount: Amount) -> String {
        match (amount, self.by) {
            (Amount::Sums { bytes: sum, .. }, By::Bytes) => bytes(sum.value),
            (Amount::Sums { packets, .. }, By::Packets) => count(packets.value),
            (Amount::Count(_), _) => String::new(),
        }
    }

    /// The share of the whole, of packets and bytes.
    pub fn share(&self, amount: Amount) -> String {
        let Amount::Sums { packets, bytes } = amount else { return String::new() };
        let [all_packets, all_bytes] = self.list.whole;
        let (part, whole) = if self.by == By::Bytes { (bytes.value, all_bytes) } else { (packets.value, all_packets) };
        if whole == 0 { String::new() } else { percent(part as f64 / whole as f64) }
    }

    /// Returns what the shares are parts of.
    const fn shares_of(&self) -> &'static str {
        if self.list.is_of_view { "of view" } else { "of all" }
    }

    /// The rate of packets if bytes order the list, and the rate of bytes if packets do.
    fn other(&self, amount: Amount) -> String {
        match (amount, self.by) {
            (Amount::Sums { packets, .. }, By::Bytes) => self.rate(packets.value, By::Packets),
            (Amount::Sums { bytes, .. }, By::Packets) => self.rate(bytes.value, By::Bytes),
            (Amount::Count(_), _) => String::new(),
        }
    }

    fn caption(&self) -> String {
        let by = self.list.counted.as_deref().unwrap_or(self.order());
        let confidence = (self.list.confidence * 10_000.0).round() / 100.0;
        match confidence {
            // The bounds always hold.
            100.0 => format!("by {by}, certain"),
            _ => format!("by {by}, {confidence} % sure"),
        }
    }

    const fn order(&self) -> &'static str {
        match self.by {
            By::Bytes => "bytes",
            By::Packets => "packets",
        }
    }

    /// The heads of the columns with the number and with its bounds. With `is_mean`, that of a rate says over how many
    /// seconds it is the mean.
    fn heads(&self, is_mean: bool) -> [String; 2] {
        let number = match (self.list.is_floor, self.list.counted.is_some()) {
            (true, _) => "at least".to_owned(),
            (false, true) => "count".to_owned(),
            (false, false) => match self.seconds.seconds() {
                Some(seconds) if is_mean => format!("mean of {seconds:.0} s"),
                Some(_) => "rate".to_owned(),
                None => self.order().to_owned(),
            },
        };
        [number, if self.list.is_floor { "at most" } else { "bounds" }.to_owned()]
    }
}

/// How wide the columns are. A column of no width is left out.
struct Columns {
    key: usize,
    /// Each direction of a host.
    direction: usize,
    /// The peers of a host.
    peers: usize,
    /// True if source and destination have a line each.
    is_folded: bool,
    bounds: usize,
    amount: usize,
    other: usize,
    share: usize,
    bar: usize,
}

impl Columns {
    /// The rank, the key and the rate are always there. If the key does not fit beside them, the bar is left out, and
    /// then the share. What is left goes to the other columns and to the caption above the keys, the most useful first,
    /// and then to the bar.
    fn new(rows: &[Row], is_counted: bool, is_past: bool, caption: usize, columns: usize) -> Self {
        let share = if is_counted { 0 } else { SHARE };
        let is_of_hosts = rows.iter().any(|row| row.entry.host.is_some());
        // Both directions come before everything else but the sum.
        let fits = RANK + KEY_MIN + 3 * with_gap(RATE) <= columns;
        let direction = if is_of_hosts && fits { RATE } else { 0 };
        let taken = RANK + with_gap(RATE) + 2 * with_gap(direction);
        let room = |share, bar| columns.saturating_sub(taken + with_gap(share) + with_gap(bar));
        let flat = rows.iter().map(|row| width(&row.shown.join(" "))).max().unwrap_or(0).max(KEY_MIN);
        let folded = rows.iter().flat_map(|row| &row.shown).map(|text| width(text)).max().unwrap_or(0).max(KEY_MIN);
        let is_folded = flat > room(share, BAR_MIN) && rows.iter().any(|row| row.shown.len() > 1);
        let key = if is_folded { folded } else { flat };
        let [share, bar] = match [(share, BAR_MIN), (share, 0), (0, 0)].map(|(share, bar)| room(share, bar) >= key) {
            [true, ..] => [share, BAR_MIN],
            [_, true, _] => [share, 0],
            _ => [0, 0],
        };
        let room = room(share, bar);
        let mut key = key.min(room);
        let mut left = room - key;
        let optional = |columns: usize, left: &mut usize| {
            let takes = if columns > 0 && *left >= columns + GAP { columns } else { 0 };
            *left -= with_gap(takes);
            takes
        };
        let [of_amount, of_other] = if is_counted { [0, 0] } else { [AMOUNT, RATE] };
        let peers = optional(if is_of_hosts { AMOUNT } else { 0 }, &mut left);
        // A reader of a past span wants the amount, which comes first there. A reader of now wants the rate: for that,
        // the amount comes last.
        let amount = optional(if is_past { of_amount } else { 0 }, &mut left);
        let bounds = optional(BOUNDS, &mut left);
        let other = optional(if bounds > 0 { of_other } else { 0 }, &mut left);
        let more = caption.saturating_sub(key).min(left);
        (key, left) = (key + more, left - more);
        let amount = if is_past || bounds == 0 { amount } else { optional(of_amount, &mut left) };
        let bar = if bar == 0 { 0 } else { (bar + left).min(BAR_MAX) };
        Self { key, direction, peers, is_folded, bounds, amount, other, share, bar }
    }
}

fn with_gap(columns: usize) -> usize {
    if columns == 0 { 0 } else { columns + GAP }
}

/// Draws as many rows as fit, including the selected one.
pub fn rows(screen: &mut Screen, list: &List, sheet: &mut Sheet<'_>, paint: Paint) {
    let say = |sheet: &mut Sheet<'_>, text| {
        sheet.line([Piece::new(format!("{}{text}", " ".repeat(RANK)), paint.faint())]);
    };
    if let Some(why) = list.why_empty {
        return say(sheet, why);
    }
    if let Some(note) = list.note() {
        say(sheet, note);
    }
    let rows = screen.rows(list);
    let measure = Measure::new(list, screen.by);
    let is_past = screen.past().is_some();
    let [caption, heads] = [measure.caption(), measure.heads(!is_past)[0].clone()].map(|text| width(&text));
    let caption = (caption + 1 + heads).saturating_sub(GAP + RATE);
    let columns = Columns::new(&rows, list.counted.is_some(), is_past, caption, sheet.columns());
    let full = rows.iter().map(|row| row.entry.amount.of(screen.by).upper).max().unwrap_or(0);
    head(&measure, &columns, full, !is_past, sheet, paint);
    if rows.is_empty() {
        let is_filtered = !screen.filter.is_empty();
        return say(
            sheet,
            if is_filtered { "no row passes the filter (Esc clears it)" } else { "nothing in this list" },
        );
    }
    let fitting = (sheet.left() / if columns.is_folded { 2 } else { 1 }).max(1);
    let first = (screen.selected + 1).saturating_sub(fitting);
    for (nth, row) in rows.iter().enumerate().skip(first).take(fitting) {
        write_row(row, nth == screen.selected, &measure, (&columns, full), sheet, paint);
    }
}

fn head(measure: &Measure<'_>, columns: &Columns, full: u64, is_mean: bool, sheet: &mut Sheet<'_>, paint: Paint) {
    let [number, bounds] = measure.heads(is_mean);
    // The caption may be longer than the keys: it also has the room that the head of the rate leaves.
    let room = (columns.key + GAP + RATE).saturating_sub(width(&number) + 1);
    let mut text = format!("{}{} {number}", " ".repeat(RANK), left(&measure.caption(), room));
    text += &column(&bounds, columns.bounds);
    text += &column("down", columns.direction);
    text += &column("up", columns.direction);
    text += &column("peers", columns.peers);
    text += &column(measure.order(), columns.amount);
    text += &column(measure.shares_of(), columns.share);
    if columns.bar > 0 {
        // The scale of the bar: the number of a full one at the right end, and a 0 at the left end if it fits.
        let bar = right(&measure.text(full), columns.bar + 1);
        text += &format!(" {}", if bar.starts_with("   ") { bar.replacen("  ", " 0", 1) } else { bar });
    }
    text += &column(if measure.by == By::Bytes { "packet rate" } else { "bit rate" }, columns.other);
    sheet.line([Piece::new(text, paint.faint())]);
}

/// A column with the blanks before it; nothing if it is left out.
fn column(text: &str, columns: usize) -> String {
    if columns == 0 { String::new() } else { " ".repeat(GAP) + &right(text, columns) }
}

fn write_row(
    row: &Row,
    is_selected: bool,
    measure: &Measure<'_>,
    (columns, full): (&Columns, u64),
    sheet: &mut Sheet<'_>,
    paint: Paint,
) {
    let Row { entry, shown } = row;
    let estimate = entry.amount.of(measure.by);
    let mark = if is_selected { ">" } else { " " };
    let doubt = if entry.is_certain { " " } else { "?" };
    let key = if columns.is_folded { shown[0].clone() } else { shown.join(" ") };
    let [down, up] = [0, 1].map(|nth: usize| {
        let direction = entry.host.map(|of| [of.down, of.up][nth]);
        direction.map_or_else(String::new, |of| measure.direction(&of))
    });
    let peers = entry.host.map_or_else(String::new, |of| {
        let not_exact = if of.peers.lower == of.peers.upper { "" } else { "~" };
        format!("{not_exact}{}", count(of.peers.value))
    });
    let bar = whisker(&estimate, full, columns.bar);
    let mut pieces = vec![
        Piece::new(format!("{mark}{}{doubt}", right(&entry.rank.to_string(), RANK - 2)), paint.faint()),
        Piece::new(left(&key, columns.key), paint.plain()),
        Piece::new(column(&measure.text(estimate.value), RATE), paint.strong()),
        Piece::new(column(&measure.bounds(&estimate), columns.bounds), paint.faint()),
        Piece::new(column(&down, columns.direction), paint.plain()),
        Piece::new(column(&up, columns.direction), paint.plain()),
        Piece::new(column(&peers, columns.peers), paint.plain()),
        Piece::new(column(&measure.amount(entry.amount), columns.amount), paint.plain()),
        Piece::new(column(&measure.share(entry.amount), columns.share), paint.plain()),
        Piece::new(" ".repeat(GAP) + &left(&bar, columns.bar), paint.bar()),
    ];
    pieces.push(Piece::new(column(&measure.other(entry.amount), columns.other), paint.faint()));
    sheet.line(pieces);
    if is_selected {
        sheet.restyle(paint.selected());
    }
    if columns.is_folded {
        let below = shown.get(1).map_or("", String::as_str);
        sheet.line([Piece::new(" ".repeat(RANK) + &left(below, columns.key), paint.plain())]);
    }
}
