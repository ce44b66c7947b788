//! The likeliest number of a key, given the numbers of all other keys.

use weir_config::view::ViewKey;
use weir_sketch::{Estimate, Survey};

/// The likeliest number, and its variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likely {
    pub value: f64,
    pub variance: f64,
}

impl Likely {
    /// The number of a held key. Its bounds are roughly `DEVIATIONS` standard deviations apart.
    pub fn of(held: Estimate) -> Self {
        const DEVIATIONS: f64 = 12.0;
        let deviation = (held.upper - held.lower) as f64 / DEVIATIONS;
        Self { value: held.value as f64, variance: deviation * deviation }
    }

    /// Combines both, weighted by how certain each is.
    pub fn and(self, other: Self) -> Self {
        let both = self.variance + other.variance;
        if both == 0.0 {
            return self;
        }
        let say = other.variance / both;
        Self { value: say * self.value + (1.0 - say) * other.value, variance: say * self.variance }
    }
}

/// The distribution of all keys that may be listed, from the lines.
///
/// A list favours lucky keys. So an estimate is shrunk towards the median. The less keys differ beyond chance, the more
/// it is shrunk (Morris, "Parametric empirical Bayes inference", 1983). An estimate that stands out from all others
/// stays as it is.
pub struct Population<'a> {
    survey: &'a Survey<'a, ViewKey>,
    /// The median of all keys.
    usual: f64,
    /// The variance among keys, without the part that is due to chance.
    variance: f64,
    /// A distance from the median, in standard deviations, that hardly any key has by chance.
    outstanding: f64,
}

impl<'a> Population<'a> {
    /// The distribution of these unbiased numbers.
    pub fn of(survey: &'a Survey<'a, ViewKey>, found: impl Iterator<Item = f64>) -> Self {
        /// The distance between the quartiles of a normal distribution, in standard deviations.
        const QUARTILES: f64 = 1.349;
        let mut values: Vec<f64> = found.collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0);
        let (usual, all) = (at(0.5), (at(0.75) - at(0.25)) / QUARTILES);
        let chance = survey.deviation(usual);
        let outstanding = (2.0 * (values.len() as f64).max(2.0).ln()).sqrt();
        Self { survey, usual, variance: (all * all - chance * chance).max(0.0), outstanding }
    }

    /// The likeliest number of a key whose unbiased estimate from the lines is `found`.
    pub fn likely(&self, found: f64) -> Likely {
        let (beyond, chance) = (found - self.usual, self.survey.deviation(found).powi(2));
        let all = self.variance + chance;
        if all == 0.0 || beyond.abs() > self.outstanding * all.sqrt() {
            return Likely { value: found, variance: chance };
        }
        let say = self.variance / all;
        Likely { value: self.usual + say * beyond, variance: say * chance }
    }
}

#[cfg(test)]
mod tests {
    use weir_sketch::{Spread, hash::mix};

    use super::*;

    #[test]
    fn estimates_are_shrunk_as_far_as_chance_explains_their_differences() {
        let mut lines = Spread::with_resolution(10_000, 100, 0.04, 7).unwrap();
        lines.insert_batch(
            &(0..9_000).map(mix).collect::<Vec<_>>(),
            &(0..9_000).map(|n| mix(!n)).collect::<Vec<_>>(),
            |at| ViewKey([at as u64, 0, 0, 0, 0]),
        );
        let survey = lines.survey();
        let chance = survey.deviation(0.0);
        assert!(chance > 1.0, "{chance}");
        // The numbers differ only as much as by chance, so all keys are equal.
        let alike = Population::of(&survey, (-50..=50).map(|n| 0.6 * chance * f64::from(n) / 25.0));
        assert_eq!((alike.usual, alike.variance), (0.0, 0.0));
        assert_eq!(alike.likely(chance), Likely { value: 0.0, variance: 0.0 });
        let far = 4.0 * survey.deviation(4.0 * chance);
        assert_eq!(alike.likely(far).value, far, "a number that stands out stays as it is");
        // The numbers differ three times as much, so eight ninths of the variance is among the keys.
        let different = Population::of(&survey, (-50..=50).map(|n| 3.0 * 1.349 * chance * f64::from(n) / 50.0));
        let likely = different.likely(chance);
        assert!((0.8..0.95).contains(&(likely.value / chance)), "{likely:?}, {chance}");
        assert!(likely.variance < survey.deviation(chance).powi(2));
        assert_eq!(Population::of(&survey, [].into_iter()).likely(0.0).value, 0.0);
    }

    #[test]
    fn the_more_certain_number_has_more_weight() {
        let [exact, near, far] =
            [(100.0, 0.0), (110.0, 4.0), (200.0, 16.0)].map(|(value, variance)| Likely { value, variance });
        assert_eq!((exact.and(far), far.and(exact)), (exact, exact));
        assert_eq!(near.and(far), Likely { value: 128.0, variance: 3.2 });
        assert_eq!(exact.and(Likely { value: 300.0, variance: 0.0 }), exact);
        assert_eq!(Likely::of(Estimate { value: 50, lower: 40, upper: 64 }), Likely { value: 50.0, variance: 4.0 });
    }
}
