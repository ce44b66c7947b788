//! One attachment: the state of one direction of a measured interface, and how it changes. This file makes no system
//! calls.

use std::{collections::HashMap, time::Duration};

use tracing::{info, warn};
use weir_common::{
    control::Feeds,
    ledger::{Counters, Loss, Tally},
};
use weir_config::{Interface, interface::Way};
use weir_datapath::{kept::SlotState, tap::LinkAddress};
use weir_system::clock;

use super::{
    arrivals::{Arrived, ShortLives},
    coverage::{Compared, Coverage, Finding, Reading, SeenPackets, Shortage, Unseen},
    netlink::{Device, XdpProgram},
    obtained::{Obtained, WAITS, kept_back, reason_for_missing},
    plan::{PlannedAttachment, alias, passes_on},
    readings::Readings,
    sign,
    tasks::{Number, Urgency},
    watch::Watched,
};

/// How long an interface may have a name that no rule covers before weir detaches.
const STRAYING: Duration = Duration::from_millis(500);

/// One direction of an interface, in its slot.
pub struct Attachment {
    /// The entry of the configuration.
    pub rule: usize,
    /// The last known name of the interface.
    pub name: String,
    /// The name that the interface had when the open window began, if it was renamed since.
    pub earlier_name: Option<String>,
    /// Since when the interface has had a name that no rule covers.
    strayed: Option<Duration>,
    /// The interface's alternative names.
    pub other_names: Vec<String>,
    /// The operator's name for the interface, if any.
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
    /// Compares weir's count with the interface's own.
    pub coverage: Coverage,
    /// The result of the comparison for the window that ends now.
    pub compared: Compared,
    /// How long weir may have been blind in that window.
    pub blind: Option<Duration>,
    /// A message about an XDP program of another process that kept packets back in that window.
    pub kept_back: Option<String>,
    /// Where its program is at the hook.
    pub watched: Watched,
    /// The interface's index, while no program is on it because another process has removed it.
    pub nowhere: Option<u32>,
    /// What was known when its interface vanished; `None` if weir does not wait for its return.
    pub left: Option<Vanished>,
    /// What the interface counted, or may have counted, before it was attached again.
    missed: Unseen,
    /// When and how its interface came, until that is in a report.
    pub arrived: Option<Arrived>,
    /// Interfaces that came and are gone again in this window.
    pub short_lives: ShortLives,
    /// All packets that were seen in all windows so far.
    pub told: SeenPackets,
    /// Whether it was not attached, or attached to another interface, for a part of this window.
    pub changed: bool,
    /// Whether the configuration no longer wants it: its slot becomes free once this window is reported.
    pub is_leaving: bool,
    /// Whether a new configuration wants it from the next window on.
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
    /// The interface's own counts when it last had another name, if it was renamed while weir followed it.
    pub renamed: Option<[Tally; 2]>,
    /// The attacher's number for it.
    pub number: Number,
}

impl Present {
    /// Whether it is the same interface, as far as is known. A card that was moved to another namespace and back may
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
    /// Its kernel side, once it is attached.
    pub present: Present,
    /// Its place in the queue.
    pub urgency: Urgency,
    /// How its packets were seen before.
    pub before: Obtained,
    /// Whether the slot was free.
    pub is_fresh: bool,
    /// Whether it will use a packet socket.
    pub by_socket: bool,
}

/// What is known about why an interface vanished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// Nothing is known, not even whether it is gone.
    Unknown,
    /// It moved to another network namespace. It may come back, and its counters continue.
    Moved,
    /// It was deleted. An interface with the same name, index or address is another one.
    Deleted,
}

/// What was known of an attachment when its interface vanished.
#[derive(Clone, Copy, Debug)]
pub struct Vanished {
    present: Present,
    departure: Departure,
    /// The earliest time at which the interface may be back.
    since: Duration,
    /// Both counts at the end of the last window.
    reading: Option<Reading>,
    /// What its slot had counted when it was ordered again.
    seen: SeenPackets,
}

/// What happens to an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'w, 'd> {
    /// It stays. The interface may have been renamed.
    Stays(&'w PlannedAttachment<'d>),
    /// It ends: the interface is gone, or no longer matches the configuration.
    Gone,
}

fn less(all: Tally, part: Tally) -> Tally {
    Tally::new(all.packets.saturating_sub(part.packets), all.bytes.saturating_sub(part.bytes))
}

