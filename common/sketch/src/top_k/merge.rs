//! Merges blocks with the same index.

use core::cmp::Reverse;

use super::{
    Candidate, Rest,
    block::{Block, WAYS},
    row::Row,
};
use crate::Weight;

/// Merges one block of another table into ours.
pub(super) fn merge_block<K: Clone + Eq + Default, W: Weight>(
    (block, row): (&mut Block<W>, &mut Row<K, W>),
    (their_block, their_row): (&Block<W>, &Row<K, W>),
    hash_of: impl Fn(&K) -> u64,
    rest: &mut impl Rest<K, W>,
    their_most: impl Fn(u64, W) -> W,
) {
    let mut all: [(u8, Candidate<K, W>); 2 * WAYS] = Default::default();
    let mut count = 0;
    let mut put = |tag: u8, candidate| {
        all[count] = (tag, candidate);
        count += 1;
    };
    let twin = |block: &Block<W>, row: &Row<K, W>, tag, key: &K| {
        block.ways_with(tag).find(|way| row.has(*way, key)).map(|way| row.get(way))
    };
    for (tag, our) in block.taken().map(|way| (block.tag(way), row.get(way))) {
        put(
            tag,
            match twin(their_block, their_row, tag, &our.key) {
                Some(their) => our.and(&their),
                None => {
                    let more = their_most(hash_of(&our.key), their_block.light.upper(tag));
                    our.missing(more)
                }
            },
        );
    }
    for (tag, their) in their_block.taken().map(|way| (their_block.tag(way), their_row.get(way))) {
        if twin(block, row, tag, &their.key).is_none() {
            let more = rest.at_most(hash_of(&their.key), block.light.upper(tag));
            put(tag, their.missing(more));
        }
    }
    block.light.merge(&their_block.light);
    // The key's hash comes last, so that the order of merges seldom decides between equal candidates.
    let all = &mut all[..count];
    all.sort_unstable_by_key(|(tag, candidate)| (Reverse(candidate.score()), *tag));
    block.free();
    for (way, (tag, candidate)) in all.iter().enumerate() {
        if way < WAYS {
            row.set(way, candidate.clone());
            block.give(way, *tag);
        } else {
            block.light.add(*tag, candidate.lower());
            rest.give_back(&candidate.key, candidate.lower());
        }
    }
}
