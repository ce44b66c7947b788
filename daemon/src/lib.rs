//! The weir daemon as a library.
#![forbid(unsafe_code)]

pub mod report;
pub mod sink;
