//! The datapath: packets in, records out. The kernel's programs do it for one CPU each; `userspace` does the same for
//! captures and for packet sockets.
//!
//! [`kernel`] loads the programs as this kernel can take them ([`features`]), [`ring`] brings their records, [`edge`] is
//! what they counted exactly when a window is closed, [`tap`] reads packets where there are no programs.

pub mod cpu;
pub mod edge;
pub mod features;
pub mod kernel;
pub mod ring;
pub mod tap;
pub mod userspace;

pub use self::{
    cpu::{online_cpus, pin},
    edge::{Edge, EdgeReader},
    features::{Features, has_tcx},
    kernel::{Benchmark, FlushProgram, Kernel, KernelError, LoadedProgram, Parts, Plan},
    ring::{Ring, ring_records},
};
