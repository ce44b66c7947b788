//! Requests of users: the interfaces that were detached with `weir detach`, which weir leaves alone until `weir attach`
//! brings them back, and the requests that are not answered yet.

use std::collections::HashSet;

use crossbeam::channel::Sender;
use weir_config::interface::Way;

use super::tasks::Number;

/// All requests of users that are still in force.
#[derive(Default)]
pub struct Requests {
    released: Released,
    /// Requests that wait until weir has detached.
    releasing: Vec<Releasing>,
    /// Requests that wait until weir has attached again.
    returning: Vec<Returning>,
}

impl Requests {
    /// The interfaces that weir leaves alone.
    pub const fn released(&self) -> &Released {
        &self.released
    }

    /// Returns true if weir leaves an interface with this name alone.
    pub fn is_released(&self, name: &str) -> bool {
        self.released.has(name)
    }

    /// Leaves interfaces with these names alone from now on, or all interfaces if there are no names.
    pub fn release(&mut self, names: &[String]) {
        self.released.add(names);
    }

    /// Attaches to interfaces with these names from now on, or to all interfaces if there are no names.
    pub fn take_back(&mut self, names: &[String]) {
        self.released.remove(names);
    }

    /// Leaves no interface alone: the configuration wants other ones now.
    pub fn forget_released(&mut self) {
        self.released = Released::default();
    }

    /// Answers a request once everything that it waits for is detached, which may be now.
    pub fn await_detached(&mut self, mut request: Releasing) {
        if !request.answer() {
            self.releasing.push(request);
        }
    }

    /// Notes that this attachment was detached, and answers the requests that have waited for it.
    pub fn note_detached(&mut self, number: Number) {
        self.releasing.retain_mut(|one| !one.note_detached(number));
    }

    /// Keeps a request until the kernel has answered for everything that it waits for.
    pub fn await_attached(&mut self, request: Returning) {
        self.returning.push(request);
    }

    /// Notes that the kernel has answered for this attachment. Returns the requests that are finished.
    pub fn take_attached(&mut self, answered: Option<Number>) -> Vec<Returning> {
        for one in &mut self.returning {
            answered.map(|number| one.left.remove(&number));
        }
        self.returning.extract_if(.., |one| one.left.is_empty()).collect()
    }
}

/// The interfaces that weir leaves alone.
pub enum Released {
    /// Interfaces with these names.
    Only(HashSet<String>),
    /// All interfaces, also those that appear later, except those with these names.
    AllBut(HashSet<String>),
}

impl Default for Released {
    fn default() -> Self {
        Self::Only(HashSet::new())
    }
}

impl Released {
    /// Returns true if an interface with this name is included.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Only(names) => names.contains(name),
            Self::AllBut(names) => !names.contains(name),
        }
    }

    /// Adds interfaces with these names, or all interfaces if there are no names.
    pub fn add(&mut self, names: &[String]) {
        match self {
            _ if names.is_empty() => *self = Self::AllBut(HashSet::new()),
            Self::Only(known) => known.extend(names.iter().cloned()),
            Self::AllBut(others) => others.retain(|name| !names.contains(name)),
        }
    }

    /// Removes interfaces with these names, or all interfaces if there are no names.
    pub fn remove(&mut self, names: &[String]) {
        match self {
            _ if names.is_empty() => *self = Self::default(),
            Self::Only(known) => known.retain(|name| !names.contains(name)),
            Self::AllBut(others) => others.extend(names.iter().cloned()),
        }
    }
}

/// A `weir detach` request that waits until weir has detached.
pub struct Releasing {
    /// Descriptions of the attachments to detach, for the reply.
    pub from: Vec<String>,
    /// The attachments that are not detached yet.
    pub left: HashSet<Number>,
    /// Takes the answer for the user.
    pub reply: Sender<Result<Vec<String>, String>>,
}

impl Releasing {
    /// Notes that this attachment was detached. Returns whether the request is finished; the client may be gone by
    /// then.
    pub fn note_detached(&mut self, detached: Number) -> bool {
        self.left.remove(&detached);
        self.answer()
    }

    /// Replies if everything is detached. Returns whether it is.
    pub fn answer(&mut self) -> bool {
        if self.left.is_empty() {
            let _ = self.reply.send(Ok(std::mem::take(&mut self.from)));
        }
        self.left.is_empty()
    }
}

/// The result of `weir attach`, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reattached {
    /// Each interface and direction that weir measures again.
    pub to: Vec<String>,
    /// Each one that it does not measure yet, with the reason.
    pub missing: Vec<String>,
}

/// A `weir attach` request that waits until the kernel has answered.
pub struct Returning {
    /// The interfaces and directions to attach to.
    pub of: Vec<(String, u32, Way)>,
    /// Interfaces that are absent.
    pub absent: Vec<String>,
    /// The attachments for which the kernel has not answered yet.
    pub left: HashSet<Number>,
    /// Takes the answer for the user.
    pub reply: Sender<Result<Reattached, String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_request_to_detach_is_answered_once_all_is_detached() {
        let (reply, answer) = crossbeam::channel::bounded(2);
        let request = |left: &[Number]| Releasing {
            from: names(&["eth0"]),
            left: left.iter().copied().collect(),
            reply: reply.clone(),
        };
        let mut requests = Requests::default();
        requests.await_detached(request(&[]));
        assert_eq!(answer.try_recv(), Ok(Ok(names(&["eth0"]))), "nothing was attached");
        requests.await_detached(request(&[3, 4]));
        requests.note_detached(4);
        assert!(answer.try_recv().is_err());
        requests.note_detached(3);
        assert_eq!(answer.try_recv(), Ok(Ok(names(&["eth0"]))));
        requests.note_detached(3);
        assert!(answer.try_recv().is_err(), "once");
    }

    #[test]
    fn requests_to_attach_are_finished_each_on_its_own() {
        let (reply, _answer) = crossbeam::channel::bounded(1);
        let mut requests = Requests::default();
        for (name, left) in [("a", &[1, 2][..]), ("b", &[2]), ("c", &[])] {
            let left = left.iter().copied().collect();
            requests.await_attached(Returning { of: Vec::new(), absent: names(&[name]), left, reply: reply.clone() });
        }
        let mut finished = |answered| {
            let finished = requests.take_attached(answered).into_iter();
            finished.flat_map(|one| one.absent).collect::<Vec<_>>().concat()
        };
        assert_eq!([finished(None), finished(Some(2)), finished(Some(1)), finished(Some(1))], ["c", "b", "a", ""]);
    }

    #[test]
    fn what_was_released_one_by_one_or_together_returns_one_by_one_or_together() {
        let state = |released: &Released| ["eth0", "eth1", "later0"].map(|name| released.has(name));
        let mut released = Released::default();
        assert_eq!(state(&released), [false; 3]);
        released.add(&names(&["eth0", "eth1"]));
        released.remove(&names(&["eth1"]));
        assert_eq!(state(&released), [true, false, false]);
        released.add(&[]);
        assert_eq!(state(&released), [true; 3], "all, also what appears later");
        released.remove(&names(&["eth0"]));
        assert_eq!(state(&released), [false, true, true]);
        released.add(&names(&["eth0"]));
        assert_eq!(state(&released), [true; 3]);
        released.remove(&[]);
        assert_eq!(state(&released), [false; 3]);
    }
}
