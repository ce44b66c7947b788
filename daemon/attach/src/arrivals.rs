//! Interfaces that come while weir runs: the packets that they carry before weir is attached to them.
//!
//! The kernel reports an interface when it comes, when it gets another name, and when it goes, each time with the
//! interface's own counts. So weir knows what an interface has carried since it came, also if it was gone again before
//! weir was attached, or before weir could list it. What weir has not seen of that is lost: it was blind. An interface
//! that weir knew already owes nothing: it has no [`Arrival`].

use std::{collections::HashMap, time::Duration};

use weir_common::{control::Feeds, ledger::Tally};
use weir_config::interface::Way;
use weir_system::clock;

use super::{
    attachment::Attachment,
    attachments::Attachments,
    coverage::{Coverage, Reading, SeenPackets, Unseen, unseen_between},
    netlink::Device,
    obtained::Obtained,
    plan::rule_of,
};

/// An interface that has come, or has got a name that a rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What it had counted then in each direction, at least.
    counts: [Tally; 2],
    /// Whether it had counted exactly that.
    is_exact: bool,
    /// When weir heard of it.
    pub at: Duration,
}

/// One direction of an interface that has come, in the slot where it will be or is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The interface.
    pub arrival: Arrival,
    /// What its slot had counted before.
    pub seen: SeenPackets,
    /// What the interface had counted when it was ordered, at least.
    pub listed: Tally,
    /// Both counts when its program had just been attached.
    pub begun: Option<Reading>,
}

/// One direction of an interface that came in this window and is in no list any more. The kernel's message with its
/// last counts is still to be read.
#[derive(Clone, Copy, Debug)]
pub struct Departed {
    arrived: Arrived,
    /// What its slot had counted when it was no longer listed; `None` for a packet socket.
    seen: Option<SeenPackets>,
    /// How long it was there and not measured.
    blind: Duration,
    /// When it was no longer listed.
    at: Duration,
}

/// The interfaces that have come and are not ordered yet, by index, and those that are in no list any more.
#[derive(Debug, Default)]
pub struct Arrivals {
    coming: HashMap<u32, Arrival>,
    departed: HashMap<(u32, Way), Departed>,
    /// When the counts of attachments that have just begun were last read.
    read_at: Duration,
}

/// How often these are read, at most: reading takes some milliseconds.
const READ_EVERY: Duration = Duration::from_millis(20);
/// How long a packet may take from the interface's count to that of weir's program.
const ON_ITS_WAY: Duration = Duration::from_millis(2);

/// The kernel's last message about an interface is read within this time, or never.
const LAST_MESSAGE: Duration = Duration::from_secs(10);

/// What is known of interfaces that have come and are gone again in this window, in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortLives {
    unseen: Unseen,
    /// How long they were there and not measured.
    blind: Duration,
    /// The same of those with a packet socket. What the sockets have seen is known only when the window ends.
    by_socket: Option<Carried>,
}

/// What some interfaces have carried, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carried {
    /// The sum of their counts when they came, at least and at most.
    came: [Tally; 2],
    /// The sum of their last counts, at least and at most.
    gone: [Tally; 2],
    /// What the slot had counted before.
    before: SeenPackets,
}

impl Arrival {
    /// What it had counted in this direction, at least.
    pub const fn least(&self, way: Way) -> Tally {
        self.counts[way as usize]
    }

    /// The interface's own count when it came. weir had counted `seen` in its slot.
    fn reading(self, way: Way, seen: SeenPackets) -> Reading {
        const UNKNOWN: Tally = Tally::new(u64::MAX, u64::MAX);
        let least = self.least(way);
        Reading { own: [least, if self.is_exact { least } else { UNKNOWN }], seen: [seen; 2] }
    }
}

impl Arrived {
    /// Both counts when the interface came.
    pub fn reading(&self, way: Way) -> Reading {
        self.arrival.reading(way, self.seen)
    }
}

impl Arrivals {
    /// The interface with this index, if it has come.
    pub fn get(&self, ifindex: u32) -> Option<Arrival> {
        self.coming.get(&ifindex).copied()
    }

