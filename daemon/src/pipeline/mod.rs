//! Starts the threads and connects them with queues. No other module does that.
//!
//! [`run`] does it step by step: `setup` decides everything that needs no thread, `takeover` continues the measurement
//! of an earlier weir, and `threads` starts the threads, each with only the rights that it needs.
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
//! page:             serves browsers: files, the last report, each second; another thread asks what is not on the board
//! reloader:         reads the configuration again and prepares it; the coordinator applies it at an edge
//! ```

mod setup;
mod takeover;
mod threads;

use std::{io, mem::take, path::Path, sync::Arc, thread};

use crossbeam::channel::bounded;
use rustix::thread::CapabilitySet;
use thiserror::Error;
use weir_attach::{AttachError, AttachResources, Attacher, Attachments, HookOrder, Programs, netlink::Events};
use weir_config::{Config, HashKey, KeyError, Started, names::GeoError};
use weir_datapath::{Kernel, KernelError, Parts, has_tcx, tap::Taps};
use weir_deliver::{board::Board, prometheus::Exporter, sink, status::Identity};
use weir_history::History;
use weir_measure::batch::RecordBatch;
use weir_report::{alerting::Alerts, closing::Closing, observer::Last, sketches::SketchExporter};
use weir_system::{
    clock,
    lock::LockError,
    privileges::{self, PrivilegedThread},
    sandbox::{self, Places},
    signals::Signals,
};
use weir_web::Web;

use self::{
    setup::{FirstWindow, Setup},
    takeover::inherit,
    threads::Threads,
};
use crate::{
    control::Control,
    coordinator::{Coordinator, Greeting, MeasureError, Measuring, Publisher},
    cpu_rings::CpuRings,
    handover::{Handover, Inheritance},
    history,
    memory::{OverBudget, SHARDS_PER_WORKER},
    needs::{Needs, still_needed},
    reload::{
        InForce, Reloader,
        reloader::{self, Reread},
    },
    web::Answers,
    workers::Workers,
};

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
    /// Whether standard output gets tables for people, not JSON.
    pub has_tables: bool,
    /// Reads the configuration again.
    pub reread: Reread<'a>,
    /// The folders and files that weir may access; `None` means everything that its user may access.
    pub places: Option<Places>,
}

