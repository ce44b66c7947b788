//! The measurement: records in, the summary of a window out.
//!
//! A [`worker`] fills a [`shard`] with records, [`batch`] by batch, and turns the valve as [`sampling_control`] decides;
//! a [`window`] ends, its shards become a [`summary`], whose bounds [`sampling_error`] widens where packets were left out.

pub mod batch;
pub mod sampling_control;
pub mod sampling_error;
pub mod shard;
pub mod summary;
pub mod window;
pub mod worker;
