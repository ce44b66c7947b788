//! The end of a window, as the attachments see it: their part of each report, and the state for the next weir.

use std::{borrow::Cow, time::Duration};

use tracing::{debug, warn};
use weir_common::{
    control::Feeds,
    ledger::{Counters, Ledger},
};
use weir_config::{interface::Way, limits::INTERFACES_MAX};
use weir_datapath::{
    edge::Edge,
    interface::{Counts, MeasuredInterface},
    kept::SlotState,
    syscall::Hook,
};
use weir_system::clock;

use super::{
    attachment::{Attachment, WindowEnd},
    attachments::Attachments,
    coverage::SeenPackets,
    log::HELD_UP,
    netlink::Device,
    obtained::{ABSENT, Obtained, WAITS},
    plan::{PlannedAttachment, alias},
    shared_slot::{self, SharedSlot},
    tasks::TaskResult,
};

/// How long it may take from an interface's count of a packet to weir's count of it.
pub(super) const ON_ITS_WAY: Duration = Duration::from_millis(2);

/// One direction of an interface, as it is now.
#[derive(Clone, Debug)]
pub struct InterfaceNow<'a> {
    /// The slot; `None` if weir could not attach to it.
    pub slot: Option<usize>,
    /// The name of the interface.
    pub name: &'a str,
    /// The direction; `None` for the shared slot.
    pub way: Option<Way>,
    /// How its packets are seen.
    pub obtained: Obtained,
    /// The reason why weir does not see all its packets.
    pub trouble: Option<Cow<'a, str>>,
}

/// One direction of an interface to which weir cannot attach, and which has no slot therefore.
struct Refused<'a> {
    device: &'a Device,
    alias: Option<String>,
    vrf: Option<String>,
    way: Way,
    reason: &'a str,
}

impl<'a> Refused<'a> {
    fn measured(self) -> MeasuredInterface {
        let Self { device, alias, vrf, way, reason } = self;
        MeasuredInterface {
            slot: None,
            name: device.name.clone(),
            earlier_name: None,
            index: Some(device.ifindex),
            alias,
            vrf,
            mode: Obtained::Refused.name(),
            counts: Counts::Packets,
            direction: Some(way.name()),
            feeds: Feeds::All.name(),
            coverage: None,
            coverage_bytes: None,
            unseen: None,
            blind: None,
            trouble: Some(reason.to_owned()),
        }
    }

    fn now(self) -> InterfaceNow<'a> {
        let Self { device, way, reason, .. } = self;
        let (name, trouble) = (device.name.as_str(), Some(reason.into()));
        InterfaceNow { slot: None, name, way: Some(way), obtained: Obtained::Refused, trouble }
    }
}

