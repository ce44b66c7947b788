//! One attachment: the state of one direction of a measured interface, and how it changes. This file makes no system
//! calls.

use std::{collections::HashMap, time::Duration};

use tracing::{debug, info, warn};
use weir_common::{
    control::Feeds,
    ledger::{Counters, Loss, Tally},
};
use weir_config::{Interface, interface::Way};
use weir_datapath::kept::{Away, SlotState};
use weir_system::clock;

use super::{
    arrivals::{Arrived, ShortLives},
    coverage::{Compared, Coverage, Finding, Reading, SeenPackets, Shortage, Unseen, less},
    departures::{Beginning, Departure, Departures, Leaving},
    netlink::{Device, XdpProgram},
    obtained::{ABSENT, DETACHED, Obtained, WAITS, kept_back, reason_for_missing},
    plan::{PlannedAttachment, alias, passes_on},
    present::Present,
    readings::Readings,
    sign,
    tasks::Urgency,
    watch::Watched,
};

/// At this many edges in a row it may be impossible to read an interface's own count.
const POSTPONED_MAX: u8 = 4;
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
    /// The measured direction.
    pub way: Way,
    /// How its packets are seen.
    pub obtained: Obtained,
    /// The packets of it that feed totals and lists.
    pub feeds: Feeds,
    /// The kernel's side; `None` while it is not attached.
    pub present: Option<Present>,
    /// The order that the attacher has not carried out yet.
    pub ordered: Option<Ordered>,
    /// Compares weir's count with the interface's own.
    pub coverage: Coverage,
    /// The result of the comparison for the window that ends now.
    pub compared: Compared,
    /// How long weir may have been blind in that window.
    pub blind: Option<Duration>,
    /// A message about an XDP program of another process that kept packets back in that window.
    pub kept_back: Option<String>,
    /// The position of its program at the hook.
    pub watched: Watched,
    /// The interface, while no program is on it because another process has removed it.
    pub nowhere: Option<Present>,
    /// The interfaces that it measured and that have vanished.
    pub departures: Departures,
    /// Packets that were missed in the open window and are not part of the comparison at its end.
    missed: Unseen,
    /// Where the comparison began that an earlier weir has begun, until this one has reported: the interface's own
    /// count, and what has been counted since the last report before that.
    inherited: Option<(Tally, [SeenPackets; 2])>,
    /// The arrival of its interface, until the counts are compared with those with which it came.
    pub arrived: Option<Arrived>,
    /// The arrival of an interface that weir has waited for. The comparison then begins earlier, unless this interface
    /// goes again before.
    pub arrived_awaited: Option<Arrived>,
    /// Interfaces that came and are gone again in this window.
    pub short_lives: ShortLives,
    /// At how many edges in a row its own count could not be read.
    postponed: u8,
    /// True if a packet socket counts packets of several interfaces in the open window.
    is_mixed: bool,
    /// All packets that were seen in all windows so far.
    pub told: SeenPackets,
    /// Why the kernel refused it; `None` if it did not, or if weir waits for another interface now.
    pub refusal: Option<String>,
    /// True if it was not attached, or attached to another interface, for a part of this window.
    pub changed: bool,
    /// True if the configuration no longer wants it. Its slot becomes free once this window is reported.
    pub is_leaving: bool,
    /// True if a new configuration wants it from the next window on.
    pub is_coming: bool,
}

/// An attachment that was ordered but is not complete yet.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    /// The kernel side of the attachment, once it is attached.
    pub present: Present,
    /// Its place in the attacher's queue.
    pub urgency: Urgency,
    /// How its packets were seen before.
    pub before: Obtained,
    /// True if the slot was free.
    pub is_fresh: bool,
    /// True if it will use a packet socket.
    pub by_socket: bool,
}

/// The end of a window.
#[derive(Clone, Copy, Debug)]
pub struct WindowEnd {
    /// How long the window was.
    pub length: Duration,
    /// True for the last window: no later one can decide an open question.
    pub is_last: bool,
}

/// The outcome for an attachment when rules or interfaces change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'w, 'd> {
    /// It stays. The interface may have been renamed.
    Stays(&'w PlannedAttachment<'d>),
    /// It ends: the interface is gone, or no longer matches the configuration.
    Gone,
}

/// Returns the packets that an earlier weir has counted in all its reports.
fn reported(state: &SlotState) -> SeenPackets {
    let counters = state.reported().unwrap_or_default();
    SeenPackets { all: counters.seen, merged: counters.merged }
}

