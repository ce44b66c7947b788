//! All measured interfaces: the coordinator's side. The attacher thread ([`Attacher`]) owns the objects that are needed
//! to attach. It gets its tasks through a [`Handle`], and the coordinator does not wait for them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crossbeam::channel::Receiver;
use tracing::{info, warn};
use weir_common::ledger::Tally;
use weir_config::{self as config, Interface, Mode, interface::Way};
use weir_datapath::{counters::LiveCounters, directory::Directory, maps::InterfaceTable};
use weir_system::clock;

use super::{
    attacher::Attacher,
    attachment::Attachment,
    coverage::Reading,
    departures::Departure,
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::Feeding,
    health::Health,
    inventory::Inventory,
    leftovers::clean_hooks,
    log::AttachLog,
    netlink::Device,
    obtained::Obtained,
    pace::{Pace, TcxBudget},
    plan::covers,
    readings::Readings,
    requests::Requests,
    shared_slot::{self, SharedSlot},
    slots::Slots,
    tasks::{self, Channels, Handle, Number, Task, TaskResult, Urgency},
};

/// How long a change of the configuration waits for the kernel to detach unwanted interfaces.
const DETACHING: Duration = Duration::from_millis(500);
/// Interfaces that wait longer than this to be attached cause a warning.
const WAIT: Duration = Duration::from_millis(500);

/// All measured interfaces, by slot.
pub struct Attachments<'a> {
    pub(super) thread: Handle,
    /// The number of the next attachment.
    pub(super) next: Number,
    /// The attachments that are being detached.
    pub(super) going: HashMap<Number, Going>,
    /// Results of the thread that are not handled yet.
    pub(super) heard: Vec<TaskResult>,
    /// True if an interface that cannot be attached prevents the start.
    pub(super) is_strict: bool,
    pub(super) has_programs: bool,
    /// The programs' table of interfaces, if programs are loaded.
    pub(super) table: Option<&'a mut InterfaceTable>,
    pub(super) rules: Vec<Interface>,
    pub(super) slots: Slots,
    /// Maps interfaces to slots, for views that are restricted to interfaces.
    pub(super) directory: Arc<Directory>,
    /// The interfaces that share a slot, if all slots are in use.
    pub(super) shared: Option<SharedSlot>,
    /// The interfaces that are present.
    pub(super) inventory: Inventory,
    /// The requests of users.
    pub(super) requests: Requests,
    /// Refused interfaces and unanswered requests.
    pub(super) health: Health,
    /// The state of the log, so that it says each thing once.
    pub(super) log: AttachLog,
    /// True if the open window is the last one.
    pub(super) is_last: bool,
    /// Which packets feed totals and lists, according to the last list of the interfaces.
    pub(super) feeding: Feeding,
    /// The last readings of the interfaces' own counts and of weir's.
    pub(super) readings: Readings<'a>,
    /// The rule that decides if weir may choose TCX.
    pub(super) budget: TcxBudget,
}

/// An attachment that is being detached.
#[derive(Clone, Copy, Debug)]
pub struct Going {
    /// The slot that becomes free.
    pub slot: usize,
    /// The index of the interface.
    pub ifindex: u32,
    /// The measured direction.
    pub way: Way,
}

impl<'a> Attachments<'a> {
    /// Attaches to all named interfaces that are present, or fails. Also attaches to interfaces that match a pattern,
    /// as many as time allows now; the thread of the `Attacher`, connected by the returned channels, attaches the rest.
    /// weir waits for a named interface that is not present yet, unless `strict` is set.
    ///
    /// # Errors
    ///
    /// The first named interface that cannot be measured, or the reason why no interface at all can be.
    pub fn attach(
        attacher: &mut Attacher<'_>,
        table: Option<&'a mut InterfaceTable>,
        live: Option<&'a LiveCounters>,
        interfaces: &[Interface],
        directory: Arc<Directory>,
        strict: bool,
    ) -> Result<(Self, Channels), AttachError> {
        directory.assign(SharedSlot::SLOT, &[shared_slot::NAME], None);
        let (thread, channels) = tasks::channels();
        let mut all = Self {
            thread,
            next: 0,
            going: HashMap::new(),
            heard: Vec::new(),
            is_strict: true,
            has_programs: attacher.has_programs(),
            directory,
            table,
            rules: interfaces.to_vec(),
            slots: Slots::new(interfaces),
            shared: (config::slots(interfaces) > SharedSlot::SLOT).then(SharedSlot::default),
            inventory: Inventory::default(),
            requests: Requests::default(),
            health: Health::default(),
            log: AttachLog::default(),
            is_last: false,
            feeding: Feeding::default(),
            readings: Readings::new(live)?,
            budget: TcxBudget::new(clock::now().monotonic),
        };
        if all.has_programs {
            clean_hooks();
        }
        all.list();
        all.drive(attacher, strict)?;
        all.is_strict = false;
        all.begin_coverage();
        all.log.note_waiting(all.waiting(), Duration::ZERO, clock::now().monotonic);
        Ok((all, channels))
    }

