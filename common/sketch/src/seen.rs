//! Seen: was this key here recently? Several threads can share it.
//!
//! There are two generations, each a [`SharedBloom`]. New keys go to the current generation; a lookup asks both. When
//! the current one is as full as planned, [`Seen::rotate`] empties the previous one and makes it current. A key that
//! appears again moves to the current generation. So a key that keeps appearing is never forgotten, and a key that is
//! absent for a whole generation is forgotten.
//!
//! The key of the hashes can change while the structure is in use: [`Seen::rotate_to`] begins a generation with another
//! key. Until the older generation is dropped, a lookup needs the hashes of both keys: [`Seen::insert_by`].
//!
//! **Errors**: towards "seen", a new key is missed at [`Seen::false_positive_rate`], the rate of asking both
//! generations. In addition, a thread that is inserting a key exactly during a rotation may miss that one key. Towards
//! "new" there is only one case: a key that was absent for a whole generation. However many threads insert a key at
//! once, at most one of them finds it new.
//!
//! **Cost** for 1,000,000 keys per generation at a rate of 0.001: 2 x 2.3 MiB. A known key costs one cache line, and a
//! new key two.
//!
//! **Papers**: those of [`SharedBloom`]. Asking two generations: Yoon, "Aging Bloom filter with two active buffers for
//! dynamic sets", 2010.
//!
//! **Why not a crate**: this one rotates without a lock while other threads insert, and loses none of their keys.

use core::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{
    Geometry, MergeError, SharedBloom,
    image::{Image, ImageError, Kind, Reader, Writer},
    setting::{SettingError, check_share},
    shared_bloom::{RATE_MAX, RATE_MIN},
};

/// Two rotating generations of keys that several threads share.
#[derive(Debug)]
pub struct Seen {
    generations: [SharedBloom; 2],
    /// How many rotations there were. The lowest bit is the number of the current generation.
    epoch: AtomicUsize,
    /// True while a rotation is in progress.
    rotating: AtomicBool,
}

impl Seen {
    /// Two generations of `items` keys each. When both are full, a new key is mistaken for a known one with a
    /// probability of at most `false_positive_rate`. The ranges of the settings are those of
    /// [`SharedBloom::with_capacity`].
    ///
    /// # Errors
    ///
    /// A setting is not allowed: see [`Self::check`].
    pub fn with_capacity(items: u64, false_positive_rate: f64, key_id: u64) -> Result<Self, SettingError> {
        Self::check(items, false_positive_rate)?;
        let generation = || SharedBloom::with_capacity(items, rate_of_each(false_positive_rate), key_id);
        let generations = [generation()?, generation()?];
        Ok(Self { generations, epoch: AtomicUsize::new(0), rotating: AtomicBool::new(false) })
    }

    /// Checks these settings, as all constructors do.
    ///
    /// # Errors
    ///
    /// The rate is not within twice [`RATE_MIN`] and [`RATE_MAX`], or so many keys would need more than 8 GiB.
    pub fn check(items: u64, false_positive_rate: f64) -> Result<(), SettingError> {
        // Each generation has about half of the rate.
        check_share("false_positive_rate", false_positive_rate, 2.0 * RATE_MIN..=RATE_MAX)?;
        SharedBloom::check(items, rate_of_each(false_positive_rate))
    }

    /// Continues with these generations: the current one, and the previous one.
    ///
    /// # Errors
    ///
    /// Their geometries differ. (Their keys may differ.)
    pub fn from_generations([current, previous]: [SharedBloom; 2]) -> Result<Self, MergeError> {
        let [one, other] = [current.geometry(), previous.geometry()];
        if one != other {
            return Err(MergeError::Geometry { ours: one, theirs: other });
        }
        Ok(Self { generations: [current, previous], epoch: AtomicUsize::new(0), rotating: AtomicBool::new(false) })
    }

    /// The current generation, and the previous one.
    pub fn generations(&self) -> [&SharedBloom; 2] {
        let epoch = self.epoch.load(Acquire);
        [epoch, epoch ^ 1].map(|epoch| self.generation(epoch))
    }

