//! Threads and queues, wired here and nowhere else.
//!
//! ```text
//! kernel, per CPU:  packets -> flow cache -> ring
//! worker, per CPU:  ring -> shard            (never waits for anybody)
//! reader, of taps:  packet sockets -> shard  (where there is no eBPF, or it is not asked for)
//! coordinator:      at each edge orders all workers to close, merges their shards, composes the report
//! sink, one each:   queue -> collector       (may be slow or dead; only its own queue fills)
//! ```

use std::{
    collections::HashSet,
    fs, io,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, never, select};
use rustix::system::uname;
use sd_notify::NotifyState;
use thiserror::Error;
use tracing::{error, info, warn};
use weir_common::ledger::Loss;
use weir_sketch::{MergeError, Seen, hash::Key};

use crate::{
    attach::{
        self, AttachError, Attachments, Ladder, Programs,
        netlink::{Ender, Events, News},
    },
    clock::{self, Moment},
    config::{Compress, Config, KeyError, Packets, Target, Way},
    datapath::online_cpus,
    datapath::{
        kernel::{Kernel, KernelError, Parts, Plan},
        ring::Waker,
        tap::{self, Taps},
    },
    measure::{
        shard::{Geometry, Shard},
        summary::Summary,
        window::{Span, Window},
        worker::{self, Closed, Collector, Order, Throttle, WorkerError},
    },
    memory::{Memory, SHARDS_PER_CPU},
    observer::Observer,
    report::{
        Report, Rings, SelfMetrics, Spool,
        compose::{Context, Measured},
    },
    sink::{self, Encoded, Outbox},
};

/// The coordinator looks after its workers, and at interfaces that could not be attached to, this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at all interfaces, however much happens to them, is at least this.
const FOLLOW_PAUSE: Duration = Duration::from_millis(50);
/// News of interfaces that wait for the coordinator; beyond, the kernel keeps them, or says that it could not.
const NEWS: usize = 1024;
/// How long a stopping daemon waits for its sinks to take the last report.
const FAREWELL: Duration = Duration::from_secs(5);

