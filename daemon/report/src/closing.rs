//! Ends a window for the daemon and for replay: rotates the filter of seen flows, merges the shards, composes the
//! report.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use weir_common::ledger::Ledger;
use weir_config::view::Standard;
use weir_datapath::interface::{MeasuredInterface, tell_apart};
use weir_measure::{
    answer::Answer,
    export::MergedWindow,
    hosts::NetworkNumbers,
    keys::Keys,
    local::{self, Local},
    look_up::{LastWindow, look_up},
    new_flows::FilterState,
    order::Closed,
    question::{KeyQuery, Views},
    seen::Rotation,
    summary::Summary,
    window::Span,
};
use weir_schema::{Remembered, Report, Rings, Row, SelfMetrics, SinkMetrics, Spool, alerting::Alerts};
use weir_sketch::{MergeError, Seen, hyperloglog::CONFIDENCE};
use weir_system::{clock, process::resident_bytes};

use crate::{
    SketchExporter,
    compose::{self, Context, answers},
    exporter,
    observer::Observer,
    sample::sample,
};

/// The state that is kept from one window to the next to close windows.
pub struct Closing {
    /// The keys of the sketches.
    pub keys: Keys,
    /// The fingerprint of the key of the window that is being closed.
    pub key_id: u64,
    /// The filter of seen flows, shared with the workers.
    pub seen: Arc<Seen>,
    /// The time at which that filter is rotated.
    pub rotation: Rotation,
    /// Interface slots in use.
    pub interfaces: usize,
    /// The views of the window that is being closed.
    pub views: Arc<Views>,
    /// The keys to look up for each report.
    pub asks: Vec<KeyQuery>,
    /// The machine that reports.
    pub observer: Observer,
    /// The memory that the configuration plans for.
    pub memory_bytes: u64,
    /// The CPU time of the process when the last window was closed.
    pub cpu_time: Duration,
    /// The data for looking up keys in the last reported window.
    pub last: Option<LastWindow>,
    /// What is measured with the local key, if anything is.
    pub local: Option<Local>,
    /// The rules that judge each report.
    pub alerts: Alerts,
    /// The exporter of sketches.
    pub exporter: SketchExporter,
    /// The longer lists that the history keeps of the last reported window, if there is a history.
    pub remembered: Option<Remembered>,
    /// The named networks of the last reported window, if hosts are counted.
    pub networks: Arc<[NetworkNumbers]>,
}

/// The start and end of a window.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The times for the report.
    pub span: Span,
    /// The start of the window on the monotonic clock of the filter of seen flows.
    pub begin: Duration,
    /// The end of the window on the same clock.
    pub end: Duration,
}

impl Closing {
    /// Rotates the filter of seen flows if that is due. The new generation gets the key of the latest window. Returns
    /// the false positive rate of the generation that was emptied.
    ///
    /// Call it before any flow of the next window is looked up, because the returned rate is for this window's report.
    /// Therefore the daemon rotates before it orders the workers to close the window; later some of them would already
    /// be in the next one. Replay has only one thread and rotates after the report.
    pub fn rotate(&mut self, times: Times) -> Option<f64> {
        let Times { span: _, begin, end } = times;
        let is_due = self.rotation.take_turn(begin, end, self.seen.should_rotate());
        is_due.then(|| self.seen.rotate_to(self.keys.id()))
    }

    /// Notes that a window ends now, and rotates the filter of known hosts if that is due. Call it before any flow of
    /// the next window is looked up, and before the window's report.
    pub fn end_window(&mut self, span: Span) {
        if let Some(local) = &mut self.local {
            local.end_window(span);
        }
    }

    /// Rotates the filter as if empty windows of this length had filled the time between the last window and the next.
    pub fn pass(&mut self, last_end: Duration, next: Duration, interval: Duration) {
        for _ in 0..self.rotation.pass(last_end, next, interval) {
            self.seen.rotate_to(self.keys.id());
        }
    }

    /// Ends a window. From now on [`Keys::equip`] prepares shards for the window that begins at `next`. If that window
    /// has to keep the key, it gets the key of the day with a later one.
    pub fn advance(&mut self, next: Timestamp, keeps_key: bool) {
        self.key_id = self.keys.id();
        if keeps_key {
            self.keys.advance_with_same(next, &self.seen);
        } else {
            self.keys.advance(next, &self.seen);
        }
        self.exporter.expect(next);
    }

