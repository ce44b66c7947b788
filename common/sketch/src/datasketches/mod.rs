//! Reads and writes sketches in the binary formats of Apache `DataSketches`, which Spark, Druid, `BigQuery`, Postgres
//! and others can merge.
//!
//! | form | written from | read into |
//! |---|---|---|
//! | [`hll`]: `HLL_8` | [`HyperLogLog`](super::HyperLogLog) | the same; also `HLL_4`, `HLL_6`, and the lists of small counts |
//! | [`frequent_items`]: of longs, of strings | [`FrequentItems`], made from any top-k | the same |
//!
//! # Choose the hashes
//!
//! The formats have no place for a key. A `HyperLogLog` that was fed keyed hashes can be exported, counted, and merged
//! with others that have the same key and the same number of registers. If `DataSketches` merges it with any other
//! sketch, common items count twice, and it cannot notice that. (This library notices it, because it writes the key's
//! fingerprint after the image.) To merge a sketch with those of other programs, feed it *their* hashes:
//! [`PublicHash`], in a sketch whose key is [`PUBLIC`]. Then [`MergeError`](super::MergeError) keeps the two kinds
//! apart.
//!
//! ```
//! use std::net::Ipv4Addr;
//! use weir_sketch::{HyperLogLog, datasketches::{PUBLIC, PublicHash, hll}};
//!
//! let mut sources = HyperLogLog::with_precision(14, PUBLIC).unwrap();
//! for host in 1..=3 {
//!     let hash = PublicHash::of_ipv4(Ipv4Addr::new(192, 0, 2, host));
//!     sources.insert(hash.for_precision(sources.precision()));
//! }
//! let image = hll::write(&sources); // for Spark, Druid, ...
//! assert_eq!(hll::read(&image, PUBLIC), Ok(sources));
//! ```
//!
//! **Public hashes are no defence against attackers.** An attacker who can choose items can make a public sketch count
//! far too few or far too many. Its bounds hold for items that were not chosen against it. Use keyed hashes if a sketch
//! must withstand an attacker.
//!
//! # What is left out
//!
//! - The Bloom filter of `DataSketches` is not supported. Its bits depend on two xxHash64 of the *item*, so no other
//!   hashes can be used with it, and the official Python package has no Bloom filter to compare with.
//! - The HIP estimate is not supported. It depends on the order of arrival, and the first merge loses it.

pub mod frequent_items;
pub mod hll;
mod murmur;

#[cfg(test)]
mod golden;

pub use crate::merge::PUBLIC;
pub use frequent_items::FrequentItems;
pub use murmur::PublicHash;
