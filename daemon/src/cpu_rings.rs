//! Which worker reads the ring of which CPU, and what happens when a CPU comes online or goes offline.
//!
//! The ring of a new CPU goes to the worker with the fewest rings. The ring exists before that, and holds the CPU's
//! records until then. A CPU that goes offline keeps its ring and its worker: what it left is read as before, and it
//! may come back.

use std::{collections::BTreeSet, sync::Arc};

use crossbeam::channel::Sender;
use tracing::{error, info};
use weir_common::ledger::Tally;
use weir_datapath::{FlushProgram, KernelError, RingEvents, Rings, online_cpus};
use weir_measure::lane::KernelSource;
use weir_system::log::Lasting;

use crate::handover;

/// The connection to a worker.
pub struct WorkerHandle<'a> {
    /// Sends it the sources that it should read.
    pub sources: Sender<KernelSource<'a>>,
    /// The events that it waits for.
    pub events: Arc<RingEvents>,
}

/// All CPUs that were ever seen, and the workers that read their rings.
pub struct CpuRings<'a> {
    rings: &'a mut Rings,
    flush: FlushProgram<'a>,
    interfaces: usize,
    worker_handles: Vec<(Vec<u32>, WorkerHandle<'a>)>,
    known: BTreeSet<u32>,
    offline: BTreeSet<u32>,
    looking: Lasting,
}

impl<'a> CpuRings<'a> {
    /// Without CPUs yet. If the rings are handed over to the next weir, they belong to this `generation`.
    pub fn new(
        rings: &'a mut Rings,
        flush: FlushProgram<'a>,
        interfaces: usize,
        generation: Option<u32>,
        worker_handles: Vec<WorkerHandle<'a>>,
    ) -> Self {
        if let Some(generation) = generation {
            for (cpu, ring) in rings.made() {
                handover::keep_ring(generation, cpu, ring);
            }
        }
        let worker_handles = worker_handles.into_iter().map(|worker_handle| (Vec::new(), worker_handle)).collect();
        let looking = Lasting::new("see which CPUs came or went");
        Self { rings, flush, interfaces, worker_handles, known: BTreeSet::new(), offline: BTreeSet::new(), looking }
    }

    /// Prepares for this many interfaces; the number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        self.interfaces = self.interfaces.max(interfaces);
    }

    /// Gives the ring of a CPU to a worker.
    ///
    /// # Errors
    ///
    /// There is no room for this CPU, or the kernel refused to create a ring.
    pub fn add(&mut self, cpu: u32) -> Result<(), KernelError> {
        self.known.insert(cpu);
        let ring = self.rings.take(cpu)?;
        if let Some((cpus, worker_handle)) = self.worker_handles.iter_mut().min_by_key(|(cpus, _)| cpus.len()) {
            cpus.push(cpu);
            worker_handle.events.add(&ring)?;
            // If the worker is gone, the daemon ends and says why.
            let _ = worker_handle.sources.send(KernelSource::new(ring, self.flush, self.interfaces));
            worker_handle.events.waker().wake();
        }
        Ok(())
    }

    /// Everything that all CPUs ever saw on the interface of this slot.
    pub fn seen(&self, slot: usize) -> Tally {
        self.flush.blocks().live().seen(slot)
    }

    /// Everything that was ever lost on the interface of this slot, as far as the programs know.
    pub fn lost(&self, slot: usize) -> Tally {
        self.flush.blocks().live().lost(slot)
    }

    /// The CPUs whose rings the `nth` worker reads.
    pub fn cpus_of(&self, nth: usize) -> &[u32] {
        self.worker_handles.get(nth).map_or(&[], |(cpus, _)| cpus)
    }

    /// Checks which CPUs came or went.
    pub fn look(&mut self) {
        // If this fails, nothing is lost: a window is closed on every CPU, online or not.
        if let Some(online) = self.looking.note(online_cpus()) {
            self.follow(&online.into_iter().collect());
        }
    }

    fn follow(&mut self, online: &BTreeSet<u32>) {
        let Changes { new, gone, back } = Changes::of(&self.known, &self.offline, online);
        for cpu in new {
            match self.add(cpu) {
                Ok(()) => info!(cpu, "a CPU came online: it is measured from now on"),
                Err(error) => error!(cpu, "a CPU came online, but cannot be measured: {error}"),
            }
        }
        for cpu in gone {
            info!(cpu, "a CPU went offline: its remaining records will still be reported");
            self.offline.insert(cpu);
        }
        for cpu in back {
            info!(cpu, "a CPU is back");
            self.offline.remove(&cpu);
        }
    }
}

/// The changes since the last check.
#[derive(Debug, PartialEq, Eq)]
struct Changes {
    new: Vec<u32>,
    gone: Vec<u32>,
    back: Vec<u32>,
}

impl Changes {
    fn of(known: &BTreeSet<u32>, offline: &BTreeSet<u32>, online: &BTreeSet<u32>) -> Self {
        Self {
            new: online.difference(known).copied().collect(),
            gone: known.iter().filter(|cpu| !online.contains(cpu) && !offline.contains(cpu)).copied().collect(),
            back: offline.intersection(online).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_noticed_once() {
        let set = |cpus: &[u32]| cpus.iter().copied().collect::<BTreeSet<_>>();
        let changes = |known: &[u32], offline: &[u32], online: &[u32]| {
            let Changes { new, gone, back } = Changes::of(&set(known), &set(offline), &set(online));
            (new, gone, back)
        };
        assert_eq!(changes(&[0, 1], &[], &[0, 1]), (vec![], vec![], vec![]));
        assert_eq!(changes(&[0, 1], &[], &[0]), (vec![], vec![1], vec![]));
        assert_eq!(changes(&[0, 1], &[1], &[0]), (vec![], vec![], vec![]));
        assert_eq!(changes(&[0, 1], &[1], &[0, 1, 5]), (vec![5], vec![], vec![1]));
    }
}
