//! What the coordinator writes down for those who ask, once a window.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::status::{Identity, Status};
use crate::{question::Views, report::Report, sink::Encoded};

/// Reports that are kept, at most.
pub const REPORTS_KEPT: usize = 5;

/// What is told without asking the coordinator.
#[derive(Debug)]
pub struct Board(Mutex<Known>);

#[derive(Debug)]
struct Known {
    identity: Identity,
    latest: Option<Latest>,
    /// The last reports as they go to the sinks, the oldest first; the last one is `latest`.
    reports: VecDeque<Encoded>,
}

/// The last report.
#[derive(Clone, Debug)]
struct Latest {
    status: Status,
    /// What can be asked about its window.
    views: Arc<Views>,
}

impl Board {
    /// A board before the first report.
    pub const fn new(identity: Identity) -> Self {
        Self(Mutex::new(Known { identity, latest: None, reports: VecDeque::new() }))
    }

    /// Writes down a report, and what can be asked about its window.
    pub fn publish(&self, report: &Report, encoded: &Encoded, views: &Arc<Views>) {
        let mut known = self.lock();
        let status = Status::new(&known.identity, Some(report));
        known.latest = Some(Latest { status, views: views.clone() });
        if known.reports.len() == REPORTS_KEPT {
            known.reports.pop_front();
        }
        known.reports.push_back(encoded.clone());
    }

    /// Another configuration is in force.
    pub fn change(&self, interval_seconds: u64, memory_bytes: u64) {
        let identity = &mut self.lock().identity;
        (identity.interval_seconds, identity.memory_bytes) = (interval_seconds, memory_bytes);
    }

    /// The last report as a line of JSON; `None` before the first.
    pub fn report(&self) -> Option<Encoded> {
        self.lock().reports.back().cloned()
    }

    /// So many of the last reports, or as many as there are, the oldest first.
    pub fn last(&self, count: usize) -> Vec<Encoded> {
        let known = self.lock();
        let passed = known.reports.len().saturating_sub(count);
        known.reports.iter().skip(passed).cloned().collect()
    }

    /// What can be asked about the window of the last report; `None` before the first.
    pub fn views(&self) -> Option<Arc<Views>> {
        self.lock().latest.as_ref().map(|latest| latest.views.clone())
    }

    /// How weir is.
    pub fn status(&self) -> Status {
        let known = self.lock();
        known.latest.as_ref().map_or_else(|| Status::new(&known.identity, None), |latest| latest.status.clone())
    }

    /// What it holds is whole at any time, so a thread that died with the lock spoils nothing.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
