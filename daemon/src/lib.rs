//! The weir daemon as a library. One folder a stage, in pipeline order:
//!
//! | stage | takes | gives |
//! |---|---|---|
//! | [`attach`] | the interfaces of the configuration | programs on them, or packet sockets |
//! | [`datapath`] | packets | records, and exact counters at each window's edge |
//! | [`measure`] | records | a summary of each window, with bounds |
//! | [`report`] | a summary | the report: JSON, or tables for people |
//! | [`alert`] | a report | what the rules of the configuration say of it |
//! | [`sink`] | reports | delivered reports, each kind of target on a thread of its own |
//!
//! [`pipeline`] wires the threads of `weir run`. There the [`coordinator`] has its [`workers`] close each
//! window, and the [`closing`] makes the report of it. The [`fleet`] gives the ring of each CPU to one of them, and
//! [`keys`] has the key of each day. [`control`] answers those who ask a running weir, and [`reload`] makes another
//! configuration ready for it. [`replay`] measures captures by the same stages, [`doctor`] says what this machine can
//! do.
//!
//! [`collect`] is the other end of the wire: the reference collector. [`prometheus`] tells the numbers of the last
//! report to Prometheus. [`serve`] is the HTTP server of both.
//!
//! What is asked: a [`view`] is a question, a [`rule`] is what an alert is about, [`config`] is all that the user asked
//! for, and a [`question`] is a view that is ready to be asked. [`names`] says what addresses and numbers are called,
//! [`interface`] which packets of which interface. Each of these imports only those before it in the order interface,
//! names, view, rule, config, question.
//!
//! [`rates`] are what an interface carried in each second. [`memory`] says what all that costs, [`observer`] who
//! reports, [`state`] what is known after a restart, [`signals`] when to end, [`privileges`] and [`sandbox`] which
//! rights are given up. [`spool`] keeps reports until they are delivered. [`clock`] alone reads a clock, [`log`] never
//! waits for a reader, `confined` says why a file does not open, [`waker`] wakes a thread, and [`text`] writes numbers
//! and errors for people.
//!
//! There are no dependency cycles between these; `tests/docs/modules.rs` checks that.

#![deny(unsafe_code)]

pub mod alert;
pub mod attach;
pub mod cli;
pub mod clock;
pub mod closing;
pub mod collect;
pub mod config;
mod confined;
pub mod control;
pub mod coordinator;
pub mod datapath;
pub mod doctor;
pub mod fleet;
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
mod plain_file;
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
