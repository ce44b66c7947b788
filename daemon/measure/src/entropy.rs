//! Entropy: how evenly are packets or bytes spread over keys?
//!
//! Shannon's entropy, in bits: H = -sum p log2 p, where p is a key's part of the total. It is 0 if one key has
//! everything, and log2 n if n keys have equal parts. A table knows every key, so its entropy is exact. Otherwise some
//! keys are known with bounds (the candidates). About all other keys together, their sum, their possible number, and
//! the largest possible size of one of them are known. The bounds of H cover everything that is consistent with that.
//!
//! If packets were left out or lost, the total has bounds as well. A key's part is then between its lower bound divided
//! by the largest total and its upper bound divided by the smallest. The following is about parts, which add up to 1.
//!
//! **Upper bound.** H is concave, so it is largest where parts are as even as the bounds allow: each key has the same
//! part, or its bound if that is less or more (water filling). The other keys are as many as possible, from 0 on.
//! Bisection finds the level at which all parts add up to 1. And n keys have at most log2 n.
//!
//! **Lower bound.** The sum of f(p) = p log2 p is convex: it is largest where few keys have everything. Every known key
//! gets its lower bound. The remainder goes where it adds most. A convex function is below its chord, so a known key
//! adds at most the slope of the chord between its bounds, per part that it gets. Other keys add at most log2 c per
//! part, if none of them has more than c: f(p) <= p log2 c up to there. The steepest are filled first. So no other
//! distribution has a larger sum, or a smaller H.
//!
//! If there are at least n other keys, and all fit into j of them, then n - j have the least that a key may have, one
//! packet or byte: moving from them to a larger one increases the sum.
//!
//! In a sketch, a key that is no candidate has a light cell, which holds at least the sum of all such keys of that
//! cell. So at most one key of each cell is large, and no larger than its cell. If packets are missing, cells do not
//! bound the true sum of several keys. Then the largest cell, plus what may be missing, bounds each of them.

use weir_sketch::Estimate;

/// Everything that is known about the sizes of keys, in packets or bytes.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Keys with their own bounds.
    pub known: Vec<Estimate>,
    /// The sum of all keys.
    pub total: Estimate,
    /// How many keys there are, including the known ones.
    pub keys: Estimate,
    /// The keys that are not among the largest.
    pub others: UnlistedKeys,
}

/// Keys that are not known by name.
#[derive(Clone, Debug)]
pub enum UnlistedKeys {
    /// Each key is in one group. These are upper bounds of the sums of the groups.
    Groups(Vec<u64>),
    /// Each key has at most this.
    Each(u64),
}

/// The entropy of a view.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entropy {
    /// The entropy in bits.
    pub value: f64,
    /// It is at least this.
    pub lower: f64,
    /// It is at most this.
    pub upper: f64,
    /// How many keys there are.
    pub keys: Estimate,
    /// The probability that the bounds of both hold.
    pub confidence: f64,
}

impl Entropy {
    /// The entropy divided by that of the same number of keys with equal parts, 0 to 1.
    pub fn normalized(&self) -> f64 {
        if self.keys.value < 2 { 0.0 } else { (self.value / (self.keys.value as f64).log2()).min(1.0) }
    }
}

/// Rounding errors of the arithmetic, in bits.
const ROUNDING: f64 = 1e-9;

impl Distribution {
    /// The entropy, with bounds that hold with the probability `confidence`; `None` if nothing was counted.
    pub fn entropy(&self, confidence: f64) -> Option<Entropy> {
        if self.total.upper == 0 {
            return None;
        }
        // If the inputs contradict each other, one of their bounds is among those that fail.
        let upper = self.most();
        let lower = self.least().min(upper);
        Some(Entropy { value: self.likeliest().clamp(lower, upper), lower, upper, keys: self.keys, confidence })
    }

    /// The bounds of each known key's part.
    fn parts(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        let [least, most] = self.totals();
        self.known.iter().map(move |key| {
            let lower = (key.lower as f64 / most).min(1.0);
            (lower, (key.upper as f64 / least).clamp(lower, 1.0))
        })
    }

    fn totals(&self) -> [f64; 2] {
        [self.total.lower.max(1) as f64, self.total.upper.max(1) as f64]
    }

