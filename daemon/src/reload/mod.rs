//! Applies another configuration to a running weir; every packet is still counted.
//!
//! ```text
//! SIGHUP, `weir reload`  ->  reloader:    reads the whole file; refuses it or prepares everything
//!                            coordinator: applies it at the end of the window
//! ```
//!
//! Programs stay attached, and seen flows stay known. A refused configuration changes nothing.
//! [`Config::needs_restart`] names the settings that cannot change while weir runs.

pub mod reading;
pub mod reloader;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use crossbeam::channel::{Receiver, Sender};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_config::{Config, Sink};
use weir_deliver::sink::Outbox;
use weir_measure::question::Views;
use weir_system::waker::Waker;

pub use self::{
    reading::{Read, aside},
    reloader::Reloader,
};

/// The outcome of a reload: what has changed, or why nothing has.
pub type Outcome = Result<Reloaded, String>;

/// A configuration that was accepted, as the answer to `weir reload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// When it takes effect: at the end of the open window.
    pub applies_at: Timestamp,
    /// The sections that have changed. Files named in the configuration are reread in any case.
    pub changed: Vec<String>,
    /// The settings that are smaller than by default, to fit into `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smaller: Option<String>,
    /// The settings that stay as they were at the start although the file leaves them to weir: only a restart changes
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// The interfaces that stay detached because a user has told weir to detach from them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub detached: Vec<String>,
}

weir_schema::from_json!(Reloaded);

impl Reloaded {
    /// The outcome as a line for people, as of this time.
    pub fn at(&self, now: Timestamp) -> String {
        let changed = if self.changed.is_empty() {
            "no setting has changed; the files that it names are read again".to_owned()
        } else {
            format!("changed: {}", self.changed.join(", "))
        };
        let seconds = self.applies_at.duration_since(now).as_secs_f64().max(0.0).ceil();
        let mut told =
            format!("the configuration is valid, and applies from the end of this window, in {seconds} s ({changed})");
        for line in self.more() {
            told += &format!("\n{line}");
        }
        told
    }

    /// Returns more facts about the configuration in force, as lines for people.
    pub fn more(&self) -> impl Iterator<Item = String> + '_ {
        let detached = (!self.detached.is_empty()).then(|| {
            format!(
                "still not measured, because of `weir detach`: {} (`weir attach {}` measures again, `weir attach --all` \
                 all of them)",
                self.detached.join(", "),
                self.detached[0]
            )
        });
        self.on_memory().chain(detached)
    }

    /// Returns the settings that became smaller to fit into `memory`, and those that stay smaller, as lines for people.
    fn on_memory(&self) -> impl Iterator<Item = String> + '_ {
        let smaller = self
            .smaller
            .iter()
            .map(|smaller| format!("`memory` allows less than the defaults need, so these are smaller: {smaller}"));
        let kept =
            self.kept.iter().map(|kept| format!("these stay as at the start, and change only after a restart: {kept}"));
        smaller.chain(kept)
    }
}

/// A request to reload the configuration.
#[derive(Debug)]
pub struct Request {
    /// Takes the outcome for the client.
    pub reply: Sender<Outcome>,
    /// Woken when the outcome has arrived.
    pub waker: Waker,
}

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The configuration as it was read.
    pub config: Arc<Config>,
    /// The number of interface slots that are provided.
    pub interfaces: usize,
    /// How many configurations were in force before this one.
    pub generation: u64,
}

impl InForce {
    /// Begins with the configuration that weir was started with.
    pub const fn new(config: Arc<Config>, interfaces: usize) -> Self {
        Self { config, interfaces, generation: 0 }
    }
}

/// A configuration that is ready to take effect.
#[derive(Debug)]
pub struct Prepared {
    /// The configuration as it was read.
    pub config: Arc<Config>,
    /// The views of the configuration.
    pub views: Arc<Views>,
    /// Interface slots for which its views have room.
    pub interfaces: usize,
    /// The resident memory planned for it, in bytes.
    pub memory_bytes: u64,
    /// The sinks that the configuration in force does not have.
    pub opened: Vec<(Sink, Outbox)>,
    /// The webhook, if it differs from the one in force.
    pub webhook: Option<Outbox>,
    /// The generation of the configuration in force against which this was prepared.
    pub from: u64,
}

/// Offers a prepared configuration to the coordinator.
#[derive(Debug)]
pub struct Offer {
    /// The configuration with everything that was opened for it.
    pub prepared: Prepared,
    /// Where the answer goes: `None` if another configuration has come into force in the meantime.
    pub reply: Sender<Option<Accepted>>,
}

/// The coordinator has accepted a configuration.
#[derive(Debug)]
pub struct Accepted {
    /// When it takes effect.
    pub applies_at: Timestamp,
    /// The interfaces that stay detached because a user has told weir to detach from them.
    pub detached: Vec<String>,
}

/// The coordinator's side of reloads.
pub struct Reloads {
    /// Yields prepared configurations.
    pub offers: Receiver<Offer>,
    in_force: Arc<Mutex<InForce>>,
    /// Ends the reloader when dropped.
    _end: Sender<Infallible>,
}

impl Reloads {
    /// Returns true if the configuration that this was prepared against is still in force.
    pub fn is_current(&self, prepared: &Prepared) -> bool {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).generation == prepared.from
    }

    /// Notes that another configuration is in force.
    pub fn note(&self, config: &Arc<Config>, interfaces: usize) {
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = in_force.generation + 1;
        *in_force = InForce { config: config.clone(), interfaces, generation };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_smaller_and_what_stays_has_a_line_each() {
        let reloaded = Reloaded {
            applies_at: Timestamp::UNIX_EPOCH,
            changed: vec!["memory".to_owned()],
            smaller: Some("estimates.top_error: 0.001".to_owned()),
            kept: Some("history: off".to_owned()),
            detached: vec!["eth0".to_owned(), "eth1".to_owned()],
        };
        let told = reloaded.at(Timestamp::UNIX_EPOCH);
        let lines: Vec<_> = told.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "`memory` allows less than the defaults need, so these are smaller: estimates.top_error: 0.001",
                "these stay as at the start, and change only after a restart: history: off",
                "still not measured, because of `weir detach`: eth0, eth1 (`weir attach eth0` measures again, `weir \
                 attach --all` all of them)",
            ]
        );
        let same = Reloaded { smaller: None, kept: None, detached: Vec::new(), ..reloaded };
        assert_eq!(same.at(Timestamp::UNIX_EPOCH).lines().count(), 1);
    }
}
