//! Tests that hold for every sketch that can be merged.
//!
//! States are compared by their `Debug` text, which shows every counter, register and bit. (Only [`Spread`]s, which
//! print thousands of registers, are compared directly.)

use core::fmt::Debug;
use std::{error::Error, format};

use super::{
    BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountMin, CountingBloom, Geometry,
    HeavyLight, HyperLogLog, Merge, MergeError, Quotient, SharedBloom, Spread, Touch, UltraLogLog,
    count_min::Plain,
    oracle::{SplitMix64, hash},
};
use crate::{CountAndSum, hash::Key};

/// A sketch in the form that the tests need. It is small, so that keys collide.
trait Lawful: Merge + Debug + Sized {
    fn small(key_id: u64) -> Self;
    fn larger(key_id: u64) -> Self;
    fn feed(&mut self, hash: u64, weight: CountAndSum);

    fn state(&self) -> impl PartialEq + Debug + use<Self> {
        format!("{self:?}")
    }
}

impl Lawful for CountMin<CountAndSum> {
    fn small(key_id: u64) -> Self {
        Self::with_error(ERRORS[0], 0.02, key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_error(ERRORS[1], 0.02, key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, weight: CountAndSum) {
        self.add(hash, weight);
    }
}

impl Lawful for CountMin<CountAndSum, Plain> {
    fn small(key_id: u64) -> Self {
        Self::plain_with_error(ERRORS[0], 0.02, key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::plain_with_error(ERRORS[1], 0.02, key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, weight: CountAndSum) {
        self.add(hash, weight);
    }
}

impl Lawful for BlockedCountMin<CountAndSum> {
    fn small(key_id: u64) -> Self {
        Self::with_error(ERRORS[0], key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_error(ERRORS[1], key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, weight: CountAndSum) {
        self.add(hash, weight);
    }
}

impl Lawful for BlockedCountMin<CountAndSum, Plain> {
    fn small(key_id: u64) -> Self {
        Self::plain_with_error(ERRORS[0], key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::plain_with_error(ERRORS[1], key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, weight: CountAndSum) {
        self.add(hash, weight);
    }
}

impl Lawful for HeavyLight<CountAndSum> {
    fn small(key_id: u64) -> Self {
        Self::with_error(crate::test_size::of(0.02, 0.3), key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_error(crate::test_size::of(0.01, 0.1), key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, weight: CountAndSum) {
        self.add(hash, weight);
    }
}

impl Lawful for CandidateBuckets<u64, CountAndSum> {
    fn small(key_id: u64) -> Self {
        Self::with_capacity(crate::test_size::of(64, 12), key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_capacity(crate::test_size::of(128, 24), key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, weight: CountAndSum) {
        self.add(hash, !hash, weight);
    }
}

impl Lawful for HyperLogLog {
    fn small(key_id: u64) -> Self {
        Self::with_error(0.1, key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_error(0.05, key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, _: CountAndSum) {
        self.insert(hash);
    }
}

/// The two forms are both tested: an empty sketch is a list, and the 290 keys of a stream do not fit into 240 slots and
/// become registers.
impl Lawful for CompactHyperLogLog {
    fn small(key_id: u64) -> Self {
        Self::with_precision(crate::test_size::of(11, 7), key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_precision(crate::test_size::of(12, 8), key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, _: CountAndSum) {
        self.insert(hash);
    }
}

impl Lawful for UltraLogLog {
    fn small(key_id: u64) -> Self {
        Self::with_error(0.1, key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_error(0.05, key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, _: CountAndSum) {
        self.insert(hash);
    }
}

/// Seven keys share the items.
impl Lawful for Spread<u64> {
    fn small(key_id: u64) -> Self {
        Self::with_resolution(600, 100, 0.06, key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_resolution(crate::test_size::of(60_000, 4_000), 100, 0.06, key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, _: CountAndSum) {
        self.insert(Touch { key: hash % 7, key_hash: hash % 7, item_hash: hash });
    }
    fn state(&self) -> impl PartialEq + Debug + use<> {
        self.clone()
    }
}

macro_rules! lawful_filters {
    ($($filter:ty),+ $(,)?) => {
        $(impl Lawful for $filter {
            fn small(key_id: u64) -> Self {
                Self::with_capacity(crate::test_size::of(500, 60), 0.01, key_id).unwrap()
            }
            fn larger(key_id: u64) -> Self {
                Self::with_capacity(crate::test_size::of(1_000, 200), 0.01, key_id).unwrap()
            }
            fn feed(&mut self, hash: u64, _: CountAndSum) {
                self.insert(hash);
            }
        })+
    };
}

lawful_filters! { BlockedBloom, Bloom, CountingBloom, SharedBloom }
impl Lawful for Quotient {
    fn small(key_id: u64) -> Self {
        Self::with_capacity(crate::test_size::of(2_000, 200), key_id).unwrap()
    }
    fn larger(key_id: u64) -> Self {
        Self::with_capacity(crate::test_size::of(4_000, 400), key_id).unwrap()
    }
    fn feed(&mut self, hash: u64, _: CountAndSum) {
        self.insert(hash).unwrap();
    }
}

const KEY: Key = Key([11, 13]);
/// The errors of a count-min: a small one and a larger one.
const ERRORS: [f64; 2] = crate::test_size::of([0.05, 0.01], [0.4, 0.2]);
/// How many keys a stream adds. They are drawn from 600, so each stream has about 290 different keys.
const ADDITIONS: u64 = crate::test_size::of(400, 30);
const KEYS: u64 = crate::test_size::of(600, 45);
/// The seeds of the streams, which have keys in common.
const STREAMS: [u64; 3] = [1, 2, 3];

/// Feeds the stream with this seed.
fn feed<S: Lawful>(sketch: &mut S, seed: u64) {
    let mut random = SplitMix64(seed);
    for _ in 0..ADDITIONS {
        sketch.feed(hash(0, random.word() % KEYS), random.weight());
    }
}

/// A sketch fed with some streams.
fn fed<S: Lawful>(seeds: &[u64]) -> S {
    let mut sketch = S::small(KEY.id());
    for seed in seeds.iter() {
        feed(&mut sketch, *seed);
    }
    sketch
}

fn merged<S: Lawful>(mut one: S, other: &S) -> S {
    Merge::merge(&mut one, other).unwrap();
    one
}

fn commutes<S: Lawful>() {
    let [a, b, _] = STREAMS.map(|seed| fed::<S>(&[seed]).state());
    assert_ne!(a, b, "the sketches of different streams must differ");
    let [a, b, _] = STREAMS;
    assert_eq!(merged::<S>(fed(&[a]), &fed(&[b])).state(), merged::<S>(fed(&[b]), &fed(&[a])).state());
}

fn is_associative<S: Lawful>() {
    let [a, b, c] = STREAMS;
    let left = merged(merged::<S>(fed(&[a]), &fed(&[b])), &fed(&[c]));
    let right = merged::<S>(fed(&[a]), &merged(fed(&[b]), &fed(&[c])));
    assert_eq!(left.state(), right.state());
}

fn has_an_identity<S: Lawful>() {
    let [a, ..] = STREAMS;
    let alone = fed::<S>(&[a]).state();
    assert_eq!(merged::<S>(fed(&[a]), &fed(&[])).state(), alone);
    assert_eq!(merged::<S>(fed(&[]), &fed(&[a])).state(), alone);
}

fn refuses_another_geometry_and_key<S: Lawful>() {
    let mut ours = fed::<S>(&STREAMS);
    let before = ours.state();
    let other_key = Key([11, 14]).id();
    let Err(error @ MergeError::Geometry { ours: our_geometry, theirs }) =
        Merge::merge(&mut ours, &S::larger(KEY.id()))
    else {
        panic!("merged another geometry");
    };
    assert_ne!(our_geometry, theirs);
    let text = format!("{error}");
    assert!(text.contains(&format!("{our_geometry}")) && text.contains(&format!("{theirs}")), "{text}");
    let error = Merge::merge(&mut ours, &S::small(other_key)).unwrap_err();
    assert_eq!(error, MergeError::Key { ours: KEY.id(), theirs: other_key });
    let text = format!("{error}");
    assert!(text.contains(&format!("{:016x}", KEY.id())) && text.contains(&format!("{other_key:016x}")), "{text}");
    assert_eq!(ours.state(), before, "a refused merge changes nothing");
}

fn is_as_new_when_cleared<S: Lawful>() {
    let mut sketch = fed::<S>(&STREAMS);
    let new = S::small(KEY.id()).state();
    assert_ne!(sketch.state(), new);
    sketch.clear();
    assert_eq!(sketch.state(), new);
}

/// This is not for a conservative count-min: how much it saves depends on what it saw before.
fn adds_up_as_if_fed_both<S: Lawful>() {
    let [a, b, c] = STREAMS;
    assert_eq!(merged::<S>(fed(&[a, b]), &fed(&[c])).state(), fed::<S>(&STREAMS).state());
}

/// As above, for sketches in which repeated keys do not matter: the streams have a part in common.
fn merges_as_if_fed_both<S: Lawful>() {
    let [a, b, c] = STREAMS;
    assert_eq!(merged::<S>(fed(&[a, b]), &fed(&[b, c])).state(), fed::<S>(&STREAMS).state());
}

macro_rules! laws {
    ($($module:ident: $sketch:ty { $($law:ident),+ $(,)? })+) => {
        $(mod $module {
            use super::*;
            $(#[test]
            fn $law() {
                super::$law::<$sketch>();
            })+
        })+
    };
}

laws! {
    count_min: CountMin<CountAndSum> {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
    }
    plain_count_min: CountMin<CountAndSum, Plain> {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        adds_up_as_if_fed_both,
    }
    blocked_count_min: BlockedCountMin<CountAndSum> {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
    }
    plain_blocked_count_min: BlockedCountMin<CountAndSum, Plain> {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        adds_up_as_if_fed_both,
    }
    // The order of merges determines which keys of a block stay large.
    heavy_light: HeavyLight<CountAndSum> {
        commutes, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
    }
    // The order of merges determines which keys of a bucket stay listed, unless all are merged at once.
    candidate_buckets: CandidateBuckets<u64, CountAndSum> {
        commutes, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
    }
    hyperloglog: HyperLogLog {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    compact_hyperloglog: CompactHyperLogLog {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    spread: Spread<u64> {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    ultraloglog: UltraLogLog {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    blocked_bloom: BlockedBloom {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    bloom: Bloom {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    counting_bloom: CountingBloom {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        adds_up_as_if_fed_both,
    }
    shared_bloom: SharedBloom {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        merges_as_if_fed_both,
    }
    // It is a multiset, so the keys that both streams contain count twice.
    quotient: Quotient {
        commutes, is_associative, has_an_identity, refuses_another_geometry_and_key, is_as_new_when_cleared,
        adds_up_as_if_fed_both,
    }
}

#[test]
fn errors_name_both_sketches_and_the_way_out() {
    let error = MergeError::Geometry {
        ours: Geometry::Cells { depth: 7, width: 8192 },
        theirs: Geometry::Cells { depth: 7, width: 4096 },
    };
    let error: &dyn Error = &error;
    assert_eq!(
        format!("{error}"),
        "cannot merge a sketch of 7 rows of 4096 cells into one of 7 rows of 8192 cells: build both from the same \
         sizes and errors"
    );
}