    /// An interface could not be attached because it is just vanishing: its last counts are still to come.
    pub fn put_back(&mut self, ifindex: u32, arrival: Arrival) {
        self.coming.entry(ifindex).or_insert(arrival);
    }

    /// This direction of an interface is in no list any more.
    pub fn depart(&mut self, ifindex: u32, way: Way, departed: Departed) {
        self.departed.insert((ifindex, way), departed);
    }

    /// Everything that is listed is ordered, or will not be measured.
    pub fn forget(&mut self, listed: &[Device]) {
        for device in listed {
            self.coming.remove(&device.ifindex);
        }
        let now = clock::now().monotonic;
        self.departed.retain(|_, departed| now.saturating_sub(departed.at) < LAST_MESSAGE);
    }

    /// News may be missing. An interface that is in no list and is not announced again is gone.
    pub fn note_missed(&mut self) {
        *self = Self::default();
    }
}

impl ShortLives {
    /// Adds an interface that was there for `blind` without being measured.
    fn add(&mut self, unseen: Unseen, blind: Duration) {
        self.unseen.add(unseen);
        self.blind += blind;
    }

    /// Adds one with a packet socket, whose count was `came` when it came and `gone` when it went.
    fn add_by_socket(&mut self, came: &Reading, gone: Tally, blind: Duration) {
        let none = Carried { came: Default::default(), gone: Default::default(), before: came.seen[0] };
        self.by_socket.get_or_insert(none).add(came.own, [gone; 2]);
        self.add(Unseen::default(), blind);
    }

    /// What was not seen of them, and for how long; `None` if all was seen. The slot has counted `told` until now.
    /// `open` is the interface that is there now, if it has come in this window, with its count.
    fn unseen(&self, told: SeenPackets, open: Option<(Reading, Reading)>) -> Option<(Unseen, Duration)> {
        let Self { mut unseen, blind, by_socket } = *self;
        if let Some(mut carried) = by_socket {
            if let Some((came, now)) = open {
                carried.add(came.own, now.own);
            }
            let Carried { came, gone, before } = carried;
            let reading = |own, seen| Reading { own, seen: [seen; 2] };
            unseen.add(unseen_between(&reading(came, before), &reading(gone, told)));
        }
        (unseen != Unseen::default()).then_some((unseen, blind))
    }
}

impl Carried {
    fn add(&mut self, came: [Tally; 2], gone: [Tally; 2]) {
        let sum = |one: Tally, other: Tally| {
            Tally::new(one.packets.saturating_add(other.packets), one.bytes.saturating_add(other.bytes))
        };
        for (sums, more) in [(&mut self.came, came), (&mut self.gone, gone)] {
            *sums = [sum(sums[0], more[0]), sum(sums[1], more[1])];
        }
    }
}

impl Attachment {
    /// Compares with the counts that the interface had when it came, from now on.
    pub fn begin_with_arrival(&mut self) {
        let Some(arrived) = &self.arrived else { return };
        self.coverage = Coverage::new(Some(arrived.reading(self.way)));
        // A program's count is known at any time, but a packet socket's only at the end of a window.
        self.changed &= self.is_by_socket();
    }

    /// The kernel's message about its interface, which was listed before, has these counts.
    fn is_announced(&mut self, counts: [Tally; 2]) {
        if let Some(arrived) = self.arrived.as_mut().filter(|arrived| !arrived.arrival.is_exact) {
            (arrived.arrival.counts, arrived.arrival.is_exact) = (counts, true);
            if self.present.is_some() {
                self.begin_with_arrival();
            }
        }
    }

    /// Whether a packet socket measures it, or will.
    fn is_by_socket(&self) -> bool {
        self.ordered.map_or(self.obtained == Obtained::AfPacket, |ordered| ordered.by_socket)
    }

