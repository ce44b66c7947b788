//! Hashes that must be the same on every machine, whatever its instruction set and byte order.

use core::hash::Hash;
use std::{string::String, vec, vec::Vec};

use super::{Key, KeyedHash, combine, sip};

const KEY: Key = Key([7, 9]);
const ITEMS: u64 = 100;
/// Digests of the hashes of this many items.
const GOLDEN: [&str; 7] = [
    "words: 5c2a6fd0d6bf3841",
    "numbers of all widths: 784fd9f7f0e752b0",
    "13 bytes: 5d185ab80aaf89be",
    "40 bytes: 5828cfd9fdeda48b",
    "texts: f3268dd8bc592cc2",
    "SipHash: 78ef2b28ab5c9d64",
    "a key's fingerprint: ba19293b028b4cb8",
];

/// Combines many words into one, in order.
fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, combine)
}

/// The digest of a batch, which uses lanes if there are any, and has items left over.
fn of_items<T: Hash>(item: impl Fn(u64) -> T) -> u64 {
    let items: Vec<T> = (0..ITEMS).map(item).collect();
    let mut hashes = vec![0; items.len()];
    KeyedHash::new(KEY).of_all(&items, &mut hashes);
    digest(hashes)
}

#[test]
fn hashes_are_the_same_on_every_machine() {
    let found = [
        ("words", of_items(|nth| nth)),
        (
            "numbers of all widths",
            of_items(|nth| (nth as u8, nth as u16, nth as u32, u128::from(nth) << 64, nth as usize)),
        ),
        ("13 bytes", of_items(|nth| [nth as u8; 13])),
        ("40 bytes", of_items(|nth| [nth as u8; 40])),
        ("texts", of_items(|nth| String::from("example.org/").repeat(nth as usize % 9))),
        ("SipHash", digest((0..ITEMS).map(|nth| sip(KEY, &nth.to_le_bytes())))),
        ("a key's fingerprint", KEY.id()),
    ];
    assert_eq!(found.map(|(what, digest)| std::format!("{what}: {digest:016x}")), GOLDEN);
}
