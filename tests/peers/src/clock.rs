//! Time: of a piece of work, and the median of many.

use std::time::Instant;

/// Nanoseconds for each of `count` operations of `work`.
#[expect(clippy::disallowed_methods, reason = "measuring is what this program is for")]
pub fn nanoseconds_each(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The middle of some numbers; not-a-number of none.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => numbers[middle],
        _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
    }
}

/// What a load costs that has to wait for the one before, in a memory of this size: says whether it is a cache's.
pub fn dependent_load_nanoseconds(bytes: usize) -> f64 {
    const LOADS: usize = 1_000_000;
    let mut next: Vec<[u32; 16]> = vec![[0; 16]; (bytes / 64).max(2)];
    // Sattolo's shuffle: one cycle through all lines.
    let mut state = 1u64;
    (0..next.len()).for_each(|line| next[line][0] = line as u32);
    for line in (1..next.len()).rev() {
        state = weir_common::hash::mix(state.wrapping_add(line as u64));
        let other = (u128::from(state) * line as u128 >> 64) as usize;
        let held = next[line][0];
        next[line][0] = next[other][0];
        next[other][0] = held;
    }
    let walk = |from: u32, loads: usize| (0..loads).fold(from, |line, _| next[line as usize][0]);
    let start = walk(0, next.len().min(LOADS));
    nanoseconds_each(LOADS, || {
        std::hint::black_box(walk(start, LOADS));
    })
}