/// Why the daemon stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The kernel side.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// An interface.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// The readers of packet sockets.
    #[error("cannot make the readers of packet sockets")]
    Taps(#[source] io::Error),
    /// The hash key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A sink.
    #[error("cannot open the {name} sink")]
    Sink {
        /// Which one.
        name: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The HTTP sink's settings.
    #[error(transparent)]
    Http(#[from] sink::HttpError),
    /// A thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// A worker ended without an error or an order.
    #[error("a worker ended without being told to")]
    WorkerGone,
    /// Shards that cannot be merged.
    #[error("the shards of a window do not fit together")]
    Merge(#[from] MergeError),
}

/// Measures and reports until something arrives on `stop` or its sender is gone.
///
/// # Errors
///
/// What keeps the daemon from starting, or from going on.
pub fn run(config: &Config, stop: &Receiver<()>) -> Result<(), RunError> {
    let key = config.hash_key.key()?;
    let cpus = online_cpus()?;
    let interfaces = attach::slots(&config.interfaces);
    let plan = Plan {
        slot_key: key.derive("flow cache"),
        cache_flows: config.datapath.cache_flows,
        ring_bytes: config.datapath.ring as u32,
        sampling: config.sampling.packets,
        interfaces: interfaces as u32,
        tunnels: config.datapath.tunnels.into(),
    };
    let mut kernel = load(config, &plan)?;
    let memory = Memory::plan(config, cpus.len(), kernel.is_some());
    let mut rings = Vec::new();
    if let Some(kernel) = &mut kernel {
        for &cpu in &cpus {
            rings.push((kernel.ring(cpu)?, Throttle::new(&config.sampling, kernel.valves()?)));
        }
    }
    let parts = kernel.as_mut().map(Kernel::parts).transpose()?;

    let sketch_key = key.derive("sketches");
    let geometry = Geometry::from(&config.estimates);
    let shard = || Box::new(Shard::new(&geometry, sketch_key));
    let seen = Arc::new(new_seen(config, sketch_key));
    let outboxes = open_sinks(config)?;
    let (taps, readers) =
        Taps::new(config, &plan, &seen, (0..memory.readers).map(|_| shard())).map_err(RunError::Taps)?;
    let crew = rings.len() + readers.len();
    let spares = (0..crew as u64 * (SHARDS_PER_CPU - 1)).map(|_| shard()).collect();

    thread::scope(|scope| {
        let (closed_in, closed) = bounded(crew);
        let mut workers = Vec::with_capacity(crew);
        let (programs, table, flush) = match parts {
            Some(Parts { weir, tc, flush, interfaces, .. }) => {
                (Some(Programs { xdp: weir, tc }), Some(interfaces), Some(flush))
            }
            None => (None, None, None),
        };
        // Without programs there are no rings.
        if let Some(flush) = flush {
            for (ring, throttle) in rings {
                let (orders, orders_out) = bounded(1);
                let waker = ring.waker();
                let cpu = ring.cpu();
                let collector = Collector::new(ring, flush, seen.clone(), interfaces, shard());
                let closed_in = closed_in.clone();
                let thread = thread::Builder::new()
                    .name(format!("weir-cpu{cpu}"))
                    .spawn_scoped(scope, move || worker::run(collector, throttle, &orders_out, &closed_in))
                    .map_err(RunError::Thread)?;
                workers.push(Worker { orders, waker, thread });
            }
        }
        for (nth, reader) in readers.into_iter().enumerate() {
            let (orders, orders_out) = bounded(1);
            let waker = reader.waker();
            let closed_in = closed_in.clone();
            let thread = thread::Builder::new()
                .name(format!("weir-tap{nth}"))
                .spawn_scoped(scope, move || reader.run(&orders_out, &closed_in))
                .map_err(RunError::Thread)?;
            workers.push(Worker { orders, waker, thread });
        }
        drop(closed_in);
        // Before the interfaces are listed, so that no change falls in between.
        let (events, ender) = Events::open().map_err(AttachError::Links)?;
        let attachments = Attachments::attach(Ladder { programs, taps }, table, &config.interfaces)?;
        let (news_in, news) = bounded(NEWS);
        thread::Builder::new()
            .name("weir-links".to_owned())
            .spawn_scoped(scope, move || events.watch(&news_in))
            .map_err(RunError::Thread)?;
        let mut coordinator = Coordinator {
            config,
            attachments,
            news,
            _ender: ender,
            crew: Crew { workers, closed, spares },
            seen,
            rotated: clock::now().monotonic,
            observer: Observer::of_machine(&config.observer, key.derive("run").id() ^ random_run()),
            outboxes,
            memory,
            cpu_time: clock::cpu_time(),
        };
        coordinator.greet(&cpus);
        let result = coordinator.measure(stop);
        coordinator.leave();
        result
    })
}

/// The kernel side; `None` where packet sockets do, because they are asked for or because nothing else is permitted.
fn load(config: &Config, plan: &Plan) -> Result<Option<Kernel>, KernelError> {
    if !tap::needs_programs(&config.interfaces) {
        return Ok(None);
    }
    match Kernel::load(plan) {
        Err(error) if tap::stand_in(&error, &config.interfaces) => {
            warn!(
                "{error}; until then packets are read from packet sockets (`mode: afpacket`), which costs more and \
                 loses packets sooner"
            );
            Ok(None)
        }
        loaded => loaded.map(Some),
    }
}

/// Another number for every run, even where the hash key is configured.
fn random_run() -> u64 {
    getrandom::u64().unwrap_or_else(|_| clock::now().wall.as_nanosecond() as u64)
}

/// The filter of seen flows, resident from the start.
pub fn new_seen(config: &Config, key: Key) -> Seen {
    let seen = Seen::with_capacity(config.seen_flows.capacity, config.seen_flows.false_positive_rate, key.id());
    seen.clear();
    seen
}

fn open_sinks(config: &Config) -> Result<Vec<Outbox>, RunError> {
    let mut outboxes = Vec::with_capacity(config.sinks.len());
    for sink in &config.sinks {
        let (name, target): (_, Box<dyn sink::Sink>) = match &sink.target {
            Target::Stdout => {
                let opened = sink::Stdout::new().map_err(|source| RunError::Sink { name: "stdout", source })?;
                ("stdout", Box::new(opened))
            }
            Target::File { path } => ("file", Box::new(sink::File::new(path))),
            Target::Http(http) => {
                let compress = http.compress == Compress::Gzip;
                let url = http.url.to_string();
                let headers = http
                    .headers
                    .iter()
                    .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
                ("http", Box::new(sink::Http::new(&url, http.timeout, compress, headers.collect())?))
            }
        };
        outboxes.push(Outbox::start(target, sink.queue).map_err(|source| RunError::Sink { name, source })?);
    }
    Ok(outboxes)
}

struct Worker<'scope> {
    orders: Sender<Order>,
    waker: Waker,
    thread: ScopedJoinHandle<'scope, Result<(), WorkerError>>,
}

/// All workers, and the shards that none of them has.
struct Crew<'scope> {
    workers: Vec<Worker<'scope>>,
    closed: Receiver<Closed>,
    #[expect(clippy::vec_box, reason = "shards travel through channels by their box")]
    spares: Vec<Box<Shard>>,
}

impl Crew<'_> {
    /// Closes the window on every CPU.
    fn close(&mut self) -> Result<Vec<Closed>, RunError> {
        for worker in &self.workers {
            // One spare for each worker: as many come back as go out.
            let Some(spare) = self.spares.pop() else { return Err(RunError::WorkerGone) };
            if worker.orders.send(Order::Close(spare)).is_err() {
                return Err(self.failure());
            }
            worker.waker.wake();
        }
        let mut window = Vec::with_capacity(self.workers.len());
        while window.len() < self.workers.len() {
            match self.closed.recv_timeout(LOOK_EVERY) {
                Ok(closed) => window.push(closed),
                // One that ended after it took its order sends nothing any more.
                Err(RecvTimeoutError::Timeout) if !self.has_failed() => {}
                Err(_) => return Err(self.failure()),
            }
        }
        Ok(window)
    }

    /// Takes the shards back for later windows.
    fn take_back(&mut self, window: Vec<Closed>) {
        for Closed { mut shard, .. } in window {
            shard.clear();
            self.spares.push(shard);
        }
    }

    /// Whether a worker has ended, which it should not.
    fn has_failed(&self) -> bool {
        self.workers.iter().any(|worker| worker.thread.is_finished())
    }

    /// Why a worker ended.
    fn failure(&mut self) -> RunError {
        let finished = self.workers.iter().position(|worker| worker.thread.is_finished());
        match finished.map(|at| self.workers.swap_remove(at).thread.join()) {
            Some(Ok(Err(error))) => error.into(),
            _ => RunError::WorkerGone,
        }
    }
}

