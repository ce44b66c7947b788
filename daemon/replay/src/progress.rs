//! The progress of a replay: one line on standard error that is rewritten in place.

use std::{
    io::{self, Write},
    time::Duration,
};

use weir_system::{clock, numbers::bytes};

/// The least time between two lines.
const PERIOD: Duration = Duration::from_millis(100);
/// Returns to the start of the line and clears it (ECMA-48, EL).
const CLEAR: &str = "\r\x1b[K";

/// Shows how much of the captures was read.
pub struct Progress {
    /// Bytes of all captures, if known.
    size: Option<u64>,
    started: Duration,
    /// When the last line was written.
    shown: Option<Duration>,
}

impl Progress {
    /// Of captures with this many bytes.
    pub fn new(size: Option<u64>) -> Self {
        Self { size, started: clock::now().monotonic, shown: None }
    }

    /// So many bytes were read.
    pub fn update(&mut self, read: u64) {
        let now = clock::now().monotonic;
        if self.shown.is_none_or(|shown| now.saturating_sub(shown) >= PERIOD) {
            self.shown = Some(now);
            print(&format!("{CLEAR}{}", line(read, self.size, now.saturating_sub(self.started))));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        print(CLEAR);
    }
}

/// Nothing can be done about a terminal that does not take it.
fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// What the terminal shows after this time.
fn line(read: u64, size: Option<u64>, elapsed: Duration) -> String {
    let a_second = read as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let rate = bytes(a_second as u64);
    match size {
        Some(size) => {
            let left = size.saturating_sub(read) as f64 / a_second.max(f64::MIN_POSITIVE);
            let percent = 100.0 * read as f64 / size.max(1) as f64;
            format!("{percent:3.0} %  {} of {}, {rate}/s, {left:.0} s left", bytes(read), bytes(size))
        }
        None => format!("{}, {rate}/s", bytes(read)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_much_is_read_and_how_long_it_takes() {
        let second = Duration::from_secs(1);
        assert_eq!(line(1_000_000, Some(4_000_000), second), " 25 %  1.0 MB of 4.0 MB, 1.0 MB/s, 3 s left");
        assert_eq!(line(3_000_000, None, 2 * second), "3.0 MB, 1.5 MB/s");
        // Nothing is known yet, and an empty capture has nothing to read.
        assert!(line(0, Some(1), Duration::ZERO).starts_with("  0 %"));
        assert!(line(0, Some(0), second).ends_with(" 0 s left"));
    }
}
