//! The present interfaces, as the kernel listed them last, and the kernel's news about them since.
//!
//! An index belongs to an interface only until that is gone: another one may have it then. So each report that an
//! interface is gone also clears the facts about its index.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use weir_common::ledger::Tally;
use weir_config::interface::Way;

use super::{arrivals::Arrivals, coverage::Reading, departures::Departure, netlink::Device, present::Origin};

/// For this long after weir missed news, a program that is not attached may have vanished with its interface.
const MISSED: Duration = Duration::from_secs(3);

/// The interfaces of the machine, measured or not.
#[derive(Default)]
pub struct Inventory {
    /// The interfaces in the kernel's last list.
    devices: Arc<Vec<Device>>,
    /// Interfaces that the kernel has reported gone since then.
    gone: HashMap<u32, Departure>,
    /// Both counts of the attached interfaces that have vanished since then, as they were when the kernel reported
    /// that.
    last_readings: HashMap<(u32, Way), Reading>,
    /// The own counts of interfaces when they came, or got their names.
    origins: HashMap<u32, Origin>,
    /// The time at which weir last missed news of interfaces.
    missed_at: Option<Duration>,
    /// Interfaces that have come and are not ordered yet, and those that are gone again.
    pub arrivals: Arrivals,
}

impl Inventory {
    /// The last list of the interfaces.
    pub fn devices(&self) -> &Arc<Vec<Device>> {
        &self.devices
    }

