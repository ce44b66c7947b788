//! The hashes of a flow and of its parts, from one pass over its words.

use weir_sketch::hash::KeyedHash;

use crate::flow::FlowKey;

/// The hashes by which a flow is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHashes {
    /// Of the source address.
    pub source: u64,
    /// Of the destination address, with another function: an address that is both source and destination has two
    /// hashes.
    pub destination: u64,
    /// Of both addresses, in this order.
    pub pair: u64,
    /// Of everything except the scope.
    pub flow: u64,
    /// Of the protocol and the port of the service: see [`FlowKey::port`].
    pub service: u64,
}

impl FlowHashes {
    /// The hashes of a flow and of its parts.
    ///
    /// Each is strongly universal: a sum of products of words with secret numbers. The parts share products, so five
    /// hashes take six products. IPv4 and IPv6 addresses with the same bits have different hashes.
    /// hashes take six products. IPv4 and IPv6 addresses with the same bits have different hashes.
    #[inline(always)]
    pub const fn new(hash: &KeyedHash, key: &FlowKey) -> Self {
        let key = key.identity();
        let ([a, b], [c, d]) = (key.src.0, key.dst.0);
        let source = hash.part(0, a).and(hash.part(1, b));
        let destination = hash.part(2, c).and(hash.part(3, d));
        let pair = source.and(destination);
        let service = (key.proto() as u64) << 16 | key.port() as u64;
        // The version selects the offset, which takes no product.
        let version = key.is_v6() as usize;
        Self {
            source: hash.whole(version, source),
            destination: hash.whole(2 + version, destination),
            pair: hash.whole(4 + version, pair),
            flow: hash.whole(6, pair.and(hash.part(4, key.tail()))),
            service: hash.whole(7, hash.part(5, service)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Address, Scope, class};
    use core::net::Ipv6Addr;
    use std::vec::Vec;
    use weir_sketch::{HyperLogLog, hash::Key};

    #[test]
    fn each_hash_depends_on_its_part_and_on_nothing_else() {
        let hash = KeyedHash::new(Key([1, 2]));
        let (one, other) = (Address([0, 1]), Address([0, 2]));
        let flow = FlowKey::new(one, other, 6, 0).with_ports(1_000, 443);
        let hashes = FlowHashes::new(&hash, &flow);
        assert_eq!(FlowHashes::new(&hash, &flow.with_scope(Scope::new(3, 9))), hashes, "the scope is no part of it");
        let port = FlowHashes::new(&hash, &FlowKey::new(one, other, 6, 0).with_ports(1_001, 443));
        assert_eq!(FlowHashes { flow: hashes.flow, ..port }, hashes);
        assert_ne!(port.flow, hashes.flow);
        let back = FlowHashes::new(&hash, &FlowKey::new(other, one, 6, 0).with_ports(1_000, 443));
        assert_eq!(back.service, hashes.service);
        assert!(back.source != hashes.source && back.destination != hashes.destination && back.pair != hashes.pair);
        let v6 = FlowHashes::new(&hash, &flow.with_class(class::V6));
        assert!(v6.source != hashes.source && v6.destination != hashes.destination);
        assert!(v6.pair != hashes.pair && v6.flow != hashes.flow);
        let service = FlowHashes::new(&hash, &FlowKey::new(one, other, 17, 0).with_ports(1_000, 443));
        assert!(service.service != hashes.service && service.pair == hashes.pair);
    }

    type Nth = fn(u64) -> Address;

    /// Sources as in attacks and in address plans.
    const FAMILIES: [(&str, Nth); 4] = [
        ("random addresses", |n| Address([weir_sketch::hash::mix(n), weir_sketch::hash::mix(!n)])),
        ("IPv4 networks of 16 bits in a row", |n| Address::from_v4_word((n as u32).rotate_left(16).to_be())),
        ("IPv6 hosts in a row", |n| Address::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n)))),
        ("IPv6 networks in a row", |n| Address::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(n) << 64))),
    ];

    /// Products of words with secret numbers only guarantee that any two keys are independent. Counts of distinct keys
    /// need more: of three consecutive keys the third follows from the other two, up to [`KeyedHash`]'s finaliser.
    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn distinct_keys_in_rows_are_counted_as_surely_as_random_ones() {
        const SEEDS: u64 = 400;
        const COUNTS: [u64; 5] = [1, 72, 1_000, 6_000, 30_000];
        // Eight or more failures of 400 bounds at 99.9 % occur once in 93 million runs; 260 or more of 400 at 50 % once
        // in a billion. For any of the 20 pairs of counts that is once in four million.
        for (name, family) in FAMILIES {
            let mut failures = [[0; 2]; COUNTS.len()];
            for seed in 0..SEEDS {
                let hash = KeyedHash::new(Key([seed, 17]));
                let mut halves = [(); 2].map(|()| HyperLogLog::with_error(0.005, 7).unwrap());
                let mut next = 0;
                for (count, failures) in COUNTS.into_iter().zip(&mut failures) {
                    let hashes: Vec<u64> = (next..count)
                        .map(|n| FlowHashes::new(&hash, &FlowKey::new(family(n), Address::default(), 6, 0)).source)
                        .collect();
                    next = count;
                    let (first, second) = hashes.split_at(hashes.len() / 2);
                    halves[0].insert_batch(first);
                    halves[1].insert_batch(second);
                    let mut all = halves[0].clone();
                    all.merge(&halves[1]).unwrap();
                    for (failures, confidence) in failures.iter_mut().zip([0.999, 0.5]) {
                        let bounds = all.bounds_at(confidence);
                        *failures += u32::from(!(bounds.lower..=bounds.upper).contains(&count));
                    }
                }
            }
            for (count, [sure, even]) in COUNTS.into_iter().zip(failures) {
                assert!(
                    sure < 8 && even < 260,
                    "{name}: of {SEEDS} bounds of {count}, {sure} failed at 0.999, {even} at 0.5"
                );
                assert!(count < 1_000 || even > 20, "{name}: bounds of {count} say little: {even} failed at 0.5");
            }
        }
    }
}
