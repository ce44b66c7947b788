//! A sparkline of seconds, the latest at the right.

use std::collections::VecDeque;

/// Blocks of eight heights.
pub const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// A second without a reading.
const UNKNOWN: char = '·';

/// The last seconds in this many columns. `full` is the value of the highest block. A second without traffic is a
/// blank.
pub fn spark<T: Copy>(seconds: &VecDeque<Option<T>>, of: impl Fn(T) -> f64, full: f64, columns: usize) -> String {
    let passed = seconds.len().saturating_sub(columns);
    let blanks = columns.saturating_sub(seconds.len());
    let block = |second: &Option<T>| match second.map(&of) {
        None => UNKNOWN,
        Some(value) if value <= 0.0 || full <= 0.0 => ' ',
        Some(value) => BLOCKS[((value / full * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    " ".repeat(blanks) + &seconds.iter().skip(passed).map(block).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_second_is_at_the_right_and_no_traffic_is_blank() {
        let seconds: VecDeque<_> = [Some(80), Some(0), None, Some(1), Some(41), Some(80)].into();
        assert_eq!(spark(&seconds, f64::from, 80.0, 8), "  █ ·▁▅█");
        assert_eq!(spark(&seconds, f64::from, 80.0, 3), "▁▅█");
        assert_eq!(spark(&seconds, |_| 0.0, 0.0, 2), "  ");
    }
}
