//! Hands over from one weir to the next without a gap, at a restart, an upgrade or a crash.
//!
//! If systemd keeps file descriptors for the service ([`weir_datapath::kept`]), the programs stay on the interfaces
//! when weir ends, and continue to count into its maps. The next weir
//!
//! 1. loads its own programs and maps, whatever their version and size;
//! 2. replaces the old programs by its own, link by link: each packet is seen by exactly one of the two;
//! 3. reads the remaining records and counters of the old maps into its first window ([`previous_run`]), minus
//!    everything that the old weir has reported: it wrote that into the handover [`state`] at the end of each window;
//! 4. releases the old maps after its first report.
//!
//! If the old weir was killed, the packets that it had read but not reported are in the old counters, but in no record.
//! Their exact number is `lost.restart`.
//!
//! When the service is stopped for good, systemd closes everything, and the kernel detaches the programs.

pub mod filter;
pub mod previous_run;
pub mod state;

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use aya::maps::MapData;
use jiff::Timestamp;
use tracing::warn;
use weir_common::{cpu::LAYOUT, ledger::Counters, record::Record};
use weir_datapath::{
    Blocks, Edge, FlushProgram, KernelError, Ring,
    kept::{SlotState, link::Links, name::Name, network, store, words},
};
use weir_report::observer::Last;
use weir_schema::alerting::{Alerts, state::State};
use weir_sketch::{Seen, hash::Key};
use weir_system::clock::Moment;

use self::{
    previous_run::PreviousRun,
    state::{HandoverState, StateMemory, Unreadable},
};

/// Everything that earlier weirs left behind.
#[derive(Default)]
pub struct Inheritance {
    /// The programs that they left on interfaces.
    pub links: Links,
    /// The datapaths that they left, the latest last. There are several if a weir died before its first report.
    pub previous_runs: Vec<PreviousRun>,
    /// The flows that the latest of them had seen, if it ended normally.
    seen: Option<OwnedFd>,
    /// The names of all descriptors except links.
    names: Vec<Name>,
}

/// The descriptors of one generation.
#[derive(Default)]
struct Descriptors {
    state: Option<OwnedFd>,
    seen: Option<OwnedFd>,
    records: Option<OwnedFd>,
    flush: Option<OwnedFd>,
    cpus: Option<OwnedFd>,
    handed_over: Option<OwnedFd>,
    rings: Vec<(u32, OwnedFd)>,
}

impl Inheritance {
    /// Takes the descriptors that systemd kept. Discards those that cannot be used, and logs that.
    pub fn receive() -> Self {
        let mut generations: BTreeMap<u32, Descriptors> = BTreeMap::new();
        let mut all = Self::default();
        for (name, descriptor) in store::take() {
            let Some(generation) = name.generation() else {
                all.links.add(name, descriptor);
                continue;
            };
            all.names.push(name);
            let of = generations.entry(generation).or_default();
            match name {
                Name::HandoverState(_) => of.state = Some(descriptor),
                Name::Seen(_) => of.seen = Some(descriptor),
                Name::Records(_) => of.records = Some(descriptor),
                Name::Flush(_) => of.flush = Some(descriptor),
                Name::Cpus(_) => of.cpus = Some(descriptor),
                Name::HandedOver(_) => of.handed_over = Some(descriptor),
                Name::Ring { cpu, .. } => of.rings.push((cpu, descriptor)),
                Name::Link { .. } => {}
            }
        }
        let here = network();
        for (generation, mut descriptors) in generations {
            all.seen = descriptors.seen.take();
            match descriptors.open() {
                Ok(Some(previous_run)) if previous_run.state.network == here => {
                    all.previous_runs.push(previous_run);
                    continue;
                }
                Ok(Some(_)) => {
                    warn!("an earlier weir ran in another network namespace: discarding its state");
                }
                // It was killed before it had attached anything.
                Ok(None) => {}
                Err(reason) => warn!(
                    generation,
                    "cannot read the state of an earlier weir: {reason}. Its programs are replaced, and the packets since its \
                     last report are in no report"
                ),
            }
            // These are of no use any more.
            for name in all.names.iter().filter(|name| name.generation() == Some(generation)) {
                store::forget(*name);
            }
        }
        all
    }

