//! The contender that is weir's spread sketch.

use weir_sketch::{Estimate, Spread};

use super::{BATCH, KEY, hash};
use crate::{
    contender::Subject,
    item::{Bytes, Item},
    rows::spread::{Contact, Spreads},
};

/// All keys in one sketch.
pub struct Shared(Spread<Bytes<8>>);

impl Shared {
    /// A sketch for this many pairs, which resolves keys that touch at least `smallest` items.
    pub fn with_resolution(pairs: u64, smallest: u64, relative_error: f64) -> Self {
        Self(Spread::with_resolution(pairs, smallest, relative_error, KEY.id()).expect("the settings are allowed"))
    }
}

impl Subject<Contact> for Shared {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, contacts: &[Contact]) {
        let hash = hash();
        let (mut keys, mut items) = ([Bytes::default(); BATCH], [Bytes::default(); BATCH]);
        let (mut key_hashes, mut item_hashes) = ([0; BATCH], [0; BATCH]);
        for contacts in contacts.chunks(BATCH) {
            for ((key, item), contact) in keys.iter_mut().zip(&mut items).zip(contacts) {
                (*key, *item) = (contact.key, contact.item);
            }
            hash.of_all(&keys[..contacts.len()], &mut key_hashes);
            hash.of_all(&items[..contacts.len()], &mut item_hashes);
            let (keys, count) = (|nth: usize| contacts[nth].key, contacts.len());
            self.0.insert_batch(&key_hashes[..count], &item_hashes[..count], keys);
        }
    }
    fn ask(&self, contacts: &[Contact]) -> u64 {
        let keys: Vec<_> = contacts.iter().map(|contact| contact.key).collect();
        self.touched(&keys).iter().map(|(touched, _)| touched).sum()
    }
    fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }
}

impl Spreads for Shared {
    fn touched(&self, keys: &[Bytes<8>]) -> Vec<(u64, Option<Estimate>)> {
        let survey = self.0.survey();
        let estimates = keys.iter().map(|key| survey.estimate(key.digest(hash())));
        estimates.map(|estimate| (estimate.value, Some(estimate))).collect()
    }
}
