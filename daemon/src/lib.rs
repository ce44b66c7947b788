//! The weir daemon as a library. Each stage has a folder, in pipeline order:
//!
//! | stage | takes | gives |
//! |---|---|---|
//! | [`attach`] | the interfaces of the configuration | programs on them, or packet sockets |
//! | [`datapath`] | packets | records, and exact counters at each window's edge |
//! | [`measure`] | records | a summary of each window, with bounds |
//! | [`report`] | a summary | the report: JSON, or tables for people |
//! | [`alert`] | a report | which rules of the configuration it breaks |
//! | [`sink`] | reports | delivered reports, each kind of target on a thread of its own |
//!
//! [`pipeline`] starts and connects the threads of `weir run`. The [`coordinator`] has its [`workers`] close each
//! window, and [`closing`] makes the report of it. The [`fleet`] assigns the ring of each CPU to a worker, and [`keys`]
//! has the key of each day. [`control`] answers queries to a running weir, and [`reload`] prepares a new configuration
//! for it. [`replay`] measures captures with the same stages; [`doctor`] says what this machine can do.
//!
//! [`prometheus`] exports the numbers of the last report to Prometheus. [`serve`] is its HTTP server. The reference
//! collector, which uses the same server, is a program of its own (`weir-collect`), and [`external`] finds it.
//!
//! What is measured: a [`view`] is a question, a [`rule`] defines an alert, [`config`] is everything that the user
//! configured, and a [`question`] is a view that is ready to be asked. [`names`] has the names of addresses and
//! numbers, and [`interface`] which packets of which interface are measured. Each of these imports only those before it
//! in this order: interface, names, view, rule, config, question.
//!
//! [`rates`] are what an interface carried in each second. [`memory`] plans how much memory all that needs.
//! [`observer`] identifies the machine that reports, [`state`] is kept across restarts, and [`signals`] end the daemon.
//! [`privileges`] and [`sandbox`] drop rights. [`spool`] keeps reports until they are delivered. [`clock`] is the only
//! module that reads a clock, [`log`] never waits for a reader, `confined` explains why a file cannot be opened,
//! [`waker`] wakes a thread, and [`text`] formats numbers and errors for people.
//!
//! There are no dependency cycles between these; `tests/docs/modules.rs` checks that.

#![deny(unsafe_code)]

pub mod alert;
pub mod attach;
pub mod cli;
pub mod clock;
pub mod closing;
pub mod config;
mod confined;
pub mod control;
pub mod coordinator;
pub mod datapath;
pub mod doctor;
pub mod external;
pub mod fleet;
mod folder;
mod gzip;
pub mod handover;
pub mod interface;
pub mod keys;
pub mod lock;
pub mod log;
pub mod measure;
pub mod memory;
pub mod names;
mod notify;
pub mod plain_file;
pub mod workers;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("weir counts in words of 64 bits and maps rings of gigabytes: it is for 64-bit machines only");
pub mod observer;
pub mod pipeline;
pub mod privileges;
pub mod prometheus;
pub mod question;
pub mod rates;
pub mod reload;
pub mod replay;
pub mod report;
pub mod rule;
pub mod sandbox;
pub mod serve;
pub mod signals;
pub mod sink;
mod sockopt;
pub mod spool;
pub mod state;
pub mod text;
pub mod view;
pub mod waker;
