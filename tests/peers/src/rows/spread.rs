//! "Which keys touch many?": a million keys that touch a few items each, and a thousand that touch many.
//!
//! A bound that fails more often than its confidence allows is a wrong answer, and so is a large
//! key's count that is far off.

use weir_sketch::{Estimate, hash::mix};

use crate::{
    bench::Bench,
    clock::{median, time_each},
    contender::Subject,
    item::{Bytes, Item},
    ours::spread::Shared,
    peers::spread::OneEach,
    report::{Group, Outcome, MemoryLevel},
};

const STRUCTURE: &str = "Spread, 1 M keys";
/// Keys that touch many.
const LARGE: u64 = 1_000;
/// Keys that touch one to four items.
const SMALL: u64 = 1_000_000;
/// How many items the smallest of the large keys touches; the largest touches eight times as many.
const RESOLUTION: u64 = 1_000;
/// The relative standard error of a large key's count: in weir's sketch, and in 2^10 registers.
const STANDARD_ERROR: f64 = 0.04;

/// A key and what it touches.
#[derive(Clone, Copy)]
pub struct Contact {
    /// The key that touches an item.
    pub key: Bytes<8>,
    /// The item that it touches.
    pub item: Bytes<8>,
}

/// A structure that counts how many items each key touches.
pub trait Spreads: Subject<Contact> {
    /// How many items each of these keys touches, with bounds if the sketch has them.
    fn touched(&self, keys: &[Bytes<8>]) -> Vec<(u64, Option<Estimate>)>;
}

/// Measures all contenders for spread.
pub fn run(bench: &mut Bench) {
    if !bench.settings.wants(STRUCTURE) {
        return;
    }
    let contacts = contacts();
    let pairs = contacts.len() as u64;
    let mut contenders: [(&str, bool, Box<dyn Spreads>); 2] = [
        ("Spread", true, Box::new(Shared::with_resolution(pairs, RESOLUTION, STANDARD_ERROR))),
        ("cardinality-estimator, one a key", false, Box::new(OneEach::default())),
    ];
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..5 {
        for ((_, _, subject), times) in contenders.iter_mut().zip(&mut times) {
            subject.clear();
            time_each(&contacts, times, |contacts| subject.put(contacts));
        }
    }
    let outcomes = contenders.iter().zip(times).map(|((name, ours, subject), times)| {
        let error = Error::of(subject.as_ref());
        bench.check(error.relative < 1.5 * STANDARD_ERROR, || {
            format!("{STRUCTURE}: {name} is off by {:.1} % for large keys", error.relative * 100.0)
        });
        // Bounds are promised at 99.9 %. Those of one sketch come from the same memory, so misses come together.
        bench.check(error.beyond < 0.003, || {
            format!("{STRUCTURE}: {name} breaks {:.2} % of its bounds", error.beyond * 100.0)
        });
        Outcome {
            name,
            ours: *ours,
            nanoseconds: vec![median(times)],
            memory_bytes: subject.memory_bytes(),
            error: format!("{:.1} %; {}", error.relative * 100.0, error.bounds()),
        }
    });
    let outcomes = outcomes.collect();
    let mut group = Group::new(STRUCTURE, MemoryLevel::Far, &["insert"], "RMSE of large keys; bounds broken");
    group.add(Bytes::<8>::NAME, outcomes);
    bench.finish(group);
}

/// How many items a key touches.
const fn truth(key: u64) -> u64 {
    if key < LARGE { RESOLUTION * (LARGE + 7 * key) / LARGE } else { 1 + key % 4 }
}

/// Every key with every item that it touches, in random order.
fn contacts() -> Vec<Contact> {
    let all = (0..LARGE + SMALL).flat_map(|key| (0..truth(key)).map(move |item| (key, item)));
    let mut all: Vec<(u64, u64)> = all.collect();
    all.sort_unstable_by_key(|(key, item)| mix(mix(*key) ^ item));
    all.into_iter().map(|(key, item)| Contact { key: Bytes::nth(key), item: Bytes::nth(item) }).collect()
}

/// How wrong a sketch is about some of the keys.
struct Error {
    /// The root of the mean squared relative error of large keys.
    relative: f64,
    /// The share of bounds that do not hold the truth.
    beyond: f64,
    has_bounds: bool,
}

impl Error {
    /// The errors of all large keys and of a tenth of the small ones.
    fn of(subject: &dyn Spreads) -> Self {
        let numbers: Vec<u64> = (0..LARGE + SMALL / 10).collect();
        let keys: Vec<Bytes<8>> = numbers.iter().map(|number| Bytes::nth(*number)).collect();
        let touched = subject.touched(&keys);
        let (mut squares, mut bounds, mut beyond) = (0.0, 0, 0);
        for (number, (value, estimate)) in numbers.into_iter().zip(touched) {
            let truth = truth(number);
            if number < LARGE {
                squares += (value as f64 / truth as f64 - 1.0).powi(2);
            }
            if let Some(Estimate { lower, upper, .. }) = estimate {
                bounds += 1;
                beyond += u64::from(!(lower..=upper).contains(&truth));
            }
        }
        Self {
            relative: f64::sqrt(squares / LARGE as f64),
            beyond: beyond as f64 / u64::max(bounds, 1) as f64,
            has_bounds: bounds > 0,
        }
    }

    fn bounds(&self) -> String {
        if self.has_bounds { format!("{:.3} %", self.beyond * 100.0) } else { "has none".into() }
    }
}
