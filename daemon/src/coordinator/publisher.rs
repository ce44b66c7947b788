//! Publishes reports: to the state directory, to clients of the control socket, to Prometheus, to systemd, and to the
//! sinks.

use std::{sync::Arc, time::Duration};

use sd_notify::NotifyState;
use weir_config::{Config, Sink};
use weir_deliver::{
    board::Board,
    prometheus::Exporter,
    sink::{self, Copies, Outbox, SinkHealth},
};
use weir_history::History;
use weir_measure::question::Views;
use weir_report::observer::Last;
use weir_schema::{Encoded, Report, SinkMetrics, alerting::notice};
use weir_system::notify::notify;

use crate::{history, reload::Prepared, state::LastReportFile};

/// How long a sink has to deliver its queue, once it is no longer used.
const FAREWELL: Duration = Duration::from_secs(5);

/// Passes each report on to everything that gets reports.
pub struct Publisher {
    outboxes: Vec<Outbox>,
    /// The webhook for alerts, if one is configured.
    webhook: Option<Outbox>,
    /// Keeps the last report across restarts, if there is a directory for it.
    state: Option<LastReportFile>,
    /// The answers to clients of the control socket.
    board: Arc<Board>,
    exporter: Option<Exporter>,
    /// The history, if it is configured.
    history: Option<History>,
    health: SinkHealth,
}

impl Publisher {
    /// Publishes to these sinks, the board and Prometheus, if it is enabled.
    pub fn new(
        outboxes: Vec<Outbox>,
        webhook: Option<Outbox>,
        state: Option<LastReportFile>,
        board: Arc<Board>,
        exporter: Option<Exporter>,
        history: Option<History>,
    ) -> Self {
        Self { outboxes, webhook, state, board, exporter, history, health: SinkHealth::default() }
    }

    /// The history, if it is configured.
    pub const fn history(&self) -> Option<&History> {
        self.history.as_ref()
    }

    /// Logs which sinks have changed their state.
    ///
    /// # Errors
    ///
    /// The names of the sinks, if none of them accepts reports any more.
    pub fn check(&mut self) -> Result<(), String> {
        self.health.look(&self.outboxes)
    }

    /// Publishes why weir does not see all packets now.
    pub fn warn(&self, troubles: Vec<String>) {
        self.board.warn(troubles);
    }

    /// Returns the counts of the sinks so far.
    pub fn metrics(&self) -> Vec<SinkMetrics> {
        self.outboxes.iter().chain(&self.webhook).map(Outbox::metrics).collect()
    }

    /// Publishes a report. Its number is on disk before anyone gets the report, so no number is used twice.
    /// `remembered` is what the history gets of it.
    pub fn publish(
        &mut self,
        report: &mut Report,
        remembered: Option<Box<Report>>,
        views: &Arc<Views>,
        troubles: Vec<String>,
    ) {
        if let Some(state) = &mut self.state {
            state.keep(Last { seq: report.observer.seq, id: report.id.clone() });
        }
        let [sent, encoded] = Encoded::both(report);
        self.board.publish(report, &encoded, views);
        self.board.warn(troubles);
        if let Some((history, report)) = self.history.as_mut().zip(remembered) {
            history.add(report);
        }
        if let Some(exporter) = &mut self.exporter {
            exporter.publish(report);
        }
        notify(&[NotifyState::Status(&self.board.status().line())]);
        let mut copies = Copies::new(report, sent);
        for outbox in &self.outboxes {
            outbox.offer_report(&mut copies);
        }
    }

    /// Logs the alerts of a report and sends them to the webhook. If the next configuration has another webhook, the
    /// old webhook is told that its alerts end, and the new one which alerts are active.
    pub fn alert(&self, report: &Report, replaced: Option<&Prepared>) {
        notice::log(report);
        let messages = if replaced.is_some() { notice::parting(report) } else { notice::messages(report).collect() };
        if let Some(webhook) = &self.webhook {
            for message in messages {
                webhook.offer(message);
            }
        }
        if let Some(webhook) = replaced.and_then(|next| next.webhook.as_ref()) {
            for message in notice::taking_over(report) {
                webhook.offer(message);
            }
        }
    }

    /// Switches to another configuration. Sinks that both configurations have stay open. `opened` are the other sinks
    /// of the new configuration, and `webhook` is its webhook, if that is another one.
    pub fn change(
        &mut self,
        before: &Config,
        now: &Config,
        mut opened: Vec<(Sink, Outbox)>,
        webhook: Option<Outbox>,
        memory_bytes: u64,
    ) {
        let mut old: Vec<_> = before.sinks.iter().zip(std::mem::take(&mut self.outboxes)).collect();
        for sink in &now.sinks {
            let same = old.iter().position(|(known, _)| *known == sink);
            let new = opened.iter().position(|(known, _)| known == sink);
            self.outboxes.extend(match (same, new) {
                (Some(at), _) => Some(old.swap_remove(at).1),
                (None, Some(at)) => Some(opened.swap_remove(at).1),
                (None, None) => None,
            });
        }
        let is_same = now.alerts.webhook == before.alerts.webhook;
        let old_webhook = if is_same { None } else { std::mem::replace(&mut self.webhook, webhook) };
        sink::farewell(old.into_iter().map(|(_, outbox)| outbox).chain(old_webhook).collect(), FAREWELL);
        self.board.change(now.report.interval.as_secs(), memory_bytes, now.addresses);
        if let Some(exporter) = &self.exporter {
            exporter.change(now.report.interval);
        }
        if let Some((history, settings)) = self.history.as_ref().zip(now.history.as_ref()) {
            history.change(history::changeable(settings, now.addresses));
        }
    }

    /// Gives the sinks a while to deliver their queues.
    pub fn finish(self) {
        sink::finish(self.outboxes.into_iter().chain(self.webhook).collect(), FAREWELL);
    }
}
