//! The slots: one for each direction of each measured interface. This file decides on the state of each slot; it makes
//! no system calls.

use std::{collections::HashSet, time::Duration};

use tracing::{info, warn};
use weir_common::{
    control::Feeds,
    ledger::{Counters, Loss, Tally},
};

use super::{
    coverage::{Compared, Coverage, Finding, Reading, Seen, Shortage, Unseen},
    netlink::{Device, XdpProgram},
    obtained::{Obtained, kept_back, reason_for_missing},
    others::{Others, WAITS},
    plan::{Wanted, alias, passes_on, successor},
    readings::Readings,
    sign,
    tasks::{Number, Urgency},
    watch::Watched,
};
use crate::{
    clock,
    config::{self, Interface},
    datapath::tap::LinkAddress,
    handover::state::SlotState,
    interface::Way,
};

/// One direction of an interface, in its slot.
pub struct Attachment {
    /// The entry of the configuration.
    pub rule: usize,
    /// The last known name of the interface.
    pub name: String,
    /// Its alternative names.
    pub other_names: Vec<String>,
    /// The operator's name for it, if any.
    pub alias: Option<String>,
    /// The direction.
    pub way: Way,
    /// How its packets are seen.
    pub obtained: Obtained,
    /// Which of its packets feed totals and lists.
    pub feeds: Feeds,
    /// The kernel's side; `None` while it is not attached.
    pub present: Option<Present>,
    /// What has been ordered from the attacher.
    pub ordered: Option<Ordered>,
    /// Whether weir sees all its packets.
    pub coverage: Coverage,
    /// The result for the window that ends now.
    pub compared: Compared,
    /// For how long of that window it may have been blind.
    pub blind: Option<Duration>,
    /// A message about an XDP program of another process that kept packets back in that window.
    pub kept_back: Option<String>,
    /// Where its program is at the hook.
    pub watched: Watched,
    /// The interface, while no program is on it because another process has removed it.
    pub nowhere: Option<u32>,
    /// What was known when its interface vanished; `None` if its return is not awaited.
    pub left: Option<Left>,
    /// What the interface counted, or may have counted, before it was attached again.
    missed: Unseen,
    /// All packets of all windows so far.
    pub told: Seen,
    /// For a part of this window it was not attached, or it was attached to another interface.
    pub changed: bool,
    /// The configuration no longer wants it: its slot is free once this window is reported.
    pub is_leaving: bool,
    /// A new configuration wants it from the next window on.
    pub is_coming: bool,
}

/// The kernel's side of an attachment.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// The interface's index.
    pub ifindex: u32,
    /// The XDP program on the interface, weir's or another.
    pub xdp: Option<XdpProgram>,
    /// Its link address. It distinguishes the interface from another one with the same name or index.
    pub address: Option<LinkAddress>,
    /// The attacher's number for it.
    pub number: Number,
}

impl Present {
    /// Whether it is the same interface, as far as is known: a card that was moved to another namespace and back may
    /// have a new index.
    fn is_same(&self, other: &Self) -> bool {
        match (self.address, other.address) {
            (Some(one), Some(other)) => one == other,
            _ => self.ifindex == other.ifindex,
        }
    }
}

/// An attachment that was ordered but is not complete yet.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    /// The future kernel side.
    pub present: Present,
    /// Its place in the queue.
    pub urgency: Urgency,
    /// How its packets were seen before.
    pub before: Obtained,
    /// Whether the slot was free.
    pub is_fresh: bool,
    /// Whether it will be a packet socket.
    pub by_socket: bool,
}

/// What was known of an attachment when its interface vanished.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    present: Present,
    /// Since when the interface may be back.
    since: Duration,
    /// Both counts at the last edge.
    reading: Option<Reading>,
    /// What its slot had seen when it was ordered again.
    seen: Seen,
}

/// What happens to an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'w, 'd> {
    /// It stays. The interface may have been renamed.
    Stays(&'w Wanted<'d>),
    /// It ends: the interface is gone, or no longer matches the configuration.
    Gone,
}

/// All slots.
pub struct Slots(Vec<Option<Attachment>>);

