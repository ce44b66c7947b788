#![doc = include_str!("../README.md")]
#![no_std]
// Denied, not forbidden: `simd` has the only unsafe code.
#![deny(unsafe_code)]

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "weir-sketch needs a target with 64-bit atomic operations: threads share the words of `SharedBloom` and `Seen`"
);

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
pub mod blocked_bloom;
pub mod blocked_count_min;
pub mod bloom;
pub mod candidate_buckets;
mod coin;
mod constructors;
pub mod count_min;
pub mod counting_bloom;
pub mod cuckoo;
pub mod datasketches;
mod estimate;
mod forward;
pub mod hash;
pub mod heavy_light;
pub mod hyperloglog;
pub mod image;
mod keyed;
mod lowest_rank;
mod merge;
mod normal;
mod occupancy;
mod partial_key;
pub mod quotient;
mod rank;
pub mod sample_and_hold;
pub mod scalable_bloom;
pub mod seen;
#[cfg(feature = "serde")]
mod serde;
mod setting;
pub mod shared_bloom;
pub mod simd;
mod split_block;
pub mod spread;
pub mod top_k;
mod traits;
pub mod ultraloglog;
mod weight;

#[cfg(test)]
mod distinct_laws;
#[cfg(test)]
mod filter_laws;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod removal_laws;
#[cfg(test)]
mod test_size;

pub use blocked_bloom::BlockedBloom;
pub use blocked_count_min::BlockedCountMin;
pub use bloom::Bloom;
pub use candidate_buckets::{CandidateBuckets, Listed};
pub use count_min::CountMin;
pub use counting_bloom::CountingBloom;
pub use cuckoo::Cuckoo;
pub use estimate::{Bounds, Estimate};
pub use heavy_light::HeavyLight;
pub use hyperloglog::{CompactHyperLogLog, HyperLogLog};
pub use image::{Image, ImageError};
pub use keyed::Keyed;
pub use merge::{Geometry, MergeError};
pub use quotient::Quotient;
pub use sample_and_hold::SampleAndHold;
pub use scalable_bloom::ScalableBloom;
pub use seen::Seen;
#[cfg(feature = "std")]
pub use setting::BuildError;
pub use setting::SettingError;
pub use shared_bloom::SharedBloom;
pub use spread::{Spread, Spreader, Survey, Touch};
pub use top_k::{Candidate, Rest, TopK};
pub use traits::{Distinct, Filter, Frequency, Full, Merge, Remove, Sketch};
pub use ultraloglog::UltraLogLog;
pub use weight::{Columns, CountAndSum, NarrowColumns, Weight};