    fn most(&self) -> f64 {
        let [_, most] = self.totals();
        // There are no more keys than packets or bytes.
        let others = (self.keys.upper.saturating_sub(self.known.len() as u64) as f64).min(most);
        let filled = |level: f64| -> f64 {
            self.parts().map(|(lower, upper)| level.clamp(lower, upper)).sum::<f64>() + others * level
        };
        let (mut low, mut high) = (0.0, 1.0);
        // After a hundred halvings the result is as exact as a float can be.
        for _ in 0..100 {
            let level = f64::midpoint(low, high);
            if filled(level) < 1.0 { low = level } else { high = level }
        }
        let known: f64 = self.parts().map(|(lower, upper)| f(high.clamp(lower, upper))).sum();
        let even = (self.keys.upper.max(1) as f64).log2();
        (-known - others * f(high)).clamp(0.0, even) + ROUNDING
    }

    fn least(&self) -> f64 {
        let [least, most] = self.totals();
        let lowest: f64 = self.parts().map(|(lower, _)| lower).sum();
        let mut sum: f64 = self.parts().map(|(lower, _)| f(lower)).sum();
        let mut left = (1.0 - lowest).max(0.0);
        // How much each key adds per part, and how much it can take.
        let mut slopes: Vec<(f64, f64)> = self
            .parts()
            .filter(|(lower, upper)| lower < upper)
            .map(|(lower, upper)| ((f(upper) - f(lower)) / (upper - lower), upper - lower))
            .collect();
        let of_others = |most: u64| most as f64 / least;
        let large = match &self.others {
            UnlistedKeys::Groups(groups) => {
                let groups = groups.iter().filter(|group| **group > 0).map(|group| of_others(*group));
                slopes.extend(groups.clone().map(|group| (group.min(1.0).log2(), group)));
                groups.count() as f64
            }
            UnlistedKeys::Each(largest) => {
                let largest = of_others((*largest).max(1));
                slopes.push((largest.min(1.0).log2(), f64::INFINITY));
                (left / largest).ceil() + 1.0
            }
        };
        let small = (self.keys.lower.saturating_sub(self.known.len() as u64) as f64 - large).clamp(0.0, left * most);
        sum += small * f(1.0 / most);
        left -= small / most;
        slopes.sort_unstable_by(|(one, _), (other, _)| other.total_cmp(one));
        for (slope, room) in slopes {
            let taken = room.min(left);
            sum += slope * taken;
            left -= taken;
            if left <= 0.0 {
                break;
            }
        }
        // A remainder that fits nowhere is due to rounding. As a separate key it would add nothing.
        (-sum - ROUNDING).max(0.0)
    }

    /// The entropy if known keys have their likeliest values, and all other keys have equal parts.
    fn likeliest(&self) -> f64 {
        let known: f64 = self.known.iter().map(|key| key.value as f64).sum();
        let rest = (self.total.value as f64 - known).max(0.0);
        let total = (known + rest).max(1.0);
        let others = self.keys.value.saturating_sub(self.known.len() as u64).max(1) as f64;
        let parts: f64 = self.known.iter().map(|key| f(key.value as f64 / total)).sum();
        -parts - others * f(rest / total / others)
    }
}

