//! weir's sketches as contenders: one by one, and in batches.

pub mod distinct;
pub mod filters;
pub mod frequency;
pub mod lists;
pub mod record;
pub mod spread;
pub mod top_k;

use std::sync::LazyLock;

use weir_sketch::hash::{Key, KeyedHash};

use crate::item::Item;

/// The secret of this run.
pub const KEY: Key = Key([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);

/// How many keys are hashed before a sketch gets them.
const BATCH: usize = 256;

/// The hash of this run, for weir's sketches and for peers that take ready hashes.
#[inline(always)]
pub fn hash() -> &'static KeyedHash {
    static HASH: LazyLock<KeyedHash> = LazyLock::new(|| KeyedHash::new(KEY));
    &HASH
}

/// Hands over the hashes of all keys, a batch at a time.
#[inline(always)]
fn in_batches<K: Item>(keys: &[K], mut take: impl FnMut(&[u64])) {
    let hash = hash();
    let mut hashes = [0; BATCH];
    for batch in keys.chunks(BATCH) {
        let hashes = &mut hashes[..batch.len()];
        K::digest_all(batch, hash, hashes);
        take(hashes);
    }
}
