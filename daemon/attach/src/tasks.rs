//! The messages between the coordinator and the attacher thread. The thread waits for the kernel so that the
//! coordinator does not have to. To list interfaces, to attach, to detach and to check attachments, Linux takes its
//! configuration lock (rtnl), which any other process may hold for seconds.

use std::{io, time::Duration};

use crossbeam::channel::{Receiver, Sender, bounded};
use weir_common::control::Feeds;
use weir_config::{Mode, interface::Way};

use super::{error::AttachError, nat::Sources, netlink::Device, obtained::Obtained, watch::Position};

/// How many batches may be queued for the thread. Further tasks wait in the coordinator, in one batch.
const BATCHES: usize = 4;
/// How many results may be queued for the coordinator. When the queue is full, the thread waits.
const ANSWERS: usize = 256;

/// Identifies an attachment for the life of the daemon, because names and indexes of interfaces may be reused.
pub type Number = u64;

/// A task for the thread.
#[derive(Debug)]
pub enum Task {
    /// Asks for a list of the interfaces.
    List {
        /// True to list the routes, too.
        with_routes: bool,
        /// True to find out, too, if source addresses identify the router's own packets. Packet sockets that see sent
        /// packets need this.
        with_sources: bool,
    },
    /// Check the positions of all attachments.
    Check(u64),
    /// Attach, in the order of urgency.
    Attach(Box<ToAttach>),
    /// Restore an attachment that does not see all packets, in the order of urgency.
    Mend {
        /// The attachment to restore.
        number: Number,
        /// The interface that it measures.
        device: Box<Device>,
        /// The position that the last check found.
        position: Position,
    },
    /// Detach, in the order of urgency.
    Detach(Number),
    /// Set which of its packets feed. Only a packet socket needs this.
    SetFeeds(Number, Feeds),
    /// Detach from everything, immediately.
    DetachAll,
    /// Release everything. Programs stay on their interfaces for the next weir.
    LeaveBehind,
}

/// One direction of an interface, to be attached.
#[derive(Debug)]
pub struct ToAttach {
    /// The number of the attachment, which later tasks and results repeat.
    pub number: Number,
    /// The place in the attacher's queue.
    pub urgency: Urgency,
    /// The interface to attach to.
    pub device: Device,
    /// The direction to measure.
    pub way: Way,
    /// The mode of attachment.
    pub mode: Mode,
    /// The slot that counts its packets.
    pub slot: usize,
    /// The packets that feed totals and lists.
    pub feeds: Feeds,
    /// True if there are so many interfaces that TCX is avoided.
    pub has_many: bool,
}

/// The urgency of tasks; they run in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It is attached and does not see all packets. This task does not wait for a break.
    Mend,
    /// It is attached and should not be.
    Detach,
    /// The configuration names it.
    Named,
    /// It matches a pattern.
    Fitting,
    /// The kernel has refused it before.
    Refused,
}

/// A result of the thread.
#[derive(Debug)]
pub enum TaskResult {
    /// The present interfaces, and whether source addresses identify the router's own packets.
    Listed(io::Result<(Vec<Device>, Sources)>),
    /// The positions that were checked.
    Checked {
        /// The number of the check.
        nth: u64,
        /// Each position, and the monotonic time until which it is certain.
        found: Vec<(Number, Position, Duration)>,
    },
    /// How it was attached, or why not.
    Attached(Number, Result<Obtained, AttachError>),
    /// Weir tried to restore an attachment.
    Mended {
        /// The attachment.
        number: Number,
        /// The position before the restoration.
        position: Position,
        /// Why it could not be restored, if it failed.
        result: Result<(), AttachError>,
        /// True if it is still attached.
        is_attached: bool,
    },
    /// This attachment is detached.
    Detached(Number),
    /// Everything is detached, or left behind.
    Ended,
}

/// The coordinator's ends of both channels, and the tasks that could not be sent yet.
#[derive(Debug)]
pub struct Handle {
    waiting: Vec<Task>,
    tasks: Sender<Vec<Task>>,
    /// Yields the thread's results.
    pub done: Receiver<TaskResult>,
}

/// The thread's ends of the two channels.
#[derive(Debug)]
pub struct Channels {
    /// Yields the tasks for the thread.
    pub tasks: Receiver<Vec<Task>>,
    /// Takes the results of the thread.
    pub done: Sender<TaskResult>,
}

/// Creates two channels and returns both sides.
pub fn channels() -> (Handle, Channels) {
    let (tasks, to_do) = bounded(BATCHES);
    let (told, done) = bounded(ANSWERS);
    (Handle { waiting: Vec::new(), tasks, done }, Channels { tasks: to_do, done: told })
}

impl Handle {
    /// Adds a task to the next batch.
    pub fn put(&mut self, task: Task) {
        self.waiting.push(task);
    }

    /// Takes the next batch, to run it without a thread.
    pub fn take(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.waiting)
    }

    /// Sends the batch if the thread's queue has room. Never waits.
    pub fn send(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if let Err(unsent) = self.tasks.try_send(std::mem::take(&mut self.waiting)) {
            self.waiting = unsent.into_inner();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sending_never_waits_and_tasks_keep_their_order() {
        let (mut handle, channels) = channels();
        for number in 0..20 {
            handle.put(Task::Detach(number));
            handle.send();
        }
        let mut told = Vec::new();
        while told.len() < 20 {
            told.extend(channels.tasks.try_iter().flatten().map(|task| match task {
                Task::Detach(number) => number,
                other => panic!("{other:?}"),
            }));
            handle.send();
        }
        assert_eq!(told, Vec::from_iter(0..20));
    }
}
