//! What the coordinator asks of the thread that attaches, and what it is told. The thread waits for the kernel where
//! the coordinator must not: to list interfaces, to attach, to detach, and to see what is attached, Linux takes its
//! configuration lock (rtnl), and any other program may hold that for seconds.

use std::{io, time::Duration};

use crossbeam::channel::{Receiver, Sender, bounded};
use weir_common::control::Feeds;

use super::{error::AttachError, nat::Sources, netlink::Device, obtained::Obtained, watch::Position};
use crate::{config::Mode, interface::Way};

/// Batches that may wait for the thread. Further ones wait with the coordinator, in one batch.
const BATCHES: usize = 4;
/// Answers that may wait for the coordinator. Then the thread waits, too.
const ANSWERS: usize = 256;

/// Names an attachment for as long as the daemon runs: interfaces may have the same names and indexes again.
pub type Number = u64;

/// Something to be done.
#[derive(Debug)]
pub enum Task {
    /// List the interfaces.
    List {
        /// With their routes.
        with_routes: bool,
        /// With what the sources of packets tell, for packet sockets that see what is sent.
        with_sources: bool,
    },
    /// Look where everything is that is attached.
    Check(u64),
    /// Attach, when it is its turn.
    Attach(Box<ToAttach>),
    /// Put back to where it sees all packets what is not there, when it is its turn.
    Mend {
        /// Which.
        number: Number,
        /// The interface.
        device: Box<Device>,
        /// Where it is.
        position: Position,
    },
    /// Detach, when it is its turn.
    Detach(Number),
    /// What its packets feed. Only a packet socket has to be told.
    SetFeeds(Number, Feeds),
    /// Detach from everything, at once.
    DetachAll,
    /// Let go of everything. Programs stay on their interfaces, for the next weir.
    LeaveBehind,
}

/// One direction of an interface, to be attached.
#[derive(Debug)]
pub struct ToAttach {
    /// Its number from now on.
    pub number: Number,
    /// When it is its turn.
    pub urgency: Urgency,
    /// The interface.
    pub device: Device,
    /// The direction.
    pub way: Way,
    /// How.
    pub mode: Mode,
    /// Its slot.
    pub slot: usize,
    /// What its packets feed.
    pub feeds: Feeds,
    /// Whether there are so many that TCX is not chosen where there is another way.
    pub has_many: bool,
}

/// What comes before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It is attached and does not see all packets: there is no rest before that.
    Mend,
    /// It is somewhere and should not be.
    Detach,
    /// The configuration names it.
    Named,
    /// It fits a pattern.
    Fitting,
    /// The kernel has refused it before.
    Refused,
}

/// Something that is done.
#[derive(Debug)]
pub enum Done {
    /// The interfaces that there are, and what the sources of packets tell.
    Listed(io::Result<(Vec<Device>, Sources)>),
    /// Where everything is that was looked at.
    Checked {
        /// The number of the look.
        nth: u64,
        /// Where each was, and when that was known, by the monotonic clock.
        found: Vec<(Number, Position, Duration)>,
    },
    /// How it is attached, or why it is not.
    Attached(Number, Result<Obtained, AttachError>),
    /// It was to be put back.
    Mended {
        /// Which.
        number: Number,
        /// Where it was.
        position: Position,
        /// Why it could not be put back, if it could not.
        result: Result<(), AttachError>,
        /// Whether it is attached at all.
        is_attached: bool,
    },
    /// It is attached no more.
    Detached(Number),
    /// Nothing is attached any more, or all of it is left behind.
    Ended,
}

/// The coordinator's ends of both channels, and what it could not send yet.
#[derive(Debug)]
pub struct Handle {
    waiting: Vec<Task>,
    tasks: Sender<Vec<Task>>,
    /// What is done.
    pub done: Receiver<Done>,
}

/// The thread's ends.
#[derive(Debug)]
pub struct Channels {
    /// What it is to do.
    pub tasks: Receiver<Vec<Task>>,
    /// Who is told.
    pub done: Sender<Done>,
}

/// Both sides of two new channels.
pub fn channels() -> (Handle, Channels) {
    let (tasks, to_do) = bounded(BATCHES);
    let (told, done) = bounded(ANSWERS);
    (Handle { waiting: Vec::new(), tasks, done }, Channels { tasks: to_do, done: told })
}

impl Handle {
    /// One more task, for the next batch.
    pub fn put(&mut self, task: Task) {
        self.waiting.push(task);
    }

    /// The next batch, for whoever does it without a thread.
    pub fn take(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.waiting)
    }

    /// Sends the batch, if the thread has room for it; never waits.
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
    fn whoever_asks_never_waits_and_nothing_is_forgotten_or_changes_places() {
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
