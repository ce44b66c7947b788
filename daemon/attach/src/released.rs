//! The interfaces that a user has detached with `weir detach`. weir leaves them alone.

use std::collections::HashSet;

use crossbeam::channel::Sender;

use super::tasks::Number;

/// The interfaces that weir leaves alone.
pub enum Released {
    /// Nothing.
    Nothing,
    /// Interfaces with these names.
    Some(HashSet<String>),
    /// All interfaces.
    All,
}

impl Released {
    /// Whether an interface with this name is included.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Some(names) => names.contains(name),
            Self::All => true,
        }
    }

    /// Adds interfaces with these names, or all interfaces if there are no names.
    pub fn add(&mut self, names: &[String]) {
        match self {
            Self::All => {}
            _ if names.is_empty() => *self = Self::All,
            Self::Some(known) => known.extend(names.iter().cloned()),
            Self::Nothing => *self = Self::Some(names.iter().cloned().collect()),
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
