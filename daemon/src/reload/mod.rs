//! Applies another configuration to a running weir; every packet is still counted.
//!
//! ```text
//! SIGHUP, `weir reload`  ->  reloader:    reads the whole file, refuses it or makes everything ready
//!                            coordinator: takes what is ready at the end of the window
//! ```
//!
//! Programs stay attached, and flows that were seen stay known. A configuration that is refused changes nothing. What
//! cannot change while weir runs is in [`difference`].

pub mod difference;
pub mod reading;
pub mod reloader;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use crossbeam::channel::{Receiver, Sender};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    difference::Started,
    reading::{Read, aside},
    reloader::Reloader,
};
use crate::{
    config::{Config, Sink},
    question::Views,
    sink::Outbox,
    waker::Waker,
};

/// What a reload came to: what has changed, or why nothing has.
pub type Outcome = Result<Reloaded, String>;

/// A configuration that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// When it takes effect: at the end of the open window.
    pub applies_at: Timestamp,
    /// The sections in which something has changed. Files that the configuration names are read again in any case.
    pub changed: Vec<String>,
}

impl Reloaded {
    /// As a line for people, at this time.
    pub fn at(&self, now: Timestamp) -> String {
        let changed = if self.changed.is_empty() {
            "no setting has changed; the files that it names are read again".to_owned()
        } else {
            format!("changed: {}", self.changed.join(", "))
        };
        let seconds = self.applies_at.duration_since(now).as_secs_f64().max(0.0).ceil();
        format!("the configuration is valid, and applies from the end of this window on, in {seconds} s ({changed})")
    }
}

/// Somebody wants the configuration to be read again.
#[derive(Debug)]
pub struct Request {
    /// Where the outcome goes.
    pub reply: Sender<Outcome>,
    /// Is woken when it is there.
    pub waker: Waker,
}

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The configuration.
    pub config: Arc<Config>,
    /// Interface slots that are provided for.
    pub interfaces: usize,
    /// How many configurations were in force before.
    pub generation: u64,
}

/// A configuration that is ready to take effect.
#[derive(Debug)]
pub struct Prepared {
    /// The configuration.
    pub config: Arc<Config>,
    /// Its views.
    pub views: Arc<Views>,
    /// Interface slots for which its views have room.
    pub interfaces: usize,
    /// The memory that is planned for it, resident, in bytes.
    pub memory_bytes: u64,
    /// Its sinks that are not those of the configuration in force.
    pub opened: Vec<(Sink, Outbox)>,
    /// Its webhook, if that is not the one of the configuration in force.
    pub webhook: Option<Outbox>,
    /// The generation of the configuration in force from which it differs in this.
    pub from: u64,
}

/// Offers the coordinator what is ready. It answers when that takes effect; `None` if another configuration has come
/// into force meanwhile.
#[derive(Debug)]
pub struct Offer {
    /// What is ready.
    pub prepared: Prepared,
    /// Where the answer goes.
    pub reply: Sender<Option<Timestamp>>,
}

/// The coordinator's side.
pub struct Reloads {
    /// What is ready.
    pub offers: Receiver<Offer>,
    in_force: Arc<Mutex<InForce>>,
    /// Ends the reloader when it is dropped.
    _end: Sender<Infallible>,
}

impl Reloads {
    /// Whether what is prepared differs from the configuration in force in what it says.
    pub fn is_current(&self, prepared: &Prepared) -> bool {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).generation == prepared.from
    }

    /// Another configuration is in force.
    pub fn note(&self, config: &Arc<Config>, interfaces: usize) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = in_force.generation + 1;
        *in_force = InForce { config: config.clone(), interfaces, generation };
    }
}
