//! No crate answers "which keys touch many?", so the peer here is one distinct counter for each key.

use std::collections::HashMap;

use cardinality_estimator::CardinalityEstimator;
use weir_sketch::Estimate;

use crate::{
    contender::Subject,
    item::Bytes,
    rows::spread::{Contact, Spreads},
};

/// HyperLogLog with 2^10 registers of six bits, exact and small for a few items.
type Counter = CardinalityEstimator<Bytes<8>, wyhash::WyHash, 10, 6>;

/// A counter for each key.
#[derive(Default)]
pub struct OneEach(HashMap<Bytes<8>, Counter, ahash::RandomState>);

impl Subject<Contact> for OneEach {
    fn clear(&mut self) {
        // The map keeps its capacity, so it need not grow again.
        self.0.clear();
    }
    fn put(&mut self, contacts: &[Contact]) {
        for Contact { key, item } in contacts.iter() {
            self.0.entry(*key).or_default().insert(item);
        }
    }
    fn ask(&self, contacts: &[Contact]) -> u64 {
        let keys: Vec<_> = contacts.iter().map(|contact| contact.key).collect();
        self.touched(&keys).iter().map(|(touched, _)| touched).sum()
    }
    fn memory_bytes(&self) -> usize {
        // A table entry and one control byte; the table is filled to at most seven eighths.
        let table = self.0.capacity() * 8 / 7 * (size_of::<(Bytes<8>, Counter)>() + 1);
        let beside = |counter: &Counter| counter.size_of() - size_of::<Counter>();
        table + self.0.values().map(beside).sum::<usize>()
    }
}

impl Spreads for OneEach {
    fn touched(&self, keys: &[Bytes<8>]) -> Vec<(u64, Option<Estimate>)> {
        let of = |key| self.0.get(key).map_or(0, |counter| counter.estimate() as u64);
        keys.iter().map(|key| (of(key), None)).collect()
    }
}
