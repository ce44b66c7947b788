//! Everything that measures a window, and the end of a window: all workers close it, and their parts become a report.

use std::{collections::BTreeSet, iter, mem, sync::Arc, time::Duration};

use tracing::warn;
use weir_attach::{Attachments, Obtained};
use weir_common::ledger::{Counters, Ledger, Tally};
use weir_config::{Config, interface::NO_ROUTE};
use weir_datapath::{self as datapath, interface::MeasuredInterface, rates::Rates};
use weir_history::{
    local::LocalWriter,
    usage::{NetworkBytes, Sums, Usage},
};
use weir_measure::{
    hosts::NetworkNumbers,
    order::{Change, Closed},
    question::Views,
    window::Span,
};
use weir_report::{
    closing::{Closing, Times},
    observer::Last,
    questions,
};
use weir_schema::{self as report, Amount, Remembered, Report, SinkMetrics};
use weir_system::clock::{self, Moment};

use super::{MeasureError, losses};
use crate::{
    control::{Question, protocol::KeyAnswers},
    cpu_rings::CpuRings,
    handover::Handover,
    reload::Prepared,
    workers::{Parts, Workers},
};

/// Everything that measures a window.
pub struct Measuring<'a, 'scope> {
    /// The measured interfaces.
    pub attachments: Attachments<'a>,
    /// The CPUs; `None` if no program is loaded.
    pub cpu_rings: Option<CpuRings<'a>>,
    /// The workers.
    pub workers: Workers<'scope>,
    /// Turns closed windows into reports.
    pub closing: Closing,
    /// The state for the next weir, if systemd keeps it.
    pub handover: Option<Handover>,
    /// Packets that an earlier weir counted but did not report. The first report includes them.
    pub inherited: Option<datapath::Edge>,
    /// The last reported window.
    pub last: Option<LastWindow>,
    /// What interfaces carry by hour, day and month, if that is counted.
    pub usage: Option<Usage>,
    /// Writes what is measured with the local key to disk, if anything is.
    pub local_writer: Option<LocalWriter>,
}

/// The last reported window. Keys are looked up in it until the next one ends. Until then its shard is not needed
/// elsewhere.
pub struct LastWindow {
    /// The part that all others were merged into.
    first: Closed,
    /// The views of this window.
    views: Arc<Views>,
    /// The id of the report.
    report_id: String,
    /// The start and end of the window.
    window: report::Window,
}

/// The end of a window.
pub struct WindowEnd {
    /// The window that has ended.
    pub span: Span,
    /// The start of the next window.
    pub next: Moment,
    /// True if the next one may have another key. Then every worker has just answered.
    pub may_change: bool,
    /// How long to wait for the workers, unless all shards change.
    pub patience: Duration,
    /// The traffic of each interface in each second of the window.
    pub rates: Vec<Rates>,
}

/// A window that has ended.
pub struct Ended {
    /// The report, with addresses masked as configured.
    pub report: Report,
    /// The same with longer lists, for the history, if there is one.
    pub remembered: Option<Box<Report>>,
    /// The views of the window.
    pub views: Arc<Views>,
    /// True if any worker has measured.
    pub has_measured: bool,
}

