//! The value of a counter: one number, or two that are counted together.
//!
//! Sketches of frequency are generic over it, so that one access to a cell updates everything that is counted there. A
//! sum stops at the largest number and does not wrap, so that an upper bound stays one.

use core::fmt::Debug;

use crate::simd::dispatch;

/// The size of [`Weight::Cells`] in bytes: a cache line, less fingerprints and a count.
const CELLS_BYTES: usize = 48;
/// How many bits of a packed weight are for the first of two numbers and its guard bit: up to 33 million packets.
const FIRST_BITS: u32 = 26;
/// How many bits are for the second number: up to 137 GB.
const SECOND_BITS: u32 = u64::BITS - FIRST_BITS;

/// A value that is added to a key and stored in a counter: one number, or several that are counted together. The
/// default is zero.
///
/// Several numbers are compared one by one. So the result of [`Weight::least`] and [`Weight::most`] may have numbers
/// from both arguments.
pub trait Weight: Copy + Default + Eq + Debug + Send + Sync + 'static {
    /// The same numbers in half the bits, for counters of keys that are not expected to grow large.
    type Narrow: Copy + Default + Eq + Debug + Send + Sync + 'static;

    /// As many narrow weights as fill 48 bytes.
    type Cells: Copy + Default + Eq + Debug + Send + Sync + AsRef<[Self::Narrow]> + AsMut<[Self::Narrow]> + 'static;

    /// The sum, up to the largest value.
    #[must_use]
    fn saturating_add(self, other: Self) -> Self;

    /// The difference, down to zero.
    #[must_use]
    fn saturating_sub(self, other: Self) -> Self;

    /// The smaller value of each number.
    #[must_use]
    fn least(self, other: Self) -> Self;

    /// The larger value of each number.
    #[must_use]
    fn most(self, other: Self) -> Self;

    /// This weight, raised to `sum` if it is lower. `sum` must be the sum of `least` and `more`, and this weight must
    /// not be below `least`.
    ///
    /// The result is that of [`Weight::most`] with `sum`. But the comparison does not wait for the sum, and compilers
    /// do not recognise it as a maximum, which they might turn into a branch.
    #[must_use]
    fn raised(self, least: Self, more: Self, sum: Self) -> Self;

    /// The weight in half the bits. A number that does not fit becomes the maximum, which means "unknown".
    fn narrow(self) -> Self::Narrow;

    /// The weight in all bits again. A number that did not fit becomes the maximum.
    fn from_narrow(narrow: Self::Narrow) -> Self;

    /// The bits of a packed weight that are 0 as long as each number fits: one bit above each number.
    const GUARDS: u64;

    /// All numbers in one word, so that one addition adds all of them. If a number does not fit below its guard bit,
    /// the word is [`Weight::GUARDS`].
    ///
    /// If neither of two packed weights has a guard bit set, no number of their sum reaches the next one: a number that
    /// has become too large sets its guard bit.
    fn pack(self) -> u64;

    /// The weight of a word without guard bits.
    fn unpack(word: u64) -> Self;

    /// The number that decides which of two keys is larger.
    fn magnitude(self) -> u64;

    /// One number for all of them, below 2^62 + 2^61. Keys compete with it if the largest keys by any of the numbers
    /// are wanted.
    fn score(self) -> u64;

    /// Builds a weight number by number. `number` gets a function that reads this number from a weight.
    fn by_number(number: impl FnMut(fn(Self) -> u64) -> u64) -> Self;
}

