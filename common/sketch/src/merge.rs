//! Checks which sketches may be merged: those with the same geometry whose hashes were made with the same key.

use core::fmt;

/// The fingerprint of sketches with public hashes, which have no key. (A secret key has this fingerprint with a
/// probability of 2^-64.)
pub const PUBLIC: u64 = 0;

/// The size and shape of a sketch. Only sketches with equal geometries can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    /// A grid of counters.
    Cells {
        /// The number of rows, each with its own hash function.
        depth: usize,
        /// The number of counters per row.
        width: usize,
    },
    /// A table of candidates in blocks of eight.
    Candidates {
        /// The largest number of candidates.
        count: usize,
    },
    /// A sequence of buckets, each with four candidates and light cells.
    CandidateBuckets {
        /// The number of buckets.
        count: usize,
    },
    /// A sequence of registers.
    Registers {
        /// The number of registers.
        count: usize,
    },
    /// A sequence of bits.
    Bits {
        /// The number of bits.
        count: u64,
        /// How many bits each key has.
        hashes: u32,
    },
    /// A sequence of blocks of counters.
    CounterBlocks {
        /// The number of blocks.
        count: usize,
        /// Bytes of one block.
        bytes: usize,
    },
    /// A sequence of cache lines (64 bytes). Each key has some of them.
    Lines {
        /// The number of lines.
        count: usize,
        /// How many lines each key has.
        per_key: usize,
    },
    /// Counters, each for one key.
    Counters {
        /// The number of counters.
        count: usize,
        /// How many registers each counter has.
        registers: usize,
    },
    /// A sequence of blocks of one cache line (64 bytes) each.
    Blocks {
        /// The number of blocks.
        count: usize,
    },
    /// A sequence of buckets of fingerprints.
    Buckets {
        /// The number of buckets.
        count: usize,
        /// The number of fingerprints per bucket.
        slots: usize,
    },
    /// A sequence of runs of remainders.
    Quotients {
        /// The number of quotients.
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
            Self::CandidateBuckets { count } => write!(f, "{count} buckets of four candidates"),
            Self::Lines { count, per_key } => write!(f, "{count} lines, {per_key} per key"),
            Self::Counters { count, registers } => write!(f, "{count} counters of {registers} registers"),
            Self::Registers { count } => write!(f, "{count} registers"),
            Self::Bits { count, hashes } => write!(f, "{count} bits, {hashes} per key"),
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
        /// The sketch that would have been changed.
        ours: Geometry,
        /// The sketch that should have been merged into it.
        theirs: Geometry,
    },
    /// The hashes of the two sketches were made with different keys, so the same item has unrelated places in them.
    Key {
        /// The key's fingerprint in the sketch that would have been changed.
        ours: u64,
        /// The key's fingerprint in the other sketch.
        theirs: u64,
    },
    /// Together they contain more keys than one has room for.
    Full {
        /// How many keys both contain together.
        items: u64,
        /// For how many keys there is room.
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
                 feed both with hashes of the same key, made by the same version of this crate"
            ),
            Self::Full { items, room } => {
                write!(
                    f,
                    "cannot merge: the filters have {items} keys together, but room for only {room}: resize both first"
                )
            }
        }
    }
}

impl core::error::Error for MergeError {}

/// Refuses sketches that must not be merged. Each side is a geometry and a key's fingerprint.
pub(crate) fn check_mergeable(ours: (Geometry, u64), theirs: (Geometry, u64)) -> Result<(), MergeError> {
    if ours.0 != theirs.0 {
        return Err(MergeError::Geometry { ours: ours.0, theirs: theirs.0 });
    }
    if ours.1 != theirs.1 {
        return Err(MergeError::Key { ours: ours.1, theirs: theirs.1 });
    }
    Ok(())
}
