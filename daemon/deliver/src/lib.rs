//! Delivers reports.
//!
//! A [`sink`] is where reports go: standard output, a file, a collector. Each has a thread of its own, so none waits
//! for another. Reports wait in a [`spool`] until they have arrived. [`prometheus`] exports the numbers of the last
//! report, and the [`board`] has the last reports for everyone who asks; [`status`] is weir's state beside them.

#![forbid(unsafe_code)]

pub mod board;
mod gzip;
pub mod prometheus;
pub mod sink;
pub mod spool;
pub mod status;
