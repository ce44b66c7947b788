//! How many distinct sources, destinations and flows several windows have together.
//!
//! Distinct counts cannot be added up: the hosts of one window may be those of the next. So each union of five minutes
//! and of an hour keeps small sketches beside its rows, and those of a time are merged. Single windows keep none,
//! because there are too many of them: at the edges of a time, whole unions stand for them. What lies within the time
//! gives the lower bound, and all that touches it the upper one.
//!
//! Sketches of different keys cannot be merged. The key changes at 00:00 UTC, so each day is counted for itself: then
//! the bounds are those of hosts that are all the same, and of hosts that are all different.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_schema::{
    Distinct, Remembered, Report, Unique,
    sketches::{UNIQUE, decode},
};
use weir_sketch::{HyperLogLog, datasketches::hll, hyperloglog::CONFIDENCE};

const LG_K: u32 = Remembered::LG_K;
const REGISTERS: usize = 1 << LG_K;
/// Where the registers of an image begin.
const HEAD: usize = 40;
/// A register as a letter of a text, which compresses to three bits.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The sketches of windows that follow each other and have the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distincts {
    /// How many windows they have.
    pub windows: u64,
    /// Packets that were not counted: each may have brought one more distinct value.
    missing: u64,
    /// Those of the sources, the destinations and the flows.
    sketches: [HyperLogLog; 3],
}

/// The same as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    key_id: u64,
    windows: u64,
    missing: u64,
    registers: [String; 3],
}

impl Distincts {
    /// The sketches of a report; `None` if it has none.
    pub fn of_report(report: &Report) -> Option<Self> {
        let all = &report.sketches.as_ref()?.distinct;
        let mut missing = 0;
        let mut of = |name: &str| {
            let one = all.iter().find(|one| one.name == name)?;
            missing = missing.max(one.missing_packets);
            let key_id = u64::from_str_radix(&one.key_id, 16).ok()?;
            let sketch = hll::read(&decode(&one.hll)?, key_id).ok()?;
            (sketch.precision() >= LG_K).then(|| sketch.folded(LG_K))
        };
        let [sources, destinations, flows] = UNIQUE.map(&mut of);
        let sketches = [sources?, destinations?, flows?];
        Some(Self { windows: 1, missing, sketches })
    }

    /// Adds later windows. Returns false, and is useless from now on, if they have another key.
    #[must_use]
    pub fn add(&mut self, later: &Self) -> bool {
        self.windows += later.windows;
        self.missing = self.missing.saturating_add(later.missing);
        self.sketches.iter_mut().zip(&later.sketches).all(|(sketch, later)| sketch.merge(later).is_ok())
    }

    /// The sketches of both, if both are there and have the same key.
    pub fn both(before: Option<Self>, later: Option<&Self>) -> Option<Self> {
        let (mut both, later) = (before?, later?);
        both.add(later).then_some(both)
    }

    /// The JSON text that [`Distincts::from_json`] reads.
    pub fn to_json(&self) -> String {
        let registers = self.sketches.each_ref().map(|sketch| {
            let image = hll::write_registers(sketch);
            let ranks = image.iter().skip(HEAD).take(REGISTERS);
            ranks.map(|rank| char::from(DIGITS[usize::from(*rank) % DIGITS.len()])).collect()
        });
        let Self { windows, missing, ref sketches } = *self;
        let written = Written { key_id: sketches[0].key_id(), windows, missing, registers };
        serde_json::to_string(&written).expect("it has text keys and is written into memory")
    }

    /// Reads sketches; `None` if the text is something else.
    pub fn from_json(json: &[u8]) -> Option<Self> {
        let Written { key_id, windows, missing, registers } = serde_json::from_slice(json).ok()?;
        let read = |registers: String| {
            let mut image = hll::write_registers(&HyperLogLog::with_precision(LG_K, key_id).ok()?);
            if registers.len() != REGISTERS {
                return None;
            }
            for (rank, digit) in image.iter_mut().skip(HEAD).zip(registers.bytes()) {
                *rank = DIGITS.iter().position(|of| *of == digit)? as u8;
            }
            hll::read(&image, key_id).ok()
        };
        let [sources, destinations, flows] = registers.map(read);
        Some(Self { windows, missing, sketches: [sources?, destinations?, flows?] })
    }
}

/// The distinct counts of a time, out of unions that touch it.
#[derive(Debug, Default)]
pub struct DistinctsOfTime {
    days: Vec<Day>,
}

/// The unions of one key.
#[derive(Debug)]
struct Day {
    /// Those that are within the time, if there are any.
    within: Option<Distincts>,
    all: Distincts,
    /// How long the unions at the edges are, and how much of that is within the time, in seconds.
    edges: (f64, f64),
}

impl DistinctsOfTime {
    /// Adds a union. `time` is its own time, and `within` the part of it that is meant.
    pub fn add(&mut self, union: &Distincts, time: (Timestamp, Timestamp), within: (Timestamp, Timestamp)) {
        let length = |(from, to): (Timestamp, Timestamp)| to.duration_since(from).as_secs_f64().max(0.0);
        let is_within = within == time;
        let key_id = union.sketches[0].key_id();
        let place = self.days.iter().position(|day| day.all.sketches[0].key_id() == key_id);
        let place = place.unwrap_or_else(|| {
            let all = Distincts { windows: 0, missing: 0, sketches: union.sketches.clone() };
            self.days.push(Day { within: None, all, edges: (0.0, 0.0) });
            self.days.len() - 1
        });
        let day = &mut self.days[place];
        let mut is_same = day.all.add(union);
        if is_within {
            match &mut day.within {
                Some(within) => is_same &= within.add(union),
                None => day.within = Some(union.clone()),
            }
        } else {
            day.edges.0 += length(time);
            day.edges.1 += length(within);
        }
        debug_assert!(is_same, "they have the same key");
    }

