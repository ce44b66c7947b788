//! Maps through which the daemon controls the kernel programs.
//!
//! The daemon keeps a copy of the interface table and of the map beside it, and writes only changes. It is the only
//! writer, so the copy is always right, and a change does not have to read the kernel's map first. Entries change one
//! by one. No map is emptied and filled again: between the two steps, packets would find no slot.

use std::{
    collections::HashMap,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::maps::{self, Array, Map, MapData};
use tracing::warn;
use weir_common::{
    control::{Feeds, Flushed, INTERFACE_TABLE, InterfaceSlot, PASSING_MAX, Passing, SLOTS_MAX, egress, is_egress},
    cpu::{Cpu, HandedOver},
    record::Record,
    sampling::Valve,
};

use super::{
    counters::LiveCounters,
    error::KernelError,
    places::{Places, index_of},
    syscall,
};

/// The maximum number of interfaces that are known to feed others. The rest of the map is reserved for interfaces that
/// have a slot but no place in the table.
pub const FEEDING_MAX: usize = (PASSING_MAX - SLOTS_MAX) as usize;

/// The name of the map with the interface table: that of the section of the object which it comes from.
pub const INTERFACES: &str = ".data.interfaces";

/// Lets the kernel programs look up an interface's slot by index and direction.
pub struct InterfaceTable {
    /// It stays open, because programs that are loaded later find it through this descriptor.
    table: MapData,
    /// The content of the table. Only this daemon writes it.
    entries: Box<[InterfaceSlot; INTERFACE_TABLE as usize]>,
    passing: maps::HashMap<MapData, u32, u32>,
    places: Places,
    /// The packets that each interface feeds, by interface index.
    feeding: HashMap<u32, Passing>,
    /// The content of the map `PASSING`. Only this daemon writes it.
    written: HashMap<u32, Passing>,
    /// How many interfaces did not fit.
    left_out: usize,
}

impl InterfaceTable {
    /// Opens the map with the table and the map beside it.
    pub(super) fn new(table: Map, passing: Map) -> Result<Self, KernelError> {
        let Map::Array(table) = table else { return Err(KernelError::Missing(INTERFACES)) };
        Ok(Self {
            table,
            entries: Box::new([InterfaceSlot::default(); INTERFACE_TABLE as usize]),
            passing: maps::HashMap::try_from(passing)?,
            places: Places::default(),
            feeding: HashMap::new(),
            written: HashMap::new(),
            left_out: 0,
        })
    }

    /// Sets what the programs need to know about interfaces, by index, for at most [`FEEDING_MAX`] of them.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn set_feeding(&mut self, passing: HashMap<u32, Passing>) -> Result<(), KernelError> {
        let before = std::mem::replace(&mut self.feeding, passing);
        let left_out = self.feeding.len().saturating_sub(FEEDING_MAX);
        if left_out > 0 {
            if left_out > self.left_out {
                warn!(
                    "too many interfaces whose packets also arrive on others: {FEEDING_MAX} are possible. The packets of \
                     {left_out} further ones count twice in totals and lists; each interface's own counts stay exact"
                );
            }
            let mut indexes: Vec<u32> = self.feeding.keys().copied().collect();
            indexes.sort_unstable();
            for ifindex in indexes.split_off(FEEDING_MAX) {
                self.feeding.remove(&ifindex);
            }
        }
        self.left_out = left_out;
        let gone: Vec<u32> = before.keys().filter(|ifindex| !self.feeding.contains_key(ifindex)).copied().collect();
        // Remove entries first, to make room.
        for ifindex in gone {
            self.tell(ifindex)?;
        }
        let now: Vec<u32> = self.feeding.keys().copied().collect();
        for ifindex in now {
            self.tell(ifindex)?;
        }
        Ok(())
    }

    /// Gives a slot to an interface index or to its `weir_common::control::egress` key, or updates which packets feed.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn insert(&mut self, key: u32, slot: u32, feeds: Feeds) -> Result<(), KernelError> {
        match self.places.insert(key, slot) {
            Some(place) => self.set(place, InterfaceSlot::new(key, slot, feeds)),
            None => self.tell(index_of(key)),
        }
    }

    /// Removes the entry of such a key.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn remove(&mut self, key: u32) -> Result<(), KernelError> {
        match self.places.remove(key) {
            Some(place) => self.set(place, InterfaceSlot::default()),
            None => self.tell(index_of(key)),
        }
    }

    /// Writes an entry if it has changed. The table is one value of its map, so this writes all of it again; no other
    /// entry changes.
    fn set(&mut self, place: u32, entry: InterfaceSlot) -> Result<(), KernelError> {
        let before = std::mem::replace(&mut self.entries[place as usize], entry);
        if before == entry {
            return Ok(());
        }
        let written = syscall::update(self.table.fd().as_fd(), 0, &*self.entries).map_err(KernelError::Table);
        if written.is_err() {
            self.entries[place as usize] = before;
        }
        written
    }

    /// Writes an interface's entry if it has changed.
    fn tell(&mut self, ifindex: u32) -> Result<(), KernelError> {
        let mut passing = self.feeding.get(&ifindex).copied().unwrap_or_default();
        for key in [ifindex, egress(ifindex)] {
            if let Some(slot) = self.places.beside(key) {
                passing = passing.with_slot(is_egress(key), slot);
            }
        }
        let written = self.written.get(&ifindex).copied().unwrap_or_default();
        if passing == written {
            return Ok(());
        }
        if passing == Passing::default() {
            self.passing.remove(&ifindex)?;
            self.written.remove(&ifindex);
        } else {
            self.passing.insert(ifindex, passing.0, 0)?;
            self.written.insert(ifindex, passing);
        }
        Ok(())
    }
}

