//! Counts distinct keys with the daemon's hash: from one to ten million, random and consecutive keys.

use core::net::Ipv6Addr;

use weir_common::{
    flow::{Address, FlowKey},
    hash::FlowHashes,
};
use weir_config::Estimates;
use weir_sketch::{
    HyperLogLog,
    hash::{Key, KeyedHash, mix},
};

use crate::tally::{CONFIDENCES, Tallies, per_10_000};

/// Source addresses of one kind.
pub struct Family {
    /// The name in tables.
    pub name: &'static str,
    nth: fn(u64) -> Address,
}

/// Every kind of key.
pub const FAMILIES: [Family; 4] = [
    Family { name: "random addresses", nth: |n| Address([mix(n), mix(!n)]) },
    Family {
        name: "IPv4 networks of 16 bits in a row",
        nth: |n| Address::from_v4_word((n as u32).rotate_left(16).to_be()),
    },
    Family { name: "IPv6 hosts in a row", nth: |n| v6(u128::from(n)) },
    Family { name: "IPv6 networks in a row", nth: |n| v6(u128::from(n) << 64) },
];

/// The numbers of keys at which bounds are judged.
pub const COUNTS: [u64; 10] = [1, 10, 72, 300, 1_000, 10_000, 65_536, 300_000, 1_000_000, 10_000_000];

fn v6(host: u128) -> Address {
    Ipv6Addr::from_bits(0x2001_0db8 << 96 | host).into()
}

/// Counts keys of a family under the hash keys of a seed, in two sketches whose union is judged.
pub fn sweep(family: &'static Family, seed: u64, found: &mut Tallies) {
    /// Keys that are hashed together.
    const TOGETHER: u64 = 4_096;
    let key = Key([seed, 0x6b65_7973]);
    let hash = KeyedHash::new(key);
    let mut halves = [(); 2].map(|()| {
        HyperLogLog::with_error(Estimates::default().unique_error, key.id()).expect("the settings are allowed")
    });
    let mut next = 0;
    let mut hashes = Vec::with_capacity(TOGETHER as usize);
    for count in COUNTS {
        while next < count {
            let end = count.min(next + TOGETHER);
            let source = |n| FlowKey::new((family.nth)(n), Address::default(), 6, 0);
            hashes.clear();
            hashes.extend((next..end).map(|n| FlowHashes::new(&hash, &source(n)).source));
            let (first, second) = hashes.split_at(hashes.len() / 2);
            halves[0].insert_batch(first);
            halves[1].insert_batch(second);
            next = end;
        }
        let mut all = halves[0].clone();
        if all.merge(&halves[1]).is_err() {
            return;
        }
        for confidence in CONFIDENCES {
            let bounds = all.bounds_at(confidence);
            let failures = found.distinct.entry((family.name, count, per_10_000(confidence))).or_default();
            failures.add(!(bounds.lower..=bounds.upper).contains(&count));
        }
        found.squares.entry((family.name, count)).or_default().add((all.count() / count as f64 - 1.0).powi(2));
    }
}
