//! What interfaces and weir's own counters say at one moment.

use std::{collections::HashMap, io};

use weir_common::ledger::Tally;

use super::{
    coverage::{Reading, Seen},
    netlink::Devices,
};
use crate::{datapath::counters::LiveCounters, interface::Way};

/// The last look at all counts.
#[derive(Default)]
pub struct Readings<'a> {
    /// The counters of weir's programs, where there are programs.
    live: Option<&'a LiveCounters>,
    /// The interfaces' own counts, by index and direction.
    own: HashMap<u32, [Tally; 2]>,
    /// The same at a second look.
    later: HashMap<u32, [Tally; 2]>,
    /// What weir's programs had seen before the interfaces were asked, and after that, by slot.
    seen: Vec<[Seen; 2]>,
}

impl<'a> Readings<'a> {
    /// Before the first look.
    pub fn new(live: Option<&'a LiveCounters>) -> Self {
        Self { live, ..Self::default() }
    }

    /// Reads weir's counters of so many slots, the interfaces' own, and weir's once more.
    ///
    /// # Errors
    ///
    /// The kernel does not tell. Nothing is known then.
    pub fn take(&mut self, devices: &mut Devices, slots: usize) -> io::Result<()> {
        (self.own, self.later) = Default::default();
        let before = self.seen_now(slots);
        self.own = own_counts(devices)?;
        self.seen = before.into_iter().zip(self.seen_now(slots)).map(|(before, after)| [before, after]).collect();
        Ok(())
    }

    /// Reads the interfaces' own counts once more: what was counted otherwise lies between the two.
    ///
    /// # Errors
    ///
    /// The kernel does not tell.
    pub fn take_later(&mut self, devices: &mut Devices) -> io::Result<()> {
        self.later = own_counts(devices)?;
        Ok(())
    }

    /// The interface's own count of this direction.
    pub fn own(&self, ifindex: u32, way: Way) -> Option<Tally> {
        Some(self.own.get(&ifindex)?[way as usize])
    }

    /// What the program of this slot had seen.
    pub fn of_program(&self, slot: usize, ifindex: u32, way: Way) -> Option<Reading> {
        let own = self.own(ifindex, way)?;
        Some(Reading { own: [own; 2], seen: *self.seen.get(slot).filter(|_| self.live.is_some())? })
    }

    /// What a packet socket had seen between the two looks.
    pub fn of_socket(&self, seen: Seen, ifindex: u32, way: Way) -> Option<Reading> {
        let own = self.own(ifindex, way)?;
        let later = self.later.get(&ifindex).map_or(own, |later| later[way as usize]);
        Some(Reading { own: [own, later], seen: [seen; 2] })
    }

    fn seen_now(&self, slots: usize) -> Vec<Seen> {
        let seen = |slot| {
            let (all, merged) = self.live.map_or_else(Default::default, |live| live.seen_and_merged(slot));
            Seen { all, merged }
        };
        (0..slots).map(seen).collect()
    }
}

fn own_counts(devices: &mut Devices) -> io::Result<HashMap<u32, [Tally; 2]>> {
    Ok(devices.list()?.iter().filter_map(|device| Some((device.ifindex, device.counts?))).collect())
}
