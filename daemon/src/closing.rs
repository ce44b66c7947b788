//! From a closed window to its report: the shards are merged, the filter of seen flows is rotated, the report is
//! composed. The daemon and replay both end their windows here.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use weir_common::ledger::Ledger;
use weir_sketch::{MergeError, Seen};

use crate::{
    clock,
    keys::Keys,
    measure::{interface::MeasuredInterface, order::Closed, seen::Rotation, summary::Summary, window::Span},
    memory::resident_bytes,
    observer::Observer,
    report::{Report, Rings, SelfMetrics, SinkMetrics, Spool, compose::Context},
};

/// What the closing of windows needs from one window to the next.
pub struct Closing {
    /// The keys of the sketches.
    pub keys: Keys,
    /// The fingerprint of the key of the window that is being closed.
    pub key_id: u64,
    /// The filter of seen flows, shared with the workers.
    pub seen: Arc<Seen>,
    /// When that filter is rotated.
    pub rotation: Rotation,
    /// Interface slots in use.
    pub interfaces: usize,
    /// Entries of each top list.
    pub top: usize,
    /// Who reports.
    pub observer: Observer,
    /// The memory that the configuration plans for.
    pub memory_bytes: u64,
    /// The CPU time that the process had taken when the last window was closed.
    pub cpu_time: Duration,
}

/// When a window began and ended.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For the report.
    pub span: Span,
    /// By the clock that the filter of seen flows goes by, which counts up.
    pub begin: Duration,
    /// By the same clock.
    pub end: Duration,
}

impl Closing {
    /// Ends a window: the shards that [`Keys::equip`] makes ready from now on are for the one that begins at `next`.
    pub fn advance(&mut self, next: Timestamp) {
        self.key_id = self.keys.id();
        self.keys.advance(next, &self.seen);
    }

    /// The report of the window that [`Closing::advance`] ended. `account` makes the list of interfaces out of their ledgers; `sinks` is their account.
    ///
    /// # Errors
    ///
    /// The shards were built differently.
    pub fn report(
        &mut self,
        window: &mut [Closed],
        times: Times,
        account: impl FnOnce(&[Ledger]) -> Vec<MeasuredInterface>,
        sinks: Vec<SinkMetrics>,
    ) -> Result<Report, MergeError> {
        let Times { span, begin, end } = times;
        let summary = Summary::merge(window, self.interfaces, &self.seen, self.top)?;
        if self.rotation.is_due(begin, end, self.seen.should_rotate()) {
            self.seen.rotate_to(self.key_id);
        }
        let context = Context {
            key_id: self.key_id,
            span,
            observer: self.observer.number(),
            interfaces: account(&summary.ledgers),
            self_metrics: self.self_metrics(&summary, sinks),
        };
        Ok(Report::compose(context, &summary))
    }

    fn self_metrics(&mut self, summary: &Summary, sinks: Vec<SinkMetrics>) -> SelfMetrics {
        let cpu_time = clock::cpu_time();
        let spent = cpu_time.saturating_sub(std::mem::replace(&mut self.cpu_time, cpu_time));
        let packets = summary.seen().packets;
        SelfMetrics {
            cpu_ns_per_packet: if packets == 0 { 0.0 } else { spent.as_nanos() as f64 / packets as f64 },
            rss_bytes: resident_bytes(),
            memory_bytes: self.memory_bytes,
            records: summary.records,
            cache_hit_rate: summary.cache_hit_rate(),
            kernel_ns_per_packet: None,
            rings: Rings { peak_fill: summary.ring_peak },
            spool: Spool::default(),
            sinks,
        }
    }
}
