//! Scalable Bloom filter: was this key here before? It is for an unknown number of keys.
//!
//! It is a list of [`BlockedBloom`]s, its stages. New keys go to the last stage. When that contains as many keys as
//! planned, a larger stage with a lower rate is added. A lookup asks all stages.
//!
//! **Errors**: only towards "yes". A key that was inserted is always found. The rate at which an absent key is found
//! can be computed exactly from the bits that are set. Its expectation stays below the plan for any number of keys,
//! because the rates of the stages are a falling geometric series whose sum is the planned rate.
//!
//! **Cost**: memory grows with the keys. 1,000,000 keys at a rate of 0.01, with room for 10,000 at first, take 2.6 MiB
//! in seven stages, the last of which is not yet full. That is twice as much as for a known number of keys. At this
//! rate a key takes 15 bits when the first stage is full, and 19 when the eleventh is. Just after a stage was added,
//! twice as many, and up to 50 after many stages. An absent key touches one cache line in each stage. An insertion that
//! adds a stage allocates memory.
//!
//! **Papers**: Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom filters", 2007.
//!
//! **Why not a crate**: filters in crates have classic stages, with one cache line for each bit, and report the planned
//! rate.

use alloc::vec::Vec;

use super::{
    BlockedBloom, Estimate, Geometry, MergeError,
    image::{Image, ImageError, Kind, Reader, Writer},
    merge::check_mergeable,
    occupancy::Items,
    setting::{SettingError, check_number, check_room, check_share},
    split_block::{BLOCKS_MAX, Plan},
};

pub use super::split_block::{RATE_MAX, RATE_MIN};

/// The default growth: the capacity of a stage divided by that of the one before.
pub const GROWTH: u32 = 2;
/// The largest growth that may be set.
pub const GROWTH_MAX: u32 = 16;
/// The default tightening: a stage's rate divided by that of the one before. With this value, filters that grow much
/// stay small (Almeida et al., section 4).
pub const TIGHTENING: f64 = 0.85;
/// The smallest tightening that may be set.
pub const TIGHTENING_MIN: f64 = 0.5;
/// The largest tightening. Closer to 1, nothing of the rate would be left for the first stages.
pub const TIGHTENING_MAX: f64 = 0.95;
/// How many keys are looked up in one stage before the next stage.
const CHUNK: usize = 256;

/// A Bloom filter that grows.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalableBloom {
    /// The last stage, which takes new keys.
    current: BlockedBloom,
    /// How many keys the last stage took.
    items: u64,
    /// Full stages, and the stages of merged filters.
    past: Vec<BlockedBloom>,
    /// How many of its own stages came before the last one.
    growths: i32,
    settings: Settings,
}

/// The settings from which the stages are planned.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Settings {
    /// How many keys the first stage takes.
    items: u64,
    /// The rate of all stages together.
    false_positive_rate: f64,
    growth: u32,
    tightening: f64,
}

