//! Distinct counts over a horizon, such as the last 24 hours: a union of the windows in it.
//!
//! A horizon has [`PARTS`] parts of equal length or, so that each has whole windows, some more. They begin at multiples
//! of that length since 1970. Each part unites the windows that begin in it. The union of a horizon has the parts that
//! begin within it, so it is up to one part shorter than the horizon, and never longer. The answer says when it begins,
//! and how much of it weir has measured.
//!
//! **Clocks**: the times of parts are on the wall clock. If it is stepped, the parts of this run move with it. Parts of
//! an earlier run keep their times, because they may be right: a router without a clock starts in the past and is set
//! later. Parts that seem to lie in the future are not in a union.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use weir_sketch::{Estimate, MergeError};

use crate::{
    local_shard::{UNIQUE_BYTES, unique},
    unique::{Unique, bounded},
};

/// The fewest parts of a horizon, unless windows are longer. Besides them there is one that is filled.
pub const PARTS: u32 = 24;

/// A window that has ended, as a horizon adds it.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// Its length on the monotonic clock.
    pub length: Duration,
    /// By how much the wall clock was stepped in it.
    pub clock_step: Option<SignedDuration>,
    /// Packets of which nothing is known. Each may belong to one more address or flow.
    pub unknown: u64,
    /// The most packets that may each belong to another address or flow.
    pub most: u64,
    /// Its counts, made with the local key.
    pub unique: &'a Unique,
    /// Its own counts in the report: sources, destinations and flows. Their bounds hold with the confidence that the
    /// answer must have.
    pub counted: [Estimate; 3],
}

/// Windows that were united.
#[derive(Clone)]
pub struct Part {
    /// When the first of them began.
    pub start: Timestamp,
    /// When the last of them ended.
    pub end: Timestamp,
    /// How much of it weir has measured.
    pub covered: Duration,
    /// Packets of which nothing is known.
    pub unknown: u64,
    /// The most packets that may each belong to another address or flow.
    pub most: u64,
    /// The union of their counts.
    pub unique: Unique,
    /// True if its times are those of this run's clock.
    pub is_of_this_run: bool,
}

/// The distinct counts of a horizon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer {
    /// The horizon.
    pub length: Duration,
    /// When the first window of the union began.
    pub start: Timestamp,
    /// How much of the horizon weir has measured.
    pub covered: Duration,
    /// Distinct sources, destinations and flows.
    pub counts: [Estimate; 3],
}

/// A horizon.
pub struct Horizon {
    length: Duration,
    /// The length of a part.
    part: Duration,
    parts: Vec<Part>,
    parts_max: usize,
    /// Room for a union.
    union: Unique,
    /// Counts of parts that were dropped, for the next ones.
    spare: Vec<Unique>,
}

impl Horizon {
    /// A horizon of this length, with windows of this length, and what an earlier weir has left of it. All its memory
    /// is allocated and resident from the start.
    pub fn new(length: Duration, interval: Duration, key_id: u64, kept: Vec<Part>) -> Self {
        let (part, parts_max) = Self::layout(length, interval);
        let mut parts = kept;
        parts.truncate(parts_max);
        parts.reserve_exact(parts_max - parts.len());
        let mut spare: Vec<_> = (parts.len()..parts_max).map(|_| unique(key_id)).collect();
        let mut union = unique(key_id);
        spare.iter_mut().chain([&mut union]).for_each(Unique::clear);
        Self { length, part, parts, parts_max, union, spare }
    }

    /// The memory of a horizon of this length with windows of this length, in bytes.
    pub fn bytes_for(length: Duration, interval: Duration) -> usize {
        let (_, parts_max) = Self::layout(length, interval);
        size_of::<Self>() + parts_max * (size_of::<Part>() + size_of::<Unique>()) + (parts_max + 1) * UNIQUE_BYTES
    }

    /// The length of a part, which is that of some windows, and how many parts there are at most.
    fn layout(length: Duration, interval: Duration) -> (Duration, usize) {
        let interval = interval.as_secs().max(1);
        let windows = (length.as_secs() / u64::from(PARTS) / interval).max(1);
        let part = windows * interval;
        (Duration::from_secs(part), length.as_secs().div_ceil(part) as usize + 1)
    }

    /// The horizon.
    pub const fn length(&self) -> Duration {
        self.length
    }

