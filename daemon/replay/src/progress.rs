//! The progress of a replay: one line on standard error that is rewritten in place.

use std::{
    io::{self, Write},
    time::Duration,
};

use jiff::SignedDuration;
use weir_system::{
    clock,
    numbers::{self, bytes, packet_rate},
};

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
    /// The progress of captures with this many bytes.
    pub fn new(size: Option<u64>) -> Self {
        Self { size, started: clock::now().monotonic, shown: None }
    }

    /// Shows that this many bytes and packets were read.
    pub fn update(&mut self, read: u64, packets: u64) {
        let now = clock::now().monotonic;
        if self.shown.is_none_or(|shown| now.saturating_sub(shown) >= PERIOD) {
            self.shown = Some(now);
            let line = line(Read { bytes: read, packets }, self.size, now.saturating_sub(self.started));
            print(&format!("{CLEAR}{line}"));
        }
    }

    /// Removes the line until the next update, so that something else can be written.
    pub fn hide(&mut self) {
        if self.shown.take().is_some() {
            print(CLEAR);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}

/// Writes to the terminal. If that fails, nothing can be done.
fn print(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The bytes and packets that were read so far.
#[derive(Clone, Copy)]
struct Read {
    bytes: u64,
    packets: u64,
}

/// The line after this time.
fn line(read: Read, size: Option<u64>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let rate = format!("{}/s, {}", bytes((read.bytes as f64 / seconds) as u64), packet_rate(read.packets, seconds));
    let Some(size) = size else { return format!("{}, {rate}", bytes(read.bytes)) };
    let share = read.bytes as f64 / size.max(1) as f64;
    let left = size.saturating_sub(read.bytes) as f64 * seconds / read.bytes.max(1) as f64;
    let left = SignedDuration::try_from_secs_f64(left.ceil()).unwrap_or(SignedDuration::MAX);
    let left = if read.bytes == 0 { "?".to_owned() } else { numbers::time(left) };
    format!("{:3.0} %  {} of {}, {rate}, {left} left", 100.0 * share, bytes(read.bytes), bytes(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_how_much_is_read_and_how_long_the_rest_takes() {
        let second = Duration::from_secs(1);
        let read = |bytes, packets| Read { bytes, packets };
        let quarter = line(read(1_000_000, 2_000), Some(4_000_000), second);
        assert_eq!(quarter, " 25 %  1.0 MB of 4.0 MB, 1.0 MB/s, 2.0 kpkt/s, 3s left");
        assert!(line(read(1_000, 2), Some(4_000_000), second).ends_with(", 1h 6m 39s left"));
        assert_eq!(line(read(3_000_000, 500), None, 2 * second), "3.0 MB, 1.5 MB/s, 250 pkt/s");
        // Nothing is known yet, and an empty capture has nothing to read.
        assert!(line(read(0, 0), Some(1), Duration::ZERO).ends_with(" ? left"));
        assert!(line(read(0, 0), Some(0), second).starts_with("  0 %"));
    }
}
