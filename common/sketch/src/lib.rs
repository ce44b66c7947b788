//! Sketches: answers about any number of flows in memory fixed at construction, each with its error.
//!
//! | structure | question | errs | memory | removes | merges | ns | AVX2 alone |
//! |---|---|---|---|---|---|---|---|
//! | [`Bloom`] | seen before? | only "seen" may be wrong, at a rate computed from its state | 9.6 bits a key at 1 % | no | exactly | 9.6 / 11 | 10 / 12 |
//! | [`BlockedBloom`] | the same, in one cache line | the same | 10.1 bits a key at 1 %, 15.7 at 0.1 % | no | exactly | 1.5 / 1.5 | 2.6 / 3.2 |
//! | [`SharedBloom`] | the same, by several threads | the same | 17.0 bits a key at 0.1 % | no | exactly | | |
//! | [`Seen`] | seen lately? | the same; what nobody asked for in a whole generation is forgotten | two `SharedBloom` | all at once | no | 21, known 7 | |
//! | [`ScalableBloom`] | seen before, of nobody knows how many? | the same; grows | some 12 bits a key at 1 % | no | rates add up | 6.3 / 6.0 | 15 / 13 |
//! | [`CountingBloom`] | seen, and not removed since? | the same | 42 bits a key at 1.4 % | yes | exactly, up to 15 of a key | 2.2 / 1.9 | 4.3 / 3.5 |
//! | [`Cuckoo`] | the same | "seen" may be wrong at 0.012 % at most | 17 bits a key | yes | no | 3.5 / 2.4 | 4.2 / 3.7 |
//! | [`TwoChoice`] | the same; as fast full as empty | at 0.095 % at most | 17.4 bits a key | yes | no | 5.1 / 2.5 | 5.6 / 3.9 |
//! | [`Quotient`] | the same; resizes without the keys | at 0.005 % at most | 21 bits a key | yes | exactly | 11 / 5.8 | 15 / 8.3 |
//! | [`CountMin`] | how much? | never low; high by at most a share of everything added | e / error x rows x weight | no | exactly, or within the sum of errors | 4.6 / 2.0, plain 3.8 / 2.0 | 5.9 / 4.0, plain 6.0 / 4.6 |
//! | [`BlockedCountMin`] | the same, in one or two cache lines | the same on average; few keys by much more | the same | no | the same | plain 2.7 / 1.5 | plain 3.3 / 2.9 |
//! | [`HeavyLight`] | the same, the largest apart | the truth is within `[lower, upper]` | less than half of the error of `CountMin` with four rows | no | bounds hold | 9.4 / 2.4 | 9.2 / 4.0 |
//! | [`TopK`] | which are the largest? | the truth is within `[lower, upper]` | 24 bytes and the key a candidate; with packets and bytes 40 | no | bounds hold | 7.8 | 8.2 |
//! | [`HyperLogLog`] | how many distinct? | both ways, by 1.04 / sqrt(registers) | a byte a register | no | exactly | 1.4 | 2.9 |
//! | [`CompactHyperLogLog`] | the same, of many that are small | the same | four bytes a key, then as above | no | exactly | | |
//! | [`UltraLogLog`] | the same in less | both ways, by 0.76 / sqrt(registers) | a byte a register | no | exactly | 2.2 | 2.9 |
//! | [`Spread`] | which keys touch many? | both ways; within its bounds at 99.9 % | 5 to 10 bytes a key | no | exactly | 9.1 | 12 |
//!
//! weir's pipeline has [`TopK`] (top talkers), [`HyperLogLog`] (unique addresses and flows) and [`Seen`] (new flows).
//! Times are of a virtual machine (Xeon, AVX-512) with keys of 8 bytes, hashing included, in batches, inside the
//! second-level cache: insert (or add) / look up what is absent (or estimate); and the same on that machine without its
//! AVX-512. `scripts/bench sketches` prints them (`--avx2` as the first option for the second), other sizes and the best crates
//! for the same questions; `scripts/bench pipeline` those of [`Seen`].
//!
//! Far beyond the caches a key takes 8 to 14 ns where it is in one line, on huge pages; on small ones half as long again,
//! because its page has to be looked for (`GLIBC_TUNABLES=glibc.malloc.hugetlb=1`, or an allocator that asks for them).
//!
//! # The contract
//!
//! - **Hash once.** A sketch takes a ready 64-bit hash and derives everything from it. The hash must be keyed and
//!   uniform ([`crate::hash::KeyedHash`]): whoever can choose colliding hashes makes any sketch lie. [`Keyed`] does
//!   that for items of any type.
//! - **Built from the question.** Constructors take items and error, not internals. Settings outside their range are
//!   brought to its nearest end, never refused: what was really built is in `error()`, `capacity()` and the like.
//! - **Fixed memory.** Everything is allocated at construction, and `memory_bytes()` says how much; only
//!   [`ScalableBloom`] and [`CompactHyperLogLog`] grow. The operating system hands out zeroed pages only when they are
//!   first written: call `clear()` once after construction to make them resident before traffic does.
//! - **Integer state.** Counters, registers and bits; floating point appears only in answers. So the order of merges
//!   cannot change a result: `merge` commutes, is associative, and has the empty sketch as identity. Not quite so are
//!   [`TopK`] and [`HeavyLight`], in which the largest of both sides compete for places: their bounds hold in any
//!   order. A [`ScalableBloom`] takes in any other and becomes the list of both.
//! - **Merging like with like.** Each sketch keeps the [fingerprint](crate::hash::Key::id) of the key that its hashes
//!   were made with; `merge` refuses another key and another geometry with a [`MergeError`].