    /// Its parts, in the order in which they began.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Adds a window, and answers for the horizon that ends with it. Bounds hold with the probability `confidence`.
    /// `None` if the window is longer than the horizon.
    ///
    /// # Errors
    ///
    /// The sketches were built differently.
    pub fn add(&mut self, window: &Window<'_>, confidence: f64) -> Result<Option<Answer>, MergeError> {
        let nth = self.open(window);
        let part = &mut self.parts[nth];
        part.end = part.end.max(window.end);
        part.covered = part.covered.saturating_add(window.length);
        part.unknown = part.unknown.saturating_add(window.unknown);
        part.most = part.most.saturating_add(window.most);
        part.unique.merge(window.unique)?;
        let answer = self.answer(window, confidence);
        if let Some(step) = window.clock_step {
            for part in self.parts.iter_mut().filter(|part| part.is_of_this_run) {
                part.start = moved(part.start, step);
                part.end = moved(part.end, step);
            }
        }
        answer
    }

    /// The part to which the window belongs, which is the last one or a new one.
    fn open(&mut self, window: &Window<'_>) -> usize {
        let number = |time: Timestamp| time.as_second().div_euclid(self.part.as_secs().max(1) as i64);
        let is_of = |part: &Part| {
            part.start <= window.start && part.end <= window.end && number(part.start) == number(window.start)
        };
        if self.parts.last().is_some_and(is_of) {
            return self.parts.len() - 1;
        }
        if self.parts.len() >= self.parts_max {
            self.drop_one(window.end);
        }
        let unique = self.spare.pop().unwrap_or_else(|| unique(window.unique.sources.key_id()));
        self.parts.push(Part {
            start: window.start,
            end: window.end,
            covered: Duration::ZERO,
            unknown: 0,
            most: 0,
            unique,
            is_of_this_run: true,
        });
        self.parts.len() - 1
    }

    /// Drops a part that is in no union that ends now or, if there is none, the earliest one.
    fn drop_one(&mut self, now: Timestamp) {
        let useless = (0..self.parts.len()).find(|nth| !is_in(self.length, &self.parts[*nth], now));
        let earliest = || (0..self.parts.len()).min_by_key(|nth| self.parts[*nth].start);
        if let Some(nth) = useless.or_else(earliest) {
            let mut unique = self.parts.remove(nth).unique;
            unique.clear();
            self.spare.push(unique);
        }
    }

    /// The counts of the union. The window is a part of it, so it has at least as many: half of the probability of a
    /// failure is for the bounds of the union, and half for the window's.
    fn answer(&mut self, window: &Window<'_>, confidence: f64) -> Result<Option<Answer>, MergeError> {
        let Self { length, parts, union, .. } = self;
        union.clear();
        let (mut start, mut covered, mut unknown, mut most) = (window.start, Duration::ZERO, 0_u64, 0_u64);
        let mut has_window = false;
        for (nth, part) in parts.iter().enumerate().filter(|(_, part)| is_in(*length, part, window.end)) {
            union.merge(&part.unique)?;
            start = start.min(part.start);
            covered = covered.saturating_add(part.covered);
            unknown = unknown.saturating_add(part.unknown);
            most = most.saturating_add(part.most);
            has_window |= nth + 1 == parts.len();
        }
        if !has_window {
            return Ok(None);
        }
        let mut counts = window.counted;
        for (count, union) in counts.iter_mut().zip(union.each()) {
            let all = bounded(union, unknown, most, f64::midpoint(1.0, confidence));
            *count = Estimate {
                value: all.value.max(count.value),
                lower: all.lower.max(count.lower),
                upper: all.upper.max(count.value),
            };
        }
        Ok(Some(Answer { length: *length, start, covered: covered.min(*length), counts }))
    }
}

/// Returns true if a part is in a horizon of this length that ends now.
fn is_in(length: Duration, part: &Part, now: Timestamp) -> bool {
    part.end <= now && part.start.duration_until(now).unsigned_abs() <= length
}

