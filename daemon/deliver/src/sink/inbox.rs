//! The queue between the measurement and a sink's threads. It never blocks the measurement, and its size is bounded.

use std::{
    collections::VecDeque,
    mem::take,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use weir_report::{Encoded, Ids};

use super::account::Account;

/// Reports that are not in the spool yet. While the spool's disk hangs they accumulate up to a limit; beyond it the
/// oldest is dropped.
#[derive(Debug)]
pub(super) struct Inbox {
    capacity: usize,
    content: Mutex<Content>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Content {
    reports: VecDeque<Encoded>,
    /// Reports that were dropped here. They are older than `reports`.
    lost: Vec<Ids>,
    has_ended: bool,
}

/// What is next.
#[derive(Debug, Default)]
pub(super) struct Next {
    /// Reports that were dropped before this one.
    pub lost: Vec<Ids>,
    pub report: Option<Encoded>,
}

impl Inbox {
    pub fn new(capacity: usize) -> Self {
        Self { capacity, content: Mutex::default(), changed: Condvar::new() }
    }

    /// Adds a report, and drops the oldest one if there are too many.
    pub fn offer(&self, report: Encoded, account: &Account) {
        let mut content = self.lock();
        content.reports.push_back(report);
        account.tally().incoming += 1;
        if content.reports.len() > self.capacity
            && let Some(oldest) = content.reports.pop_front()
        {
            let mut tally = account.tally();
            tally.incoming -= 1;
            tally.unsaid += 1;
            if let Some(ids) = Ids::of(&oldest.id) {
                match content.lost.last_mut().and_then(|last| Some((last.and(&ids)?, last))) {
                    Some((joined, last)) => *last = joined,
                    None => content.lost.push(ids),
                }
            }
        }
        self.changed.notify_all();
    }

    /// Waits for the next report; `None` if no more will come.
    pub fn next(&self) -> Option<Next> {
        let content = self.lock();
        let mut content = self
            .changed
            .wait_while(content, |content| content.reports.is_empty() && !content.has_ended)
            .unwrap_or_else(PoisonError::into_inner);
        let report = content.reports.pop_front();
        let lost = take(&mut content.lost);
        (report.is_some() || !lost.is_empty()).then_some(Next { lost, report })
    }

    /// Declares that no more reports will come.
    pub fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
