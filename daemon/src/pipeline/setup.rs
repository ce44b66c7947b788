//! The decisions that are made before the first thread starts: keys, folders, sizes, views, memory.

use std::{path::Path, sync::Arc};

use tracing::warn;
use weir_config::{Config, HashKey, Interface, Location, Secret, names::Geo, slots};
use weir_datapath::{Cpus, Kernel, KernelError, Plan, descriptors, maps::Valves, tap};
use weir_deliver::spool::{Limits, root::SpoolRoot};
use weir_history::local::LocalFile;
use weir_measure::{
    batch::RecordBatch,
    keys::Keys,
    local::Local,
    question::Views,
    seen::{self, Rotation},
    shard::Shard,
    window::Window,
};
use weir_report::observer::{Last, Observer};
use weir_sketch::Seen;
use weir_system::{clock, lock::LockError};

use super::RunError;
use crate::{
    handover::Inheritance,
    local,
    memory::{self, Fit, Fitted, Memory, SHARDS_PER_WORKER, allocator},
    state::LastReportFile,
};

/// Everything that is fixed until weir ends, apart from what a reload changes.
pub struct Setup {
    /// The configuration at the start.
    pub config: Arc<Config>,
    /// The secret that all keys are derived from.
    pub secret: Secret,
    /// The machine that reports.
    pub observer: Observer,
    /// The CPUs of the machine.
    pub cpus: Cpus,
    /// The sizes of the datapath.
    pub plan: Plan,
    /// The views of the configuration.
    pub views: Arc<Views>,
    /// The planned memory, and how many workers and readers there are.
    pub memory: Memory,
}

/// The folders that are locked for this weir.
pub struct Folders {
    /// The file that keeps the number of the last report.
    pub state: Option<LastReportFile>,
    /// The last report that the state directory knows.
    pub known: Option<Last>,
    /// The folder in which reports wait on disk.
    pub spools: Option<SpoolRoot>,
}

impl Setup {
    /// Locks the folders, then loads the kernel side, if one is wanted and possible.
    ///
    /// # Errors
    ///
    /// weir cannot start with this configuration on this machine.
    pub fn new(
        config: &Config,
        directory: Option<&Path>,
        inheritance: &Inheritance,
    ) -> Result<(Self, Folders, Option<Kernel>), RunError> {
        let cpus = Cpus::of_this_machine()?;
        let has_programs = tap::needs_programs(&config.interfaces);
        let geo = Arc::new(Geo::open(&config.geo)?);
        let machine = Fit { cpus: &cpus, has_programs, interfaces: slots(&config.interfaces), running: None };
        let mut fitted = memory::fit(config, machine, &geo);
        let secret = match (&config.hash_key, inheritance.secret()) {
            (HashKey::Random, Some(secret)) => secret.into(),
            (hash_key, _) => hash_key.secret()?,
        };
        // Lock the folders before attaching: a second weir with the same folders must not disturb the first one.
        let observer = Observer::of_machine(&config.observer, secret.first().derive("run").id() ^ random_run());
        let (state, known) =
            directory.map_or(Ok((None, None)), |directory| LastReportFile::open(directory, observer.identity()))?;
        let folders = Folders { state, known, spools: spools(config, directory)? };
        let mut plan = Plan::drawn(&fitted.config, &cpus)?;
        let kernel = load(config, &plan)?;
        allocator::give_back_now();
        // Packet sockets in place of programs need other memory.
        let machine = Fit { has_programs: kernel.is_some(), ..machine };
        if has_programs && kernel.is_none() {
            fitted = memory::fit(config, machine, &geo);
            plan = Plan::drawn(&fitted.config, &cpus)?;
        }
        fitted.check(config, machine)?;
        let Fitted { config, views, memory, smaller, kept: _ } = fitted;
        if let Some(smaller) = smaller {
            warn!("`memory` allows less than the defaults need, so these are smaller: {smaller}");
        }
        let config = Arc::new(config);
        Ok((Self { config, secret, observer, cpus, plan, views, memory }, folders, kernel))
    }

    /// How many interface slots there are.
    pub const fn interfaces(&self) -> usize {
        self.plan.interfaces as usize
    }

