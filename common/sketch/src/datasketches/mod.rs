//! Sketches in the binary forms of Apache `DataSketches`, which Spark, Druid, `BigQuery`, Postgres and others can join.
//!
//! | form | written from | read into |
//! |---|---|---|
//! | [`hll`]: `HLL_8` | [`HyperLogLog`](super::HyperLogLog) | the same; also `HLL_4`, `HLL_6`, and the lists of small counts |
//! | [`frequent_items`]: of longs, of strings | [`FrequentItems`], made from any top-k | the same |
//!
//! # Whose hashes?
//!
//! The forms have no place for a key. A `HyperLogLog` fed with keyed hashes can be exported, counted and joined with
//! others of the same key and the same number of registers; joined with anything else it is counted twice, and nobody
//! can notice. To be joined with sketches that others made, it must be fed with *their* hashes: [`PublicHash`], in a
//! sketch whose key is [`PUBLIC`], so that weir itself never merges the two kinds.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use weir_sketch::{HyperLogLog, datasketches::{PUBLIC, PublicHash, hll}};
//!
//! let mut sources = HyperLogLog::with_precision(14, PUBLIC);
//! for host in 1..=3 {
//!     let hash = PublicHash::of_ipv4(Ipv4Addr::new(192, 0, 2, host));
//!     sources.insert(hash.for_precision(sources.precision()));
//! }
//! let image = hll::write(&sources); // for Spark, Druid, ...
//! assert_eq!(hll::read(&image, PUBLIC), Ok(sources));
//! ```
//!
//! **Public hashes can be aimed at.** Whoever can choose addresses can choose such as make a public sketch count far
//! too few, or far too many. Bounds hold for traffic that nobody aims at the sketch; what must withstand an attacker is
//! the keyed one.
//!
//! # What is left out
//!
//! - `DataSketches`' Bloom filter is another structure than weir's: its bits follow from two xxHash64 of the *item*,
//!   each modulo the number of bits, so a filter fed with weir's hashes answers nobody's questions, and the official
//!   Python package has none to compare with.
//! - Its HIP estimate, which depends on the order of arrival and is gone after the first merge.

pub mod frequent_items;
pub mod hll;
mod murmur;

#[cfg(test)]
mod golden;

pub use crate::merge::PUBLIC;
pub use frequent_items::FrequentItems;
pub use murmur::PublicHash;
