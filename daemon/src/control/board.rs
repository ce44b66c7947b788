//! What the coordinator writes down for those who ask, once a window.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::status::{Identity, Status};
use crate::{report::Report, sink::Encoded};

/// The last report.
#[derive(Clone, Debug)]
struct Latest {
    /// As it goes to the sinks.
    encoded: Encoded,
    status: Status,
}

/// What is told without asking the coordinator.
#[derive(Debug)]
pub struct Board {
    identity: Identity,
    latest: Mutex<Option<Latest>>,
}

impl Board {
    /// A board before the first report.
    pub const fn new(identity: Identity) -> Self {
        Self { identity, latest: Mutex::new(None) }
    }

    /// Writes down a report.
    pub fn publish(&self, report: &Report, encoded: &Encoded) {
        let latest = Latest { encoded: encoded.clone(), status: Status::new(&self.identity, Some(report)) };
        *self.lock() = Some(latest);
    }

    /// The last report as a line of JSON; `None` before the first.
    pub fn report(&self) -> Option<Encoded> {
        self.lock().as_ref().map(|latest| latest.encoded.clone())
    }

    /// How weir is.
    pub fn status(&self) -> Status {
        let known = self.lock().as_ref().map(|latest| latest.status.clone());
        known.unwrap_or_else(|| Status::new(&self.identity, None))
    }

    /// What it holds is whole at any time, so a thread that died with the lock spoils nothing.
    fn lock(&self) -> MutexGuard<'_, Option<Latest>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