#![no_std]
// Denied, not forbidden: `simd` has the only unsafe code.
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

use core::fmt;

use self::datasketches::PUBLIC;

mod batch;
pub mod blocked_bloom;
pub mod blocked_count_min;
pub mod bloom;
mod contract;
pub mod count_min;
pub mod counting_bloom;
pub mod cuckoo;
pub mod datasketches;
mod floor;
pub mod hash;
pub mod heavy_light;
pub mod hyperloglog;
pub mod image;
mod keyed;
mod occupancy;
mod partial_key;
pub mod quotient;
mod rank;
pub mod scalable_bloom;
pub mod seen;
pub mod shared_bloom;
pub mod simd;
mod split_block;
pub mod spread;
pub mod top_k;
pub mod two_choice;
pub mod ultraloglog;
mod weight;

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
pub use contract::{Distinct, Filter, Frequency, Full, Merge, Remove, Sketch};
pub use count_min::CountMin;
pub use counting_bloom::CountingBloom;
pub use cuckoo::Cuckoo;
pub use heavy_light::HeavyLight;
pub use hyperloglog::{CompactHyperLogLog, HyperLogLog};
pub use image::{Image, ImageError};
pub use keyed::Keyed;
pub use quotient::Quotient;
pub use scalable_bloom::ScalableBloom;
pub use seen::Seen;
pub use shared_bloom::SharedBloom;
pub use spread::{Spread, Spreader, Survey, Touch};
pub use top_k::{Candidate, TopK};
pub use two_choice::TwoChoice;
pub use ultraloglog::UltraLogLog;
pub use weight::{Bounds, Columns, CountAndSum, NarrowColumns, Weight};

/// A number and how wrong it can be. The confidence is stated where the estimate is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// The likeliest number.
    pub value: u64,
    /// The truth is at least this.
    pub lower: u64,
    /// The truth is at most this.
    pub upper: u64,
}

impl Estimate {
    /// A number that is known for certain.
    pub const fn exact(value: u64) -> Self {
        Self { value, lower: value, upper: value }
    }
}