impl ScalableBloom {
    /// A filter that has room for `items` keys at first. It finds an absent key with a probability of at most
    /// `false_positive_rate`, for any number of keys. Each stage takes [`GROWTH`] times as many keys as the one before,
    /// and has [`TIGHTENING`] times its rate.
    ///
    /// The rate is from 7e-9 to [`RATE_MAX`]. The filter stops growing when the next stage would need more than
    /// 4 GiB or a rate below [`RATE_MIN`]. From then on its rate rises: see [`ScalableBloom::false_positive_rate`].
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, false_positive_rate: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::with_growth(items, false_positive_rate, GROWTH, TIGHTENING, key_id)
    }

    /// Like [`ScalableBloom::with_capacity`], with another growth (from 2 to [`GROWTH_MAX`]) and another tightening
    /// (from [`TIGHTENING_MIN`] to [`TIGHTENING_MAX`]).
    ///
    /// With more growth there are fewer stages, which is faster, but more of the last stage is empty. A tightening
    /// closer to 1 keeps later stages small and makes the first one larger.
    ///
    /// # Errors
    ///
    /// A setting is out of range, or there is no room for so many keys.
    pub fn with_growth(
        items: u64,
        false_positive_rate: f64,
        growth: u32,
        tightening: f64,
        key_id: u64,
    ) -> Result<Self, SettingError> {
        let settings = Settings { items: items.max(1), false_positive_rate, growth, tightening };
        settings.check()?;
        let current = BlockedBloom::from_plan(settings.stage(0), key_id);
        Ok(Self { current, items: 0, past: Vec::new(), growths: 0, settings })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The rate is not within 7e-9 and [`RATE_MAX`], or the first stage would need more than 4 GiB.
    pub fn check(items: u64, false_positive_rate: f64) -> Result<(), SettingError> {
        Settings { items, false_positive_rate, growth: GROWTH, tightening: TIGHTENING }.check()
    }

    /// Inserts the key with this hash. Returns whether it was absent. Allocates memory when it grows.
    pub fn insert(&mut self, hash: u64) -> bool {
        let is_new = !self.past.iter().any(|stage| stage.contains(hash)) && self.current.insert(hash);
        self.took(u64::from(is_new));
        is_new
    }

    /// Returns true if the key with this hash was inserted. This is true by mistake with the probability
    /// [`ScalableBloom::false_positive_rate`].
    pub fn contains(&self, hash: u64) -> bool {
        // Ask the last stages first, because they contain the most keys.
        self.stages().rev().any(|stage| stage.contains(hash))
    }

    /// Inserts many keys, faster than one by one.
    pub fn insert_batch(&mut self, hashes: &[u64]) {
        let mut rest = hashes;
        while !rest.is_empty() {
            // Insert no more keys than there is room for. Otherwise a key that appears twice could be inserted into a
            // new stage the second time.
            let room = match self.current.capacity().saturating_sub(self.items) {
                0 => CHUNK,
                room => room.min(CHUNK as u64) as usize,
            };
            let (chunk, later) = rest.split_at(room.min(rest.len()));
            let mut known = [false; CHUNK];
            find_in(self.past.iter(), chunk, &mut known);
            let mut absent = [0; CHUNK];
            let mut count = 0;
            for (hash, known) in chunk.iter().zip(known) {
                absent[count] = *hash;
                count += usize::from(!known);
            }
            let new = self.current.insert_counting(&absent[..count]);
            self.took(new);
            rest = later;
        }
    }

    /// Looks up many keys: `found[i]` becomes what [`ScalableBloom::contains`] returns for `hashes[i]`. Stops at the
    /// end of the shorter slice.
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let count = hashes.len().min(found.len());
        for (chunk, found) in hashes[..count].chunks(CHUNK).zip(found[..count].chunks_mut(CHUNK)) {
            found.fill(false);
            find_in(self.stages().rev(), chunk, found);
        }
    }

    /// Merges another filter of any size into this one: adds its stages that are not empty to the list. Afterwards this
    /// filter finds the keys that either found. Its rate is at most the sum of both rates, which may be above the plan
    /// of each. It continues to grow as before.
    ///
    /// # Errors
    ///
    /// The keys differ. In that case nothing is changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        check_mergeable((self.geometry(), self.key_id()), (self.geometry(), other.key_id()))?;
        self.past.extend(other.stages().filter(|stage| stage.fill() > 0.0).cloned());
        Ok(())
    }

    /// Empties it, and makes it small again. Writes every block, so that its pages become resident.
    pub fn clear(&mut self) {
        if self.growths > 0 {
            self.current = BlockedBloom::from_plan(self.settings.stage(0), self.key_id());
        }
        self.current.clear();
        self.past.clear();
        (self.items, self.growths) = (0, 0);
    }

    /// The share of all stages' bits that are set. This reads the whole filter.
    pub fn fill(&self) -> f64 {
        let set: f64 = self.stages().map(|stage| stage.fill() * stage.blocks() as f64).sum();
        set / self.blocks() as f64
    }

    /// The exact probability that any stage finds an absent key, computed from the bits that are set. This reads the
    /// whole filter.
    pub fn false_positive_rate(&self) -> f64 {
        1.0 - self.stages().map(|stage| 1.0 - stage.false_positive_rate()).product::<f64>()
    }

    /// Returns true if the rate is higher than planned, by more than chance explains, because the filter cannot grow
    /// any more, or because others were merged into it. This reads the whole filter.
    pub fn is_saturated(&self) -> bool {
        let has_merged = self.past.len() > self.growths as usize;
        self.current.is_saturated() || has_merged && self.false_positive_rate() > self.settings.false_positive_rate
    }

    /// The estimated number of distinct keys, with bounds that hold with a probability of 99.9 %. A key of several
    /// merged filters counts for each of them. This reads the whole filter.
    pub fn estimated_items(&self) -> Estimate {
        self.stages().map(BlockedBloom::items).sum::<Items>().estimate()
    }

    /// The stages. The last one takes new keys.
    pub fn stages(&self) -> impl DoubleEndedIterator<Item = &BlockedBloom> {
        self.past.iter().chain([&self.current])
    }

    /// Returns the present size.
    pub fn geometry(&self) -> Geometry {
        Geometry::Blocks { count: self.blocks() }
    }

    /// The fingerprint of the key of its hashes.
    pub const fn key_id(&self) -> u64 {
        self.current.key_id()
    }

    /// The memory that it takes now in bytes, including the structure itself.
    pub fn memory_bytes(&self) -> usize {
        let inline = size_of::<Self>() - size_of::<BlockedBloom>();
        inline + self.stages().map(BlockedBloom::memory_bytes).sum::<usize>()
    }

    fn blocks(&self) -> usize {
        self.stages().map(BlockedBloom::blocks).sum()
    }

    /// Counts new keys of the last stage, and adds another stage if it is full.
    fn took(&mut self, new: u64) {
        self.items += new;
        if self.items >= self.current.capacity()
            && let Some(plan) = self.settings.next_stage(self.growths)
        {
            let next = BlockedBloom::from_plan(plan, self.key_id());
            self.past.push(core::mem::replace(&mut self.current, next));
            self.items = 0;
            self.growths += 1;
        }
    }
}