/// Returns an upper and a lower bound of the packets that an earlier weir counted after it read the interface's own
/// count. That weir wrote `state`, and has counted `since` in windows that it has not reported. Its last window ended
/// after the reading, so the packets in between are in its last report and not in `since`.
fn since_reading(state: &SlotState, since: SeenPackets) -> [SeenPackets; 2] {
    let mut all = reported(state);
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
            departures: Departures::default(),
            missed: Unseen::default(),
            inherited: None,
            arrived: None,
            arrived_awaited: None,
            short_lives: ShortLives::default(),
            postponed: 0,
            is_mixed: false,
            told: SeenPackets::default(),
            refusal: None,
            changed: false,
            is_leaving: false,
            is_coming: false,
        }
    }

    /// Decides what happens to the attachment, given these rules, the interfaces that they want, and the interfaces
    /// that are `gone`; `None` if it is not attached. Another interface may have the index and the name of one that is
    /// gone.
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

    /// Notes since when no rule covers its interface's name. Returns whether it stays for a moment nevertheless: two
    /// interfaces that swap their names need a third name in between. It does not stay if another interface has its
    /// name now.
    pub fn note_straying(
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
    pub fn continue_as(&mut self, wanted: &PlannedAttachment<'_>, rule: &Interface) -> bool {
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

    /// Returns the interface's name and its alternative names.
    pub fn names(&self) -> Vec<&str> {
        std::iter::once(&self.name).chain(&self.other_names).map(String::as_str).collect()
    }

    /// The XDP program of another process that sees the packets before weir's program.
    pub fn xdp_before(&self) -> Option<XdpProgram> {
        let is_behind = self.way == Way::Ingress && !matches!(self.obtained, Obtained::Native | Obtained::Generic);
        let xdp = self.present?.xdp.filter(|_| is_behind)?;
        Some(xdp).filter(|xdp| !xdp.id.is_some_and(sign::is_weir))
    }

    /// Returns the kernel side, attached or ordered.
    pub fn here(&self) -> Option<Present> {
        self.present.or(self.ordered.map(|ordered| ordered.present))
    }

    /// Returns true if it is ordered and was not refused before.
    pub fn is_waiting(&self) -> bool {
        self.ordered.is_some_and(|ordered| ordered.urgency < Urgency::Refused)
    }

    /// Notes that the interface has vanished. It may already be back.
    ///
    /// `last` are both counts when it vanished, if they are known. `others` is what the account of that name had
    /// counted before.
    pub fn leave(&mut self, departure: Departure, last: Option<Reading>, others: SeenPackets) {
        let mut unseen = Unseen::default();
        let earlier = self.coverage.reading();
        match last.map(|last| earlier.map_or(last, |earlier| last.without_later(&earlier))) {
            Some(last) if self.watched.was_wrong() => self.settle(last),
            Some(last) => {
                unseen =
                    self.coverage.reading().and_then(|reading| Unseen::between(&reading, &last)).unwrap_or_default();
                self.coverage = Coverage::new(Some(last));
            }
            None => self.give_up(),
        }
        if self.watched.was_wrong_before() {
            self.coverage.go_back();
        }
        if let Some(present) = self.present.or(self.nowhere) {
            let (since, reading) = (self.watched.good_at(), self.coverage.reading());
            debug!(interface = %self.name, direction = self.way.name(), ?departure, ?reading, "the interface has left");
            self.departures.add(Leaving { present, departure, reading, unseen, others, since });
        }
    }

    /// Compares the counts in the middle of a window, because the interface has these last counts.
    fn settle(&mut self, last: Reading) {
        if self.watched.was_wrong_before() {
            self.coverage.go_back();
        }
        if self.watched.is_doubtful() {
            self.coverage.forget_earlier();
        }
        let compared = self.coverage.edge(Some(last), 0, true, Duration::ZERO);
        let unseen = compared.unseen.unwrap_or(Unseen::UNKNOWN);
        self.missed.add(if self.watched.is_proof(compared.shortage) { unseen } else { unseen.doubted() });
        self.coverage.account();
    }

    /// Notes that the interface has vanished for good, or is no longer measured. If weir was blind in the open window,
    /// the number of packets that it missed stays unknown. Packets that may have been missed before have known bounds.
    pub fn give_up(&mut self) {
        if self.watched.is_doubtful() {
            self.missed.add(Unseen::UNKNOWN);
        } else if self.watched.was_wrong() {
            self.missed.add(self.coverage.last().doubted());
        }
    }

    /// Notes what its slot and the account `others` had counted before it is attached again.
    pub fn note_seen(&mut self, by_program: Option<SeenPackets>, others: SeenPackets) {
        self.departures.note_seen(by_program.unwrap_or(self.told), by_program.is_none() && self.changed, others);
    }

    /// Notes that it is neither attached nor ordered, because its interface `is_there` no longer, or was `released` by
    /// a user.
    pub fn note_idle(&mut self, now: Duration, is_there: bool, is_released: bool) {
        self.departures.note_absent(now);
        match self.obtained {
            Obtained::Blind => {}
            _ if is_there && is_released => (self.obtained, self.refusal) = (Obtained::Detached, None),
            Obtained::Refused | Obtained::Detached => (self.obtained, self.refusal) = (Obtained::Absent, None),
            _ => {}
        }
    }

    /// Starts to compare the counts of the current attachment from this reading on, or from when its interface came.
    pub fn begin(&mut self, reading: Option<Reading>) {
        let (Some(reading), Some(present)) = (reading, self.present) else { return };
        let has_just_come = self.arrived.is_some();
        let Some(beginning) = self.departures.meet(&present, self.way, &reading) else {
            self.coverage = Coverage::new(Some(reading));
            return;
        };
        debug!(interface = %self.name, direction = self.way.name(), ?reading, ?beginning, "the comparison of counts begins");
        let Beginning { reading: base, unseen, is_another, is_mixed } = beginning;
        self.arrived_awaited = None;
        self.missed.add(unseen);
        if !has_just_come {
            self.changed = is_another;
        }
        if self.obtained == Obtained::AfPacket {
            // How many packets the socket has seen so far is only known at the end of the window.
            (self.coverage, self.is_mixed) = (Coverage::new(Some(base)), is_mixed);
        } else {
            let unseen = Unseen::between(&base, &reading).unwrap_or(Unseen::UNKNOWN);
            self.missed.add(unseen);
            self.coverage = Coverage::new(Some(reading));
            if self.arrived.take().is_some() && unseen.is_none() {
                // weir was attached before the first packet.
                self.watched.take_blind();
            } else {
                self.watched.note_settled();
            }
        }
    }

    /// Continues where an earlier weir stopped. That weir last checked at `looked`, wrote `state` then, and has counted
    /// `since`. The first window's coverage begins there.
    pub fn take_over(&mut self, state: &SlotState, since: SeenPackets, looked: Duration) {
        self.watched = Watched::taken_over(looked, clock::now().monotonic);
        self.note_undeclared(state);
        let Some(own) = state.own() else { return };
        let reported = reported(state);
        self.inherited = state.seen.map(|seen| (own, seen.map(|seen| SeenPackets::from_words(seen).since(reported))));
        // This weir counts from zero, so the count at that reading is below zero: it wraps.
        let seen = since_reading(state, since).map(|more| SeenPackets::default().since(more));
        self.coverage = Coverage::new(Some(Reading { own: [own; 2], seen }));
    }

    /// Waits for its interface, which was away when an earlier weir wrote `state`, or has vanished since then. That
    /// weir last checked at `looked`, and has counted `since` then. The interface may be back, with the reading
    /// `begun`.
    pub fn await_return(&mut self, state: &SlotState, since: SeenPackets, looked: Duration, begun: Option<Reading>) {
        self.departures.resume(&state.away, looked);
        self.note_undeclared(state);
        if let (Some(ifindex), Some(own)) = (state.ifindex, state.own()) {
            let later = since_reading(state, since).map(SeenPackets::words);
            let (own, unseen) = ([[own.packets, own.bytes]; 2], [[0; 2]; 2]);
            let away =
                Away { ifindex, address: state.address, has_moved: false, own, later: [later[1], later[0]], unseen };
            self.departures.resume(&[away], looked);
        }
        if self.present.is_some() && self.departures.since().is_some() {
            self.watched = self.watched.returns(looked, clock::now().monotonic);
            self.departures.note_seen(SeenPackets::default(), false, SeenPackets::default());
            self.departures.note_attached();
            self.begin(begun);
        }
    }

    /// Adds what an earlier weir has missed and not declared.
    fn note_undeclared(&mut self, state: &SlotState) {
        let [counted, beyond] = state.missed.map(|[packets, bytes]| Tally::new(packets, bytes));
        self.missed.add(Unseen { counted, beyond });
    }

    /// Returns the missed packets that no report has declared yet, for the next weir.
    pub fn undeclared(&self) -> [[u64; 2]; 2] {
        let mut missed = self.missed;
        missed.add(self.short_lives.unseen_so_far());
        [missed.counted, missed.beyond].map(|Tally { packets, bytes }| [packets, bytes])
    }

    /// Where the next weir continues the comparison, if this is the reading now: the interface's own count, and weir's.
    pub fn kept_reading(&self, now: Option<Reading>) -> Option<(Tally, [SeenPackets; 2])> {
        // A socket's window ends between the two readings of the interface's own count.
        self.inherited.or_else(|| now.map(|Reading { own: [_, own], seen }| (own, seen)))
    }

    /// Starts anew where an earlier weir was attached. That weir last checked at `looked`, wrote `state`
    /// then, and has counted `since`. Its program vanished with the interface or was removed, so weir did not see the
    /// packets that the interface counted up to the reading `begun`.
    pub fn start_anew(&mut self, state: &SlotState, since: SeenPackets, looked: Duration, begun: Option<Reading>) {
        self.watched = Watched::returned(looked, clock::now().monotonic);
        (self.coverage, self.changed) = (Coverage::new(begun), true);
        self.note_undeclared(state);
        let (Some(present), Some(Reading { own: [_, own], seen: [_, seen] })) = (self.present, begun) else { return };
        let most = less(own, seen.all);
        // Another interface may have carried its packets in another network namespace. If it looks like the same one,
        // it has carried at least what it has counted since then.
        let was = state.ifindex.map(|ifindex| Present { ifindex, address: state.address, ..present });
        let least = match state.own() {
            Some(before) if before.packets <= own.packets && was.is_some_and(|was| was.is_same(&present)) => {
                less(less(most, before), since_reading(state, since)[0].all)
            }
            _ => Tally::default(),
        };
        self.missed.add(Unseen { counted: least, beyond: less(most, least) });
    }

    /// Notes that its interface has come while weir runs, and is about to be attached.
    pub fn note_arrival(&mut self, arrived: Arrived) {
        // The comparison with an interface that weir waits for covers its arrival, too.
        if self.departures.since().is_none() {
            self.departures.expect(arrived.at);
            self.arrived = Some(arrived);
        } else {
            self.arrived_awaited = Some(arrived);
        }
    }

    /// Forgets the packets that it carried since its arrival: they are accounted for elsewhere, or cannot be.
    pub fn forget_arrival(&mut self) -> Option<Arrived> {
        let awaited = self.arrived_awaited.take();
        let arrived = self.arrived.take();
        if arrived.is_some() {
            self.departures.expect_none();
        }
        // If it was here before, the comparison begins when it left, once it is back.
        let returns = |here: Present| self.departures.may_return(here.ifindex, here.address);
        arrived.or_else(|| awaited.filter(|_| !self.here().is_some_and(returns)))
    }

    /// Ends the attachment, because of the interface or at a user's request. Returns what to detach.
    pub fn end(&mut self) -> Option<Present> {
        let here = self.here();
        self.forget_arrival();
        (self.present, self.ordered, self.nowhere, self.strayed) = (None, None, None, None);
        self.inherited = None;
        (self.obtained, self.refusal) = (Obtained::Gone, None);
        self.changed = true;
        here
    }

    /// Returns true if this is a retry after a refusal. Another refusal is not reported.
    pub fn is_tried_again(&self) -> bool {
        self.ordered.is_some_and(|ordered| ordered.is_fresh && ordered.urgency == Urgency::Refused)
    }

    /// Returns the reason why weir does not see all its packets at the moment.
    pub fn trouble(&self) -> Option<&str> {
        let trouble = self.refusal.as_deref().or(self.watched.trouble()).or(self.kept_back.as_deref());
        match self.obtained {
            _ if self.is_waiting() => Some(WAITS),
            Obtained::Absent => Some(ABSENT),
            Obtained::Detached => Some(DETACHED),
            _ => trouble,
        }
    }

    /// Notes that the attacher has been asked to attach it.
    pub fn order(&mut self, ordered: Ordered) {
        if ordered.urgency < Urgency::Refused {
            self.obtained = Obtained::Waiting;
        }
        self.ordered = Some(ordered);
    }

    /// Notes that the kernel refused it, for this reason. Returns whether the slot is free again.
    pub fn note_refused(&mut self, reason: String) -> bool {
        let Some(Ordered { before, is_fresh, .. }) = self.ordered.take() else { return false };
        // The program that weir had there may have been removed: then it is still blind.
        self.obtained = if before == Obtained::Blind { before } else { Obtained::Refused };
        self.refusal = Some(reason);
        is_fresh
    }

    /// Notes that it has no program any more: another process removed the program, and weir could not restore it.
    pub fn lose(&mut self) {
        self.nowhere = self.present.take();
        self.obtained = Obtained::Blind;
    }

    /// Notes that it is now attached to this interface.
    pub fn attach(&mut self, present: Present) {
        let now = clock::now().monotonic;
        self.departures.note_attached();
        if self.nowhere.take().is_some_and(|nowhere| nowhere.ifindex == present.ifindex) {
            self.watched.note_mended(now);
        } else {
            let returns = |since| self.watched.returns(since, now);
            self.watched = self.departures.since().map_or_else(|| Watched::new(now), returns);
            self.coverage = Coverage::default();
        }
        (self.present, self.ordered, self.refusal) = (Some(present), None, None);
    }

    /// Returns both counts of this attachment; `slot` is its slot.
    pub fn reading(&self, slot: usize, readings: &Readings<'_>) -> Option<Reading> {
        let its = (self.name.as_str(), self.present.or(self.nowhere)?.ifindex);
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
        end: WindowEnd,
    ) -> Option<Unseen> {
        self.told.add(counters.seen, counters.merged);
        let dropped = counters.lost[Loss::SocketDrop as usize].packets;
        let reading = self.reading(slot, readings);
        let (short_lives, came) = (self.end_short_lives(), self.arrived.is_some());
        let unseen = self.compare_with(reading, dropped, end);
        let unseen = if came { self.note_arrival_told(reading, unseen) } else { unseen };
        self.add_short_lives(unseen, short_lives)
    }

    /// Compares with a given reading at the end of the window, in which a packet socket dropped `dropped` packets.
    pub fn compare_with(&mut self, reading: Option<Reading>, dropped: u64, end: WindowEnd) -> Option<Unseen> {
        let now = clock::now().monotonic;
        (self.compared, self.blind, self.kept_back) = (Compared::default(), None, None);
        self.inherited = None;
        self.departures.end_window(self.told);
        if self.nowhere.is_some() {
            self.watched.note_nowhere(now);
        } else if self.present.is_none() {
            return self.declare(None, now, end);
        }
        // If it is not being deleted, the next window shows that.
        let reading = reading.filter(|reading| self.postponed > 0 || end.is_last || self.is_credible(reading));
        if self.coverage.is_new() {
            self.begin(reading);
        }
        let is_known = self.coverage.reading().is_some() || self.departures.since().is_some();
        if reading.is_none() && is_known && self.postponed < POSTPONED_MAX && !end.is_last {
            // The interface's name has just changed, or it is being deleted. The next window takes over the packets of
            // this one.
            self.postponed += 1;
            self.coverage.postpone(end.length);
            return None;
        }
        self.postponed = 0;
        if std::mem::take(&mut self.is_mixed) {
            self.coverage.note_seen_at_most(self.told);
        }
        if self.watched.was_wrong_before() {
            self.coverage.go_back();
        }
        if self.watched.is_doubtful() {
            self.coverage.forget_earlier();
        }
        let compared = self.coverage.edge(reading, dropped, self.watched.was_wrong(), end.length);
        self.kept_back =
            self.xdp_before().filter(|_| compared.shortage == Shortage::Certain && !self.changed).map(kept_back);
        let declared = self.declare(Some(compared), now, end);
        if !self.changed {
            // Otherwise not all packets of the window belong to this attachment.
            self.compared = compared;
            self.tell(compared.finding);
        }
        declared
    }

    /// Returns the packets that were missed in the window that ends, according to this comparison; `None` if none were
    /// missed, or if that is not decided yet.
    fn declare(&mut self, compared: Option<Compared>, now: Duration, end: WindowEnd) -> Option<Unseen> {
        let (missed, settled) = (std::mem::take(&mut self.missed), self.watched.take_settled());
        let shortage = match compared {
            Some(compared) => compared.shortage,
            None if missed.is_none() => Shortage::None,
            None => Shortage::Certain,
        };
        let is_proof = self.watched.is_proof(shortage);
        let is_over = compared.is_none() || end.is_last;
        let closed = self.watched.close(shortage, now, is_over);
        self.blind = [settled, closed].into_iter().flatten().reduce(|one, other| one + other);
        let mut unseen = missed;
        if closed.is_some() {
            let found = compared.map_or_else(Unseen::default, |compared| compared.unseen.unwrap_or(Unseen::UNKNOWN));
            unseen.add(if is_proof { found } else { found.doubted() });
            self.coverage.account();
        }
        (self.blind.is_some() || !unseen.is_none()).then_some(unseen)
    }

    fn tell(&self, finding: Option<Finding>) {
        let (xdp, is_virtual) = self.present.map_or((None, false), |present| (present.xdp, present.is_virtual));
        let reason = || {
            let known = self.watched.reason().map(|reason| reason.to_owned().into());
            known.unwrap_or_else(|| reason_for_missing(self.obtained, self.way, xdp, is_virtual))
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
mod histories;
#[cfg(test)]
mod tests;
