//! Interfaces that match a pattern when no slot is free; an access router has thousands of them. They all share one
//! slot, so that each packet is counted. Reports call them `others`.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use weir_common::{
    control::{Feeds, OTHERS},
    ledger::{Ledger, Tally},
};
use weir_config::{Interface, interface::Way};
use weir_datapath::interface::{Counts, MeasuredInterface};
use weir_system::clock;

use super::{
    coverage::{Shortage, Unseen, less},
    departures::Departure,
    netlink::Device,
    obtained::{Obtained, WAITS},
    plan::{PlannedAttachment, successor},
    present::Origin,
    readings::Readings,
    tasks::Number,
    watch::Watched,
};

/// The name of this slot in reports.
pub const NAME: &str = "others";

/// The interfaces without a slot of their own.
#[derive(Default)]
pub struct SharedSlot {
    members: BTreeMap<Number, Member>,
    numbers: HashMap<(u32, Way), Number>,
    /// True if the slot had a member in this window.
    had_one: bool,
    /// True if a member counted buffers in this window.
    counted_buffers: bool,
    /// How long a member may have been blind in this window.
    blind: Option<Duration>,
    /// Packets that were missed of interfaces that came and went in this window.
    short_lives: Unseen,
    /// The interfaces among them that are in no list any more, with their counts when they came, at least, and when
    /// that was. The kernel's message with their last counts is still to be read.
    departed: HashMap<(u32, Way), (Tally, Duration)>,
}

/// One direction of an interface that shares the slot.
pub struct Member {
    rule: usize,
    /// The interface index.
    pub ifindex: u32,
    /// The measured direction.
    pub way: Way,
    name: String,
    /// How its packets are seen; [`Obtained::Waiting`] until it is attached.
    obtained: Obtained,
    /// True if the kernel refused it before.
    was_refused: bool,
    feeds: Feeds,
    /// The state of its position.
    pub watched: Watched,
    /// The interface's own count at the last window's edge, or when it was listed before it was attached. At least that
    /// when it came, if it came while weir runs.
    own: Option<Tally>,
    /// When the interface came, until that is in a report.
    arrived: Option<Duration>,
}

impl SharedSlot {
    /// The slot that they share.
    pub const SLOT: usize = OTHERS as usize;

    /// Returns true if this direction of this interface is a member.
    pub fn has(&self, ifindex: u32, way: Way) -> bool {
        self.numbers.contains_key(&(ifindex, way))
    }

    /// How many members are at a tc hook.
    pub fn at_tc(&self) -> usize {
        self.members.values().filter(|member| member.obtained.is_at_tc()).count()
    }

    /// How many members have a link.
    pub fn links(&self) -> usize {
        self.members.values().filter(|member| member.obtained.has_link()).count()
    }

    /// How many members are not attached yet, and were not refused before.
    pub fn waiting(&self) -> usize {
        self.members.values().filter(|member| member.is_waiting() && !member.was_refused).count()
    }

    /// Adds a member that is about to be attached; returns whether it is the first.
    pub fn take(
        &mut self,
        wanted: &PlannedAttachment<'_>,
        number: Number,
        feeds: Feeds,
        was_refused: bool,
        arrival: Option<(Origin, Duration)>,
    ) -> bool {
        let is_first = self.members.is_empty();
        let PlannedAttachment { rule, device, way, .. } = *wanted;
        let (ifindex, name) = (device.ifindex, device.name.clone());
        let (obtained, watched) = (Obtained::Waiting, Watched::new(clock::now().monotonic));
        self.numbers.insert((ifindex, way), number);
        let listed = device.counts.map(|counts| counts[way as usize]);
        let own = arrival.map_or(listed, |(origin, _)| Some(origin.least(way)));
        let arrived = arrival.map(|(_, at)| at);
        let member = Member { rule, ifindex, way, name, obtained, was_refused, feeds, watched, own, arrived };
        self.members.insert(number, member);
        self.note();
        is_first
    }

    /// Returns true if a member has this number.
    pub fn knows(&self, number: Number) -> bool {
        self.members.contains_key(&number)
    }

    /// The member with this number.
    pub fn get_mut(&mut self, number: Number) -> Option<&mut Member> {
        self.members.get_mut(&number)
    }

