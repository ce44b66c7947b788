//! Decides from a list of interfaces what must be attached and what must be detached.
//!
//! Interfaces come, go, swap names and move between namespaces at any time, and messages about that may be lost. So
//! weir decides from the whole list of present interfaces, not from single events, how the attachments differ from the
//! configuration. Doing this twice changes nothing, so a repeated or late list does no harm.
//!
//! Releases come before new orders, because an interface may need the slot that another one has just left.

use std::collections::{BTreeMap, HashMap, HashSet};

use tracing::{info, warn};
use weir_common::control::egress;
use weir_config::{
    Interface, Mode,
    interface::Way,
    limits::{INTERFACES_MAX, TAPS_MAX},
};
use weir_system::clock;

use super::{
    arrivals::Arrived,
    attachment::{Attachment, Fate, Ordered},
    attachments::{Attachments, Going},
    departures::Departures,
    error::AttachError,
    feeds::Feeding,
    generic::GenericXdp,
    nat::Sources,
    netlink::Device,
    obtained::Obtained,
    plan::{PlannedAttachment, wanted},
    present::Present,
    shared_slot::SharedSlot,
    stack::{levels, under},
    tasks::{Number, Task, ToAttach, Urgency},
};

impl Attachments<'_> {
    /// Applies this list of interfaces: releases interfaces that are gone or no longer wanted, and orders missing ones.
    pub(super) fn settle(&mut self, devices: Vec<Device>, sources: Sources) -> Result<(), AttachError> {
        let before = self.inventory.replace(devices, clock::now().monotonic);
        self.note_listed(&before);
        let devices = self.inventory.devices().clone();
        let wanted = self.wanted(&devices);
        self.feeding = Feeding::new(&wanted, &devices, sources);
        self.let_go_but(&wanted);
        self.inventory.forget_gone();
        if let Some(table) = &mut self.table {
            table.set_feeding(self.feeding.for_the_programs())?;
        }
        self.feed()?;
        self.order_missing(&wanted)?;
        self.inventory.arrivals.forget(&devices);
        let now = clock::now().monotonic;
        for attachment in self.slots.iter_mut().filter(|one| one.here().is_none()) {
            let is_there = self.inventory.has_name(&attachment.name);
            attachment.note_idle(now, is_there, self.requests.is_released(&attachment.name));
        }
        let there: HashSet<_> = devices.iter().map(|device| device.ifindex).collect();
        self.health.retain_refusals(|ifindex| there.contains(&ifindex));
        self.warn_of_generic(&devices);
        self.begin_coverage();
        Ok(())
    }

    /// Warns once for each interface on which XDP in generic mode runs before the tc hook.
    fn warn_of_generic(&mut self, devices: &[Device]) {
        let mut behind = BTreeMap::new();
        if devices.iter().any(GenericXdp::is_on) {
            for attachment in self.slots.iter().filter(|one| one.way == Way::Ingress && one.obtained.is_at_tc()) {
                let ifindex = attachment.present.map(|present| present.ifindex);
                let Some(device) = devices.iter().find(|device| Some(device.ifindex) == ifindex) else { continue };
                let Some(found) = GenericXdp::before(device, devices) else { continue };
                behind.insert(device.ifindex, (device, found));
            }
        }
        for ifindex in self.log.note_behind_generic(behind.keys().copied().collect()) {
            if let Some((device, found)) = behind.get(&ifindex) {
                warn!(interface = %device.name, "{found}");
            }
        }
    }

    pub(super) fn wanted<'d>(&self, devices: &'d [Device]) -> Vec<PlannedAttachment<'d>> {
        let mut wanted = wanted(&self.rules, devices, self.has_programs);
        wanted.retain(|wanted| !self.requests.is_released(&wanted.device.name));
        wanted
    }

    /// Releases attachments that are no longer wanted, according to the last list of interfaces.
    pub(super) fn let_go(&mut self) {
        let devices = self.inventory.devices().clone();
        self.let_go_but(&self.wanted(&devices));
    }

    fn let_go_but(&mut self, wanted: &[PlannedAttachment<'_>]) {
        let (gone, devices) = (self.inventory.gone().clone(), self.inventory.devices().clone());
        if let Some(shared) = &mut self.shared {
            for (number, ifindex, way) in shared.let_go(wanted, &gone) {
                self.going.insert(number, Going { slot: SharedSlot::SLOT, ifindex, way });
                self.thread.put(Task::Detach(number));
            }
        }
        let is_wanted = |ifindex: u32, way| {
            !gone.contains_key(&ifindex) && wanted.iter().any(|one| (one.device.ifindex, one.way) == (ifindex, way))
        };
        self.slots.pass_on(&self.rules, wanted, &gone);
        let (now, others) = (clock::now().monotonic, self.readings.others());
        for (slot, attachment) in self.slots.numbered() {
            let elsewhere = attachment.nowhere.or(attachment.ordered.map(|ordered| ordered.present));
            let ended = if let Some(Present { ifindex, .. }) = elsewhere
                && !is_wanted(ifindex, attachment.way)
            {
                if !self.requests.is_released(&attachment.name)
                    && let Some(departed) = attachment.depart(self.readings.seen_of(slot))
                {
                    self.inventory.arrivals.depart(ifindex, attachment.way, departed);
                }
                if attachment.nowhere.is_some() && self.rules[attachment.rule].is_named() {
                    let last = self.inventory.last_reading(ifindex, attachment.way);
                    attachment.leave(self.inventory.departure(ifindex), last, others);
                }
                let ended = attachment.end();
                if self.requests.is_released(&attachment.name) {
                    attachment.obtained = Obtained::Detached;
                }
                ended
            } else {
                match attachment.fate(&self.rules, wanted, &gone) {
                    Some(Fate::Gone)
                        if !attachment.present.is_some_and(|present| gone.contains_key(&present.ifindex))
                            && attachment.note_straying(&self.rules, wanted, &devices, now) =>
                    {
                        None
                    }
                    Some(Fate::Gone) => {
                        let is_released = self.requests.is_released(&attachment.name);
                        let ifindex = attachment.present.map_or(0, |present| present.ifindex);
                        let renamed = self.inventory.known(ifindex);
                        let renamed = renamed.map(|device| &*device.name).filter(|name| *name != attachment.name);
                        log_gone(attachment, &self.rules[attachment.rule], is_released, renamed);
                        if !is_released && let Some(departed) = attachment.depart(self.readings.seen_of(slot)) {
                            self.inventory.arrivals.depart(ifindex, attachment.way, departed);
                        }
                        if !is_released && self.rules[attachment.rule].is_named() {
                            let last = self.inventory.last_reading(ifindex, attachment.way);
                            attachment.leave(self.inventory.departure(ifindex), last, others);
                        } else {
                            attachment.give_up();
                        }
                        let ended = attachment.end();
                        if is_released {
                            attachment.obtained = Obtained::Detached;
                            attachment.departures = Departures::default();
                        }
                        let rule = &self.rules[attachment.rule];
                        if rule.is_named() && !attachment.names().iter().any(|name| rule.covers(name, false)) {
                            attachment.wait_as(attachment.rule, &rule.name);
                        }
                        ended
                    }
                    Some(Fate::Stays(wanted)) => {
                        if attachment.continue_as(wanted, &self.rules[wanted.rule]) {
                            self.directory.assign(slot, &attachment.names(), Some(attachment.way));
                        }
                        None
                    }
                    None => None,
                }
            };
            if let Some(Present { ifindex, number, .. }) = ended {
                self.going.insert(number, Going { slot, ifindex, way: attachment.way });
                self.thread.put(Task::Detach(number));
            }
        }
    }

    /// Updates which packets feed, if that has changed because another interface came or went.
    fn feed(&mut self) -> Result<(), AttachError> {
        for (slot, attachment) in self.slots.numbered() {
            let Some(Present { ifindex, number, .. }) = attachment.here() else { continue };
            let (way, feeds) = (attachment.way, self.feeding.of(ifindex, attachment.way));
            if feeds == attachment.feeds {
                continue;
            }
            let (interface, direction) = (&attachment.name, way.name());
            info!(%interface, direction, now = feeds.name(), "what feeds totals and lists has changed");
            self.feeding.tell(&Device { ifindex, name: interface.clone(), ..Device::default() }, way);
            if let Some(table) = &mut self.table {
                table.insert(table_entry(ifindex, way), slot as u32, feeds)?;
            }
            self.thread.put(Task::SetFeeds(number, feeds));
            attachment.feeds = feeds;
        }
        if let Some(shared) = &mut self.shared {
            for (number, feeds) in shared.feed(|ifindex, way| self.feeding.of(ifindex, way)) {
                self.thread.put(Task::SetFeeds(number, feeds));
            }
        }
        Ok(())
    }

    /// Orders attachments for interfaces that are not measured yet. Interfaces that the configuration names come first,
    /// and those that were refused before come last. Lower interfaces come before those stacked on them, because the
    /// kernel permits no XDP program below one in generic mode.
    pub(super) fn order_missing(&mut self, wanted: &[PlannedAttachment<'_>]) -> Result<(), AttachError> {
        let mut missing: Vec<_> = wanted.iter().filter(|wanted| !self.is_measured(wanted)).collect();
        let levels = if missing.is_empty() { HashMap::new() } else { levels(self.inventory.devices()) };
        let is_above = |one: &&&PlannedAttachment<'_>| {
            let rule = &self.rules[one.rule];
            one.way == Way::Ingress && rule.mode == Mode::Generic && rule.is_named()
        };
        let above = missing.iter().filter(is_above).map(|one| one.device.ifindex).collect();
        let under = under(above, self.inventory.devices());
        let urgency = |wanted: &PlannedAttachment<'_>| match self.urgency(wanted) {
            Urgency::Fitting if under.contains(&wanted.device.ifindex) => Urgency::Named,
            urgency => urgency,
        };
        missing.sort_by_key(|wanted| (urgency(wanted), levels.get(&wanted.device.ifindex).copied()));
        let missing: Vec<_> = missing.into_iter().map(|wanted| (wanted, urgency(wanted))).collect();
        let new = missing.iter().filter(|(_, urgency)| *urgency < Urgency::Refused).count();
        let at_tc = self.at_tc();
        self.budget.plan(clock::now().monotonic, at_tc, new);
        if self.budget.is_exceeded() && new > 0 {
            self.log.note_many();
        }
        for (wanted, urgency) in missing {
            if let Err(error) = self.order(wanted, urgency) {
                self.refuse(wanted.rule, wanted.way, wanted.device, error)?;
            }
        }
        Ok(())
    }

    fn is_measured(&self, wanted: &PlannedAttachment<'_>) -> bool {
        let PlannedAttachment { device, way, .. } = *wanted;
        self.shared.as_ref().is_some_and(|shared| shared.has(device.ifindex, way))
            || self.slots.is_measured(device.ifindex, way)
    }

    fn urgency(&self, wanted: &PlannedAttachment<'_>) -> Urgency {
        if self.health.refusal(wanted.device.ifindex, wanted.way).is_some() {
            Urgency::Refused
        } else if self.rules[wanted.rule].is_named() {
            Urgency::Named
        } else {
            Urgency::Fitting
        }
    }

    /// Asks the attacher to attach to an interface that is not measured yet.
    fn order(&mut self, wanted: &PlannedAttachment<'_>, urgency: Urgency) -> Result<(), AttachError> {
        let PlannedAttachment { rule, device, way, .. } = *wanted;
        let (mode, feeds) = (self.rules[rule].mode, self.feeding.of(device.ifindex, way));
        let by_socket = !self.has_programs || mode == Mode::AfPacket;
        if by_socket && self.slots.sockets() >= TAPS_MAX {
            return Err(AttachError::NoTap(device.name.clone()));
        }
        self.next += 1;
        let number = self.next;
        let slot = match self.slots.place_for(&self.rules, rule, &device.name, way) {
            Some(slot) => {
                self.order_in_slot(slot, wanted, number, urgency, by_socket)?;
                slot
            }
            None if self.rules[rule].is_default_route() => {
                return Err(AttachError::NoSlotOfRoutes(device.name.clone()));
            }
            // It is not added to the programs' table: interfaces that are not in the table belong to the shared slot.
            None => {
                let Some(shared) = &mut self.shared else { return Err(AttachError::NoSlot(device.name.clone())) };
                let origin = self.inventory.origin(device.ifindex);
                let arrival = self.inventory.arrivals.came_at(device.ifindex).map(|at| (origin, at));
                if shared.take(wanted, number, feeds, urgency == Urgency::Refused, arrival) {
                    warn!(
                        interface = %device.name, direction = way.name(),
                        "all {INTERFACES_MAX} accounts of interfaces are in use: this interface and further ones share \
                         the account `others`"
                    );
                }
                SharedSlot::SLOT
            }
        };
        let (device, has_many) = (device.clone(), self.budget.is_exceeded());
        let one = ToAttach { number, urgency, device, way, mode, slot, feeds, has_many };
        self.thread.put(Task::Attach(Box::new(one)));
        Ok(())
    }

    fn order_in_slot(
        &mut self,
        slot: usize,
        wanted: &PlannedAttachment<'_>,
        number: Number,
        urgency: Urgency,
        by_socket: bool,
    ) -> Result<(), AttachError> {
        let PlannedAttachment { rule, device, way, .. } = *wanted;
        let feeds = self.feeding.of(device.ifindex, way);
        // Add it to the table before the first packet can arrive.
        if let Some(table) = &mut self.table {
            table.insert(table_entry(device.ifindex, way), slot as u32, feeds)?;
        }
        self.directory.assign(slot, &device.names().collect::<Vec<_>>(), Some(way));
        let Some(place) = self.slots.get_mut(slot) else { return Ok(()) };
        let is_fresh = place.is_none();
        let attachment = place.get_or_insert_with(|| Attachment::new(rule, &device.name, way));
        (attachment.rule, attachment.feeds) = (rule, feeds);
        attachment.call(device, &self.rules[rule]);
        let seen = self.readings.seen_of(slot);
        attachment.note_seen((!by_socket).then_some(seen), self.readings.seen_of(SharedSlot::SLOT));
        let origin = self.inventory.origin(device.ifindex);
        if let Some(at) = self.inventory.arrivals.came_at(device.ifindex) {
            let seen = if by_socket { attachment.told } else { seen };
            let listed = device.counts.unwrap_or_default()[way as usize];
            attachment.note_arrival(Arrived { origin, at, seen, listed });
        }
        let (present, before) = (
            Present {
                ifindex: device.ifindex,
                xdp: device.xdp,
                is_virtual: device.is_virtual(),
                address: device.address,
                origin,
                number,
            },
            attachment.obtained,
        );
        attachment.order(Ordered { present, urgency, before, is_fresh, by_socket });
        Ok(())
    }
}

/// Logs why a direction of an interface is no longer measured.
fn log_gone(attachment: &Attachment, rule: &Interface, is_released: bool, renamed: Option<&str>) {
    let (interface, direction) = (&attachment.name, attachment.way.name());
    if is_released {
        info!(%interface, direction, "detached by `weir detach`");
    } else if let Some(name) = renamed {
        warn!(%interface, direction, "the interface was renamed to {name:?}, and its entry in the configuration does not cover that name");
    } else if rule.is_default_route() {
        info!(%interface, direction, "no default route leaves by this interface any more, or it is gone");
    } else if rule.is_pattern() {
        info!(%interface, direction, "the interface is gone");
    } else {
        warn!(%interface, direction, "the interface is gone; weir measures it again once it is back");
    }
}

/// The key for a direction of an interface in the kernel's table.
pub const fn table_entry(ifindex: u32, way: Way) -> u32 {
    match way {
        Way::Ingress => ifindex,
        Way::Egress => egress(ifindex),
    }
}
