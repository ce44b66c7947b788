//! Starts the threads and connects them with queues; nothing else does that.
//!
//! ```text
//! kernel, per CPU:  packets -> flow cache -> ring
//! worker, a few:    rings -> shard           (never waits)
//! reader, of taps:  packet sockets -> shard  (where there is no eBPF, or it is not asked for)
//! attacher:         lists interfaces, attaches to them, checks the attachments; may wait for the kernel's lock
//! chains:           asks which programs run before weir's; has the capability for that, and no other system call
//! coordinator:      at each edge has all workers close, merges their shards, composes the report
//! sink, two each:   spool -> collector       (may be slow or dead; only its own spool fills; a webhook is one, too)
//! control:          answers queries: the last report, and keys in the last window
//! metrics:          exports to Prometheus: the last report, and sums of all
//! reloader:         reads the configuration again and prepares it; the coordinator applies it at an edge
//! ```

use std::{io, mem::take, path::Path, sync::Arc, thread};

use crossbeam::channel::{bounded, unbounded};
use rustix::thread::CapabilitySet;
use thiserror::Error;
use tracing::{info, warn};
use weir_attach::{AttachError, Attacher, Attachments, Ladder, Programs, Standing, netlink::Events};
use weir_config::{Config, HashKey, Interface, KeyError, Where, names::GeoError, slots};
use weir_datapath::{
    Chains, Cpus, Edge, Kernel, KernelError, Parts, Plan, RingEvents, descriptors, has_tcx, syscall,
    tap::{self, Taps},
};
use weir_deliver::{
    board::Board,
    prometheus::Exporter,
    sink,
    spool::{Limits, place::Place},
    status::Identity,
};
use weir_measure::{
    batch::Batch,
    collector::Collector,
    keys::Keys,
    question::Views,
    reader::Reader,
    seen::{self, Rotation},
    window::Window,
    worker::{self, Throttle},
};
use weir_report::alerting::Alerts;
use weir_sketch::Seen;
use weir_system::{
    clock,
    lock::LockError,
    privileges::{self, Keeper},
    sandbox::{self, Places},
    signals::Signals,
    text::with_causes,
};

use crate::{
    closing::Closing,
    control::Control,
    coordinator::{Coordinator, MeasureError},
    fleet::{Fleet, WorkerHandle},
    handover::{Handover, Inheritance, previous_run::Inherited},
    memory::{Memory, OverBudget, SHARDS_PER_WORKER},
    needs::{Needs, still_needed},
    observer::Observer,
    reload::{Reloader, Started, reloader::Reread},
    state::{Last, State},
    workers::Workers,
};

/// How many news of interfaces may be queued for the coordinator. The kernel queues further ones, or reports an
/// overflow.
const NEWS: usize = 1024;

