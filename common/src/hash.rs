//! Keyed hashing: what an attacker cannot aim at.
//!
//! Two hashes, both keyed. [`sip`] (SipHash-1-3; Aumasson and Bernstein, 2012) feeds the sketches: without the key
//! nobody can choose packets that collide in them. [`slot`] picks a flow-cache slot in the kernel, where 128-bit
//! multiplication is missing: it is cheap and keyed but no pseudo-random function. Flows that an attacker makes
//! collide there cost evictions (speed), never a wrong count.

use core::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::flow::FlowKey;

/// 128 secret bits: from the operating system at start, or a fleet's secret. Never exported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key(pub [u64; 2]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key(secret)")
    }
}

impl Key {
    /// A key of its own for another purpose, so that one use says nothing about another.
    #[must_use]
    pub fn derive(self, purpose: &str) -> Self {
        let half = |n: u8| {
            let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
            hasher.write(purpose.as_bytes());
            hasher.write_u8(n);
            hasher.finish()
        };
        Self([half(0), half(1)])
    }

    /// A fingerprint that tells two keys apart and gives neither away.
    pub fn id(self) -> u64 {
        self.derive("id").0[0]
    }
}

/// The keyed 64-bit hash of some bytes.
#[inline]
pub fn sip(key: Key, bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(key.0[0], key.0[1]);
    hasher.write(bytes);
    hasher.finish()
}

/// The keyed 64-bit hash of whatever can be hashed.
#[derive(Clone, Copy)]
pub struct KeyedHash(Key);

impl KeyedHash {
    /// The hash of this key.
    pub const fn new(key: Key) -> Self {
        Self(key)
    }

    /// The hash of an item.
    #[inline]
    pub fn of<T: core::hash::Hash + ?Sized>(&self, item: &T) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0.0[0], self.0.0[1]);
        item.hash(&mut hasher);
        hasher.finish()
    }
}

impl core::fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("KeyedHash(secret)")
    }
}

/// One 64-bit hash out of two, in order.
#[inline]
pub const fn combine(first: u64, second: u64) -> u64 {
    mix(first.rotate_left(32) ^ mix(second))
}

/// A bijection that spreads every input bit over the word (the finaliser of `SplitMix64`; Steele, Lea, Flood, 2014).
#[inline(always)]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The key of [`slot`]: one secret word for each word of a flow key.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotKey(pub [u64; 5]);

impl SlotKey {
    /// The key of this purpose out of a secret.
    pub fn new(key: Key) -> Self {
        Self(core::array::from_fn(|word| sip(key, &[word as u8]) | 1))
    }
}

/// The slot of a flow in a cache of two to the `bits` slots, `bits` from 1 to 32. The same in the kernel and in replay.
///
/// Multilinear hashing (Carter and Wegman, 1979; Lemire and Kaser, 2014): a sum of products with secret words, modulo
/// 2^64. The products do not wait for each other, which is what makes it cheap. The last product spreads what
/// neighbouring flows (ports, addresses in a row) leave alike.
#[inline(always)]
pub const fn slot(key: &SlotKey, flow: &FlowKey, bits: u32) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let ([a, b, c, d, e], words) = (key.0, flow.place_words());
    let sum = words[0]
        .wrapping_mul(a)
        .wrapping_add(words[1].wrapping_mul(b))
        .wrapping_add(words[2].wrapping_mul(c))
        .wrapping_add(words[3].wrapping_mul(d))
        .wrapping_add(words[4].wrapping_mul(e));
    ((sum ^ sum >> 32).wrapping_mul(ODD) >> (64 - bits)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Address;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::collections::BTreeSet;

    #[test]
    fn keys_change_every_hash() {
        let (a, b) = (Key([1, 2]), Key([1, 3]));
        assert_ne!(sip(a, b"flow"), sip(b, b"flow"));
        let flow = FlowKey::default().with_ports(1, 0);
        assert_ne!(slot(&SlotKey::new(a), &flow, 32), slot(&SlotKey::new(b), &flow, 32));
        assert_ne!(a.derive("x"), a.derive("y"));
        assert_ne!(a.id(), b.id());
        assert_eq!(std::format!("{a:?}"), "Key(secret)");
    }

    /// 4,096 balls in 4,096 bins fill 1 - 1/e = 63 % of them; whatever flows have in common must not change that.
    #[test]
    fn neighbouring_flows_spread_over_the_slots() {
        let v4 = |host: u32| Address::from(Ipv4Addr::from_bits(0x0a00_0000 + host));
        let v6 = |host: u128| Address::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) + host));
        let flow = |src, dst| FlowKey::new(src, dst, 17, 0).with_ports(5_000, 53);
        let families: [(&str, &dyn Fn(u32) -> FlowKey); 7] = [
            ("ports", &|n| FlowKey::new(v4(1), v4(2), 17, 0).with_ports(n as u16, 53)),
            ("sources in a row", &|n| flow(v4(n), v4(9))),
            ("64 hosts to 64 hosts", &|n| flow(v4(n % 64), v4(256 + n / 64))),
            ("networks in a row", &|n| flow(v4(n << 12), v4(9))),
            ("both in step", &|n| flow(v4(n), v4((1 << 16) + n))),
            ("IPv6 hosts in a row", &|n| flow(v6(n.into()), v6(1 << 64))),
            ("IPv6 networks in a row", &|n| flow(v6(u128::from(n) << 64), v6(1))),
        ];
        for seed in 0..8 {
            let key = SlotKey::new(Key([seed, !seed]));
            for (name, family) in families {
                let slots: BTreeSet<_> = (0..4096).map(|n| slot(&key, &family(n), 12)).collect();
                assert!((2450..2730).contains(&slots.len()), "{name}: {} slots with seed {seed}", slots.len());
            }
        }
    }

    #[test]
    fn combining_is_ordered() {
        assert_ne!(combine(1, 2), combine(2, 1));
    }
}
