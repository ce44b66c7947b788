//! Delivers reports.
//!
//! A [`sink`] is where reports go: standard output, a file, a collector. Each sink has its own queue and threads, so
//! none waits for another. Reports wait in a [`spool`] until they have arrived. [`prometheus`] exports the numbers of
//! the last report. The [`board`] has the last reports for clients that query a running weir, and [`status`] sums up
//! its state.

#![forbid(unsafe_code)]

pub mod board;
mod gzip;
pub mod prometheus;
pub mod sink;
pub mod spool;
pub mod status;
