//! What a user has told weir to leave alone with `weir detach`.

use std::collections::HashSet;

use crossbeam::channel::Sender;

use super::tasks::Number;

/// What a user has told weir to leave alone.
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

    /// Adds these, or all if there are no names.
    pub fn add(&mut self, names: &[String]) {
        match self {
            Self::All => {}
            _ if names.is_empty() => *self = Self::All,
            Self::Some(known) => known.extend(names.iter().cloned()),
            Self::Nothing => *self = Self::Some(names.iter().cloned().collect()),
        }
    }
}

/// A request that waits until weir has detached.
pub struct Releasing {
    /// What to detach from, in words.
    pub from: Vec<String>,
    /// What is still attached.
    pub left: HashSet<Number>,
    /// Where the answer goes.
    pub reply: Sender<Result<Vec<String>, String>>,
}

impl Releasing {
    /// Notes that this was detached. Returns whether the request is finished; the client may have gone meanwhile.
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
