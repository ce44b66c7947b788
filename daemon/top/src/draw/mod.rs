//! Draws the screen: complete in 80 columns and 24 lines, and more where there is room.

mod detail;
mod head;
mod help;
mod hour;
mod paint;
mod sheet;
mod spark;
mod table;
#[cfg(test)]
mod tests;
mod whisker;

use ratatui::{buffer::Buffer, layout::Rect};
use weir_system::text::escaped;

pub use self::paint::Paint;
use self::sheet::{GAP, Piece, Sheet};
use crate::{
    filter::WORDS,
    past::SPANS,
    screen::{Focus, Input, Screen},
    text::{width, wrapped},
};

/// One line in this many is for interfaces.
const LINES_PER_INTERFACE: usize = 6;
/// One line in this many is for alerts.
const LINES_PER_ALERT: usize = 12;
/// A screen with at least this many lines keeps the counts and alerts above the details of a row.
const LINES_OF_DETAIL: usize = 30;
/// The keys at the bottom of the screen with the lists.
const KEYS: &str = "?help  Tab list  Enter row  /filter  < > step back  t span  Space hold  q quit";
/// The keys on the screen of a fleet.
const KEYS_OF_FLEET: &str = "?help  Tab list  Enter row  /filter  b p order  Space hold  q quit";
/// The keys while a past time is shown.
const KEYS_OF_PAST: &str = "?help  < >  Home oldest  End now  t span  Tab list  Enter row  /filter  q quit";

/// The keys while the details of a row are shown.
const KEYS_OF_DETAIL: &str = "Esc back  ↑ ↓ scroll  < > step back  t span  End now  Space hold  q quit";
/// The keys while the help is shown.
const KEYS_OF_HELP: &str = "↑ ↓ scroll  any other key: back  q quit";

/// Draws the screen into an area.
pub fn draw(screen: &mut Screen, buffer: &mut Buffer, area: Rect, paint: Paint) {
    let sheet = &mut Sheet::new(buffer, area);
    let lines = sheet.left();
    let told: Vec<_> = screen.told.iter().flat_map(|told| wrapped(&escaped(told), sheet.columns())).collect();
    let foot_lines = told.len().clamp(1, lines.max(1));
    head::title(screen, sheet, paint);
    if let Focus::Help(scrolled) = screen.focus {
        let height = sheet.left().saturating_sub(foot_lines) as u16;
        let below = Rect { y: area.y + (lines - sheet.left()) as u16, height, ..area };
        let first = help::help(screen.fleet.is_some(), scrolled, &mut Sheet::new(buffer, below), paint);
        screen.focus = Focus::Help(first);
    } else {
        head::interfaces(screen, sheet, paint, (lines / LINES_PER_INTERFACE).max(1));
        head::trust(screen, sheet, paint);
        head::trouble(&head::troubles(screen), sheet, paint);
        if lines >= LINES_OF_DETAIL || !matches!(screen.focus.behind(), Focus::Detail(..)) {
            counts(screen, sheet, paint, (lines / LINES_PER_ALERT).max(1));
        }
        let height = sheet.left().saturating_sub(foot_lines) as u16;
        let below = Rect { y: area.y + (lines - sheet.left()) as u16, height, ..area };
        body(screen, &mut Sheet::new(buffer, below), paint);
    }
    let height = area.height.min(foot_lines as u16);
    let sheet = &mut Sheet::new(buffer, Rect { y: area.bottom() - height, height, ..area });
    if told.is_empty() {
        return foot(screen, sheet, paint);
    }
    for line in told {
        sheet.line([Piece::new(line, paint.warning())]);
    }
}