impl Attachments<'_> {
    /// Checks all attachments and reads all counts, right before the edge of a window. For attachments that cannot be
    /// checked in time, the interface's own count shows whether weir was blind. No later window decides that after the
    /// last one (`is_last`).
    pub fn look(&mut self, patience: Duration, is_last: bool) {
        self.is_last = is_last;
        let (nth, begun) = (self.check(), clock::now().monotonic);
        self.wait(patience, |all| all.health.is_settled(nth), may_act);
        let now = clock::now().monotonic;
        // weir itself may have been stopped in between.
        let due = begun.max(now.saturating_sub(patience));
        for attachment in self.slots.iter_mut().filter(|one| one.present.is_some()) {
            attachment.watched.note_unknown(due, now);
        }
        let was_wrong = self.slots.iter().any(|one| one.watched.was_wrong());
        self.read(if was_wrong { ON_ITS_WAY } else { Duration::ZERO });
    }

    /// Reads all counts. Packets on their way from an interface to its program have this much time to arrive.
    pub(super) fn read(&mut self, on_its_way: Duration) {
        let taken = self.readings.take(self.slots.len(), on_its_way);
        self.log.counting.note(taken);
    }

    /// Compares the packets that weir `counted`, by slot, in the window of this length that ends now, with the
    /// interfaces' own counts. Packets that weir missed while it was blind are lost: adds them to `edge`.
    pub fn compare(&mut self, counted: &[Counters], length: Duration, edge: &mut Edge) {
        if self.slots.iter().any(|one| one.obtained == Obtained::AfPacket)
            && let Err(error) = self.readings.take_later()
        {
            debug!("cannot read the interfaces' own counts again: {error}");
        }
        let end = WindowEnd { length, is_last: self.is_last };
        for (slot, attachment) in self.slots.numbered().filter(|(_, one)| !one.is_coming) {
            let Some(counters) = counted.get(slot) else { continue };
            if let Some(unseen) = attachment.compare(slot, &self.readings, counters, end) {
                edge.miss(slot, unseen.counted, unseen.beyond, attachment.feeds != Feeds::All);
            }
        }
        if let Some(shared) = &mut self.shared {
            let missed = shared.missed(&self.readings);
            edge.miss(SharedSlot::SLOT, missed.counted, missed.beyond, false);
        }
    }

    /// Descriptions of what keeps weir from seeing all packets, now or earlier in the open window.
    pub fn troubles(&self) -> Vec<String> {
        let of = |one: &Attachment| {
            let blind = "was blind for a moment, and sees all packets again";
            // Those that wait are told together, and only after a while.
            let trouble = one.trouble().filter(|_| !one.is_waiting() && !one.is_coming && !one.is_leaving);
            let trouble = match (trouble, one.watched.was_wrong()) {
                (Some(trouble), _) => trouble,
                // An interface that is measured only while it carries a default route may be gone.
                _ if one.obtained == Obtained::Gone && self.rules[one.rule].is_named() => ABSENT,
                // An interface that has just come is no trouble: its ledger has what it carried before.
                (None, true) if one.watched.reason().is_none() && one.arrived.is_none() => blind,
                _ => return None,
            };
            Some(format!("{} ({}): {trouble}", one.name, one.way.name()))
        };
        let shared = self
            .shared
            .as_ref()
            .and_then(SharedSlot::trouble)
            .map(|trouble| format!("{}: {trouble}", shared_slot::NAME));
        let held_up = self.held_up().map(str::to_owned);
        let waiting = self.waiting();
        let wait = self.log.says_waiting().then(|| format!("{waiting} directions of interfaces are {WAITS}"));
        let refused = self.refused().into_iter().map(|Refused { device, way, reason, .. }| {
            format!("{} ({}): cannot attach: {reason}", device.name, way.name())
        });
        self.slots.iter().filter_map(of).chain(refused).chain(shared).chain(held_up).chain(wait).collect()
    }

    /// Why weir does not know whether its programs are where it left them, if it cannot ask the kernel.
    fn held_up(&self) -> Option<&'static str> {
        self.health.is_held_up(clock::now().monotonic).then_some(HELD_UP)
    }

    /// The wanted interfaces that were refused and have no slot now. If weir tries again, that slot does not count.
    fn refused(&self) -> Vec<Refused<'_>> {
        if !self.health.has_refusals() {
            return Vec::new();
        }
        let refused = |wanted: PlannedAttachment<'_>| {
            let PlannedAttachment { rule, device, way, .. } = wanted;
            let reason = self.health.refusal(device.ifindex, way)?;
            let is_its = |one: &&Attachment| one.name == device.name && one.way == way && !one.is_tried_again();
            let device = self.inventory.listed(device.ifindex)?;
            let is_shown = self.slots.iter().any(|one| is_its(&one));
            let (alias, vrf) = (alias(&self.rules[rule], device), self.inventory.vrf(device.ifindex));
            (!is_shown).then_some(Refused { device, alias, vrf, way, reason })
        };
        self.wanted(self.inventory.devices()).into_iter().filter_map(refused).take(INTERFACES_MAX).collect()
    }

    /// Returns what was measured in a window with these ledgers, by slot, and how completely. Frees the slots of
    /// interfaces that are gone for good, unless it `keeps_slots` because some of their packets are still to come.
    pub fn close(&mut self, ledgers: &[Ledger], keeps_slots: bool) -> Vec<MeasuredInterface> {
        let (mut all, held_up) = (Vec::new(), self.held_up());
        for slot in 0..self.slots.len() {
            let Some(place) = self.slots.get_mut(slot) else { continue };
            let Some(attachment) = place else { continue };
            let is_coming = std::mem::take(&mut attachment.is_coming);
            if is_coming || slot >= ledgers.len() || attachment.is_tried_again() {
                continue;
            }
            let compared = std::mem::take(&mut attachment.compared);
            all.push(MeasuredInterface {
                slot: Some(slot),
                name: attachment.name.clone(),
                earlier_name: attachment.earlier_name.take().filter(|earlier| *earlier != attachment.name),
                index: attachment.present.map(|present| present.ifindex),
                alias: attachment.alias.clone(),
                vrf: attachment.present.and_then(|present| self.inventory.vrf(present.ifindex)),
                mode: attachment.obtained.name(),
                counts: attachment.obtained.counts(),
                direction: Some(attachment.way.name()),
                feeds: attachment.feeds.name(),
                coverage: compared.packets,
                coverage_bytes: compared.bytes,
                // While it was blind, they are in `lost.blind`.
                unseen: compared.certainly_unseen().filter(|_| attachment.blind.is_none()),
                blind: attachment.blind.take(),
                trouble: attachment.trouble().or(held_up).map(str::to_owned),
            });
            attachment.changed = false;
            // An interface may still count a packet while it is being detached.
            let is_going = self.going.values().any(|going| going.slot == slot);
            // An interface that a user has detached stays listed while it is present.
            let is_detached = attachment.obtained == Obtained::Detached && self.inventory.has_name(&attachment.name);
            let is_elsewhere = attachment.here().is_some() || attachment.nowhere.is_some();
            let is_over = !is_elsewhere && !is_going && !is_detached;
            let is_free = attachment.is_leaving && !is_going || is_over && !self.rules[attachment.rule].is_named();
            if is_free && keeps_slots {
                attachment.obtained = Obtained::Gone;
            } else if is_free {
                *place = None;
            }
        }
        if let Some(ledger) = ledgers.get(SharedSlot::SLOT) {
            // Even if no interface shares that slot, it may have a packet that arrived while weir detached.
            all.extend(self.shared.as_mut().unwrap_or(&mut SharedSlot::default()).close(ledger));
        }
        all.extend(self.refused().into_iter().map(Refused::measured));
        all
    }

    /// Returns each measured interface and direction as it is now.
    pub fn now(&self) -> Vec<InterfaceNow<'_>> {
        let (mut all, held_up) = (Vec::new(), self.held_up());
        for (slot, one) in self.slots.all().filter(|(_, one)| !one.is_coming && !one.is_tried_again()) {
            let (way, trouble) = (Some(one.way), one.trouble().or(held_up).map(Cow::from));
            all.push(InterfaceNow { slot: Some(slot), name: &one.name, way, obtained: one.obtained, trouble });
        }
        all.extend(self.refused().into_iter().map(Refused::now));
        if let Some(shared) = self.shared.as_ref().filter(|shared| shared.has_members()) {
            let (slot, name, obtained) = (Some(SharedSlot::SLOT), shared_slot::NAME, shared.obtained());
            let trouble = shared.trouble_or_waiting().map(Cow::from);
            all.push(InterfaceNow { slot, name, way: None, obtained, trouble });
        }
        all
    }

    /// The state of the used slots, for the next weir.
    pub fn slot_states(&mut self) -> Vec<SlotState> {
        let readings = &self.readings;
        let state = |(slot, one): (usize, &mut Attachment)| {
            let reading = one.present.and_then(|_| one.kept_reading(one.reading(slot, readings)));
            let has_program = one.obtained != Obtained::AfPacket;
            let seen = if has_program { readings.seen_of(slot) } else { one.told };
            SlotState {
                slot,
                name: one.name.clone(),
                way: one.way,
                ifindex: one.present.map(|present| present.ifindex),
                address: one.present.and_then(|present| present.address),
                own: reading.map(|(own, _)| own.packets),
                own_bytes: reading.map(|(own, _)| own.bytes),
                seen: reading.filter(|_| has_program).map(|(_, seen)| seen.map(SeenPackets::words)),
                missed: one.undeclared(),
                away: one.departures.kept(seen, readings.seen_of(SharedSlot::SLOT)),
                reported: Vec::new(),
            }
        };
        let shared = self.shared.is_some().then(|| SlotState {
            slot: SharedSlot::SLOT,
            name: shared_slot::NAME.to_owned(),
            way: Way::Ingress,
            ifindex: None,
            address: None,
            own: None,
            own_bytes: None,
            seen: None,
            missed: [[0; 2]; 2],
            away: Vec::new(),
            reported: Vec::new(),
        });
        self.slots.numbered().map(state).chain(shared).collect()
    }

    /// The slot of this direction of an interface, which had the slot `earlier` in an earlier weir.
    pub fn slot_of(&mut self, earlier: &SlotState) -> Option<usize> {
        if earlier.slot == SharedSlot::SLOT {
            return self.shared.as_ref().map(|_| SharedSlot::SLOT);
        }
        let is_same = |one: &Attachment| {
            let now = one.present.as_ref().map(|present| present.ifindex);
            one.way == earlier.way && now.is_some() && now == earlier.ifindex
        };
        let found = self.slots.numbered().find(|(_, one)| is_same(one)).map(|(slot, _)| slot);
        found.or_else(|| {
            let mut slots = self.slots.numbered();
            slots.find(|(_, one)| one.way == earlier.way && one.name == earlier.name).map(|(slot, _)| slot)
        })
    }

    /// Continues where an earlier weir stopped. That weir last checked at `looked` and wrote `states` then. Since then
    /// it has counted `edge`, by the slots of this weir; these counts are in this weir's first report. `broken` are the
    /// links that could not be taken over.
    pub fn resume(&mut self, states: &[SlotState], edge: &Edge, looked: Duration, broken: &[(Hook, u32)]) {
        for (slot, attachment) in self.slots.numbered() {
            let ifindex = attachment.present.map(|present| present.ifindex);
            let own = |state: &&SlotState| state.way == attachment.way && ifindex.is_some() && state.ifindex == ifindex;
            let of_name = |state: &&SlotState| state.way == attachment.way && state.name == attachment.name;
            let Some(state) = states.iter().find(own).or_else(|| states.iter().find(of_name)) else { continue };
            let counters = edge.counters.get(slot).copied().unwrap_or_default();
            let since = SeenPackets { all: counters.seen, merged: counters.merged };
            let Some(ifindex) = ifindex.filter(|_| state.ifindex.is_some()) else {
                attachment.await_return(state, since, looked, attachment.reading(slot, &self.readings));
                continue;
            };
            let is_broken = broken.iter().any(|(hook, of)| (hook.way(), *of) == (attachment.way, ifindex));
            if state.ifindex == Some(ifindex) && !is_broken {
                attachment.take_over(state, since, looked);
                continue;
            }
            warn!(
                interface = %attachment.name, direction = attachment.way.name(),
                "the interface was created again while no weir ran, or another process has removed weir's program: what it \
                 carried until now was not seen"
            );
            attachment.start_anew(state, since, looked, attachment.reading(slot, &self.readings));
        }
    }
}

fn may_act(done: &TaskResult) -> bool {
    matches!(done, TaskResult::Checked { .. } | TaskResult::Mended { .. })
}
