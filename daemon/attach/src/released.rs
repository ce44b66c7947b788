//! The interfaces that a user has detached with `weir detach`. weir leaves them alone, until `weir attach` brings them
//! back.

use std::collections::HashSet;

use crossbeam::channel::Sender;
use weir_config::interface::Way;

use super::tasks::Number;

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
    /// Whether an interface with this name is included.
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
    /// What is still attached.
    pub left: HashSet<Number>,
    /// Where the answer goes.
    pub reply: Sender<Result<Vec<String>, String>>,
}

impl Releasing {
    /// Notes that this attachment was detached. Returns whether the request is finished; the client may be gone by
    /// then.
    pub fn is_answered(&mut self, detached: Number) -> bool {
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
    /// What the kernel has not answered yet.
    pub left: HashSet<Number>,
    /// Where the answer goes.
    pub reply: Sender<Result<Reattached, String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
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
