//! The threads of `weir run`, each with only the rights that it needs.

use std::{
    io,
    sync::Arc,
    thread::{self, Scope},
};

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};
use rustix::thread::CapabilitySet;
use weir_attach::{
    Attacher, Channels,
    netlink::{Events, News},
};
use weir_datapath::{Chains, KernelError, RingEvents, maps::Valves, tap::ReaderCommands};
use weir_measure::{
    batch::RecordBatch,
    keys::Keys,
    lane::KernelSource,
    reader::Reader,
    ring_aggregator::RingAggregator,
    shard::Shard,
    worker::{self, Throttle},
};
use weir_sketch::Seen;
use weir_system::{
    privileges::{self, NeededCapability, PrivilegedThread},
    sandbox,
};

use super::setup::Setup;
use crate::{cpu_rings::WorkerHandle, needs::Needs, reload::reloader::Reloader, workers::Workers};

/// How many changes of interfaces may be queued for the coordinator. The kernel queues further changes, or reports an
/// overflow.
const NEWS: usize = 1024;

/// The source of a worker's rings.
pub struct WorkerInput<'a> {
    valves: Valves,
    events: Arc<RingEvents>,
    newcomers: Receiver<KernelSource<'a>>,
}

/// The inputs of the threads that measure.
pub struct Inputs<'a> {
    /// One for each worker. Without programs there are no rings and no workers.
    pub workers: Vec<WorkerInput<'a>>,
    /// The ends of the readers of packet sockets, one for each.
    pub readers: Vec<ReaderCommands>,
}

/// The shards of the first window.
pub struct FirstShards<'a> {
    /// The shard of the first thread, with the inherited records.
    pub batch: RecordBatch,
    /// The spares of all threads.
    pub spares: Vec<Box<Shard>>,
    /// The keys for the shards of the other threads.
    pub keys: &'a mut Keys,
    /// The filter of seen flows.
    pub seen: &'a Arc<Seen>,
}

/// A handle and an input for each worker. There is one worker for each of the valves.
///
/// # Errors
///
/// No file descriptor is left.
pub fn connect<'a>(valves: Vec<Valves>) -> Result<(Vec<WorkerHandle<'a>>, Vec<WorkerInput<'a>>), KernelError> {
    let (mut handles, mut inputs) = (Vec::new(), Vec::new());
    for valves in valves {
        let events = Arc::new(RingEvents::new()?);
        let (sources, newcomers) = unbounded();
        handles.push(WorkerHandle { sources, events: events.clone() });
        inputs.push(WorkerInput { valves, events, newcomers });
    }
    Ok((handles, inputs))
}

/// Starts threads in a scope.
#[derive(Clone, Copy)]
pub struct Threads<'scope, 'env> {
    /// The scope that waits for the threads to end.
    pub scope: &'scope Scope<'scope, 'env>,
    /// The rights that the kernel demands.
    pub needs: Needs,
}

impl<'scope> Threads<'scope, '_> {
    /// Starts the workers, which read rings, and the readers, which read packet sockets.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn start_workers<'k: 'scope>(
        self,
        setup: &Setup,
        inputs: Inputs<'k>,
        shards: FirstShards<'_>,
    ) -> io::Result<Workers<'scope>> {
        let Setup { config, plan, .. } = setup;
        let FirstShards { batch, spares, keys, seen } = shards;
        let mut workers = Workers::new(spares);
        let mut first = Some(batch.into_shard());
        let mut shard = || first.take().unwrap_or_else(|| keys.shard(&config.estimates, &setup.views));
        for (nth, WorkerInput { mut valves, events, newcomers }) in inputs.workers.into_iter().enumerate() {
            let aggregator = RingAggregator::new(seen.clone(), setup.interfaces(), shard());
            let throttle = Throttle::new(&config.sampling, move |cpu, rate| valves.set(cpu, rate));
            let waker = events.waker();
            let wait = move |patience| events.wait(patience);
            let work =
                move |orders: &_, closed: &_| worker::run(aggregator, &newcomers, throttle, wait, orders, closed);
            workers.spawn(self.scope, format!("weir-worker{nth}"), self.needs.of_workers(), waker, work)?;
        }
        for (nth, inbox) in inputs.readers.into_iter().enumerate() {
            let reader = Reader::new(inbox, &plan.of_reader(nth), &config.sampling, seen.clone(), shard());
            let waker = reader.waker();
            let work = move |orders: &_, closed: &_| reader.run(orders, closed);
            workers.spawn(self.scope, format!("weir-tap{nth}"), CapabilitySet::empty(), waker, work)?;
        }
        Ok(workers)
    }

    /// Starts the thread that waits for changes of interfaces.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn watch_interfaces(self, events: Events) -> io::Result<Receiver<News>> {
        let (news_in, news) = bounded(NEWS);
        self.spawn("weir-links", move || {
            privileges::give_up_all();
            events.watch(&news_in);
        })?;
        Ok(news)
    }

    /// Starts the thread that attaches. If a right is kept only to ask which programs run before weir's, a second
    /// thread has it. The second thread restricts itself as soon as it receives `true` from the returned sender.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn attach<'k: 'scope>(
        self,
        mut attacher: Attacher<'k>,
        channels: Channels,
        kept: &[NeededCapability],
    ) -> io::Result<Sender<bool>> {
        let of_attacher = PrivilegedThread::Attacher.keeps(kept);
        let of_chains = PrivilegedThread::Chains.keeps(kept);
        let (closed, is_closed) = bounded(1);
        if !of_chains.is_empty() {
            let (chains, asker) = Chains::by_thread();
            attacher.ask_by(chains);
            self.spawn("weir-chains", move || {
                privileges::give_up_silently(of_chains);
                if is_closed.recv() == Ok(true) {
                    sandbox::close_to_all_but_questions();
                }
                asker.run();
            })?;
        }
        self.spawn("weir-attach", move || {
            privileges::give_up_silently(of_attacher);
            attacher.run(&channels);
        })?;
        Ok(closed)
    }

    /// Starts the thread that prepares new configurations.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn reload<'k: 'scope>(self, reloader: Reloader<'k>) -> io::Result<()> {
        self.spawn("weir-reload", move || {
            privileges::give_up_all_but_files();
            reloader.run();
        })
    }

    fn spawn(self, name: &str, work: impl FnOnce() + Send + 'scope) -> io::Result<()> {
        thread::Builder::new().name(name.to_owned()).spawn_scoped(self.scope, work).map(drop)
    }
}