impl Settings {
    fn check(self) -> Result<(), SettingError> {
        self.check_shares()?;
        check_room("items", self.items, Plan::items_max(self.false_positive_rate * (1.0 - self.tightening), u64::BITS))
    }

    /// Checks all settings but the number of keys.
    fn check_shares(self) -> Result<(), SettingError> {
        let Self { items: _, false_positive_rate, growth, tightening } = self;
        check_number("growth", growth.into(), 2..=GROWTH_MAX.into())?;
        check_share("tightening", tightening, TIGHTENING_MIN..=TIGHTENING_MAX)?;
        check_share("false_positive_rate", false_positive_rate, rate_min(tightening)..=RATE_MAX)
    }

    fn stage(&self, nth: i32) -> Plan {
        let items = self.items as f64 * libm::pow(f64::from(self.growth), f64::from(nth));
        Plan::new(items as u64, self.rate(nth), u64::BITS)
    }

    /// The plan of the stage after stage number `nth`, if it can keep its rate.
    fn next_stage(&self, nth: i32) -> Option<Plan> {
        let plan = self.stage(nth + 1);
        (self.rate(nth + 1) >= RATE_MIN && plan.blocks < BLOCKS_MAX).then_some(plan)
    }

    /// A stage's share of the rate: rate (1 - t) t^nth. The sum of these is the rate.
    fn rate(&self, nth: i32) -> f64 {
        self.false_positive_rate * (1.0 - self.tightening) * libm::pow(self.tightening, f64::from(nth))
    }
}

/// The lowest rate of all stages together: the first stage can still be planned with its share.
fn rate_min(tightening: f64) -> f64 {
    RATE_MIN / (1.0 - tightening)
}

/// Sets `found[i]` if any stage contains `hashes[i]`, for at most [`CHUNK`] keys.
fn find_in<'a>(stages: impl Iterator<Item = &'a BlockedBloom>, hashes: &[u64], found: &mut [bool]) {
    let mut here = [false; CHUNK];
    for stage in stages {
        stage.contains_batch(hashes, &mut here);
        found.iter_mut().zip(here).for_each(|(found, here)| *found |= here);
    }
}

