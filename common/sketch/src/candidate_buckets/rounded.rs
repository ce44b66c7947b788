//! A number in two bytes.

/// A number rounded down to eleven significant bits. Numbers from 2^42 on become the largest, 2047 x 2^31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounded(pub u16);

/// The number of significant bits that rounding keeps.
const BITS: u32 = 11;
/// Bits of the exponent.
const EXPONENT_BITS: u32 = u16::BITS - BITS;

impl Rounded {
    #[inline(always)]
    pub const fn down(number: u64) -> Self {
        let exponent = (u64::BITS - number.leading_zeros()).saturating_sub(BITS);
        if exponent >> EXPONENT_BITS != 0 {
            return Self(u16::MAX);
        }
        Self((number >> exponent << EXPONENT_BITS) as u16 | exponent as u16)
    }

    #[inline(always)]
    pub const fn get(self) -> u64 {
        (self.0 as u64 >> EXPONENT_BITS) << (self.0 & ((1 << EXPONENT_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lose_less_than_a_thousandth_and_never_grow() {
        for number in (0..3_000).chain((0..42).map(|bit| (1 << bit) + (1 << bit >> 3) + 1)) {
            let rounded = Rounded::down(number).get();
            assert!(rounded <= number && number - rounded <= number >> 10, "{number}: {rounded}");
            assert_eq!(Rounded::down(rounded).get(), rounded);
            assert!(number >= 2_048 || rounded == number);
        }
        let largest = Rounded::down(u64::MAX).get();
        assert_eq!(
            (largest, Rounded::down((1 << 42) - 1).get(), Rounded::down(1 << 42).get()),
            (2_047 << 31, largest, largest)
        );
    }
}