fn moved(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use weir_sketch::hash::mix;

    use super::*;

    const CONFIDENCE: f64 = 0.999;
    const KEY_ID: u64 = 7;
    const HOUR: u64 = 3600;

    /// A window with its sources, of which weir has seen all but the last `missed`.
    struct Told {
        start: Timestamp,
        end: Timestamp,
        length: Duration,
        sources: Vec<u64>,
        missed: u64,
        step: Option<SignedDuration>,
    }

    impl Told {
        fn add_to(&self, horizon: &mut Horizon) -> Option<Answer> {
            let mut unique = unique(KEY_ID);
            let seen = self.sources.len() - self.missed as usize;
            for source in &self.sources[..seen] {
                unique.sources.insert(mix(*source));
            }
            let exact: HashSet<_> = self.sources[..seen].iter().collect();
            let exact = exact.len() as u64;
            let own = Estimate { value: exact, lower: exact, upper: exact + self.missed };
            let window = Window {
                start: self.start,
                end: self.end,
                length: self.length,
                clock_step: self.step,
                unknown: self.missed,
                most: self.sources.len() as u64,
                unique: &unique,
                counted: [own, Estimate::default(), Estimate::default()],
            };
            horizon.add(&window, CONFIDENCE).unwrap()
        }
    }

    fn second(second: u64) -> Timestamp {
        Timestamp::from_second(second as i64).unwrap()
    }

    /// A horizon as the next weir finds it.
    fn restarted(horizon: &Horizon, interval: Duration) -> Horizon {
        let kept = horizon.parts().iter().map(|part| Part { is_of_this_run: false, ..part.clone() }).collect();
        Horizon::new(horizon.length(), interval, KEY_ID, kept)
    }

    /// Random numbers that follow from a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(self.0) % limit.max(1)
        }
    }

    /// Random histories with restarts, gaps, steps of the clock and lost packets, beside sets of all sources.
    #[test]
    fn the_union_is_that_of_the_windows_in_the_horizon() {
        let (mut answers, mut misses, mut widest) = (0_u64, 0_u64, 0.0_f64);
        for seed in 0..60 {
            let mut random = Random(seed);
            let (hours, interval) = ([1, 6, 24][random.below(3) as usize], [10, 60, 600][random.below(3) as usize]);
            let (length, window_length) = (Duration::from_secs(hours * HOUR), Duration::from_secs(interval));
            let mut horizon = Horizon::new(length, window_length, KEY_ID, Vec::new());
            // True time, and how far the clock is wrong.
            let (mut now, mut error) = (1_700_000_000 / interval * interval, 0_i64);
            let mut told: Vec<(u64, u64, Told)> = Vec::new();
            for _ in 0..400 {
                match random.below(60) {
                    0 => horizon = restarted(&horizon, window_length),
                    1 => {
                        now += random.below(3 * hours * HOUR / interval) * interval;
                        horizon = restarted(&horizon, window_length);
                    }
                    _ => {}
                }
                let step = (random.below(80) == 0).then(|| random.below(20_000) as i64 - 10_000);
                let sources: Vec<u64> = (0..random.below(200)).map(|_| random.below(3_000)).collect();
                let missed = if random.below(5) == 0 { random.below(10).min(sources.len() as u64) } else { 0 };
                let at = |time: u64| second(time.saturating_add_signed(error));
                let one = Told {
                    start: at(now),
                    end: at(now + interval),
                    length: window_length,
                    sources,
                    missed,
                    step: step.map(SignedDuration::from_secs),
                };
                let answer = one.add_to(&mut horizon);
                told.push((now, now + interval, one));
                now += interval;
                error += step.unwrap_or(0);
                let Some(answer) = answer else { continue };
                // What the clock calls the start, in true time: this window was closed before the clock was stepped.
                let wrong = error - step.unwrap_or(0);
                let start = (answer.start.as_second() - wrong) as u64;
                assert!(now - start <= hours * HOUR, "{seed}: longer than the horizon");
                if error != 0 || wrong != 0 {
                    // Parts of earlier runs have other times: only their absence can be checked here.
                    continue;
                }
                let within = || told.iter().filter(|(from, to, _)| *from >= start && *to <= now);
                let all: HashSet<u64> = within().flat_map(|(.., one)| one.sources.iter().copied()).collect();
                let (truth, count) = (all.len() as u64, answer.counts[0]);
                assert!(count.lower <= count.value && count.value <= count.upper);
                answers += 1;
                misses += u64::from(count.lower > truth || count.upper < truth);
                widest = widest.max(count.value.abs_diff(truth) as f64 / truth.max(100) as f64);
                let covered: Duration = within().map(|(.., one)| one.length).sum();
                assert!(answer.covered <= covered, "{seed}: {:?} of {covered:?}", answer.covered);
                // Without a step of the clock nothing in the union is missing.
                if told.iter().all(|(.., one)| one.step.is_none()) {
                    assert_eq!(answer.covered, covered, "{seed}");
                }
            }
            assert!(horizon.parts().len() <= horizon.parts_max);
        }
        assert!(answers > 4_000 && misses * 1000 <= answers * 2, "{misses} of {answers} bounds failed");
        assert!(widest < 0.25, "{widest}");
    }

    #[test]
    fn a_steady_day_is_covered_but_for_a_part() {
        let (minute, day) = (Duration::from_secs(60), 24 * HOUR);
        let mut horizon = Horizon::new(Duration::from_secs(day), minute, KEY_ID, Vec::new());
        let mut last = None;
        for nth in 0..3 * 1440 {
            // Over three midnights.
            let (start, end) = (second(nth * 60), second(nth * 60 + 60));
            let one = Told { start, end, length: minute, sources: vec![nth % 2000], missed: 0, step: None };
            last = one.add_to(&mut horizon);
            let covered = last.unwrap().covered.as_secs();
            assert!(covered == (nth + 1) * 60 || (day - HOUR..=day).contains(&covered), "{nth}: {covered}");
        }
        let last = last.unwrap();
        assert_eq!((last.covered, last.start), (Duration::from_secs(day), second(2 * day)));
        let [count, others @ ..] = last.counts;
        assert!(count.lower <= 1440 && count.upper >= 1440 && count.upper < 1600, "{count:?}");
        assert_eq!(others, [Estimate::default(); 2]);
    }

    #[test]
    fn a_clock_that_is_set_at_last_loses_no_part() {
        let minute = Duration::from_secs(60);
        let at = |second: u64| self::second(second);
        let one = |start: u64, source: u64, step: Option<i64>| Told {
            start: at(start),
            end: at(start + 60),
            length: minute,
            sources: vec![source],
            missed: 0,
            step: step.map(SignedDuration::from_secs),
        };
        let mut horizon = Horizon::new(Duration::from_secs(HOUR), minute, KEY_ID, Vec::new());
        for nth in 0..10 {
            one(1_000_000 + nth * 60, nth, None).add_to(&mut horizon);
        }
        // The router restarts in 1970, and gets the time after two minutes.
        let mut horizon = restarted(&horizon, minute);
        assert_eq!(
            one(60, 100, None).add_to(&mut horizon).unwrap().counts[0].value,
            1,
            "what is in the future is unknown"
        );
        let step = 1_000_900 - 180;
        assert_eq!(one(120, 101, Some(step)).add_to(&mut horizon).unwrap().counts[0].value, 2);
        let answer = one(1_000_900, 102, None).add_to(&mut horizon).unwrap();
        assert_eq!((answer.counts[0].value, answer.covered), (13, 13 * minute));
        assert_eq!(answer.start, at(1_000_000));
        // A clock that is set back by a day: the parts of this run move, those before stay away.
        let answer = one(1_000_960, 103, Some(-86_400)).add_to(&mut horizon).unwrap();
        assert_eq!(answer.counts[0].value, 14);
        let answer = one(1_001_020 - 86_400, 104, None).add_to(&mut horizon).unwrap();
        assert_eq!(answer.counts[0].value, 5);
    }

    #[test]
    fn a_window_is_never_more_than_its_horizon() {
        let minute = Duration::from_secs(60);
        let mut horizon = Horizon::new(Duration::from_secs(HOUR), minute, KEY_ID, Vec::new());
        let mut unique = unique(KEY_ID);
        (0..50_000_u64).for_each(|source| unique.sources.insert(mix(source)));
        for counted in
            [Estimate { value: 60_000, lower: 59_000, upper: 61_000 }, Estimate { value: 9, lower: 9, upper: 9 }]
        {
            let (start, end) = (second(0), second(60));
            let window = Window {
                start,
                end,
                length: minute,
                clock_step: None,
                unknown: 5,
                most: 1_000_000,
                unique: &unique,
                counted: [counted; 3],
            };
            let [count, ..] = horizon.add(&window, CONFIDENCE).unwrap().unwrap().counts;
            assert!(count.value >= counted.value && count.lower >= counted.lower && count.upper >= count.value);
        }
        let long =
            Told { start: second(0), end: second(HOUR + 1), length: minute, sources: vec![1], missed: 0, step: None };
        assert_eq!(long.add_to(&mut horizon), None);
    }
}
