//! The counters of a sink: what happened to its reports.

use std::collections::BTreeMap;

use weir_schema::{Reason, SinkMetrics, SinkSpool};

use super::super::DeliveryError;
use crate::spool::Holding;

/// A sink's account. Invariant: every report that was offered or inherited from an earlier weir is waiting, delivered
/// or lost.
#[derive(Debug, Default)]
pub(super) struct SinkCounters {
    /// Reports that are not in the spool yet.
    pub incoming: u64,
    /// Reports that were lost before they reached the spool, and that the spool has not recorded yet.
    pub lost_incoming: u64,
    pub delivered: u64,
    pub failed_attempts: u64,
    pub last_error: Option<String>,
    /// True if the sink has stopped accepting reports for good.
    pub is_closed: bool,
    holding: Holding,
    /// How many lost reports have been logged.
    logged: BTreeMap<Reason, u64>,
}

impl SinkCounters {
    /// Notes what the spool holds. Returns the reasons for losses that are due for the log, with their counts: on the
    /// first loss, and each time the count has doubled.
    pub fn update(&mut self, holding: Holding) -> Vec<(Reason, u64)> {
        self.holding = holding;
        let mut due = Vec::new();
        for (reason, count) in &self.holding.lost {
            let logged = self.logged.entry(*reason).or_default();
            // Refused reports have been logged already, with the sink's answer.
            if *reason != Reason::Refused && *count >= (2 * *logged).max(1) {
                *logged = *count;
                due.push((*reason, *count));
            }
        }
        due
    }

    /// Notes that an attempt has failed.
    pub fn failed(&mut self, error: &DeliveryError) {
        self.failed_attempts += 1;
        self.last_error = Some(error.to_string());
        self.is_closed |= matches!(error, DeliveryError::Closed(_));
    }

    /// The account as reports show it.
    pub fn metrics(&self, name: String, has_spool: bool) -> SinkMetrics {
        let Self { holding, .. } = self;
        let mut lost: BTreeMap<_, _> =
            holding.lost.iter().map(|(reason, count)| (reason.name().to_owned(), *count)).collect();
        if self.lost_incoming > 0 {
            *lost.entry(Reason::QueueFull.name().to_owned()).or_default() += self.lost_incoming;
        }
        let spool = SinkSpool { reports: holding.reports - holding.in_memory, bytes: holding.bytes };
        SinkMetrics {
            name,
            queued: self.incoming + holding.reports,
            delivered: self.delivered,
            failed_attempts: self.failed_attempts,
            dropped: lost.values().sum(),
            lost,
            untold: holding.untold,
            spool: has_spool.then_some(spool),
            last_error: self.last_error.clone(),
        }
    }
}

/// Why reports are lost, for the log. It follows a text such as "reports are lost: ".
pub(super) const fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::SpoolFull => {
            "the spool or its disk is full: the oldest that are not being sent are dropped, and tombstones name them"
        }
        Reason::QueueFull => {
            "no disk takes them, and memory has room for only a few: those that have waited there longest are dropped"
        }
        Reason::TooOld => "they have waited for longer than `spool.max_age`",
        Reason::Damaged => "their files in the spool are damaged",
        Reason::Refused => "the sink refuses them",
        Reason::Removed => "their files, or the folder of the spool, were removed while weir was running",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_logged_first_and_whenever_it_has_doubled() {
        let mut counters = SinkCounters::default();
        let mut due = |count| {
            let lost = [(Reason::TooOld, count), (Reason::Refused, count)].into();
            counters.update(Holding { lost, ..Holding::default() })
        };
        let logged: Vec<_> = (0..=9).flat_map(&mut due).collect();
        assert_eq!(logged, [1, 2, 4, 8].map(|count| (Reason::TooOld, count)), "a refusal is logged with its answer");
    }

    #[test]
    fn reports_lost_before_the_spool_are_lost_like_those_in_it() {
        let lost = [(Reason::QueueFull, 2), (Reason::TooOld, 1)].into();
        let mut counters = SinkCounters { incoming: 3, lost_incoming: 4, ..SinkCounters::default() };
        counters.update(Holding { reports: 7, in_memory: 2, lost, ..Holding::default() });
        let metrics = counters.metrics("stdout".to_owned(), true);
        assert_eq!((metrics.queued, metrics.dropped, metrics.spool.unwrap().reports), (10, 7, 5));
        assert_eq!(metrics.lost, [("queue_full".to_owned(), 6), ("too_old".to_owned(), 1)].into());
    }
}
