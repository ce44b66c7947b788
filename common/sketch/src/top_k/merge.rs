//! How two blocks of the same place become one.

use core::cmp::Reverse;

use super::{
    Candidate,
    block::{Block, WAYS},
};
use crate::Weight;

/// Merges one block of another table into ours.
pub(super) fn merge_block<K: Copy + Eq + Default, W: Weight>(
    (block, row): (&mut Block<W>, &mut [Candidate<K, W>; WAYS]),
    (their_block, their_row): (&Block<W>, &[Candidate<K, W>; WAYS]),
) {
    let mut all = [(0, Candidate::default()); 2 * WAYS];
    let mut count = 0;
    let mut put = |tag, candidate| {
        all[count] = (tag, candidate);
        count += 1;
    };
    let twin = |block: &Block<W>, row: &[Candidate<K, W>; WAYS], tag, key| {
        block.ways_with(tag).map(|way| row[way]).find(|candidate| candidate.key == key)
    };
    for (tag, our) in block.taken().map(|way| (block.tag(way), row[way])) {
        put(
            tag,
            match twin(their_block, their_row, tag, our.key) {
                Some(their) => our.and(&their),
                None => our.missing(their_block.light.upper(tag)),
            },
        );
    }
    for (tag, their) in their_block.taken().map(|way| (their_block.tag(way), their_row[way])) {
        if twin(block, row, tag, their.key).is_none() {
            put(tag, their.missing(block.light.upper(tag)));
        }
    }
    block.light.merge(&their_block.light);
    // The key's hash comes last, so that the order of merges seldom decides between equals.
    let all = &mut all[..count];
    all.sort_unstable_by_key(|(tag, candidate)| (Reverse(candidate.score()), *tag));
    block.free();
    for (way, (tag, candidate)) in all.iter().enumerate() {
        if way < WAYS {
            row[way] = *candidate;
            block.give(way, *tag);
        } else {
            block.light.add(*tag, candidate.lower());
        }
    }
}
