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
    ladder::{Hold, Ladder},
    nat::Sources,
    netlink::{Device, Devices, Traffic},
    obtained::Obtained,
    others::Others,
    pace::Pace,
    tasks::{Channels, Done, Number, Task, ToAttach, Urgency},
    watch::Position,
};

/// How long one check may take, in addition to the interfaces with slots of their own. The remaining interfaces are
/// checked the next time.
const LOOK: Duration = Duration::from_millis(5);

/// Everything that is attached, and what is needed to attach more.
pub struct Attacher<'a> {
    ladder: Ladder<'a>,
    devices: Devices,
    /// Lists filters; opened when there are some.
    traffic: Option<Traffic>,
    /// Tells which programs are at a hook.
    chains: Chains,
    held: BTreeMap<Number, Held>,
    /// Tasks that wait for their turn.
    queue: BTreeMap<(Urgency, Number), Turn>,
    /// Where the next check of interfaces without slots of their own begins.
    next: Number,
    /// What source addresses tell; `None` if that was not needed.
    sources: Option<Sources>,
}

/// An attachment.
struct Held {
    hold: Hold,
    ifindex: u32,
    way: Way,
    obtained: Obtained,
    /// Whether it has a slot of its own.
    has_slot: bool,
}

/// A task that waits for its turn.
enum Turn {
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
    pub fn new(ladder: Ladder<'a>) -> io::Result<Self> {
        Ok(Self {
            ladder,
            devices: Devices::open()?,
            traffic: None,
            chains: Chains::default(),
            held: BTreeMap::new(),
            queue: BTreeMap::new(),
            next: 0,
            sources: None,
        })
    }

    /// From here on asks through a thread that has the capability.
    pub fn ask_by(&mut self, chains: Chains) {
        self.chains = chains;
    }

