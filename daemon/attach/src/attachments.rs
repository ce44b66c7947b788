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
use weir_system::{clock, log::Lasting};

use super::{
    arrivals::Arrivals,
    attacher::Attacher,
    attachment::Attachment,
    coverage::Reading,
    departures::Departure,
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::Feeding,
    leftovers::clean_hooks,
    netlink::Device,
    obtained::Obtained,
    pace::{Pace, TcxBudget},
    plan::covers,
    present::Origin,
    readings::Readings,
    released::{Released, Releasing, Returning},
    shared_slot::{self, SharedSlot},
    slots::Slots,
    tasks::{self, Channels, Handle, Number, Task, TaskResult, Urgency},
};

/// How long a change of the configuration waits for the kernel to detach unwanted interfaces.
const DETACHING: Duration = Duration::from_millis(500);
/// Interfaces that wait longer than this to be attached cause a warning.
const WAIT: Duration = Duration::from_millis(500);
/// For this long after weir missed news, a program that is not attached may have vanished with its interface.
const MISSED: Duration = Duration::from_secs(3);
/// If the kernel blocks the thread for longer than this, weir warns.
const PATIENCE: Duration = Duration::from_millis(500);
/// The text of that warning.
pub(super) const HELD_UP: &str = "the kernel does not answer: another process holds its configuration lock (rtnl). Until that \
                                  ends, weir follows no changes of interfaces; it goes on counting";

/// All measured interfaces, by slot.
pub struct Attachments<'a> {
    pub(super) thread: Handle,
    /// The number of the next attachment.
    pub(super) next: Number,
    /// The attachments that are being detached.
    pub(super) going: HashMap<Number, Going>,
    /// Whether the thread has been asked for a list of interfaces.
    pub(super) is_listing: bool,
    /// The number of the last ordered check, and of the last finished one.
    pub(super) checks: [u64; 2],
    /// How many attachments are being restored.
    pub(super) mending: usize,
    /// Since when a request to the thread has been unanswered.
    pub(super) asked: Option<Duration>,
    /// Results of the thread that are not handled yet.
    pub(super) heard: Vec<TaskResult>,
    /// Whether an interface that cannot be attached prevents the start.
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
    /// The last list of the interfaces.
    pub(super) devices: Arc<Vec<Device>>,
    /// Interfaces that the kernel has reported gone since then.
    pub(super) gone: HashMap<u32, Departure>,
    /// Interfaces that have come and are not ordered yet, and those that are gone again.
    pub(super) arrivals: Arrivals,
    /// Whether the open window is the last one.
    pub(super) is_last: bool,
    /// When weir last missed news of interfaces.
    pub(super) missed_news_at: Option<Duration>,
    /// Both counts of the attached interfaces that have vanished since then, as they were when the kernel reported
    /// that.
    pub(super) last_readings: HashMap<(u32, Way), Reading>,
    /// The own counts of interfaces when they came, or got their names.
    pub(super) origins: HashMap<u32, Origin>,
    /// Which packets feed totals and lists, according to that list.
    pub(super) feeding: Feeding,
    /// The last readings of the interfaces' own counts and of weir's.
    pub(super) readings: Readings<'a>,
    /// The interfaces that `weir detach` has detached.
    pub(super) released: Released,
    /// Requests that wait until weir has detached.
    pub(super) releasing: Vec<Releasing>,
    /// Requests that wait until weir has attached again.
    pub(super) returning: Vec<Returning>,
    /// Refusals that were already logged: each is logged once, not at every change.
    pub(super) refused: HashMap<(u32, Way), String>,
    /// Interfaces for which the log already says that XDP in generic mode runs before their tc hook.
    pub(super) behind_generic: HashSet<u32>,
    pub(super) following: Lasting,
    pub(super) counting: Lasting,
    /// Whether TCX may be chosen.
    pub(super) budget: TcxBudget,
    pub(super) has_many: bool,
    /// Whether that has been logged. Interfaces may come and go in hundreds, each a reason to log it again.
    pub(super) has_logged_many: bool,
    /// Since when some interfaces have been waiting, and whether that was logged.
    wait_since: Option<Duration>,
    pub(super) said_to_wait: bool,
    said_to_be_held_up: bool,
}