/// What an earlier weir counted after it read the interface's own count, at most and at least. It wrote `state`, and
/// has counted `since` in windows that it has not reported. Its last window ended after the reading, so the packets in
/// between are in its last report and not in `since`.
fn since_reading(state: &SlotState, since: SeenPackets) -> [SeenPackets; 2] {
    let reported = state
        .reported()
        .map_or_else(SeenPackets::default, |Counters { seen, merged, .. }| SeenPackets { all: seen, merged });
    let mut all = reported;
    all.add(since.all, since.merged);
    state.seen.map_or([since; 2], |seen| seen.map(|seen| all.since(SeenPackets::from_words(seen))))
}

impl Attachment {
    /// An attachment that is not attached yet.
    pub fn new(rule: usize, name: &str, way: Way) -> Self {
        let (present, coverage) = (None, Coverage::default());
        let (obtained, feeds) = (Obtained::Absent, Feeds::All);
        Self {
            rule,
            name: name.to_owned(),
            earlier_name: None,
            strayed: None,
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
            arrived: None,
            short_lives: ShortLives::default(),
            told: SeenPackets::default(),
            changed: false,
            is_leaving: false,
            is_coming: false,
        }
    }

    /// What happens to it, given these rules, the interfaces that they want, and the interfaces that are `gone`; `None`
    /// if it is not attached. Another interface may have the index and the name of one that is gone.
    pub fn fate<'w, 'd>(
        &self,
        rules: &[Interface],
        wanted: &'w [PlannedAttachment<'d>],
        gone: &HashMap<u32, Departure>,
    ) -> Option<Fate<'w, 'd>> {
        let ifindex = self.present.as_ref()?.ifindex;
        let still = wanted.iter().find(|wanted| {
            (wanted.device.ifindex, wanted.way) == (ifindex, self.way)
                && passes_on(&rules[self.rule], &rules[wanted.rule])
        });
        Some(match still {
            Some(wanted) if !gone.contains_key(&ifindex) => Fate::Stays(wanted),
            _ => Fate::Gone,
        })
    }

    /// The rule under which it continues, because its interface now has a name that another rule covers. `None` if its
    /// own rule still covers it, or if the other rule would attach it in another way.
    pub fn next_rule(
        &self,
        rules: &[Interface],
        wanted: &[PlannedAttachment<'_>],
        gone: &HashMap<u32, Departure>,
    ) -> Option<usize> {
        let ifindex = self.here().filter(|_| !self.is_leaving)?.ifindex;
        let wanted = wanted.iter().find(|one| (one.device.ifindex, one.way) == (ifindex, self.way))?;
        let (from, to) = (&rules[self.rule], &rules[wanted.rule]);
        let goes_on = from.mode == to.mode && !passes_on(from, to) && !gone.contains_key(&ifindex);
        goes_on.then_some(wanted.rule)
    }

    /// Whether it stays for a moment although no rule covers its interface's name: two interfaces that swap their names
    /// need a third name in between. It does not stay if another interface has its name now.
    pub fn may_stray(
        &mut self,
        rules: &[Interface],
        wanted: &[PlannedAttachment<'_>],
        devices: &[Device],
        now: Duration,
    ) -> bool {
        let ifindex = self.present.map(|present| present.ifindex);
        let is_renamed = devices.iter().any(|one| Some(one.ifindex) == ifindex && one.name != self.name);
        let its = |one: &PlannedAttachment<'_>| one.rule == self.rule || Some(one.device.ifindex) == ifindex;
        let is_due = wanted.iter().any(|one| one.way == self.way && its(one));
        self.strayed = (is_renamed && !is_due && rules[self.rule].is_named()).then(|| self.strayed.unwrap_or(now));
        self.strayed.is_some_and(|since| now.saturating_sub(since) < STRAYING)
    }

    /// Makes it wait, unattached, for an interface with this name.
    pub fn wait_as(&mut self, rule: usize, name: &str) {
        self.rule = rule;
        if self.here().is_none() && self.name != name {
            self.earlier_name.get_or_insert_with(|| self.name.clone());
            name.clone_into(&mut self.name);
            (self.other_names, self.alias) = (Vec::new(), None);
        }
    }

    /// Continues it under this rule. Returns whether the interface was renamed.
    pub fn stays(&mut self, wanted: &PlannedAttachment<'_>, rule: &Interface) -> bool {
        let PlannedAttachment { device, .. } = *wanted;
        (self.rule, self.strayed) = (wanted.rule, None);
        if let Some(present) = &mut self.present {
            present.xdp = device.xdp;
        }
        if self.name != device.name {
            info!(interface = %self.name, now = %device.name, "the interface was renamed");
            self.earlier_name.get_or_insert_with(|| self.name.clone());
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

    /// The XDP program of another process that sees the packets before weir's program.
    pub fn xdp_before(&self) -> Option<XdpProgram> {
        let is_behind = self.way == Way::Ingress && !matches!(self.obtained, Obtained::Native | Obtained::Generic);
        let xdp = self.present?.xdp.filter(|_| is_behind)?;
        Some(xdp).filter(|xdp| !xdp.id.is_some_and(sign::is_weir))
    }

    /// Its kernel side, attached or ordered.
    pub fn here(&self) -> Option<Present> {
        self.present.or(self.ordered.map(|ordered| ordered.present))
    }

    /// Whether it is ordered and was not refused before.
    pub fn is_waiting(&self) -> bool {
        self.ordered.is_some_and(|ordered| ordered.urgency < Urgency::Refused)
    }

    /// Its interface has vanished, and may already be back.
    pub fn leave(&mut self, departure: Departure) {
        let (since, reading) = (self.watched.good_at(), self.coverage.reading());
        let seen = SeenPackets::default();
        self.left = self.present.map(|present| Vanished { present, departure, since, reading, seen });
    }

    /// Notes what its slot had counted before it is attached again.
    pub fn note_seen(&mut self, seen: SeenPackets) {
        self.left = self.left.map(|left| Vanished { seen, ..left });
    }

    /// Its interface is currently absent.
    pub fn is_absent(&mut self, now: Duration) {
        self.left = self.left.map(|left| Vanished { since: now, ..left });
    }

    /// Starts to compare the counts of the current attachment from this reading on.
    pub fn begin(&mut self, reading: Option<Reading>) {
        let (Some(reading), Some(present)) = (reading, self.present) else { return };
        self.coverage = Coverage::new(Some(reading).filter(|_| !self.changed));
        let Some(left) = self.left.take() else { return };
        let may_be_same = left.departure != Departure::Deleted && left.present.is_same(&present);
        let earlier = left.reading.filter(|earlier| may_be_same && earlier.own[0].packets <= reading.own[1].packets);
        if let Some(earlier) = earlier {
            // The interface's counters continue.
            (self.coverage, self.changed) = (Coverage::new(Some(earlier)), false);
            if left.departure == Departure::Unknown {
                // Or it is another interface, and its counters began at 0.
                let more = left.seen.since(earlier.seen[0]).all;
                self.missed.beyond = earlier.own[1];
                self.missed.beyond.add(more);
            }
            return;
        }
        let seen = reading.seen[0].since(left.seen).all;
        let most = less(reading.own[1], seen);
        let least = match present.renamed {
            None => most,
            // The interface began to count long ago, and was renamed later.
            Some(_) => Tally::default(),
        };
        let beyond = present.renamed.map_or_else(Tally::default, |before| less(most, before[self.way as usize]));
        self.missed = Unseen { counted: least, beyond };
    }

    /// Continues where an earlier weir stopped. That weir last checked at `looked`, wrote `state` then, and has counted
    /// `since`. The first window's coverage begins there.
    pub fn is_taken_over(&mut self, state: &SlotState, since: SeenPackets, looked: Duration) {
        self.watched = Watched::taken_over(looked, clock::now().monotonic);
        let Some(own) = state.own() else { return };
        // This weir counts from zero, so the count at that reading is below zero: it wraps.
        let seen = since_reading(state, since).map(|more| SeenPackets::default().since(more));
        self.coverage = Coverage::new(Some(Reading { own: [own; 2], seen }));
    }

    /// It was attached again where an earlier weir was attached. That weir last checked at `looked`, wrote `state`
    /// then, and has counted `since`. Its program vanished with the interface or was removed, so weir did not see the
    /// packets that the interface counted up to the reading `begun`.
    pub fn is_made_anew(&mut self, state: &SlotState, since: SeenPackets, looked: Duration, begun: Option<Reading>) {
        self.watched = Watched::returned(looked, clock::now().monotonic);
        (self.coverage, self.changed) = (Coverage::default(), true);
        let (Some(present), Some(Reading { own: [_, own], seen: [_, seen] })) = (self.present, begun) else { return };
        let most = less(own, seen.all);
        let least = if state.ifindex == Some(present.ifindex) {
            // It may be the same interface, or another one with its index.
            match state.own() {
                Some(before) if before.packets <= own.packets => {
                    less(less(most, before), since_reading(state, since)[0].all)
                }
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

    /// Ends the attachment, because of the interface or at a user's request. Returns what to detach.
    pub fn end(&mut self) -> Option<Present> {
        let here = self.here();
        (self.present, self.ordered, self.nowhere, self.strayed) = (None, None, None, None);
        (self.obtained, self.arrived) = (Obtained::Gone, None);
        self.changed = true;
        here
    }

    /// Whether this is a retry after a refusal. Another refusal is not reported.
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

    /// The kernel refused it. Returns whether the slot is free again.
    pub fn is_refused(&mut self) -> bool {
        let Some(Ordered { before, is_fresh, .. }) = self.ordered.take() else { return false };
        self.obtained = before;
        is_fresh
    }

    /// It has no program any more: another process removed the program, and weir could not restore it.
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
            let since = self.left.map(|left| left.since).or(self.arrived.map(|arrived| arrived.arrival.at));
            self.watched = since.map_or_else(|| Watched::new(now), |since| Watched::returned(since, now));
            self.coverage = Coverage::default();
        }
        (self.present, self.ordered) = (Some(present), None);
        self.begin_with_arrival();
    }

    /// Both counts of this attachment; `slot` is its slot.
    pub fn reading(&self, slot: usize, readings: &Readings<'_>) -> Option<Reading> {
        let its = (self.name.as_str(), self.present.map(|present| present.ifindex).or(self.nowhere)?);
        match self.obtained {
            Obtained::AfPacket => readings.of_socket(self.told, its, self.way),
            _ => readings.of_program(slot, its, self.way),
        }
    }

    /// Compares the counts of the window that ends now with those of the interface, and warns if packets were not seen.
    /// Returns the packets that weir missed while it was blind.
    pub fn compare(
        &mut self,
        slot: usize,
        readings: &Readings<'_>,
        counters: &Counters,
        length: Duration,
    ) -> Option<Unseen> {
        self.told.add(counters.seen, counters.merged);
        let dropped = counters.lost[Loss::SocketDrop as usize].packets;
        let reading = self.reading(slot, readings);
        let short_lives = self.end_short_lives(reading);
        let unseen = if self.arrived.is_some() && self.present.is_some() && reading.is_none() {
            // It is gone already: the kernel is about to report its last counts.
            None
        } else {
            let unseen = self.compare_with(reading, dropped, length);
            self.note_arrival_told(unseen)
        };
        self.add_short_lives(unseen, short_lives)
    }

    /// The same with a given reading at the end of the window, in which a packet socket dropped `dropped` packets.
    fn compare_with(&mut self, reading: Option<Reading>, dropped: u64, length: Duration) -> Option<Unseen> {
        /// More than any interface can carry in a window.
        const UNKNOWN: Tally = Tally::new(1 << 50, 1 << 60);
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
            self.left = self.left.map(|left| Vanished { reading: None, ..left });
            return self.blind.map(|_| missed);
        }
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
        let mut unseen = self.compared.unseen.unwrap_or(Unseen { counted: Tally::default(), beyond: UNKNOWN });
        unseen.counted.add(missed.counted);
        unseen.beyond.add(missed.beyond);
        Some(unseen)
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
    use weir_config::Direction;

    use super::{super::plan::wanted, *};
    use crate::testing::{attached, device, rule};

    fn none() -> HashMap<u32, Departure> {
        HashMap::new()
    }

    #[test]
    fn an_attachment_stays_while_its_interface_has_a_name_that_the_rule_covers() {
        let rules = [rule("eth*", Direction::Ingress)];
        let one = attached(0, "eth0", Way::Ingress, 2);
        let devices = [device(2, "eth7"), device(3, "eth0")];
        let wanted = wanted(&rules, &devices, true);
        assert_eq!(one.fate(&rules, &wanted, &none()), Some(Fate::Stays(&wanted[0])), "only the index matters");
        assert_eq!(
            one.fate(&rules, &wanted, &HashMap::from([(2, Departure::Deleted)])),
            Some(Fate::Gone),
            "another interface has this index now"
        );
        assert_eq!(one.fate(&rules, &wanted[1..], &none()), Some(Fate::Gone));
        assert_eq!(
            Attachment::new(0, "eth0", Way::Ingress).fate(&rules, &wanted, &none()),
            None,
            "nothing is attached"
        );
    }

    #[test]
    fn an_attachment_ends_if_another_rule_or_direction_wants_the_interface() {
        let devices = [device(2, "eth0")];
        let one = attached(0, "eth0", Way::Ingress, 2);
        let first_rule = [rule("eth0", Direction::Egress)];
        assert_eq!(one.fate(&first_rule, &wanted(&first_rule, &devices, true), &none()), Some(Fate::Gone));
        let second_rule = [rule("wan0", Direction::Ingress), rule("eth0", Direction::Ingress)];
        assert_eq!(one.fate(&second_rule, &wanted(&second_rule, &devices, true), &none()), Some(Fate::Gone));
    }

    #[test]
    fn a_removed_program_keeps_its_slot_and_counts_until_it_is_attached_again() {
        let present = || Present { ifindex: 2, xdp: None, address: None, renamed: None, number: 1 };
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        one.attach(present());
        one.coverage = Coverage::new(Some(Reading { own: [Tally::default(); 2], seen: [SeenPackets::default(); 2] }));
        one.lose();
        assert_eq!((one.obtained, one.nowhere, one.changed), (Obtained::Blind, Some(2), false));
        one.attach(present());
        assert!(!one.coverage.is_new() && one.watched.was_wrong() && one.nowhere.is_none());
        one.end();
        one.attach(present());
        assert!(one.coverage.is_new() && !one.watched.was_wrong(), "it is another interface");
    }

    #[test]
    fn a_changed_window_has_no_coverage_and_a_blind_one_needs_counts() {
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        one.changed = true;
        let (readings, second) = (Readings::new(None).unwrap(), Duration::from_secs(1));
        let counters = Counters { seen: Tally::new(50, 5_000), ..Counters::default() };
        assert_eq!(one.compare(0, &readings, &counters, second), None);
        assert_eq!((one.compared, one.told.all.packets), (Compared::default(), 50));
        one.changed = false;
        assert_eq!(one.compare(0, &readings, &counters, second), None, "it was not blind");
        one.lose();
        one.watched.is_wrong(&crate::watch::Position::Removed, second);
        let unseen = one.compare(0, &readings, &counters, second).unwrap();
        assert!(unseen.counted.is_zero() && unseen.beyond.packets > 1 << 40 && one.blind.is_some(), "{unseen:?}");
    }

    /// A reading in which both counts are exact.
    fn reading(own: u64, seen: u64) -> Option<Reading> {
        let [own, seen] = [own, seen].map(|packets| Tally::new(packets, packets * 100));
        Some(Reading { own: [own; 2], seen: [SeenPackets { all: seen, merged: 0 }; 2] })
    }

    /// The state of an earlier weir that had counted 890 packets when the interface had counted 900, and 1,000 when the
    /// window ended.
    fn state() -> SlotState {
        let counters = Counters { seen: Tally::new(1_000, 100_000), ..Counters::default() };
        SlotState {
            slot: 0,
            name: "eth0".to_owned(),
            way: Way::Ingress,
            ifindex: Some(2),
            own: Some(900),
            own_bytes: Some(90_000),
            seen: Some([[890, 89_000, 0]; 2]),
            newest: Some(2),
            reported: weir_datapath::kept::words(&counters),
        }
    }

    #[test]
    fn packets_between_the_reading_and_the_end_of_the_last_window_are_compared_once() {
        let (now, since) = (clock::now().monotonic, reading(0, 4_000).unwrap().seen[0]);
        let next = |state: &SlotState, own| {
            let mut one = attached(0, "eth0", Way::Ingress, 2);
            one.is_taken_over(state, since, now);
            one.compare_with(reading(own, 500), 0, Duration::from_secs(1));
            one.compared.packets.map(|share| share.value)
        };
        // 4,110 packets of the earlier weir and 500 of this one.
        assert_eq!(next(&state(), 900 + 4_610), Some(1.0));
        assert_eq!(next(&SlotState { seen: None, ..state() }, 900 + 4_500), Some(1.0), "a socket's window ends there");
        assert_eq!(next(&SlotState { own_bytes: None, ..state() }, 900 + 4_610), None, "the count is unknown");
        let before_wrapping = [[u64::MAX - 109, u64::MAX - 10_999, 0]; 2];
        let state = SlotState { seen: Some(before_wrapping), reported: vec![0; state().reported.len()], ..state() };
        assert_eq!(next(&state, 900 + 4_610), Some(1.0), "counters wrap");
    }

    #[test]
    fn what_an_earlier_weir_counted_after_its_reading_was_not_missed() {
        let (now, since) = (clock::now().monotonic, reading(0, 4_000).unwrap().seen[0]);
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        one.attach(Present { ifindex: 2, xdp: None, address: None, renamed: None, number: 1 });
        one.is_made_anew(&state(), since, now, reading(900 + 4_110 + 300, 0));
        assert_eq!(one.missed.counted.packets, 300);
    }

    #[test]
    fn packets_missed_earlier_are_lost_in_the_window_that_detects_them() {
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        let mut now = clock::now().monotonic;
        (one.watched, one.coverage) = (Watched::new(now), Coverage::new(reading(0, 0)));
        // The program is removed after the last check of this window: weir does not notice that, and 400 packets are
        // missed.
        assert_eq!(one.compare_with(reading(1_000, 600), 0, Duration::from_secs(1)), None);
        now = clock::now().monotonic;
        one.watched.is_wrong(&super::super::watch::Position::Removed, now);
        one.watched.is_mended(now);
        let unseen = one.compare_with(reading(1_100, 650), 0, Duration::from_secs(1)).unwrap();
        assert_eq!(unseen.counted, Tally::new(450, 45_000), "the packets of both windows");
        one.watched.is_well(clock::now().monotonic);
        assert_eq!(one.compare_with(reading(1_200, 750), 0, Duration::from_secs(1)), None, "they are reported once");
    }

    #[test]
    fn missed_packets_depend_on_whether_the_interface_is_another_one() {
        let address = Some([2, 0, 0, 0, 0, 9]);
        let was = Present { ifindex: 2, xdp: None, address, renamed: None, number: 1 };
        let seen = reading(0, 500).unwrap().seen[0];
        let missed = |departure, is: Present| {
            let mut one = attached(0, "eth0", Way::Ingress, is.ifindex);
            (one.present, one.changed) = (Some(is), true);
            one.left =
                Some(Vanished { present: was, departure, since: Duration::ZERO, reading: reading(1_200, 500), seen });
            one.begin(reading(3_000, 500));
            (one.missed.counted.packets, one.missed.beyond.packets, one.changed)
        };
        assert_eq!(missed(Departure::Deleted, was), (3_000, 0, true), "all its packets were missed");
        assert_eq!(missed(Departure::Moved, was), (0, 0, false), "the comparison at the end of the window covers them");
        assert_eq!(missed(Departure::Unknown, was), (0, 1_200, false), "it may be the same interface or another one");
        let other = Present { ifindex: 7, address: Some([2, 0, 0, 0, 0, 7]), ..was };
        assert_eq!(missed(Departure::Moved, other), (3_000, 0, true));
        let renamed = Some([Tally::new(2_900, 290_000), Tally::default()]);
        assert_eq!(missed(Departure::Deleted, Present { renamed, ..other }), (0, 100, true), "it was renamed then");
    }

    #[test]
    fn an_interface_may_have_a_temporary_name() {
        let rules = [rule("eth0", Direction::Ingress), rule("eth1", Direction::Ingress)];
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        let ms = Duration::from_millis;
        let (strayed, followed) = ([device(2, "tmp")], [device(2, "tmp"), device(3, "eth0")]);
        let mut may = |devices: &[Device], now| one.may_stray(&rules, &wanted(&rules, devices, true), devices, ms(now));
        assert!(may(&strayed, 1_000) && may(&strayed, 1_499) && !may(&strayed, 1_500));
        assert!(!may(&followed, 2_000), "another interface has its name now");
        assert!(may(&strayed, 3_000), "the time starts again");
        assert!(!may(&[], 3_001), "the interface is gone");
    }
}
