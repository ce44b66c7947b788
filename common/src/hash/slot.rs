//! The slot of a flow in the flow cache, the same in the kernel and in replay.

#[cfg(feature = "sketch")]
use weir_sketch::hash::{Key, sip};

use crate::packet::Parsed;

/// The key of [`slot`]: one secret word for each word of a flow key, one more for each word of IPv6 addresses, and one
/// for the VLAN.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotKey(pub [u64; 10]);

#[cfg(feature = "sketch")]
impl SlotKey {
    /// Derives the slot key from a secret.
    pub fn new(key: Key) -> Self {
        Self(core::array::from_fn(|word| sip(key, &[word as u8]) | 1))
    }
}

/// The slot of a packet in a cache with 2^`bits` slots, `bits` from 1 to 32. It is the same in the kernel and in
/// replay.
#[inline(always)]
pub const fn slot(key: &SlotKey, parsed: &Parsed, bits: u32) -> u32 {
    (place(key, parsed) >> (u64::BITS - bits)) as u32
}

/// The place of a packet's record in a cache of any size: its highest bits are the slot.
///
/// Packets of one flow with another TOS or VLAN have a separate record, so they need a separate place. Otherwise a flow
/// that mixes them (ECN sets two bits of TOS; a mirror port shows a routed packet in two VLANs) would keep evicting its
/// own records.
///
/// This is multilinear hashing (Carter and Wegman, 1979; Lemire and Kaser, 2014): a sum of products with secret words,
/// modulo 2^64. It is cheap because the products are independent. The last product separates neighbouring flows
/// (consecutive ports or addresses), whose sums are similar.
///
/// A product modulo 2^64 carries a difference only upwards: if two words differ only in their highest bits, so do their
/// products, and a difference of another word can cancel theirs with many keys. Senders choose every bit of an address.
/// So the four words of IPv6 addresses, and the one word of both IPv4 addresses, are multiplied twice: as numbers and
/// with their bytes reversed. Any difference in them then has a bit below 2^32 in one of the two. So the sums of two
/// flows that are chosen without the key are equal with a probability of at most 2^-32, whatever they differ in. The
/// last word is multiplied once: its key is odd, so flows that differ only there never have the same sum.
#[inline(always)]
pub const fn place(key: &SlotKey, parsed: &Parsed) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let sum = sum(key, parsed);
    (sum ^ sum >> 32).wrapping_mul(ODD)
}

/// The sum of products. Each word has its own factor: two words with the same factor would cancel each other with every
/// key.
#[inline(always)]
const fn sum(key: &SlotKey, parsed: &Parsed) -> u64 {
    let Parsed { key: flow, tcp_flags: _, tos, vlan } = parsed;
    let ([a, b, c, d, e, f, g, h, i, j], words) = (key.0, flow.place_words(*tos));
    let mut sum = words[4].wrapping_mul(e);
    if flow.is_v6() {
        sum = sum
            .wrapping_add(words[0].wrapping_mul(a))
            .wrapping_add(words[1].wrapping_mul(b))
            .wrapping_add(words[2].wrapping_mul(c))
            .wrapping_add(words[3].wrapping_mul(d))
            .wrapping_add(words[0].swap_bytes().wrapping_mul(f))
            .wrapping_add(words[1].swap_bytes().wrapping_mul(g))
            .wrapping_add(words[2].swap_bytes().wrapping_mul(h))
            .wrapping_add(words[3].swap_bytes().wrapping_mul(i));
    } else {
        let addresses = u64::from_be(flow.v4_addresses());
        sum = sum.wrapping_add(addresses.wrapping_mul(a)).wrapping_add(addresses.swap_bytes().wrapping_mul(f));
    }
    // The compiler knows that untagged packets have no VLAN.
    sum.wrapping_add((*vlan as u64).wrapping_mul(j))
}