impl Measuring<'_, '_> {
    /// Closes the window on all workers, and makes its report. `upcoming` is the configuration of the next window, if
    /// that is a new one. `sinks` are the metrics of the sinks.
    ///
    /// # Errors
    ///
    /// A worker has ended, or the shards cannot be merged.
    pub fn close(
        &mut self,
        config: &Config,
        end: WindowEnd,
        upcoming: Option<&Prepared>,
        sinks: impl FnOnce() -> Vec<SinkMetrics>,
    ) -> Result<Ended, MeasureError> {
        let WindowEnd { span, next, may_change, patience, rates } = end;
        self.forget_last(config);
        // Shards of the old kind cannot be merged later. So none is left behind.
        let changes = upcoming.is_some() || may_change && self.closing.keys.change_by(next.wall);
        let patience = if changes { Duration::MAX } else { patience };
        let change = upcoming.map(|upcoming| self.make_ready(upcoming));
        // Flows are also forgotten while the machine sleeps, so this clock includes that time.
        let now = clock::since_boot();
        let times = Times { span, begin: now.saturating_sub(span.length), end: now };
        self.closing.end_window(span);
        let emptied = self.closing.rotate(times);
        self.closing.advance(next.wall, !may_change);
        let mut window = self.workers.close(patience, change, |spare| self.closing.keys.equip(spare))?;
        let late = self.late_cpus(&window);
        self.note_for_the_next_weir(&mut window.closed);
        self.add_sums(&mut window.closed, rates, span.length);
        if let Some(next) = upcoming {
            self.closing.alerts.part_from(&next.config.rules(), &questions(&next.views));
        }
        let Self { attachments, closing, usage, local_writer, .. } = self;
        // Records that are still to come belong to the interfaces that had the slots until now.
        let keeps_slots = !late.is_empty() || !window.late.is_empty();
        let account = |ledgers: &[Ledger]| account(attachments, config, ledgers, keeps_slots);
        let mut report = closing.report(&mut window.closed, span, late, emptied, account, sinks())?;
        if let Some(usage) = usage {
            usage.add_window(&report.window, &report.interfaces);
            report.usage = if config.watches_usage() { usage.of_month() } else { Vec::new() };
        }
        closing.judge(&mut report);
        if let Some((writer, local)) = local_writer.as_mut().zip(closing.local.as_ref()) {
            writer.offer(|| local.to_bytes());
        }
        let longer = closing.remembered.take();
        if let Some(usage) = usage {
            let top = longer.as_ref().map_or(&report.top, |longer| &longer.top);
            usage.add_hosts(&report.window, &report.interfaces, top, closing.networks.iter().map(network).collect());
        }
        let remembered =
            config.history.is_some().then(|| Box::new(Remembered::report(longer, &report).masked(config.addresses)));
        // Mask addresses before anything is published to sinks, the webhook, the log, or clients.
        let report = report.masked(config.addresses);
        let has_measured = !window.closed.is_empty() || window.late.is_empty();
        let views = self.closing.views.clone();
        self.keep(&report, window.closed, upcoming.map_or(config, |next| &next.config), upcoming);
        if let Some(handover) = &mut self.handover {
            let last = Last { seq: report.observer.seq, id: report.id.clone() };
            handover.report(next, last, &self.closing.alerts, self.attachments.slot_states());
        }
        Ok(Ended { report, remembered, views, has_measured })
    }

    /// Looks up keys in the last window. The client may have disconnected meanwhile.
    pub fn answer(&self, question: &Question) {
        let last = self.last.as_ref().filter(|last| Arc::ptr_eq(&last.views, &question.views));
        let asked = last.and_then(|LastWindow { first, views, report_id, window }| {
            let answers = self.closing.look_up(first, views, &question.asks)?;
            Some(KeyAnswers { report_id: report_id.clone(), window: *window, answers })
        });
        let _ = question.reply.send(asked);
    }

    /// The kernel's current counters of each slot.
    pub fn seen_by_slot(&self) -> Vec<Tally> {
        let interfaces = if self.cpu_rings.is_some() { self.closing.interfaces } else { 0 };
        (0..interfaces).map(|slot| self.seen(slot)).collect()
    }

    /// The kernel's current counters of a slot.
    pub fn seen(&self, slot: usize) -> Tally {
        self.cpu_rings.as_ref().map_or_else(Tally::default, |cpu_rings| cpu_rings.seen(slot))
    }

    /// Saves the interfaces for the next weir, if they have changed.
    pub fn note_interfaces(&mut self) {
        if let Some(handover) = &mut self.handover {
            handover.note(self.attachments.slot_states());
        }
    }

    /// Ends queries about the last window, because its shard is needed again.
    fn forget_last(&mut self, config: &Config) {
        let Self { closing, workers, last, .. } = self;
        let shard = last.take().map(|last| last.first);
        workers.take_back(shard, &closing.views, || closing.keys.shard(&config.estimates, &closing.views));
    }

