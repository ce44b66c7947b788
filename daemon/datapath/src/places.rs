//! Assigns each key a place in the programs' interface table.
//!
//! A key has only a few possible places, so that the programs have a short search. If all of them are taken, the key
//! goes into the map `PASSING` beside the table, which can take any set of interfaces. Only this daemon writes the
//! table, so it does not need to ask the kernel for the content.

use std::collections::HashMap;

use weir_common::control::{INTERFACE_PROBES, INTERFACE_TABLE, InterfaceSlot, egress, is_egress};

/// The content of the table and of the map beside it.
pub struct Places {
    /// The key at each place, or 0 if the place is free.
    keys: Box<[u32; INTERFACE_TABLE as usize]>,
    /// The slots of the keys that found no place in the table.
    beside: HashMap<u32, u32>,
}

impl Default for Places {
    fn default() -> Self {
        Self { keys: Box::new([0; INTERFACE_TABLE as usize]), beside: HashMap::new() }
    }
}

impl Places {
    /// Inserts a key or changes its slot. Returns its place in the table, or `None` if it is beside the table.
    pub fn insert(&mut self, key: u32, slot: u32) -> Option<u32> {
        let free = || if self.beside.contains_key(&key) { None } else { self.find(key, 0) };
        let Some(place) = self.find(key, key).or_else(free) else {
            self.beside.insert(key, slot);
            return None;
        };
        self.keys[place as usize] = key;
        Some(place)
    }

    /// Removes a key. Returns the place that it had in the table, or `None` if it had none.
    pub fn remove(&mut self, key: u32) -> Option<u32> {
        self.beside.remove(&key);
        let place = self.find(key, key)?;
        self.keys[place as usize] = 0;
        Some(place)
    }

    /// The slot of a key beside the table.
    pub fn beside(&self, key: u32) -> Option<u32> {
        self.beside.get(&key).copied()
    }

    /// The first of a key's places that contains `wanted`.
    fn find(&self, key: u32, wanted: u32) -> Option<u32> {
        let mut places = (0..INTERFACE_PROBES).map(|probe| InterfaceSlot::place(key, probe));
        places.find(|place| self.keys[*place as usize] == wanted)
    }
}

/// The interface index of a key.
pub const fn index_of(key: u32) -> u32 {
    if is_egress(key) { egress(key) } else { key }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use weir_common::control::OTHERS;

    use super::*;

    /// The most keys that can have a slot of their own.
    const MOST: usize = OTHERS as usize;
    /// Interface indexes are below this.
    const INDEXES: u32 = 1 << 31;

    /// A table as the programs see it, and the slots that it should return.
    #[derive(Default)]
    struct Table {
        places: Places,
        slots: HashMap<u32, u32>,
        at: HashMap<u32, (u32, u32)>,
    }

    impl Table {
        fn insert(&mut self, key: u32, slot: u32) {
            if let Some(place) = self.places.insert(key, slot) {
                assert!((0..INTERFACE_PROBES).any(|probe| InterfaceSlot::place(key, probe) == place));
                let before = self.at.insert(place, (key, slot));
                assert!(before.is_none_or(|(other, _)| other == key), "{key} in the place of {before:?}");
            }
            self.slots.insert(key, slot);
        }

        fn remove(&mut self, key: u32) {
            if let Some(place) = self.places.remove(key) {
                self.at.remove(&place);
            }
            self.slots.remove(&key);
        }

        /// Looks a key up as the programs do.
        fn slot(&self, key: u32) -> u32 {
            let mut found = (0..INTERFACE_PROBES).filter_map(|probe| self.at.get(&InterfaceSlot::place(key, probe)));
            let in_table = found.find(|(at, _)| *at == key).map(|(_, slot)| *slot);
            in_table.or_else(|| self.places.beside(key)).unwrap_or(OTHERS)
        }

        fn check(&self) {
            for (&key, &slot) in &self.slots {
                assert_eq!(self.slot(key), slot, "{key:#x} of {:?}", self.slots);
            }
        }
    }

    fn table(keys: impl IntoIterator<Item = u32>) -> Table {
        let mut table = Table::default();
        for (slot, key) in (0..).zip(keys) {
            table.insert(key, slot);
        }
        table
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn every_random_set_finds_its_slots() {
        let seed = &mut 0x9e37_79b9_7f4a_7c15;
        for nth in 0..10_000 {
            let most = if nth % 2 == 0 { INDEXES } else { 5_000 };
            let mut keys = HashSet::new();
            while keys.len() < MOST {
                let ifindex = 1 + (random(seed) % u64::from(most - 1)) as u32;
                keys.insert(if random(seed).is_multiple_of(2) { ifindex } else { egress(ifindex) });
            }
            let table = table(keys);
            table.check();
            let stranger = INDEXES - 1 - nth;
            assert!(table.slots.contains_key(&stranger) || table.slot(stranger) == OTHERS);
        }
    }

    #[test]
    fn every_aligned_set_finds_its_slots() {
        for power in 0..31 {
            for first in [1, 2, 7, 4_099, 10_006] {
                let indexes = (0..MOST as u64 / 2).map(|nth| (first + (nth << power)) % u64::from(INDEXES));
                let indexes: HashSet<u32> = indexes.map(|index| index.max(1) as u32).collect();
                let table = table(indexes.iter().flat_map(|&ifindex| [ifindex, egress(ifindex)]));
                table.check();
                assert!(table.places.beside.len() <= 4, "2^{power}: {} are slow", table.places.beside.len());
            }
        }
    }

    #[test]
    fn a_million_sessions_one_after_another_find_their_slots() {
        const AT_ONCE: u32 = MOST as u32 / 2;
        let mut table = Table::default();
        for session in 1..=1_000_000_u32 {
            if let Some(ended) = session.checked_sub(AT_ONCE).filter(|ended| *ended > 0) {
                table.remove(ended);
                table.remove(egress(ended));
            }
            let slot = session % AT_ONCE * 2;
            table.insert(session, slot);
            table.insert(egress(session), slot + 1);
            assert_eq!((table.slot(session), table.slot(egress(session))), (slot, slot + 1));
            if session % 1_000 == 0 {
                table.check();
            }
        }
        assert_eq!(table.slots.len(), 2 * AT_ONCE as usize);
    }

    /// Keys that all have the same places.
    fn worst() -> Vec<u32> {
        let first = InterfaceSlot::place(1, 0);
        (1..INDEXES).filter(|key| InterfaceSlot::place(*key, 0) == first).take(MOST).collect()
    }

    #[test]
    fn the_worst_set_finds_its_slots_and_keeps_them() {
        let keys = worst();
        let mut table = table(keys.iter().copied());
        table.check();
        assert_eq!(table.places.beside.len(), MOST - INTERFACE_PROBES as usize);
        for &key in keys.iter().step_by(3) {
            table.remove(key);
            assert_eq!(table.slot(key), OTHERS);
            table.check();
        }
        for &key in keys.iter().rev() {
            table.insert(key, key % OTHERS);
            table.check();
        }
        for key in &keys {
            table.remove(*key);
        }
        assert!(table.at.is_empty() && table.places.beside.is_empty());
    }
}