/// The image has the stages one after the other, each as in its own image. It also has the settings for later growth.
impl Image for ScalableBloom {
    const KIND: Kind = Kind::ScalableBloom;

    fn write(&self, payload: &mut Writer) {
        let Self { current, items, past, growths, settings } = self;
        let Settings { items: first, false_positive_rate, growth, tightening } = *settings;
        [first, growth.into(), *items, *growths as u64, past.len() as u64].into_iter().for_each(|n| payload.varint(n));
        payload.word(false_positive_rate.to_bits());
        payload.word(tightening.to_bits());
        current.write(payload);
        past.iter().for_each(|stage| stage.write(payload));
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let first = payload.varint("the first stage's keys")?;
        let growth = payload.within("the growth", 2..=GROWTH_MAX.into(), "from 2 to GROWTH_MAX", Reader::varint)?;
        // The limit prevents an overflow when keys are added.
        let items = payload.within("the last stage's keys", 0..=1 << 60, "at most 2^60", Reader::varint)?;
        let growths = payload.within("the growths", 0..=i32::MAX as u64, "below 2^31", Reader::varint)?;
        let past = payload.within("the stages before", growths..=u64::MAX, "at least the growths", Reader::varint)?;
        let rate_at = payload.at();
        let rate = f64::from_bits(payload.u64("the false-positive rate")?);
        let tightening = f64::from_bits(payload.u64("the tightening")?);
        let settings = Settings { items: first.max(1), false_positive_rate: rate, growth: growth as u32, tightening };
        if settings.check_shares().is_err() {
            let (found, expected) = (rate.to_bits(), "settings with which a filter can be built");
            return Err(ImageError::Value { field: "the false-positive rate", at: rate_at, found, expected });
        }
        let at = payload.at();
        let current = BlockedBloom::read(payload, key_id)?;
        // Only the memory of this stage was allowed, and this stage matches the settings. So the first stage, which is
        // smaller, and the next stage also follow from the settings: a small image cannot make the reader build a large
        // filter.
        if current.plan() != settings.stage(growths as i32) {
            let (found, expected) = (current.blocks() as u64, "what the first stage and the growths lead to");
            return Err(ImageError::Value { field: "the last stage's blocks", at, found, expected });
        }
        let past = (0..past).map(|_| {
            payload.allow::<BlockedBloom>("a stage", 1)?;
            BlockedBloom::read(payload, key_id)
        });
        Ok(Self { current, items, past: past.collect::<Result<_, _>>()?, growths: growths as i32, settings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{SplitMix64, hash};
    use std::{vec, vec::Vec};

    #[test]
    #[cfg_attr(miri, ignore = "growing takes too long")]
    fn memory_per_key_is_as_stated() {
        let mut filter = ScalableBloom::with_capacity(1_000, 0.01, 7).unwrap();
        let bits = |filter: &ScalableBloom| filter.blocks() as f64 * 512.0;
        let (mut before, mut items) = (bits(&filter), 0.0);
        for stage in 0..8 {
            while bits(&filter) == before {
                filter.insert(hash(1, items as u64));
                items += 1.0;
            }
            let [full, grown] = [before, bits(&filter)].map(|bits| bits / items);
            assert!((14.5..18.5).contains(&full) && (33.0..51.0).contains(&grown), "{stage}: {full}, {grown}");
            before = bits(&filter);
        }
    }

    fn hashes(seed: u64, items: core::ops::Range<u64>) -> Vec<u64> {
        items.map(|item| hash(seed, item)).collect()
    }

    fn fed(planned: u64, rate: f64, seed: u64, items: u64) -> ScalableBloom {
        let mut filter = ScalableBloom::with_capacity(planned, rate, 7).unwrap();
        filter.insert_batch(&hashes(seed, 0..items));
        filter
    }

    fn finds_all(filter: &ScalableBloom, hashes: &[u64]) -> bool {
        let mut found = vec![false; hashes.len()];
        filter.contains_batch(hashes, &mut found);
        found.iter().all(|found| *found)
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn the_rate_holds_while_the_filter_grows() {
        const KEYS: u64 = 60_000;
        const TRIES: u64 = 40_000;
        for (seed, planned, growth, tightening) in
            [(1, 0.01, 2, 0.85), (2, 0.01, 2, 0.5), (3, 0.05, 2, 0.9), (4, 0.05, 4, 0.7), (5, 0.3, 2, 0.85)]
        {
            let mut filter = ScalableBloom::with_growth(500, planned, growth, tightening, 7).unwrap();
            let keys = hashes(seed, 0..KEYS);
            filter.insert_batch(&keys);
            assert!(finds_all(&filter, &keys) && filter.stages().count() > 3);
            let computed = filter.false_positive_rate();
            // The rate of a stage of 500 keys depends on the load of some twenty blocks; all stages together are within
            // a tenth.
            assert!(computed < 1.1 * planned && !filter.is_saturated(), "planned {planned}, computed {computed}");
            let found = hashes(seed + 9, 0..TRIES).iter().filter(|key| filter.contains(**key)).count() as f64;
            // 4.5 standard deviations of the number found by chance are allowed: a chance of one in 147,000 for each of
            // five.
            let expected = computed * TRIES as f64;
            assert!((found - expected).abs() < 4.5 * expected.sqrt(), "{expected} expected, {found} found");
            // Keys that are found by mistake are not inserted.
            let estimated = filter.estimated_items().value as f64 / KEYS as f64;
            assert!((0.98 - planned..1.02).contains(&estimated), "{estimated}");
        }
    }

    #[test]
    fn batches_equal_single_calls() {
        let mut random = SplitMix64(1);
        let mut one_by_one = ScalableBloom::with_growth(crate::test_size::of(20, 1), 0.1, 2, 0.5, 7).unwrap();
        let mut batched = one_by_one.clone();
        for length in (0..crate::test_size::of(300, 80)).step_by(crate::test_size::of(7, 39)) {
            // Some keys are twice in a batch.
            let keys: Vec<u64> = (0..length).map(|_| hash(1, random.word() % 3_000)).collect();
            for key in &keys {
                let known = one_by_one.contains(*key);
                assert_eq!(one_by_one.insert(*key), !known);
            }
            batched.insert_batch(&keys);
            assert!(batched == one_by_one, "{length} keys");
            let wanted = hashes(1, 0..length);
            let mut found = vec![true; wanted.len()];
            batched.contains_batch(&wanted, &mut found);
            assert!(wanted.iter().zip(found).all(|(key, found)| one_by_one.contains(*key) == found));
            let mut more = vec![true; wanted.len() + 10];
            batched.contains_batch(&wanted, &mut more);
            assert_eq!(more[wanted.len()..], [true; 10], "elements after the keys are not changed");
        }
        assert!(batched.stages().count() > 5);
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn a_merged_filter_finds_what_either_found_at_no_more_than_both_rates() {
        let (one, other) = (fed(300, 0.01, 1, 5_000), fed(1_000, 0.02, 2, 3_000));
        for (mut merged, from) in [(one.clone(), &other), (other.clone(), &one)] {
            merged.merge(from).unwrap();
            assert!(finds_all(&merged, &hashes(1, 0..5_000)) && finds_all(&merged, &hashes(2, 0..3_000)));
            let foreign = hashes(3, 0..20_000);
            let either = |key: &u64| one.contains(*key) || other.contains(*key);
            assert!(foreign.iter().all(|key| merged.contains(*key) == either(key)), "the order does not matter");
            let (rate, sum) = (merged.false_positive_rate(), one.false_positive_rate() + other.false_positive_rate());
            assert!(rate <= sum && rate > 0.98 * sum, "{rate} of {sum}");
            merged.insert_batch(&hashes(4, 0..5_000));
            assert!(finds_all(&merged, &hashes(4, 0..5_000)));
        }
        let mut many = one.clone();
        (2..5).for_each(|seed| many.merge(&fed(300, 0.01, seed, 5_000)).unwrap());
        assert!(many.is_saturated() && !one.is_saturated(), "four times the keys, and four times the rate");
        let mut same = one.clone();
        same.merge(&ScalableBloom::with_capacity(300, 0.01, 7).unwrap()).unwrap();
        assert_eq!(
            (same.false_positive_rate(), same.estimated_items()),
            (one.false_positive_rate(), one.estimated_items())
        );
    }

    #[test]
    fn empty_filters_add_nothing_to_merge() {
        let mut filter = fed(300, 0.01, 1, crate::test_size::of(1_000, 400));
        let before = filter.clone();
        (0..3).for_each(|_| filter.merge(&ScalableBloom::with_capacity(300, 0.01, 7).unwrap()).unwrap());
        assert!(filter == before);
    }

    #[test]
    fn only_another_key_is_refused() {
        let mut filter = fed(crate::test_size::of(300, 60), 0.01, 1, crate::test_size::of(5_000, 140));
        let before = filter.clone();
        let error = filter.merge(&ScalableBloom::with_capacity(300, 0.01, 8).unwrap()).unwrap_err();
        assert_eq!(error, MergeError::Key { ours: 7, theirs: 8 });
        assert!(filter == before, "a refused merge changes nothing");
    }

    #[test]
    fn a_cleared_filter_equals_a_new_one_and_memory_is_reported() {
        let new = ScalableBloom::with_capacity(crate::test_size::of(300, 60), 0.01, 7).unwrap();
        assert_eq!((new.fill(), new.false_positive_rate(), new.estimated_items().upper), (0.0, 0.0, 0));
        let mut filter = fed(crate::test_size::of(300, 60), 0.01, 1, crate::test_size::of(5_000, 140));
        let Geometry::Blocks { count } = filter.geometry() else { panic!("not blocks") };
        assert!((count * 64..count * 64 + 4_096).contains(&filter.memory_bytes()));
        assert!((0.2..0.6).contains(&filter.fill()), "{}", filter.fill());
        filter.merge(&fed(10, 0.01, 2, 100)).unwrap();
        filter.clear();
        assert!(filter == new);
    }

    #[test]
    fn it_stops_growing_when_the_rate_cannot_be_kept() {
        const MANY: u64 = crate::test_size::of(5_000, 150);
        // A second stage would need half of the lowest rate.
        let mut filter = ScalableBloom::with_growth(100, 2.0 * RATE_MIN, 2, 0.5, 7).unwrap();
        filter.insert_batch(&hashes(1, 0..MANY));
        assert_eq!(filter.stages().count(), 1);
        assert!(filter.is_saturated() && finds_all(&filter, &hashes(1, 0..MANY)));
    }

    #[test]
    fn an_image_that_would_grow_into_a_large_filter_is_refused() {
        const HEADER: usize = 24;
        let read = |payload: &[u8]| ScalableBloom::read(&mut Reader::new(payload, 1 << 20), 7);
        for keys in [0, 30, crate::test_size::of(3_000, 100)] {
            let image = fed(20, 0.1, 1, keys).to_image();
            let (first, rest) = image[HEADER..].split_first().unwrap();
            assert_eq!(read(&image[HEADER..]), Ok(fed(20, 0.1, 1, keys)));
            // The first number is the number of the first stage's keys, 20. It is increased by 5 * 10^9.
            let forged = [&[first | 0x80, 0x80, 0x80, 0x80, *first], rest].concat();
            assert!(matches!(read(&forged), Err(ImageError::Value { field: "the last stage's blocks", .. })), "{keys}");
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for (rate, growth, tightening) in [
            (f64::NAN, 2, 0.5),
            (1.0, 2, 0.5),
            (RATE_MIN, 2, 0.5),
            (0.01, 1, 0.5),
            (0.01, GROWTH_MAX + 1, 0.5),
            (0.01, 2, f64::NAN),
            (0.01, 2, 1.0),
        ] {
            let refused = ScalableBloom::with_growth(1, rate, growth, tightening, 7);
            assert!(refused.is_err(), "{rate} {growth} {tightening}");
        }
        assert!(ScalableBloom::with_growth(u64::MAX, 0.01, 2, 0.5, 7).is_err());
        assert!(ScalableBloom::with_growth(0, 0.01, GROWTH_MAX, TIGHTENING_MAX, 7).is_ok());
    }
}