    /// Whether programs are loaded, and not only packet sockets used.
    pub const fn has_programs(&self) -> bool {
        self.ladder.programs.is_some()
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
    pub fn take(&mut self, task: Task, done: &mut Vec<Done>) {
        match task {
            Task::List { with_routes, with_sources } => {
                let listed = self.list(with_routes, with_sources);
                done.push(Done::Listed(listed));
            }
            Task::Check(nth) => {
                let found = self.check();
                done.push(Done::Checked { nth, found });
            }
            Task::Attach(one) => drop(self.queue.insert((one.urgency, one.number), Turn::Attach(one))),
            Task::Mend { number, device, position } => {
                self.queue.insert((Urgency::Mend, number), Turn::Mend(device, position));
            }
            Task::Detach(number) => {
                // Cancel what is still queued for it.
                self.queue.retain(|(_, other), _| *other != number);
                if self.held.contains_key(&number) {
                    self.queue.insert((Urgency::Detach, number), Turn::Detach);
                } else {
                    done.push(Done::Detached(number));
                }
            }
            Task::SetFeeds(number, feeds) => {
                if let Some(Held { hold: Hold::Socket { tap }, .. }) = self.held.get(&number) {
                    tap.set_feeds(feeds);
                }
            }
            Task::DetachAll => {
                self.queue.clear();
                self.held.clear();
                done.push(Done::Ended);
            }
            Task::LeaveBehind => {
                self.queue.clear();
                for held in std::mem::take(&mut self.held).into_values() {
                    held.hold.leave_behind();
                }
                done.push(Done::Ended);
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
        self.ladder.taps.set_own(Own::new(addresses, listed.iter().filter_map(|device| device.address).collect()));
        let sources = Sources::ask().or_before(self.sources);
        self.sources = Some(sources);
        Ok((listed, sources))
    }

    /// The urgency of the next queued task; `None` if none is queued.
    pub fn urgency(&self) -> Option<Urgency> {
        self.queue.first_key_value().map(|((urgency, _), _)| *urgency)
    }

    /// Runs the next queued task.
    pub fn work(&mut self, done: &mut Vec<Done>) {
        let Some(((_, number), turn)) = self.queue.pop_first() else { return };
        match turn {
            Turn::Attach(one) => {
                let result = self.attach(&one);
                done.push(Done::Attached(number, result));
            }
            Turn::Mend(device, position) => done.extend(self.mend(number, &device, position)),
            Turn::Detach => {
                self.held.remove(&number);
                done.push(Done::Detached(number));
            }
        }
    }

    fn attach(&mut self, one: &ToAttach) -> Result<Obtained, super::error::AttachError> {
        let ToAttach { number, ref device, mode, way, slot, feeds, has_many, .. } = *one;
        self.ladder.has_many = has_many;
        let (obtained, hold) = self.ladder.attach(device, mode, way, (slot, feeds))?;
        let held = Held { hold, ifindex: device.ifindex, way, obtained, has_slot: slot != Others::SLOT };
        self.held.insert(number, held);
        Ok(obtained)
    }

    fn mend(&mut self, number: Number, device: &Device, position: Position) -> Option<Done> {
        let Held { hold, way, obtained, has_slot, .. } = self.held.remove(&number)?;
        let mut hold = Some(hold);
        let result = self.ladder.mend(&mut hold, device, (way, obtained), &position);
        if result.is_err() && position == Position::Removed {
            hold = None;
        }
        let is_attached = hold.is_some();
        if let Some(hold) = hold {
            self.held.insert(number, Held { hold, ifindex: device.ifindex, way, obtained, has_slot });
        }
        Some(Done::Mended { number, position, result, is_attached })
    }

    /// Checks everything with a slot of its own, and others for a limited time.
    fn check(&mut self) -> Vec<(Number, Position, Duration)> {
        let Self { held, traffic, chains, next, .. } = self;
        let mut found = Vec::new();
        for (&number, one) in held.iter().filter(|(_, one)| one.has_slot) {
            found.extend(look(number, one, (traffic, chains)));
        }
        let end = clock::now().monotonic + LOOK;
        let others = held.range(*next..).chain(held.range(..*next)).filter(|(_, one)| !one.has_slot);
        for (&number, one) in others {
            found.extend(look(number, one, (traffic, chains)));
            *next = number + 1;
            if clock::now().monotonic >= end {
                break;
            }
        }
        self.leave_out_what_is_gone(&mut found);
        found
    }

    /// A link of a vanished interface looks as if another process had removed it. Its own news will follow.
    fn leave_out_what_is_gone(&mut self, found: &mut Vec<(Number, Position, Duration)>) {
        if found.iter().all(|(_, position, _)| *position != Position::Removed) {
            return;
        }
        let listed = self.devices.list().inspect_err(|error| debug!("cannot list the interfaces: {error}"));
        let there: std::collections::HashSet<_> =
            listed.unwrap_or_default().into_iter().map(|device| device.ifindex).collect();
        let is_there = |number: Number| self.held.get(&number).is_some_and(|one| there.contains(&one.ifindex));
        found.retain(|(number, position, _)| *position != Position::Removed || is_there(*number));
    }

    /// From now on, dropping an inherited program detaches it. Detaches what the earlier weir measured and this one
    /// does not. Returns the links that could not be taken over.
    pub fn settle_inherited(&mut self) -> Vec<(Hook, u32)> {
        for held in self.held.values_mut() {
            held.hold.settle();
        }
        self.ladder.inherited.clear()
    }
}

/// Its position; `None` if the kernel does not tell, for example because the interface is just vanishing.
fn look(
    number: Number,
    one: &Held,
    (traffic, chains): (&mut Option<Traffic>, &Chains),
) -> Option<(Number, Position, Duration)> {
    // The answer is certain only for the time before the kernel was asked.
    let at = clock::now().monotonic;
    match one.hold.position(traffic, chains) {
        Ok(position) => Some((number, position, at)),
        Err(error) => {
            debug!(ifindex = one.ifindex, direction = one.way.name(), "cannot check what is attached: {error}");
            None
        }
    }
}
