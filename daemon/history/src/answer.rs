//! What clients get.

use jiff::Timestamp;
use weir_report::{HISTORY_SCHEMA, History, PastWindow, Reach};

use crate::{
    seconds::Seconds,
    windows::{Time, Windows},
};

/// Steps of an answer where the client does not say how many.
pub const POINTS: usize = 360;
/// Maximum number of steps.
pub const POINTS_MAX: usize = 3600;

/// What is remembered of this time, in at most this many steps.
pub fn history(seconds: &Seconds, windows: &Windows, time: &Time, points: usize) -> History {
    let reach = Reach { seconds: seconds.oldest(), windows: windows.oldest() };
    let known = [seconds.newest(), windows.newest()].into_iter().flatten().max();
    let to = time.to.or(known).unwrap_or(Timestamp::UNIX_EPOCH);
    let from = time.from.or([reach.seconds, reach.windows].into_iter().flatten().min()).unwrap_or(to).min(to);
    // Whole seconds around this time.
    let first = from.as_millisecond().div_euclid(1000);
    let end = (to.as_millisecond() + 999).div_euclid(1000);
    let span = u64::try_from(end - first).unwrap_or(0);
    let step = span.div_ceil(points as u64).max(1);
    let steps = span.div_ceil(step) as usize;
    let last = first.saturating_add_unsigned(steps as u64 * step);
    History {
        schema: HISTORY_SCHEMA.to_owned(),
        from: Timestamp::from_second(first).unwrap_or(from),
        to: Timestamp::from_second(last).unwrap_or(to),
        step_seconds: step,
        reaches_back_to: reach,
        interfaces: seconds.sums(first, step, steps),
        windows: together(windows.index(time), points),
    }
}

/// At most this many, with neighbours together.
fn together(windows: Vec<PastWindow>, points: usize) -> Vec<PastWindow> {
    let each = windows.len().div_ceil(points).max(1);
    let mut all = Vec::with_capacity(windows.len().div_ceil(each));
    for some in windows.chunks(each) {
        let mut sum = some[0].clone();
        for next in &some[1..] {
            sum.add(next);
        }
        all.push(sum);
    }
    all
}
