//! The help screen.

use super::{
    paint::Paint,
    sheet::{Piece, Sheet},
};

/// A key and its action; whether there is one for fleets, too.
type Does = (&'static str, &'static str, bool);

/// The keys and their actions.
const KEYS: [Does; 13] = [
    ("1 … 9, 0, Tab", "choose the list", true),
    ("↑ ↓ PgUp PgDn", "choose a row; g the first, G the last", true),
    ("Enter", "all about the row: its last hour, peers, ports, all views", true),
    ("/", "filter: host:192.0.2.7 net:10.0.0.0/8 port:443, proto:, a text", true),
    ("Esc", "clear the filter, or go back", true),
    ("b, p", "order by bytes, by packets", true),
    ("< >  or  , .", "a window or span back or forward; Home: oldest, End: now", false),
    ("t", "a span: the last 1m, 5m, 20m, 1h or 24h together", false),
    ("w", "lists of the last window, or of the open one so far", false),
    ("d", "names of addresses by reverse DNS; asks your resolver", true),
    ("Space", "freeze the screen; again: continue", true),
    ("?", "this help", true),
    ("q, Ctrl-C", "quit", true),
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

/// The same of a fleet.
const READING_OF_FLEET: [&str; 9] = [
    "━━━━━├─────┤  a bar with its bounds: the truth is between ├ and ┤",
    "━━━━━━━┃      bounds too close to draw separately;   ━━━━━━━●  exact",
    "at least      the lower bound, which orders the rows; at most: the upper bound",
    "?             after the rank: another key may belong there instead",
    "routers       whose reports are in this window, of all that are known",
    "kept, lost    share of the packets of this window",
    "missing, late, came twice …  reports since the first one that was read",
    "!             this router is late, or has no report in this window",
    "sparklines    one column a report, the last one at the right; · not known",
];

/// Draws the help.
pub fn help(is_fleet: bool, sheet: &mut Sheet<'_>, paint: Paint) {
    for (key, does, _) in KEYS.into_iter().filter(|(.., is_for_fleets)| *is_for_fleets || !is_fleet) {
        sheet.line([Piece::new(format!("  {key:<15}"), paint.strong()), Piece::new(does, paint.plain())]);
    }
    sheet.line([]);
    for line in if is_fleet { &READING_OF_FLEET[..] } else { &READING } {
        sheet.line([Piece::new(format!("  {line}"), paint.plain())]);
    }
}