    /// Inserts the key with this hash into the current generation. Returns whether it is new, so that neither
    /// generation contained it. This is for hashes that all have the same key.
    ///
    /// If a rotation happens at the same time, the key is also inserted into the generation that has become current:
    /// the other one is the next to be emptied, perhaps while this thread writes to it.
    ///
    /// If several threads insert the same new key at once, at most one of them gets `true`. [`SharedBloom::insert`]
    /// explains this for threads that found the same generation current. If two threads found different ones, each of
    /// them first sets its bits in one generation and then reads the other one, so at least one of them finds the bits
    /// of the other thread (in the total order of `SeqCst`). If both do, neither gets `true`: so a thread may miss the
    /// one key that it was inserting during a rotation.
    #[inline]
    pub fn insert(&self, hash: u64) -> bool {
        self.insert_by(|_| hash)
    }

    /// Like [`Seen::insert`], for a key whose hash depends on the generation. `hash` makes it for the fingerprint of a
    /// generation's key: one of [`Seen::key_ids`], or the one of a rotation that happens at the same time.
    #[inline]
    pub fn insert_by(&self, hash: impl Fn(u64) -> u64) -> bool {
        let insert = |generation: &SharedBloom| generation.insert(hash(generation.key_id()));
        let mut epoch = self.epoch.load(Acquire);
        let [current, previous] = [epoch, epoch ^ 1].map(|epoch| self.generation(epoch));
        let [ours, theirs] = [current, previous].map(SharedBloom::key_id);
        // Both generations have the same geometry, and nearly always the same key.
        let bits = current.bits_of(hash(ours));
        let is_known = || if ours == theirs { previous.contains_at(&bits) } else { previous.contains(hash(theirs)) };
        let is_new = current.insert_at(&bits) && !is_known();
        loop {
            let now = self.epoch.load(Acquire);
            if now == epoch {
                return is_new;
            }
            epoch = now;
            insert(self.generation(epoch));
        }
    }

    /// Returns true if the key with this hash is in the current or the previous generation.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.generations.iter().any(|generation| generation.contains(hash))
    }

    /// Prefetches the cache lines of the key with this hash. This saves time if a generation is larger than a core's
    /// second-level cache, and costs time if it is not.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        // Prefetch in both generations: a new key, and one that moves to the current generation, needs both.
        self.generations.iter().for_each(|generation| generation.prefetch(hash));
    }

    /// Empties the previous generation and makes it the current one, with the key of the one that was current. Returns
    /// the rate of false positives that the emptied generation had, for [`Seen::false_positive_rate_across`].
    ///
    /// The generation is emptied before it becomes current, so no key that is inserted at the same time is lost. Only
    /// one thread should call this. A second caller immediately gets 0 while a rotation is in progress.
    pub fn rotate(&self) -> f64 {
        self.rotate_to(self.key_id())
    }

    /// Like [`Seen::rotate`], for a generation whose hashes have the key with this fingerprint.
    pub fn rotate_to(&self, key_id: u64) -> f64 {
        if self.rotating.swap(true, Acquire) {
            return 0.0;
        }
        let epoch = self.epoch.load(Relaxed);
        let oldest = self.generation(epoch ^ 1);
        let rate = oldest.false_positive_rate();
        oldest.clear_for(key_id);
        // A thread that reads the new epoch also sees the emptied generation, and its key.
        self.epoch.store(epoch.wrapping_add(1), Release);
        self.rotating.store(false, Release);
        rate
    }

    /// Returns true if the current generation is as full as planned. This reads the whole generation: call it now and
    /// then, not for every key.
    pub fn should_rotate(&self) -> bool {
        self.fill() >= self.current().planned_fill()
    }

    /// Empties both generations, and writes every word, so that their pages become resident. Keys that other threads
    /// insert at the same time may be lost or stay.
    pub fn clear(&self) {
        self.generations.iter().for_each(SharedBloom::clear);
    }

    /// Like [`Seen::clear`], for hashes of another key.
    pub fn clear_for(&self, key_id: u64) {
        self.generations.iter().for_each(|generation| generation.clear_for(key_id));
    }

    /// The probability that a new key is mistaken for a known one, because either generation finds it. This reads both
    /// generations.
    pub fn false_positive_rate(&self) -> f64 {
        self.false_positive_rate_across(0.0)
    }

    /// The highest such probability since before the last rotation, which emptied a generation with the rate `emptied`.
    /// This reads both generations.
    ///
    /// Between two rotations bits are only set. So a key that arrived before the last rotation was compared with at
    /// most the bits of today's previous generation and of the emptied one. A key that arrived later was compared with
    /// at most the present bits.
    pub fn false_positive_rate_across(&self, emptied: f64) -> f64 {
        let epoch = self.epoch.load(Acquire);
        let [current, previous] = [epoch, epoch ^ 1].map(|epoch| self.generation(epoch).false_positive_rate());
        1.0 - (1.0 - previous) * (1.0 - current.max(emptied))
    }

    /// The share of the current generation's bits that are set. This reads the whole generation.
    pub fn fill(&self) -> f64 {
        self.current().fill()
    }

    /// The number of keys that a generation was built for.
    pub const fn capacity(&self) -> u64 {
        self.generations[0].capacity()
    }

    /// The size and shape of a generation.
    pub const fn geometry(&self) -> Geometry {
        self.generations[0].geometry()
    }

    /// The fingerprint of the key that the hashes of the current generation are made with.
    pub fn key_id(&self) -> u64 {
        self.current().key_id()
    }

    /// The fingerprints of the keys of the current and of the previous generation.
    pub fn key_ids(&self) -> [u64; 2] {
        self.generations().map(SharedBloom::key_id)
    }

    /// The memory that it takes in bytes, including the structure itself.
    pub fn memory_bytes(&self) -> usize {
        let inline = size_of::<Self>() - size_of_val(&self.generations);
        inline + self.generations.iter().map(SharedBloom::memory_bytes).sum::<usize>()
    }

    /// The memory that [`Seen::with_capacity`] takes with the same arguments, in bytes, if it allows them. Nothing is
    /// allocated.
    pub fn bytes_for(items: u64, false_positive_rate: f64) -> usize {
        let generation = SharedBloom::bytes_for(items, rate_of_each(false_positive_rate));
        size_of::<Self>() + 2 * (generation - size_of::<SharedBloom>())
    }

    fn current(&self) -> &SharedBloom {
        self.generation(self.epoch.load(Acquire))
    }

    /// The generation that is current in `epoch`. In `epoch ^ 1`, it is the other one.
    #[inline(always)]
    fn generation(&self, epoch: usize) -> &SharedBloom {
        &self.generations[epoch & 1]
    }
}

