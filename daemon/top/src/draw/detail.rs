//! The detail view of a row: related rows in other lists, and the source's answer about its key.

use weir_report::Estimate;
use weir_system::numbers::{count, scaled};

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
    table::Measure,
};
use crate::{
    key::Key,
    list::{Amount, List, amount},
    screen::Screen,
    source::Known,
    text::{clean, fit, right},
};

/// The columns of a number.
const NUMBER: usize = 13;

/// Draws the lines about a key, starting with line `scrolled`.
pub fn detail(screen: &mut Screen, key: &Key, scrolled: usize, sheet: &mut Sheet<'_>, paint: Paint) {
    let title = key.show(&|address| address.to_string()).join(" ");
    let named = screen.named(key).join(" ");
    let name = if named == title { String::new() } else { format!("  {named}") };
    sheet.line([Piece::new(title, paint.strong()), Piece::new(name, paint.plain())]);
    let mut lines = in_lists(screen, key, paint);
    lines.extend(known(screen, paint));
    let last = lines.len().saturating_sub(sheet.left());
    for line in lines.into_iter().skip(scrolled.min(last)) {
        sheet.line(line);
    }
}

/// All rows of all lists that are related to the key.
fn in_lists(screen: &mut Screen, key: &Key, paint: Paint) -> Vec<Vec<Piece>> {
    let (lists, _) = screen.lists();
    let mut lines = Vec::new();
    for list in &lists {
        let measure = Measure::new(list, screen.by);
        for entry in list.entries.iter().filter(|entry| is_related(key, &entry.key)) {
            let shown = screen.named(&entry.key).join(" ");
            lines.push(line(&measure, list, entry.amount, &shown, paint));
        }
    }
    let window = if screen.open().is_some() { "the open window so far" } else { "this window" };
    let caption = format!("in the lists of {window}");
    lines.insert(0, vec![Piece::new(caption, paint.faint())]);
    lines
}

fn line(measure: &Measure<'_>, list: &List, amount: Amount, shown: &str, paint: Paint) -> Vec<Piece> {
    let estimate = amount.of(measure.by);
    vec![
        Piece::new(format!("  {}", right(&measure.text(estimate.value), NUMBER)), paint.strong()),
        Piece::new(right(&measure.error(&estimate), NUMBER + 1), paint.faint()),
        Piece::new(right(&measure.share(amount), 9), paint.plain()),
        Piece::new(format!("  {} ", fit(&clean(&list.name), 24)), paint.faint()),
        Piece::new(shown.to_owned(), paint.plain()),
    ]
}

/// Whether a row shares an address or the service with the key.
fn is_related(key: &Key, other: &Key) -> bool {
    let mut networks = key.networks().peekable();
    if networks.peek().is_some() {
        return networks.any(|one| other.networks().any(|two| one.contains(two.first()) || two.contains(one.first())));
    }
    let same_proto = key.proto().is_some() && key.proto() == other.proto();
    let mut ports = key.ports().peekable();
    let same_port = ports.peek().is_none() || ports.any(|port| other.ports().any(|of| of == port));
    key == other || same_proto && same_port
}

/// The source's answer.
fn known(screen: &Screen, paint: Paint) -> Vec<Vec<Piece>> {
    let mut lines = vec![vec![Piece::new("all views, listed or not (weir ask)", paint.faint())]];
    let text = |text: &str| vec![Piece::new(format!("  {text}"), paint.plain())];
    match &screen.known {
        None if screen.can_ask => lines.push(text("asking")),
        None => lines.push(text("a replay cannot be asked")),
        Some(Known { rows: Err(why), .. }) => lines.push(text(&clean(why))),
        Some(Known { rows: Ok(rows), seconds, .. }) => {
            for row in rows {
                let Some(amount) = amount(row) else { continue };
                let shown = Key::of_row(&row.key).show(&|address| address.to_string()).join(" ");
                let view = clean(row.view.as_deref().unwrap_or_default());
                lines.push(answer(amount, *seconds, format!("  {view}: {shown}"), paint));
            }
        }
    }
    lines
}

/// The bounds of an answer. The true value is between them.
fn answer(amount: Amount, seconds: f64, shown: String, paint: Paint) -> Vec<Piece> {
    let seconds = seconds.max(f64::MIN_POSITIVE);
    let numbers = match amount {
        Amount::Sums { packets, bytes } => {
            let bits = range(&bytes, |number| scaled(number as f64 * 8.0 / seconds, "bit/s"));
            format!("{bits}, {}", range(&packets, |number| scaled(number as f64 / seconds, "pkt/s")))
        }
        Amount::Count(counted) => range(&counted, count),
    };
    vec![Piece::new(format!("  {numbers}"), paint.strong()), Piece::new(shown, paint.plain())]
}

fn range(estimate: &Estimate, text: impl Fn(u64) -> String) -> String {
    let [lower, upper] = [text(estimate.lower), text(estimate.upper)];
    if lower == upper { lower } else { format!("{lower} to {upper}") }
}
