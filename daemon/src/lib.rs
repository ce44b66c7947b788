//! The weir daemon as a library, in pipeline order: [`kernel`] loads the programs and [`attach`] puts them on the
//! interfaces that [`netlink`] tells of; each CPU's [`ring`] is read by its [`worker`], which turns the [`valve`], in a
//! [`batch`] into a [`shard`]; at a [`window`]'s [`edge`] the shards become a [`summary`], whose bounds have a
//! [`margin`] for sampling, the summary a [`report`], and the report goes to every [`sink`]. [`pipeline`] wires the
//! threads. Where there are no programs [`tap`]s read packet sockets, and a [`twin`] does what the programs do;
//! [`replay`] does so over a [`capture`].

#![deny(unsafe_code)]

pub mod attach;
pub mod batch;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod config;
pub mod doctor;
pub mod edge;
pub mod features;
pub mod kernel;
pub mod margin;
pub mod memory;
pub mod netlink;
pub mod observer;
pub mod pipeline;
pub mod replay;
pub mod report;
pub mod ring;
pub mod shard;
pub mod sink;
pub mod summary;
pub mod tap;
pub mod twin;
pub mod valve;
pub mod window;
pub mod worker;
