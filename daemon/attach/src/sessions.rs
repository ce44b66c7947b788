//! Interfaces that come and go while weir runs, such as the sessions of a pattern: counts the packets that no program
//! saw.

use std::{collections::HashMap, time::Duration};

use weir_common::{control::Feeds, ledger::Tally};
use weir_config::interface::Way;
use weir_system::clock;

use super::{
    arrivals::{Coming, Departed},
    attachment::Attachment,
    attachments::Attachments,
    coverage::{Coverage, Reading, SeenPackets, Unseen, less},
    departures::Departure,
    netlink::Device,
    obtained::Obtained,
    plan::rule_of,
    present::Origin,
};

/// The last known count of a direction of an interface that is gone.
#[derive(Clone, Copy, Debug)]
struct LastCount {
    own: Tally,
    /// True if it is a lower bound: the interface may have counted more.
    is_least: bool,
}

impl LastCount {
    /// Returns the same as a lower bound, if the interface had counted `listed` before.
    const fn at_least(self, listed: Tally) -> Self {
        if self.own.packets < listed.packets { Self { own: listed, is_least: true } } else { self }
    }
}

impl Attachment {
    /// Notes the counts of this interface, which was listed before, from the kernel's message about its arrival.
    pub fn note_announced(&mut self, ifindex: u32, origin: Origin) {
        let ordered = self.ordered.as_mut().map(|ordered| &mut ordered.present);
        for present in self.present.as_mut().into_iter().chain(ordered).filter(|one| one.ifindex == ifindex) {
            if present.origin.is_awaited() {
                present.origin = origin;
            }
        }
        if self.here().is_some_and(|here| here.ifindex == ifindex) {
            let arrived = [&mut self.arrived, &mut self.arrived_awaited].into_iter().flatten();
            for one in arrived.filter(|one| one.origin.is_awaited()) {
                one.origin = origin;
            }
        }
    }

    /// Returns true if a packet socket measures it, or will.
    fn is_by_socket(&self) -> bool {
        self.ordered.map_or(self.obtained == Obtained::AfPacket, |ordered| ordered.by_socket)
    }

    /// Notes that its interface is no longer listed. Returns the facts that are needed when the kernel's message with
    /// its last counts is read; `None` if the comparison of its counts has begun. `seen` is the count of its program.
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

    /// Notes that the interface, which is no longer present, had counted `own` packets in this direction.
    fn end_departed(&mut self, departed: &Departed, own: LastCount) {
        let Departed { arrived, seen, blind, at: _ } = *departed;
        let LastCount { own, is_least } = own.at_least(arrived.listed);
        if is_least {
            self.short_lives.add(Unseen::UNKNOWN, blind);
        }
        let came = Reading { own: arrived.origin.bounds(self.way, own), seen: [arrived.seen; 2] };
        let Some(seen) = seen else {
            let [least, most] = came.own;
            return self.short_lives.add_by_socket([less(own, most), less(own, least)], arrived.seen, blind);
        };
        let gone = Reading { own: [own; 2], seen: [seen; 2] };
        self.short_lives.add(Unseen::between(&came, &gone).unwrap_or(Unseen::UNKNOWN), blind);
    }

    /// Returns true if this reading can be that of an interface which stays. An interface that is being deleted is
    /// still there for a while, and may say that it has received nothing, as one does whose driver has reset its
    /// counters.
    pub fn is_credible(&self, reading: &Reading) -> bool {
        let ([own, _], [seen, _]) = (reading.own, reading.seen);
        match (self.coverage.reading(), &self.arrived) {
            (Some(earlier), _) => Unseen::between(&earlier, reading).is_some(),
            (None, Some(arrived)) => {
                let has_seen = !self.is_by_socket() && seen.since(arrived.seen).all.packets > 0;
                own.packets >= arrived.listed.packets && !(own.is_zero() && has_seen)
            }
            (None, None) => true,
        }
    }

    /// Notes that its interface is gone, and had counted `own` packets in this direction. `seen` is the count of its
    /// program.
    fn end_short_life(&mut self, own: LastCount, seen: SeenPackets) {
        if let Some(departed) = self.depart(seen) {
            self.end_departed(&departed, own);
        }
    }