/// Measures and reports until a signal ends it.
///
/// # Errors
///
/// The daemon cannot start, or cannot continue.
pub fn run(config: &Config, start: Start<'_>, signals: Signals) -> Result<(), RunError> {
    let Signals { stop, hangups } = signals;
    let mut inheritance = Inheritance::receive();
    let (mut setup, mut kernel) = Setup::new(config, start.directory, &inheritance)?;
    let (state, spools) = (setup.state.take(), setup.spools.take());
    let setup = &setup;
    let config = &setup.config;
    let valves = setup.valves(kernel.as_ref())?;
    let mut parts = kernel.as_mut().map(Kernel::parts).transpose()?;
    let needs = Needs { has_programs: parts.is_some(), has_tcx: matches!(has_tcx(), Ok(true)) };
    let hook_order = load_programs(parts.as_mut(), needs);

    let FirstWindow { window, mut keys, seen, rotation } = FirstWindow::new(setup, &mut inheritance)?;
    let outboxes = sink::open(&config.sinks, spools.as_ref(), start.has_tables)?;
    let webhook = config.alerts.webhook.as_ref().map(sink::open_webhook).transpose()?;
    let (taps, inboxes) =
        Taps::new(setup.memory.readers as usize, config.datapath.packet_ring as usize).map_err(RunError::Taps)?;
    // The first worker also gets the inherited records.
    let mut first = RecordBatch::new(keys.shard(&config.estimates, &setup.views));
    let spares = (valves.len() + inboxes.len()) as u64 * (SHARDS_PER_WORKER - 1);
    let spares = (0..spares).map(|_| keys.shard(&config.estimates, &setup.views)).collect();

    thread::scope(|scope| {
        let threads = Threads { scope, setup, needs };
        let mut workers = Workers::new(spares);
        let (programs, table, kernel_side) = match parts {
            Some(Parts { xdp, tc, flush, rings, interfaces, .. }) => {
                rings.make_all()?;
                (Some(Programs { xdp, tc }), Some(interfaces), Some((rings, flush)))
            }
            None => (None, None, None),
        };
        let secret = matches!(config.hash_key, HashKey::Random).then_some(setup.secret.first());
        let mut handover =
            kernel_side.as_ref().and_then(|(_, flush)| Handover::begin(&inheritance, *flush, secret, window.begin()));
        // Without programs there are no rings and no workers.
        let (handles, inputs) = threads::connect(valves)?;
        let live = kernel_side.as_ref().map(|(_, flush)| flush.blocks().live());
        let generation = handover.as_ref().map(Handover::generation);
        let mut cpu_rings =
            kernel_side.map(|side| CpuRings::new(side.0, side.1, setup.interfaces(), generation, handles));
        if let Some(cpu_rings) = &mut cpu_rings {
            setup.cpus.online.iter().try_for_each(|cpu| cpu_rings.add(*cpu))?;
        }

        // Listen before the interfaces are listed, so that no change is missed.
        let (events, ender) = Events::open(setup.memory.taps > 0).map_err(AttachError::List)?;
        let inherited = take(&mut inheritance.links);
        let resources = AttachResources { programs, taps, inherited, has_many: false, hook_order };
        let mut attacher = Attacher::new(resources).map_err(AttachError::List)?;
        let directory = setup.views.directory.clone();
        let (mut attachments, channels) =
            Attachments::attach(&mut attacher, table, live, &config.interfaces, directory, start.strict)?;
        if let Some(handover) = &mut handover {
            handover.note(attachments.slot_states());
        }

        let last = inheritance.state().and_then(|state| state.last.clone());
        let mut alerts = Alerts::new(&config.alerts.rules, &setup.views, config.report.interval);
        alerts.resume(inheritance.state().map_or(&[], |state| &state.alerts));
        let earlier = inheritance.names();
        let broken = attacher.settle_inherited();
        let inherited = inherit(inheritance, &broken, &mut attachments, &mut first, &seen, setup.interfaces());
        match &mut handover {
            Some(handover) => handover.take_over(earlier, attachments.slot_states()),
            // Without a handover nothing else removes them.
            None => Inheritance::forget(earlier),
        }

        let mut first = Some(first.into_shard());
        let shard = || first.take().unwrap_or_else(|| keys.shard(&config.estimates, &setup.views));
        threads.start_workers(&mut workers, inputs, inboxes, &seen, shard).map_err(RunError::Thread)?;
        let news = threads.watch_interfaces(events).map_err(RunError::Thread)?;
        let kept = still_needed(&config.interfaces, needs);
        let restrict_chains = threads.attach(attacher, channels, &kept).map_err(RunError::Thread)?;
        let board = Arc::new(Board::new(identity(setup)));
        let (reload, requests) = bounded(1);
        let exporter = Exporter::open(&config.prometheus, board.clone(), config.report.interval);
        let kept_at = start.directory.filter(|_| state.is_some());
        let history = history::start(config, kept_at, setup.observer.identity()).map_err(RunError::Thread)?;
        // The page asks in the same way as clients of the control socket, so it starts after that.
        let page;
        // Dropped before the exporter, the history and the page, which wait for their threads to end.
        let opening = sandbox::Opening;
        let asker = history.as_ref().map(History::asker);
        let control = Control::open(scope, config.control.socket.as_deref(), board.clone(), reload, asker.clone())
            .map_err(RunError::Thread)?;
        let answers = Answers {
            board: board.clone(),
            coordinator: control.coordinator(),
            live: control.asker.clone(),
            history: asker,
        };
        page = Web::open(&config.web, board.clone(), answers.answerer());
        let started = Started {
            has_programs: cpu_rings.is_some(),
            can_sample: config.sampling.packets.leaves_out(),
            has_readers: setup.memory.readers > 0,
            can_filter: PrivilegedThread::Attacher.keeps(&kept).contains(CapabilitySet::NET_ADMIN),
            has_tables: start.has_tables,
            places: start.places,
        };
        let (reloader, reloads) = Reloader::new(
            reloader::Start {
                reread: start.reread,
                started,
                spools,
                cpus: &setup.cpus,
                threads: setup.memory.workers + setup.memory.readers,
            },
            hangups,
            requests,
            InForce::new(config.clone(), setup.interfaces()),
        );
        threads.reload(reloader).map_err(RunError::Thread)?;
        let closing = Closing {
            key_id: keys.id(),
            keys,
            seen,
            rotation,
            interfaces: setup.interfaces(),
            views: setup.views.clone(),
            asks: Vec::new(),
            observer: setup.observer.clone().after(latest(setup.known.clone(), last)),
            memory_bytes: setup.memory.resident(),
            cpu_time: clock::cpu_time(),
            last: None,
            alerts,
            exporter: SketchExporter::new(config.export.clone()),
        };
        let coordinator = Coordinator {
            config: config.clone(),
            measuring: Measuring { attachments, cpu_rings, workers, closing, handover, inherited, last: None },
            publisher: Publisher::new(outboxes, webhook, state, board, exporter, history),
            window,
            news,
            ender,
            control,
            reloads,
            pending: None,
        };

        privileges::give_up_all_but(&kept);
        // The attacher thread keeps its own capabilities.
        privileges::give_up_silently(needs.of_workers());
        if config.sandbox {
            sandbox::close_calls(&kept);
        }
        drop(opening);
        // This fails if no thread waits for it, which does no harm.
        let _ = restrict_chains.send(config.sandbox);
        let greeting = Greeting { cpus: setup.cpus.online.len(), memory: &setup.memory };
        let ended = coordinator.run(greeting, &stop);
        drop(page);
        Ok(ended?)
    })
}

/// Loads every program that an interface may need later, while weir still has the right to. It does so before the first
/// window begins, because on a busy machine the kernel takes a second to verify them.
fn load_programs(parts: Option<&mut Parts<'_>>, needs: Needs) -> HookOrder {
    let mut hook_order = HookOrder::default();
    if let Some(parts) = parts {
        parts.xdp.load_all();
        parts.tc.load_all();
        hook_order.show(&parts.attached());
    }
    if needs.has_programs && needs.has_tcx {
        hook_order.load();
    }
    hook_order
}

/// How this weir identifies itself to clients of the control socket.
fn identity(setup: &Setup) -> Identity {
    Identity {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        started: clock::now().wall,
        interval_seconds: setup.config.report.interval.as_secs(),
        memory_bytes: setup.memory.resident(),
    }
}

/// The later of two candidates for the last report.
fn latest(one: Option<Last>, other: Option<Last>) -> Option<Last> {
    one.into_iter().chain(other).max_by_key(|last| last.seq)
}
