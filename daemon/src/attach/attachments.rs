//! All measured interfaces, and what is attached to them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tracing::{debug, info, warn};
use weir_common::{
    control::{Feeds, egress},
    flow::Address,
    ledger::{Counters, Ledger, Tally},
};

use super::{
    check::{Checked, Checker},
    coverage::{Coverage, Reading, Seen},
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::Feeding,
    hook::{Found, leftovers},
    ladder::{Hold, Ladder},
    nat::Sources,
    netlink::{Device, Devices},
    obtained::Obtained,
    others::{self, Others},
    pace::{Slice, TcxBudget},
    plan::{Wanted, covers, list, wanted},
    readings::Readings,
    slots::{Attachment, Fate, Present, Slots},
};
use crate::{
    clock,
    config::{
        self, Interface, Mode,
        limits::{INTERFACES_MAX, TAPS_MAX},
    },
    datapath::{counters::LiveCounters, edge::Edge, maps::InterfaceTable, tap::Own},
    handover::book::Page,
    interface::Way,
    log::Lasting,
    measure::interface::{Counts, MeasuredInterface},
    question::Views,
    text::with_causes,
};

/// All measured interfaces, by slot.
pub struct Attachments<'a> {
    ladder: Ladder<'a>,
    /// The programs' table of interfaces, where there are programs.
    table: Option<&'a mut InterfaceTable>,
    rules: Vec<Interface>,
    slots: Slots,
    /// What is asked of some interfaces only, which have to be known by their slots.
    views: Arc<Views>,
    /// Those that have no slot of their own, where all slots are in use.
    others: Option<Others>,
    devices: Devices,
    /// Each interface's own counts and weir's, when they were last looked at.
    readings: Readings<'a>,
    /// What somebody has told weir to leave alone.
    released: Released,
    /// Refusals that were logged already: each is logged once, not at every change.
    refused: HashMap<(u32, Way), String>,
    following: Lasting,
    counting: Lasting,
    /// Whether TCX may be chosen.
    budget: TcxBudget,
    /// How many directions of interfaces were not tried yet, because so many came at once.
    waiting: usize,
    /// What the sources of packets tell, which only packet sockets have to go by; `None` where it was not asked.
    sources: Option<Sources>,
}

impl<'a> Attachments<'a> {
    /// Attaches to all interfaces that are named and there, or fails; and to those that fit a pattern, as far as
    /// possible. A named one that is not there yet is waited for, unless `strict` forbids it.
    ///
    /// # Errors
    ///
    /// The first named interface that cannot be measured, or why no interface at all can be.
    pub fn attach(
        ladder: Ladder<'a>,
        (table, live): (Option<&'a mut InterfaceTable>, Option<&'a LiveCounters>),
        interfaces: &[Interface],
        views: Arc<Views>,
        strict: bool,
    ) -> Result<Self, AttachError> {
        views.directory.assign(Others::SLOT, &[others::NAME], None);
        let mut all = Self {
            views,
            ladder,
            table,
            rules: interfaces.to_vec(),
            slots: Slots::new(interfaces),
            others: (config::slots(interfaces) > Others::SLOT).then(Others::default),
            devices: Devices::open()?,
            readings: Readings::new(live),
            released: Released::Nothing,
            refused: HashMap::new(),
            following: Lasting::new("follow the interfaces"),
            counting: Lasting::new("read the interfaces' own counts"),
            budget: TcxBudget::new(clock::now().monotonic),
            waiting: 0,
            sources: None,
        };
        if all.ladder.programs.is_some() {
            clean_hooks();
        }
        let devices = list(&mut all.devices, interfaces)?;
        for rule in interfaces {
            if devices.iter().any(|device| covers(rule, device)) {
                continue;
            }
            if rule.is_default_route() {
                warn!("{NO_DEFAULT_ROUTE}");
            } else if rule.is_pattern() {
                warn!(pattern = %rule.name, "{NONE_FITS}");
            } else {
                let absent = AttachError::not_found(&rule.name, &devices);
                if strict {
                    return Err(absent);
                }
                warn!("{absent}: weir waits, and measures it once it is there (`--strict` would refuse to start)");
            }
        }
        all.settle(&devices, &HashSet::new(), true)?;
        Ok(all)
    }

