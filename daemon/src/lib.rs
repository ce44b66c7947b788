//! The weir daemon as a library. One folder a stage, in pipeline order:
//!
//! | stage | takes | gives |
//! |---|---|---|
//! | [`attach`] | the interfaces of the configuration | programs on them, or packet sockets |
//! | [`datapath`] | packets | records, and exact counters at each window's edge |
//! | [`measure`] | records | a summary of each window, with bounds |
//! | [`report`] | a summary | the report: JSON, or tables for people |
//! | [`sink`] | reports | delivered reports, each kind of target on a thread of its own |
//!
//! [`pipeline`] wires the threads of `weir run`. [`replay`] measures captures by the same stages, [`doctor`] says what
//! this machine can do, [`config`] is what the user asked for. [`memory`] says what that costs, [`observer`] who reports,
//! and [`clock`] alone reads a clock.

#![deny(unsafe_code)]

pub mod attach;
pub mod cli;
pub mod clock;
pub mod config;
pub mod datapath;
pub mod doctor;
pub mod measure;
pub mod memory;
pub mod observer;
pub mod pipeline;
pub mod replay;
pub mod report;
pub mod sink;
