//! A key that consists of one network only. It is built and hashed without the general code for packed keys.

use weir_common::flow::FlowKey;
use weir_config::view::{
    Field, Side, ViewKey,
    key::{BITS_MAX, SHARED, WORDS},
    lengths::Mask,
};
use weir_sketch::hash::KeyedHash;

/// Tells which network of a flow is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    is_of_source: bool,
    /// The masks by IP version.
    masks: [Mask; 2],
}

impl Network {
    /// The network in these fields, if they are one network and nothing else. Whole addresses do not count, because
    /// they share the hash of their flow.
    pub fn of(fields: &[Field]) -> Option<Self> {
        match fields {
            [Field::Ip(side @ (Side::Src | Side::Dst), lengths)] if !lengths.is_whole() => {
                let masks = [false, true].map(|is_v6| lengths.mask(is_v6));
                Some(Self { is_of_source: *side == Side::Src, masks })
            }
            _ => None,
        }
    }

    /// The key of a flow, as [`By::key`](super::By::key) packs it.
    #[inline(always)]
    pub fn key(&self, flow: &FlowKey) -> ViewKey {
        let address = if self.is_of_source { flow.src } else { flow.dst };
        let [high, low] = self.masks[usize::from(flow.is_v6())].network(address).0;
        let mut key = [0; WORDS];
        (key[0], key[1], key[SHARED]) = (high, low, u64::from(flow.is_v6()) << BITS_MAX);
        ViewKey(key)
    }

    /// The hash of such a key. The two IP versions have different offsets, so no multiplication is needed for the
    /// version, or for the first 64 bits of an IPv4 address, which are 0.
    #[inline(always)]
    pub const fn hash(hash: &KeyedHash, ViewKey(key): &ViewKey) -> u64 {
        let low = hash.part(1, key[1]);
        if key[SHARED] >> BITS_MAX == 0 { hash.whole(2, low) } else { hash.whole(3, hash.part(0, key[0]).and(low)) }
    }
}