    /// What must be known of it when the kernel's message with the last counts of its interface is read; `None` if its
    /// interface came in an earlier window. `seen` is what its program has counted.
    pub fn departs(&self, seen: SeenPackets) -> Option<Departed> {
        let (arrived, at) = (self.arrived?, clock::now().monotonic);
        let mut watched = self.watched.clone();
        let blind = match self.present {
            Some(_) => watched.take_blind(),
            None => at.saturating_sub(arrived.arrival.at),
        };
        Some(Departed { arrived, seen: Some(seen).filter(|_| !self.is_by_socket()), blind, at })
    }

    /// The interface that is no longer listed had counted `own` packets in this direction.
    fn end_departed(&mut self, departed: &Departed, own: Tally) {
        let Departed { arrived, seen, blind, at: _ } = departed;
        let came = arrived.reading(self.way);
        // A veth that is deleted reports that it has received nothing. What it had counted before is certain.
        let own = if own.packets < arrived.listed.packets { arrived.listed } else { own };
        let Some(seen) = *seen else { return self.short_lives.add_by_socket(&came, own, *blind) };
        let until_gone = unseen_between(&came, &Reading { own: [own; 2], seen: [seen; 2] });
        let until_begun = arrived.begun.map(|begun| unseen_between(&came, &begun)).unwrap_or_default();
        let is_more = until_begun.counted.packets > until_gone.counted.packets;
        self.short_lives.add(if is_more { until_begun } else { until_gone }, *blind);
    }

    /// Its interface is gone, and had counted `own` packets in this direction. `seen` is what its program has counted.
    fn end_short_life(&mut self, own: Tally, seen: SeenPackets) {
        let Some(departed) = self.departs(seen) else {
            // It came in an earlier window. Its slot may be that of another interface before this window ends, and then
            // only the sum of what both carried can be compared.
            let came = self.coverage.reading().filter(|_| self.is_by_socket() && !self.changed);
            if let Some(came) = came {
                self.short_lives.add_by_socket(&Reading { seen: [self.told; 2], ..came }, own, Duration::ZERO);
            }
            return;
        };
        (self.arrived, _) = (None, self.watched.take_blind());
        self.end_departed(&departed, own);
    }

    /// The window ends, in which this was not seen. If its interface has come in this window, weir was blind only if
    /// something was not seen.
    pub fn note_arrival_told(&mut self, unseen: Option<Unseen>) -> Option<Unseen> {
        if self.present.is_none() || self.arrived.take().is_none() || unseen != Some(Unseen::default()) {
            return unseen;
        }
        self.blind = None;
        None
    }

    /// What was not seen of interfaces that came and went in this window, and for how long. `reading` has the counts of
    /// the interface that is there now.
    pub fn end_short_lives(&mut self, reading: Option<Reading>) -> Option<(Unseen, Duration)> {
        let open = self.arrived.filter(|_| self.present.is_some()).map(|arrived| arrived.reading(self.way));
        std::mem::take(&mut self.short_lives).unseen(self.told, open.zip(reading))
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
        if !self.may_arrive(device) {
            // It may have had another name until now.
            self.note_last_counts(device);
        } else if known.is_none_or(|known| !self.may_arrive(known)) {
            let counts = device.counts;
            let arrival =
                Arrival { counts: counts.unwrap_or_default(), is_exact: counts.is_some(), at: clock::now().monotonic };
            self.arrivals.put_back(device.ifindex, arrival);
        } else if let Some(counts) = device.counts {
            // It was listed before the kernel's first message about it was read.
            let its = |one: &&mut Attachment| one.here().is_some_and(|here| here.ifindex == device.ifindex);
            self.slots.iter_mut().filter(its).for_each(|one| one.is_announced(counts));
        }
    }