    /// The report of the window that [`Closing::advance`] ended. `late` are CPUs whose part is incomplete. `emptied` is
    /// the result of [`Closing::rotate`], if it was called within the window. `account` makes the list of interfaces
    /// from their ledgers. `sinks` are the metrics of the sinks. Rules have not judged it yet.
    ///
    /// # Errors
    ///
    /// The shards were built differently.
    pub fn report(
        &mut self,
        window: &mut [Closed],
        span: Span,
        late: Vec<u32>,
        emptied: Option<f64>,
        account: impl FnOnce(&[Ledger]) -> Vec<MeasuredInterface>,
        sinks: Vec<SinkMetrics>,
    ) -> Result<Report, MergeError> {
        let seen = FilterState { filter: &self.seen, emptied };
        let mut summary = Summary::merge(window, &self.views, self.interfaces, seen, CONFIDENCE)?;
        let self_metrics = self.self_metrics(&summary, late, sinks);
        let local = match &mut self.local {
            Some(local) => local.add(window, span, &summary, CONFIDENCE)?,
            None => local::Answers::default(),
        };
        let mut interfaces = account(&summary.ledgers);
        tell_apart(&mut interfaces);
        let sample = sample(window, &summary.uncertainty);
        let merged =
            window.first().map(|first| MergedWindow { first, views: &self.views, uncertainty: &summary.uncertainty });
        let sketches = merged.and_then(|merged| self.exporter.add(merged, &self.views, span, &interfaces));
        let longer: Vec<Answer> = summary.views.iter_mut().map(Answer::take_remembered).collect();
        let is_remembered = longer.iter().any(|answer| !answer.tables.is_empty()) || sample.is_some();
        self.remembered = merged.filter(|_| is_remembered).map(|merged| {
            let sketches = exporter::remembered(merged, &self.views, span);
            Remembered { sample, ..compose::remembered(&self.views, &longer, &summary, &interfaces, sketches) }
        });
        let hosts = self.views.standard(Standard::Hosts).and_then(|nth| summary.views.get(nth));
        self.networks = hosts.map_or_else(Arc::default, |hosts| hosts.networks.clone());
        let last = LastWindow {
            uncertainty: summary.uncertainty.clone(),
            answers: summary.views.clone(),
            interfaces: interfaces.clone(),
        };
        let asked = look_up(window, &self.views, &self.asks, &last);
        self.last = Some(last);
        let context = Context {
            key_id: self.key_id,
            span,
            numbered: self.observer.number(),
            views: self.views.clone(),
            asked: &asked,
            interfaces,
            self_metrics,
        };
        let mut report = compose::report(context, &summary);
        (report.horizons, report.new_hosts) = compose::with_local_key(local);
        report.sketches = sketches.map(Box::new);
        Ok(report)
    }

    /// Adds the alerts to a report, once it has everything else.
    pub fn judge(&mut self, report: &mut Report) {
        report.alerts = self.alerts.judge(report);
    }

    /// Looks up these keys in the last reported window. `first` is the part into which all others were merged. Returns
    /// `None` before the first report.
    pub fn look_up(&self, first: &Closed, views: &Views, asks: &[KeyQuery]) -> Option<Vec<Row>> {
        let last = self.last.as_ref()?;
        let found = look_up(std::slice::from_ref(first), views, asks, last);
        Some(answers(views, &found, &last.interfaces))
    }

    fn self_metrics(&mut self, summary: &Summary, late_cpus: Vec<u32>, sinks: Vec<SinkMetrics>) -> SelfMetrics {
        let cpu_time = clock::cpu_time();
        let spent = cpu_time.saturating_sub(std::mem::replace(&mut self.cpu_time, cpu_time));
        let packets = summary.seen().packets;
        SelfMetrics {
            cpu_ns_per_packet: (packets > 0).then(|| spent.as_nanos() as f64 / packets as f64),
            rss_bytes: resident_bytes(),
            memory_bytes: self.memory_bytes,
            records: summary.records,
            cache_hit_rate: summary.cache_hit_rate(),
            kernel_ns_per_packet: None,
            rings: Rings { peak_fill: summary.ring_peak },
            late_cpus,
            spool: spool_of(&sinks),
            sinks,
        }
    }
}

/// The sum of all spools.
fn spool_of(sinks: &[SinkMetrics]) -> Spool {
    let mut all = Spool::default();
    for (sink, spool) in sinks.iter().filter_map(|sink| Some((sink, sink.spool?))) {
        all.reports += spool.reports;
        all.bytes += spool.bytes;
        all.dropped += sink.dropped;
    }
    all
}