/// The rate of each generation, so that 1 - (1 - each)^2 is the rate of asking both.
fn rate_of_each(false_positive_rate: f64) -> f64 {
    1.0 - libm::sqrt(1.0 - false_positive_rate.clamp(0.0, 1.0))
}

/// The image has both generations, the current one first. The key of the previous generation comes before it.
impl Image for Seen {
    const KIND: Kind = Kind::Seen;

    fn write(&self, payload: &mut Writer) {
        let [current, previous] = self.generations();
        current.write(payload);
        payload.word(previous.key_id());
        previous.write(payload);
    }
    fn read(payload: &mut Reader, key_id: u64) -> Result<Self, ImageError> {
        let current = SharedBloom::read(payload, key_id)?;
        let key_id = payload.u64("the fingerprint of the previous generation's key")?;
        let (at, previous) = (payload.at(), SharedBloom::read(payload, key_id)?);
        let found = (previous.memory_bytes() - size_of::<SharedBloom>()) as u64;
        let expected = "as large as the current one";
        let field = "the previous generation's size in bytes";
        Self::from_generations([current, previous]).map_err(|_| ImageError::Value { field, at, found, expected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::hash;
    use std::{collections::HashSet, sync::Barrier, thread, vec::Vec};

    #[test]
    fn a_flow_is_new_once_and_forgotten_after_a_silent_generation() {
        let seen = Seen::with_capacity(1_000, 1e-6, 7).unwrap();
        let (steady, silent) = (hash(1, 1), hash(1, 2));
        seen.prefetch(steady);
        assert!(seen.insert(steady) && seen.insert(silent));
        for _ in 0..5 {
            seen.rotate();
            assert!(!seen.insert(steady), "a key that keeps appearing stays known");
        }
        assert!(!seen.contains(silent) && seen.insert(silent));
        seen.rotate();
        assert!(seen.contains(silent), "one rotation forgets no key of the generation that ends");
        assert!(!seen.insert(steady));
        seen.rotate();
        assert!(!seen.contains(silent) && seen.contains(steady));
    }

    /// Returns true if an item is new, with a different key for each generation: the fingerprint is the seed.
    fn is_new(seen: &Seen, item: u64) -> bool {
        seen.insert_by(|key_id| hash(key_id, item))
    }

    #[test]
    fn a_flow_is_known_across_a_change_of_the_key() {
        let seen = Seen::with_capacity(1_000, 1e-6, 7).unwrap();
        let (steady, silent) = (1, 2);
        assert!(is_new(&seen, steady) && is_new(&seen, silent));
        for (next, key_ids) in [(7, [7, 7]), (8, [8, 7]), (8, [8, 8]), (9, [9, 8]), (10, [10, 9])] {
            seen.rotate_to(next);
            assert_eq!((seen.key_ids(), seen.key_id()), (key_ids, next));
            assert!(!is_new(&seen, steady), "it stays known while it keeps appearing, with any hash key");
            assert!(is_new(&seen, 100 + next + key_ids[1]), "an item that never appeared is new");
        }
        assert!(is_new(&seen, silent), "it was absent for a whole generation");
        seen.rotate();
        assert_eq!(seen.key_ids(), [10, 10]);
        seen.clear_for(11);
        assert_eq!(seen.key_ids(), [11, 11]);
        assert!(is_new(&seen, steady));
    }

    #[test]
    fn it_asks_for_rotation_at_its_capacity() {
        const KEYS: u64 = crate::test_size::of(50_000, 400);
        let seen = Seen::with_capacity(KEYS, 0.01, 7).unwrap();
        // At this size, the fill is known to within 0.2 % of the plan; a tenth of a generation is far beyond that.
        let insert = |keys: core::ops::Range<u64>| keys.filter(|item| seen.insert(hash(1, *item))).count();
        insert(0..KEYS * 9 / 10);
        assert!(!seen.should_rotate());
        insert(KEYS * 9 / 10..KEYS * 11 / 10);
        assert!(seen.should_rotate());
        seen.rotate();
        assert!(!seen.should_rotate() && seen.fill() == 0.0);
        insert(2 * KEYS..3 * KEYS);
        // One generation is exactly full, and one is a tenth above.
        assert!((0.009..0.014).contains(&seen.false_positive_rate()), "{}", seen.false_positive_rate());
        seen.clear();
        assert_eq!((seen.fill(), seen.false_positive_rate()), (0.0, 0.0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys take too long")]
    fn new_flows_are_missed_at_the_stated_rate() {
        const KEYS: u64 = 20_000;
        let seen = Seen::with_capacity(KEYS, 0.02, 7).unwrap();
        (0..KEYS).for_each(|item| assert!(seen.insert(hash(1, item)) || seen.contains(hash(1, item))));
        seen.rotate();
        (KEYS..2 * KEYS).for_each(|item| assert!(seen.insert(hash(1, item)) || seen.contains(hash(1, item))));
        let stated = seen.false_positive_rate();
        // 4,000 of 200,000 are expected: a tenth of that is six standard deviations.
        let missed = (0..200_000).filter(|item| seen.contains(hash(2, *item))).count() as f64 / 200_000.0;
        assert!((0.9..1.1).contains(&(missed / stated)), "stated {stated}, measured {missed}");
        assert!((0.018..0.022).contains(&stated), "{stated}");
    }

    #[test]
    fn a_rotation_beside_inserting_threads_loses_nothing() {
        const WORKERS: u64 = 2;
        const KEYS: u64 = crate::test_size::of(400, 40);
        const ROUNDS: u64 = crate::test_size::of(100, 4);
        // It is large for its number of keys, so that emptying a generation takes as long as inserting the keys of a
        // round.
        let seen = Seen::with_capacity(crate::test_size::of(100_000, 2_000), 1e-6, 7).unwrap();
        let barrier = Barrier::new(WORKERS as usize + 1);
        let work = &|worker| {
            let mut forgotten = 0;
            for round in 0..ROUNDS {
                let key = |key_id, item| hash(key_id, (worker * ROUNDS + round) * KEYS + item);
                barrier.wait();
                (0..KEYS).for_each(|item| {
                    seen.insert_by(|key_id| key(key_id, item));
                });
                barrier.wait();
                // One rotation happened during this round, so all its keys must still be known.
                let [one, other] = seen.key_ids();
                let is_known = |item: &u64| seen.contains(key(one, *item)) || seen.contains(key(other, *item));
                forgotten += (0..KEYS).filter(|item| !is_known(item)).count();
            }
            forgotten
        };
        let forgotten: usize = thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
            for round in 0..ROUNDS {
                barrier.wait();
                // The hash key changes in every other round.
                seen.rotate_to(round / 2);
                barrier.wait();
            }
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert_eq!(forgotten, 0);
    }

    #[test]
    fn two_threads_never_both_find_a_key_new() {
        const KEYS: u64 = crate::test_size::of(400, 20);
        const ROUNDS: u64 = crate::test_size::of(1_000, 4);
        let seen = Seen::with_capacity(1_000, 1e-6, 7).unwrap();
        let barrier = Barrier::new(3);
        let work = || -> Vec<u64> {
            let round = |round| {
                barrier.wait();
                let new: Vec<u64> =
                    (round * KEYS..(round + 1) * KEYS).filter(|item| seen.insert(hash(5, *item))).collect();
                barrier.wait();
                new
            };
            (0..ROUNDS).flat_map(round).collect()
        };
        let [one, other] = thread::scope(|scope| {
            let workers = [(); 2].map(|()| scope.spawn(work));
            for round in 0..ROUNDS {
                barrier.wait();
                // The rotation happens sooner or later, while both threads are working. It happens only once: two
                // rotations would forget keys of this round.
                (0..round % 50 * 20).for_each(|_| core::hint::spin_loop());
                seen.rotate();
                barrier.wait();
            }
            workers.map(|worker| worker.join().unwrap())
        });
        let one: HashSet<u64> = one.into_iter().collect();
        let twice: Vec<_> = other.iter().filter(|item| one.contains(item)).collect();
        assert_eq!(twice.len(), 0, "no key may be new twice");
        // Each thread may miss one key at each rotation.
        let found = (one.len() + other.len()) as u64;
        assert!((ROUNDS * (KEYS - 2)..=ROUNDS * KEYS).contains(&found), "{found}");
    }

    #[test]
    fn the_rate_across_a_rotation_covers_earlier_lookups() {
        const KEYS: u64 = crate::test_size::of(2_000, 100);
        let seen = Seen::with_capacity(KEYS, 0.01, 7).unwrap();
        let insert = |keys: core::ops::Range<u64>| keys.filter(|item| seen.insert(hash(1, *item))).count();
        insert(0..4 * KEYS);
        seen.rotate();
        insert(4 * KEYS..5 * KEYS);
        let before = seen.false_positive_rate();
        let emptied = seen.rotate();
        assert!(seen.false_positive_rate() < before / 2.0, "it has forgotten most keys");
        let across = seen.false_positive_rate_across(emptied);
        assert!((across / before - 1.0).abs() < 1e-9, "{across}, and {before} before");
        insert(5 * KEYS..15 * KEYS);
        assert_eq!(seen.false_positive_rate_across(emptied), seen.false_positive_rate(), "the present rate is higher");
    }

    #[test]
    fn any_size_works_and_memory_is_reported() {
        for rate in [2.0 * RATE_MIN, 0.01, RATE_MAX] {
            let seen = Seen::with_capacity(10, rate, 7).unwrap();
            assert!(seen.insert(1) && !seen.insert(1), "{rate}");
            assert_eq!(Seen::bytes_for(10, rate), seen.memory_bytes(), "{rate}");
        }
        const MANY: u64 = crate::test_size::of(1_000_000, 10_000);
        let seen = Seen::with_capacity(MANY, 0.001, 7).unwrap();
        assert_eq!((seen.capacity(), seen.key_id()), (MANY, 7));
        assert_eq!(Seen::bytes_for(MANY, 0.001), seen.memory_bytes());
        let bytes = seen.memory_bytes() as f64 / MANY as f64;
        assert!((4.7..5.1).contains(&bytes), "{bytes} bytes per key");
    }
}
