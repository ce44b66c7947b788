//! The datapath: packets in, records out. The kernel's programs do it on each CPU; `userspace` does the same for
//! captures and for packet sockets.
//!
//! A [`plan`] says how large everything is. [`kernel`] loads the [`programs`] as this kernel can take them
//! ([`features`], `preemption`) and sets up their [`maps`]; each [`cpu`]'s [`ring`] brings its records, and at a
//! window's end its [`edge`]: what the programs counted exactly. Where there are no programs, a [`tap`] reads packets
//! and the program's counterpart in [`userspace`] makes records of them.

pub mod counters;
pub mod cpu;
pub mod descriptors;
pub mod edge;
pub mod error;
pub mod features;
pub mod kernel;
pub mod maps;
mod places;
pub mod plan;
mod preemption;
pub mod programs;
pub mod ring;
pub mod syscall;
pub mod tap;
pub mod userspace;

pub use self::{
    cpu::{Cpus, online_cpus, pin},
    edge::{Edge, EdgeReader},
    error::KernelError,
    features::{Features, has_tcx},
    kernel::{Kernel, LoadedProgram, Parts, Rings},
    maps::Blocks,
    plan::{Plan, Shares},
    preemption::Preemption,
    programs::FlushProgram,
    ring::{Ring, RingEvents, ring_records},
};
