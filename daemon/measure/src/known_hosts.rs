//! The filter of known hosts: was this host here in the last days? Several threads share it.
//!
//! It has [`GENERATIONS`] filters, one of which is current. A host goes into the current one; a lookup asks all. When a
//! generation is over, the oldest is emptied and becomes the current one. So a host is known for all generations but
//! one after its last packet at least, and one generation longer at most: with four generations and 30 days that is 30
//! to 40 days.
//!
//! **Errors**: towards "known". A new host is mistaken for a known one with [`KnownHosts::false_positive_rate`]. In
//! addition, a thread may miss the one host that it inserts during a rotation, if another thread inserts the same host
//! at that moment. Towards "new": never, while the host is in a generation.
//!
//! **Rotation without a lock**: a thread that still has the number of the earlier generation inserts into a filter that
//! is kept for three more generations, so no host is lost. Two threads with different numbers each set their bits first
//! and then read those of the other (in the total order of `SeqCst`), so at most one finds a host new.

use std::{
    array,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use weir_sketch::SharedBloom;

use crate::configured::configured;

/// The number of generations.
pub const GENERATIONS: usize = 4;
/// The share of new hosts that all generations together mistake for known ones, when all are as full as planned.
const FALSE_POSITIVE_RATE: f64 = 0.001;

/// Generations of hosts.
#[derive(Debug)]
pub struct KnownHosts {
    generations: [SharedBloom; GENERATIONS],
    /// How many rotations there were. The remainder is the number of the current generation.
    epoch: AtomicUsize,
}

impl KnownHosts {
    /// An empty filter with room for this many hosts in each generation. All its memory is resident from the start.
    pub fn new(hosts: u64, key_id: u64) -> Self {
        let generations = array::from_fn(|_| generation(hosts, key_id));
        generations.iter().for_each(SharedBloom::clear);
        Self { generations, epoch: AtomicUsize::new(0) }
    }

    /// The memory of a filter, in bytes.
    pub fn bytes_for(hosts: u64) -> usize {
        GENERATIONS * SharedBloom::bytes_for(hosts, rate_of_each())
    }

    /// A filter with these generations, the current one first. `None` if they are not of the size and the key of one
    /// for this many hosts.
    pub fn from_generations(kept: [SharedBloom; GENERATIONS], hosts: u64, key_id: u64) -> Option<Self> {
        let planned = generation(hosts, key_id).geometry();
        let fits = |kept: &SharedBloom| (kept.geometry(), kept.key_id()) == (planned, key_id);
        if !kept.iter().all(fits) {
            return None;
        }
        // They are in the order in which later rotations empty them: the oldest is the next.
        let mut generations = kept;
        generations[1..].reverse();
        Some(Self { generations, epoch: AtomicUsize::new(0) })
    }

    /// The generations, the current one first, and then the youngest.
    pub fn generations(&self) -> [&SharedBloom; GENERATIONS] {
        let epoch = self.epoch.load(Acquire);
        array::from_fn(|age| &self.generations[(epoch + GENERATIONS - age) % GENERATIONS])
    }

    /// Inserts the host with this hash. Returns whether it is new. Of several threads that insert a new host at once,
    /// at most one gets `true`.
    pub fn insert(&self, hash: u64) -> bool {
        let [current, others @ ..] = self.generations();
        current.insert(hash) && !others.iter().any(|generation| generation.contains(hash))
    }

    /// Empties the oldest generation and makes it the current one. Returns the rate of false positives that it had.
    /// Only one thread may call it.
    pub fn rotate(&self) -> f64 {
        let next = self.epoch.load(Relaxed).wrapping_add(1);
        let oldest = &self.generations[next % GENERATIONS];
        let rate = oldest.false_positive_rate();
        oldest.clear();
        self.epoch.store(next, Release);
        rate
    }

    /// Returns true if the current generation is as full as planned.
    pub fn is_full(&self) -> bool {
        let [current, ..] = self.generations();
        current.fill() >= current.planned_fill()
    }

    /// The share of the current generation's bits that are set.
    pub fn fill(&self) -> f64 {
        let [current, ..] = self.generations();
        current.fill()
    }

    /// The probability that a new host is mistaken for a known one. If a generation with the rate `emptied` was emptied
    /// meanwhile, the highest such probability is not above this.
    pub fn false_positive_rate(&self, emptied: f64) -> f64 {
        let rates = self.generations.iter().map(SharedBloom::false_positive_rate);
        1.0 - rates.chain([emptied]).map(|rate| 1.0 - rate).product::<f64>()
    }
}

/// An empty generation.
fn generation(hosts: u64, key_id: u64) -> SharedBloom {
    configured(SharedBloom::with_capacity(hosts, rate_of_each(), key_id))
}

/// All generations together have about four times this rate.
const fn rate_of_each() -> f64 {
    FALSE_POSITIVE_RATE / GENERATIONS as f64
}

#[cfg(test)]
mod tests {
    use weir_config::limits::HOSTS;
    use weir_sketch::{Image as _, hash::mix};

    use super::*;

    #[test]
    fn a_host_stays_known_for_three_generations_and_is_forgotten_after_four() {
        let filter = KnownHosts::new(1000, 7);
        for age in 0..12 {
            assert!(filter.insert(mix(age)), "{age}");
            for known in age.saturating_sub(3)..=age {
                assert!(filter.generations().iter().any(|one| one.contains(mix(known))), "{known} at {age}");
            }
            if let Some(forgotten) = age.checked_sub(4) {
                assert!(!filter.generations().iter().any(|one| one.contains(mix(forgotten))), "{forgotten} at {age}");
            }
            filter.rotate();
        }
        let kept = KnownHosts::new(1000, 7);
        for nth in 0..9 {
            assert_eq!(kept.insert(mix(99)), nth == 0, "a host that comes in each generation stays known");
            kept.rotate();
        }
    }

    #[test]
    fn generations_keep_their_order_on_disk() {
        for rotations in 0..6 {
            let filter = KnownHosts::new(1000, 7);
            for nth in 0..rotations {
                filter.insert(mix(nth));
                filter.rotate();
            }
            let images = filter.generations().map(|one| SharedBloom::from_image(&one.to_image(), 1 << 20).unwrap());
            let read = KnownHosts::from_generations(images, 1000, 7).unwrap();
            for _ in 0..4 {
                let fills = |one: &KnownHosts| one.generations().map(SharedBloom::fill);
                assert_eq!(fills(&read), fills(&filter), "after {rotations}");
                assert_eq!(read.rotate().to_bits(), filter.rotate().to_bits());
            }
        }
        let images = || {
            KnownHosts::new(1000, 7).generations().map(|one| SharedBloom::from_image(&one.to_image(), 1 << 20).unwrap())
        };
        assert!(KnownHosts::from_generations(images(), 50_000, 7).is_none());
        assert!(KnownHosts::from_generations(images(), 1000, 8).is_none());
    }

    #[test]
    fn the_rate_of_mistakes_is_what_it_says() {
        const ASKED: u64 = 2_000_000;
        let filter = KnownHosts::new(4_000, 7);
        for generation in 0..4_u64 {
            for host in 0..4_000 {
                filter.insert(mix(mix(generation + 1).wrapping_add(host)));
            }
            if generation < 3 {
                filter.rotate();
            }
        }
        let stated = filter.false_positive_rate(0.0);
        let is_found = |hash: u64| filter.generations().iter().any(|one| one.contains(hash));
        let mistaken = (0..ASKED).filter(|host| is_found(mix(mix(77).wrapping_add(*host)))).count() as f64;
        let (mean, measured) = (stated * ASKED as f64, mistaken);
        assert!((measured - mean).abs() < 5.0 * mean.sqrt(), "{measured} of {mean}");
        assert!((0.000_3..0.001_5).contains(&stated), "{stated}");
        assert!(filter.false_positive_rate(0.5) > 0.5);
    }

    #[test]
    fn it_is_full_when_it_has_its_hosts() {
        for hosts in [*HOSTS.start(), 5_000, *HOSTS.end()] {
            let filter = KnownHosts::new(hosts, 7);
            assert!(!filter.is_full());
            for host in 0..hosts * 11 / 10 {
                filter.insert(mix(host));
            }
            assert!(filter.is_full(), "{hosts}");
        }
    }

    #[test]
    fn of_several_threads_at_most_one_finds_a_host_new() {
        const HOSTS: u64 = 20_000;
        let filter = KnownHosts::new(100_000, 7);
        let found: u64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..HOSTS).filter(|host| filter.insert(mix(*host))).count() as u64))
                .collect();
            filter.rotate();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(found <= HOSTS && found + 4 + HOSTS / 500 >= HOSTS, "{found}");
        assert!((0..HOSTS).all(|host| !filter.insert(mix(host))), "all are known");
    }
}
