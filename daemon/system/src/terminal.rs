//! The terminal that text is written to: whether it has colours, and its size.

use std::{env, os::fd::AsFd};

use rustix::termios::tcgetwinsize;

/// No colours are used if this is set to anything (<https://no-color.org>).
const NO_COLOR: &str = "NO_COLOR";
/// The kind of the terminal.
const TERM: &str = "TERM";

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters of a line.
    pub columns: usize,
    /// The number of lines.
    pub lines: usize,
}

/// Returns true if text gets colours, whether it goes to a terminal or not.
pub fn has_colors(is_terminal: bool) -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    is_terminal && !is_set(NO_COLOR) && env::var_os(TERM).is_none_or(|term| term != "dumb")
}

/// The size of a terminal; `None` if it is none, or if it does not know.
pub fn size(of: impl AsFd) -> Option<Size> {
    let size = tcgetwinsize(of).ok()?;
    let size = Size { columns: size.ws_col.into(), lines: size.ws_row.into() };
    (size.columns > 0 && size.lines > 0).then_some(size)
}