/// p log2 p, which is 0 at 0.
fn f(part: f64) -> f64 {
    if part > 0.0 { part * part.log2() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use weir_sketch::hash::mix;

    use super::*;

    fn exactly(value: u64) -> Estimate {
        Estimate { value, lower: value, upper: value }
    }

    fn truth(sizes: &[u64]) -> f64 {
        let total = sizes.iter().sum::<u64>() as f64;
        -sizes.iter().map(|size| f(*size as f64 / total)).sum::<f64>()
    }

    /// Sizes of keys, the largest first: either a power of their rank with noise, or all equal.
    fn sizes(seed: u64) -> Vec<u64> {
        let random = |nth: u64| mix(mix(seed).wrapping_add(nth)) as f64 / u64::MAX as f64;
        let (keys, exponent, scale) = (1 + (random(0).powi(3) * 5_000.0) as u64, random(1) * 2.5, random(2) * 1e6);
        let size = |rank: u64| 1 + (scale * random(rank + 9) / (rank as f64).powf(exponent)) as u64;
        let mut sizes: Vec<u64> = (1..=keys).map(size).collect();
        sizes.sort_unstable_by(|one, other| other.cmp(one));
        sizes
    }

    /// Builds the distribution that a sketch may know about these sizes: bounds of some of the largest, cells with the
    /// others, and a count of keys. With `missing`, only a part of the packets arrived, and the bounds allow for that.
    fn known(sizes: &[u64], seed: u64, missing: bool) -> Distribution {
        let random = |nth: u64| mix(mix(!seed).wrapping_add(nth));
        let held = random(0) as usize % (sizes.len() + 1);
        let off = |nth: u64, size: u64| random(nth) % (1 + size / 8);
        let around = |nth: u64, size: u64| {
            let (lower, upper) = (size - off(nth, size.saturating_sub(1)), size + off(nth + 1, size));
            Estimate { value: lower.midpoint(upper), lower, upper }
        };
        let (held, others) = sizes.split_at(held);
        let total = sizes.iter().sum();
        let mut cells = vec![0; 1 + random(1) as usize % 300];
        let count = cells.len() as u64;
        for (nth, size) in (0..).zip(others) {
            cells[(random(1_000 + nth) % count) as usize] += size;
        }
        // Cells also contain a part of the known keys.
        for (nth, cell) in (0..).zip(&mut cells) {
            *cell += off(90_000 + nth, *cell);
        }
        let largest = others.first().copied().unwrap_or(0);
        Distribution {
            known: (0..).zip(held).map(|(nth, size)| around(100_000 + 2 * nth, *size)).collect(),
            total: if missing { around(3, total) } else { exactly(total) },
            keys: around(5, sizes.len() as u64),
            others: if missing { UnlistedKeys::Each(largest + off(7, largest)) } else { UnlistedKeys::Groups(cells) },
        }
    }

    #[test]
    fn bounds_hold_for_any_distribution_in_any_order() {
        for seed in 0..4_000 {
            let sizes = sizes(seed);
            let truth = truth(&sizes);
            for missing in [false, true] {
                let mut distribution = known(&sizes, seed, missing);
                for _ in 0..2 {
                    let entropy = distribution.entropy(1.0).unwrap();
                    let Entropy { value, lower, upper, .. } = entropy;
                    assert!(lower <= truth && truth <= upper, "{seed}, {missing}: {lower} to {upper}, truly {truth}");
                    assert!(lower <= value && value <= upper && (0.0..=1.0).contains(&entropy.normalized()));
                    distribution.known.reverse();
                    if let UnlistedKeys::Groups(groups) = &mut distribution.others {
                        groups.reverse();
                    }
                }
            }
        }
    }

    #[test]
    fn exactly_known_sizes_have_an_exact_entropy() {
        for sizes in [&[7][..], &[5, 5, 5, 5], &[1_000_000, 1], &[8, 4, 2, 1, 1]] {
            let known = sizes.iter().map(|size| exactly(*size)).collect();
            let (total, keys) = (exactly(sizes.iter().sum()), exactly(sizes.len() as u64));
            let distribution = Distribution { known, total, keys, others: UnlistedKeys::Groups(Vec::new()) };
            let Entropy { value, lower, upper, .. } = distribution.entropy(1.0).unwrap();
            let truth = truth(sizes);
            assert!((value - truth).abs() < 1e-6 && upper - lower < 1e-6, "{sizes:?}: {value}, truly {truth}");
        }
        let nothing = Distribution {
            known: Vec::new(),
            total: exactly(0),
            keys: exactly(0),
            others: UnlistedKeys::Groups(Vec::new()),
        };
        assert_eq!(nothing.entropy(1.0), None);
    }

    #[test]
    fn as_many_groups_as_keys_leave_no_room_for_small_keys() {
        for sizes in [&[50; 100][..], &[900, 50, 50, 1, 1], &[7]] {
            let (total, keys) = (exactly(sizes.iter().sum()), exactly(sizes.len() as u64));
            let truth = truth(sizes);
            let others = [UnlistedKeys::Groups(sizes.to_vec()), UnlistedKeys::Each(sizes[0])];
            let [groups, each] = others.map(|others| {
                let entropy = Distribution { known: Vec::new(), total, keys, others }.entropy(1.0).unwrap();
                assert!(entropy.lower <= truth && truth <= entropy.upper, "{sizes:?}: {entropy:?}, truly {truth}");
                entropy.lower
            });
            assert!(truth - groups < 1e-6, "{sizes:?}: at least {groups}, truly {truth}");
            assert!(each <= groups + 1e-6, "{sizes:?}: less knowledge does not raise the lower bound");
        }
    }

    #[test]
    fn bounds_are_useful() {
        // A hundred keys have half of everything; ten thousand unknown keys have the rest.
        let distribution = Distribution {
            known: vec![exactly(500); 100],
            total: exactly(100_000),
            keys: Estimate { value: 10_100, lower: 10_000, upper: 10_200 },
            others: UnlistedKeys::Groups(vec![10; 6_000]),
        };
        let Entropy { value, lower, upper, .. } = distribution.entropy(1.0).unwrap();
        let truth = truth(&[vec![500; 100], vec![5; 10_000]].concat());
        assert!(lower <= truth && truth <= upper && (value - truth).abs() < 0.01, "{lower} to {upper}: {truth}");
        assert!(upper - truth < 0.02 && truth - lower < 0.6, "{lower} to {upper}: {truth}");
    }
}