    /// Notes that a member was attached in this way.
    pub fn note_attached(&mut self, number: Number, obtained: Obtained) {
        if let Some(member) = self.members.get_mut(&number) {
            let now = clock::now().monotonic;
            let new = || Watched::new(now);
            member.obtained = obtained;
            member.watched = member.arrived.map_or_else(new, |arrived| Watched::returned(arrived, now));
        }
        self.note();
    }

    /// Removes a member that could not be attached or restored. Later it is attached again or refused, as any other
    /// interface.
    pub fn remove(&mut self, number: Number) -> Option<Member> {
        let member = self.members.remove(&number)?;
        self.numbers.remove(&(member.ifindex, member.way));
        Some(member)
    }

    /// Changes from the rules `before` to those of another configuration. Members that the new rules do not want are
    /// released at the next change.
    pub fn change(&mut self, before: &[Interface], rules: &[Interface], devices: &[Device]) {
        let by_index: HashMap<_, _> = devices.iter().map(|device| (device.ifindex, device)).collect();
        for member in self.members.values_mut() {
            let device = by_index.get(&member.ifindex);
            let rule = device.and_then(|device| successor(before, member.rule, rules, device, member.way));
            member.rule = rule.unwrap_or(usize::MAX);
        }
    }

    /// Removes and returns the members that are gone or no longer wanted.
    pub fn let_go(
        &mut self,
        wanted: &[PlannedAttachment<'_>],
        gone: &HashMap<u32, Departure>,
    ) -> Vec<(Number, u32, Way)> {
        let asked_for: HashMap<_, _> =
            wanted.iter().map(|wanted| ((wanted.device.ifindex, wanted.way, wanted.rule), wanted.device)).collect();
        let mut left = Vec::new();
        for (&number, member) in &mut self.members {
            match asked_for.get(&(member.ifindex, member.way, member.rule)) {
                Some(device) if !gone.contains_key(&member.ifindex) => {
                    if member.name != device.name {
                        member.name.clone_from(&device.name);
                    }
                }
                _ => left.push(number),
            }
        }
        let mut all = Vec::new();
        for number in left {
            let Some(Member { ifindex, way, own, arrived, .. }) = self.remove(number) else { continue };
            self.departed.extend(arrived.map(|at| ((ifindex, way), (own.unwrap_or_default(), at))));
            all.push((number, ifindex, way));
        }
        all
    }

    /// The packets that may have been missed while members were blind. weir does not know which packets of the slot are
    /// theirs, so this may be everything that their interfaces counted.
    pub fn missed(&mut self, readings: &Readings<'_>) -> Unseen {
        let mut missed = std::mem::take(&mut self.short_lives);
        for member in self.members.values_mut().filter(|member| member.arrived.is_none() || !member.is_waiting()) {
            let now = readings.own((&member.name, member.ifindex), member.way);
            if now.is_none() && member.arrived.is_some() {
                // It is gone already: the kernel is about to report its last counts.
                continue;
            }
            member.arrived = None;
            if let Some((blind, carried)) = member.close(now, clock::now().monotonic) {
                self.blind = self.blind.max(Some(blind));
                missed.beyond.add(carried);
            }
        }
        missed
    }

    /// Notes the counts of the interface with this index, in each direction, when it went. weir does not know which
    /// packets of the slot were its own, so it may have missed all packets since the interface came.
    pub fn note_last_counts(&mut self, ifindex: u32, counts: [Tally; 2], now: Duration) {
        for way in [Way::Ingress, Way::Egress] {
            let number = self.numbers.get(&(ifindex, way));
            let member = number.and_then(|number| self.members.get_mut(number));
            let here = member.and_then(|member| Some((member.own.unwrap_or_default(), member.arrived.take()?)));
            let Some((own, arrived)) = here.or_else(|| self.departed.remove(&(ifindex, way))) else { continue };
            self.short_lives.beyond.add(less(counts[way as usize], own));
            (self.blind, self.had_one) = (self.blind.max(Some(now.saturating_sub(arrived))), true);
        }
    }

    /// Notes that news may be missing: events that are still awaited may never be reported.
    pub fn note_missed(&mut self) {
        self.departed.clear();
    }

    /// Notes an interface that would have been a member, and was gone before.
    pub fn note_never_measured(&mut self, unseen: Unseen, blind: Duration) {
        self.short_lives.add(unseen);
        (self.blind, self.had_one) = (self.blind.max(Some(blind)), true);
    }

    /// Returns the reason why weir does not see all packets of a member at the moment.
    pub fn trouble(&self) -> Option<&str> {
        self.members.values().find_map(|member| member.watched.trouble())
    }

    /// Returns true if there are members, apart from those that the kernel has refused.
    pub fn has_members(&self) -> bool {
        self.members.values().any(|member| !member.was_refused || !member.is_waiting())
    }

    /// How they are seen.
    pub fn obtained(&self) -> Obtained {
        let is_attached = self.members.values().any(|member| member.obtained.sees_packets());
        if is_attached { Obtained::Shared } else { Obtained::Waiting }
    }

    /// The trouble of a member, or how many members wait to be attached.
    pub fn trouble_or_waiting(&self) -> Option<String> {
        let waiting = self.waiting();
        self.trouble().map(str::to_owned).or_else(|| (waiting > 0).then(|| format!("{waiting} of them {WAITS}")))
    }

    /// The members' part of a window's report; `None` if there were no members.
    pub fn close(&mut self, ledger: &Ledger) -> Option<MeasuredInterface> {
        let (had_one, counted_buffers) = (self.had_one, self.counted_buffers);
        (self.had_one, self.counted_buffers) = (false, false);
        self.note();
        // A packet may still be counted while its interface is being detached.
        (had_one || ledger.counters.seen.packets > 0).then(|| MeasuredInterface {
            slot: Some(Self::SLOT),
            name: NAME.to_owned(),
            earlier_name: None,
            index: None,
            alias: None,
            vrf: None,
            mode: Obtained::Shared.name(),
            counts: if counted_buffers { Counts::Buffers } else { Counts::Packets },
            direction: None,
            feeds: self.feeds(),
            coverage: None,
            coverage_bytes: None,
            unseen: None,
            blind: self.blind.take(),
            trouble: self.trouble_or_waiting(),
        })
    }

    /// Updates what each member feeds; returns those for which it has changed.
    pub fn feed(&mut self, feeds: impl Fn(u32, Way) -> Feeds) -> Vec<(Number, Feeds)> {
        let mut changed = Vec::new();
        for (&number, member) in &mut self.members {
            let now = feeds(member.ifindex, member.way);
            if std::mem::replace(&mut member.feeds, now) != now {
                changed.push((number, now));
            }
        }
        changed
    }

    /// Returns the packets that the members feed together, in the words of a report.
    fn feeds(&self) -> &'static str {
        let mut all = self.members.values().map(|member| member.feeds);
        let first = all.next().unwrap_or_default();
        if all.all(|feeds| feeds == first) { first.name() } else { "mixed" }
    }

