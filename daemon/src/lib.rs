//! The program `weir`: its command line, and how `weir run` is wired. The stages are crates of their own:
//!
//! | crate | takes | gives |
//! |---|---|---|
//! | [`weir_attach`] | the interfaces of the configuration | programs on them, or packet sockets |
//! | [`weir_datapath`] | packets | records, and exact counters at each window's edge |
//! | [`weir_measure`] | records | a summary of each window, with bounds |
//! | [`weir_report`] | a summary | the report: JSON, or tables for people; the alerts that it raises |
//! | [`weir_replay`] | captures | reports, by the same stages |
//! | [`weir_deliver`] | reports | delivered reports, each kind of target on a thread of its own |
//! | [`weir_web`] | reports, and each second | the page in a browser |
//!
//! [`pipeline`] starts and connects the threads of `weir run`. The [`coordinator`] has its [`workers`] close each
//! window. The [`fleet`] assigns the ring of each CPU to a worker. [`control`] answers queries to a running weir,
//! [`reload`] prepares a new configuration for it, and [`handover`] passes its state to the next weir. [`seconds`]
//! makes the message of each second for those who subscribe, and [`top`] connects them to the live screen, as [`web`]
//! does for the page. [`doctor`] says what this machine can do.
//!
//! [`memory`] plans how much memory all that needs, also that of a [`replay`]. [`state`] is kept across restarts.
//! [`needs`] are the capabilities that are kept. [`show`] writes what commands print for people. [`external`] runs
//! commands that are programs of their own.

#![deny(unsafe_code)]

pub mod cli;
pub mod control;
pub mod coordinator;
pub mod doctor;
pub mod external;
pub mod fleet;
pub mod handover;
pub mod history;
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
