//! Errors between the daemon and the kernel.

use std::io;

use aya::{EbpfError, maps::MapError, programs::ProgramError};
use rustix::thread::CapabilitySet;
use thiserror::Error;
use weir_common::control::CPUS_MAX;
use weir_system::privileges::{has, way_out};

use super::descriptors::TooFew;

/// The capability that the verifier requires besides the right to load programs.
const OF_VERIFIER: CapabilitySet = CapabilitySet::PERFMON;
/// The capabilities that loading and attaching programs requires.
const OF_PROGRAMS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON).union(CapabilitySet::NET_ADMIN);

/// Why the kernel side could not be loaded or run.
#[derive(Debug, Error)]
pub enum KernelError {
    /// weir lacks the privilege to load eBPF programs.
    #[error("not permitted to load eBPF programs: {}", way_out(OF_PROGRAMS))]
    NotPermitted,
    /// Programs may interrupt each other on this kernel. See [`Preemption`](super::Preemption).
    #[error("{0}: use a kernel that was built with it, or packet sockets (`mode: afpacket`)")]
    Preemptible(&'static str),
    /// The object could not be read, or a map could not be made.
    #[error("the kernel refused weir's eBPF maps")]
    Load(#[source] EbpfError),
    /// The verifier refused a program.
    #[error("the kernel refused weir's program `{program}` ({needs})", needs = needs(program, has(OF_VERIFIER)))]
    Program {
        /// The name of the program.
        program: &'static str,
        /// The kernel's answer.
        #[source]
        source: ProgramError,
    },
    /// A map operation failed.
    #[error("an eBPF map could not be set up")]
    Map(#[from] MapError),
    /// A CPU's block in the kernel could not be read or written.
    #[error("cannot read or write the counters of a CPU")]
    Block(#[source] io::Error),
    /// The programs' table of interfaces could not be written.
    #[error("cannot write the table of interfaces")]
    Table(#[source] io::Error),
    /// The object has no such map or program: it belongs to another version.
    #[error("the eBPF object has no `{0}`: it belongs to another version of weir")]
    Missing(&'static str),
    /// The CPUs could not be listed.
    #[error("cannot read {0}")]
    Cpus(&'static str, #[source] io::Error),
    /// The machine has more CPUs than weir supports.
    #[error("weir supports {CPUS_MAX} CPUs, but this machine has a CPU {0}")]
    TooManyCpus(u32),
    /// The maps have no room for a hot-added CPU.
    #[error("CPU {0} was not announced when weir started, so there is no room for it: restart weir to measure it")]
    NoPlace(u32),
    /// A test run failed.
    #[error("the kernel refused to run `{program}`")]
    Run {
        /// The name of the program.
        program: &'static str,
        /// The kernel's answer.
        #[source]
        source: ProgramError,
    },
    /// A ring's reader could not be set up.
    #[error("cannot wait for the rings")]
    Wait(#[source] io::Error),
    /// The map of the counters could not be mapped.
    #[error("cannot read the counters of the eBPF programs in place")]
    Counters(#[source] io::Error),
    /// A map's file descriptor could not be duplicated.
    #[error(
        "cannot open another file descriptor: raise the limit of open files (`ulimit -n`, `LimitNOFILE=` in the unit)"
    )]
    Descriptor(#[source] io::Error),
    /// The file descriptor limit is too low for this machine's CPUs.
    #[error(transparent)]
    TooFewDescriptors(#[from] TooFew),
}

impl KernelError {
    /// Returns true if the only problem is a missing privilege.
    pub const fn is_not_permitted(&self) -> bool {
        matches!(self, Self::NotPermitted)
    }
}

/// Describes what a program needs and may lack here.
fn needs(program: &str, has_perfmon: bool) -> String {
    let linux = format!("it needs Linux {} or later", floor(program));
    if has_perfmon { linux } else { format!("{linux}, and CAP_PERFMON: {}", way_out(OF_VERIFIER)) }
}

/// The first Linux version that accepts a program. The program that measures interfaces has a variant for older
/// kernels.
fn floor(program: &str) -> &'static str {
    if matches!(program, "weir" | "weir_linear" | "weir_generic" | "weir_gen_linear" | "flush") {
        "5.10"
    } else {
        "5.18"
    }
}