impl Slots {
    /// As many slots as these interfaces may need. A named interface always has its slot, present or not.
    pub fn new(interfaces: &[Interface]) -> Self {
        let named = interfaces.iter().enumerate().filter(|(_, interface)| interface.is_named());
        let named = named.flat_map(|(rule, interface)| {
            interface.direction.ways().iter().map(move |&way| Attachment::new(rule, &interface.name, way))
        });
        let mut slots: Vec<_> = named.map(Some).collect();
        slots.resize_with(config::slots(interfaces).min(Others::SLOT), || None);
        Self(slots)
    }

    /// Changes from the rules `before` to those of another configuration. What these still want, in the same mode,
    /// keeps its slot and its attachment; the rest is leaving. Named interfaces get their slots, present or not. Adds
    /// slots if needed, up to `most` in all. `devices` are the present interfaces.
    pub fn change(&mut self, before: &[Interface], rules: &[Interface], devices: &[Device], most: usize) {
        for attachment in self.iter_mut() {
            let named = Device { name: attachment.name.clone(), ..Device::default() };
            let device = devices.iter().find(|device| device.name == attachment.name).unwrap_or(&named);
            let rule = successor(before, attachment.rule, rules, device, attachment.way);
            match rule {
                Some(rule) => attachment.rule = rule,
                None => attachment.is_leaving = true,
            }
        }
        for (rule, interface) in rules.iter().enumerate().filter(|(_, interface)| interface.is_named()) {
            for &way in interface.direction.ways() {
                let has_slot = |one: &Attachment| !one.is_leaving && one.way == way && one.rule == rule;
                if !self.iter().any(has_slot) {
                    self.put(Attachment { is_coming: true, ..Attachment::new(rule, &interface.name, way) }, most);
                }
            }
        }
        let asked_for = config::slots(rules).min(most);
        if self.0.len() < asked_for {
            self.0.resize_with(asked_for, || None);
        }
    }

    fn put(&mut self, attachment: Attachment, most: usize) {
        if let Some(free) = self.0.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(attachment);
        } else if self.0.len() < most {
            self.0.push(Some(attachment));
        }
    }

    /// How many slots there are, used or free.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The used slots.
    pub fn iter(&self) -> impl Iterator<Item = &Attachment> {
        self.0.iter().flatten()
    }

    /// The used slots.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attachment> {
        self.0.iter_mut().flatten()
    }

    /// A slot, used or free; `None` if the number is out of range.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Option<Attachment>> {
        self.0.get_mut(slot)
    }

    /// Whether this direction of this interface is attached, or ordered.
    pub fn is_measured(&self, ifindex: u32, way: Way) -> bool {
        let is_its = |one: &Attachment| one.here().is_some_and(|present| present.ifindex == ifindex);
        self.iter().any(|one| one.way == way && is_its(one))
    }

    /// The slot of this attachment, attached or ordered.
    pub fn slot_of(&self, number: Number) -> Option<usize> {
        let has = |one: &Attachment| one.here().is_some_and(|present| present.number == number);
        self.0.iter().position(|slot| slot.as_ref().is_some_and(has))
    }

    /// How many are ordered and were not refused before.
    pub fn waiting(&self) -> usize {
        self.iter().filter(|one| one.is_waiting()).count()
    }

    /// The used slots, with their numbers.
    pub fn numbered(&mut self) -> impl Iterator<Item = (usize, &mut Attachment)> {
        self.0.iter_mut().enumerate().filter_map(|(slot, one)| Some((slot, one.as_mut()?)))
    }

    /// How many of them are measured by a packet socket, or will be.
    pub fn sockets(&self) -> usize {
        let is_socket = |one: &&Attachment| match (&one.present, &one.ordered) {
            (Some(_), _) => one.obtained == Obtained::AfPacket,
            (None, Some(ordered)) => ordered.by_socket,
            (None, None) => false,
        };
        self.iter().filter(is_socket).count()
    }

    /// The slot for an interface that is about to be attached: its own, or the one that it already had in this window,
    /// or a free one. `None` if all are used. The default route has a limited number of slots, which are reserved from
    /// patterns.
    pub fn place_for(&self, rules: &[Interface], rule: usize, name: &str, way: Way) -> Option<usize> {
        // A slot that waits for a name may also get an interface by one of its alternative names.
        let is_its = |one: &Attachment| one.name == name || one.rule == rule && rules[rule].is_named();
        let is_own = |one: &Attachment| one.way == way && !one.is_leaving && one.here().is_none() && is_its(one);
        let own = self.0.iter().position(|slot| slot.as_ref().is_some_and(is_own));
        own.or_else(|| {
            let reserved = self.reserved(rules);
            let spare = if rules[rule].is_default_route() { reserved } else { self.free().saturating_sub(reserved) };
            self.0.iter().position(Option::is_none).filter(|_| spare > 0)
        })
    }

    fn free(&self) -> usize {
        self.0.iter().filter(|slot| slot.is_none()).count()
    }

    /// How many slots are reserved for interfaces that will carry the default route.
    fn reserved(&self, rules: &[Interface]) -> usize {
        let Some(rule) = rules.iter().position(Interface::is_default_route) else { return 0 };
        let taken = self.iter().filter(|one| one.rule == rule && !one.is_leaving).count();
        rules[rule].slots().saturating_sub(taken)
    }
}