#[cfg(all(test, feature = "sketch"))]
mod tests {
    use super::*;
    use crate::flow::{Address, FlowKey, class};
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::{
        collections::{BTreeSet, HashMap},
        vec::Vec,
    };

    /// 4,096 balls in 4,096 bins fill 1 - 1/e = 63 % of them. What the flows have in common must not change that.
    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn neighbouring_flows_spread_over_the_slots() {
        let v4 = |host: u32| Address::from(Ipv4Addr::from_bits(0x0a00_0000 + host));
        let v6 = |host: u128| Address::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) + host));
        let flow = |src: Address, dst: Address| {
            let v6 = [src, dst].iter().any(|address| address.0[0] != 0);
            FlowKey::new(src, dst, 17, if v6 { class::V6 } else { 0 }).with_ports(5_000, 53)
        };
        let families: [(&str, &dyn Fn(u32) -> FlowKey); 8] = [
            ("ports", &|n| FlowKey::new(v4(1), v4(2), 17, 0).with_ports(n as u16, 53)),
            ("sources in a row", &|n| flow(v4(n), v4(9))),
            ("64 hosts to 64 hosts", &|n| flow(v4(n % 64), v4(256 + n / 64))),
            ("networks in a row", &|n| flow(v4(n << 12), v4(9))),
            ("both in step", &|n| flow(v4(n), v4((1 << 16) + n))),
            ("IPv6 hosts in a row", &|n| flow(v6(n.into()), v6(1 << 64))),
            ("IPv6 networks in a row", &|n| flow(v6(u128::from(n) << 64), v6(1))),
            ("the highest bits of IPv6 words", &|n| {
                let word = |nth: u32| u64::from(n >> (3 * nth) & 7).reverse_bits().to_be();
                FlowKey::new(Address([word(0), word(1)]), Address([word(2), word(3)]), 17, class::V6)
            }),
        ];
        for seed in 0..8 {
            let key = SlotKey::new(Key([seed, !seed]));
            for (name, family) in families {
                let slots: BTreeSet<_> = (0..4096).map(|n| slot(&key, &Parsed::new(family(n)), 12)).collect();
                assert!((2450..2730).contains(&slots.len()), "{name}: {} slots with seed {seed}", slots.len());
            }
        }
    }

    /// A product modulo 2^64 carries a difference only upwards, so differences in high bits used to cancel each other:
    /// two flows shared a slot with every key. Over many keys, each pair shares a slot with probability 1 in 256: with
    /// 16 of 4,096 keys on average, and with 60 with a probability below 10^-15.
    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn no_two_flows_share_a_slot_with_every_key() {
        const KEYS: u64 = 4096;
        let flow = |words: [u64; 4]| {
            let [a, b, c, d] = words.map(u64::to_be);
            Parsed::new(FlowKey::new(Address([a, b]), Address([c, d]), 17, class::V6).with_ports(5_000, 53))
        };
        let base = [0x2001_0db8_0000_0000, 1, 0x2001_0db8_0001_0000, 2];
        // Differences in one or two words, in the highest bits and in the highest bits in memory order.
        let differences = [1 << 63, 1 << 62, 3 << 62, 1 << 56, 1 << 48, 1 << 63 | 1 << 31, 1 << 7, 1 << 63 | 1 << 7];
        for one in 0..4 {
            for other in 0..4 {
                for (first, second) in differences.into_iter().flat_map(|a| differences.map(|b| (a, b))) {
                    let mut changed = base;
                    changed[one] ^= first;
                    if other != one {
                        changed[other] ^= second;
                    }
                    let shared = (0..KEYS).filter(|seed| {
                        let key = SlotKey::new(Key([*seed, 1]));
                        slot(&key, &flow(base), 8) == slot(&key, &flow(changed), 8)
                    });
                    let shared = shared.count();
                    assert!(shared < 60, "{changed:x?} shares a slot with {base:x?}: {shared} of {KEYS} keys");
                }
            }
        }
    }

    /// Two flows have the same sum with a probability of 2^-32, whatever they differ in: each pair of words, at each
    /// height, and the last word by its ports, its protocol and its class. The sum is linear, and the 16,384 flows of a
    /// family have less than 2^16 different differences, so a family has two flows with the same sum for one key in
    /// 2^16.
    #[test]
    #[cfg_attr(miri, ignore = "statistics over many keys: says nothing about memory")]
    fn no_two_words_cancel_each_other() {
        // Each takes a small number, and puts it into a word that a sender chooses.
        type Change = fn(&mut Parts, u32, u64);
        struct Parts {
            words: [u64; 4],
            ports: u32,
            proto: u8,
            class: u8,
        }
        fn word<const NTH: usize>(parts: &mut Parts, height: u32, n: u64) {
            parts.words[NTH] ^= n << height;
        }
        let changes: [(&str, Change); 7] = [
            ("source, high", word::<0>),
            ("source, low", word::<1>),
            ("destination, high", word::<2>),
            ("destination, low", word::<3>),
            ("ports", |parts, height, n| parts.ports ^= (n as u32) << (height % 20)),
            ("protocol", |parts, height, n| parts.proto ^= (n as u8) << (height % 4)),
            ("class", |parts, _, n| parts.class ^= (n as u8 & 3) << 1),
        ];
        for (nth, (one, first)) in changes.into_iter().enumerate() {
            for (other, second) in changes.into_iter().skip(nth + 1) {
                for height in [0, 32, 40, 47, 49, 52] {
                    let flow = |n: u64| {
                        let words = [0x2001_0db8_0000_0000, 1, 0x2001_0db8_0001_0000, 2];
                        let mut parts = Parts { words, ports: 0x1388_0035, proto: 17, class: class::V6 };
                        first(&mut parts, height, n % 4_096);
                        second(&mut parts, height, n / 4_096);
                        let [a, b, c, d] = parts.words.map(u64::to_be);
                        let key = FlowKey::new(Address([a, b]), Address([c, d]), parts.proto, parts.class);
                        Parsed::new(key.with_both_ports(parts.ports))
                    };
                    let flows: BTreeSet<_> = (0..16_384).map(|n| flow(n).key).collect();
                    for seed in 0..2 {
                        let key = SlotKey::new(Key([seed, 99]));
                        let sums: BTreeSet<_> = flows.iter().map(|flow| sum(&key, &Parsed::new(*flow))).collect();
                        let (same, all) = (flows.len() - sums.len(), flows.len());
                        assert_eq!(same, 0, "{one} and {other} at bit {height}, seed {seed}: of {all} flows");
                    }
                }
            }
        }
    }

    /// For each bit of a packet's words that a sender chooses, what setting it adds to the sum.
    fn differences(key: &SlotKey, base: Parsed) -> Vec<u64> {
        let is_v6 = base.key.is_v6();
        let FlowKey { src, dst, .. } = base.key;
        let other = |src: Address, dst: Address, ports: u32, proto: u8, class: u8| {
            let key = FlowKey::new(src, dst, proto, class);
            Parsed { tos: base.tos, vlan: base.vlan, ..Parsed::new(key.with_ports((ports >> 16) as u16, ports as u16)) }
        };
        let (proto, class) = (base.key.proto(), base.key.class());
        let flow = |src: Address, dst: Address, ports: u32| other(src, dst, ports, proto, class);
        let flipped = |address: Address, bit: u32| {
            let mut words = address.0;
            words[bit as usize / 64] ^= (1_u64 << (bit % 64)).to_be();
            Address(words)
        };
        let bits = if is_v6 { 0..128 } else { 64..96 };
        let mut packets = Vec::new();
        for bit in bits {
            packets.extend([flow(flipped(src, bit), dst, 0), flow(src, flipped(dst, bit), 0)]);
        }
        packets.extend((0..32).map(|bit| flow(src, dst, 1 << bit)));
        packets.extend((0..8).map(|bit| other(src, dst, 0, proto ^ 1 << bit, class)));
        packets.extend([class::FRAGMENT, class::NO_TRANSPORT].map(|bit| other(src, dst, 0, proto, class ^ bit)));
        packets.extend((0..8).map(|bit| Parsed { tos: base.tos ^ 1 << bit, ..flow(src, dst, 0) }));
        packets.extend((0..12).map(|bit| Parsed { vlan: base.vlan ^ 1 << bit, ..flow(src, dst, 0) }));
        let unchanged = sum(key, &flow(src, dst, 0));
        packets.iter().map(|packet| sum(key, packet).wrapping_sub(unchanged)).collect()
    }

    /// The sum is linear: two packets have the same sum if the contributions of the bits in which they differ cancel
    /// out. So this checks all packets that differ in up to four bits of any words. By chance such a pair exists for
    /// one key in a hundred million.
    #[test]
    #[cfg_attr(miri, ignore = "some hundred thousand sums: says nothing about memory")]
    fn no_few_bits_of_any_words_cancel_each_other() {
        let v4 = |host: u32| Address::from(Ipv4Addr::from_bits(host));
        for base in [
            FlowKey::new(Address([0; 2]), Address([0; 2]), 17, class::V6),
            FlowKey::new(v4(0x0a00_0000), v4(0xc000_0200), 17, 0),
        ] {
            let key = SlotKey::new(Key([0x5eed, 0x1dea]));
            let differences = differences(&key, Parsed::new(base));
            let mut sums = HashMap::new();
            for (one, first) in differences.iter().enumerate() {
                assert_ne!(*first, 0, "bit {one} alone");
                for (other, second) in differences.iter().enumerate().take(one) {
                    for sum in [first.wrapping_add(*second), first.wrapping_sub(*second)] {
                        assert_ne!(sum, 0, "bits {one} and {other}");
                        // The sign does not matter; a third bit may cancel a pair, too.
                        let sum = sum.min(sum.wrapping_neg());
                        let bits = [one, other];
                        if let Some(known) = sums.insert(sum, bits) {
                            let is_apart = known.iter().all(|bit| !bits.contains(bit));
                            assert!(!is_apart, "bits {known:?} and {bits:?} cancel each other");
                        }
                    }
                }
            }
            for (third, alone) in differences.iter().enumerate() {
                let pair = sums.get(&(*alone).min(alone.wrapping_neg()));
                assert!(pair.is_none_or(|pair| pair.contains(&third)), "bits {pair:?} and {third} cancel each other");
            }
        }
    }

    /// A flow that mixes TOS bytes or VLANs must not evict its own records. 256 packets with different values have 248
    /// of 4,096 slots on average.
    #[test]
    fn each_tos_and_each_vlan_of_a_flow_has_a_slot_of_its_own() {
        let address = |host: u128| Address::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) + host));
        let v4 = |host: u32| Address::from(Ipv4Addr::from_bits(0x0a00_0000 + host));
        for flow in
            [FlowKey::new(address(1), address(2), 6, class::V6), FlowKey::new(v4(1), v4(2), 6, 0).with_ports(9, 443)]
        {
            for seed in 0..8 {
                let key = SlotKey::new(Key([seed, !seed]));
                let slots = |packet: &dyn Fn(u8) -> Parsed| {
                    (0..=u8::MAX).map(|n| slot(&key, &packet(n), 12)).collect::<BTreeSet<_>>().len()
                };
                let (tos, vlans) = (
                    slots(&|tos| Parsed { tos, ..Parsed::new(flow) }),
                    slots(&|vlan| Parsed { vlan: 16 * u16::from(vlan), ..Parsed::new(flow) }),
                );
                assert!(tos > 230 && vlans > 230, "{tos} and {vlans} slots with seed {seed}");
            }
        }
    }
}
