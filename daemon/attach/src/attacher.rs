//! The attacher thread: it owns everything that is attached, and makes the system calls for which the kernel takes its
//! configuration lock (rtnl). A process that holds this lock delays only this thread.
//!
//! Attaching and detaching are paced (`pace`). In between, the thread handles other tasks.

use std::{collections::BTreeMap, io, time::Duration};

use crossbeam::channel::RecvTimeoutError;
use tracing::debug;
use weir_common::flow::Address;
use weir_config::interface::Way;
use weir_datapath::{Chains, syscall::Hook, tap::Own};
use weir_system::clock;

use super::{
    methods::{AttachResources, AttachmentGuard},
    nat::Sources,
    netlink::{Device, Devices, Traffic},
    obtained::Obtained,
    pace::Pace,
    shared_slot::SharedSlot,
    tasks::{Channels, Number, Task, TaskResult, ToAttach, Urgency},
    watch::Position,
};

/// The time limit of one check for the interfaces in the shared slot. Those that are left are checked the next time.
const LOOK: Duration = Duration::from_millis(5);

/// Everything that is attached, and the resources to attach more.
pub struct Attacher<'a> {
    resources: AttachResources<'a>,
    devices: Devices,
    /// Lists filters; opened when there are some.
    traffic: Option<Traffic>,
    /// Lists the programs at a hook.
    chains: Chains,
    active: BTreeMap<Number, ActiveAttachment>,
    /// Tasks that wait for their turn.
    queue: BTreeMap<(Urgency, Number), QueuedTask>,
    /// Where the next check of interfaces without slots of their own begins.
    next: Number,
    /// Tells if source addresses identify the router's own packets; `None` if no attachment needs to know.
    sources: Option<Sources>,
}

/// An attachment that this thread holds.
struct ActiveAttachment {
    guard: AttachmentGuard,
    ifindex: u32,
    way: Way,
    obtained: Obtained,
    /// True if it has a slot of its own, and does not share one.
    has_slot: bool,
}

/// A task that waits for its turn.
enum QueuedTask {
    Attach(Box<ToAttach>),
    Mend(Box<Device>, Position),
    Detach,
}

impl<'a> Attacher<'a> {
    /// Creates an attacher with nothing attached.
    ///
    /// # Errors
    ///
    /// The kernel provides no sockets that list interfaces.
    pub fn new(resources: AttachResources<'a>) -> io::Result<Self> {
        Ok(Self {
            resources,
            devices: Devices::open()?,
            traffic: None,
            chains: Chains::default(),
            active: BTreeMap::new(),
            queue: BTreeMap::new(),
            next: 0,
            sources: None,
        })
    }

    /// From here on, lists the programs at hooks through a thread that has the capability.
    pub fn ask_by(&mut self, chains: Chains) {
        self.chains = chains;
    }

    /// Returns true if programs are loaded; otherwise only packet sockets are used.
    pub const fn has_programs(&self) -> bool {
        self.resources.programs.is_some()
    }

