//! Four attacks on sketches by an attacker who knows all of the code. With a known key each attack must succeed, which
//! shows that these tests can fail. With a secret key it must not succeed.

use std::vec::Vec;

use super::{Key, KeyedHash};
use crate::{CountAndSum, CountMin, HyperLogLog};

/// The key that the attacker works with.
const KNOWN: Key = Key([1, 2]);
/// The keys of the attacked sketches: the attacker's own key, and some that the attacker does not know.
const SECRETS: [Key; 8] = {
    let mut keys = [KNOWN; 8];
    let mut nth = 1;
    while nth < keys.len() {
        keys[nth] = Key([nth as u64, 0x5eed]);
        nth += 1;
    }
    keys
};
/// How many items the attacker tries: the work of a laptop in a second.
const TRIED: u64 = 1 << 20;

/// The count of some items in a sketch with this key.
fn counted(key: Key, precision: u32, items: &[u64]) -> f64 {
    let (mut sketch, hash) = (HyperLogLog::with_precision(precision, key.id()).unwrap(), KeyedHash::new(key));
    items.iter().for_each(|item| sketch.insert(hash.words([*item])));
    sketch.count()
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn an_attacker_cannot_inflate_a_hyperloglog() {
    // Items whose rank is at least 10, one in 512. Two thousand of them in 256 registers look like twenty times as
    // many.
    const PRECISION: u32 = 8;
    let mut trial = HyperLogLog::with_precision(PRECISION, KNOWN.id()).unwrap();
    let hash = KeyedHash::new(KNOWN);
    let mut is_high = |item: u64| {
        trial.clear();
        trial.insert(hash.words([item]));
        trial.registers().iter().any(|rank| *rank >= 10)
    };
    let items: Vec<u64> = (0..TRIED).filter(|item| is_high(*item)).collect();
    let truth = items.len() as f64;
    assert!((1_800.0..2_300.0).contains(&truth), "{truth} of {TRIED}");
    for key in SECRETS {
        let count = counted(key, PRECISION, &items);
        match key == KNOWN {
            true => assert!(count > 10.0 * truth, "{count} of {truth}: the attack does not work"),
            // Five standard deviations of 6.5 % are allowed.
            false => assert!((count / truth - 1.0).abs() < 0.33, "{count} of {truth}"),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn an_attacker_cannot_hide_from_a_hyperloglog() {
    // Items that are all in 64 of the 16,384 registers. Four thousand of them look like a few hundred.
    let hash = KeyedHash::new(KNOWN);
    let items: Vec<u64> = (0..TRIED).filter(|item| hash.words([*item]) >> 56 == 0).collect();
    let truth = items.len() as f64;
    for key in SECRETS {
        let count = counted(key, 14, &items);
        match key == KNOWN {
            true => assert!(count < 0.1 * truth, "{count} of {truth}: the attack does not work"),
            // Five standard deviations of 0.8 % are allowed.
            false => assert!((count / truth - 1.0).abs() < 0.041, "{count} of {truth}"),
        }
    }
}

/// The estimate that a count-min with this key has for an absent item, after these items were added 50,000 times each.
fn lifted_to(key: Key, victim: u64, items: &[u64]) -> u64 {
    let (mut sketch, hash) = (CountMin::<CountAndSum>::with_error(0.002, 0.02, key.id()).unwrap(), KeyedHash::new(key));
    items.iter().for_each(|item| {
        sketch.add(hash.words([*item]), CountAndSum::new(50_000, 50_000));
    });
    sketch.estimate(hash.words([victim])).count
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn an_attacker_cannot_raise_a_key_in_count_min() {
    const VICTIM: u64 = u64::MAX;
    // This many items reach the victim's cells in all rows. Then the items that are not needed are removed, in smaller
    // and smaller pieces, until each row has one.
    let mut items: Vec<u64> = (0..20_000).collect();
    let mut piece = items.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < items.len() {
            let without: Vec<u64> = [&items[..at], &items[items.len().min(at + piece)..]].concat();
            if lifted_to(KNOWN, VICTIM, &without) >= 50_000 {
                items = without;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    assert!(items.len() <= 4, "{} items", items.len());
    for key in SECRETS {
        let estimate = lifted_to(key, VICTIM, &items);
        assert_eq!(estimate, if key == KNOWN { 50_000 } else { 0 }, "one item per row, only in the attacker's rows");
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn an_attacker_cannot_make_texts_collide() {
    // One factor of the first product is 0, so the other factor may be anything.
    let zero = KeyedHash::new(KNOWN).bytes[0].wrapping_neg().to_le_bytes();
    let texts: Vec<[u8; 40]> = (0..20_000u64)
        .map(|nth| {
            let mut text = [b'.'; 40];
            text[..8].copy_from_slice(&zero);
            text[8..16].copy_from_slice(&nth.to_le_bytes());
            text
        })
        .collect();
    for key in SECRETS {
        let (mut sketch, hash) = (HyperLogLog::with_precision(14, key.id()).unwrap(), KeyedHash::new(key));
        texts.iter().for_each(|text| sketch.insert(hash.of(text)));
        match key == KNOWN {
            true => assert!(sketch.count() < 1.5, "{}: the attack does not work", sketch.count()),
            // Five standard deviations of 0.8 % are allowed.
            false => assert!((sketch.count() / 20_000.0 - 1.0).abs() < 0.041, "{}", sketch.count()),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "statistics over many keys take too long")]
fn consecutive_addresses_are_counted_correctly() {
    // Real networks have such addresses without any attack. If three registers had consecutive products, the count
    // would be visibly wrong.
    for seed in 0..16 {
        let key = Key([seed, 77]);
        for stride in [1, 256, 1 << 16, 1 << 32, 1 << 47] {
            let items: Vec<u64> = (0..20_000).map(|item: u64| item.wrapping_mul(stride)).collect();
            let count = counted(key, 14, &items);
            // Five standard deviations of 0.8 % are allowed: a chance of one in two million.
            assert!((count / 20_000.0 - 1.0).abs() < 0.041, "stride {stride}, seed {seed}: {count}");
        }
    }
}