    /// Makes room for file descriptors. Returns a handle for each worker, which sets how many packets its CPUs take.
    ///
    /// # Errors
    ///
    /// The system allows too few descriptors.
    pub fn valves(&self, kernel: Option<&Kernel>) -> Result<Vec<Valves>, KernelError> {
        let Some(kernel) = kernel else { return Ok(Vec::new()) };
        let any_number = self.config.interfaces.iter().any(Interface::is_pattern);
        let threads = self.memory.workers + self.memory.readers;
        descriptors::provide(self.cpus.possible.into(), threads, any_number)?;
        (0..self.memory.workers).map(|_| kernel.valves()).collect()
    }
}

/// The things that the first window begins with.
pub struct FirstWindow {
    /// The first window.
    pub window: Window,
    /// The keys of its day.
    pub keys: Keys,
    /// The filter of seen flows.
    pub seen: Arc<Seen>,
    /// The time at which that filter is rotated.
    pub rotation: Rotation,
    /// The shard of the first worker or reader. It also gets the inherited records.
    pub batch: RecordBatch,
    /// What is measured with the local key, if anything is.
    pub local: Option<Local>,
    /// The file in which that outlives a restart.
    pub local_file: Option<LocalFile>,
    /// The spare shards of all workers and readers.
    pub spares: Vec<Box<Shard>>,
}

impl FirstWindow {
    /// The first window begins here, before the first packet is counted, or where the last one of an earlier weir
    /// ended. It is short, so that the first report comes soon. Its day determines the key of all shards.
    ///
    /// # Errors
    ///
    /// The system has no random numbers.
    pub fn new(setup: &Setup, inheritance: &mut Inheritance, state_directory: Option<&Path>) -> Result<Self, RunError> {
        let Setup { config, secret, .. } = setup;
        let last_end = inheritance.state().map(|state| state.until);
        let (now, interval) = (clock::now(), config.report.interval);
        let first = || Window::first(now, interval, config.report.first_window);
        let window = last_end.map_or_else(first, |end| Window::resume(end, now, interval));
        let mut keys = Keys::new(secret.clone(), HashKey::Random.key()?, window.start());
        let (local, local_file) = local::begin(config, state_directory, setup.observer.identity())?;
        keys.add_local(local.as_ref());
        let empty = seen::filter(&config.seen_flows, keys.id());
        let (seen, begun) = inheritance.seen(&empty).unwrap_or((empty, None));
        let rotation = Rotation::new(config.seen_flows.generation, begun.or(Some(clock::now().monotonic)));
        let mut shard = || keys.shard(&config.estimates, &setup.views);
        let threads = setup.memory.workers + setup.memory.readers;
        let (batch, spares) =
            (RecordBatch::new(shard()), (0..threads * (SHARDS_PER_WORKER - 1)).map(|_| shard()).collect());
        Ok(Self { window, keys, seen: Arc::new(seen), rotation, batch, local, local_file, spares })
    }
}

/// The folder where reports wait on disk for their sinks. Returns `None` and logs it if they wait in memory.
fn spools(config: &Config, state_directory: Option<&Path>) -> Result<Option<SpoolRoot>, LockError> {
    let targets: Vec<_> = config.sinks.iter().filter_map(|sink| sink.target.spool_key()).collect();
    if targets.is_empty() {
        return Ok(None);
    }
    let in_memory = "undelivered reports wait in memory, which has room for only a few, and a restart loses them";
    let Some(folder) = config.spool.folder(state_directory) else {
        let is_asked_for = config.spool.path == Location::StateDirectory;
        if is_asked_for && config.sinks.iter().any(|sink| sink.target.is_remote()) {
            warn!("no spool: {in_memory}. Name a folder for them: `spool: {{path: /var/lib/weir/spool}}`");
        }
        return Ok(None);
    };
    match SpoolRoot::take(&folder, Limits::of(&config.spool)) {
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

/// Loads the kernel side. Returns `None` if packet sockets are used instead: they are configured, or nothing else is
/// permitted.
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

/// A random number for this run, so that runs differ even if the hash key is configured.
fn random_run() -> u64 {
    getrandom::u64().unwrap_or_else(|_| clock::now().wall.as_nanosecond() as u64)
}
