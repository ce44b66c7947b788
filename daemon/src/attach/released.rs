//! What somebody has told weir to leave alone, by `weir detach`.

use std::collections::HashSet;

use crossbeam::channel::Sender;

use super::tasks::Number;

/// What somebody has told weir to leave alone.
pub enum Released {
    /// Nothing.
    Nothing,
    /// Interfaces of these names.
    Some(HashSet<String>),
    /// All interfaces.
    All,
}

impl Released {
    /// Whether an interface of this name is among it.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Some(names) => names.contains(name),
            Self::All => true,
        }
    }

    /// These too, or all if there is no name.
    pub fn add(&mut self, names: &[String]) {
        match self {
            Self::All => {}
            _ if names.is_empty() => *self = Self::All,
            Self::Some(known) => known.extend(names.iter().cloned()),
            Self::Nothing => *self = Self::Some(names.iter().cloned().collect()),
        }
    }
}

/// Somebody who waits until weir has detached.
pub struct Releasing {
    /// From what, in words.
    pub from: Vec<String>,
    /// What of it is still attached.
    pub left: HashSet<Number>,
    /// Where the answer goes.
    pub reply: Sender<Result<Vec<String>, String>>,
}

impl Releasing {
    /// This is detached. Returns whether nobody waits any more; whoever asked may be gone meanwhile.
    pub fn is_answered(&mut self, detached: Number) -> bool {
        self.left.remove(&detached);
        self.answer()
    }

    /// Answers if everything is detached. Returns whether it is.
    pub fn answer(&mut self) -> bool {
        if self.left.is_empty() {
            let _ = self.reply.send(Ok(std::mem::take(&mut self.from)));
        }
        self.left.is_empty()
    }
}