/// Why the daemon stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The kernel side failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An interface cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The readers of packet sockets cannot be created.
    #[error("cannot make the readers of packet sockets")]
    Taps(#[source] io::Error),
    /// The hash key is not usable.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A geo database is not usable.
    #[error(transparent)]
    Geo(#[from] GeoError),
    /// The plan needs more memory than the configuration allows.
    #[error(transparent)]
    Budget(#[from] OverBudget),
    /// Another weir uses this folder.
    #[error(transparent)]
    Taken(#[from] LockError),
    /// A sink cannot be opened.
    #[error(transparent)]
    Sink(#[from] sink::OpenError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// Measuring could not continue.
    #[error(transparent)]
    Measure(#[from] MeasureError),
}

/// How the daemon is started, apart from its configuration.
pub struct Start<'a> {
    /// Where the number of the last report is kept across restarts.
    pub directory: Option<&'a Path>,
    /// Whether a missing interface is an error at start.
    pub strict: bool,
    /// Reads the configuration again.
    pub reread: Reread<'a>,
    /// The folders and files that weir can access; `None` if everything that its user may access.
    pub places: Option<Places>,
}

/// Measures and reports until a signal ends it.
///
/// # Errors
///
/// The daemon cannot start, or cannot continue.
pub fn run(config: Config, start: Start<'_>, signals: Signals) -> Result<(), RunError> {
    let Signals { stop, hangups } = signals;
    let config = &Arc::new(config);
    let mut inheritance = Inheritance::receive();
    let key = match (&config.hash_key, inheritance.secret()) {
        (HashKey::Random, Some(secret)) => secret,
        (hash_key, _) => hash_key.key()?,
    };
    // Lock the folders before attaching: a second weir with the same folders must not disturb the first one.
    let observer = Observer::of_machine(&config.observer, key.derive("run").id() ^ random_run());
    let (state, known) =
        start.directory.map_or(Ok((None, None)), |directory| State::open(directory, observer.identity()))?;
    let spools = spools(config, start.directory)?;
    let cpus = Cpus::of_this_machine()?;
    let plan = Plan::drawn(config, &cpus)?;
    let interfaces = plan.interfaces as usize;
    let mut kernel = load(config, &plan)?;
    let views = Views::new(config, slots(&config.interfaces))?;
    let memory = Memory::plan(config, &views, &cpus, kernel.is_some());
    memory.check_budget(config, &views, &cpus)?;
    let mut valves = Vec::new();
    if let Some(kernel) = &kernel {
        let any_number = config.interfaces.iter().any(Interface::is_pattern);
        let threads = memory.workers + memory.readers;
        descriptors::provide(cpus.possible.into(), threads, any_number).map_err(KernelError::from)?;
        for _ in 0..memory.workers {
            valves.push(kernel.valves()?);
        }
    }
    let mut parts = kernel.as_mut().map(Kernel::parts).transpose()?;
    let needs = Needs { has_programs: parts.is_some(), has_tcx: matches!(has_tcx(), Ok(true)) };
    // Load every program that an interface may need later, while weir still may. Do it before the first window begins:
    // on a busy machine the kernel takes a second to verify them.
    let mut standing = Standing::default();
    if let Some(parts) = &mut parts {
        parts.xdp.load_all();
        parts.tc.load_all();
        standing.show(&parts.attached());
    }
    if needs.has_programs && needs.has_tcx {
        standing.load();
    }

    // The first window begins here, before the first packet is counted. Its day determines the key of all shards.
    let last_end = inheritance.state().map(|state| state.until);
    let (now, interval) = (clock::now(), config.report.interval);
    let window = last_end.map_or_else(|| Window::open(now, interval), |end| Window::resume(end, now, interval));
    let mut keys = Keys::new(key, HashKey::Random.key()?, window.start());
    let empty = seen::filter(&config.seen_flows, keys.id());
    let (seen, begun) = inheritance.seen(&empty).unwrap_or((empty, None));
    let seen = Arc::new(seen);
    let rotation = Rotation::new(config.seen_flows.generation, begun.or(Some(clock::now().monotonic)));
    let outboxes = sink::open(&config.sinks, spools.as_ref())?;
    let webhook = config.alerts.webhook.as_ref().map(sink::open_webhook).transpose()?;
    let (taps, inboxes) =
        Taps::new(memory.readers as usize, config.datapath.packet_ring as usize).map_err(RunError::Taps)?;
    let threads = valves.len() + inboxes.len();
    // The first worker also gets the inherited records.
    let mut first = Batch::new(keys.shard(&config.estimates, &views));
    let spares = (0..threads as u64 * (SHARDS_PER_WORKER - 1)).map(|_| keys.shard(&config.estimates, &views)).collect();

    thread::scope(|scope| {
        let mut workers = Workers::new(spares);
        let (programs, table, kernel_side) = match parts {
            Some(Parts { xdp, tc, flush, rings, interfaces, .. }) => {
                rings.make_all()?;
                (Some(Programs { xdp, tc }), Some(interfaces), Some((rings, flush)))
            }
            None => (None, None, None),
        };
        let secret = matches!(config.hash_key, HashKey::Random).then_some(key);
        let mut handover =
            kernel_side.as_ref().and_then(|(_, flush)| Handover::begin(&inheritance, *flush, secret, window.begin()));
        // Without programs there are no rings and no workers.
        let (mut worker_handles, mut inputs) = (Vec::new(), Vec::new());
        for valves in valves {
            let events = Arc::new(RingEvents::new()?);
            let (sources, newcomers) = unbounded();
            inputs.push((valves, events.clone(), newcomers));
            worker_handles.push(WorkerHandle { sources, events });
        }
        let live = kernel_side.as_ref().map(|(_, flush)| flush.blocks().live());
        let generation = handover.as_ref().map(Handover::generation);
        let mut fleet = kernel_side.map(|kernel_side| Fleet::new(kernel_side, interfaces, generation, worker_handles));
        if let Some(fleet) = &mut fleet {
            cpus.online.iter().try_for_each(|cpu| fleet.add(*cpu))?;
        }
        // Listen before the interfaces are listed, so that no change is missed.
        let (events, ender) = Events::open(memory.taps > 0).map_err(AttachError::List)?;
        let inherited = take(&mut inheritance.links);
        let ladder = Ladder { programs, taps, inherited, has_many: false, standing };
        let mut attacher = Attacher::new(ladder).map_err(AttachError::List)?;
        let (mut attachments, channels) = Attachments::attach(
            &mut attacher,
            (table, live),
            &config.interfaces,
            views.directory.clone(),
            start.strict,
        )?;
        if let Some(handover) = &mut handover {
            handover.note(attachments.slot_states());
        }
        let last = inheritance.state().and_then(|state| state.last.clone());
        let mut alerts = Alerts::new(&config.alerts.rules, config.report.interval);
        alerts.resume(inheritance.state().map_or(&[], |state| &state.alerts));
        let earlier = inheritance.names();
        let broken = attacher.settle_inherited();
        let inherited = inherit(inheritance, &broken, &mut attachments, (&mut first, &seen), interfaces);
        match &mut handover {
            Some(handover) => handover.take_over(earlier),
            // Without a handover nobody else removes them.
            None => Inheritance::forget(earlier),
        }
        let mut first = Some(first.into_shard());
        let mut shard = |keys: &mut Keys| first.take().unwrap_or_else(|| keys.shard(&config.estimates, &views));
        for (nth, (mut valves, events, newcomers)) in inputs.into_iter().enumerate() {
            let collector = Collector::new(seen.clone(), interfaces, shard(&mut keys));
            let throttle = Throttle::new(&config.sampling, move |cpu, rate| valves.set(cpu, rate));
            let waker = events.waker();
            let wait = move |patience| events.wait(patience);
            let work = move |orders: &_, closed: &_| worker::run(collector, &newcomers, throttle, wait, orders, closed);
            workers
                .spawn(scope, (format!("weir-worker{nth}"), needs.of_workers()), waker, work)
                .map_err(RunError::Thread)?;
        }
        for (nth, inbox) in inboxes.into_iter().enumerate() {
            let reader = Reader::new(inbox, &plan.of_reader(nth), &config.sampling, seen.clone(), shard(&mut keys));
            let waker = reader.waker();
            let work = move |orders: &_, closed: &_| reader.run(orders, closed);
            workers
                .spawn(scope, (format!("weir-tap{nth}"), CapabilitySet::empty()), waker, work)
                .map_err(RunError::Thread)?;
        }
        let (news_in, news) = bounded(NEWS);
        thread::Builder::new()
            .name("weir-links".to_owned())
            .spawn_scoped(scope, move || {
                privileges::give_up_all();
                events.watch(&news_in);
            })
            .map_err(RunError::Thread)?;
        let closing = Closing {
            key_id: keys.id(),
            keys,
            seen,
            rotation,
            interfaces,
            views,
            asks: Vec::new(),
            observer: observer.after(latest(known, last)),
            memory_bytes: memory.resident(),
            cpu_time: clock::cpu_time(),
            last: None,
            alerts,
        };
        let kept = still_needed(&config.interfaces, needs);
        let of_attacher = Keeper::Attacher.keeps(&kept);
        let of_chains = Keeper::Chains.keeps(&kept);
        // Restricts itself once all threads are restricted.
        let (closed, is_closed) = bounded(1);
        if !of_chains.is_empty() {
            let (chains, asker) = Chains::by_thread();
            attacher.ask_by(chains);
            thread::Builder::new()
                .name("weir-chains".to_owned())
                .spawn_scoped(scope, move || {
                    privileges::give_up_silently(of_chains);
                    if is_closed.recv() == Ok(true) {
                        sandbox::close_to_all_but_questions();
                    }
                    asker.run();
                })
                .map_err(RunError::Thread)?;
        }
        thread::Builder::new()
            .name("weir-attach".to_owned())
            .spawn_scoped(scope, move || {
                privileges::give_up_silently(of_attacher);
                attacher.run(&channels);
            })
            .map_err(RunError::Thread)?;
        let identity = Identity {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: clock::now().wall,
            interval_seconds: config.report.interval.as_secs(),
            memory_bytes: memory.resident(),
        };
        let board = Arc::new(Board::new(identity));
        let (reload, requests) = bounded(1);
        let exporter =
            config.prometheus.listen.and_then(|listen| Exporter::open(listen, board.clone(), config.report.interval));
        // Dropped before the exporter, which waits for its thread to end.
        let opening = sandbox::Opening;
        let control = Control::open(scope, config.control.socket.as_deref(), board, reload);
        let started = Started {
            has_programs: fleet.is_some(),
            can_sample: config.sampling.packets.leaves_out(),
            has_readers: memory.readers > 0,
            can_filter: of_attacher.contains(CapabilitySet::NET_ADMIN),
            places: start.places,
        };
        let (reloader, reloads) = Reloader::new(
            (start.reread, hangups),
            requests,
            (config.clone(), interfaces),
            (started, spools),
            (&cpus, memory.workers + memory.readers),
        );
        thread::Builder::new()
            .name("weir-reload".to_owned())
            .spawn_scoped(scope, move || {
                privileges::give_up_all_but_files();
                reloader.run();
            })
            .map_err(RunError::Thread)?;
        let coordinator = Coordinator {
            config: config.clone(),
            attachments,
            news,
            ender,
            fleet,
            workers,
            closing,
            outboxes,
            webhook,
            state,
            window,
            control: control.map_err(RunError::Thread)?,
            exporter,
            reloads,
            pending: None,
            kept: None,
            handover,
            inherited,
        };
        privileges::give_up_all_but(&kept);
        // The attacher thread still has them.
        privileges::give_up_silently(needs.of_workers());
        if config.sandbox {
            sandbox::close_calls(&kept);
        }
        drop(opening);
        // Nobody receives it where no thread waits for it.
        let _ = closed.send(config.sandbox);
        Ok(coordinator.run(cpus.online.len(), &memory, &stop)?)
    })
}

/// Reads what earlier weirs left behind into the first window: records go into `batch`, counters into the returned
/// edge. `broken` are those of their links that could not be taken over.
fn inherit(
    inheritance: Inheritance,
    broken: &[(syscall::Hook, u32)],
    attachments: &mut Attachments<'_>,
    (batch, seen): (&mut Batch, &Seen),
    interfaces: usize,
) -> Option<Edge> {
    let (pages, until) = inheritance.state().map(|state| (state.pages.clone(), state.until))?;
    // A CPU may still be running an old program that was replaced.
    syscall::wait_for_programs();
    let mut edge = Edge::empty(interfaces);
    for previous_run in inheritance.previous_runs {
        match previous_run.settle(|slot_state| attachments.slot_of(slot_state), (batch, seen), &mut edge) {
            Ok(Inherited { packets, lost, left_out }) => {
                info!(
                    packets = packets.packets,
                    lost = lost.packets,
                    "took over from an earlier weir: the first report begins where its last one ended"
                );
                if !left_out.is_zero() {
                    warn!(
                        packets = left_out.packets,
                        "an earlier weir has measured an interface that is not measured now: these packets of it, since its \
                         last report, are in no report"
                    );
                }
            }
            Err(error) => warn!("cannot read what an earlier weir has left: {}", with_causes(&error)),
        }
    }
    attachments.resume(&pages, &edge, until.monotonic, broken);
    Some(edge)
}

/// Where reports wait on disk for their sinks; `None` if they wait in memory, which is logged.
fn spools(config: &Config, state_directory: Option<&Path>) -> Result<Option<Place>, LockError> {
    let targets: Vec<_> = config.sinks.iter().filter_map(|sink| sink.target.spool_key()).collect();
    if targets.is_empty() {
        return Ok(None);
    }
    let in_memory = "undelivered reports wait in memory, which has room for a few: a restart loses them";
    let Some(folder) = config.spool.folder(state_directory) else {
        let is_asked_for = config.spool.path == Where::StateDirectory;
        if is_asked_for && config.sinks.iter().any(|sink| sink.target.is_remote()) {
            warn!("no spool: {in_memory}. Say where they may wait on disk: `spool: {{path: /var/lib/weir/spool}}`");
        }
        return Ok(None);
    };
    match Place::take(&folder, Limits::of(&config.spool)) {
        Ok(place) => {
            place.tell_unused(&targets);
            Ok(Some(place))
        }
        Err(taken @ LockError::Taken { .. }) => Err(taken),
        Err(error) => {
            warn!("the spool cannot be used: {error}; {in_memory}");
            Ok(None)
        }
    }
}

/// The later of two candidates for the last report.
fn latest(one: Option<Last>, other: Option<Last>) -> Option<Last> {
    one.into_iter().chain(other).max_by_key(|last| last.seq)
}

/// Loads the kernel side; `None` if packet sockets suffice: because they are configured, or nothing else is permitted.
fn load(config: &Config, plan: &Plan) -> Result<Option<Kernel>, KernelError> {
    if !tap::needs_programs(&config.interfaces) {
        return Ok(None);
    }
    match Kernel::load(plan) {
        Err(error) if tap::stand_in(&error, &config.interfaces) => {
            warn!(
                "{error}; until then weir reads packet sockets (`mode: afpacket`), which cost more and lose packets \
                 sooner"
            );
            Ok(None)
        }
        loaded => loaded.map(Some),
    }
}

/// A different number for every run, even if the hash key is configured.
fn random_run() -> u64 {
    getrandom::u64().unwrap_or_else(|_| clock::now().wall.as_nanosecond() as u64)
}