    /// Goes by another configuration from now on, whose views have room for `most` interfaces. What it still asks for
    /// stays attached, in its slot. Detaches from the rest, whose slots stay for the report of the window that ends
    /// now. What it asks for besides is attached when the interfaces are followed the next time. What `weir detach` has
    /// detached from stays detached, unless the configuration asks for other interfaces than before. Returns how many
    /// slots are in use.
    pub fn change(&mut self, interfaces: &[Interface], views: Arc<Views>, most: usize) -> usize {
        if self.rules != interfaces {
            self.released = Released::Nothing;
            self.go_by(interfaces, most);
        }
        self.views = views;
        self.views.directory.assign(Others::SLOT, &[others::NAME], None);
        for (slot, attachment) in self.slots.numbered().filter(|(_, one)| !one.is_leaving) {
            self.views.directory.assign(slot, &attachment.names(), Some(attachment.way));
        }
        if self.others.is_some() { Others::SLOT + 1 } else { self.slots.len() }
    }

    fn go_by(&mut self, interfaces: &[Interface], most: usize) {
        let before = std::mem::replace(&mut self.rules, interfaces.to_vec());
        let devices = list(&mut self.devices, interfaces).unwrap_or_else(|error| {
            warn!("cannot list the interfaces: {error}");
            Vec::new()
        });
        self.slots.change(&before, interfaces, &devices, most.min(Others::SLOT));
        if let Some(others) = &mut self.others {
            others.change(&before, interfaces, &devices);
        }
        self.refused.clear();
        for attachment in self.slots.iter_mut().filter(|one| one.is_leaving) {
            let Some(present) = attachment.present.take() else { continue };
            let ifindex = present.ifindex;
            // Detached first: its last packets find their slot.
            drop(present);
            attachment.changed = true;
            forget(self.table.as_deref_mut(), attachment, ifindex);
            let (interface, direction) = (&attachment.name, attachment.way.name());
            info!(%interface, direction, "detached, as the configuration does not ask for this any more");
        }
    }

    /// Attaches to everything that should be measured now. `gone` are the interfaces that vanished since the last time:
    /// other interfaces may have their indexes and names by now.
    pub fn follow(&mut self, gone: &HashSet<u32>) {
        self.check(gone);
        let settled = match list(&mut self.devices, &self.rules) {
            Ok(devices) => self.settle(&devices, gone, false),
            Err(error) => Err(error.into()),
        };
        self.following.note(settled);
    }

    fn settle(&mut self, devices: &[Device], gone: &HashSet<u32>, strict: bool) -> Result<(), AttachError> {
        let mut wanted = wanted(&self.rules, devices, self.ladder.programs.is_some());
        wanted.retain(|wanted| !self.released.has(&wanted.device.name));
        let sources = self.sources(&wanted, devices)?;
        let feeding = Feeding::new(&wanted, devices, sources);
        self.let_go(&wanted, gone);
        if let Some(table) = &mut self.table {
            table.set_feeding(feeding.for_the_programs())?;
        }
        self.feed(&feeding)?;
        let attached = self.measure_all(&wanted, &feeding, strict)?;
        let there: HashSet<_> = devices.iter().map(|device| device.ifindex).collect();
        self.refused.retain(|(ifindex, _), _| there.contains(ifindex));
        if attached {
            // From these counts on the programs see the packets.
            self.read();
            for (slot, attachment) in self.slots.numbered().filter(|(_, attachment)| attachment.coverage.is_new()) {
                let reading = attachment.reading(slot, &self.readings);
                attachment.coverage = Coverage::new(reading.filter(|_| !attachment.changed));
            }
        }
        Ok(())
    }

