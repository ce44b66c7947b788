//! The help screen.

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
};

/// The keys and their actions.
const KEYS: [(&str, &str); 13] = [
    ("1 … 9, 0, Tab", "choose the list"),
    ("↑ ↓ PgUp PgDn", "choose a row; g the first, G the last"),
    ("Enter", "all about the row: its last hour, peers, ports, what views know of it"),
    ("/", "host:192.0.2.7 net:10.0.0.0/8 port:443 proto:udp, or a part of it"),
    ("Esc", "clear the filter, or go back"),
    ("b, p", "order by bytes, by packets"),
    ("< >  or  , .", "back in time and forth, by windows or spans; Home oldest, End now"),
    ("t", "the last 1m, 5m, 20m, 1h or 24h together; then < > step by as much"),
    ("w", "lists of the last window, or of the open one so far"),
    ("d", "names of addresses by reverse DNS; asks your resolver"),
    ("Space", "hold the screen, and go on"),
    ("?", "this help"),
    ("q, Ctrl-C", "leave"),
];

/// How to read the screen.
const READING: [&str; 7] = [
    "━━━━━├──┿──┤  a bar with its bounds: the truth is between ├ and ┤",
    "━━━━━━━┃      bounds so close that they are one place;   ━━━━━━━●  exact",
    "±             how far the truth may be away, for all rows of a list together",
    "kept, lost    of the packets of the last window, or of the time shown",
    "coverage      packets that weir saw, per packet that the interface counted",
    "!             weir does not see all packets of this interface",
    "sparklines    one column a second, or a step of the time shown; a dot: not known",
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
