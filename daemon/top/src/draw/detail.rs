//! The detail view of a row: its last hour, its peers and ports, related rows in other lists, and the source's answer
//! about its key.

use weir_system::numbers::{count, scaled};

use super::{
    hour,
    paint::Paint,
    sheet::{Piece, Sheet},
    table::Measure,
};
use crate::{
    key::Key,
    list::{Amount, amount},
    screen::Screen,
    source::KeyDetails,
    text::{clean, fit, right},
};

/// The columns of a number.
const NUMBER: usize = 13;
/// From so many lines on, the hour takes more of them.
const TALL: usize = 20;
/// The lists of which peers and ports are taken.
const PAIRS: &str = "pairs";
const FLOWS: &str = "flows";

/// Draws the lines about a key, starting with line `scrolled`.
pub fn detail(screen: &mut Screen, key: &Key, scrolled: usize, sheet: &mut Sheet<'_>, paint: Paint) {
    let title = key.show(&|address| address.to_string()).join(" ");
    let named = screen.named(key).join(" ");
    let name = if named == title { String::new() } else { format!("  {named}") };
    sheet.line([Piece::new(title, paint.strong()), Piece::new(name, paint.plain())]);
    let is_tall = sheet.left() >= TALL;
    let mut lines = hour::hour(screen.past_of_key.as_ref(), screen.by, is_tall, paint);
    let peers = peers(screen, key, paint);
    let has_peers = !peers.is_empty();
    lines.extend(peers);
    lines.extend(ports(screen, key, paint));
    lines.extend(in_lists(screen, key, has_peers, paint));
    if screen.past().is_none() {
        lines.extend(known(screen, paint));
    }
    let last = lines.len().saturating_sub(sheet.left());
    for line in lines.into_iter().skip(scrolled.min(last)) {
        sheet.line(line);
    }
}

/// Those that the pairs have with a host.
fn peers(screen: &mut Screen, key: &Key, paint: Paint) -> Vec<Vec<Piece>> {
    let (lists, _) = screen.lists();
    let (Some(host), Some(list)) = (key.host(), lists.iter().find(|list| list.name == PAIRS)) else {
        return Vec::new();
    };
    let measure = Measure::new(list, screen.by);
    let mut lines = Vec::new();
    for entry in &list.entries {
        let Some([src, dst]) = entry.key.ends() else { continue };
        let (arrow, peer) = if src == host { ("to", dst) } else { ("from", src) };
        if src != host && dst != host {
            continue;
        }
        let name = screen.names.of(peer).map_or_else(String::new, |name| format!("  {}", clean(name)));
        lines.push(row(&measure, entry.amount, arrow, 5, format!("{peer}{name}"), paint));
    }
    captioned("peers, of those in the list of pairs", lines, paint)
}

/// The ports of the listed flows of a key: what those have together at least.
fn ports(screen: &Screen, key: &Key, paint: Paint) -> Vec<Vec<Piece>> {
    let (lists, _) = screen.lists();
    let Some(list) = lists.iter().find(|list| list.name == FLOWS) else { return Vec::new() };
    let measure = Measure::new(list, screen.by);
    let mut all: Vec<(Key, u64, usize)> = Vec::new();
    for entry in list.entries.iter().filter(|entry| is_related(key, &entry.key)) {
        let (Some(service), least) = (entry.key.service(), entry.amount.of(screen.by).lower) else { continue };
        match all.iter_mut().find(|(of, ..)| *of == service) {
            Some((_, sum, flows)) => (*sum, *flows) = (sum.saturating_add(least), *flows + 1),
            None => all.push((service, least, 1)),
        }
    }
    all.sort_by_key(|(_, least, _)| std::cmp::Reverse(*least));
    let lines = all.into_iter().map(|(service, least, flows)| {
        let flows = if flows == 1 { "1 flow".to_owned() } else { format!("{flows} flows") };
        vec![
            Piece::new(format!("  at least {}", right(&measure.text(least), NUMBER)), paint.strong()),
            Piece::new(format!("  {}", service.show(&|address| address.to_string()).join(" ")), paint.plain()),
            Piece::new(format!("  {flows}"), paint.faint()),
        ]
    });
    captioned("ports, of those in the list of flows", lines.collect(), paint)
}

fn captioned(caption: &str, mut lines: Vec<Vec<Piece>>, paint: Paint) -> Vec<Vec<Piece>> {
    if !lines.is_empty() {
        lines.insert(0, vec![Piece::new(caption, paint.faint())]);
    }
    lines
}

/// All rows of all lists that have to do with the key, except those that are shown as peers.
fn in_lists(screen: &mut Screen, key: &Key, has_peers: bool, paint: Paint) -> Vec<Vec<Piece>> {
    let (lists, _) = screen.lists();
    let windows: &[(bool, &str)] = match (screen.past(), screen.open()) {
        (Some(_), _) => &[(false, "this time")],
        // Some lists exist only when a window has ended.
        (None, Some(_)) => &[(true, "the open window so far"), (false, "the last window")],
        (None, None) => &[(false, "this window")],
    };
    let mut lines = Vec::new();
    for (is_open, window) in windows {
        let mut rows = Vec::new();
        for list in lists.iter().filter(|list| list.is_open == *is_open && !(has_peers && list.name == PAIRS)) {
            let measure = Measure::new(list, screen.by);
            for entry in list.entries.iter().filter(|entry| is_related(key, &entry.key)) {
                let shown = screen.named(&entry.key).join(" ");
                rows.push(row(&measure, entry.amount, &list.name, 24, shown, paint));
            }
        }
        lines.extend(captioned(&format!("in the lists of {window}"), rows, paint));
    }
    lines
}

/// A row with the name of its list, or what else says which one it is.
fn row(measure: &Measure<'_>, amount: Amount, of: &str, columns: usize, shown: String, paint: Paint) -> Vec<Piece> {
    let estimate = amount.of(measure.by);
    vec![
        Piece::new(format!("  {}", right(&measure.text(estimate.value), NUMBER)), paint.strong()),
        Piece::new(right(&measure.bounds(&estimate), NUMBER + 1), paint.faint()),
        Piece::new(right(&measure.share(amount), 9), paint.plain()),
        Piece::new(format!("  {} ", fit(&clean(of), columns)), paint.faint()),
        Piece::new(shown, paint.plain()),
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
    let caption = match screen.fleet {
        Some(_) => "all lists of the fleet, listed there or not",
        None => "all views, listed or not (weir ask)",
    };
    let mut lines = vec![vec![Piece::new(caption, paint.faint())]];
    let text = |text: &str| vec![Piece::new(format!("  {text}"), paint.plain())];
    match &screen.known {
        None if screen.can_ask => lines.push(text("asking")),
        None => lines.push(text("a replay cannot be asked")),
        Some(KeyDetails { rows: Err(why), .. }) => lines.push(text(&clean(why))),
        Some(KeyDetails { rows: Ok(rows), seconds, .. }) => {
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
            let bits = hour::range(&bytes, |number| scaled(number as f64 * 8.0 / seconds, "bit/s"));
            format!("{bits}, {}", hour::range(&packets, |number| scaled(number as f64 / seconds, "pkt/s")))
        }
        Amount::Count(counted) => hour::range(&counted, count),
    };
    vec![Piece::new(format!("  {numbers}"), paint.strong()), Piece::new(shown, paint.plain())]
}
