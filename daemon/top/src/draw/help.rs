//! The help screen.

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
};

/// The keys and their actions.
const KEYS: [(&str, &str); 13] = [
    ("1 … 9, 0, Tab", "choose the list"),
    ("↑ ↓ PgUp PgDn", "choose a row; g the first, G the last"),
    ("Enter", "all about the row: its last hour, peers, ports, all views"),
    ("/", "filter: host:192.0.2.7 net:10.0.0.0/8 port:443, proto:, a text"),
    ("Esc", "clear the filter, or go back"),
    ("b, p", "order by bytes, by packets"),
    ("< >  or  , .", "a window or span back or forward; Home: oldest, End: now"),
    ("t", "a span: the last 1m, 5m, 20m, 1h or 24h together"),
    ("w", "lists of the last window, or of the open one so far"),
    ("d", "names of addresses by reverse DNS; asks your resolver"),
    ("Space", "freeze the screen; again: continue"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// How to read the screen.
const READING: [&str; 7] = [
    "━━━━━├──┿──┤  a bar with its bounds: the truth is between ├ and ┤",
    "━━━━━━━┃      bounds too close to draw separately;   ━━━━━━━●  exact",
    "±             how far the true number may be away; holds for all rows at once",
    "kept, lost    share of the packets of the last window, or of the time shown",
    "coverage      packets that weir saw, per packet that the interface counted",
    "!             weir does not see all packets of this interface",
    "sparklines    one column a second, or a step of the time shown; · not known",
];

/// Draws the help.
pub fn help(sheet: &mut Sheet<'_>, paint: Paint) {
    for (key, does) in KEYS {
        sheet.line([Piece::new(format!("  {key:<15}"), paint.strong()), Piece::new(does, paint.plain())]);
    }
    sheet.line([]);
    for line in READING {
        sheet.line([Piece::new(format!("  {line}"), paint.plain())]);
    }
}