macro_rules! count {
    ($wide:ty, $narrow:ty) => {
        impl Weight for $wide {
            type Narrow = $narrow;
            type Cells = [$narrow; CELLS_BYTES / size_of::<$narrow>()];

            #[inline(always)]
            fn saturating_add(self, other: Self) -> Self {
                self.saturating_add(other)
            }
            #[inline(always)]
            fn saturating_sub(self, other: Self) -> Self {
                self.saturating_sub(other)
            }
            #[inline(always)]
            fn least(self, other: Self) -> Self {
                core::hint::select_unpredictable(self < other, self, other)
            }
            #[inline(always)]
            fn most(self, other: Self) -> Self {
                core::hint::select_unpredictable(self > other, self, other)
            }
            #[inline(always)]
            fn raised(self, least: Self, more: Self, sum: Self) -> Self {
                core::hint::select_unpredictable(self.wrapping_sub(least) < more, sum, self)
            }
            #[inline(always)]
            fn narrow(self) -> $narrow {
                Ord::min(self, <$narrow>::MAX.into()) as $narrow
            }
            #[inline(always)]
            fn from_narrow(narrow: $narrow) -> Self {
                if narrow == <$narrow>::MAX { Self::MAX } else { narrow.into() }
            }

            const GUARDS: u64 = 1 << 63;

            #[inline(always)]
            fn pack(self) -> u64 {
                Ord::min(self.into(), Self::GUARDS)
            }
            #[inline(always)]
            fn unpack(word: u64) -> Self {
                Self::try_from(word).unwrap_or(Self::MAX)
            }
            #[inline(always)]
            fn magnitude(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn score(self) -> u64 {
                Ord::min(self.into(), 1 << 62)
            }
            fn by_number(mut number: impl FnMut(fn(Self) -> u64) -> u64) -> Self {
                Self::try_from(number(Self::into)).unwrap_or(Self::MAX)
            }
        }
    };
}

count!(u32, u16);
count!(u64, u32);

/// A weight of two numbers, such as the number of orders and the amount in cents. One access to a counter updates both.
///
/// Every type with this trait is a [`Weight`]. Use [`CountAndSum`] if you need no type of your own.
pub trait Columns: Copy + Default + Eq + Debug + Send + Sync + 'static {
    /// Combines the two numbers.
    fn from_columns(columns: [u64; 2]) -> Self;

    /// Returns the two numbers.
    fn columns(self) -> [u64; 2];

    /// The number that decides which of two keys is larger: see [`Weight::magnitude`].
    fn magnitude(self) -> u64;

    /// One number for both, below 2^62 + 2^61: see [`Weight::score`].
    fn score(self) -> u64;
}

/// The number of occurrences of a key, and a sum over them, such as an amount in cents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CountAndSum {
    /// The number of occurrences.
    pub count: u64,
    /// The sum.
    pub sum: u64,
}

impl CountAndSum {
    /// `count` occurrences with this `sum`.
    #[inline]
    pub const fn new(count: u64, sum: u64) -> Self {
        Self { count, sum }
    }
}

impl Columns for CountAndSum {
    #[inline(always)]
    fn from_columns([count, sum]: [u64; 2]) -> Self {
        Self { count, sum }
    }
    #[inline(always)]
    fn columns(self) -> [u64; 2] {
        [self.count, self.sum]
    }
    #[inline(always)]
    fn magnitude(self) -> u64 {
        self.sum
    }
    /// A count of one is worth a sum of 512, in units of four. So the largest keys by either number have large scores.
    #[inline(always)]
    fn score(self) -> u64 {
        (self.sum >> 2) + (Ord::min(self.count, 1 << 54) << 7)
    }
}

/// Two numbers of 32 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NarrowColumns([u32; 2]);

impl<C: Columns> Weight for C {
    type Narrow = NarrowColumns;
    type Cells = [NarrowColumns; CELLS_BYTES / size_of::<NarrowColumns>()];