fn less(all: Tally, part: Tally) -> Tally {
    Tally::new(all.packets.saturating_sub(part.packets), all.bytes.saturating_sub(part.bytes))
}

impl Attachment {
    /// An attachment that is not attached yet.
    pub fn new(rule: usize, name: &str, way: Way) -> Self {
        let (present, coverage) = (None, Coverage::default());
        let (obtained, feeds) = (Obtained::Absent, Feeds::All);
        Self {
            rule,
            name: name.to_owned(),
            other_names: Vec::new(),
            alias: None,
            way,
            obtained,
            feeds,
            present,
            ordered: None,
            coverage,
            compared: Compared::default(),
            blind: None,
            kept_back: None,
            watched: Watched::new(Duration::ZERO),
            nowhere: None,
            left: None,
            missed: Unseen::default(),
            told: Seen::default(),
            changed: false,
            is_leaving: false,
            is_coming: false,
        }
    }

    /// What happens to it, given that `rules` want this and these interfaces are `gone`; `None` if it is not attached.
    /// Another interface may have the index and the name of one that is gone.
    pub fn fate<'w, 'd>(
        &self,
        rules: &[Interface],
        wanted: &'w [Wanted<'d>],
        gone: &HashSet<u32>,
    ) -> Option<Fate<'w, 'd>> {
        let ifindex = self.present.as_ref()?.ifindex;
        let still = wanted.iter().find(|wanted| {
            (wanted.device.ifindex, wanted.way) == (ifindex, self.way)
                && passes_on(&rules[self.rule], &rules[wanted.rule])
        });
        Some(match still {
            Some(wanted) if !gone.contains(&ifindex) => Fate::Stays(wanted),
            _ => Fate::Gone,
        })
    }

    /// It continues under this rule. Returns whether the interface was renamed.
    pub fn stays(&mut self, wanted: &Wanted<'_>, rule: &Interface) -> bool {
        let Wanted { device, .. } = *wanted;
        self.rule = wanted.rule;
        if let Some(present) = &mut self.present {
            present.xdp = device.xdp;
        }
        if self.name != device.name {
            info!(interface = %self.name, now = %device.name, "the interface has another name");
        }
        let is_renamed = !self.names().into_iter().eq(device.names());
        self.call(device, rule);
        is_renamed
    }

    /// Updates the names of the interface.
    pub fn call(&mut self, device: &Device, rule: &Interface) {
        self.name.clone_from(&device.name);
        self.other_names.clone_from(&device.other_names);
        self.alias = alias(rule, device);
    }

    /// Its name, and its alternative names.
    pub fn names(&self) -> Vec<&str> {
        std::iter::once(&self.name).chain(&self.other_names).map(String::as_str).collect()
    }

    /// The XDP program of another process that sees its packets before weir's program.
    pub fn xdp_before(&self) -> Option<XdpProgram> {
        let is_behind = self.way == Way::Ingress && !matches!(self.obtained, Obtained::Native | Obtained::Generic);
        let xdp = self.present?.xdp.filter(|_| is_behind)?;
        Some(xdp).filter(|xdp| !xdp.id.is_some_and(sign::is_weir))
    }

    /// The kernel's side, present or ordered.
    pub fn here(&self) -> Option<Present> {
        self.present.or(self.ordered.map(|ordered| ordered.present))
    }

    /// Whether it is ordered and was not refused before.
    pub fn is_waiting(&self) -> bool {
        self.ordered.is_some_and(|ordered| ordered.urgency < Urgency::Refused)
    }

    /// Its interface is gone, or was: it may be back already.
    pub fn leave(&mut self) {
        let (since, reading) = (self.watched.good_at(), self.coverage.reading());
        let seen = Seen::default();
        self.left = self.present.map(|present| Left { present, since, reading, seen });
    }

    /// Notes what its slot had seen before it is attached again.
    pub fn note_seen(&mut self, seen: Seen) {
        self.left = self.left.map(|left| Left { seen, ..left });
    }

    /// Its interface is currently absent.
    pub fn is_absent(&mut self, now: Duration) {
        self.left = self.left.map(|left| Left { since: now, ..left });
    }

    /// Starts to compare the current attachment from this reading on.
    pub fn begin(&mut self, reading: Option<Reading>) {
        let (Some(reading), Some(present)) = (reading, self.present) else { return };
        self.coverage = Coverage::new(Some(reading).filter(|_| !self.changed));
        let Some(left) = self.left.take() else { return };
        let earlier = left.reading.filter(|earlier| earlier.own[0].packets <= reading.own[1].packets);
        if let Some(earlier) = earlier.filter(|_| left.present.is_same(&present)) {
            // It continues to count.
            (self.coverage, self.changed) = (Coverage::new(Some(earlier)), false);
        } else {
            let (own, seen) = (reading.own[1], reading.seen[0].since(left.seen).all);
            let missed = own.packets.saturating_sub(seen.packets);
            let bytes = if missed > 0 { own.bytes.saturating_sub(seen.bytes) } else { 0 };
            self.missed.counted = Tally::new(missed, bytes);
        }
    }

    /// Continues where an earlier weir stopped: that weir last checked at `looked`, wrote `state` then, and has counted
    /// `since`. The coverage of the first window begins there.
    pub fn is_taken_over(&mut self, state: &SlotState, since: Seen, looked: Duration) {
        self.watched = Watched::taken_over(looked, clock::now().monotonic);
        if let Some(own) = state.own() {
            self.coverage = Coverage::new(Some(Reading { own: [own; 2], seen: [Seen::default(); 2] }));
            self.coverage.credit(since);
        }
    }

    /// Attached again where an earlier weir was, which last checked at `looked`, wrote `state` then, and has counted
    /// `since`. Its program vanished with its interface or was removed, so nobody saw what the interface counted up to
    /// the `begun` reading.
    pub fn is_made_anew(&mut self, state: &SlotState, since: Seen, looked: Duration, begun: Option<Reading>) {
        self.watched = Watched::returned(looked, clock::now().monotonic);
        (self.coverage, self.changed) = (Coverage::default(), true);
        let (Some(present), Some(Reading { own: [_, own], seen: [_, seen] })) = (self.present, begun) else { return };
        let most = less(own, seen.all);
        let least = if state.ifindex == Some(present.ifindex) {
            // It is the same interface, or another one with its index.
            match state.own() {
                Some(before) if before.packets <= own.packets => less(less(most, before), since.all),
                Some(_) => most,
                None => Tally::default(),
            }
        } else if state.newest.is_some_and(|newest| present.ifindex > newest) {
            most
        } else {
            Tally::default()
        };
        self.missed = Unseen { counted: least, beyond: less(most, least) };
    }

    /// Ends the attachment, because of the interface or at a user's request. Returns what must be detached.
    pub fn end(&mut self) -> Option<Present> {
        let here = self.here();
        (self.present, self.ordered, self.nowhere) = (None, None, None);
        self.obtained = Obtained::Gone;
        self.changed = true;
        here
    }

    /// Whether this is a retry after a refusal, which is not reported.
    pub fn is_tried_again(&self) -> bool {
        self.ordered.is_some_and(|ordered| ordered.is_fresh && ordered.urgency == Urgency::Refused)
    }

    /// What currently keeps weir from seeing all its packets.
    pub fn trouble(&self) -> Option<&str> {
        if self.is_waiting() { Some(WAITS) } else { self.watched.trouble().or(self.kept_back.as_deref()) }
    }

    /// The attacher has been asked to attach it.
    pub fn order(&mut self, ordered: Ordered) {
        if ordered.urgency < Urgency::Refused {
            self.obtained = Obtained::Waiting;
        }
        self.ordered = Some(ordered);
    }

    /// The kernel refused. Returns whether the slot is free again.
    pub fn is_refused(&mut self) -> bool {
        let Some(Ordered { before, is_fresh, .. }) = self.ordered.take() else { return false };
        self.obtained = before;
        is_fresh
    }

    /// It has no program any more: another process has removed it, and it could not be put back.
    pub fn lose(&mut self) {
        self.nowhere = self.present.take().map(|present| present.ifindex);
        self.obtained = Obtained::Blind;
    }

    /// It is now attached to this interface.
    pub fn attach(&mut self, present: Present) {
        let now = clock::now().monotonic;
        if self.nowhere.take() == Some(present.ifindex) {
            self.watched.is_mended(now);
        } else {
            self.watched = self.left.map_or_else(|| Watched::new(now), |left| Watched::returned(left.since, now));
            self.coverage = Coverage::default();
        }
        (self.present, self.ordered) = (Some(present), None);
    }

    /// Both counts of this attachment, which has this slot.
    pub fn reading(&self, slot: usize, readings: &Readings<'_>) -> Option<Reading> {
        let its = (self.name.as_str(), self.present.map(|present| present.ifindex).or(self.nowhere)?);
        match self.obtained {
            Obtained::AfPacket => readings.of_socket(self.told, its, self.way),
            _ => readings.of_program(slot, its, self.way),
        }
    }

    /// Compares the counts of the window that ends now with those of the interface; warns of packets that were not
    /// seen. Returns the packets that weir missed while it was blind.
    pub fn compare(
        &mut self,
        slot: usize,
        readings: &Readings<'_>,
        counters: &Counters,
        length: Duration,
    ) -> Option<Unseen> {
        /// More than any interface can carry in a window.
        const UNKNOWN: Tally = Tally::new(1 << 50, 1 << 60);
        self.told.add(counters.seen, counters.merged);
        let reading = self.reading(slot, readings);
        if self.left.is_some() {
            self.begin(reading);
        }
        let missed = std::mem::take(&mut self.missed);
        let now = clock::now().monotonic;
        if self.nowhere.is_some() {
            self.watched.is_nowhere(now);
        } else if self.changed || self.present.is_none() {
            // Not all packets of the window belong to this attachment.
            self.coverage = Coverage::new(reading);
            (self.compared, self.blind) = (Compared::default(), self.watched.close(Shortage::None, now));
            self.left = self.left.map(|left| Left { reading: None, ..left });
            return self.blind.map(|_| missed);
        }
        let dropped = counters.lost[Loss::SocketDrop as usize].packets;
        if self.watched.was_wrong_before() {
            self.coverage.go_back();
        }
        self.compared = self.coverage.edge(reading, dropped, self.watched.was_wrong(), length);
        self.kept_back = self.xdp_before().filter(|_| self.compared.shortage == Shortage::Certain).map(kept_back);
        self.blind = self.watched.close(self.compared.shortage, now);
        if self.blind.is_some() {
            self.coverage.account();
        }
        self.tell(self.compared.finding);
        self.blind?;
        Some(self.compared.unseen.unwrap_or(Unseen { counted: Tally::default(), beyond: UNKNOWN }))
    }

    fn tell(&self, finding: Option<Finding>) {
        let xdp = self.present.as_ref().and_then(|present| present.xdp);
        let reason = || {
            let known = self.watched.reason().map(|reason| reason.to_owned().into());
            known.unwrap_or_else(|| reason_for_missing(self.obtained, self.way, xdp))
        };
        let (interface, direction) = (&self.name, self.way.name());
        match finding {
            None => {}
            Some(Finding::Silent { own }) => {
                warn!(%interface, direction, "the interface counted {own} packets and weir's program saw none: {}", reason());
            }
            Some(Finding::Missing { packets, own }) => {
                let percent = packets as f64 / own as f64 * 100.0;
                warn!(
                    %interface, direction,
                    "weir's program did not see {packets} of the {own} packets that the interface counted ({percent:.1} %): {}",
                    reason()
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::plan::wanted, *};
    use crate::config::{Direction, Mode};

    fn rule(name: &str, direction: Direction) -> Interface {
        Interface { name: name.to_owned(), mode: Mode::Auto, direction, feeds: None }
    }

    fn device(ifindex: u32, name: &str) -> Device {
        Device { ifindex, name: name.to_owned(), hardware: 1, ..Device::default() }
    }

    fn attached(rule: usize, name: &str, way: Way, ifindex: u32) -> Attachment {
        let present = Some(Present { ifindex, xdp: None, address: None, number: 1 });
        Attachment { present, ..Attachment::new(rule, name, way) }
    }

    fn none() -> HashSet<u32> {
        HashSet::new()
    }

    #[test]
    fn a_named_interface_has_its_slot_before_it_is_there() {
        let rules = [rule("eth1", Direction::Both), rule("wan0", Direction::Egress)];
        let slots = Slots::new(&rules);
        let taken: Vec<_> = slots.iter().map(|one| (one.rule, one.name.as_str(), one.way)).collect();
        assert_eq!(taken, [(0, "eth1", Way::Ingress), (0, "eth1", Way::Egress), (1, "wan0", Way::Egress)]);
        assert!(slots.iter().all(|one| one.obtained == Obtained::Absent));
        assert_eq!(slots.place_for(&rules, 0, "eth1", Way::Egress), Some(1));
        assert_eq!(slots.place_for(&rules, 1, "wan0", Way::Egress), Some(2));
        assert!(!slots.is_measured(0, Way::Ingress), "no index is attached");
    }

    #[test]
    fn what_fits_a_pattern_gets_its_earlier_slot_or_the_first_free_one() {
        let rules = [rule("eth0", Direction::Ingress), rule("ppp*", Direction::Ingress)];
        let mut slots = Slots::new(&rules);
        assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), Some(1), "the first is that of eth0");
        *slots.get_mut(1).unwrap() = Some(attached(1, "ppp0", Way::Ingress, 7));
        assert_eq!(slots.place_for(&rules, 1, "ppp1", Way::Ingress), Some(2));
        *slots.get_mut(2).unwrap() = Some(Attachment::new(1, "ppp1", Way::Ingress));
        assert_eq!(slots.place_for(&rules, 1, "ppp1", Way::Ingress), Some(2), "it was there before in this window");
        assert_eq!(slots.place_for(&rules, 1, "ppp2", Way::Ingress), Some(3));
        assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), Some(3), "another one of that name is attached");
        assert!(slots.is_measured(7, Way::Ingress) && !slots.is_measured(7, Way::Egress));
        for slot in 3..Others::SLOT {
            *slots.get_mut(slot).unwrap() = Some(attached(1, "full", Way::Ingress, slot as u32 + 100));
        }
        assert_eq!(slots.place_for(&rules, 1, "ppp2", Way::Ingress), None, "the last slot is for all others");
    }

    /// The slots as text: rule, name and direction of each; `!` if it is leaving.
    fn shown(slots: &Slots) -> Vec<String> {
        let one = |one: &Attachment| {
            let mark = if one.is_leaving { "!" } else { "" };
            format!("{mark}{} {} {}", one.rule, one.name, one.way.name())
        };
        slots.0.iter().map(|slot| slot.as_ref().map_or_else(String::new, one)).collect()
    }

    #[test]
    fn another_configuration_leaves_in_its_slot_what_it_still_asks_for() {
        let before =
            [rule("eth0", Direction::Both), rule("eth1", Direction::Ingress), rule("wan0", Direction::Ingress)];
        let mut slots = Slots::new(&before);
        // The order changes, a direction and an interface go, and another interface comes.
        let after =
            [rule("lan0", Direction::Ingress), rule("wan0", Direction::Ingress), rule("eth0", Direction::Egress)];
        slots.change(&before, &after, &[], 8);
        let expected = ["!0 eth0 ingress", "2 eth0 egress", "!1 eth1 ingress", "1 wan0 ingress", "0 lan0 ingress"];
        assert_eq!(shown(&slots), expected);
        // Slots that were left are reused, and a slot that stays keeps its number.
        slots.0.iter_mut().for_each(|slot| _ = slot.take_if(|one| one.is_leaving));
        let last = [rule("eth1", Direction::Both), rule("lan0", Direction::Ingress)];
        slots.change(&after, &last, &[], 8);
        assert_eq!(
            shown(&slots),
            ["0 eth1 ingress", "!2 eth0 egress", "0 eth1 egress", "!1 wan0 ingress", "1 lan0 ingress"]
        );
    }

    #[test]
    fn what_is_to_be_attached_in_another_way_leaves_and_comes_anew() {
        let before = [rule("eth0", Direction::Ingress), rule("ppp*", Direction::Ingress)];
        let mut slots = Slots::new(&before);
        *slots.get_mut(1).unwrap() = Some(attached(1, "ppp0", Way::Ingress, 7));
        let mut after = before.clone();
        after[0].mode = Mode::Generic;
        // An interface of a pattern that now has its own rule stays as it is.
        after[1].name = "ppp0".to_owned();
        slots.change(&before, &after, &[], 255);
        assert_eq!(shown(&slots)[..3], ["!0 eth0 ingress", "1 ppp0 ingress", "0 eth0 ingress"]);
        assert!(slots.is_measured(7, Way::Ingress));
        assert_eq!(slots.place_for(&after, 0, "eth0", Way::Ingress), Some(2), "not where it is leaving");
    }

    #[test]
    fn there_are_never_more_slots_than_allowed() {
        let before = [rule("eth0", Direction::Ingress)];
        let mut slots = Slots::new(&before);
        slots.change(&before, &[rule("*", Direction::Both)], &[], 255);
        assert_eq!(slots.len(), 255);
        let mut slots = Slots::new(&before);
        slots.change(&before, &[rule("eth1", Direction::Both)], &[], 2);
        assert_eq!(shown(&slots), ["!0 eth0 ingress", "0 eth1 ingress"]);
    }

    #[test]
    fn an_attachment_stays_while_its_interface_does_under_whatever_name_the_rule_allows() {
        let rules = [rule("eth*", Direction::Ingress)];
        let one = attached(0, "eth0", Way::Ingress, 2);
        let devices = [device(2, "eth7"), device(3, "eth0")];
        let wanted = wanted(&rules, &devices, true);
        assert_eq!(one.fate(&rules, &wanted, &none()), Some(Fate::Stays(&wanted[0])), "it is the index that counts");
        assert_eq!(
            one.fate(&rules, &wanted, &HashSet::from([2])),
            Some(Fate::Gone),
            "this index is another interface's now"
        );
        assert_eq!(one.fate(&rules, &wanted[1..], &none()), Some(Fate::Gone));
        assert_eq!(
            Attachment::new(0, "eth0", Way::Ingress).fate(&rules, &wanted, &none()),
            None,
            "nothing is attached"
        );
    }

    #[test]
    fn the_default_route_has_some_slots_and_patterns_leave_them_free() {
        let rules = [rule("default route", Direction::Ingress), rule("eth0", Direction::Ingress)];
        let mut slots = Slots::new(&rules);
        assert_eq!(slots.len(), 5);
        for (slot, name) in (1..).zip(["wan0", "wan1", "wan2", "wan3"]) {
            assert_eq!(slots.place_for(&rules, 0, name, Way::Ingress), Some(slot));
            *slots.get_mut(slot).unwrap() = Some(attached(0, name, Way::Ingress, slot as u32 + 10));
        }
        assert_eq!(slots.place_for(&rules, 0, "wan4", Way::Ingress), None);
        slots.get_mut(2).unwrap().as_mut().unwrap().end();
        assert_eq!(slots.place_for(&rules, 0, "wan4", Way::Ingress), None, "until its window is reported");
        assert_eq!(slots.place_for(&rules, 0, "wan1", Way::Ingress), Some(2), "it is back");

        let rules = [rule("default route", Direction::Ingress), rule("ppp*", Direction::Ingress)];
        let mut slots = Slots::new(&rules);
        for slot in 0..Others::SLOT - 4 {
            assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), Some(slot));
            *slots.get_mut(slot).unwrap() = Some(attached(1, "ppp", Way::Ingress, slot as u32 + 10));
        }
        assert_eq!(slots.place_for(&rules, 1, "ppp0", Way::Ingress), None);
        for slot in Others::SLOT - 4..Others::SLOT {
            assert_eq!(slots.place_for(&rules, 0, "wan0", Way::Ingress), Some(slot));
            *slots.get_mut(slot).unwrap() = Some(attached(0, "wan", Way::Ingress, slot as u32 + 10));
        }
        assert_eq!(slots.place_for(&rules, 0, "wan0", Way::Ingress), None);
    }

    #[test]
    fn an_attachment_stays_where_the_default_route_comes_to_what_a_pattern_means() {
        let rules = [rule("eth*", Direction::Ingress), rule("default route", Direction::Ingress)];
        let one = attached(0, "eth0", Way::Ingress, 2);
        let devices = [Device { carries_default: true, ..device(2, "eth0") }];
        let wanted = wanted(&rules, &devices, true);
        assert_eq!((wanted[0].rule, one.fate(&rules, &wanted, &none())), (1, Some(Fate::Stays(&wanted[0]))));
        // Reload between the two rules, and to the name.
        for after in ["default route", "eth0"] {
            let mut slots = Slots::new(&rules);
            *slots.get_mut(0).unwrap() = Some(attached(0, "eth0", Way::Ingress, 2));
            slots.change(&rules, &[rule(after, Direction::Ingress)], &devices, 255);
            assert_eq!(shown(&slots)[0], "0 eth0 ingress", "{after}");
            slots.change(&[rule(after, Direction::Ingress)], &[rule("wan0", Direction::Ingress)], &devices, 255);
            assert_eq!(shown(&slots)[0], "!0 eth0 ingress", "{after}");
        }
    }

    #[test]
    fn an_attachment_ends_where_another_rule_or_direction_wants_the_interface() {
        let devices = [device(2, "eth0")];
        let one = attached(0, "eth0", Way::Ingress, 2);
        let first_rule = [rule("eth0", Direction::Egress)];
        assert_eq!(one.fate(&first_rule, &wanted(&first_rule, &devices, true), &none()), Some(Fate::Gone));
        let second_rule = [rule("wan0", Direction::Ingress), rule("eth0", Direction::Ingress)];
        assert_eq!(one.fate(&second_rule, &wanted(&second_rule, &devices, true), &none()), Some(Fate::Gone));
    }

    #[test]
    fn a_program_that_is_nowhere_keeps_its_slot_and_its_account_until_it_is_attached_again() {
        let present = || Present { ifindex: 2, xdp: None, address: None, number: 1 };
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        one.attach(present());
        one.coverage = Coverage::new(Some(Reading { own: [Tally::default(); 2], seen: [Seen::default(); 2] }));
        one.lose();
        assert_eq!((one.obtained, one.nowhere, one.changed), (Obtained::Blind, Some(2), false));
        one.attach(present());
        assert!(!one.coverage.is_new() && one.watched.was_wrong() && one.nowhere.is_none());
        one.end();
        one.attach(present());
        assert!(one.coverage.is_new() && !one.watched.was_wrong(), "another interface");
    }

    #[test]
    fn a_window_with_a_change_has_no_coverage_and_a_blind_one_without_counts_knows_nothing() {
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        one.changed = true;
        let (readings, second) = (Readings::new(None).unwrap(), Duration::from_secs(1));
        let counters = Counters { seen: Tally::new(50, 5_000), ..Counters::default() };
        assert_eq!(one.compare(0, &readings, &counters, second), None);
        assert_eq!((one.compared, one.told.all.packets), (Compared::default(), 50));
        one.changed = false;
        assert_eq!(one.compare(0, &readings, &counters, second), None, "it was not blind");
        one.lose();
        one.watched.is_wrong(&crate::attach::watch::Position::Removed, second);
        let unseen = one.compare(0, &readings, &counters, second).unwrap();
        assert!(unseen.counted.is_zero() && unseen.beyond.packets > 1 << 40 && one.blind.is_some(), "{unseen:?}");
    }
}
