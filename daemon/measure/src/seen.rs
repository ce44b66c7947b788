//! The filter of seen flows: created once, shared by all workers, rotated at the end of a window.

use std::time::Duration;

use weir_config::SeenFlows;
use weir_sketch::Seen;
use weir_system::memory::Part;

use super::configured::configured;

/// An empty filter with these settings. All its memory is resident from the start. Its first key has this fingerprint.
pub fn filter(settings: &SeenFlows, key_id: u64) -> Seen {
    let seen = configured(Seen::with_capacity(settings.capacity, settings.false_positive_rate, key_id));
    seen.clear();
    seen
}

/// The memory of the filter.
pub fn memory(settings: &SeenFlows) -> Part {
    let bytes = Seen::bytes_for(settings.capacity, settings.false_positive_rate) as u64;
    Part::new("filter of seen flows", bytes, "shared by all")
}

/// Decides when the filter is rotated: when a generation is over, or earlier if the filter is full.
///
/// Any ascending clock can be used: the daemon uses the monotonic clock, a replay that of the capture.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    generation: Duration,
    /// The start of the open generation; unknown before the first window.
    begun: Option<Duration>,
}

impl Rotation {
    /// Generations of this length. The first one starts at `begun`, or at the first window if that is `None`.
    pub const fn new(generation: Duration, begun: Option<Duration>) -> Self {
        Self { generation, begun }
    }

    /// The start of the open generation, if it is known.
    pub const fn begun(&self) -> Option<Duration> {
        self.begun
    }

    /// Uses generations of this length from now on.
    pub const fn change(&mut self, generation: Duration) {
        self.generation = generation;
    }

    /// Ends a window with these times. Returns whether to rotate the filter now.
    pub fn take_turn(&mut self, begin: Duration, end: Duration, is_full: bool) -> bool {
        // If a capture's clock was set back, the generation begins again. Otherwise it would last until that time is
        // reached again.
        let begun = self.begun.filter(|begun| *begun <= end).unwrap_or(begin);
        self.begun = Some(begun);
        let is_due = is_full || end.saturating_sub(begun) >= self.generation;
        if is_due {
            self.begun = Some(end);
        }
        is_due
    }
}

impl Rotation {
    /// How often to rotate the filter for the empty windows of this length between the end of the last window and
    /// `next`. Twice is enough to forget everything.
    pub fn pass(&mut self, last_end: Duration, next: Duration, interval: Duration) -> u32 {
        let mut rotations = 0;
        let mut end = last_end;
        while rotations < 2 {
            // The first window that ends when the generation is over.
            let begun = self.begun.unwrap_or(end);
            let left = begun.saturating_add(self.generation).saturating_sub(end).max(Duration::from_nanos(1));
            let windows = left.as_nanos().div_ceil(interval.as_nanos().max(1));
            end = end.saturating_add(interval.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX)));
            if end > next {
                break;
            }
            self.begun = Some(end);
            rotations += 1;
        }
        if rotations == 2 {
            // Nothing is left to forget.
            self.begun = Some(next);
        }
        rotations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_generation_lasts_as_long_as_it_should() {
        let mut rotation = Rotation::new(5 * MINUTE, None);
        let due: Vec<u32> = (10..30).filter(|n| rotation.take_turn(*n * MINUTE, (*n + 1) * MINUTE, false)).collect();
        assert_eq!(due, [14, 19, 24, 29]);
        let mut begun = Rotation::new(5 * MINUTE, Some(8 * MINUTE));
        assert!(!begun.take_turn(11 * MINUTE, 12 * MINUTE, false) && begun.take_turn(12 * MINUTE, 13 * MINUTE, false));
    }

    /// How often the filter is rotated if only the one-minute windows that begin at these minutes have packets.
    fn with_silence(generation: u32, windows: &[u32]) -> u32 {
        let mut rotation = Rotation::new(generation * MINUTE, None);
        let mut rotations = 0;
        for (nth, minute) in windows.iter().enumerate() {
            let end = (minute + 1) * MINUTE;
            rotations += u32::from(rotation.take_turn(*minute * MINUTE, end, false));
            let next = windows.get(nth + 1).map_or(end, |next| *next * MINUTE);
            rotations += rotation.pass(end, next, MINUTE);
        }
        rotations
    }

    #[test]
    fn time_without_packets_counts_as_empty_windows() {
        let steady: Vec<_> = (10..30).collect();
        assert_eq!(with_silence(5, &steady), 4);
        // The same generations are over, whichever windows are left out, but two rotations forget everything.
        assert_eq!(with_silence(5, &[10, 11, 17, 29]), 1 + 2);
        assert_eq!([with_silence(5, &[10, 13]), with_silence(5, &[10, 15]), with_silence(5, &[10, 20])], [0, 1, 2]);
        assert_eq!(with_silence(5, &[10, 10_000]), 2);
        let mut rotation = Rotation::new(Duration::MAX, Some(MINUTE));
        assert!(rotation.pass(2 * MINUTE, Duration::MAX, Duration::MAX) <= 2, "nothing overflows");
    }

    #[test]
    fn a_generation_that_is_made_shorter_ends_sooner() {
        let mut rotation = Rotation::new(5 * MINUTE, Some(Duration::ZERO));
        assert!(!rotation.take_turn(MINUTE, 2 * MINUTE, false));
        rotation.change(MINUTE);
        assert!(rotation.take_turn(MINUTE, 2 * MINUTE, false));
    }

    #[test]
    fn a_full_filter_is_rotated_early_and_begins_a_new_generation() {
        let mut rotation = Rotation::new(5 * MINUTE, None);
        assert!(rotation.take_turn(Duration::ZERO, MINUTE, true));
        assert!(!rotation.take_turn(5 * MINUTE, 5 * MINUTE, false), "only four minutes ago");
        assert!(rotation.take_turn(5 * MINUTE, 6 * MINUTE, false));
    }

    #[test]
    fn a_clock_that_was_set_back_begins_a_generation_and_rotates_nothing() {
        let mut rotation = Rotation::new(2 * MINUTE, Some(10 * MINUTE));
        let due: Vec<u32> = (2..7).filter(|n| rotation.take_turn(*n * MINUTE, (*n + 1) * MINUTE, false)).collect();
        assert_eq!(due, [3, 5], "but a generation begins");
    }
}