    /// Notes at the end of a window that these packets were not seen of an interface that came with a packet socket.
    /// weir was blind only if some packets were not seen.
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

    /// Returns the packets that were missed of interfaces that came and went in this window, and for how long.
    pub fn end_short_lives(&mut self) -> Option<(Unseen, Duration)> {
        std::mem::take(&mut self.short_lives).unseen(self.told, self.present.is_some())
    }

    /// Adds the packets that were missed of such interfaces to those that were missed otherwise.
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
        let known = self.inventory.known(device.ifindex);
        let was_covered = known.is_some_and(|known| self.may_arrive(known));
        if !self.may_arrive(device) {
            // It may have had another name until now.
            self.note_last_counts(device, Departure::Unwanted);
        } else if self.inventory.arrivals.came_at(device.ifindex).is_some() || !was_covered {
            if self.inventory.arrivals.came_at(device.ifindex).is_none() {
                // Packets that it counted under another name do not matter.
                self.inventory.forget_origin(device.ifindex);
            }
            self.inventory.arrivals.note_came(device.ifindex, clock::now().monotonic, device.up);
        }
        self.note_reported(device.ifindex, device.counts);
    }

    /// Notes which interfaces are in the last list and not in the one `before`, if the kernel's message about them is
    /// still to be read.
    pub(super) fn note_listed(&mut self, before: &[Device]) {
        if before.is_empty() {
            // The first list: nothing has come since weir started.
            return;
        }
        let now = clock::now().monotonic;
        let before: HashMap<_, _> = before.iter().map(|device| (device.ifindex, device)).collect();
        let was_covered = |ifindex: u32| {
            let known = before.get(&ifindex).filter(|_| !self.inventory.is_gone(ifindex));
            known.is_some_and(|known| self.may_arrive(known))
        };
        let listed = self.inventory.devices().iter();
        let new = listed.filter(|one| self.may_arrive(one) && !was_covered(one.ifindex));
        let new: Vec<_> = new.map(|device| (device.ifindex, device.up)).collect();
        for (ifindex, is_up) in new {
            self.inventory.arrivals.note_came(ifindex, now, is_up);
        }
    }

    /// Notes that the kernel has deleted an interface, or has moved it to another namespace, with its last counts.
    pub fn note_left(&mut self, device: &Device, departure: Departure) {
        self.note_last_counts(device, departure);
        // The last counts of a deleted interface may be incomplete.
        self.note_gone(device.ifindex, departure, device.counts.filter(|_| departure == Departure::Moved));
    }

    /// Notes the counts of an interface when it went, or got a name that no rule covers.
    fn note_last_counts(&mut self, device: &Device, departure: Departure) {
        let (came, now) = (self.inventory.arrivals.take_came(device.ifindex), clock::now().monotonic);
        let Some(counts) = device.counts else { return };
        let is_over = departure == Departure::Deleted;
        let last = |way: Way| LastCount {
            own: counts[way as usize],
            is_least: is_over && way == Way::Ingress && device.forgets_received(),
        };
        // Another interface had its index before.
        let is_another = self.inventory.is_gone(device.ifindex);
        let mut is_here = [false; 2];
        for way in [Way::Ingress, Way::Egress] {
            if let Some(departed) = self.inventory.arrivals.take_departed(device.ifindex, way) {
                is_here[way as usize] = true;
                self.note_departed(device, way, &departed, last(way));
            }
        }
        for (slot, one) in self.slots.numbered().filter(|_| !is_another) {
            if one.here().is_some_and(|here| here.ifindex == device.ifindex) {
                is_here[one.way as usize] = true;
                one.end_short_life(last(one.way), self.readings.seen_of(slot));
            }
        }
        if let Some(shared) = &mut self.shared {
            shared.note_last_counts(device.ifindex, counts, now);
        }
        let Some(Coming { at: came_at, was_up }) = came else { return };
        let origin = self.inventory.origin(device.ifindex);
        let Some(rule) = rule_of(&self.rules, device).filter(|_| self.may_arrive(device)) else { return };
        for &way in self.rules[rule].direction.ways() {
            let has_member = self.shared.as_ref().is_some_and(|shared| shared.has(device.ifindex, way));
            if !is_here[way as usize] && !has_member {
                let mut own = last(way);
                own.is_least &= was_up;
                self.note_never_measured(rule, device, (way, own), (origin, now.saturating_sub(came_at), is_over));
            }
        }
    }

    /// Notes a direction of an interface that went before it was ordered, and its last count. It came with these
    /// counts, was present for this time, and does not come back if it is over.
    fn note_never_measured(
        &mut self,
        rule: usize,
        device: &Device,
        (way, LastCount { own, is_least }): (Way, LastCount),
        (origin, blind, is_over): (Origin, Duration, bool),
    ) {
        let seen = [SeenPackets::default(); 2];
        let came = Reading { own: origin.bounds(way, own), seen };
        let mut unseen = Unseen::between(&came, &Reading { own: [own; 2], seen }).unwrap_or(Unseen::UNKNOWN);
        if is_least {
            unseen.add(Unseen::UNKNOWN);
        }
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

    /// Notes the last count of a direction of an interface that was no longer listed.
    fn note_departed(&mut self, device: &Device, way: Way, departed: &Departed, own: LastCount) {
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

    /// Returns what this direction of an interface that was never listed fed, judged by the others.
    fn feeds_like(&self, rule: usize, way: Way) -> Feeds {
        let mut here = self.slots.iter().filter(|one| one.here().is_some());
        let like = here.clone().find(|one| (one.rule, one.way) == (rule, way)).map(|one| one.feeds);
        like.unwrap_or_else(|| match way {
            Way::Egress if here.any(|one| one.way == Way::Ingress) => Feeds::Local,
            _ => Feeds::All,
        })
    }

    /// Returns true if an interface is measured for its name once it comes. weir has measured none before that carries
    /// the default route, whatever its name.
    fn may_arrive(&self, device: &Device) -> bool {
        let rule = rule_of(&self.rules, device).map(|rule| &self.rules[rule]);
        rule.is_some_and(|rule| !rule.is_default_route()) && !self.requests.is_released(&device.name)
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

    fn exactly(count: u64) -> LastCount {
        LastCount { own: packets(count), is_least: false }
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
        one.end_short_life(exactly(50), seen(1_043));
        one.give_up();
        assert_eq!((unseen(&mut one), one.arrived), (Some((7, 0)), None));
        assert!(one.blind.is_some());
        // It moved here with its counts, or got its name.
        let mut one = session(arrived(900, true, 1_000));
        one.end_short_life(exactly(950), seen(1_043));
        assert_eq!(unseen(&mut one), Some((7, 0)));
        // Nothing was lost, so weir was not blind.
        let mut one = session(arrived(0, true, 1_000));
        one.end_short_life(exactly(43), seen(1_043));
        assert_eq!((unseen(&mut one), one.blind), (None, None));
        // A veth has forgotten what it had received.
        let unknown = Unseen::UNKNOWN.beyond.packets;
        let mut one = session(arrived(0, true, 1_000));
        one.end_short_life(LastCount { own: packets(0), is_least: true }, seen(1_000));
        assert_eq!(unseen(&mut one), Some((0, unknown)));
        // weir has listed it with some packets.
        let mut one = session(Arrived { listed: packets(9), ..arrived(0, true, 1_000) });
        one.end_short_life(exactly(0), seen(1_000));
        assert_eq!(unseen(&mut one), Some((9, unknown)), "it was never attached");
        // An interface that was there before weir has no arrival.
        let mut one = attached(0, "ppp0", Way::Ingress, 7);
        one.end_short_life(exactly(50), seen(1_043));
        assert_eq!(unseen(&mut one), None);
    }

    /// A veth that is being deleted is listed for some ten milliseconds more, and says that it has received nothing.
    #[test]
    fn a_count_that_is_forgotten_at_a_windows_edge_says_nothing() {
        let end = |is_last| WindowEnd { length: SECOND, is_last };
        let reading = |own, all| Some(Reading { own: [packets(own); 2], seen: [seen(all); 2] });
        let mut one = session(arrived(0, true, 1_000));
        one.begin(reading(20, 1_020));
        assert_eq!(one.compare_with(reading(0, 1_030), 0, end(false)), None);
        one.leave(Departure::Deleted, None, SeenPackets::default());
        one.end();
        assert_eq!(one.compare_with(None, 0, end(false)), None);
        // The driver has reset its counters.
        let mut one = session(arrived(0, true, 1_000));
        one.begin(reading(20, 1_020));
        assert_eq!(one.compare_with(reading(0, 1_030), 0, end(false)), None);
        one.compare_with(reading(1, 1_031), 0, end(false));
        assert_eq!(one.compared.unseen, None, "not known");
        assert_eq!(one.coverage.reading().map(|last| last.own[0]), Some(packets(1)));
        // The comparison does not begin with a count of which weir has seen more.
        let mut one = session(arrived(0, true, 1_000));
        assert!(one.is_credible(&reading(0, 1_000).unwrap()) && one.is_credible(&reading(5, 1_003).unwrap()));
        assert!(!one.is_credible(&reading(0, 1_003).unwrap()));
        assert_eq!(one.compare_with(reading(0, 1_003), 0, end(false)), None);
        one.end_short_life(LastCount { own: packets(0), is_least: true }, seen(1_003));
        assert_eq!(unseen(&mut one), Some((0, Unseen::UNKNOWN.beyond.packets)));
    }

    #[test]
    fn what_an_interface_had_counted_when_it_came_is_a_bound_if_it_is_not_known() {
        let mut one = session(arrived(7, false, 1_000));
        one.end_short_life(exactly(50), seen(1_043));
        assert_eq!(unseen(&mut one), Some((0, 7)), "it may have counted them elsewhere");
        let mut one = session(arrived(7, false, 1_000));
        one.note_announced(7, Origin::arrived([packets(3); 2]));
        one.note_announced(7, Origin::arrived([packets(40); 2]));
        one.end_short_life(exactly(50), seen(1_043));
        assert_eq!(unseen(&mut one), Some((4, 0)), "the first message about it counts");
    }

    #[test]
    fn all_sessions_of_a_window_add_up() {
        let mut one = session(arrived(0, true, 1_000));
        one.end_short_life(exactly(50), seen(1_043));
        one.note_arrival(arrived(0, true, 1_043));
        one.end_short_life(exactly(20), seen(1_043 + 15));
        assert_eq!(unseen(&mut one), Some((7 + 5, 0)));
    }

    #[test]
    fn what_packet_sockets_saw_is_known_when_the_window_ends() {
        let sessions = || {
            let mut one = session(arrived(0, true, 1_000));
            (one.obtained, one.told) = (Obtained::AfPacket, seen(1_000));
            one.end_short_life(exactly(50), seen(0));
            one.note_arrival(arrived(10, true, 1_000));
            one.end_short_life(exactly(30), seen(0));
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
        one.end_short_life(exactly(52), seen(1_000));
        one.end();
        assert_eq!((unseen(&mut one), one.departures.since().is_some()), (Some((42, 0)), true));
        let mut one = awaited(Departure::Deleted);
        assert!(one.forget_arrival().is_some(), "the attachment fails before the kernel's message is read");
        let mut one = awaited(Departure::Moved);
        one.end_short_life(exactly(52), seen(1_000));
        assert_eq!(unseen(&mut one), None, "it was here before, and its counts are compared once it is back");
        let mut one = awaited(Departure::Deleted);
        one.attach(one.here().unwrap());
        one.begin(Some(Reading { own: [packets(52); 2], seen: [seen(1_000); 2] }));
        one.end_short_life(exactly(52), seen(1_000));
        assert_eq!(unseen(&mut one), None, "its counts are compared");
    }

    #[test]
    fn an_interface_that_is_refused_owes_nothing_once_it_is_attached() {
        let mut one = session(arrived(0, true, 1_000));
        assert_eq!(one.forget_arrival().map(|arrived| arrived.at), Some(SECOND));
        assert_eq!(one.departures.since(), None);
    }
}
