//! The weir daemon as a library.
#![forbid(unsafe_code)]

pub mod capture;
pub mod config;
pub mod report;
pub mod sink;
