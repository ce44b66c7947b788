//! Interfaces that come and go while weir runs, such as the sessions of a pattern: what they carried that no program
//! saw.

use std::{collections::HashMap, time::Duration};

use weir_common::{control::Feeds, ledger::Tally};
use weir_config::interface::Way;
use weir_system::clock;

use super::{
    arrivals::Departed,
    attachment::Attachment,
    attachments::Attachments,
    coverage::{Coverage, Reading, SeenPackets, Unseen, less},
    departures::Departure,
    netlink::Device,
    obtained::Obtained,
    plan::rule_of,
    present::Origin,
};

impl Attachment {
    /// The kernel's message about the arrival of this interface, which was listed before, has its counts.
    pub fn is_announced(&mut self, ifindex: u32, origin: Origin) {
        let ordered = self.ordered.as_mut().map(|ordered| &mut ordered.present);
        for present in self.present.as_mut().into_iter().chain(ordered).filter(|one| one.ifindex == ifindex) {
            if present.origin.is_awaited() {
                present.origin = origin;
            }
        }
        if self.here().is_some_and(|here| here.ifindex == ifindex) {
            let arrived = [&mut self.arrived, &mut self.arrived_awaited].into_iter().flatten();
            arrived.filter(|one| one.origin.is_awaited()).for_each(|one| one.origin = origin);
        }
    }

    /// Whether a packet socket measures it, or will.
    fn is_by_socket(&self) -> bool {
        self.ordered.map_or(self.obtained == Obtained::AfPacket, |ordered| ordered.by_socket)
    }

    /// Its interface is in no list any more. Returns what must be known of it when the kernel's message with its last
    /// counts is read; `None` if the comparison of its counts has begun. `seen` is what its program has counted.
    pub fn depart(&mut self, seen: SeenPackets) -> Option<Departed> {
        let Some(arrived) = self.forget_arrival() else {
            self.short_lives.is_mixed |= self.is_by_socket() && !self.coverage.is_new();
            return None;
        };
        let at = clock::now().monotonic;
        let blind = match self.present {
            Some(_) => self.watched.take_blind(),
            None => at.saturating_sub(arrived.at),
        };
        self.coverage = Coverage::default();
        Some(Departed { arrived, seen: Some(seen).filter(|_| !self.is_by_socket()), blind, at })
    }

    /// The interface that is no longer there had counted `own` packets in this direction.
    fn end_departed(&mut self, departed: &Departed, own: Tally) {
        let Departed { arrived, seen, blind, at: _ } = *departed;
        // A veth that is deleted reports that it has received nothing. What it had counted before is certain.
        let own = if own.packets < arrived.listed.packets { arrived.listed } else { own };
        let came = Reading { own: arrived.origin.bounds(self.way, own), seen: [arrived.seen; 2] };
        let Some(seen) = seen else {
            let [least, most] = came.own;
            return self.short_lives.add_by_socket([less(own, most), less(own, least)], arrived.seen, blind);
        };
        let gone = Reading { own: [own; 2], seen: [seen; 2] };
        self.short_lives.add(Unseen::between(&came, &gone).unwrap_or(Unseen::UNKNOWN), blind);
    }

    /// Its interface is gone, and had counted `own` packets in this direction. `seen` is what its program has counted.
    fn end_short_life(&mut self, own: Tally, seen: SeenPackets) {
        if let Some(departed) = self.depart(seen) {
            self.end_departed(&departed, own);
        }
    }

    /// The window ends, in which this was not seen of an interface that came with a packet socket. weir was blind only
    /// if something was not seen.
    pub fn note_arrival_told(&mut self, reading: Option<Reading>, unseen: Option<Unseen>) -> Option<Unseen> {
        if self.present.is_none() || reading.is_none() {
            return unseen;
        }
        self.arrived = None;
        let unseen = unseen.filter(|unseen| !unseen.is_none());
        if unseen.is_none() {
            self.blind = None;
        }
        unseen
    }

    /// What was not seen of interfaces that came and went in this window, and for how long.
    pub fn end_short_lives(&mut self) -> Option<(Unseen, Duration)> {
        std::mem::take(&mut self.short_lives).unseen(self.told, self.present.is_some())
    }

    /// Adds what was not seen of such interfaces to what was not seen otherwise.
    pub fn add_short_lives(&mut self, unseen: Option<Unseen>, more: Option<(Unseen, Duration)>) -> Option<Unseen> {
        let Some((more, blind)) = more else { return unseen };
        self.blind = Some(self.blind.unwrap_or_default() + blind.max(Duration::from_millis(1)));
        let mut unseen = unseen.unwrap_or_default();
        unseen.add(more);
        Some(unseen)
    }
}