/// Draws distinct keys, new flows and new hosts, and at most so many alerts.
fn counts(screen: &Screen, sheet: &mut Sheet<'_>, paint: Paint, alerts: usize) {
    if let Some(past) = screen.past() {
        head::distinct(&past.union.unique, &past.union.new_flows, sheet, paint);
        return head::past_alerts(past, sheet, paint);
    }
    if let Some(fleet) = &screen.fleet {
        return head::distinct_of_fleet(fleet, sheet, paint);
    }
    let report = screen.report.as_ref();
    match (screen.open_of_list(), report) {
        (Some(live), _) => head::distinct(&live.unique, &live.new_flows, sheet, paint),
        (None, Some(report)) => head::distinct(&report.unique, &report.new_flows, sheet, paint),
        (None, None) => {}
    }
    if let Some(new) = report.and_then(|report| report.new_hosts.as_ref()) {
        head::new_hosts(new, sheet, paint);
    }
    for alert in report.iter().flat_map(|report| &report.alerts).take(alerts) {
        head::alert(alert, sheet, paint);
    }
}

fn body(screen: &mut Screen, sheet: &mut Sheet<'_>, paint: Paint) {
    if let Focus::Detail(key, scrolled) = screen.focus.behind().clone() {
        return detail::detail(screen, &key, scrolled, sheet, paint);
    }
    let (lists, nth) = screen.lists();
    let Some(list) = lists.get(nth) else { return };
    table::tabs(&lists, nth, sheet, paint);
    table::rows(screen, list, sheet, paint);
}

fn foot(screen: &Screen, sheet: &mut Sheet<'_>, paint: Paint) {
    // A span that ends now is asked for again with each window. Only a request for another time is worth a message.
    let shown = screen.past.as_ref().map(|(look, _)| *look);
    if screen.awaited.is_some() && screen.awaited != shown && matches!(screen.focus, Focus::List | Focus::Detail(..)) {
        return sheet.line([Piece::new("asking the history", paint.faint())]);
    }
    // As many keys as fit, and always the last one, which quits.
    let held = if screen.held.is_some() { "Space go on" } else { "Space hold" };
    let words = |text: &str| {
        let words: Vec<String> = text.replace("Space hold", held).split("  ").map(str::to_owned).collect();
        words.into_iter().map(|word| Piece::new(word, paint.faint()))
    };
    let mut keys = |text: &str| {
        let room = sheet.columns();
        let mut fitting: Vec<Piece> = words(text).collect();
        while fitting.len() > 1 && fitting.iter().map(|piece| width(&piece.text) + GAP).sum::<usize>() > room + GAP {
            fitting.remove(fitting.len() - 2);
        }
        sheet.words(fitting);
    };
    match &screen.focus {
        Focus::Span(_) => {
            let spans = SPANS.iter().zip(1..).map(|((_, name), nth)| format!("{nth} = {name}")).collect::<Vec<_>>();
            let text = format!("the last:  {}   0 = now   Esc back", spans.join("  "));
            // Only the short form fits narrow screens.
            let short = format!("{}  0=now", spans.join(" ").replace(" = ", "="));
            let text = if width(&text) > sheet.columns() { short } else { text };
            sheet.line([Piece::new(text, paint.strong())]);
        }
        Focus::Typed(input, text, why) => {
            let (prompt, hint) = match input {
                Input::Filter => ("/", format!("{WORDS} or a part of a row, Enter")),
                Input::Time => ("time ", "14:30 or 2026-11-26 14:30, in UTC, Enter".to_owned()),
            };
            let hint = Some(hint).filter(|_| text.is_empty()).unwrap_or_default();
            let text = Piece::new(format!("{prompt}{}_", escaped(text)), paint.strong());
            let beside = match why {
                Some(why) => Piece::new(format!("   {}", escaped(why)), paint.alarm()),
                None => Piece::new(format!("   {hint}"), paint.faint()),
            };
            sheet.line([text, beside]);
        }
        Focus::Detail(..) => keys(KEYS_OF_DETAIL),
        Focus::Help(_) => keys(KEYS_OF_HELP),
        Focus::List if screen.filter.is_empty() && screen.past().is_some() => keys(KEYS_OF_PAST),
        Focus::List if screen.filter.is_empty() && screen.fleet.is_some() => keys(KEYS_OF_FLEET),
        Focus::List if screen.filter.is_empty() => keys(KEYS),
        Focus::List => {
            let text = Piece::new(format!("filter {}", escaped(&screen.filter_text)), paint.strong());
            sheet.words([text].into_iter().chain(words("/ changes it  Esc clears it  q quit")));
        }
    }
}
