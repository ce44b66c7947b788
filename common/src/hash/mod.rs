//! Keyed hashes of flows: one for the flow cache, and those of the sketches.
//!
//! | hash | for | cost | promises |
//! |---|---|---|---|
//! | [`slot`] | the flow cache in the kernel, which has no 128-bit products | one multiplication a word | two flows seldom share a slot; if many do, that costs evictions, never a wrong count |
//! | `FlowHashes` (feature `sketch`) | the sketches | two multiplications a word | what `weir_sketch::hash` promises for any item |

#[cfg(feature = "sketch")]
mod flow;
#[cfg(all(test, feature = "sketch"))]
mod golden;
mod slot;

#[cfg(feature = "sketch")]
pub use flow::FlowHashes;
pub use slot::{SlotKey, place, slot};

/// A bijection that spreads every input bit over the word (the finaliser of `SplitMix64`; Steele, Lea, Flood, 2014).
///
/// This one is for the kernel programs; `weir_sketch::hash` has the same for all others.
#[inline(always)]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(all(test, feature = "sketch"))]
mod tests {
    use super::*;
    use crate::{flow::FlowKey, packet::Parsed};
    use weir_sketch::hash::Key;

    #[test]
    fn keys_change_every_slot() {
        let packet = Parsed::new(FlowKey::default().with_ports(1, 0));
        let [one, other] = [Key([1, 2]), Key([1, 3])].map(|key| slot(&SlotKey::new(key), &packet, 32));
        assert_ne!(one, other);
    }

    #[test]
    fn kernel_and_sketches_mix_alike() {
        for word in [0, 1, 1 << 63, u64::MAX] {
            assert_eq!(mix(word), weir_sketch::hash::mix(word));
        }
    }
}
