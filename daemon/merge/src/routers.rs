//! Sets of routers, as bits.

use weir_schema::limits::OBSERVERS_MAX;

/// The most routers of one answer. Reports of further ones are left out, and named.
pub const ROUTERS_MAX: usize = OBSERVERS_MAX;
/// An upper bound of the memory of a set, in bytes.
pub const ROUTERS_BYTES: usize = ROUTERS_MAX / 8;

/// A router, by its number.
pub type Router = u32;

/// A set of routers, as bits.
#[derive(Clone, Debug, Default)]
pub struct Routers(Vec<u64>);

impl Routers {
    /// Adds a router.
    pub fn insert(&mut self, router: Router) {
        let word = router as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (router % 64);
    }

    /// Adds those of another set.
    pub fn join(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    /// Returns all routers of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Router> {
        let of_word = |(nth, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| nth as Router * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(of_word)
    }

    /// The number of routers.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_counts_once() {
        let (mut one, mut other) = (Routers::default(), Routers::default());
        assert!(one.is_empty());
        for router in [0, 63, 64, 0, ROUTERS_MAX as u32 - 1] {
            one.insert(router);
        }
        for router in [5, 64] {
            other.insert(router);
        }
        assert_eq!((one.len(), other.len()), (4, 2));
        assert_eq!(one.iter().collect::<Vec<_>>(), [0, 63, 64, ROUTERS_MAX as u32 - 1]);
        other.join(&one);
        assert_eq!((other.len(), one.len()), (5, 4));
        assert!(size_of_val(&*one.0) <= ROUTERS_BYTES);
    }
}
