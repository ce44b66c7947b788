//! The CPUs: which there are, and work that has to be done on a certain one.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use thiserror::Error;
use tracing::debug;

use super::error::KernelError;

/// This thread may not run on a CPU.
#[derive(Debug, Error)]
#[error("cannot run on CPU {cpu}, where its windows must be closed: is it offline, or not allowed (cpuset, taskset)?")]
pub struct PinError {
    /// The CPU.
    pub cpu: u32,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// The CPUs that are online, each of which needs a ring and a worker.
///
/// # Errors
///
/// `/sys` is not readable.
pub fn online_cpus() -> Result<Vec<u32>, KernelError> {
    aya::util::online_cpus().map_err(|(path, source)| KernelError::Cpus(path, source))
}

/// Pins this thread to a CPU.
///
/// # Errors
///
/// The CPU is not among those allowed.
pub fn pin(cpu: u32) -> Result<(), PinError> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize);
    sched_setaffinity(None, &cpus).map_err(|error| PinError { cpu, source: error.into() })
}

/// Does something on a CPU. Afterwards this thread may run on the same CPUs as before. If the kernel refuses that, the
/// thread stays on this CPU: its results are the same, but all its time comes from this CPU.
///
/// # Errors
///
/// The CPU is not among those allowed.
pub fn on_cpu<T>(cpu: u32, work: impl FnOnce() -> T) -> Result<T, PinError> {
    let allowed = sched_getaffinity(None);
    pin(cpu)?;
    let done = work();
    if let Err(error) = allowed.and_then(|allowed| sched_setaffinity(None, &allowed)) {
        debug!(cpu, "stays on its CPU: {error}");
    }
    Ok(done)
}