    /// The state that the latest of them wrote.
    pub fn state(&self) -> Option<&HandoverState> {
        self.previous_runs.last().map(|previous_run| &previous_run.state)
    }

    /// The key that it generated.
    pub fn secret(&self) -> Option<Key> {
        self.state()?.secret.map(Key)
    }

    /// The flows that the latest of them had seen, and when the open generation of its filter began. `None` if its
    /// filter differs from the `planned` one.
    pub fn seen(&mut self, planned: &Seen) -> Option<(Seen, Option<Duration>)> {
        let seen = filter::read(self.seen.take()?, planned)?;
        Some((seen, self.state()?.generation_begun))
    }

    /// The number of the next generation. The first number is random, because systemd may keep other generations that
    /// were not passed to this weir.
    fn next(&self) -> u32 {
        let last = self.names.iter().filter_map(|name| name.generation()).max();
        last.unwrap_or_else(|| getrandom::u32().unwrap_or_default() >> 1).wrapping_add(1)
    }

    /// Releases everything except links, if there is no handover; otherwise [`Handover::report`] does it.
    pub fn forget(names: Vec<Name>) {
        for one in names {
            store::forget(one);
        }
    }

    /// The names of all descriptors except links.
    pub fn names(&self) -> Vec<Name> {
        self.names.clone()
    }
}

impl Descriptors {
    /// Returns `None` if no state was written yet.
    fn open(self) -> Result<Option<PreviousRun>, String> {
        let there = |what: Option<OwnedFd>, name: &str| what.ok_or_else(|| format!("its {name} is missing"));
        let (state, flush) = (there(self.state, "state")?, there(self.flush, "program `flush`")?);
        let (cpus, handed_over) = (there(self.cpus, "map CPUS")?, there(self.handed_over, "map HANDED_OVER")?);
        let state = match state::read(state) {
            Err(Unreadable::Empty) => return Ok(None),
            read => read.map_err(|error| error.to_string())?,
        };
        if state.layout != LAYOUT {
            return Err(format!("it is of another version ({}, not {LAYOUT})", state.layout));
        }
        let blocks = Blocks::from_descriptors([cpus, handed_over]).map_err(|error| error.to_string())?;
        let ring = |(cpu, ring): (u32, OwnedFd)| -> Result<Ring, KernelError> {
            let map = MapData::from_fd(ring)?;
            let bytes = map.info()?.max_entries();
            Ring::new(cpu, map, bytes)
        };
        // If a ring cannot be read, its records are missing, but the counters include them.
        let told = |error: &KernelError| warn!("cannot read a ring of an earlier weir: {error}");
        let rings = self.rings.into_iter().filter_map(|one| ring(one).inspect_err(told).ok()).collect();
        let records = self.records.map(previous_run::read_records).transpose().map_err(|error| error.to_string())?;
        Ok(Some(PreviousRun { state, records: records.unwrap_or_default(), blocks, flush, rings }))
    }
}

/// The state and descriptors that are handed over to the next weir.
pub struct Handover {
    generation: u32,
    memory: StateMemory,
    secret: Option<Key>,
    network: u64,
    /// The sum of all counters reported so far.
    reported: Edge,
    until: Moment,
    last: Option<Last>,
    generation_begun: Option<Duration>,
    alerts: Vec<(String, State<Timestamp>)>,
    records: Vec<Record>,
    /// The interfaces as they were last written.
    slot_states: Vec<SlotState>,
    /// Descriptors of earlier generations, until this one has reported.
    earlier: Vec<Name>,
    /// The descriptors of this weir, until everything is attached.
    own: Vec<Name>,
    fails: bool,
}

impl Drop for Handover {
    fn drop(&mut self) {
        for one in self.own.drain(..) {
            store::forget(one);
        }
    }
}