    #[inline(always)]
    fn saturating_add(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.columns(), other.columns());
        Self::from_columns([a.saturating_add(c), b.saturating_add(d)])
    }
    #[inline(always)]
    fn saturating_sub(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.columns(), other.columns());
        Self::from_columns([a.saturating_sub(c), b.saturating_sub(d)])
    }
    #[inline(always)]
    fn least(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.columns(), other.columns());
        Self::from_columns([a.least(c), b.least(d)])
    }
    #[inline(always)]
    fn most(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.columns(), other.columns());
        Self::from_columns([a.most(c), b.most(d)])
    }
    #[inline(always)]
    fn raised(self, least: Self, more: Self, sum: Self) -> Self {
        let ([a, b], [least_a, least_b]) = (self.columns(), least.columns());
        let ([more_a, more_b], [sum_a, sum_b]) = (more.columns(), sum.columns());
        Self::from_columns([a.raised(least_a, more_a, sum_a), b.raised(least_b, more_b, sum_b)])
    }
    #[inline(always)]
    fn narrow(self) -> NarrowColumns {
        let [a, b] = self.columns();
        NarrowColumns([a.narrow(), b.narrow()])
    }
    #[inline(always)]
    fn from_narrow(NarrowColumns([a, b]): NarrowColumns) -> Self {
        Self::from_columns([u64::from_narrow(a), u64::from_narrow(b)])
    }

    const GUARDS: u64 = 1 << 63 | 1 << (SECOND_BITS - 1);

    #[inline(always)]
    fn pack(self) -> u64 {
        let [first, second] = self.columns();
        let fits = first >> (FIRST_BITS - 1) == 0 && second >> (SECOND_BITS - 1) == 0;
        if fits { first << SECOND_BITS | second } else { Self::GUARDS }
    }
    #[inline(always)]
    fn unpack(word: u64) -> Self {
        Self::from_columns([word >> SECOND_BITS, word & ((1 << SECOND_BITS) - 1)])
    }
    #[inline(always)]
    fn magnitude(self) -> u64 {
        Columns::magnitude(self)
    }
    #[inline(always)]
    fn score(self) -> u64 {
        Columns::score(self)
    }
    fn by_number(mut number: impl FnMut(fn(Self) -> u64) -> u64) -> Self {
        Self::from_columns([number(|weight| weight.columns()[0]), number(|weight| weight.columns()[1])])
    }
}

dispatch! {
    /// The sum of many weights, up to the largest value.
    pub(super) fn sum<W: Weight>(weights: &[W]) -> W {
        // The sum has this many parts, which are added in lanes.
        let mut parts = [W::default(); 32];
        let (chunks, rest) = weights.as_chunks();
        for chunk in chunks {
            for (part, weight) in parts.iter_mut().zip::<&[W; 32]>(chunk) {
                *part = part.saturating_add(*weight);
            }
        }
        let mut sum = W::default();
        for &part in parts.iter().chain(rest) {
            sum = sum.saturating_add(part);
        }
        sum
    }
}