    /// Runs the attacher in this thread: for all named interfaces, and for a limited time for those that match a
    /// pattern.
    fn drive(&mut self, attacher: &mut Attacher<'_>, strict: bool) -> Result<(), AttachError> {
        let mut pace = Pace::new(clock::now().monotonic);
        let mut is_listed = false;
        loop {
            let mut done = Vec::new();
            for task in self.thread.take() {
                attacher.take(task, &mut done);
            }
            if done.is_empty() {
                let rests = !pace.rest(clock::now().monotonic).is_zero();
                match attacher.urgency() {
                    None => return Ok(()),
                    Some(urgency) if urgency > Urgency::Named && rests => return Ok(()),
                    Some(_) => attacher.work(&mut done),
                }
            }
            for one in done {
                self.act(one)?;
                if !std::mem::replace(&mut is_listed, true) {
                    self.report_absent(strict)?;
                }
            }
        }
    }

    /// Reports which configured interfaces are not present.
    fn report_absent(&self, strict: bool) -> Result<(), AttachError> {
        let devices = self.inventory.devices();
        for rule in &self.rules {
            if devices.iter().any(|device| covers(rule, device)) {
                continue;
            }
            if rule.is_default_route() {
                warn!("{NO_DEFAULT_ROUTE}");
            } else if rule.is_pattern() {
                warn!(pattern = %rule.name, "{NONE_FITS}");
            } else {
                let absent = AttachError::not_found(&rule.name, devices);
                if strict {
                    return Err(absent);
                }
                warn!("{absent}: weir waits, and measures it once it is there (`--strict` would refuse to start)");
            }
        }
        Ok(())
    }

    /// The results of the attacher thread.
    pub const fn done(&self) -> &Receiver<TaskResult> {
        &self.thread.done
    }

    /// Notes that the interface with this index is gone: another one may already have its index and its name. The
    /// kernel may have reported its last own counts.
    pub(super) fn note_gone(&mut self, ifindex: u32, departure: Departure, counts: Option<[Tally; 2]>) {
        self.inventory.note_gone(ifindex, departure);
        for (slot, attachment) in self.slots.numbered() {
            attachment.departures.note_gone(ifindex, departure);
            let is_its = attachment.present.or(attachment.nowhere).is_some_and(|present| present.ifindex == ifindex);
            if let Some(counts) = counts.filter(|_| is_its && attachment.obtained != Obtained::AfPacket) {
                // The program stays on an interface that moves until it is detached, and sees its packets there.
                let (own, seen) = (counts[attachment.way as usize], self.readings.seen_of(slot));
                let reading = Reading { own: [own; 2], seen: [seen; 2] };
                self.inventory.note_last_reading(ifindex, attachment.way, reading);
            }
        }
    }

    /// Notes that the kernel has reported an interface with this index and these counts, which may be new.
    pub(super) fn note_reported(&mut self, ifindex: u32, counts: Option<[Tally; 2]>) {
        if let Some(origin) = self.inventory.note_reported(ifindex, counts, clock::now().monotonic) {
            for attachment in self.slots.iter_mut() {
                attachment.note_announced(ifindex, origin);
            }
        }
    }

    /// Notes that the kernel could not report all news of interfaces.
    pub fn note_missed(&mut self) {
        self.inventory.note_missed(clock::now().monotonic);
        if let Some(shared) = &mut self.shared {
            shared.note_missed();
        }
    }

    /// Asks for a list of the interfaces, and for a check of all attachments. The answers are handled when they arrive
    /// ([`Attachments::hear`]).
    pub fn follow(&mut self) {
        if !self.health.is_checking() {
            self.check();
        }
        self.list();
        self.send();
        let (waiting, now) = (self.waiting(), clock::now().monotonic);
        self.log.note_waiting(waiting, WAIT, now);
        self.log.note_held_up(self.health.is_held_up(now));
    }

    pub(super) fn list(&mut self) {
        if self.health.begin_list() {
            let with_routes = self.rules.iter().any(Interface::is_default_route);
            let by_socket = |rule: &Interface| !self.has_programs || rule.mode == Mode::AfPacket;
            let sees_what_is_sent = |rule: &&Interface| rule.direction.ways().contains(&Way::Egress);
            let with_sources = self.rules.iter().filter(sees_what_is_sent).any(by_socket);
            self.thread.put(Task::List { with_routes, with_sources });
        }
    }

    pub(super) fn check(&mut self) -> u64 {
        let nth = self.health.begin_check();
        self.thread.put(Task::Check(nth));
        nth
    }

    pub(super) fn send(&mut self) {
        self.thread.send();
        self.health.note_sent(clock::now().monotonic);
    }

    /// Applies another configuration, which has room for `most` interfaces. Interfaces that it still wants stay
    /// attached, in their slots. The others are detached; their slots stay until the report of the window that ends
    /// now. New interfaces are attached at the next `follow`. What `weir detach` has detached stays detached, unless
    /// the configuration wants other interfaces than before. Returns how many slots are in use.
    pub fn change(&mut self, interfaces: &[Interface], directory: Arc<Directory>, most: usize) -> usize {
        if self.rules != interfaces {
            self.requests.forget_released();
            self.go_by(interfaces, most);
        }
        self.directory = directory;
        self.directory.assign(SharedSlot::SLOT, &[shared_slot::NAME], None);
        for (slot, attachment) in self.slots.numbered().filter(|(_, one)| !one.is_leaving) {
            self.directory.assign(slot, &attachment.names(), Some(attachment.way));
        }
        if self.shared.is_some() { SharedSlot::SLOT + 1 } else { self.slots.len() }
    }

