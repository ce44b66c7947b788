//! The last hour of a key.

use weir_schema::{Estimate, KeyHistory, KeyWindow, Tally};
use weir_system::{
    numbers::{bytes, count, scaled},
    text::escaped,
};

use super::{paint::Paint, sheet::Piece, spark::BLOCKS};
use crate::{
    list::By,
    words::{lasting, range},
};

/// The number of columns, which is also the number of steps.
const COLUMNS: i64 = 60;
/// Into how many parts the hour is divided at most: on a screen with few lines, and with many.
const PARTS: [i64; 2] = [3, 6];
/// The times of a history that is shorter than this, in seconds, are written to the second.
const SHORT: i64 = 1800;
/// A step without data.
const UNKNOWN: char = '·';
/// A step in whose windows the list does not have the key.
const NOT_LISTED: char = '_';

/// The lines about the hour.
pub fn hour(known: Option<&Result<Box<KeyHistory>, String>>, by: By, is_tall: bool, paint: Paint) -> Vec<Vec<Piece>> {
    let text = |text: String| vec![Piece::new(text, paint.faint())];
    let history = match known {
        None => return vec![text("its last hour: asking the history".to_owned())],
        Some(Err(why)) => return vec![text(format!("its last hour: {}", escaped(why)))],
        Some(Ok(history)) => history,
    };
    let unit = if by == By::Packets { "pkt/s" } else { "bit/s" };
    let columns = columns(history);
    let most = columns.iter().flatten().filter_map(|of| value(of, by)).fold(0.0, f64::max);
    let hour = lasting(history.to.duration_since(history.from));
    let mut lines = vec![text(format!("its last {hour}, by the windows of this list   max {}", scaled(most, unit)))];
    if history.left_out > 0 {
        lines.push(text(format!("  {} windows left out: the view asked another question then", history.left_out)));
    }
    let line: String = columns.iter().map(|of| block(of.as_ref(), by, most)).collect();
    lines.push(vec![Piece::new(format!("  {line}"), paint.bar())]);
    // An hour has no more parts than windows.
    let count = PARTS[usize::from(is_tall)].min(history.windows.len() as i64).max(1);
    let is_short = history.to.duration_since(history.from).as_secs() < SHORT;
    let format = if is_short { "%H:%M:%S" } else { "%H:%M" };
    for (nth, part) in (0..).zip(parts(history, count)) {
        let [start, end] = [nth, nth + 1].map(|edge| edge_of(history, edge, count).strftime(format).to_string());
        let (numbers, rest) = in_words(part.as_ref(), by);
        lines.push(vec![
            Piece::new(format!("  {start} – {end}  "), paint.faint()),
            Piece::new(numbers, paint.strong()),
            Piece::new(rest, paint.faint()),
        ]);
    }
    lines
}

/// The edge with this number of so many parts.
fn edge_of(history: &KeyHistory, nth: i64, count: i64) -> jiff::Timestamp {
    let (from, to) = (history.from.as_millisecond(), history.to.as_millisecond());
    jiff::Timestamp::from_millisecond(from + (to - from) * nth / count).unwrap_or(history.to)
}

/// Assigns windows to columns. A window that is longer than a column is in several.
fn columns(history: &KeyHistory) -> Vec<Option<KeyWindow>> {
    let mut all = parts(history, COLUMNS);
    for (nth, column) in (0..).zip(&mut all).filter(|(_, column)| column.is_none()) {
        let [start, end] = [nth, nth + 1].map(|edge| edge_of(history, edge, COLUMNS).as_millisecond());
        let middle = (start + end) / 2;
        let covers = |of: &&KeyWindow| (of.start.as_millisecond()..of.end.as_millisecond()).contains(&middle);
        *column = history.windows.iter().find(covers).copied();
    }
    all
}

/// The windows of so many equal parts of the time, each together; a window belongs to the part in which its middle is.
fn parts(history: &KeyHistory, count: i64) -> Vec<Option<KeyWindow>> {
    let mut all: Vec<Option<KeyWindow>> = vec![None; count as usize];
    let (from, to) = (history.from.as_millisecond(), history.to.as_millisecond());
    for window in &history.windows {
        let middle = (window.start.as_millisecond() + window.end.as_millisecond()) / 2;
        let nth = ((middle - from) * count / (to - from).max(1)).clamp(0, count - 1);
        match &mut all[nth as usize] {
            Some(sum) => sum.add(window),
            none => *none = Some(*window),
        }
    }
    all
}

/// A rate of so many packets or bytes.
fn rate(of: &KeyWindow, number: u64, by: By) -> Option<f64> {
    let bits = if by == By::Packets { 1.0 } else { 8.0 };
    of.seconds.rate(number as f64 * bits)
}

fn estimate(of: &KeyWindow, by: By) -> Option<Estimate> {
    if by == By::Packets { of.packets } else { of.bytes }
}

fn value(of: &KeyWindow, by: By) -> Option<f64> {
    estimate(of, by).and_then(|estimate| rate(of, estimate.value, by))
}

fn block(of: Option<&KeyWindow>, by: By, most: f64) -> char {
    let Some(of) = of else { return UNKNOWN };
    match value(of, by) {
        None => NOT_LISTED,
        Some(rate) if rate <= 0.0 || most <= 0.0 => ' ',
        Some(rate) => BLOCKS[((rate / most * 8.0).ceil() as usize).clamp(1, 8) - 1],
    }
}

/// The bounds of a part, and in how many windows the list has the key.
fn in_words(part: Option<&KeyWindow>, by: By) -> (String, String) {
    let Some(part) = part else { return (String::new(), "no data".to_owned()) };
    let text = |number: u64| match (rate(part, number, by), by) {
        (Some(rate), By::Packets) => scaled(rate, "pkt/s"),
        (Some(rate), By::Bytes) => scaled(rate, "bit/s"),
        (None, By::Packets) => count(number),
        (None, By::Bytes) => bytes(number),
    };
    let KeyWindow { windows, listed, at_most, .. } = *part;
    match estimate(part, by) {
        None => {
            let Tally { packets, bytes } = at_most;
            let most = if by == By::Packets { packets } else { bytes };
            (String::new(), format!("not in the list then: at most {}", text(most)))
        }
        Some(estimate) if listed == windows => (range(&estimate, text), String::new()),
        Some(estimate) => (range(&estimate, text), format!("  in the list in {listed} of {windows} windows")),
    }
}