impl Attachments<'_> {
    /// Notes that the kernel describes an interface: it may have come, or may have another name.
    pub fn note_device(&mut self, device: &Device) {
        let known = self.known(device.ifindex);
        let was_covered = known.is_some_and(|known| self.may_arrive(known));
        if !self.may_arrive(device) {
            // It may have had another name until now.
            self.note_last_counts(device, Departure::Unwanted);
        } else if !was_covered && self.arrivals.came_at(device.ifindex).is_none() {
            self.arrivals.note_came(device.ifindex, clock::now().monotonic);
            // What it had counted under another name is no concern.
            self.origins.remove(&device.ifindex);
        }
        self.note_reported(device.ifindex, device.counts);
    }

    /// Notes which interfaces are in this list and not in the last one, if the kernel's message about them is still to
    /// be read.
    pub(super) fn note_listed(&mut self, devices: &[Device]) {
        if self.devices.is_empty() {
            // The first list: nothing has come since weir started.
            return;
        }
        let now = clock::now().monotonic;
        let before: HashMap<_, _> = self.devices.iter().map(|device| (device.ifindex, device)).collect();
        let was_covered = |ifindex: u32| {
            let known = before.get(&ifindex).filter(|_| !self.gone.contains_key(&ifindex));
            known.is_some_and(|known| self.may_arrive(known))
        };
        let new = devices.iter().filter(|one| self.may_arrive(one) && !was_covered(one.ifindex));
        let new: Vec<_> = new.map(|device| device.ifindex).collect();
        new.into_iter().for_each(|ifindex| self.arrivals.note_came(ifindex, now));
    }

    /// Notes that the kernel has deleted an interface, or has moved it to another namespace, and what it had counted.
    pub fn note_left(&mut self, device: &Device, departure: Departure) {
        self.note_last_counts(device, departure);
        // The last counts of a deleted interface may be incomplete.
        self.note_gone(device.ifindex, departure, device.counts.filter(|_| departure == Departure::Moved));
    }

    /// Notes what an interface had counted when it went, or got a name that no rule covers.
    fn note_last_counts(&mut self, device: &Device, departure: Departure) {
        let (came_at, now) = (self.arrivals.take_came(device.ifindex), clock::now().monotonic);
        let Some(counts) = device.counts else { return };
        // Another interface had its index before.
        let is_another = self.gone.contains_key(&device.ifindex);
        let mut is_here = [false; 2];
        for way in [Way::Ingress, Way::Egress] {
            if let Some(departed) = self.arrivals.take_departed(device.ifindex, way) {
                is_here[way as usize] = true;
                self.note_departed(device, way, &departed, counts[way as usize]);
            }
        }
        for (slot, one) in self.slots.numbered().filter(|_| !is_another) {
            if one.here().is_some_and(|here| here.ifindex == device.ifindex) {
                is_here[one.way as usize] = true;
                one.end_short_life(counts[one.way as usize], self.readings.seen_of(slot));
            }
        }
        if let Some(shared) = &mut self.shared {
            shared.note_last_counts(device.ifindex, counts, now);
        }
        let Some(came_at) = came_at else { return };
        let origin = self.origins.get(&device.ifindex).copied().unwrap_or_default();
        let Some(rule) = rule_of(&self.rules, device).filter(|_| self.may_arrive(device)) else { return };
        for &way in self.rules[rule].direction.ways() {
            let has_member = self.shared.as_ref().is_some_and(|shared| shared.has(device.ifindex, way));
            if !is_here[way as usize] && !has_member {
                let is_over = departure == Departure::Deleted;
                self.note_never_measured(rule, device, way, (origin, now.saturating_sub(came_at), is_over));
            }
        }
    }

    /// A direction of an interface that is gone before it was ordered. It came with these counts, was there for this
    /// time, and does not come back if it is over.
    fn note_never_measured(
        &mut self,
        rule: usize,
        device: &Device,
        way: Way,
        (origin, blind, is_over): (Origin, Duration, bool),
    ) {
        let own = device.counts.unwrap_or_default()[way as usize];
        let seen = [SeenPackets::default(); 2];
        let came = Reading { own: origin.bounds(way, own), seen };
        let unseen = Unseen::between(&came, &Reading { own: [own; 2], seen }).unwrap_or(Unseen::UNKNOWN);
        if unseen.is_none() {
            return;
        }
        match self.ledger_of(rule, device, way) {
            // weir waits for it, and compares its counts once it is back.
            Some(one) if !is_over && one.departures.may_return(device.ifindex, device.address) => {}
            Some(one) => one.short_lives.add(unseen, blind),
            None => {
                if let Some(shared) = &mut self.shared {
                    shared.note_never_measured(unseen, blind);
                }
            }
        }
    }

    /// The last count of a direction of an interface that was no longer listed.
    fn note_departed(&mut self, device: &Device, way: Way, departed: &Departed, own: Tally) {
        if let Some(rule) = rule_of(&self.rules, device).filter(|_| self.may_arrive(device))
            && let Some(one) = self.ledger_of(rule, device, way)
        {
            one.end_departed(departed, own);
        }
    }

    /// The slot that has the ledger of an interface that is gone: its earlier slot, or a free one until the window
    /// ends. `None` if all slots are used.
    fn ledger_of(&mut self, rule: usize, device: &Device, way: Way) -> Option<&mut Attachment> {
        let feeds = self.feeds_like(rule, way);
        let is_its = |one: &Attachment| one.name == device.name && one.way == way && !one.is_leaving;
        let own = self.slots.all().find(|(_, one)| is_its(one)).map(|(slot, _)| slot);
        let slot = own.or_else(|| self.slots.place_for(&self.rules, rule, &device.name, way))?;
        let one = self.slots.get_mut(slot)?.get_or_insert_with(|| {
            let mut gone = Attachment::new(rule, &device.name, way);
            (gone.obtained, gone.feeds) = (Obtained::Gone, feeds);
            gone
        });
        let names: Vec<_> = device.names().chain(one.names()).collect();
        self.directory.assign(slot, &names, Some(way));
        Some(one)
    }

    /// What this direction of an interface that was never listed fed, as far as the others tell.
    fn feeds_like(&self, rule: usize, way: Way) -> Feeds {
        let mut here = self.slots.iter().filter(|one| one.here().is_some());
        let like = here.clone().find(|one| (one.rule, one.way) == (rule, way)).map(|one| one.feeds);
        like.unwrap_or_else(|| match way {
            Way::Egress if here.any(|one| one.way == Way::Ingress) => Feeds::Local,
            _ => Feeds::All,
        })
    }

    /// The interface with this index in the last list, unless it is gone since.
    fn known(&self, ifindex: u32) -> Option<&Device> {
        self.devices.iter().find(|device| device.ifindex == ifindex).filter(|_| !self.gone.contains_key(&ifindex))
    }

    /// Whether an interface is measured for its name once it comes. weir has measured none before that carries the
    /// default route, whatever its name.
    fn may_arrive(&self, device: &Device) -> bool {
        let rule = rule_of(&self.rules, device).map(|rule| &self.rules[rule]);
        rule.is_some_and(|rule| !rule.is_default_route()) && !self.released.has(&device.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        arrivals::Arrived,
        attachment::{Ordered, WindowEnd},
        tasks::Urgency,
        testing::attached,
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// This many packets, each of 100 bytes.
    fn packets(packets: u64) -> Tally {
        Tally::new(packets, packets * 100)
    }

    fn seen(all: u64) -> SeenPackets {
        SeenPackets { all: packets(all), merged: 0 }
    }

    /// It came with this count, or is only known to have been listed with it.
    fn arrived(counts: u64, is_exact: bool, before: u64) -> Arrived {
        let counts = [packets(counts); 2];
        let origin = if is_exact { Origin::arrived(counts) } else { Origin::listed(Some(counts), true) };
        Arrived { origin, at: SECOND, seen: seen(before), listed: Tally::default() }
    }

    /// An attachment whose slot had counted 1,000 packets before its interface came.
    fn session(arrived: Arrived) -> Attachment {
        let mut one = attached(0, "ppp0", Way::Ingress, 7);
        one.note_seen(Some(seen(1_000)), SeenPackets::default());
        one.note_arrival(arrived);
        let mut present = one.present.unwrap();
        present.origin = arrived.origin;
        one.attach(present);
        one
    }

    fn unseen(one: &mut Attachment) -> Option<(u64, u64)> {
        let short_lives = one.end_short_lives();
        let unseen = one.add_short_lives(None, short_lives)?;
        // How many bytes of each packet the interface omits is not known.
        Some((unseen.counted.packets, unseen.beyond.packets))
    }

    #[test]
    fn a_session_that_is_gone_again_has_lost_what_no_program_saw() {
        let mut one = session(arrived(0, true, 1_000));
        one.end_short_life(packets(50), seen(1_043));
        one.give_up();
        assert_eq!((unseen(&mut one), one.arrived), (Some((7, 0)), None));
        assert!(one.blind.is_some());
        // It moved here with its counts, or got its name.
        let mut one = session(arrived(900, true, 1_000));
        one.end_short_life(packets(950), seen(1_043));
        assert_eq!(unseen(&mut one), Some((7, 0)));
        // Nothing was lost, so weir was not blind.
        let mut one = session(arrived(0, true, 1_000));
        one.end_short_life(packets(43), seen(1_043));
        assert_eq!((unseen(&mut one), one.blind), (None, None));
        // A veth has forgotten what it had received, but weir has listed it.
        let mut one = session(Arrived { listed: packets(9), ..arrived(0, true, 1_000) });
        one.end_short_life(packets(0), seen(1_000));
        assert_eq!(unseen(&mut one), Some((9, 0)), "it was never attached");
        // An interface that was there before weir has no arrival.
        let mut one = attached(0, "ppp0", Way::Ingress, 7);
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!(unseen(&mut one), None);
    }

    #[test]
    fn what_an_interface_had_counted_when_it_came_is_a_bound_if_it_is_not_known() {
        let mut one = session(arrived(7, false, 1_000));
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!(unseen(&mut one), Some((0, 7)), "it may have counted them elsewhere");
        let mut one = session(arrived(7, false, 1_000));
        one.is_announced(7, Origin::arrived([packets(3); 2]));
        one.is_announced(7, Origin::arrived([packets(40); 2]));
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!(unseen(&mut one), Some((4, 0)), "the first message about it counts");
    }

    #[test]
    fn all_sessions_of_a_window_add_up() {
        let mut one = session(arrived(0, true, 1_000));
        one.end_short_life(packets(50), seen(1_043));
        one.note_arrival(arrived(0, true, 1_043));
        one.end_short_life(packets(20), seen(1_043 + 15));
        assert_eq!(unseen(&mut one), Some((7 + 5, 0)));
    }

    #[test]
    fn what_packet_sockets_saw_is_known_when_the_window_ends() {
        let sessions = || {
            let mut one = session(arrived(0, true, 1_000));
            (one.obtained, one.told) = (Obtained::AfPacket, seen(1_000));
            one.end_short_life(packets(50), seen(0));
            one.note_arrival(arrived(10, true, 1_000));
            one.end_short_life(packets(30), seen(0));
            one.told = seen(1_000 + 62);
            one
        };
        let mut one = sessions();
        one.end();
        assert_eq!(unseen(&mut one), Some((50 + 20 - 62, 0)));
        // A third interface is there, and may have carried all that was seen.
        assert_eq!(unseen(&mut sessions()), Some((50 + 20 - 62, 62)));
    }

    #[test]
    fn the_comparison_begins_when_the_interface_came() {
        for (own, expected) in [(43, None), (50, Some(7))] {
            let mut one = session(arrived(0, true, 1_000));
            one.begin(Some(Reading { own: [packets(own); 2], seen: [seen(1_043); 2] }));
            assert_eq!((one.arrived, one.departures.since(), one.changed), (None, None, false));
            let end = WindowEnd { length: SECOND, is_last: false };
            let unseen =
                one.compare_with(Some(Reading { own: [packets(own + 100); 2], seen: [seen(1_143); 2] }), 0, end);
            assert_eq!(unseen.map(|unseen| unseen.counted.packets), expected);
            assert_eq!(one.blind.is_some(), expected.is_some(), "weir was blind only if it missed something");
        }
    }

    /// Another interface was deleted before.
    #[test]
    fn an_awaited_interface_that_goes_before_it_is_attached_has_lost_what_it_carried() {
        let address = Some([2, 0, 0, 0, 0, 9]);
        let awaited = |departure| {
            let mut one = attached(0, "eth0", Way::Ingress, 7);
            one.present.as_mut().unwrap().address = address;
            let present = one.present.unwrap();
            one.leave(departure, None, SeenPackets::default());
            one.end();
            one.note_seen(Some(seen(1_000)), SeenPackets::default());
            one.note_arrival(arrived(10, true, 1_000));
            let (urgency, before) = (Urgency::Named, Obtained::Gone);
            one.order(Ordered { present, urgency, before, is_fresh: false, by_socket: false });
            one
        };
        let mut one = awaited(Departure::Deleted);
        one.end_short_life(packets(52), seen(1_000));
        one.end();
        assert_eq!((unseen(&mut one), one.departures.since().is_some()), (Some((42, 0)), true));
        let mut one = awaited(Departure::Deleted);
        assert!(one.forget_arrival().is_some(), "the attachment fails before the kernel's message is read");
        let mut one = awaited(Departure::Moved);
        one.end_short_life(packets(52), seen(1_000));
        assert_eq!(unseen(&mut one), None, "it was here before, and its counts are compared once it is back");
        let mut one = awaited(Departure::Deleted);
        one.attach(one.here().unwrap());
        one.begin(Some(Reading { own: [packets(52); 2], seen: [seen(1_000); 2] }));
        one.end_short_life(packets(52), seen(1_000));
        assert_eq!(unseen(&mut one), None, "its counts are compared");
    }

    #[test]
    fn an_interface_that_is_refused_owes_nothing_once_it_is_attached() {
        let mut one = session(arrived(0, true, 1_000));
        assert_eq!(one.forget_arrival().map(|arrived| arrived.at), Some(SECOND));
        assert_eq!(one.departures.since(), None);
    }
}