    /// The interfaces, for rules other than those `before`. If the earlier rules did not need routes, the routes are
    /// unknown: until the next list, any interface may carry the default route, and attached programs stay.
    fn devices_for(&self, before: &[Interface]) -> Arc<Vec<Device>> {
        let by_route = |rules: &[Interface]| rules.iter().any(Interface::is_default_route);
        if by_route(before) || !by_route(&self.rules) {
            return self.inventory.devices().clone();
        }
        let carrier = |device: &Device| Device { carries_default: true, ..device.clone() };
        Arc::new(self.inventory.devices().iter().map(carrier).collect())
    }

    fn go_by(&mut self, interfaces: &[Interface], most: usize) {
        let before = std::mem::replace(&mut self.rules, interfaces.to_vec());
        let devices = self.devices_for(&before);
        self.slots.change(&before, interfaces, &devices, most.min(SharedSlot::SLOT));
        if let Some(shared) = &mut self.shared {
            shared.change(&before, interfaces, &devices);
        }
        self.health.retain_refusals(|_| false);
        let mut leaving = HashSet::new();
        for (slot, attachment) in self.slots.numbered().filter(|(_, one)| one.is_leaving) {
            let Some(here) = attachment.here() else { continue };
            attachment.give_up();
            (attachment.present, attachment.ordered) = (None, None);
            attachment.changed = true;
            leaving.insert(here.number);
            self.going.insert(here.number, Going { slot, ifindex: here.ifindex, way: attachment.way });
            self.thread.put(Task::Detach(here.number));
            let (interface, direction) = (&attachment.name, attachment.way.name());
            info!(%interface, direction, "detached: the configuration does not ask for it any more");
        }
        // Wait, so that the last packets are counted in the window that ends now.
        self.wait(
            DETACHING,
            |all| all.going.keys().all(|number| !leaving.contains(number)),
            |done| matches!(done, TaskResult::Detached(_)),
        );
    }

    /// Handles results that could not be handled earlier.
    pub fn catch_up(&mut self) {
        for earlier in std::mem::take(&mut self.heard) {
            self.hear(earlier);
        }
    }

    /// Receives results until `is_so` holds, at most for `patience`. Handles the results that `may_act` accepts, and
    /// keeps the others for [`Attachments::hear`]. Returns whether `is_so` holds.
    pub(super) fn wait(
        &mut self,
        patience: Duration,
        is_so: impl Fn(&Self) -> bool,
        may_act: impl Fn(&TaskResult) -> bool,
    ) -> bool {
        self.send();
        let end = clock::now().monotonic + patience;
        while !is_so(self) {
            let left = end.saturating_sub(clock::now().monotonic);
            let Ok(one) = self.thread.done.recv_timeout(left) else { return false };
            if may_act(&one) {
                self.act_and_note(one);
            } else {
                self.heard.push(one);
            }
            self.send();
        }
        true
    }

    /// How many directions of interfaces are not attached yet, because too many interfaces appeared at once.
    pub fn waiting(&self) -> usize {
        self.slots.waiting() + self.shared.as_ref().map_or(0, SharedSlot::waiting)
    }

    /// How many links are attached. The kernel needs some time to detach each of them.
    pub fn links(&self) -> usize {
        let own = self.slots.iter().filter(|one| one.present.is_some() && one.obtained.has_link()).count();
        own + self.shared.as_ref().map_or(0, SharedSlot::links)
    }

    /// How many directions are attached at a tc hook, or are ordered to be.
    pub(super) fn at_tc(&self) -> usize {
        let own = self.slots.iter().filter(|one| one.present.is_some() && one.obtained.is_at_tc()).count();
        own + self.shared.as_ref().map_or(0, SharedSlot::at_tc) + self.waiting()
    }

    /// How each interface's packets are seen now.
    pub fn modes(&self) -> impl Iterator<Item = (&str, Way, Obtained)> {
        self.slots.iter().map(|slot: &Attachment| (slot.name.as_str(), slot.way, slot.obtained))
    }

    /// Releases all interfaces. Their programs stay for the next weir. Returns whether this was finished in time.
    pub fn leave_behind(&mut self, patience: Duration) -> bool {
        self.end(Task::LeaveBehind, patience)
    }

    /// Detaches from all interfaces for good. The slots stay, for the last report. Returns whether this was finished in
    /// time; if not, the thread continues.
    pub fn detach(&mut self, patience: Duration) -> bool {
        self.end(Task::DetachAll, patience)
    }

    fn end(&mut self, task: Task, patience: Duration) -> bool {
        self.thread.put(task);
        self.heard.clear();
        self.wait(patience, |all| matches!(all.heard.last(), Some(TaskResult::Ended)), |_| false)
    }
}