    /// Reads both counts of attachments that have just begun. Their interfaces may be gone soon.
    pub(super) fn read_arrived(&mut self) {
        let now = clock::now().monotonic;
        let has_begun = |one: &Attachment| one.present.is_some() && one.arrived.is_some_and(|one| one.begun.is_none());
        if now.saturating_sub(self.arrivals.read_at) < READ_EVERY || !self.slots.iter().any(has_begun) {
            return;
        }
        self.read(ON_ITS_WAY);
        self.arrivals.read_at = now;
        for (slot, one) in self.slots.numbered().filter(|(_, one)| has_begun(one) && !one.is_by_socket()) {
            let begun = one.reading(slot, &self.readings);
            one.arrived = one.arrived.map(|arrived| Arrived { begun, ..arrived });
        }
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
        let mut new = Vec::new();
        for device in devices.iter().filter(|device| self.may_arrive(device)) {
            let known = before.get(&device.ifindex).filter(|_| !self.gone.contains_key(&device.ifindex));
            if known.is_none_or(|known| !self.may_arrive(known)) {
                let counts = known.and_then(|known| known.counts).unwrap_or_default();
                new.push((device.ifindex, Arrival { counts, is_exact: false, at: now }));
            }
        }
        for (ifindex, arrival) in new {
            self.arrivals.put_back(ifindex, arrival);
        }
    }