struct Coordinator<'a, 'scope> {
    config: &'a Config,
    attachments: Attachments<'a>,
    news: Receiver<News>,
    /// Ends the thread that watches interfaces.
    _ender: Ender,
    crew: Crew<'scope>,
    seen: Arc<Seen>,
    rotated: Duration,
    observer: Observer,
    outboxes: Vec<Outbox>,
    memory: Memory,
    cpu_time: Duration,
}

impl Coordinator<'_, '_> {
    /// Says what was obtained, to the log and to systemd.
    fn greet(&self, cpus: &[u32]) {
        let kernel = uname();
        info!(
            version = env!("CARGO_PKG_VERSION"),
            kernel = %kernel.release().to_string_lossy(),
            cpus = cpus.len(),
            interval_s = self.config.report.interval.as_secs(),
            memory_mib = self.memory.resident() >> 20,
            "measuring {}",
            match self.config.sampling.packets {
                Packets::OneIn(1) => "every packet".to_owned(),
                Packets::OneIn(rate) => format!("one packet in {rate}"),
                Packets::Auto => "every packet, fewer while that is too much".to_owned(),
            }
        );
        let shown = |(name, way, obtained): (&str, Way, attach::Obtained)| match way {
            Way::Ingress => format!("{name} ({})", obtained.name()),
            Way::Egress => format!("{name} egress ({})", obtained.name()),
        };
        let interfaces: Vec<_> = self.attachments.modes().map(shown).collect();
        let status = format!("measuring {}", interfaces.join(", "));
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    fn measure(&mut self, stop: &Receiver<()>) -> Result<(), RunError> {
        let interval = self.config.report.interval;
        let now = clock::now();
        let mut window = Window::open(now, interval);
        let (mut gone, mut followed, mut follow_at) = (HashSet::new(), now.monotonic, now.monotonic + LOOK_EVERY);
        loop {
            let now = clock::now();
            let left = window.left(now).min(follow_at.saturating_sub(now.monotonic));
            select! {
                recv(stop) -> _ => break,
                recv(self.news) -> first => {
                    if first.is_err() {
                        warn!("no more news of interfaces: changes are noticed within a second or two");
                        self.news = never();
                    }
                    follow_at = follow_at.min(followed + FOLLOW_PAUSE);
                    let all = first.into_iter().chain(self.news.try_iter());
                    gone.extend(all.filter_map(|news| match news {
                        News::Gone(ifindex) => Some(ifindex),
                        News::Changed | News::Missed => None,
                    }));
                }
                default(left) => {}
            }
            if self.crew.has_failed() {
                return Err(self.crew.failure());
            }
            let now = clock::now();
            if follow_at <= now.monotonic {
                self.attachments.follow(&std::mem::take(&mut gone));
                (followed, follow_at) = (now.monotonic, now.monotonic + LOOK_EVERY);
            }
            if window.left(now).is_zero() {
                let span;
                (span, window) = window.advance(now, interval);
                self.attachments.look();
                self.close(span, now)?;
            }
        }
        info!("stopping: the last window is closed and reported");
        notify(&[NotifyState::Stopping]);
        self.attachments.look();
        // Detached first: what the programs saw until then is all in the caches and rings.
        self.attachments.detach();
        let now = clock::now();
        self.close(window.cut(now), now)
    }

    /// Closes the window everywhere and reports it.
    fn close(&mut self, span: Span, now: Moment) -> Result<(), RunError> {
        let mut window = self.crew.close()?;
        let slots = attach::slots(&self.config.interfaces);
        let summary = Summary::merge(&mut window, slots, &self.seen, self.config.report.top)?;
        self.crew.take_back(window);
        self.rotate_seen(now);
        let interfaces = self.attachments.close(&summary.ledgers, span.length);
        for Measured { slot, name, .. } in &interfaces {
            let ledger = &summary.ledgers[*slot];
            if !ledger.balances() {
                error!(interface = %name, ?ledger, "the ledger does not balance: this is a defect of weir, please report it");
            }
            let dropped = ledger.counters.lost[Loss::SocketDrop as usize].packets;
            if dropped > 0 {
                warn!(interface = %name, packets = dropped, "the packet socket dropped packets: the report's bounds are wider; try a larger datapath.packet_ring, or eBPF (CAP_BPF)");
            }
            let lost = ledger.lost().packets - dropped;
            if lost > 0 {
                warn!(interface = %name, packets = lost, "the rings were full: the report's bounds are wider; try a larger datapath.ring");
            }
        }
        let context =
            Context { span, observer: self.observer.number(), interfaces, self_metrics: self.self_metrics(&summary) };
        let report = Encoded::new(&Report::compose(context, &summary));
        for outbox in &self.outboxes {
            outbox.offer(report.clone());
        }
        Ok(())
    }

    fn rotate_seen(&mut self, now: Moment) {
        let age = now.monotonic.saturating_sub(self.rotated);
        if age >= self.config.seen_flows.generation || self.seen.should_rotate() {
            self.seen.rotate();
            self.rotated = now.monotonic;
        }
    }

    fn self_metrics(&mut self, summary: &Summary) -> SelfMetrics {
        let cpu_time = clock::cpu_time();
        let spent = cpu_time.saturating_sub(self.cpu_time);
        self.cpu_time = cpu_time;
        SelfMetrics {
            cpu_ns_per_packet: per(spent.as_nanos() as f64, summary.seen().packets),
            rss_bytes: resident_bytes(),
            memory_bytes: self.memory.resident(),
            records: summary.records,
            cache_hit_rate: cache_hit_rate(summary),
            kernel_ns_per_packet: None,
            rings: Rings { peak_fill: summary.ring_peak },
            spool: Spool::default(),
            sinks: self.outboxes.iter().map(Outbox::metrics).collect(),
        }
    }

    /// Lets the sinks deliver what waits, for a while.
    fn leave(self) {
        let Self { crew, outboxes, .. } = self;
        let Crew { workers, .. } = crew;
        for Worker { orders, waker, thread: _ } in workers {
            drop(orders);
            waker.wake();
        }
        for sink in Outbox::finish_all(outboxes, FAREWELL) {
            if sink.queued > 0 {
                warn!(sink = sink.name, reports = sink.queued, "not delivered");
            }
        }
    }
}

/// The share of attributed packets that found their flow in the cache: each other one began a record.
pub fn cache_hit_rate(summary: &Summary) -> f64 {
    let attributed: u64 = summary.ledgers.iter().map(|ledger| ledger.attributed.packets).sum();
    per(attributed.saturating_sub(summary.records) as f64, attributed)
}

fn per(amount: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { amount / count as f64 }
}

/// The resident set, in bytes; 0 where `/proc` does not tell.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("cannot tell systemd: {error}");
    }
}
