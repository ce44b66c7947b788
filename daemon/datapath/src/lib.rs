//! The datapath turns packets into records. The kernel programs do this on each CPU; [`userspace`] does the same for
//! captures and packet sockets.
//!
//! A [`plan`] sets all sizes. [`kernel`] loads the [`programs`] that this kernel supports ([`features`], `preemption`)
//! and sets up their [`maps`]. Each [`cpu`]'s [`ring`] delivers its records; at the end of a window its [`edge`] holds
//! the exact counts of the programs. Where no programs can run, a [`tap`] reads packets from a packet socket. A
//! [`capture`] reads packets from files.
//!
//! The [`directory`] maps interfaces to slots, [`interface`] describes an interface for reports, and [`rates`] are its
//! packets and bytes in each second. The [`kept`] descriptors outlive the process, for the next weir.

#![deny(unsafe_code)]

pub mod capture;
mod chains;
pub mod constants;
pub mod counters;
pub mod cpu;
pub mod descriptors;
pub mod directory;
pub mod edge;
pub mod error;
pub mod features;
pub mod interface;
pub mod kept;
pub mod kernel;
pub mod maps;
mod object;
mod packet_flags;
mod places;
pub mod plan;
mod preemption;
pub mod programs;
pub mod rates;
pub mod ring;
pub mod syscall;
pub mod tap;
pub mod userspace;

pub use self::{
    chains::{Asker, Chains},
    constants::Constants,
    cpu::{Cpus, online_cpus, pin},
    edge::{Edge, EdgeReader},
    error::KernelError,
    features::{Features, probe_tcx, tcx_programs},
    kernel::{Kernel, LoadedProgram, Parts, Rings},
    maps::Blocks,
    object::{object, object_sha256},
    packet_flags::PacketFlags,
    plan::{Plan, Shares},
    preemption::Preemption,
    programs::FlushProgram,
    ring::{Ring, RingEvents, ring_records},
};