    /// What the sources of packets tell where a packet socket sees what is sent, which from now on goes by the router's
    /// addresses as they are.
    fn sources(&mut self, wanted: &[Wanted<'_>], devices: &[Device]) -> Result<Sources, AttachError> {
        if wanted.iter().all(|wanted| wanted.knows_origin || wanted.way == Way::Ingress) {
            return Ok(Sources::default());
        }
        let addresses = self.devices.addresses()?.into_iter().map(Address::from).collect();
        self.ladder.taps.set_own(Own::new(addresses, devices.iter().filter_map(|device| device.address).collect()));
        let sources = Sources::ask().or_before(self.sources);
        self.sources = Some(sources);
        Ok(sources)
    }

    /// Attaches to what is not measured yet, for a while; named interfaces come first, and what was refused before
    /// comes last. Returns whether there was something.
    fn measure_all(&mut self, wanted: &[Wanted<'_>], feeding: &Feeding, strict: bool) -> Result<bool, AttachError> {
        let mut missing: Vec<_> = wanted.iter().filter(|wanted| !self.is_measured(wanted)).collect();
        let was_refused = |wanted: &&Wanted<'_>| self.refused.contains_key(&(wanted.device.ifindex, wanted.way));
        missing.sort_by_key(|wanted| (was_refused(wanted), !self.rules[wanted.rule].is_named()));
        let new = missing.iter().filter(|wanted| !was_refused(wanted)).count();
        let (before, now) = (self.at_tc(), clock::now().monotonic);
        let has_many = !self.budget.allows(now, before, new);
        if has_many && new > 0 && !self.ladder.has_many {
            info!(
                "many interfaces: the classic tc hook goes before TCX, which would keep others from configuring the kernel"
            );
        }
        self.ladder.has_many = has_many;
        let (slice, mut attached) = (Slice::new(now), false);
        let had_to_wait = std::mem::take(&mut self.waiting) > 0;
        for (nth, wanted) in missing.iter().enumerate() {
            let has_to_be = strict && self.rules[wanted.rule].is_named();
            if !has_to_be && slice.is_over(clock::now().monotonic) {
                self.waiting = missing.len() - nth;
                break;
            }
            attached |= self.measure(wanted, feeding, strict)?;
        }
        if !self.ladder.has_many {
            self.budget.spend(self.at_tc().saturating_sub(before));
        }
        match (had_to_wait, self.waiting) {
            (false, 1..) => warn!(
                directions = self.waiting,
                "so many interfaces came at once that some are not measured yet: weir goes on attaching between windows"
            ),
            (true, 0) => info!("all interfaces are measured that can be"),
            _ => {}
        }
        Ok(attached)
    }

    /// How many directions of interfaces are not measured yet, because so many came at once.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many links there are, each of which takes the kernel a while to detach.
    pub fn links(&self) -> usize {
        let own = self.slots.iter().filter(|one| one.present.is_some() && one.obtained.has_link()).count();
        own + self.others.as_ref().map_or(0, Others::links)
    }

    /// How many directions are attached at a tc hook.
    fn at_tc(&self) -> usize {
        let own = self.slots.iter().filter(|one| one.present.is_some() && one.obtained.is_at_tc()).count();
        own + self.others.as_ref().map_or(0, Others::at_tc)
    }

    fn is_measured(&self, wanted: &Wanted<'_>) -> bool {
        let Wanted { device, way, .. } = *wanted;
        self.others.as_ref().is_some_and(|others| others.has(device.ifindex, way))
            || self.slots.is_measured(device.ifindex, way)
    }

    /// Detaches from these interfaces, or from all, and leaves them alone until a configuration asks for other
    /// interfaces than this one. Gives what it has detached from, in words.
    ///
    /// # Errors
    ///
    /// An interface that is not measured now; nothing has changed then.
    pub fn release(&mut self, names: &[String]) -> Result<Vec<String>, String> {
        let names: &[_] = &names.iter().map(|name| self.own_name(name)).collect::<Vec<_>>();
        let attached: Vec<_> =
            self.slots.iter().filter(|one| one.present.is_some()).map(|one| (one.name.clone(), one.way)).collect();
        if let Some(name) = names.iter().find(|name| attached.iter().all(|(one, _)| one != *name)) {
            let mut have: Vec<_> = attached.iter().map(|(name, _)| name.as_str()).collect();
            have.dedup();
            let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
            return Err(format!("weir is not attached to {:?} (it is attached to: {have})", crate::text::short(name)));
        }
        self.released.add(names);
        self.follow(&HashSet::new());
        let from = attached.into_iter().filter(|(name, _)| self.released.has(name));
        Ok(from.map(|(name, way)| format!("{name} ({})", way.name())).collect())
    }

    /// The name that a measured interface has in the kernel, of any of its names.
    fn own_name(&self, name: &str) -> String {
        let own = self.slots.iter().find(|one| one.names().contains(&name));
        own.map_or(name, |one| &one.name).to_owned()
    }

    /// Looks whether everything that is attached is where it was put, and puts it back. `gone` are interfaces that
    /// vanished: what was attached to them went with them.
    fn check(&mut self, gone: &HashSet<u32>) {
        let Self { ladder, devices, slots, others, table, .. } = self;
        let mut checker = Checker { ladder, devices, traffic: None };
        for attachment in slots.iter_mut() {
            let Some(Present { ifindex, hold, .. }) = &mut attachment.present else { continue };
            if gone.contains(ifindex) || hold.is_none() {
                continue;
            }
            let (ifindex, way, obtained) = (*ifindex, attachment.way, attachment.obtained);
            let (name, watched) = (&attachment.name, &mut attachment.watched);
            checker.check(Checked { ifindex, name, way, obtained, hold, watched });
            if hold.is_none() {
                attachment.lose();
                forget(table.as_deref_mut(), attachment, ifindex);
            }
        }
        if let Some(others) = others {
            others.check(&mut checker, gone);
        }
    }

    /// Detaches from what is gone or no longer wanted.
    fn let_go(&mut self, wanted: &[Wanted<'_>], gone: &HashSet<u32>) {
        if let Some(others) = &mut self.others {
            others.let_go(wanted, gone);
        }
        let is_wanted = |ifindex: u32, way| {
            !gone.contains(&ifindex) && wanted.iter().any(|one| (one.device.ifindex, one.way) == (ifindex, way))
        };
        for attachment in self.slots.iter_mut() {
            if attachment.nowhere.is_some_and(|ifindex| !is_wanted(ifindex, attachment.way)) {
                attachment.end();
            }
        }
        for (slot, attachment) in self.slots.numbered() {
            let (Some(fate), Some(present)) = (attachment.fate(&self.rules, wanted, gone), &mut attachment.present)
            else {
                continue;
            };
            let ifindex = present.ifindex;
            match fate {
                Fate::Stays(wanted) => {
                    attachment.rule = wanted.rule;
                    present.xdp = wanted.device.xdp;
                    if attachment.name != wanted.device.name {
                        info!(interface = %attachment.name, now = %wanted.device.name, "the interface has another name");
                    }
                    let is_renamed = !attachment.names().into_iter().eq(wanted.device.names());
                    attachment.call(wanted.device, &self.rules[wanted.rule]);
                    if is_renamed {
                        self.views.directory.assign(slot, &attachment.names(), Some(attachment.way));
                    }
                    continue;
                }
                Fate::Gone => {
                    let (interface, direction) = (&attachment.name, attachment.way.name());
                    let rule = &self.rules[attachment.rule];
                    if self.released.has(interface) {
                        info!(%interface, direction, "detached, as `weir detach` has asked");
                        attachment.end();
                        attachment.obtained = Obtained::Detached;
                        forget(self.table.as_deref_mut(), attachment, ifindex);
                        continue;
                    }
                    if rule.is_default_route() {
                        info!(%interface, direction, "no default route leaves by this interface any more, or it is gone");
                    } else if rule.is_pattern() {
                        info!(%interface, direction, "the interface is gone");
                    } else {
                        warn!(%interface, direction, "the interface is gone; weir measures it again once it is back");
                    }
                }
            }
            attachment.end();
            forget(self.table.as_deref_mut(), attachment, ifindex);
        }
    }

    /// Says anew what feeds, where that has changed: another interface came or went.
    fn feed(&mut self, feeding: &Feeding) -> Result<(), AttachError> {
        for (slot, attachment) in self.slots.numbered() {
            let Some(present) = &attachment.present else { continue };
            let (ifindex, feeds) = (present.ifindex, feeding.of(present.ifindex, attachment.way));
            if feeds == attachment.feeds {
                continue;
            }
            let (interface, direction) = (&attachment.name, attachment.way.name());
            info!(%interface, direction, now = feeds.name(), "what feeds totals and lists has changed");
            feeding.tell(&Device { ifindex, name: interface.clone(), ..Device::default() }, attachment.way);
            match (&present.hold, &mut self.table) {
                (Some(Hold::Socket { tap }), _) => tap.set_feeds(feeds),
                (_, Some(table)) => table.insert(table_entry(ifindex, attachment.way), slot as u32, feeds)?,
                (_, None) => {}
            }
            attachment.feeds = feeds;
        }
        if let Some(others) = &mut self.others {
            others.feed(|ifindex, way| feeding.of(ifindex, way));
        }
        Ok(())
    }

    /// Attaches to what is not measured yet; returns whether it could.
    fn measure(&mut self, wanted: &Wanted<'_>, feeding: &Feeding, strict: bool) -> Result<bool, AttachError> {
        let Wanted { rule, device, way, .. } = *wanted;
        match self.attach_one(wanted, feeding) {
            Ok(()) => {
                self.refused.remove(&(device.ifindex, way));
                Ok(true)
            }
            Err(error) if strict && error.forbids_start(self.rules[rule].is_named()) => Err(error),
            // There will be news of it.
            Err(error @ AttachError::Vanished(_)) if !self.rules[rule].is_named() => {
                debug!(interface = %device.name, direction = way.name(), "cannot attach: {}", with_causes(&error));
                Ok(false)
            }
            Err(error) => {
                let reason = with_causes(&error);
                if self.refused.get(&(device.ifindex, way)) != Some(&reason) {
                    warn!(interface = %device.name, direction = way.name(), "cannot attach: {reason}");
                    self.refused.insert((device.ifindex, way), reason);
                }
                Ok(false)
            }
        }
    }

    fn attach_one(&mut self, wanted: &Wanted<'_>, feeding: &Feeding) -> Result<(), AttachError> {
        let Wanted { rule, device, way, .. } = *wanted;
        let feeds = feeding.of(device.ifindex, way);
        let by_socket = self.ladder.programs.is_none() || self.rules[rule].mode == Mode::AfPacket;
        if by_socket && self.slots.sockets() >= TAPS_MAX {
            return Err(AttachError::NoTap(device.name.clone()));
        }
        let Some(slot) = self.slots.place_for(&self.rules, rule, &device.name, way) else {
            if self.rules[rule].is_default_route() {
                return Err(AttachError::NoSlotOfRoutes(device.name.clone()));
            }
            return self.attach_among_others(wanted, feeds);
        };
        let entry = table_entry(device.ifindex, way);
        // In the table before the first packet can come.
        if let Some(table) = &mut self.table {
            table.insert(entry, slot as u32, feeds)?;
        }
        self.views.directory.assign(slot, &device.names().collect::<Vec<_>>(), Some(way));
        match self.ladder.attach(device, self.rules[rule].mode, way, (slot, feeds)) {
            Ok((obtained, hold)) => {
                let Device { ifindex, name, .. } = device;
                info!(
                    interface = %name, ifindex, direction = way.name(), mode = obtained.name(), feeds = feeds.name(),
                    "attached"
                );
                feeding.tell(device, way);
                if obtained.counts() == Counts::Buffers {
                    warn!(
                        interface = %name,
                        "generic XDP counts a buffer that an offload has merged as one packet. To count each packet, use \
                         `mode: tcx` or `mode: tc`"
                    );
                }
                let Some(place) = self.slots.get_mut(slot) else { return Ok(()) };
                let attachment = place.get_or_insert_with(|| Attachment::new(rule, name, way));
                attachment.rule = rule;
                attachment.obtained = obtained;
                attachment.feeds = feeds;
                attachment.call(device, &self.rules[rule]);
                attachment.attach(Present { ifindex: *ifindex, xdp: device.xdp, hold: Some(hold) });
                Ok(())
            }
            Err(error) => {
                if let Some(table) = &mut self.table {
                    table.remove(entry)?;
                }
                Err(error)
            }
        }
    }

    /// Attaches to an interface that has no slot of its own. The programs' table does not have it: what is not there is
    /// one of the others.
    fn attach_among_others(&mut self, wanted: &Wanted<'_>, feeds: Feeds) -> Result<(), AttachError> {
        let Wanted { rule, device, way, .. } = *wanted;
        let Some(others) = &mut self.others else { return Err(AttachError::NoSlot(device.name.clone())) };
        let (obtained, hold) = self.ladder.attach(device, self.rules[rule].mode, way, (Others::SLOT, feeds))?;
        debug!(interface = %device.name, direction = way.name(), mode = obtained.name(), "attached, among the others");
        if others.take(wanted, (obtained, feeds), Some(hold)) {
            warn!(
                interface = %device.name, direction = way.name(),
                "all {INTERFACES_MAX} accounts of interfaces are in use: this interface and further ones share the account \
                 `others`"
            );
        }
        Ok(())
    }

    /// Looks whether everything is in its place, and at all counts; to be done right before a window's edge.
    pub fn look(&mut self) {
        self.check(&HashSet::new());
        self.read();
    }

    fn read(&mut self) {
        let taken = self.readings.take(&mut self.devices, self.slots.len());
        self.counting.note(taken);
    }

    /// Compares what was `counted` in the window of this length that ends now, by slot, with what the interfaces
    /// counted. What weir has missed while it was blind is lost: adds it to `edge`.
    pub fn compare(&mut self, counted: &[Counters], length: Duration, edge: &mut Edge) {
        if self.slots.iter().any(|one| one.obtained == Obtained::AfPacket)
            && let Err(error) = self.readings.take_later(&mut self.devices)
        {
            debug!("cannot read the interfaces' own counts again: {error}");
        }
        for (slot, attachment) in self.slots.numbered().filter(|(_, one)| !one.is_coming) {
            let Some(counters) = counted.get(slot) else { continue };
            if let Some(unseen) = attachment.compare(slot, &self.readings, counters, length) {
                edge.miss(slot, unseen.counted, unseen.beyond, attachment.feeds != Feeds::All);
            }
        }
        if let Some(others) = &mut self.others {
            edge.lost_beyond.add(others.missed(&self.readings));
        }
    }

    /// What keeps weir from seeing all packets now, or has done so in the window that is open, for people.
    pub fn troubles(&self) -> Vec<String> {
        let of = |one: &Attachment| {
            let blind = "was blind for a moment, and sees all packets again";
            let trouble = match (one.watched.trouble(), one.watched.was_wrong()) {
                (Some(trouble), _) => trouble,
                (None, true) if one.watched.reason().is_none() => blind,
                _ => return None,
            };
            Some(format!("{} ({}): {trouble}", one.name, one.way.name()))
        };
        let others =
            self.others.as_ref().and_then(Others::trouble).map(|trouble| format!("{}: {trouble}", others::NAME));
        self.slots.iter().filter_map(of).chain(others).collect()
    }

    /// How each interface's packets are seen now.
    pub fn modes(&self) -> impl Iterator<Item = (&str, Way, Obtained)> {
        self.slots.iter().map(|slot| (slot.name.as_str(), slot.way, slot.obtained))
    }

    /// What was measured in a window with these ledgers, by slot, and how much of it. Frees the slots of interfaces
    /// that are gone for good.
    pub fn close(&mut self, ledgers: &[Ledger]) -> Vec<MeasuredInterface> {
        let mut all = Vec::new();
        for slot in 0..self.slots.len() {
            let Some(place) = self.slots.get_mut(slot) else { continue };
            let Some(attachment) = place else { continue };
            let is_coming = std::mem::take(&mut attachment.is_coming);
            if is_coming || slot >= ledgers.len() {
                continue;
            }
            let compared = std::mem::take(&mut attachment.compared);
            all.push(MeasuredInterface {
                slot,
                name: attachment.name.clone(),
                index: attachment.present.as_ref().map(|present| present.ifindex),
                alias: attachment.alias.clone(),
                mode: attachment.obtained.name(),
                counts: attachment.obtained.counts(),
                direction: Some(attachment.way.name()),
                feeds: attachment.feeds.name(),
                coverage: compared.packets,
                coverage_bytes: compared.bytes,
                blind: attachment.blind.take(),
                trouble: attachment.watched.trouble().map(str::to_owned),
            });
            attachment.changed = false;
            let is_over = attachment.present.is_none() && attachment.nowhere.is_none();
            if attachment.is_leaving || is_over && !self.rules[attachment.rule].is_named() {
                *place = None;
            }
        }
        if let Some(ledger) = ledgers.get(Others::SLOT) {
            // Where no interface shares that slot, it may have a packet that came while its interface was let go.
            all.extend(self.others.as_mut().unwrap_or(&mut Others::default()).close(ledger));
        }
        all
    }

    /// The slots that are in use, with what the next weir has to know of them.
    pub fn pages(&mut self) -> Vec<Page> {
        let readings = &self.readings;
        let own = |one: &Attachment| readings.own(one.present.as_ref()?.ifindex, one.way);
        let page = |(slot, one): (usize, &mut Attachment)| Page {
            slot,
            name: one.name.clone(),
            way: one.way,
            ifindex: one.present.as_ref().map(|present| present.ifindex),
            own: own(one).map(|own| own.packets),
            own_bytes: own(one).map(|own| own.bytes),
            reported: Vec::new(),
        };
        let others = self.others.is_some().then(|| Page {
            slot: Others::SLOT,
            name: others::NAME.to_owned(),
            way: Way::Ingress,
            ifindex: None,
            own: None,
            own_bytes: None,
            reported: Vec::new(),
        });
        self.slots.numbered().map(page).chain(others).collect()
    }

    /// The slot of this direction of an interface, which had another one in an earlier weir.
    pub fn slot_of(&mut self, earlier: &Page) -> Option<usize> {
        if earlier.slot == Others::SLOT {
            return self.others.as_ref().map(|_| Others::SLOT);
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

    /// Goes on where an earlier weir has stopped: the first window's coverage begins with the end of its last one.
    pub fn resume(&mut self, pages: &[Page]) {
        for attachment in self.slots.iter_mut() {
            let Some(present) = &attachment.present else { continue };
            let is_same = |page: &&Page| page.way == attachment.way && page.ifindex == Some(present.ifindex);
            if let Some(Page { own: Some(packets), own_bytes: Some(bytes), .. }) = pages.iter().find(is_same) {
                let (own, seen) = (Tally::new(*packets, *bytes), Seen::default());
                attachment.coverage = Coverage::new(Some(Reading { own: [own; 2], seen: [seen; 2] }));
            }
        }
    }

    /// Since then an earlier weir has counted this, by slot, which is in this weir's first report.
    pub fn credit(&mut self, edge: &Edge) {
        for (slot, attachment) in self.slots.numbered() {
            let Some(Counters { seen, merged, .. }) = edge.counters.get(slot) else { continue };
            attachment.coverage.credit(Seen { all: *seen, merged: *merged });
        }
    }

    /// Everything that was to be attached is: what was taken over goes with this weir from now on. Detaches from what
    /// an earlier weir has measured and this one does not.
    pub fn settle_inherited(&mut self) {
        self.ladder.inherited.clear();
        let presents = self.slots.iter_mut().filter_map(|attachment| attachment.present.as_mut());
        presents.filter_map(|present| present.hold.as_mut()).for_each(Hold::settle);
        if let Some(others) = &mut self.others {
            others.settle();
        }
    }

    /// Lets go of every interface. Programs stay there, for the next weir.
    pub fn leave_behind(&mut self) {
        for present in self.slots.iter_mut().filter_map(|attachment| attachment.present.as_mut()) {
            present.hold.take().into_iter().for_each(Hold::leave_behind);
        }
        if let Some(others) = &mut self.others {
            others.leave_behind();
        }
    }

    /// Detaches from every interface, for good. The slots stay, for the last report.
    pub fn detach(&mut self) {
        for present in self.slots.iter_mut().filter_map(|attachment| attachment.present.as_mut()) {
            present.hold = None;
        }
        if let Some(others) = &mut self.others {
            others.detach();
        }
    }
}

/// What somebody has told weir to leave alone.
enum Released {
    Nothing,
    Some(HashSet<String>),
    All,
}

impl Released {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Some(names) => names.contains(name),
            Self::All => true,
        }
    }

    /// These too, or all if there is no name.
    fn add(&mut self, names: &[String]) {
        match self {
            Self::All => {}
            _ if names.is_empty() => *self = Self::All,
            Self::Some(known) => known.extend(names.iter().cloned()),
            Self::Nothing => *self = Self::Some(names.iter().cloned().collect()),
        }
    }
}

/// Removes the filters that an earlier weir has left at the tc hooks: one that was killed, for instance.
fn clean_hooks() {
    let Found { filters, unread } = match leftovers() {
        Ok(found) => found,
        // As a service weir may not ask. There `weir detach` has run after the earlier one.
        Err(error) => return debug!("cannot look for filters that an earlier weir has left: {error}"),
    };
    if let Some((interface, error)) = unread {
        debug!(%interface, "cannot list the filters of its tc hook: {error}");
    }
    for leftover in filters {
        let (interface, direction) = (&leftover.interface, leftover.way.name());
        match (leftover.is_used, leftover.remove_if_left()) {
            (true, _) => {
                info!(%interface, direction, pid = leftover.owner, "another weir measures this interface, too");
            }
            (false, Ok(())) => info!(%interface, direction, "removed the filter that an earlier weir has left"),
            (false, Err(error)) => {
                warn!(%interface, direction, "cannot remove the filter that an earlier weir has left: {error}");
            }
        }
    }
}

/// Removes what is attached no more from the kernel's table.
fn forget(table: Option<&mut InterfaceTable>, attachment: &Attachment, ifindex: u32) {
    if let Some(Err(error)) = table.map(|table| table.remove(table_entry(ifindex, attachment.way))) {
        warn!(interface = %attachment.name, "cannot remove the interface from the table: {error}");
    }
}

/// What stands for a direction of an interface in the kernel's table.
const fn table_entry(ifindex: u32, way: Way) -> u32 {
    match way {
        Way::Ingress => ifindex,
        Way::Egress => egress(ifindex),
    }
}
