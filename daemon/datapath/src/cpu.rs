//! The CPUs of the machine, present and possible, and the sizes of the maps for each of them.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;
use weir_common::control::CPUS_MAX;
use weir_system::bounded;

use super::error::KernelError;

const ONLINE: &str = "/sys/devices/system/cpu/online";
const PRESENT: &str = "/sys/devices/system/cpu/present";
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The size of the flow cache of a CPU that may be hot-added, in slots, as a binary logarithm.
const SPARE_BITS: u32 = 8;
/// The largest ring of such a CPU: about 4,000 records.
const SPARE_RING_BYTES: u32 = 256 << 10;
/// The maps have room for at most this many hot-added CPUs. A hypervisor may announce hundreds that never appear.
const SPARES_MAX: u32 = 32;

/// This thread cannot run on a CPU.
#[derive(Debug, Error)]
#[error("cannot run on CPU {cpu}: is it offline, or not allowed (cpuset, taskset)?")]
pub struct PinError {
    /// The number of the CPU.
    pub cpu: u32,
    /// The kernel's answer.
    #[source]
    pub source: io::Error,
}

/// The CPUs of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The numbers of the online CPUs.
    pub online: Vec<u32>,
    /// Present CPUs; some may be offline.
    pub present: Vec<u32>,
    /// How many CPUs the machine could ever have.
    pub possible: u32,
}

/// The sizes of the maps for the CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Each CPU's part of the flow cache, in CPU order.
    pub blocks: Vec<CachePart>,
    /// Total slots of all parts.
    pub slots: u32,
}

/// One CPU's part of the flow cache, and its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePart {
    /// The first slot of the part.
    pub first_slot: u32,
    /// The number of its slots, as a binary logarithm.
    pub bits: u32,
    /// The size of the CPU's ring, in bytes.
    pub ring_bytes: u32,
}

impl Cpus {
    /// A machine with this many CPUs, all online.
    pub fn of(count: u32) -> Self {
        let all: Vec<_> = (0..count).collect();
        Self { online: all.clone(), present: all, possible: count }
    }

    /// The CPUs of this machine.
    ///
    /// # Errors
    ///
    /// `/sys` is not readable.
    pub fn of_this_machine() -> Result<Self, KernelError> {
        let online = online_cpus()?;
        // Some containers hide these two files. Then CPUs that may be added are unknown.
        let present = read(PRESENT).unwrap_or_else(|_| online.clone());
        let possible = read(POSSIBLE)
            .map_or(0, |cpus| one_past_last(&cpus))
            .max(one_past_last(&present))
            .max(one_past_last(&online));
        Ok(Self { online, present, possible })
    }

    /// The sizes of the maps if each present CPU has a cache of `flows` flows and a ring of `ring_bytes`, both powers
    /// of two. CPUs that may be added get a small cache and a small ring: they are measured as soon as they appear, and
    /// cost little memory.
    ///
    /// # Errors
    ///
    /// The number of an online CPU is too high.
    pub fn layout(&self, flows: u32, ring_bytes: u32) -> Result<Layout, KernelError> {
        if let Some(&beyond) = self.online.iter().find(|cpu| **cpu >= CPUS_MAX) {
            return Err(KernelError::TooManyCpus(beyond));
        }
        let there = self.present.iter().chain(&self.online).max().map_or(0, |last| last + 1);
        let count = self.possible.min(there + SPARES_MAX).max(there).min(CPUS_MAX);
        let mut slots = 0;
        let blocks = (0..count).map(|cpu| {
            let is_there = self.present.contains(&cpu) || self.online.contains(&cpu);
            let bits = if is_there { flows.ilog2() } else { SPARE_BITS.min(flows.ilog2()) };
            let ring_bytes = if is_there { ring_bytes } else { ring_bytes.min(SPARE_RING_BYTES) };
            let part = CachePart { first_slot: slots, bits, ring_bytes };
            slots += 1 << bits;
            part
        });
        Ok(Layout { blocks: blocks.collect(), slots })
    }
}

fn one_past_last(cpus: &[u32]) -> u32 {
    cpus.iter().max().map_or(0, |last| last + 1)
}

/// The numbers of the online CPUs. Each needs a ring.
///
/// # Errors
///
/// `/sys` is not readable.
pub fn online_cpus() -> Result<Vec<u32>, KernelError> {
    read(ONLINE).map_err(|source| KernelError::Cpus(ONLINE, source))
}

fn read(path: &str) -> io::Result<Vec<u32>> {
    let text = bounded::read_to_string(path)?;
    numbers(text.trim_end()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Parses a list such as `0-3,7`; `None` if it is malformed.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has more CPUs, and a wrong number must not cost memory.
        if last >= 1 << 16 {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Pins this thread to a CPU.
///
/// # Errors
///
/// The CPU is not in the allowed set.
pub fn pin(cpu: u32) -> Result<(), PinError> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu as usize);
    sched_setaffinity(None, &cpus).map_err(|error| PinError { cpu, source: error.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-3,7,9-10"), Some(vec![0, 1, 2, 3, 7, 9, 10]));
        for wrong in ["", "0-", "a", "0-99999999", "1;2"] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }

    fn cpus(online: &[u32], present: &[u32], possible: u32) -> Cpus {
        Cpus { online: online.to_vec(), present: present.to_vec(), possible }
    }

    #[test]
    fn present_cpus_have_a_whole_cache_and_ring_and_future_ones_small_ones() {
        let layout = cpus(&[0], &[0, 2], 4).layout(1 << 14, 1 << 20).unwrap();
        let parts: Vec<_> = layout.blocks.iter().map(|part| (part.first_slot, part.bits)).collect();
        let (whole, small) = (1 << 14, 1 << 8);
        assert_eq!(parts, [(0, 14), (whole, 8), (whole + small, 14), (2 * whole + small, 8)]);
        assert_eq!(layout.slots, 2 * whole + 2 * small);
        let rings: Vec<_> = layout.blocks.iter().map(|part| part.ring_bytes).collect();
        assert_eq!(rings, [1 << 20, SPARE_RING_BYTES, 1 << 20, SPARE_RING_BYTES]);
        let small = cpus(&[0], &[0], 2).layout(1 << 14, 64 << 10).unwrap();
        assert!(small.blocks.iter().all(|part| part.ring_bytes == 64 << 10), "they are no larger than the others");
    }

    #[test]
    fn hundreds_of_announced_cpus_cost_little() {
        let layout = cpus(&[0, 1], &[0, 1], 240).layout(1 << 14, 1 << 20).unwrap();
        assert_eq!(layout.blocks.len(), 2 + SPARES_MAX as usize);
        assert_eq!(layout.slots, 2 * (1 << 14) + SPARES_MAX * (1 << 8));
        assert_eq!(cpus(&[0, 1023], &[0, 1023], 4096).layout(256, 1 << 20).unwrap().blocks.len(), 1024);
        assert!(matches!(cpus(&[0, 1024], &[0], 2048).layout(256, 1 << 20), Err(KernelError::TooManyCpus(1024))));
    }
}