    /// Prepares attachments and spare shards for the configuration of the next window.
    fn make_ready(&mut self, upcoming: &Prepared) -> Change {
        let Self { attachments, workers, closing, .. } = self;
        let Prepared { config, views, interfaces, .. } = upcoming;
        let used = attachments.change(&config.interfaces, views.directory.clone(), *interfaces);
        workers.renew(|| closing.keys.shard(&config.estimates, views));
        Change { interfaces: used.max(*interfaces), sampling: config.sampling }
    }

    /// The CPUs whose part of a window is incomplete; logs them.
    fn late_cpus(&self, window: &Parts) -> Vec<u32> {
        let late = window
            .late
            .iter()
            .flat_map(|nth| self.cpu_rings.iter().flat_map(|cpu_rings| cpu_rings.cpus_of(*nth)))
            .copied();
        let late: BTreeSet<u32> = late.chain(window.closed.iter().flat_map(|closed| closed.late.clone())).collect();
        let late = Vec::from_iter(late);
        if !window.late.is_empty() || !late.is_empty() {
            let rest = match self.handover {
                None if self.workers.is_last() => "is in no report",
                _ => "will be in a later report",
            };
            warn!(cpus = ?late, "these CPUs are late: the rest of their packets {rest}");
        }
        late
    }

    /// Notes that the programs' counters are reported now. Records that were read after the last window are for the
    /// next weir.
    fn note_for_the_next_weir(&mut self, parts: &mut [Closed]) {
        let Some(handover) = &mut self.handover else { return };
        for closed in parts.iter_mut().filter(|closed| closed.is_of_programs) {
            handover.add(&closed.edge, mem::take(&mut closed.rest));
        }
    }

    /// Adds sums over all CPUs. They belong to no single worker, so it does not matter which part has them.
    fn add_sums(&mut self, parts: &mut [Closed], rates: Vec<Rates>, length: Duration) {
        let Some((first, others)) = parts.split_first_mut() else { return };
        first.edge.add_rates(rates);
        if let Some(inherited) = self.inherited.take() {
            first.edge.add(&inherited);
        }
        let mut counted = vec![Counters::default(); first.edge.counters.len()];
        for closed in iter::once(&*first).chain(&*others) {
            for (sum, counters) in counted.iter_mut().zip(&closed.edge.counters) {
                sum.add(counters);
            }
        }
        self.attachments.compare(&counted, length, &mut first.edge);
    }

    /// Keeps the merged part for queries, and gives the other shards back to the workers, for the configuration of the
    /// next window.
    fn keep(&mut self, report: &Report, parts: Vec<Closed>, config: &Config, upcoming: Option<&Prepared>) {
        let Self { closing, workers, last, .. } = self;
        let mut parts = parts.into_iter();
        let (report_id, window, views) = (report.id.clone(), report.window, closing.views.clone());
        *last = parts.next().map(|first| LastWindow { first, views, report_id, window });
        let views = upcoming.map_or(&closing.views, |next| &next.views);
        workers.take_back(parts, views, || closing.keys.shard(&config.estimates, views));
    }
}

/// The measured interfaces of a window with these ledgers; logs which packets are missing.
fn account(
    attachments: &mut Attachments<'_>,
    config: &Config,
    ledgers: &[Ledger],
    keeps_slots: bool,
) -> Vec<MeasuredInterface> {
    let mut interfaces = attachments.close(ledgers, keeps_slots);
    for interface in &mut interfaces {
        if interface.mode == Obtained::Gone.name() && config.means_only_by_route(&interface.name) {
            interface.mode = NO_ROUTE;
        }
        if let Some(ledger) = interface.slot.and_then(|slot| ledgers.get(slot)) {
            losses::warn_of(&interface.name, ledger);
        }
    }
    interfaces
}

/// What the usage counts of a network.
fn network(NetworkNumbers { name, down, up, bytes }: &NetworkNumbers) -> NetworkBytes {
    let of = |of: &weir_sketch::Estimate| Amount { value: of.value, lower: of.lower, upper: Some(of.upper) };
    NetworkBytes { name: name.clone(), sums: Sums { down: of(down), up: of(up), bytes: of(bytes) } }
}