/// An attachment that is being detached.
#[derive(Clone, Copy, Debug)]
pub struct Going {
    /// Its slot.
    pub slot: usize,
    /// The interface.
    pub ifindex: u32,
    /// The direction.
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
            is_listing: false,
            checks: [0; 2],
            mending: 0,
            asked: None,
            heard: Vec::new(),
            is_strict: true,
            has_programs: attacher.has_programs(),
            directory,
            table,
            rules: interfaces.to_vec(),
            slots: Slots::new(interfaces),
            shared: (config::slots(interfaces) > SharedSlot::SLOT).then(SharedSlot::default),
            devices: Arc::default(),
            gone: HashMap::new(),
            arrivals: Arrivals::default(),
            is_last: false,
            missed_news_at: None,
            last_readings: HashMap::new(),
            origins: HashMap::new(),
            feeding: Feeding::default(),
            readings: Readings::new(live)?,
            released: Released::default(),
            releasing: Vec::new(),
            returning: Vec::new(),
            refused: HashMap::new(),
            behind_generic: HashSet::new(),
            following: Lasting::new("follow the interfaces"),
            counting: Lasting::new("read the interfaces' own counts"),
            budget: TcxBudget::new(clock::now().monotonic),
            has_many: false,
            has_logged_many: false,
            wait_since: None,
            said_to_wait: false,
            said_to_be_held_up: false,
        };
        if all.has_programs {
            clean_hooks();
        }
        all.list();
        all.drive(attacher, strict)?;
        all.is_strict = false;
        all.begin_coverage();
        all.report_waiting(Duration::ZERO);
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
        for rule in &self.rules {
            if self.devices.iter().any(|device| covers(rule, device)) {
                continue;
            }
            if rule.is_default_route() {
                warn!("{NO_DEFAULT_ROUTE}");
            } else if rule.is_pattern() {
                warn!(pattern = %rule.name, "{NONE_FITS}");
            } else {
                let absent = AttachError::not_found(&rule.name, &self.devices);
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
        let known = self.gone.entry(ifindex).or_insert(departure);
        *known = departure.max(*known);
        self.origins.remove(&ifindex);
        for (slot, attachment) in self.slots.numbered() {
            attachment.departures.note_gone(ifindex, departure);
            let is_its = attachment.present.or(attachment.nowhere).is_some_and(|present| present.ifindex == ifindex);
            if let Some(counts) = counts.filter(|_| is_its && attachment.obtained != Obtained::AfPacket) {
                // The program stays on an interface that moves until it is detached, and sees its packets there.
                let (own, seen) = (counts[attachment.way as usize], self.readings.seen_of(slot));
                self.last_readings.insert((ifindex, attachment.way), Reading { own: [own; 2], seen: [seen; 2] });
            }
        }
    }

    /// Notes that the kernel has reported an interface with this index and these counts, which may be new.
    pub(super) fn note_reported(&mut self, ifindex: u32, counts: Option<[Tally; 2]>) {
        if self.origins.get(&ifindex).is_none_or(|origin| origin.is_awaited()) {
            // Otherwise the report of its arrival may be among those that weir missed.
            let arrived = counts.filter(|_| !self.may_have_missed_news());
            let origin = arrived.map_or_else(|| Origin::listed(None, false), Origin::arrived);
            self.origins.insert(ifindex, origin);
            for attachment in self.slots.iter_mut() {
                attachment.is_announced(ifindex, origin);
            }
        }
    }

    /// Notes that the kernel could not report all news of interfaces.
    pub fn note_missed(&mut self) {
        self.missed_news_at = Some(clock::now().monotonic);
        // Any of these may be another interface by now.
        for origin in self.origins.values_mut() {
            *origin = Origin::listed(None, false);
        }
        self.arrivals.note_missed();
        if let Some(shared) = &mut self.shared {
            shared.note_missed();
        }
    }

    /// Whether an interface may have been deleted and created again while weir missed news.
    pub(super) fn may_have_missed_news(&self) -> bool {
        self.missed_news_at.is_some_and(|at| clock::now().monotonic.saturating_sub(at) < MISSED)
    }

    /// Asks for a list of the interfaces, and for a check of all attachments. The answers are handled when they arrive
    /// ([`Attachments::hear`]).
    pub fn follow(&mut self) {
        if self.checks[0] == self.checks[1] {
            self.check();
        }
        self.list();
        self.send();
        self.report_waiting(WAIT);
        self.report_held_up();
    }

    pub(super) fn list(&mut self) {
        if !std::mem::replace(&mut self.is_listing, true) {
            let with_routes = self.rules.iter().any(Interface::is_default_route);
            let by_socket = |rule: &Interface| !self.has_programs || rule.mode == Mode::AfPacket;
            let sees_what_is_sent = |rule: &&Interface| rule.direction.ways().contains(&Way::Egress);
            let with_sources = self.rules.iter().filter(sees_what_is_sent).any(by_socket);
            self.thread.put(Task::List { with_routes, with_sources });
        }
    }

    pub(super) fn check(&mut self) -> u64 {
        self.checks[0] += 1;
        self.thread.put(Task::Check(self.checks[0]));
        self.checks[0]
    }

    pub(super) fn send(&mut self) {
        self.thread.send();
        if self.is_listing || self.checks[0] != self.checks[1] {
            self.asked = self.asked.or_else(|| Some(clock::now().monotonic));
        }
    }

    /// Whether a request to the thread has been unanswered for long.
    pub(super) fn is_held_up(&self) -> bool {
        self.asked.is_some_and(|asked| clock::now().monotonic.saturating_sub(asked) > PATIENCE)
    }

    /// Applies another configuration, which has room for `most` interfaces. Interfaces that it still wants stay
    /// attached, in their slots. The others are detached; their slots stay until the report of the window that ends
    /// now. New interfaces are attached at the next `follow`. What `weir detach` has detached stays detached, unless
    /// the configuration wants other interfaces than before. Returns how many slots are in use.
    pub fn change(&mut self, interfaces: &[Interface], directory: Arc<Directory>, most: usize) -> usize {
        if self.rules != interfaces {
            self.released = Released::default();
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
    /// unknown: until the next list, any interface may carry the default route, and what is attached stays.
    fn devices_for(&self, before: &[Interface]) -> Arc<Vec<Device>> {
        let by_route = |rules: &[Interface]| rules.iter().any(Interface::is_default_route);
        if by_route(before) || !by_route(&self.rules) {
            return self.devices.clone();
        }
        Arc::new(self.devices.iter().map(|device| Device { carries_default: true, ..device.clone() }).collect())
    }

    fn go_by(&mut self, interfaces: &[Interface], most: usize) {
        let before = std::mem::replace(&mut self.rules, interfaces.to_vec());
        let devices = self.devices_for(&before);
        self.slots.change(&before, interfaces, &devices, most.min(SharedSlot::SLOT));
        if let Some(shared) = &mut self.shared {
            shared.change(&before, interfaces, &devices);
        }
        self.refused.clear();
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

    /// Logs once that interfaces have waited for this long, and once that none waits any more.
    fn report_waiting(&mut self, long: Duration) {
        let (waiting, now) = (self.waiting(), clock::now().monotonic);
        self.wait_since = (waiting > 0).then(|| self.wait_since.unwrap_or(now));
        let is_long = self.wait_since.is_some_and(|since| now.saturating_sub(since) >= long);
        if is_long && !self.said_to_wait {
            warn!(
                directions = waiting,
                "so many interfaces came at once that some are not measured yet: weir continues to attach"
            );
        } else if waiting == 0 && self.said_to_wait {
            info!("all interfaces that can be measured are measured");
        }
        self.said_to_wait = waiting > 0 && (is_long || self.said_to_wait);
    }

    /// Logs once that another process blocks the kernel, and once that the kernel answers again.
    fn report_held_up(&mut self) {
        let is_held_up = self.is_held_up();
        let before = std::mem::replace(&mut self.said_to_be_held_up, is_held_up);
        match (before, self.said_to_be_held_up) {
            (false, true) => warn!("{HELD_UP}"),
            (true, false) => info!("the kernel answers again: weir follows changes of interfaces"),
            _ => {}
        }
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