    /// Notes that the kernel has deleted an interface, or has moved it to another namespace, and what it had counted.
    pub fn note_last_counts(&mut self, device: &Device) {
        let (arrival, now) = (self.arrivals.coming.remove(&device.ifindex), clock::now().monotonic);
        let Some(counts) = device.counts else { return };
        // Another interface had its index before.
        let is_another = self.gone.contains_key(&device.ifindex);
        let mut is_here = [false; 2];
        for way in [Way::Ingress, Way::Egress] {
            if let Some(departed) = self.arrivals.departed.remove(&(device.ifindex, way)) {
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
        let Some(arrival) = arrival else { return };
        let Some(rule) = rule_of(&self.rules, device).filter(|_| self.may_arrive(device)) else { return };
        for &way in self.rules[rule].direction.ways() {
            let has_member = self.shared.as_ref().is_some_and(|shared| shared.has(device.ifindex, way));
            if !is_here[way as usize] && !has_member {
                self.note_never_measured(rule, device, way, arrival);
            }
        }
    }

    /// A direction of an interface that is gone before it was ordered.
    fn note_never_measured(&mut self, rule: usize, device: &Device, way: Way, arrival: Arrival) {
        let own = device.counts.unwrap_or_default()[way as usize];
        let gone = Reading { own: [own; 2], seen: Default::default() };
        let unseen = unseen_between(&arrival.reading(way, SeenPackets::default()), &gone);
        if unseen == Unseen::default() {
            return;
        }
        let blind = clock::now().monotonic.saturating_sub(arrival.at);
        match self.ledger_of(rule, device, way) {
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

    /// The slot that has the ledger of an interface that is gone: its earlier slot, or a free one until the window ends.
    /// `None` if all slots are used, or if weir waits for it: then it is compared as a whole once it is back.
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
        Some(one).filter(|one| one.left.is_none())
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
    use crate::testing::attached;

    const SECOND: Duration = Duration::from_secs(1);

    /// This many packets, each of 100 bytes.
    fn packets(packets: u64) -> Tally {
        Tally::new(packets, packets * 100)
    }

    fn seen(all: u64) -> SeenPackets {
        SeenPackets { all: packets(all), merged: 0 }
    }

    fn arrived(counts: u64, is_exact: bool, before: u64) -> Option<Arrived> {
        let arrival = Arrival { counts: [packets(counts); 2], is_exact, at: SECOND };
        Some(Arrived { arrival, seen: seen(before), listed: Tally::default(), begun: None })
    }

    /// An attachment whose slot had counted 1,000 packets before its interface came.
    fn session(counts: u64, is_exact: bool) -> Attachment {
        let mut one = attached(0, "ppp0", Way::Ingress, 7);
        one.arrived = arrived(counts, is_exact, 1_000);
        one
    }

    fn unseen(one: &mut Attachment) -> Option<(u64, u64)> {
        let unseen = one.add_short_lives(None, one.short_lives.unseen(one.told, None))?;
        Some((unseen.counted.packets, unseen.beyond.packets))
    }

    #[test]
    fn a_session_that_is_gone_again_has_lost_what_no_program_saw() {
        let mut one = session(0, true);
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!((unseen(&mut one), one.arrived), (Some((7, 0)), None));
        assert!(one.blind.is_some());
        // It moved here with its counts, or got its name.
        let mut one = session(900, true);
        one.end_short_life(packets(950), seen(1_043));
        assert_eq!(unseen(&mut one), Some((7, 0)));
        // Nothing was lost, so weir was not blind.
        let mut one = session(0, true);
        one.end_short_life(packets(43), seen(1_043));
        assert_eq!((unseen(&mut one), one.blind), (None, None));
        // A veth has forgotten what it had received, but weir has read it.
        let mut one = session(0, true);
        let begun = Some(Reading { own: [packets(20); 2], seen: [seen(1_013); 2] });
        one.arrived = one.arrived.map(|arrived| Arrived { begun, ..arrived });
        one.end_short_life(packets(0), seen(1_043));
        assert_eq!(unseen(&mut one), Some((7, 0)));
        let mut one = session(0, true);
        one.arrived = one.arrived.map(|arrived| Arrived { listed: packets(9), ..arrived });
        one.end_short_life(packets(0), seen(1_000));
        assert_eq!(unseen(&mut one), Some((9, 0)), "it was never attached");
        // An interface that was there before weir has no arrival.
        let mut one = attached(0, "ppp0", Way::Ingress, 7);
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!(unseen(&mut one), None);
    }

    #[test]
    fn what_an_interface_had_counted_when_it_came_is_a_bound_if_it_is_not_known() {
        let mut one = session(0, false);
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!(unseen(&mut one), Some((0, 7)), "it may have counted them elsewhere");
        let mut one = session(0, false);
        one.is_announced([packets(3); 2]);
        one.is_announced([packets(40); 2]);
        one.end_short_life(packets(50), seen(1_043));
        assert_eq!(unseen(&mut one), Some((4, 0)), "the first message about it counts");
    }

    #[test]
    fn all_sessions_of_a_window_add_up() {
        let mut one = session(0, true);
        one.end_short_life(packets(50), seen(1_043));
        one.arrived = arrived(0, true, 1_043);
        one.end_short_life(packets(20), seen(1_043 + 15));
        assert_eq!(unseen(&mut one), Some((7 + 5, 0)));
    }

    #[test]
    fn what_packet_sockets_saw_is_known_when_the_window_ends() {
        let mut one = session(0, true);
        (one.obtained, one.told) = (Obtained::AfPacket, seen(1_000));
        one.end_short_life(packets(50), seen(0));
        one.arrived = arrived(10, true, 1_000);
        one.end_short_life(packets(30), seen(0));
        one.told = seen(1_000 + 62);
        let lives = one.short_lives;
        assert_eq!(unseen(&mut one), Some((50 + 20 - 62, 0)));
        // A third interface is there, and has carried 25 packets since it came.
        let reading = |own| Reading { own: [packets(own); 2], seen: [seen(1_062); 2] };
        let (more, _) = lives.unseen(seen(1_062), Some((reading(100), reading(125)))).unwrap();
        assert_eq!(more.counted, packets(50 + 20 + 25 - 62));
    }

    #[test]
    fn the_first_comparison_begins_when_the_interface_came() {
        let mut one = session(0, true);
        one.changed = true;
        one.begin_with_arrival();
        assert_eq!(one.coverage.reading(), one.arrived.map(|arrived| arrived.reading(Way::Ingress)));
        assert!(!one.changed, "all packets since then are compared");
        one.blind = Some(SECOND);
        assert_eq!((one.note_arrival_told(Some(Unseen::default())), one.blind), (None, None));
        let some = Some(Unseen { counted: packets(1), beyond: Tally::default() });
        one.arrived = arrived(0, true, 0);
        one.blind = Some(SECOND);
        assert_eq!((one.note_arrival_told(some), one.blind), (some, Some(SECOND)));
    }
}
