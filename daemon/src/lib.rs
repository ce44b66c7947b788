//! The program `weir`: its command line, and the wiring of `weir run`. Each stage is a crate:
//!
//! | crate | takes | gives |
//! |---|---|---|
//! | [`weir_attach`] | the interfaces of the configuration | programs on them, or packet sockets |
//! | [`weir_datapath`] | packets | records, and exact counters at each window's edge |
//! | [`weir_measure`] | records | a summary of each window, with bounds |
//! | [`weir_schema`] | a summary | the report: JSON, or tables for people; the alerts that it raises |
//! | [`weir_replay`] | captures | reports, made by the same stages |
//! | [`weir_deliver`] | reports | delivered reports, each kind of target on its own thread |
//! | [`weir_web`] | reports, and each second | the page in a browser |
//!
//! [`pipeline`] starts and connects the threads of `weir run`. The [`coordinator`] has its [`workers`] close each
//! window. [`cpu_rings`] assigns the ring of each CPU to a worker. [`control`] answers queries to a running weir,
//! [`reload`] prepares a new configuration for it, and [`handover`] passes its state to the next weir. [`seconds`]
//! makes the message of each second for subscribers. [`top`] connects the live screen, and [`web`] the page. [`doctor`]
//! says what this machine can do.
//!
//! [`memory`] plans how much memory all that needs, also for a [`replay`]. [`state`] is kept across restarts. [`needs`]
//! decides which capabilities are kept. [`show`] prints the results of commands for people. [`key`] makes
//! the secret of a fleet, and [`external`] runs commands that are separate programs.

#![deny(unsafe_code)]

pub mod cli;
pub mod control;
pub mod coordinator;
pub mod cpu_rings;
pub mod doctor;
pub mod external;
pub mod handover;
pub mod history;
pub mod key;
mod local;
pub mod memory;
pub mod needs;
pub mod pipeline;
pub mod reload;
pub mod replay;
pub mod seconds;
pub mod show;
pub mod state;
pub mod top;
pub mod web;
pub mod workers;