/// The size and shape of a sketch: equal geometries merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// A grid of counters.
    Cells {
        /// Rows, each with a hash function of its own.
        depth: usize,
        /// Counters a row.
        width: usize,
    },
    /// A table of candidates in blocks of eight.
    Candidates {
        /// How many at most.
        count: usize,
    },
    /// A row of registers.
    Registers {
        /// How many.
        count: usize,
    },
    /// A row of bits.
    Bits {
        /// How many.
        count: u64,
        /// How many of them a key has.
        hashes: u32,
    },
    /// A row of blocks of counters.
    CounterBlocks {
        /// How many.
        count: usize,
        /// What each takes.
        bytes: usize,
    },
    /// A row of cache lines (64 bytes), some of which are each key's.
    Lines {
        /// How many.
        count: usize,
        /// How many are a key's.
        per_key: usize,
    },
    /// A row of blocks of one cache line (64 bytes) each.
    Blocks {
        /// How many.
        count: usize,
    },
    /// A row of buckets of fingerprints.
    Buckets {
        /// How many.
        count: usize,
        /// Fingerprints a bucket.
        slots: usize,
    },
    /// A row of runs of remainders.
    Quotients {
        /// How many.
        count: usize,
        /// Bits of a quotient and a remainder together.
        fingerprint_bits: u32,
    },
}

impl fmt::Display for Geometry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cells { depth, width } => write!(f, "{depth} rows of {width} cells"),
            Self::Candidates { count } => write!(f, "{count} candidates"),
            Self::Lines { count, per_key } => write!(f, "{count} lines, {per_key} a key"),
            Self::Registers { count } => write!(f, "{count} registers"),
            Self::Bits { count, hashes } => write!(f, "{count} bits, {hashes} a key"),
            Self::CounterBlocks { count, bytes } => write!(f, "{count} blocks of {bytes} bytes of counters"),
            Self::Blocks { count } => write!(f, "{count} blocks of 64 bytes"),
            Self::Buckets { count, slots } => write!(f, "{count} buckets of {slots} fingerprints"),
            Self::Quotients { count, fingerprint_bits } => {
                write!(f, "{count} quotients of fingerprints of {fingerprint_bits} bits")
            }
        }
    }
}

/// Why two sketches cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// They differ in size or shape.
    Geometry {
        /// Of the sketch that was to take the other in.
        ours: Geometry,
        /// Of the other.
        theirs: Geometry,
    },
    /// Their hashes were made with different keys: the same flow is at unrelated places in the two.
    Key {
        /// The key's fingerprint in the sketch that was to take the other in.
        ours: u64,
        /// The key's fingerprint in the other.
        theirs: u64,
    },
    /// Together they have more than one has room for.
    Full {
        /// What both have.
        items: u64,
        /// What there is room for.
        room: u64,
    },
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry { ours, theirs } => write!(
                f,
                "cannot merge a sketch of {theirs} into one of {ours}: build both from the same sizes and errors"
            ),
            Self::Key { ours: PUBLIC, .. } | Self::Key { theirs: PUBLIC, .. } => f.write_str(
                "cannot merge a sketch of public hashes and one of keyed hashes: feed both with the same hashes",
            ),
            Self::Key { ours, theirs } => write!(
                f,
                "cannot merge a sketch hashed with key {theirs:016x} into one hashed with key {ours:016x}: \
                 give both observers the same secret and version of weir"
            ),
            Self::Full { items, room } => {
                write!(
                    f,
                    "cannot merge filters that have {items} keys together into room for {room}: resize both before"
                )
            }
        }
    }
}

impl core::error::Error for MergeError {}

/// Refuses sketches that do not belong together; each side is a geometry and a key's fingerprint.
fn check_mergeable(ours: (Geometry, u64), theirs: (Geometry, u64)) -> Result<(), MergeError> {
    if ours.0 != theirs.0 {
        return Err(MergeError::Geometry { ours: ours.0, theirs: theirs.0 });
    }
    if ours.1 != theirs.1 {
        return Err(MergeError::Key { ours: ours.1, theirs: theirs.1 });
    }
    Ok(())
}
