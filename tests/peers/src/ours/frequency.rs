//! weir's counters: of packets, or of packets and bytes in one touch.

use weir_sketch::{BlockedCountMin, CountAndSum, CountMin, HeavyLight, Weight, count_min::Update};

use super::{BATCH, hash, in_batches};
use crate::{contender::Subject, item::Item};

/// The weight of each key of a stream.
pub trait Packet: Weight {
    /// The weight of one packet.
    const ONE: Self;

    /// How many packets this is.
    fn packets(self) -> u64;
}

impl Packet for u32 {
    const ONE: Self = 1;

    fn packets(self) -> u64 {
        self.into()
    }
}

impl Packet for u64 {
    const ONE: Self = 1;

    fn packets(self) -> u64 {
        self
    }
}

impl Packet for CountAndSum {
    const ONE: Self = Self::new(1, 1_000);

    fn packets(self) -> u64 {
        self.count
    }
}

macro_rules! subjects {
    ($($sketch:ident<W $(, $update:ident)?>),+) => {$(
        impl<K: Item, W: Packet, $($update: Update)?> Subject<K> for $sketch<W, $($update)?> {
            fn clear(&mut self) {
                self.clear();
            }
            fn put(&mut self, keys: &[K]) {
                in_batches(keys, |hashes| self.add_batch(hashes, &[W::ONE; BATCH][..hashes.len()]));
            }
            fn ask(&self, keys: &[K]) -> u64 {
                if let [key] = keys {
                    return self.estimate(key.digest(hash())).packets();
                }
                let (mut estimates, mut sum) = ([W::default(); BATCH], 0);
                in_batches(keys, |hashes| {
                    let estimates = &mut estimates[..hashes.len()];
                    self.estimate_batch(hashes, estimates);
                    sum += estimates.iter().map(|estimate| estimate.packets()).sum::<u64>();
                });
                sum
            }
            fn memory_bytes(&self) -> usize {
                self.memory_bytes()
            }
        }
    )+};
}

subjects!(CountMin<W, U>, BlockedCountMin<W, U>, HeavyLight<W>);