    fn note(&mut self) {
        self.had_one |= self.has_members();
        self.counted_buffers |= self.members.values().any(|member| member.obtained.counts() == Counts::Buffers);
    }
}

impl Member {
    const fn is_waiting(&self) -> bool {
        matches!(self.obtained, Obtained::Waiting)
    }

    /// Returns for how long it may have been blind in the window that ends, and the most that its interface may have
    /// counted, which has counted `own` in all until `now`.
    fn close(&mut self, own: Option<Tally>, now: Duration) -> Option<(Duration, Tally)> {
        if own.is_none() && self.own.is_some() {
            // The interface's name has just changed. The next window takes over the packets of this one.
            return None;
        }
        let before = std::mem::replace(&mut self.own, own);
        let blind = self.watched.close(Shortage::Certain, now, true)?;
        let carried = own.zip(before).filter(|(own, before)| own.packets >= before.packets);
        Some((blind, carried.map_or(Unseen::UNKNOWN.beyond, |(own, before)| own.since(before))))
    }

    /// Returns the member's rule, direction, index and name.
    pub fn what(self) -> (usize, Way, u32, String) {
        (self.rule, self.way, self.ifindex, self.name)
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;
    use weir_config::{Direction, Interface, Mode};

    use super::{
        super::{netlink::Device, plan::wanted, watch::Position},
        *,
    };

    #[test]
    fn members_are_reported_and_leave_with_their_interface() {
        let rules = [Interface { name: "ppp*".to_owned(), mode: Mode::Auto, direction: Direction::Both, feeds: None }];
        let device = |ifindex| Device { ifindex, name: format!("ppp{ifindex}"), hardware: 512, ..Device::default() };
        let devices = [device(7), device(8)];
        let wanted = wanted(&rules, &devices, true);
        let (mut others, ledger) = (SharedSlot::default(), Ledger::default());
        assert_eq!(others.close(&ledger), None, "there was no member");
        let mut take = |(number, wanted)| others.take(wanted, number, Feeds::All, false, None);
        let first: Vec<_> = (1..).zip(&wanted).map(&mut take).collect();
        assert_eq!(first, [true, false, false, false]);
        let listed = others.close(&ledger).unwrap();
        assert_eq!((listed.feeds, listed.trouble.is_some_and(|why| why.starts_with("4 of them"))), ("all", true));
        for number in 1..=4 {
            others.note_attached(number, Obtained::Tc);
        }
        assert_eq!((others.waiting(), others.at_tc()), (0, 4));
        let changed = others.feed(|ifindex, _| if ifindex == 7 { Feeds::None } else { Feeds::All });
        assert_eq!(changed, [(1, Feeds::None), (2, Feeds::None)]);
        assert_eq!(others.close(&ledger).unwrap().feeds, "mixed");
        assert_eq!((listed.name.as_str(), listed.mode, listed.direction), ("others", "others", None));
        let numbers = |gone: Vec<(Number, u32, Way)>| gone.into_iter().map(|(number, ..)| number).collect::<Vec<_>>();
        assert_eq!(numbers(others.let_go(&wanted[1..], &HashMap::from([(8, Departure::Deleted)]))), [1, 3, 4]);
        let left = [(7, Way::Ingress), (7, Way::Egress), (8, Way::Ingress), (8, Way::Egress)];
        assert_eq!(left.map(|(ifindex, way)| others.has(ifindex, way)), [false, true, false, false]);
        assert_eq!(numbers(others.let_go(&[], &HashMap::new())), [2]);
        assert!(others.close(&ledger).is_some(), "there was a member at the beginning of this window");
        assert_eq!(others.close(&ledger), None);
        let mut late = ledger;
        late.counters.seen = Tally::new(1, 60);
        assert!(others.close(&late).is_some(), "no packet is missing from the report");
    }

    #[test]
    fn a_blind_member_may_have_missed_what_its_interface_carried_meanwhile() {
        let rules = [Interface { name: "e*".to_owned(), mode: Mode::Auto, direction: Direction::Ingress, feeds: None }];
        let own = |packets| Tally::new(packets, packets * 100);
        let devices = [Device {
            ifindex: 3,
            name: "e3".to_owned(),
            hardware: 1,
            counts: Some([own(50_000), own(0)]),
            ..Device::default()
        }];
        let mut others = SharedSlot::default();
        others.take(&wanted(&rules, &devices, true)[0], 1, Feeds::All, false, None);
        others.note_attached(1, Obtained::Tc);
        let member = others.get_mut(1).unwrap();
        let mut blind_until = |own, seconds| {
            let now = clock::now().monotonic + Duration::from_secs(seconds);
            member.watched.note_wrong(&Position::Removed, now);
            member.close(own, now).map(|(_, carried)| carried)
        };
        assert_eq!(blind_until(Some(own(50_007)), 1), Some(own(7)), "not what it had carried before");
        assert_eq!(blind_until(None, 2), None, "it was renamed");
        assert_eq!(blind_until(Some(own(50_010)), 3), Some(own(3)), "of two windows");
        assert_eq!(blind_until(Some(own(1)), 4), Some(Unseen::UNKNOWN.beyond), "the driver has reset its counters");
    }

    #[test]
    fn one_member_that_counts_buffers_is_reported_for_all() {
        let rules = [Interface { name: "e*".to_owned(), mode: Mode::Auto, direction: Direction::Ingress, feeds: None }];
        let devices = [Device { ifindex: 3, name: "e3".to_owned(), hardware: 1, ..Device::default() }];
        let mut others = SharedSlot::default();
        others.take(&wanted(&rules, &devices, true)[0], 1, Feeds::All, false, None);
        others.note_attached(1, Obtained::Generic);
        assert_eq!(others.close(&Ledger::default()).unwrap().counts, Counts::Buffers);
    }
}
