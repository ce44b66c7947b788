//! The detail view of a row: its last hour, its peers and ports, related rows in other lists, and the source's answer
//! about its key.

use weir_schema::{Length, NameSource};
use weir_system::{
    numbers::{self, bit_rate, count, packet_rate},
    text::escaped,
};

use super::{
    hour,
    paint::Paint,
    sheet::{Piece, Sheet},
    table::Measure,
};
use crate::{
    key::Key,
    list::{Amount, amount},
    screen::{Focus, Screen},
    source::KeyDetails,
    text::{right, width},
    words::range,
};

/// Lines, each of several pieces.
type Lines = Vec<Vec<Piece>>;

/// The columns of a number, and of its bounds.
const NUMBER: usize = 13;
/// The columns of an amount, and of a share.
const AMOUNT: usize = 10;
const SHARE: usize = 9;
/// The blanks before what goes on in another line.
const INDENT: usize = 6;
/// From so many lines on, the hour takes more of them.
const TALL: usize = 20;
/// The list that peers and ports are taken from.
const PAIRS: &str = "pairs";
const FLOWS: &str = "flows";

/// Draws the lines about a key, starting with line `scrolled`.
pub fn detail(screen: &mut Screen, key: &Key, scrolled: usize, sheet: &mut Sheet<'_>, paint: Paint) {
    let title = key.show(&|address| address.to_string()).join(" ");
    let names = names(screen, key);
    sheet.line([Piece::new(title, paint.strong()), Piece::new(names, paint.plain())]);
    let is_tall = sheet.left() >= TALL;
    let mut lines = hour::hour(screen.past_of_key.as_ref(), screen.by, is_tall, paint);
    let place = (sheet.columns(), paint);
    let peers = peers(screen, key, place);
    let has_peers = !peers.is_empty();
    lines.extend(peers);
    lines.extend(ports(screen, key, place));
    lines.extend(in_lists(screen, key, has_peers, place));
    if screen.past().is_none() {
        lines.extend(known(screen, place));
    }
    let first = scrolled.min(lines.len().saturating_sub(sheet.left()));
    if let Focus::Detail(_, scrolled) = &mut screen.focus {
        *scrolled = first;
    }
    for line in lines.into_iter().skip(first) {
        sheet.line(line);
    }
}

/// The names of a key's addresses, and where each is from.
fn names(screen: &mut Screen, key: &Key) -> String {
    let names = key.hosts().filter_map(|address| {
        let name = escaped(screen.names.of(address)?);
        let source = screen.names.source(address).map_or("reverse DNS", NameSource::words);
        Some(format!("  {name} ({source})"))
    });
    names.collect()
}

/// Lists the addresses that have pairs with a host.
fn peers(screen: &mut Screen, key: &Key, place: (usize, Paint)) -> Lines {
    let (lists, _) = screen.lists();
    let (Some(host), Some(list)) = (key.host(), lists.iter().find(|list| list.name == PAIRS)) else {
        return Vec::new();
    };
    let measure = Measure::new(list, screen.by);
    let mut lines = Vec::new();
    for entry in &list.entries {
        let Some([src, dst]) = entry.key.ends() else { continue };
        let (arrow, peer) = if src == host { ("to  ", dst) } else { ("from", src) };
        if src != host && dst != host {
            continue;
        }
        let name = screen.names.of(peer).map_or_else(String::new, |name| format!("  {}", escaped(name)));
        lines.extend(row(&measure, entry.amount, arrow, vec![format!("{peer}{name}")], place));
    }
    captioned("peers, of those in the list of pairs", lines, place.1)
}

/// The ports of the listed flows of a key: what those have together at least.
fn ports(screen: &Screen, key: &Key, (columns, paint): (usize, Paint)) -> Lines {
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
    let lines = all.into_iter().flat_map(|(service, least, flows)| {
        let flows = match flows {
            1 => "1 flow".to_owned(),
            flows => format!("{flows} flows, each in one direction"),
        };
        let least = Piece::new(format!("  at least {}", right(&measure.text(least), NUMBER)), paint.strong());
        let service = service.show(&|address| address.to_string()).join(" ");
        folded(vec![least], vec![Piece::new(service, paint.plain()), Piece::new(flows, paint.faint())], columns)
    });
    captioned("ports, of those in the list of flows", lines.collect(), paint)
}

fn captioned(caption: &str, mut lines: Lines, paint: Paint) -> Lines {
    if !lines.is_empty() {
        lines.insert(0, vec![Piece::new(caption, paint.faint())]);
    }
    lines
}

