//! Which worker reads which CPU's ring, and what happens when a CPU comes or goes.
//!
//! The ring of a CPU that comes goes to the worker that has the fewest. It is there before, and holds the CPU's records
//! until then. A CPU that goes keeps its ring and its worker: what it left is read as if it were there, and it may come
//! back.

use std::{collections::BTreeSet, sync::Arc};

use crossbeam::channel::Sender;
use tracing::{error, info};
use weir_common::ledger::Tally;

use crate::{
    datapath::{FlushProgram, KernelError, RingEvents, Rings, online_cpus},
    handover,
    log::Lasting,
    measure::lane::KernelSource,
};

/// The way to a worker.
pub struct WorkerHandle<'a> {
    /// Takes the sources that it is to read.
    pub sources: Sender<KernelSource<'a>>,
    /// What it waits for.
    pub events: Arc<RingEvents>,
}

/// All CPUs that were ever seen, and the workers that read their rings.
pub struct Fleet<'a> {
    rings: &'a mut Rings,
    flush: FlushProgram<'a>,
    interfaces: usize,
    worker_handles: Vec<(Vec<u32>, WorkerHandle<'a>)>,
    known: BTreeSet<u32>,
    offline: BTreeSet<u32>,
    looking: Lasting,
}

impl<'a> Fleet<'a> {
    /// A fleet that has no CPU yet. Its rings belong to this `generation`, if they are left to the next weir.
    pub fn new(
        (rings, flush): (&'a mut Rings, FlushProgram<'a>),
        interfaces: usize,
        generation: Option<u32>,
        worker_handles: Vec<WorkerHandle<'a>>,
    ) -> Self {
        if let Some(generation) = generation {
            rings.made().for_each(|(cpu, ring)| handover::keep_ring(generation, cpu, ring));
        }
        let worker_handles = worker_handles.into_iter().map(|worker_handle| (Vec::new(), worker_handle)).collect();
        let looking = Lasting::new("see which CPUs came or went");
        Self { rings, flush, interfaces, worker_handles, known: BTreeSet::new(), offline: BTreeSet::new(), looking }
    }

    /// Knows this many interfaces from now on; never fewer than before.
    pub fn provide(&mut self, interfaces: usize) {
        self.interfaces = self.interfaces.max(interfaces);
    }

    /// Gives the ring of a CPU to a worker.
    ///
    /// # Errors
    ///
    /// There is no place for this CPU, or the kernel refused to make a ring.
    pub fn add(&mut self, cpu: u32) -> Result<(), KernelError> {
        self.known.insert(cpu);
        let ring = self.rings.take(cpu)?;
        if let Some((cpus, worker_handle)) = self.worker_handles.iter_mut().min_by_key(|(cpus, _)| cpus.len()) {
            cpus.push(cpu);
            worker_handle.events.add(&ring)?;
            // A worker that is gone ends the daemon, and says why.
            let _ = worker_handle.sources.send(KernelSource::new(ring, self.flush, self.interfaces));
            worker_handle.events.waker().wake();
        }
        Ok(())
    }

    /// Everything that was ever seen on the interface of this slot, on all CPUs.
    pub fn seen(&self, slot: usize) -> Tally {
        self.flush.blocks().live().seen(slot)
    }

    /// The CPUs whose rings the `nth` worker reads.
    pub fn cpus_of(&self, nth: usize) -> &[u32] {
        self.worker_handles.get(nth).map_or(&[], |(cpus, _)| cpus)
    }

    /// Looks which CPUs came and went.
    pub fn look(&mut self) {
        // If it fails, nothing is lost: a window is closed on each CPU, there or not.
        if let Some(online) = self.looking.note(online_cpus()) {
            self.follow(&online.into_iter().collect());
        }
    }

    fn follow(&mut self, online: &BTreeSet<u32>) {
        let Changes { new, gone, back } = Changes::of(&self.known, &self.offline, online);
        for cpu in new {
            match self.add(cpu) {
                Ok(()) => info!(cpu, "a CPU came: it is measured from now on"),
                Err(error) => error!(cpu, "a CPU came, and it is not measured: {error}"),
            }
        }
        for cpu in gone {
            info!(cpu, "a CPU went offline: what it left is reported");
            self.offline.insert(cpu);
        }
        for cpu in back {
            info!(cpu, "a CPU is back");
            self.offline.remove(&cpu);
        }
    }
}

/// What became of the CPUs.
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
