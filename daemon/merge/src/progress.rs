//! How far the merge is: one line on standard error that is rewritten in place.

use std::{
    io::{self, Write},
    time::Duration,
};

use weir_system::{
    clock,
    numbers::{bytes, grouped},
};

/// The least time between two lines.
const PERIOD: Duration = Duration::from_millis(100);
/// Columns of the bar.
const BAR: usize = 30;
/// Returns to the start of the line and clears it (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";

/// Shows how much of the files was read.
pub struct Progress {
    size: Option<u64>,
    shown: Option<Duration>,
}

impl Progress {
    /// Of files with this many bytes, if that is known.
    pub const fn new(size: Option<u64>) -> Self {
        Self { size, shown: None }
    }

    /// Shows that so many bytes were read, in so many reports.
    pub fn update(&mut self, read: u64, reports: u64) {
        let now = clock::now().monotonic;
        if self.shown.is_none_or(|shown| now.saturating_sub(shown) >= PERIOD) {
            self.shown = Some(now);
            print(&format!("{CLEAR}{}", line(self.size, read, reports)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            print(CLEAR);
        }
    }
}

/// Nothing can be done about a terminal that does not take it.
fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn line(size: Option<u64>, read: u64, reports: u64) -> String {
    let counted = format!("{} reports, {}", grouped(reports), bytes(read));
    let Some(size) = size else { return counted };
    let filled = (u128::from(read.min(size)) * BAR as u128 / u128::from(size.max(1))) as usize;
    format!("{}{} {counted} of {}", "█".repeat(filled), "░".repeat(BAR - filled), bytes(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_long_as_what_was_read() {
        let half = line(Some(2_000_000), 1_000_000, 1_234);
        assert!(half.starts_with(&format!("{}{} 1,234 reports", "█".repeat(15), "░".repeat(15))), "{half}");
        assert!(!line(None, 1_000_000, 1).contains('█'));
        assert!(line(Some(0), 0, 0).contains('░'));
    }
}
