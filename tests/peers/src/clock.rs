//! Measures the time of a piece of work, and the median of many times.

use std::time::Instant;

/// Keys that are timed together: enough for the clock, and so few that most pieces are not interrupted. So the median
/// of all pieces is the time of an undisturbed one.
const PIECE: usize = 8192;

/// Does some work on all keys, and adds to `times` the nanoseconds that each key of a piece took.
pub fn time_each<K>(keys: &[K], times: &mut Vec<f64>, mut work: impl FnMut(&[K])) {
    for piece in keys.chunks(PIECE) {
        times.push(nanoseconds(|| work(piece)) / piece.len() as f64);
    }
}

/// The nanoseconds that some work takes.
#[expect(clippy::disallowed_methods, reason = "measuring is what this program is for")]
pub fn nanoseconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

/// The median of some numbers; NaN if there are none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => numbers[middle],
        _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
    }
}

/// The time of a load that depends on the previous one, in memory of this size. It shows which cache the memory fits
/// into.
pub fn dependent_load_nanoseconds(bytes: usize) -> f64 {
    const LOADS: usize = 1_000_000;
    let mut next: Vec<[u32; 16]> = vec![[0; 16]; (bytes / 64).max(2)];
    // Sattolo's shuffle: one cycle through all lines.
    let mut state = 1u64;
    for line in 0..next.len() {
        next[line][0] = line as u32;
    }
    for line in (1..next.len()).rev() {
        state = weir_sketch::hash::mix(state.wrapping_add(line as u64));
        let other = ((u128::from(state) * line as u128) >> 64) as usize;
        let held = next[line][0];
        next[line][0] = next[other][0];
        next[other][0] = held;
    }
    let walk = |from: u32, loads: usize| (0..loads).fold(from, |line, _| next[line as usize][0]);
    let start = walk(0, next.len().min(LOADS));
    let time = nanoseconds(|| {
        std::hint::black_box(walk(start, LOADS));
    });
    time / LOADS as f64
}
