//! The help screen.

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
};
use crate::text::{left, wrapped};

/// The columns of a key or word.
const WORD: usize = 15;

/// A key and its action; whether there is one for fleets, too.
type Does = (&'static str, &'static str, bool);

/// The keys and their actions.
const KEYS: [Does; 14] = [
    ("1 … 9, 0, Tab", "choose the list", true),
    ("↑ ↓ PgUp PgDn", "choose a row; g the first, G the last", true),
    ("Enter", "all about the row: its last hour, peers, ports, all views", true),
    ("/", "filter: host:192.0.2.7 net:10.0.0.0/8 port:443, proto:, a text", true),
    ("Esc", "clear the filter, or go back", true),
    ("b, p", "order by bytes, by packets", true),
    ("< >  or  , .", "a window or span back or forward; Home: oldest, End: now", false),
    ("t", "a span: the last 1m, 5m, 20m, 1h or 24h together", false),
    ("@", "a time: type 14:30 or 2026-11-26 14:30, in UTC", false),
    ("w", "lists of the last window, or of the open one so far", false),
    ("d", "names of addresses by reverse DNS; asks your resolver", true),
    ("Space", "freeze the screen; again: continue", true),
    ("?", "this help", true),
    ("q, Ctrl-C", "quit", true),
];

/// How to read the screen; whether it is so for fleets, too, or only for them.
const READING: [(&str, &str, For); 29] = [
    ("━━━━━├──┿──┤", "a bar with its bounds: the truth is between ├ and ┤", For::All),
    ("━━━━━━━┃", "bounds too close to draw separately;   ━━━━━━━●  exact", For::All),
    ("exact", "the number is the truth", For::All),
    ("at least", "lower bound, orders the rows; at most: the upper bound", For::Fleets),
    ("at least", "a lower bound: the truth may be more", For::One),
    ("+, -, ±, ≤", "how far off it may be: more, less, either; at most this", For::All),
    ("99 % sure", "probability that all bounds of a list hold; certain: always", For::All),
    ("of all", "share of all packets or bytes; of view: of what it matched", For::All),
    ("?", "after the rank: another key may belong there instead", For::Fleets),
    ("now, mean", "rates of the last second, or mean rates of the time shown", For::One),
    ("last", "rates of the last report of each router", For::Fleets),
    ("src, dst", "how many different sources, destinations and flows there were", For::All),
    ("new", "flows that were not seen before", For::One),
    ("so far", "the window is still open", For::All),
    ("nets", "networks, by what their unlisted hosts have", For::One),
    ("floods", "destinations with the most different sources", For::All),
    ("scans, ports", "sources with the most different destinations, or their ports", For::All),
    ("kept, lost", "packets that weir saw and did not lose, and that it lost", For::All),
    ("in lists", "of all packets that were seen; not in lists: the reasons", For::All),
    ("unsampled", "weir looks at each packet; sampled 1 in 4: at one in four", For::One),
    ("attached", "interfaces where weir sees packets, of all configured ones", For::One),
    ("not measured", "what it carries is unknown, and why", For::All),
    ("coverage", "packets that weir saw, per packet that the interface counted", For::One),
    ("BLIND", "how long weir saw nothing", For::One),
    ("routers", "whose reports are in this window, of all that are known", For::Fleets),
    ("missing, late …", "reports since the first one that was read", For::Fleets),
    ("!", "weir does not see all packets of this interface", For::One),
    ("!", "this router is late, or has no report in this window", For::Fleets),
    ("sparklines", "a column a second, report or step, the last right; · not known", For::All),
];

/// The screens that a line of the help is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    All,
    One,
    Fleets,
}

/// Draws the help, starting with line `scrolled`. Returns the line with which it starts.
pub fn help(is_fleet: bool, scrolled: usize, sheet: &mut Sheet<'_>, paint: Paint) -> usize {
    let mut rows: Vec<(&str, &str)> = Vec::new();
    let keys = KEYS.into_iter().filter(|(.., is_for_fleets)| *is_for_fleets || !is_fleet);
    rows.extend(keys.map(|(key, does, _)| (key, does)));
    rows.push(("", ""));
    let other = if is_fleet { For::One } else { For::Fleets };
    rows.extend(READING.into_iter().filter(|(.., of)| *of != other).map(|(word, means, _)| (word, means)));
    let room = sheet.columns().saturating_sub(WORD + 2);
    let lines: Vec<_> = rows
        .into_iter()
        .flat_map(|(word, means)| {
            wrapped(means, room).into_iter().enumerate().map(move |(nth, part)| {
                let word = if nth == 0 { word } else { "" };
                [Piece::new(format!("  {}", left(word, WORD)), paint.strong()), Piece::new(part, paint.plain())]
            })
        })
        .collect();
    let first = scrolled.min(lines.len().saturating_sub(sheet.left()));
    for line in lines.into_iter().skip(first) {
        sheet.line(line);
    }
    first
}
