//! Maps by which the daemon tells the kernel's programs what to do.

use std::{
    collections::HashMap,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::maps::{self, Array, Map, MapData};
use weir_common::{
    control::{Feeds, Flushed, INTERFACE_PROBES, InterfaceSlot, Passing, egress},
    cpu::{Cpu, HandedOver},
    record::Record,
    sampling::Valve,
};

use super::{counters::LiveCounters, error::KernelError, syscall};

/// Finds an interface's slot by its index and the direction, in the kernel.
pub struct InterfaceTable {
    map: Array<MapData, [u32; 2]>,
    passing: maps::HashMap<MapData, u32, u32>,
    /// What the map has, as only this daemon writes it.
    told: HashMap<u32, Passing>,
}

impl InterfaceTable {
    pub(super) fn new(map: Map, passing: Map) -> Result<Self, KernelError> {
        Ok(Self { map: Array::try_from(map)?, passing: maps::HashMap::try_from(passing)?, told: HashMap::new() })
    }

    /// Tells the programs what they have to know of interfaces, by index; those beyond
    /// [`weir_common::control::PASSING_MAX`] are refused.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn set_feeding(&mut self, passing: &HashMap<u32, Passing>) -> Result<(), KernelError> {
        let gone: Vec<_> = self.told.keys().filter(|ifindex| !passing.contains_key(ifindex)).copied().collect();
        for ifindex in gone {
            self.passing.remove(&ifindex)?;
            self.told.remove(&ifindex);
        }
        for (&ifindex, &new) in passing {
            if self.told.get(&ifindex) != Some(&new) {
                self.passing.insert(ifindex, new.0, 0)?;
                self.told.insert(ifindex, new);
            }
        }
        Ok(())
    }

    /// Gives a slot to an interface index, or to its [`weir_common::control::egress`]; or says anew what feeds.
    ///
    /// # Errors
    ///
    /// Too many indexes share the same places, or the kernel refused.
    pub fn insert(&mut self, entry: u32, slot: u32, feeds: Feeds) -> Result<(), KernelError> {
        let there = |place: u32| Ok(self.map.get(&place, 0)?[0]);
        match place_for(entry, there)? {
            Some(place) => {
                let InterfaceSlot { ifindex, slot } = InterfaceSlot::new(entry, slot, feeds);
                Ok(self.map.set(place, [ifindex, slot], 0)?)
            }
            None => Err(KernelError::InterfaceTable(if entry >> 31 == 0 { entry } else { egress(entry) })),
        }
    }

    /// Forgets such an entry.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn remove(&mut self, entry: u32) -> Result<(), KernelError> {
        for probe in 0..INTERFACE_PROBES {
            let place = InterfaceSlot::place(entry, probe);
            if self.map.get(&place, 0)?[0] == entry {
                self.map.set(place, [0, 0], 0)?;
            }
        }
        Ok(())
    }
}

/// How many packets each CPU leaves out.
pub struct Valves {
    map: Array<MapData, [u8; size_of::<Valve>()]>,
}

impl Valves {
    /// Lets `cpu` take one packet in `rate`; a draw that was made before still counts.
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

/// What the kernel keeps for each CPU, and what `flush` leaves for its caller.
pub struct Blocks {
    len: u32,
    /// Programs that are not loaded yet know the map by this descriptor.
    _cpus: Map,
    live: LiveCounters,
    handed_over: Array<MapData, [u64; size_of::<HandedOver>() / 8]>,
    descriptors: [OwnedFd; 2],
}

impl Blocks {
    /// Access to the maps `CPUS` and `HANDED_OVER`.
    ///
    /// # Errors
    ///
    /// They are other maps than that.
    pub fn new(cpus: Map, handed_over: Map) -> Result<Self, KernelError> {
        let Map::Array(blocks) = &cpus else { return Err(KernelError::Missing("CPUS")) };
        let Map::Array(left) = &handed_over else { return Err(KernelError::Missing("HANDED_OVER")) };
        let len = blocks.info()?.max_entries();
        let live = LiveCounters::new(blocks.fd(), len)?;
        let descriptors = [duplicate(blocks)?, duplicate(left)?];
        Ok(Self { len, _cpus: cpus, live, handed_over: Array::try_from(handed_over)?, descriptors })
    }

    /// Access to the same maps by these descriptors of them.
    ///
    /// # Errors
    ///
    /// They are other maps than that.
    pub fn from_descriptors(descriptors: [OwnedFd; 2]) -> Result<Self, KernelError> {
        let [cpus, handed_over] = descriptors.map(MapData::from_fd);
        Self::new(Map::Array(cpus?), Map::Array(handed_over?))
    }

    /// Descriptors of `CPUS` and `HANDED_OVER`.
    pub const fn descriptors(&self) -> &[OwnedFd; 2] {
        &self.descriptors
    }

    /// How many CPUs have a block.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether no CPU has one.
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

    /// Hands the records over that the last run of `flush` took out of the cache of a CPU.
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

    /// Changes the block of a CPU on which no program runs.
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

/// The first place of an entry that is free, or its own already; `there` tells what stands at a place.
fn place_for(entry: u32, there: impl Fn(u32) -> Result<u32, KernelError>) -> Result<Option<u32>, KernelError> {
    for probe in 0..INTERFACE_PROBES {
        let place = InterfaceSlot::place(entry, probe);
        let found = there(place)?;
        if found == 0 || found == entry {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use weir_common::control::INTERFACE_TABLE;

    use super::*;

    #[test]
    fn entries_that_collide_stand_side_by_side_until_no_place_is_left() {
        let mut table = HashMap::new();
        let mut insert = |entry: u32| {
            let place = place_for(entry, |place| Ok(table.get(&place).copied().unwrap_or_default())).unwrap();
            table.extend(place.map(|place| (place, entry)));
            place
        };
        // All of these have the same first place.
        let colliding: Vec<u32> = (0..INTERFACE_PROBES).map(|nth| 7 + nth * INTERFACE_TABLE).collect();
        let places: Vec<_> = colliding.iter().map(|entry| insert(*entry).unwrap()).collect();
        assert_eq!(places[0], 7);
        for (nth, entry) in colliding.iter().enumerate() {
            assert!(!places[..nth].contains(&places[nth]), "{places:?}");
            assert_eq!(insert(*entry), Some(places[nth]), "an entry that is there keeps its place");
        }
        assert_eq!(insert(7 + INTERFACE_PROBES * INTERFACE_TABLE), None);
        assert!(insert(egress(7)).is_some(), "what an interface sends stands elsewhere");
    }
}
