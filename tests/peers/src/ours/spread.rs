//! weir's spread sketch.

use weir_common::sketch::{Estimate, Spread, Touch};

use super::{BATCH, KEY, hash};
use crate::{
    contender::Subject,
    item::{Bytes, Item},
    rows::spread::{Contact, Spreads},
};

/// All keys in one sketch.
pub struct Shared(Spread<Bytes<8>>);

impl Shared {
    /// For so many pairs, with keys that touch so many told apart.
    pub fn with_resolution(pairs: u64, smallest: u64, relative_error: f64) -> Self {
        Self(Spread::with_resolution(pairs, smallest, relative_error, KEY.id()))
    }
}

impl Subject<Contact> for Shared {
    fn clear(&mut self) {
        self.0.clear();
    }
    fn put(&mut self, contacts: &[Contact]) {
        let hash = hash();
        let mut touches = [Touch { key: Bytes::default(), key_hash: 0, item_hash: 0 }; BATCH];
        let (mut keys, mut items) = ([Bytes::default(); BATCH], [Bytes::default(); BATCH]);
        let (mut key_hashes, mut item_hashes) = ([0; BATCH], [0; BATCH]);
        for contacts in contacts.chunks(BATCH) {
            for ((key, item), contact) in keys.iter_mut().zip(&mut items).zip(contacts) {
                (*key, *item) = (contact.key, contact.item);
            }
            hash.of_all(&keys[..contacts.len()], &mut key_hashes);
            hash.of_all(&items[..contacts.len()], &mut item_hashes);
            for (nth, (touch, contact)) in touches.iter_mut().zip(contacts).enumerate() {
                *touch = Touch { key: contact.key, key_hash: key_hashes[nth], item_hash: item_hashes[nth] };
            }
            self.0.insert_batch(&touches[..contacts.len()]);
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
