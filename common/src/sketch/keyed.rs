//! A sketch with its key: takes items, not hashes.

use core::hash::Hash;

use super::{Distinct, Filter, Full, Merge, MergeError, Remove, Sketch};
use crate::hash::{Key, KeyedHash};

/// The comfortable end of any sketch: hashes items of any type with a secret key.
///
/// ```
/// use weir_common::{hash::Key, sketch::{HyperLogLog, Keyed}};
///
/// let mut visitors = Keyed::new(Key([1, 2]), |key_id| HyperLogLog::with_error(0.01, key_id));
/// visitors.count_in("192.0.2.1");
/// visitors.count_in("192.0.2.2");
/// visitors.count_in("192.0.2.1");
/// assert_eq!(visitors.bounds().value, 2);
/// ```
#[derive(Clone, Debug)]
pub struct Keyed<S> {
    sketch: S,
    hash: KeyedHash,
}

impl<S: Sketch> Keyed<S> {
    /// What `build` makes of the key's fingerprint, with hashes made with this key.
    pub fn new(key: Key, build: impl FnOnce(u64) -> S) -> Self {
        Self { sketch: build(key.id()), hash: KeyedHash::new(key) }
    }

    /// The hash of an item, for the sketch's own methods.
    #[inline]
    pub fn hash<T: Hash + ?Sized>(&self, item: &T) -> u64 {
        self.hash.of(item)
    }

    /// The sketch, to be fed with ready hashes.
    pub const fn sketch_mut(&mut self) -> &mut S {
        &mut self.sketch
    }
}

impl<S> core::ops::Deref for Keyed<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.sketch
    }
}

impl<S: Merge> Keyed<S> {
    /// Takes in another sketch.
    ///
    /// # Errors
    ///
    /// The other has another geometry or key.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        self.sketch.merge(&other.sketch)
    }
}

impl<S: Filter> Keyed<S> {
    /// Inserts an item; tells whether it was absent.
    ///
    /// # Errors
    ///
    /// The filter is full.
    pub fn insert<T: Hash + ?Sized>(&mut self, item: &T) -> Result<bool, Full> {
        self.sketch.insert(self.hash.of(item))
    }

    /// Whether an item was inserted; wrongly true at the filter's rate.
    pub fn contains<T: Hash + ?Sized>(&self, item: &T) -> bool {
        self.sketch.contains(self.hash.of(item))
    }
}

impl<S: Remove> Keyed<S> {
    /// Removes one insertion of an item; tells whether there was one.
    pub fn remove<T: Hash + ?Sized>(&mut self, item: &T) -> bool {
        self.sketch.remove(self.hash.of(item))
    }
}

impl<S: Distinct> Keyed<S> {
    /// Counts an item, once however often it comes.
    pub fn count_in<T: Hash + ?Sized>(&mut self, item: &T) {
        self.sketch.insert(self.hash.of(item));
    }
}
