//! The names of the lists, and the rows of the list that is shown.

use weir_report::Estimate;
use weir_system::numbers::{count, percent, scaled};

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
    whisker::whisker,
};
use crate::{
    list::{Amount, By, List},
    screen::{Row, Screen},
    text::{clean, left, right, width},
};

/// The columns of the rank and of the mark of the selected row.
const RANK: usize = 4;
/// The columns of a rate, and of its error.
const RATE: usize = 12;
/// The columns of a share.
const SHARE: usize = 7;
/// The narrowest bar.
const BAR_MIN: usize = 12;
/// The widest bar.
const BAR_MAX: usize = 48;
/// The narrowest column of keys: its caption has to fit.
const KEY_MIN: usize = 22;
/// The blanks between two columns.
const GAP: usize = 2;

/// Draws the names of all lists, with the keys that choose the first ten. The list that is shown is in brackets.
pub fn tabs(lists: &[List], nth: usize, sheet: &mut Sheet<'_>, paint: Paint) {
    let label = |(place, list): (usize, &List)| {
        let key = if place < 10 { format!("{} ", (place + 1) % 10) } else { String::new() };
        let name = clean(&list.name);
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
    seconds: f64,
}

impl<'l> Measure<'l> {
    /// The notation for a list in this order.
    pub const fn new(list: &'l List, by: By) -> Self {
        Self { list, by, seconds: list.seconds.max(f64::MIN_POSITIVE) }
    }

    /// A number in the list's own unit.
    pub fn text(&self, number: u64) -> String {
        match (self.list.counted.is_some(), self.by) {
            (true, _) => count(number),
            (false, By::Bytes) => scaled(number as f64 * 8.0 / self.seconds, "bit/s"),
            (false, By::Packets) => scaled(number as f64 / self.seconds, "pkt/s"),
        }
    }

    /// The largest possible error, or the upper bound of a number that is a lower bound.
    pub fn error(&self, estimate: &Estimate) -> String {
        let Estimate { value, lower, upper, sampled: _ } = *estimate;
        match value.saturating_sub(lower).max(upper.saturating_sub(value)) {
            0 => "exact".to_owned(),
            _ if self.list.is_floor => self.text(upper),
            off => format!("±{}", self.text(off)),
        }
    }

    /// The share of the whole, of packets and bytes.
    pub fn share(&self, amount: Amount) -> String {
        let Amount::Sums { packets, bytes } = amount else { return String::new() };
        let [all_packets, all_bytes] = self.list.whole;
        let (part, whole) = if self.by == By::Bytes { (bytes.value, all_bytes) } else { (packets.value, all_packets) };
        if whole == 0 { String::new() } else { percent(part as f64 / whole as f64) }
    }

    /// The measure that does not order the list.
    fn other(&self, amount: Amount) -> String {
        match (amount, self.by) {
            (Amount::Sums { packets, .. }, By::Bytes) => scaled(packets.value as f64 / self.seconds, "pkt/s"),
            (Amount::Sums { bytes, .. }, By::Packets) => scaled(bytes.value as f64 * 8.0 / self.seconds, "bit/s"),
            (Amount::Count(_), _) => String::new(),
        }
    }

    fn caption(&self) -> String {
        let order = if self.by == By::Bytes { "bytes" } else { "packets" };
        let by = self.list.counted.as_deref().unwrap_or(order);
        let confidence = (self.list.confidence * 10_000.0).round() / 100.0;
        let bounds = if self.list.is_floor { "" } else { "± " };
        // The bounds hold always, not only with some probability.
        match confidence {
            100.0 => format!("by {by}, {bounds}certain"),
            _ => format!("by {by}, {bounds}at {confidence} %"),
        }
    }
}

/// How wide the columns are.
struct Columns {
    key: usize,
    /// Whether source and destination have a line each.
    is_folded: bool,
    error: usize,
    other: usize,
    share: usize,
    bar: usize,
}

impl Columns {
    fn new(rows: &[Row], is_counted: bool, columns: usize) -> Self {
        let share = if is_counted { 0 } else { SHARE };
        let fixed = RANK + GAP + RATE + GAP + if is_counted { 0 } else { SHARE + GAP } + BAR_MIN;
        let room = columns.saturating_sub(fixed);
        let flat = rows.iter().map(|row| width(&row.shown.join(" "))).max().unwrap_or(0).max(KEY_MIN);
        let folded = rows.iter().flat_map(|row| &row.shown).map(|text| width(text)).max().unwrap_or(0).max(KEY_MIN);
        let is_folded = flat > room && rows.iter().any(|row| row.shown.len() > 1);
        let key = if is_folded { folded } else { flat }.min(room);
        let mut left = room - key;
        let mut optional = |wanted: bool| {
            let takes = if wanted && left >= RATE + GAP { RATE } else { 0 };
            left -= if takes > 0 { RATE + GAP } else { 0 };
            takes
        };
        let (error, other) = (optional(true), optional(!is_counted));
        Self { key, is_folded, error, other, share, bar: (BAR_MIN + left).min(BAR_MAX) }
    }
}

/// Draws as many rows as fit, including the selected one.
pub fn rows(screen: &mut Screen, list: &List, sheet: &mut Sheet<'_>, paint: Paint) {
    let say = |sheet: &mut Sheet<'_>, text| {
        sheet.line([Piece::new(format!("{}{text}", " ".repeat(RANK)), paint.faint())]);
    };
    if let Some(why) = list.why_empty {
        return say(sheet, why);
    }
    let rows = screen.rows(list);
    let measure = Measure::new(list, screen.by);
    let columns = Columns::new(&rows, list.counted.is_some(), sheet.columns());
    let full = rows.iter().map(|row| row.entry.amount.of(screen.by).upper).max().unwrap_or(0);
    head(&measure, &columns, full, sheet, paint);
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

fn head(measure: &Measure<'_>, columns: &Columns, full: u64, sheet: &mut Sheet<'_>, paint: Paint) {
    let mut text = " ".repeat(RANK) + &left(&measure.caption(), columns.key);
    let column = |caption: &str, columns: usize| {
        if columns == 0 { String::new() } else { " ".repeat(GAP) + &right(caption, columns) }
    };
    let [mut number, other] = match (measure.list.counted.is_some(), measure.by) {
        (true, _) => ["count", ""],
        (false, By::Bytes) => ["rate", "packets"],
        (false, By::Packets) => ["rate", "bytes"],
    };
    let mut error = "±";
    if measure.list.is_floor {
        (number, error) = ("at least", "at most");
    }
    text += &column(number, RATE);
    text += &column(error, columns.error);
    text += &column("share", columns.share);
    let bar = right(&measure.text(full), columns.bar);
    text += &column(&if bar.starts_with("  ") { bar.replacen(' ', "0", 1) } else { bar }, columns.bar);
    text += &column(other, columns.other);
    sheet.line([Piece::new(text, paint.faint())]);
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
    let column = |text: &str, columns: usize| {
        if columns == 0 { String::new() } else { " ".repeat(GAP) + &right(text, columns) }
    };
    let bar = whisker(&estimate, full, columns.bar);
    let mut pieces = vec![
        Piece::new(format!("{mark}{}{doubt}", right(&entry.rank.to_string(), RANK - 2)), paint.faint()),
        Piece::new(left(&key, columns.key), paint.plain()),
        Piece::new(column(&measure.text(estimate.value), RATE), paint.strong()),
        Piece::new(column(&measure.error(&estimate), columns.error), paint.faint()),
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