    /// The interface with this index in the last list. It may be gone.
    pub fn listed(&self, ifindex: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.ifindex == ifindex)
    }

    /// The interface that has this index now, as far as is known.
    pub fn known(&self, ifindex: u32) -> Option<&Device> {
        self.listed(ifindex).filter(|_| !self.is_gone(ifindex))
    }

    /// The name of the VRF that the interface with this index is, or is in: itself, or the bridge or bond that it is a
    /// member of.
    pub fn vrf(&self, ifindex: u32) -> Option<String> {
        /// Linux allows no deeper nesting of interfaces (`MAX_NEST_DEV`).
        const NESTED_MAX: usize = 8;
        let first = self.listed(ifindex)?;
        let masters = std::iter::successors(Some(first), |device| self.listed(device.master?));
        let is_vrf = |device: &&Device| device.kind.as_deref() == Some("vrf");
        masters.take(NESTED_MAX).find(is_vrf).map(|vrf| vrf.name.clone())
    }

    /// Returns true if an interface with this name is in the last list.
    pub fn has_name(&self, name: &str) -> bool {
        self.devices.iter().any(|device| device.name == name)
    }

    /// The interfaces that the kernel has reported gone since the last list.
    pub const fn gone(&self) -> &HashMap<u32, Departure> {
        &self.gone
    }

    /// Returns true if the kernel has reported since the last list that the interface with this index is gone.
    pub fn is_gone(&self, ifindex: u32) -> bool {
        self.gone.contains_key(&ifindex)
    }

    /// Why the interface with this index is not measured any more.
    pub fn departure(&self, ifindex: u32) -> Departure {
        let unknown = || if self.listed(ifindex).is_some() { Departure::Unwanted } else { Departure::Unknown };
        self.gone.get(&ifindex).copied().unwrap_or_else(unknown)
    }

    /// The counts with which the interface with this index came.
    pub fn origin(&self, ifindex: u32) -> Origin {
        self.origins.get(&ifindex).copied().unwrap_or_default()
    }

    /// Both counts of a direction of an interface when it vanished, if they are known.
    pub fn last_reading(&self, ifindex: u32, way: Way) -> Option<Reading> {
        self.last_readings.get(&(ifindex, way)).copied()
    }

    /// Returns true if an interface may have been deleted and created again while weir missed news.
    pub fn may_have_missed_news(&self, now: Duration) -> bool {
        self.missed_at.is_some_and(|at| now.saturating_sub(at) < MISSED)
    }

    /// Notes that the interface with this index is gone. The last word counts that says most.
    pub fn note_gone(&mut self, ifindex: u32, departure: Departure) {
        let known = self.gone.entry(ifindex).or_insert(departure);
        *known = departure.max(*known);
        self.origins.remove(&ifindex);
    }

    /// Notes both counts of a direction of an interface that has vanished.
    pub fn note_last_reading(&mut self, ifindex: u32, way: Way, reading: Reading) {
        self.last_readings.insert((ifindex, way), reading);
    }

    /// Notes that an interface gets another name. Packets that it counted until now do not matter.
    pub fn forget_origin(&mut self, ifindex: u32) {
        self.origins.remove(&ifindex);
    }

    /// Notes that the kernel has reported an interface with this index and these counts. Returns the counts with which
    /// it came, if they were not known.
    pub fn note_reported(&mut self, ifindex: u32, counts: Option<[Tally; 2]>, now: Duration) -> Option<Origin> {
        if self.origins.get(&ifindex).is_some_and(|origin| !origin.is_awaited()) {
            return None;
        }
        // Otherwise the report of its arrival may be among those that weir missed.
        let arrived = counts.filter(|_| !self.may_have_missed_news(now));
        let origin = arrived.map_or_else(|| Origin::listed(None, false), Origin::arrived);
        self.origins.insert(ifindex, origin);
        Some(origin)
    }

    /// Notes that the kernel could not report all news of interfaces: any of them may be another one by now.
    pub fn note_missed(&mut self, now: Duration) {
        self.missed_at = Some(now);
        for origin in self.origins.values_mut() {
            *origin = Origin::listed(None, false);
        }
        self.arrivals.note_missed();
    }

    /// Replaces the list by this newer one. Notes which interfaces are new or were renamed since, and their counts
    /// then. Returns the list before.
    pub fn replace(&mut self, devices: Vec<Device>, now: Duration) -> Arc<Vec<Device>> {
        self.note_origins(&devices, !self.may_have_missed_news(now));
        std::mem::replace(&mut self.devices, Arc::new(devices))
    }

    fn note_origins(&mut self, devices: &[Device], is_reliable: bool) {
        let before: HashMap<_, _> = self.devices.iter().map(|device| (device.ifindex, device)).collect();
        let there: HashSet<_> = devices.iter().map(|device| device.ifindex).collect();
        self.origins.retain(|ifindex, _| there.contains(ifindex) || !before.contains_key(ifindex));
        for now in devices {
            match before.get(&now.ifindex).filter(|_| !self.gone.contains_key(&now.ifindex)) {
                Some(before) if before.name == now.name => {}
                // The kernel's report about its new name has its counts.
                Some(_) if is_reliable && self.arrivals.came_at(now.ifindex).is_some() => {}
                Some(before) => {
                    let counts = before.counts.filter(|_| is_reliable);
                    self.origins.insert(now.ifindex, Origin::renamed(counts));
                }
                None => {
                    // The kernel reports no arrivals of interfaces that were there before weir.
                    let origin = Origin::listed(now.counts.filter(|_| is_reliable), is_reliable && !before.is_empty());
                    self.origins.entry(now.ifindex).or_insert(origin);
                }
            }
        }
    }

    /// Forgets which interfaces were gone before the last list: everything in that is there.
    pub fn forget_gone(&mut self) {
        self.gone.clear();
        self.last_readings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    const NOW: Duration = Duration::from_secs(100);

    fn counted(ifindex: u32, name: &str, packets: u64) -> Device {
        Device { counts: Some([Tally::new(packets, 0); 2]), ..device(ifindex, name) }
    }

    fn least(inventory: &Inventory, ifindex: u32) -> u64 {
        inventory.origin(ifindex).least(Way::Ingress).packets
    }

    #[test]
    fn an_index_belongs_to_an_interface_until_that_is_gone() {
        let mut inventory = Inventory::default();
        inventory.replace(vec![device(1, "a"), device(2, "b")], NOW);
        assert_eq!(inventory.known(2).map(|device| &*device.name), Some("b"));
        inventory.note_gone(2, Departure::Moved);
        inventory.note_gone(2, Departure::Unknown);
        assert!(inventory.known(2).is_none() && inventory.listed(2).is_some());
        assert_eq!(inventory.departure(2), Departure::Moved, "the report that says most");
        assert_eq!([1, 3].map(|index| inventory.departure(index)), [Departure::Unwanted, Departure::Unknown]);
        inventory.replace(vec![device(2, "another")], NOW);
        inventory.forget_gone();
        assert_eq!(inventory.known(2).map(|device| &*device.name), Some("another"));
    }

    #[test]
    fn an_interface_comes_with_the_counts_that_the_kernel_has_reported_first() {
        let mut inventory = Inventory::default();
        assert!(inventory.note_reported(7, Some([Tally::new(5, 0); 2]), NOW).is_some());
        assert!(inventory.note_reported(7, Some([Tally::new(9, 0); 2]), NOW).is_none(), "a later report");
        inventory.replace(vec![counted(7, "a", 20)], NOW);
        assert_eq!(least(&inventory, 7), 5);
        inventory.replace(vec![counted(7, "b", 30)], NOW);
        assert_eq!(least(&inventory, 7), 20, "what it had counted under its last name");
        inventory.note_gone(7, Departure::Deleted);
        assert_eq!(inventory.origin(7), Origin::default());
    }

    #[test]
    fn after_missed_news_no_count_is_certain_for_a_while() {
        let mut inventory = Inventory::default();
        inventory.note_reported(7, Some([Tally::new(5, 0); 2]), NOW);
        inventory.note_missed(NOW);
        assert_eq!(least(&inventory, 7), 0);
        assert!(inventory.may_have_missed_news(NOW) && !inventory.may_have_missed_news(NOW + MISSED));
        inventory.note_reported(8, Some([Tally::new(5, 0); 2]), NOW);
        inventory.note_reported(9, Some([Tally::new(5, 0); 2]), NOW + MISSED);
        assert_eq!([8, 9].map(|index| least(&inventory, index)), [0, 5]);
    }
}