    /// Runs tasks and reports their results, until the other end disconnects. Then detaches from everything.
    pub fn run(mut self, channels: &Channels) {
        let mut pace = Pace::new(clock::now().monotonic);
        loop {
            let asked = match self.urgency() {
                None => channels.tasks.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(Urgency::Mend) => channels.tasks.recv_timeout(Duration::ZERO),
                Some(_) => channels.tasks.recv_timeout(pace.rest(clock::now().monotonic)),
            };
            let mut done = Vec::new();
            match asked {
                Ok(tasks) => tasks.into_iter().for_each(|task| self.take(task, &mut done)),
                Err(RecvTimeoutError::Timeout) => self.work(&mut done),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for one in done {
                if channels.done.send(one).is_err() {
                    return;
                }
            }
        }
    }

    /// Runs a task now, or queues it.
    pub fn take(&mut self, task: Task, done: &mut Vec<TaskResult>) {
        match task {
            Task::List { with_routes, with_sources } => {
                let listed = self.list(with_routes, with_sources);
                done.push(TaskResult::Listed(listed));
            }
            Task::Check(nth) => {
                let found = self.check();
                done.push(TaskResult::Checked { nth, found });
            }
            Task::Attach(one) => drop(self.queue.insert((one.urgency, one.number), QueuedTask::Attach(one))),
            Task::Mend { number, device, position } => {
                self.queue.insert((Urgency::Mend, number), QueuedTask::Mend(device, position));
            }
            Task::Detach(number) => {
                // Cancel the tasks that are still queued for it.
                self.queue.retain(|(_, other), _| *other != number);
                if self.active.contains_key(&number) {
                    self.queue.insert((Urgency::Detach, number), QueuedTask::Detach);
                } else {
                    done.push(TaskResult::Detached(number));
                }
            }
            Task::SetFeeds(number, feeds) => {
                if let Some(ActiveAttachment { guard: AttachmentGuard::Socket { tap }, .. }) = self.active.get(&number)
                {
                    tap.set_feeds(feeds);
                }
            }
            Task::DetachAll => {
                self.queue.clear();
                self.active.clear();
                done.push(TaskResult::Ended);
            }
            Task::LeaveBehind => {
                self.queue.clear();
                for active in std::mem::take(&mut self.active).into_values() {
                    active.guard.leave_behind();
                }
                done.push(TaskResult::Ended);
            }
        }
    }

    /// Lists the interfaces. If a packet socket sees sent packets, also updates the router's own addresses.
    fn list(&mut self, with_routes: bool, with_sources: bool) -> io::Result<(Vec<Device>, Sources)> {
        let listed = if with_routes { self.devices.list_with_routes() } else { self.devices.list() }?;
        if !with_sources {
            return Ok((listed, Sources::default()));
        }
        let addresses = self.devices.addresses()?.into_iter().map(Address::from).collect();
        self.resources.taps.set_own(Own::new(addresses, listed.iter().filter_map(|device| device.address).collect()));
        let sources = Sources::ask().or_before(self.sources);
        self.sources = Some(sources);
        Ok((listed, sources))
    }

    /// The urgency of the next queued task; `None` if none is queued.
    pub fn urgency(&self) -> Option<Urgency> {
        self.queue.first_key_value().map(|((urgency, _), _)| *urgency)
    }

    /// Runs the next queued task.
    pub fn work(&mut self, done: &mut Vec<TaskResult>) {
        let Some(((_, number), turn)) = self.queue.pop_first() else { return };
        match turn {
            QueuedTask::Attach(one) => {
                let result = self.attach(&one);
                done.push(TaskResult::Attached(number, result));
            }
            QueuedTask::Mend(device, position) => done.extend(self.mend(number, &device, position)),
            QueuedTask::Detach => {
                self.active.remove(&number);
                done.push(TaskResult::Detached(number));
            }
        }
    }

    fn attach(&mut self, one: &ToAttach) -> Result<Obtained, super::error::AttachError> {
        let ToAttach { number, ref device, mode, way, slot, feeds, has_many, .. } = *one;
        self.resources.has_many = has_many;
        let (obtained, guard) = self.resources.attach(device, mode, way, slot, feeds)?;
        let active =
            ActiveAttachment { guard, ifindex: device.ifindex, way, obtained, has_slot: slot != SharedSlot::SLOT };
        self.active.insert(number, active);
        Ok(obtained)
    }

    fn mend(&mut self, number: Number, device: &Device, position: Position) -> Option<TaskResult> {
        let ActiveAttachment { guard, way, obtained, has_slot, .. } = self.active.remove(&number)?;
        let mut guard = Some(guard);
        let result = self.resources.mend(&mut guard, device, way, obtained, &position);
        if result.is_err() && position == Position::Removed {
            guard = None;
        }
        let is_attached = guard.is_some();
        if let Some(guard) = guard {
            self.active.insert(number, ActiveAttachment { guard, ifindex: device.ifindex, way, obtained, has_slot });
        }
        Some(TaskResult::Mended { number, position, result, is_attached })
    }

    /// Checks all attachments that have a slot of their own, and the others for a limited time.
    fn check(&mut self) -> Vec<(Number, Position, Duration)> {
        let Self { active, traffic, chains, next, .. } = self;
        let mut found = Vec::new();
        for (&number, one) in active.iter().filter(|(_, one)| one.has_slot) {
            found.extend(look(number, one, traffic, chains));
        }
        let end = clock::now().monotonic + LOOK;
        let others = active.range(*next..).chain(active.range(..*next)).filter(|(_, one)| !one.has_slot);
        for (&number, one) in others {
            found.extend(look(number, one, traffic, chains));
            *next = number + 1;
            if clock::now().monotonic >= end {
                break;
            }
        }
        self.leave_out_what_is_gone(&mut found);
        found
    }

    /// If an interface vanishes, its link looks as if another process had removed it. The kernel reports the vanished
    /// interface separately.
    fn leave_out_what_is_gone(&mut self, found: &mut Vec<(Number, Position, Duration)>) {
        if found.iter().all(|(_, position, _)| *position != Position::Removed) {
            return;
        }
        let listed = self.devices.list().inspect_err(|error| debug!("cannot list the interfaces: {error}"));
        let there: std::collections::HashSet<_> =
            listed.unwrap_or_default().into_iter().map(|device| device.ifindex).collect();
        let is_there = |number: Number| self.active.get(&number).is_some_and(|one| there.contains(&one.ifindex));
        found.retain(|(number, position, _)| *position != Position::Removed || is_there(*number));
    }

    /// From now on, dropping an inherited program detaches it. Detaches inherited programs that this configuration does
    /// not use. Returns the links that could not be taken over.
    pub fn settle_inherited(&mut self) -> Vec<(Hook, u32)> {
        for active in self.active.values_mut() {
            active.guard.settle();
        }
        self.resources.inherited.clear()
    }
}

/// The position of an attachment; `None` if the kernel does not report it, for example because the interface is just
/// vanishing.
fn look(
    number: Number,
    one: &ActiveAttachment,
    traffic: &mut Option<Traffic>,
    chains: &Chains,
) -> Option<(Number, Position, Duration)> {
    // The answer is certain only for the time before the question.
    let at = clock::now().monotonic;
    match one.guard.position(traffic, chains) {
        Ok(position) => Some((number, position, at)),
        Err(error) => {
            debug!(ifindex = one.ifindex, direction = one.way.name(), "cannot check what is attached: {error}");
            None
        }
    }
}