    /// Adds the unions of another router. Those of one key are merged: each value counts once, whichever of both saw
    /// it.
    pub fn join(&mut self, other: Self) {
        for Day { within, all, edges } in other.days {
            let key_id = all.sketches[0].key_id();
            let Some(day) = self.days.iter_mut().find(|day| day.all.sketches[0].key_id() == key_id) else {
                self.days.push(Day { within, all, edges });
                continue;
            };
            let mut is_same = day.all.add(&all);
            day.within = match (day.within.take(), within) {
                (Some(mut one), Some(other)) => {
                    is_same &= one.add(&other);
                    Some(one)
                }
                (one, other) => one.or(other),
            };
            day.edges = (day.edges.0 + edges.0, day.edges.1 + edges.1);
            debug_assert!(is_same, "they have the same key");
        }
    }

    /// The counts, or `None` if no union is within the time. Then its windows are few, and their own counts do not
    /// change while the union around them grows.
    pub fn counts(&self) -> Option<Unique> {
        self.days.iter().find(|day| day.within.is_some())?;
        let [src_ip, dst_ip, flows] =
            [0, 1, 2].map(|nth| self.days.iter().map(|day| day.count(nth)).reduce(Distinct::or));
        Some(Unique { src_ip: src_ip?, dst_ip: dst_ip?, flows: flows? })
    }
}

impl Day {
    fn count(&self, nth: usize) -> Distinct {
        let all = self.all.sketches[nth].bounds();
        let upper = all.upper.saturating_add(self.all.missing);
        let Some(within) = &self.within else {
            // Of the only union of this day, any part may be meant.
            return Distinct { value: all.value, lower: 0, upper, confidence: CONFIDENCE };
        };
        let least = within.sketches[nth].bounds();
        let (length, part) = self.edges;
        let share = if length > 0.0 { part / length } else { 1.0 };
        let value = least.value + (all.value.saturating_sub(least.value) as f64 * share).round() as u64;
        // Half of the failures are on each side, so both bounds together hold as often as those of one sketch.
        Distinct { value, lower: least.lower, upper, confidence: CONFIDENCE }
    }
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::mix;

    use super::*;

    /// The sketches of a window that has these sources, and twice as many destinations.
    fn window(key_id: u64, sources: std::ops::Range<u64>) -> Distincts {
        let of = |times: u64| {
            let mut sketch = HyperLogLog::with_precision(LG_K, key_id).unwrap();
            for one in sources.start * times..sources.end * times {
                sketch.insert(mix(one ^ times << 48));
            }
            sketch
        };
        Distincts { windows: 1, missing: 0, sketches: [of(1), of(2), of(3)] }
    }

    #[test]
    fn written_sketches_are_read_back() {
        for sources in [0..0, 0..3, 0..70, 0..1_000_000] {
            let written = Distincts { missing: 7, ..window(u64::MAX - 3, sources) };
            assert_eq!(Distincts::from_json(written.to_json().as_bytes()), Some(written));
        }
        let json = window(1, 0..50).to_json();
        for broken in [json.replacen("registers", "others", 1), json.replacen('0', "", 1), json.replacen('0', "-", 1)] {
            assert_eq!(Distincts::from_json(broken.as_bytes()), None);
        }
    }

    #[test]
    fn sketches_of_two_keys_are_not_merged() {
        let both = |one, other| Distincts::both(Some(window(one, 0..9)), Some(&window(other, 0..9)));
        assert_eq!(both(1, 1).map(|both| both.windows), Some(2));
        assert_eq!((both(1, 2), Distincts::both(None, Some(&window(1, 0..9)))), (None, None));
    }

    #[test]
    fn days_are_as_many_as_the_largest_or_as_all_together() {
        let mut of_time = DistinctsOfTime::default();
        assert_eq!(of_time.counts(), None);
        let times = |from, to| (Timestamp::from_second(from).unwrap(), Timestamp::from_second(to).unwrap());
        of_time.add(&window(1, 0..70), times(0, 300), times(0, 300));
        of_time.add(&window(1, 0..70), times(300, 600), times(300, 600));
        let one = of_time.counts().unwrap().src_ip;
        assert!((66..=74).contains(&one.value) && one.lower >= 60 && one.upper <= 80, "{one:?}");
        of_time.add(&window(2, 0..70), times(600, 900), times(600, 900));
        let two = of_time.counts().unwrap().src_ip;
        assert!(two.lower <= 70 && two.upper >= 140 && (66..=74).contains(&two.value), "{two:?}");
    }

    #[test]
    fn edges_widen_the_bounds_by_what_they_alone_have() {
        let times = |from, to| (Timestamp::from_second(from).unwrap(), Timestamp::from_second(to).unwrap());
        let mut of_time = DistinctsOfTime::default();
        of_time.add(&window(1, 0..20_000), times(0, 300), times(150, 300));
        of_time.add(&window(1, 10_000..20_000), times(300, 600), times(300, 600));
        let count = of_time.counts().unwrap().src_ip;
        assert!(count.lower <= 10_000 && count.upper >= 20_000, "{count:?}");
        assert!(count.lower > 8_000 && count.upper < 22_500 && count.value.abs_diff(15_000) < 1_000, "{count:?}");
        let mut edge = DistinctsOfTime::default();
        edge.add(&window(1, 0..20_000), times(0, 300), times(150, 300));
        assert_eq!(edge.counts(), None);
        edge.add(&window(2, 0..10), times(300, 600), times(300, 600));
        let count = edge.counts().unwrap().src_ip;
        assert!(count.lower >= 9 && count.lower <= 10 && count.upper >= 20_010, "{count:?}");
    }
}