impl Handover {
    /// Lets systemd keep the maps of this weir. `secret` is its key if that was generated, and `begin` is the start of
    /// its first window. Returns `None` if systemd keeps no descriptors.
    pub fn begin(
        inheritance: &Inheritance,
        flush: FlushProgram<'_>,
        secret: Option<Key>,
        begin: Moment,
    ) -> Option<Self> {
        if !store::is_there() {
            return None;
        }
        let memory = StateMemory::new().inspect_err(|error| warn!("no handover to the next weir: {error}")).ok()?;
        let generation = inheritance.next();
        let [cpus, handed_over] = flush.blocks().descriptors();
        store::keep(Name::HandoverState(generation), memory.descriptor());
        store::keep(Name::Flush(generation), flush.program());
        store::keep(Name::Cpus(generation), cpus);
        store::keep(Name::HandedOver(generation), handed_over);
        Some(Self {
            generation,
            memory,
            secret,
            network: network(),
            reported: Edge::empty(0),
            until: begin,
            last: inheritance.state().and_then(|state| state.last.clone()),
            generation_begun: None,
            alerts: inheritance.state().map_or_else(Vec::new, |state| state.alerts.clone()),
            records: Vec::new(),
            slot_states: Vec::new(),
            earlier: Vec::new(),
            own: Name::of_generation(generation, flush.blocks().len()).collect(),
            fails: false,
        })
    }

    /// Takes over, once everything is attached. From now on this weir measures. With its first report it releases the
    /// descriptors of earlier weirs, which have these names. A weir that ends before this point leaves only links. The
    /// next weir continues from where this one does, if this one is killed before its first report.
    pub fn take_over(&mut self, earlier: Vec<Name>, slot_states: Vec<SlotState>) {
        self.earlier = earlier;
        self.own.clear();
        self.write(slot_states);
    }

    /// The number of this generation.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Adds counters that the next report contains. After the last report, `rest` has the records that no report
    /// contains.
    pub fn add(&mut self, edge: &Edge, rest: Vec<Record>) {
        self.records.extend(rest);
        self.reported.provide(edge.counters.len());
        self.reported.add(edge);
    }

    /// Writes the state after a report whose window ended at `until`. `alerts` has the states of the rules. Releases
    /// the descriptors of earlier weirs.
    pub fn report(&mut self, until: Moment, last: Last, alerts: &Alerts, slot_states: Vec<SlotState>) {
        (self.until, self.last, self.alerts) = (until, Some(last), alerts.states());
        self.write(slot_states);
        for one in self.earlier.drain(..) {
            store::forget(one);
        }
    }

    /// Lets systemd keep the seen flows and the records that were read after the last window. `begun` is when the open
    /// generation of seen flows began. Called when weir ends.
    pub fn end(mut self, seen: &Seen, begun: Option<Duration>) {
        match filter::write(seen) {
            Ok(kept) => store::keep(Name::Seen(self.generation), kept),
            Err(error) => warn!("the next weir will count all flows as new: {error}"),
        }
        match previous_run::write_records(&self.records) {
            Ok(kept) => store::keep(Name::Records(self.generation), kept),
            Err(error) => warn!("the next weir will not have the last records: {error}"),
        }
        self.generation_begun = begun;
        let slot_states = std::mem::take(&mut self.slot_states);
        self.write(slot_states);
    }

    /// Writes the interfaces, if they have changed.
    pub fn note(&mut self, slot_states: Vec<SlotState>) {
        let known = |slot_state: &SlotState| (slot_state.slot, slot_state.way, slot_state.ifindex);
        let is_same = slot_states.len() == self.slot_states.len()
            && slot_states
                .iter()
                .zip(&self.slot_states)
                .all(|(now, then)| known(now) == known(then) && now.name == then.name);
        if !is_same {
            self.write(slot_states);
        }
    }

    fn write(&mut self, mut slot_states: Vec<SlotState>) {
        for slot_state in &mut slot_states {
            slot_state.reported = words(self.reported.counters.get(slot_state.slot).unwrap_or(&Counters::default()));
        }
        let state = HandoverState {
            layout: LAYOUT,
            network: self.network,
            secret: self.secret.map(|Key(words)| words),
            until: self.until,
            last: self.last.clone(),
            generation_begun: self.generation_begun,
            alerts: self.alerts.clone(),
            slot_states,
            sizes: self.reported.sizes.clone(),
        };
        let written = self.memory.write(&state);
        self.slot_states = state.slot_states;
        match written {
            Ok(()) => self.fails = false,
            Err(error) if !std::mem::replace(&mut self.fails, true) => {
                warn!("cannot save the state for the next weir: {error}");
            }
            Err(_) => {}
        }
    }
}

/// Lets systemd keep the ring of a CPU.
pub fn keep_ring(generation: u32, cpu: u32, ring: impl AsFd) {
    store::keep(Name::Ring { generation, cpu }, ring);
}