/// For each number, the smallest excess that at most a share `chance` of all places exceeds. `share(read, excess)` is
/// the share of places whose number is above `excess`, and `most` is the largest possible weight.
///
/// The result is rounded up to seven significant bits (less than 2 %), so that `share` is called at most twelve times.
pub(super) fn excess<W: Weight>(chance: f64, most: W, share: impl Fn(fn(W) -> u64, u64) -> f64) -> W {
    const BITS: u32 = 6;
    /// A step has seven significant bits and an exponent. Steps are ordered by value; the last one exceeds 2^64 - 1.
    const STEPS: u64 = ((u64::BITS - BITS + 1) as u64) << BITS;
    let value = |step: u64| match step >> BITS {
        0 => step,
        exponent => ((step & ((1 << BITS) - 1)) + (1 << BITS)) << (exponent - 1),
    };
    W::by_number(|read| {
        let (mut low, mut high) = (0, STEPS);
        while low < high {
            let step = low.midpoint(high);
            // If `chance` is not a number, the comparison fails, and the result is the largest value.
            if share(read, value(step)) <= chance { high = step } else { low = step + 1 }
        }
        if low == STEPS { read(most) } else { Ord::min(value(low), read(most)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stop_at_both_ends() {
        assert_eq!((Weight::saturating_add(u32::MAX, 1), Weight::saturating_sub(1u32, 2)), (u32::MAX, 0));
        let (a, b) = (CountAndSum::new(3, u64::MAX), CountAndSum::new(5, 7));
        assert_eq!(a.saturating_add(b), CountAndSum::new(8, u64::MAX));
        assert_eq!(a.saturating_sub(b), CountAndSum::new(0, u64::MAX - 7));
        assert_eq!((a.least(b), a.most(b)), (CountAndSum::new(3, 7), CountAndSum::new(5, u64::MAX)));
        assert_eq!(Weight::magnitude(b), 7);
    }

    #[test]
    fn a_number_is_raised_to_the_sum_or_stays() {
        for (number, least, more) in [(5, 5, 0), (5, 5, 3), (9, 5, 3), (8, 5, 3), (7, 5, 3), (u32::MAX, 4, 9)] {
            let sum = Weight::saturating_add(least, more);
            assert_eq!(number.raised(least, more, sum), number.most(sum));
            let tally = |number: u32| CountAndSum::new(number.into(), 0);
            assert_eq!(tally(number).raised(tally(least), tally(more), tally(sum)), tally(number).most(tally(sum)));
        }
        // The sum is not below its parts, even if it has stopped at the largest number.
        let (number, least, more) = (u32::MAX - 1, u32::MAX - 2, 7);
        assert_eq!(number.raised(least, more, u32::MAX), u32::MAX);
    }

    #[test]
    fn numbers_that_do_not_fit_into_half_the_bits_become_unknown() {
        for (count, back) in [(0, 0), (65_534, 65_534), (65_535, u32::MAX), (70_000, u32::MAX), (u32::MAX, u32::MAX)] {
            assert_eq!(u32::from_narrow(count.narrow()), back);
        }
        let tally = CountAndSum::new(9, 1 << 32);
        assert_eq!(CountAndSum::from_narrow(tally.narrow()), CountAndSum::new(9, u64::MAX));
    }

    #[test]
    fn packed_weights_add_up_until_a_guard_bit_is_set() {
        let most = CountAndSum::new((1 << 25) - 1, (1 << 37) - 1);
        for weight in [most, CountAndSum::new(0, (1 << 37) - 1), CountAndSum::new((1 << 25) - 1, 0)] {
            assert_eq!(CountAndSum::unpack(weight.pack()), weight);
            let sum = weight.pack() + CountAndSum::new(1, 1).pack();
            assert_ne!(sum & CountAndSum::GUARDS, 0, "{weight:?}");
            let twice = weight.pack() + most.pack();
            assert_eq!(CountAndSum::unpack(twice), weight.saturating_add(most), "no number reaches the next one");
        }
        let sum = CountAndSum::new(3, 5).pack() + CountAndSum::new(4, 6).pack();
        assert_eq!((CountAndSum::unpack(sum), sum & CountAndSum::GUARDS), (CountAndSum::new(7, 11), 0));
        for large in [CountAndSum::new(1 << 25, 0), CountAndSum::new(0, 1 << 37), CountAndSum::new(u64::MAX, 1)] {
            assert_eq!(large.pack(), CountAndSum::GUARDS);
        }
        assert_eq!(((u64::MAX >> 1).pack(), u64::unpack(u64::MAX >> 1)), (u64::MAX >> 1, u64::MAX >> 1));
        assert_eq!((u64::MAX.pack(), (1u64 << 63).pack()), (u64::GUARDS, u64::GUARDS));
        assert_eq!((u32::MAX.pack(), u32::unpack(1 << 40)), (u32::MAX.into(), u32::MAX));
    }

    #[test]
    fn sums_are_whole_and_stop_at_the_largest_number() {
        let weights: std::vec::Vec<u64> = (1..=70).collect();
        assert_eq!([0, 1, 11, 32, 33, 70].map(|count| sum(&weights[..count])), [0, 1, 66, 528, 561, 2_485]);
        let tallies: std::vec::Vec<_> = (1..=70).map(|n| CountAndSum::new(n, u64::MAX / 64)).collect();
        assert_eq!(sum(&tallies), CountAndSum::new(2_485, u64::MAX));
        assert_eq!(sum(&[u64::MAX, 1, 2, 3, 4]), u64::MAX);
    }

    #[test]
    fn the_excess_is_the_least_that_few_places_exceed() {
        let places: std::vec::Vec<u64> = (1..=1_000).collect();
        let share = |read: fn(u64) -> u64, excess| places.iter().filter(|&&n| read(n) > excess).count() as f64 / 1e3;
        for chance in [0.0, 0.001, 0.1, 0.9, 0.999] {
            let exact = 1_000 - (1_000.0 * chance) as u64;
            let excess = excess(chance, u64::MAX, share);
            assert!((exact..=exact + exact / 64 + 1).contains(&excess), "{chance}: {excess}, not {exact}");
        }
        assert_eq!(excess(1.0, u64::MAX, share), 0);
        assert_eq!(excess(0.0, 77u64, |_, _| 1.0), 77, "it is never more than the maximum");
        assert_eq!(excess(f64::NAN, 77u64, share), 77);
        assert_eq!(excess(0.0, u64::MAX, |_, _| 1.0), u64::MAX);
    }
}
