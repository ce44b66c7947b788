//! The account of a sink: what became of its reports. The sink's threads update it, so reading it never waits for a
//! disk or a collector.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing::warn;
use weir_report::{Reason, SinkMetrics, SinkSpool};

use super::DeliveryError;
use crate::spool::{Holding, Spool};

/// A sink's account. Invariant: every report that was offered or inherited from an earlier weir is waiting, delivered
/// or lost.
#[derive(Debug)]
pub(super) struct Account {
    pub name: String,
    /// What the sink carries, in words: singular and plural.
    pub carries: [&'static str; 2],
    pub has_spool: bool,
    /// Held while the spool is asked, which may wait for its disk. So an older answer never replaces a newer one.
    asking: Mutex<()>,
    tally: Mutex<Tally>,
}

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Reports that are not in the spool yet.
    pub incoming: u64,
    /// Reports that were lost before they reached the spool, and that the spool does not know of yet.
    pub unsaid: u64,
    pub delivered: u64,
    pub failed_attempts: u64,
    pub last_error: Option<String>,
    pub closed: bool,
    holding: Holding,
    /// How many lost reports have been logged.
    told: BTreeMap<Reason, u64>,
}

impl Tally {
    /// The loss reasons that are due for the log, with their counts: on the first loss, and each time the count has
    /// doubled.
    fn news(&mut self) -> Vec<(Reason, u64)> {
        let mut news = Vec::new();
        for (reason, count) in &self.holding.lost {
            let told = self.told.entry(*reason).or_default();
            // Refused reports have been logged already, with the sink's answer.
            if *reason != Reason::Refused && *count >= (2 * *told).max(1) {
                *told = *count;
                news.push((*reason, *count));
            }
        }
        news
    }
}

/// Why reports are lost, as the log puts it.
const fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::SpoolFull => "the spool or its disk is full, so the oldest go, and tombstones name them",
        Reason::QueueFull => "no disk takes them, and memory has room for a few, so the oldest go",
        Reason::TooOld => "they have waited for longer than `spool.max_age`",
        Reason::Damaged => "their files in the spool are damaged",
        Reason::Refused => "the sink refuses them",
        Reason::Removed => "somebody has removed their files, or the folder of the spool, while weir runs",
    }
}

impl Account {
    pub fn new(name: String, carries: [&'static str; 2], has_spool: bool) -> Self {
        Self { name, carries, has_spool, asking: Mutex::default(), tally: Mutex::default() }
    }

    /// Locks the counters, for a few instructions. They are never left half changed, so a poisoned lock does no harm.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what the spool holds, together with another change of the counters.
    pub fn note(&self, spool: &Spool, change: impl FnOnce(&mut Tally)) {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let holding = spool.holding();
        let mut tally = self.tally();
        tally.holding = holding;
        change(&mut tally);
        let news = tally.news();
        drop(tally);
        for (reason, count) in news {
            let [_, several] = self.carries;
            warn!(sink = self.name, lost = count, "{several} are lost: {}", why(reason));
        }
    }

    /// An attempt has failed.
    pub fn failed(&self, error: &DeliveryError) {
        let mut tally = self.tally();
        tally.failed_attempts += 1;
        tally.last_error = Some(error.to_string());
        tally.closed |= matches!(error, DeliveryError::Closed(_));
    }

    pub fn metrics(&self) -> SinkMetrics {
        let Tally { incoming, unsaid, delivered, failed_attempts, ref last_error, closed: _, ref holding, told: _ } =
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
            untold: holding.untold,
            spool: self.has_spool.then_some(spool),
            last_error: last_error.clone(),
        }
    }
}