/// All rows of all lists that have to do with the key, except those that are shown as peers.
fn in_lists(screen: &mut Screen, key: &Key, has_peers: bool, place: (usize, Paint)) -> Lines {
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
                let key = screen.named(&entry.key);
                let whose = match list.is_of_view {
                    true => ", % of view",
                    false if list.name.ends_with(" nets") => ", unlisted hosts",
                    false => "",
                };
                rows.extend(row(&measure, entry.amount, &format!("{}{whose}", list.name), key, place));
            }
        }
        lines.extend(captioned(&format!("in the lists of {window}"), rows, place.1));
    }
    lines
}

/// A row: its numbers, and after them its list, or what else says which one it is, and its key. What does not fit
/// beside the numbers goes on in the next lines.
fn row(measure: &Measure<'_>, amount: Amount, of: &str, key: Vec<String>, (columns, paint): (usize, Paint)) -> Lines {
    let estimate = amount.of(measure.by);
    let numbers = [
        Piece::new(format!("  {}", right(&measure.text(estimate.value), NUMBER)), paint.strong()),
        Piece::new(format!(" {}", right(&measure.bounds(&estimate), NUMBER)), paint.faint()),
        Piece::new(right(&measure.amount(amount), AMOUNT), paint.plain()),
        Piece::new(right(&measure.share(amount), SHARE), paint.plain()),
    ];
    let mut words = vec![Piece::new(escaped(of), paint.faint())];
    words.extend(key.into_iter().map(|part| Piece::new(part, paint.plain())));
    folded(numbers.into(), words, columns)
}

/// Numbers, as many as fit, and words after them. The words go on below if they do not fit.
fn folded(numbers: Vec<Piece>, words: Vec<Piece>, columns: usize) -> Lines {
    let (mut line, mut used) = (Vec::new(), 0);
    for number in numbers {
        used += width(&number.text);
        if used <= columns {
            line.push(number);
        }
    }
    let (mut lines, mut used) = (Vec::new(), used.min(columns));
    for (nth, word) in words.into_iter().enumerate() {
        let gap = if nth == 0 { 2 } else { 1 };
        if used + gap + width(&word.text) > columns && used > INDENT {
            lines.push(std::mem::take(&mut line));
            line.push(Piece::new(" ".repeat(INDENT), word.style));
            used = INDENT;
        } else {
            line.push(Piece::new(" ".repeat(gap), word.style));
            used += gap;
        }
        used += width(&word.text);
        line.push(word);
    }
    lines.push(line);
    lines
}

/// Returns true if a row shares an address or the service with the key.
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

/// Draws the source's answer about the key.
fn known(screen: &Screen, (columns, paint): (usize, Paint)) -> Lines {
    let caption = match screen.fleet {
        Some(_) => "all lists of the fleet, listed there or not",
        None => "all views, listed or not (weir ask)",
    };
    let mut lines = vec![vec![Piece::new(caption, paint.faint())]];
    let text = |text: &str| vec![Piece::new(format!("  {text}"), paint.plain())];
    match &screen.known {
        None if screen.can_ask => lines.push(text("asking")),
        None => lines.push(text("a replay cannot be asked")),
        Some(KeyDetails { rows: Err(why), .. }) => lines.push(text(&escaped(why))),
        Some(KeyDetails { rows: Ok(rows), seconds, .. }) => {
            for row in rows {
                let Some(amount) = amount(row) else { continue };
                let mut words = vec![format!("{}:", escaped(row.view.as_deref().unwrap_or_default()))];
                words.extend(Key::of_row(&row.key).show(&|address| address.to_string()));
                let words = words.into_iter().map(|word| Piece::new(word, paint.plain())).collect();
                let numbers = Piece::new(format!("  {}", answer(amount, *seconds)), paint.strong());
                lines.extend(folded(vec![numbers], words, columns));
            }
        }
    }
    lines
}

/// The bounds of an answer. The true value is between them.
fn answer(amount: Amount, length: Length) -> String {
    match (amount, length.seconds()) {
        (Amount::Sums { packets, bytes }, Some(seconds)) => {
            let bits = range(&bytes, |number| bit_rate(number, seconds));
            format!("{bits}, {}", range(&packets, |number| packet_rate(number, seconds)))
        }
        (Amount::Sums { packets, bytes }, None) => {
            format!("{}, {} packets", range(&bytes, numbers::bytes), range(&packets, count))
        }
        (Amount::Count(counted), _) => range(&counted, count),
    }
}
