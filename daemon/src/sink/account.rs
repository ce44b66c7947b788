//! What became of the reports of a sink. Its threads write it down, and whoever asks never waits for a disk or a
//! collector.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::DeliveryError;
use crate::{
    report::{Reason, SinkMetrics, SinkSpool},
    spool::{Holding, Spool},
};

/// A sink's account. Its rule: every report that was offered, or that an earlier weir has left, waits, is delivered or
/// is lost.
#[derive(Debug)]
pub(super) struct Account {
    pub name: String,
    /// What it is given, in words: one, and several.
    pub carries: [&'static str; 2],
    pub has_spool: bool,
    /// Taken by whoever asks the spool, which may wait for its disk. So an older answer never takes the place of a
    /// newer one.
    asking: Mutex<()>,
    tally: Mutex<Tally>,
}

/// The numbers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Reports that are not in the spool yet.
    pub incoming: u64,
    /// Reports that were lost before they came into the spool, and that it does not know of yet.
    pub unsaid: u64,
    pub delivered: u64,
    pub failed_attempts: u64,
    pub last_error: Option<String>,
    pub closed: bool,
    holding: Holding,
}

impl Account {
    pub fn new(name: String, carries: [&'static str; 2], has_spool: bool) -> Self {
        Self { name, carries, has_spool, asking: Mutex::default(), tally: Mutex::default() }
    }

    /// The numbers, for a few instructions; they are never left half changed, so that a poisoned lock does no harm.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what the spool holds, together with another change of the numbers.
    pub fn note(&self, spool: &Spool, change: impl FnOnce(&mut Tally)) {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let holding = spool.holding();
        let mut tally = self.tally();
        tally.holding = holding;
        change(&mut tally);
    }

    /// An attempt has failed.
    pub fn failed(&self, error: &DeliveryError) {
        let mut tally = self.tally();
        tally.failed_attempts += 1;
        tally.last_error = Some(error.to_string());
        tally.closed |= matches!(error, DeliveryError::Closed(_));
    }

    pub fn metrics(&self) -> SinkMetrics {
        let Tally { incoming, unsaid, delivered, failed_attempts, ref last_error, closed: _, ref holding } =
            *self.tally();
        let mut lost: BTreeMap<_, _> =
            holding.lost.iter().map(|(reason, count)| (reason.name().to_owned(), *count)).collect();
        if unsaid > 0 {
            *lost.entry(Reason::QueueFull.name().to_owned()).or_default() += unsaid;
        }
        let spool = SinkSpool { reports: holding.reports - holding.in_memory, bytes: holding.bytes };
        SinkMetrics {
            name: self.name.clone(),
            queued: incoming + holding.reports,
            delivered,
            failed_attempts,
            dropped: lost.values().sum(),
            lost,
            spool: self.has_spool.then_some(spool),
            last_error: last_error.clone(),
        }
    }
}