/// The valves: how many packets each CPU skips.
pub struct Valves {
    map: Array<MapData, [u8; size_of::<Valve>()]>,
}

impl Valves {
    /// Makes `cpu` take one packet in `rate`. A pending draw still counts.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn set(&mut self, cpu: u32, rate: u32) -> Result<(), KernelError> {
        let valve: [u8; size_of::<Valve>()] = zerocopy::transmute!(Valve::one_in(rate));
        Ok(self.map.set(cpu, valve, 0)?)
    }

    pub(super) fn of(map: &MapData) -> Result<Self, KernelError> {
        Ok(Self { map: Array::try_from(Map::Array(MapData::from_fd(duplicate(map)?)?))? })
    }
}

/// The kernel's block of each CPU, and the records that `flush` leaves for its caller.
pub struct Blocks {
    len: u32,
    /// Keeps the map open, because programs that are loaded later find it through this descriptor.
    _cpus: Map,
    live: LiveCounters,
    handed_over: Array<MapData, [u64; size_of::<HandedOver>() / 8]>,
    descriptors: [OwnedFd; 2],
}

impl Blocks {
    /// Opens the maps `CPUS` and `HANDED_OVER`.
    ///
    /// # Errors
    ///
    /// The maps are not these two.
    pub fn new(cpus: Map, handed_over: Map) -> Result<Self, KernelError> {
        let Map::Array(blocks) = &cpus else { return Err(KernelError::Missing("CPUS")) };
        let Map::Array(left) = &handed_over else { return Err(KernelError::Missing("HANDED_OVER")) };
        let len = blocks.info()?.max_entries();
        let live = LiveCounters::new(blocks.fd(), len)?;
        let descriptors = [duplicate(blocks)?, duplicate(left)?];
        Ok(Self { len, _cpus: cpus, live, handed_over: Array::try_from(handed_over)?, descriptors })
    }

    /// Opens the same maps through these descriptors.
    ///
    /// # Errors
    ///
    /// The maps are not these two.
    pub fn from_descriptors(descriptors: [OwnedFd; 2]) -> Result<Self, KernelError> {
        let [cpus, handed_over] = descriptors.map(MapData::from_fd);
        Self::new(Map::Array(cpus?), Map::Array(handed_over?))
    }

    /// The descriptors of `CPUS` and `HANDED_OVER`.
    pub const fn descriptors(&self) -> &[OwnedFd; 2] {
        &self.descriptors
    }

    /// How many CPUs have a block.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if there are no blocks.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counters of the open window, read in place.
    pub const fn live(&self) -> &LiveCounters {
        &self.live
    }

    /// Reads the block of a CPU.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn read<T>(&self, cpu: u32, reader: impl FnOnce(&Cpu) -> T) -> Result<T, KernelError> {
        let block = self.block(cpu)?;
        Ok(reader(&block))
    }

    /// Passes the records that the last run of `flush` took from a CPU's cache to `take`.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn take(&self, cpu: u32, flushed: Flushed, take: impl FnOnce(&[Record])) -> Result<(), KernelError> {
        if flushed.records > 0 {
            let words = self.handed_over.get(&cpu, 0)?;
            let records: &HandedOver = zerocopy::transmute_ref!(&words);
            take(records.get(..flushed.records as usize).ok_or(KernelError::Missing("flush"))?);
        }
        Ok(())
    }

    /// Changes the block of a CPU that runs no program.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn change(&mut self, cpu: u32, change: impl FnOnce(&mut Cpu)) -> Result<(), KernelError> {
        let mut block = self.block(cpu)?;
        change(&mut block);
        let [cpus, _] = &self.descriptors;
        syscall::update(cpus.as_fd(), cpu, &*block).map_err(KernelError::Block)
    }

    fn block(&self, cpu: u32) -> Result<Box<Cpu>, KernelError> {
        let [cpus, _] = &self.descriptors;
        syscall::look_up(cpus.as_fd(), cpu).map_err(KernelError::Block)
    }
}

fn duplicate(map: &MapData) -> Result<OwnedFd, KernelError> {
    map.fd().as_fd().try_clone_to_owned().map_err(KernelError::Descriptor)
}
