//! The coordinator follows the interfaces and the CPUs, ends each window on time, and hands its report to the sinks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crossbeam::channel::{Receiver, never, select};
use jiff::SignedDuration;
use rustix::system::uname;
use sd_notify::NotifyState;
use thiserror::Error;
use tracing::{error, info, warn};
use weir_attach::{
    Attachments, Departure, Done, Obtained,
    netlink::{Ender, News},
};
use weir_common::ledger::{Counters, Ledger, Loss, Tally};
use weir_config::{Config, Packets, interface::Way};
use weir_datapath::{
    self as datapath,
    interface::{MeasuredInterface, NO_ROUTE},
    rates::{Pulse, Rates},
};
use weir_deliver::{
    prometheus::Exporter,
    sink::{self, Outbox, Standing},
};
use weir_measure::{
    order::{Change, Closed},
    question::Views,
    window::{Span, Window},
};
use weir_report::{self as report, Encoded, alerting::notice};
use weir_sketch::MergeError;
use weir_system::{
    clock::{self, Moment},
    notify::notify,
};

use crate::{
    closing::{Closing, Times},
    control::{Control, Question, Release, protocol::Asked},
    fleet::Fleet,
    handover::Handover,
    memory::Memory,
    reload::{Offer, Prepared, Reloads},
    state::{Last, State},
    workers::{Workers, WorkersError},
};

/// All interfaces are checked this often, even without news of them.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The minimum time between two checks of all interfaces, however many events arrive.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// How long the end of a window may wait for a check of the attachments, at most.
const LOOK_PATIENCE_MAX: Duration = Duration::from_millis(200);
/// How long the end of a window may wait for a worker, at most.
const PATIENCE_MAX: Duration = Duration::from_secs(2);
/// How long a stopping daemon waits for all interfaces to be detached.
const DETACHING: Duration = Duration::from_secs(5);
/// How long a stopping daemon waits for its sinks to deliver the last report.
const FAREWELL: Duration = Duration::from_secs(5);

/// How much extra time weir requests from systemd while it attaches to, or detaches from, very many interfaces.
const MORE_TIME: Duration = Duration::from_secs(30);
/// How long the kernel may take to detach a link.
const GRACE_PERIOD: Duration = Duration::from_millis(40);

/// Why measuring cannot continue.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A worker has ended.
    #[error(transparent)]
    Workers(#[from] WorkersError),
    /// The shards cannot be merged.
    #[error("cannot merge the shards of a window: this is a bug in weir, please report it")]
    Merge(#[from] MergeError),
    /// The attacher thread has panicked.
    #[error("the thread that attaches has ended: this is a bug in weir, please report it")]
    Attacher,
    /// All sinks are closed.
    #[error(
        "no sink accepts reports any more ({0}): start weir again with a reader for its standard output, or name a file \
         or a collector under `sinks:`"
    )]
    NoSink(String),
}

/// The state of the coordinator.
pub struct Coordinator<'a, 'scope> {
    /// The configuration in force.
    pub config: Arc<Config>,
    /// The measured interfaces.
    pub attachments: Attachments<'a>,
    /// News of interfaces.
    pub news: Receiver<News>,
    /// Ends the thread that delivers them.
    pub ender: Ender,
    /// The CPUs; `None` if no program is loaded.
    pub fleet: Option<Fleet<'a>>,
    /// The workers.
    pub workers: Workers<'scope>,
    /// Turns closed windows into reports.
    pub closing: Closing,
    /// The sinks.
    pub outboxes: Vec<Outbox>,
    /// The webhook for alerts, if one is configured.
    pub webhook: Option<Outbox>,
    /// Remembers the last report across restarts, if there is a directory for it.
    pub state: Option<State>,
    /// The first window, which began when the shards got their keys.
    pub window: Window,
    /// Queries to a running weir.
    pub control: Control,
    /// The Prometheus exporter, if enabled.
    pub exporter: Option<Exporter>,
    /// New configurations.
    pub reloads: Reloads,
    /// The configuration that takes effect at the end of the window.
    pub pending: Option<Prepared>,
    /// The last reported window.
    pub kept: Option<Kept>,
    /// What is handed over to the next weir, if systemd keeps it.
    pub handover: Option<Handover>,
    /// What an earlier weir counted but did not report; it goes into the first report.
    pub inherited: Option<datapath::Edge>,
}

/// The last reported window. Keys are looked up in it until the next one ends; its shard would be idle anyway.
pub struct Kept {
    /// The part that all others were merged into.
    first: Closed,
    /// The views of this window.
    views: Arc<Views>,
    /// The report's id.
    report_id: String,
    /// Its start and end.
    window: report::Window,
}

impl Coordinator<'_, '_> {
    /// Measures and reports until `stop` receives a message or is disconnected. Then closes the last window, ends the
    /// workers, and gives the sinks a while to deliver what is queued.
    ///
    /// # Errors
    ///
    /// Why measuring cannot continue.
    pub fn run(mut self, cpus: usize, memory: &Memory, stop: &Receiver<()>) -> Result<(), MeasureError> {
        if self.attachments.waiting() == 0 {
            self.greet(cpus, memory);
        }
        let result = self.measure((cpus, memory), stop);
        if self.handover.is_some() {
            self.attachments.leave_behind(DETACHING);
        }
        self.leave();
        result
    }

    /// Logs what was obtained, and tells systemd that weir is ready: everything that can be attached is attached.
    fn greet(&self, cpus: usize, memory: &Memory) {
        let kernel = uname();
        info!(
            version = env!("CARGO_PKG_VERSION"),
            kernel = %kernel.release().to_string_lossy(),
            cpus,
            interval_s = self.config.report.interval.as_secs(),
            memory_mib = memory.resident() >> 20,
            "measuring {}",
            what_is_taken(self.config.sampling.packets)
        );
        let shown = |(name, way, obtained): (&str, Way, Obtained)| match way {
            Way::Ingress => format!("{name} ({})", obtained.name()),
            Way::Egress => format!("{name} egress ({})", obtained.name()),
        };
        let interfaces: Vec<_> = self.attachments.modes().map(shown).collect();
        let status = format!("measuring {}", interfaces.join(", "));
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    fn measure(&mut self, (cpus, memory): (usize, &Memory), stop: &Receiver<()>) -> Result<(), MeasureError> {
        let mut window = self.window;
        let mut looks = LookSchedule::new(clock::now().monotonic);
        let mut standing = Standing::default();
        let now = clock::now();
        let mut pulse = Pulse::new(now.monotonic, since_second(now), self.said());
        // systemd sets this variable if the unit has a watchdog.
        let has_watchdog = std::env::var_os("WATCHDOG_USEC").is_some();
        let mut is_alive = true;
        let mut is_ready = self.attachments.waiting() == 0;
        loop {
            let now = clock::now();
            let left = window.left(now).min(looks.left(now.monotonic)).min(pulse.left(now.monotonic));
            select! {
                recv(stop) -> _ => break,
                recv(self.news) -> first => {
                    if first.is_err() {
                        warn!("the kernel reports no more interface changes: weir notices them within two seconds");
                        self.news = never();
                    }
                    self.note_news(&mut looks, first.into_iter().chain(self.news.try_iter()).collect());
                }
                recv(self.attachments.done()) -> done => {
                    // First handle the news: an interface that vanished must not be mistaken for a detached program.
                    let news = self.news.try_iter().collect::<Vec<_>>();
                    if !news.is_empty() {
                        self.note_news(&mut looks, news);
                    }
                    match done {
                        Ok(done) => self.hear(&mut looks, done),
                        Err(_) => return Err(MeasureError::Attacher),
                    }
                }
                recv(self.control.questions) -> question => match question {
                    Ok(question) => self.reply(&question),
                    Err(_) => self.control.questions = never(),
                },
                recv(self.control.releases) -> release => match release {
                    Ok(Release { interfaces, reply }) => self.attachments.release(&interfaces, reply),
                    Err(_) => self.control.releases = never(),
                },
                recv(self.reloads.offers) -> offer => match offer {
                    Ok(Offer { prepared, reply }) => {
                        let applies_at = self.reloads.is_current(&prepared).then_some(window.end());
                        if applies_at.is_some() {
                            self.pending = Some(prepared);
                        }
                        // If the reloader has given up waiting, it says so itself.
                        let _ = reply.send(applies_at);
                    }
                    Err(_) => self.reloads.offers = never(),
                },
                default(left) => {}
            }
            if self.workers.has_failed() {
                return Err(self.workers.failure().into());
            }
            standing.look(&self.outboxes).map_err(MeasureError::NoSink)?;
            let now = clock::now();
            self.look_at_rates(&mut pulse, now);
            self.attachments.catch_up();
            if looks.look(now.monotonic) {
                self.attachments.follow();
                self.control.board.warn(self.attachments.troubles());
                let is_behind = self.attachments.waiting() > 0;
                if !is_ready && !is_behind {
                    self.greet(cpus, memory);
                } else if !is_ready {
                    notify(&[NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32)]);
                }
                is_ready |= !is_behind;
                if let Some(handover) = &mut self.handover {
                    handover.note(self.attachments.slot_states());
                }
                if let Some(fleet) = &mut self.fleet {
                    fleet.look();
                }
                if is_alive && has_watchdog {
                    notify(&[NotifyState::Watchdog]);
                }
            }
            if window.left(now).is_zero() {
                let next = self.pending.take();
                let (before, interval) = (
                    self.config.report.interval,
                    next.as_ref().map_or(&self.config, |next| &next.config).report.interval,
                );
                let span;
                (span, window) = window.advance(now, before);
                if interval != before {
                    window = window.realigned(interval);
                }
                warn_of_step(span.clock_step);
                warn_of_length(span.length, before, !self.closing.alerts.is_empty());
                self.attachments.look(look_patience(before));
                let edge = Edge { span, next: window.begin(), patience: patience(before.min(interval)) };
                is_alive = self.close(edge, pulse.close(), next.as_ref())?;
                if let Some(next) = next {
                    self.install(next);
                    pulse.provide(self.closing.interfaces);
                }
            }
        }
        info!("stopping: closing and reporting the last window");
        notify(&[NotifyState::Stopping]);
        self.attachments.look(look_patience(self.config.report.interval));
        if self.handover.is_none() {
            let time = MORE_TIME + GRACE_PERIOD * self.attachments.links() as u32;
            notify(&[NotifyState::ExtendTimeoutUsec(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))]);
            // Detach first, so that the caches and rings hold everything that the programs saw.
            if !self.attachments.detach(DETACHING) {
                warn!("weir is not detached from all interfaces yet: the last report does not wait for that");
            }
        }
        self.workers.end();
        let now = clock::now();
        let edge = Edge { span: window.cut(now), next: now, patience: FAREWELL };
        self.close(edge, pulse.close(), None).map(drop)
    }

    /// Looks up keys in the last window. The client may have gone meanwhile.
    fn reply(&self, question: &Question) {
        let kept = self.kept.as_ref().filter(|kept| Arc::ptr_eq(&kept.views, &question.views));
        let asked = kept.and_then(|Kept { first, views, report_id, window }| {
            let answers = self.closing.look_up(first, views, &question.asks)?;
            Some(Asked { report_id: report_id.clone(), window: *window, answers })
        });
        let _ = question.reply.send(asked);
    }

    /// Handles a result of the attacher thread.
    fn hear(&mut self, looks: &mut LookSchedule, done: Done) {
        let is_attached = self.attachments.hear(done);
        if is_attached && self.attachments.waiting() == 0 {
            // From now on, compare it with the interface's own count.
            looks.go_on(clock::now().monotonic);
        }
    }

    /// Interfaces have appeared, gone or changed.
    fn note_news(&mut self, looks: &mut LookSchedule, news: Vec<News>) {
        for one in news {
            match one {
                News::Deleted(ifindex) => self.attachments.note_gone(ifindex, Departure::Deleted),
                News::Moved(ifindex) => self.attachments.note_gone(ifindex, Departure::Moved),
                News::Missed => self.attachments.note_missed(),
                News::Changed => {}
            }
        }
        looks.hear();
    }

    /// The kernel's current counters of each slot.
    fn said(&self) -> Vec<Tally> {
        let interfaces = if self.fleet.is_some() { self.closing.interfaces } else { 0 };
        (0..interfaces).map(|slot| self.seen(slot)).collect()
    }

    fn seen(&self, slot: usize) -> Tally {
        self.fleet.as_ref().map_or_else(Tally::default, |fleet| fleet.seen(slot))
    }

    fn look_at_rates(&self, pulse: &mut Pulse, now: Moment) {
        pulse.look(now.monotonic, since_second(now), |slot| self.seen(slot));
    }

    /// Closes the window on all workers and reports it. `upcoming` is the configuration of the next window, if it is a
    /// new one. Returns whether any worker has measured; otherwise the watchdog ping is skipped.
    fn close(&mut self, edge: Edge, rates: Vec<Rates>, upcoming: Option<&Prepared>) -> Result<bool, MeasureError> {
        let Edge { span, next, patience } = edge;
        let Self {
            config,
            attachments,
            fleet,
            workers,
            closing,
            outboxes,
            webhook,
            state,
            control,
            exporter,
            kept,
            handover,
            inherited,
            ..
        } = self;
        // The previous window can be queried until now.
        let kept_before = kept.take().map(|kept| kept.first);
        workers.take_back(kept_before, &closing.views, || closing.keys.shard(&config.estimates, &closing.views));
        let change = upcoming.map(|Prepared { config, views, interfaces, .. }| {
            let interfaces =
                attachments.change(&config.interfaces, views.directory.clone(), *interfaces).max(*interfaces);
            workers.renew(|| closing.keys.shard(&config.estimates, views));
            Change { interfaces, sampling: config.sampling }
        });
        // Flows are also forgotten while the machine sleeps, so this clock includes that time.
        let end = clock::since_boot();
        let times = Times { span, begin: end.saturating_sub(span.length), end };
        let emptied = closing.rotate(times);
        closing.advance(next.wall);
        let mut window = workers.close(patience, change, |spare| closing.keys.equip(spare))?;
        let late = window.late.iter().flat_map(|nth| fleet.iter().flat_map(|fleet| fleet.cpus_of(*nth))).copied();
        let late: BTreeSet<u32> = late.chain(window.closed.iter().flat_map(|closed| closed.late.clone())).collect();
        let late = Vec::from_iter(late);
        if !window.late.is_empty() || !late.is_empty() {
            warn!(cpus = ?late, "these CPUs are late: the rest of their packets will be in a later report");
        }
        if let Some(handover) = handover {
            for closed in window.closed.iter_mut().filter(|closed| closed.is_of_programs) {
                handover.add(&closed.edge, std::mem::take(&mut closed.rest));
            }
        }
        // These are sums over all CPUs, so it does not matter which part carries them.
        if let Some(first) = window.closed.first_mut() {
            first.edge.add_rates(rates);
            if let Some(inherited) = inherited.take() {
                first.edge.add(&inherited);
            }
        }
        if let Some((first, others)) = window.closed.split_first_mut() {
            let mut counted = vec![Counters::default(); first.edge.counters.len()];
            for closed in std::iter::once(&*first).chain(&*others) {
                for (sum, counters) in counted.iter_mut().zip(&closed.edge.counters) {
                    sum.add(counters);
                }
            }
            attachments.compare(&counted, span.length, &mut first.edge);
        }
        for closed in &mut window.closed {
            let packets = closed.give_up_other(closing.key_id, &closing.views);
            if packets > 0 {
                warn!(
                    packets,
                    "a CPU was so late that the key of the day or the configuration has changed: its packets count as lost"
                );
            }
            if !Arc::ptr_eq(closed.shard.plan(), &closing.views) {
                closed.shard = closing.keys.shard(&config.estimates, &closing.views);
            }
        }
        let account = |ledgers: &[Ledger]| {
            let mut interfaces = attachments.close(ledgers);
            let gone = interfaces.iter_mut().filter(|interface| interface.mode == Obtained::Gone.name());
            for gone in gone.filter(|gone| config.means_only_by_route(&gone.name)) {
                gone.mode = NO_ROUTE;
            }
            for MeasuredInterface { slot, name, .. } in &interfaces {
                warn_of(name, &ledgers[*slot]);
            }
            interfaces
        };
        let sinks = outboxes.iter().chain(&*webhook).map(Outbox::metrics).collect();
        if let Some(next) = upcoming {
            closing.alerts.part_from(&next.config.alerts.rules);
        }
        // Compose the report before anything is published: to sinks, the webhook, the log, or clients.
        let report = closing.report(&mut window.closed, span, late, emptied, account, sinks)?;
        let report = sink::of_report(config.addresses, report);
        let is_alive = !window.closed.is_empty() || window.late.is_empty();
        let mut parts = window.closed.into_iter();
        let views = closing.views.clone();
        *kept = parts.next().map(|first| Kept { first, views, report_id: report.id.clone(), window: report.window });
        let (settings, views) =
            upcoming.map_or((&config.estimates, &closing.views), |next| (&next.config.estimates, &next.views));
        workers.take_back(parts, views, || closing.keys.shard(settings, views));
        if let Some(state) = state {
            state.keep(Last { seq: report.observer.seq, id: report.id.clone() });
        }
        if let Some(handover) = handover {
            let last = Last { seq: report.observer.seq, id: report.id.clone() };
            handover.report(next, last, &closing.alerts, attachments.slot_states());
        }
        let encoded = Encoded::new(&report);
        control.board.publish(&report, &encoded, &closing.views);
        control.board.warn(attachments.troubles());
        if let Some(exporter) = exporter {
            exporter.publish(&report);
        }
        notify(&[NotifyState::Status(&control.board.status().line())]);
        for outbox in outboxes {
            outbox.offer(encoded.clone());
        }
        notice::log(&report);
        let replaced = upcoming.filter(|next| next.config.alerts.webhook != config.alerts.webhook);
        let told = if replaced.is_some() { notice::parting(&report) } else { notice::messages(&report).collect() };
        if let Some(webhook) = webhook {
            for message in told {
                webhook.offer(message);
            }
        }
        if let Some(webhook) = replaced.and_then(|next| next.webhook.as_ref()) {
            for message in notice::taking_over(&report) {
                webhook.offer(message);
            }
        }
        Ok(is_alive)
    }

    /// Puts a new configuration in force: the window that is open now is the first that is measured with it.
    fn install(&mut self, prepared: Prepared) {
        let Prepared { config, views, interfaces, memory_bytes, mut opened, webhook: new_webhook, from: _ } = prepared;
        let Self { closing, fleet, outboxes, webhook, .. } = self;
        closing.views = views;
        closing.alerts.change(&config.alerts.rules, config.report.interval);
        closing.interfaces = closing.interfaces.max(interfaces);
        closing.memory_bytes = memory_bytes;
        closing.rotation.change(config.seen_flows.generation);
        if let Some(fleet) = fleet {
            fleet.provide(closing.interfaces);
        }
        let mut before: Vec<_> = self.config.sinks.iter().zip(std::mem::take(outboxes)).collect();
        for sink in &config.sinks {
            let same = before.iter().position(|(known, _)| *known == sink);
            let new = opened.iter().position(|(known, _)| known == sink);
            outboxes.extend(match (same, new) {
                (Some(at), _) => Some(before.swap_remove(at).1),
                (None, Some(at)) => Some(opened.swap_remove(at).1),
                (None, None) => None,
            });
        }
        let is_same = config.alerts.webhook == self.config.alerts.webhook;
        let old_webhook = if is_same { None } else { std::mem::replace(webhook, new_webhook) };
        sink::farewell(before.into_iter().map(|(_, outbox)| outbox).chain(old_webhook).collect(), FAREWELL);
        self.control.board.change(config.report.interval.as_secs(), memory_bytes);
        if let Some(exporter) = &self.exporter {
            exporter.change(config.report.interval);
        }
        self.reloads.note(&config, closing.interfaces);
        self.config = config;
        info!("the new configuration is in force");
        self.attachments.follow();
        if let Some(handover) = &mut self.handover {
            handover.note(self.attachments.slot_states());
        }
    }

    /// Ends the workers, and gives the sinks a while to deliver what is queued.
    fn leave(self) {
        let Self { workers, outboxes, webhook, ender, control, reloads, handover, closing, .. } = self;
        if let Some(handover) = handover {
            handover.end(&closing.seen, closing.rotation.begun());
        }
        drop(ender);
        drop(control);
        drop(reloads);
        workers.stop();
        sink::finish(outboxes.into_iter().chain(webhook).collect(), FAREWELL);
    }
}

/// The end of a window.
#[derive(Clone, Copy)]
struct Edge {
    /// The window.
    span: Span,
    /// When the next one begins.
    next: Moment,
    /// How long to wait for the workers.
    patience: Duration,
}

/// The time since the last full second of the wall clock.
fn since_second(now: Moment) -> Duration {
    Duration::from_nanos(now.wall.subsec_nanosecond().rem_euclid(1_000_000_000) as u64)
}

/// How long the end of a window waits for workers: the report must be out before the next window ends.
fn patience(interval: Duration) -> Duration {
    (interval / 2).min(PATIENCE_MAX)
}

/// How long the end of a window waits for a check of the attachments: too short to be noticed.
fn look_patience(interval: Duration) -> Duration {
    (interval / 5).min(LOOK_PATIENCE_MAX)
}

/// When the interfaces are checked next.
#[derive(Debug)]
struct LookSchedule {
    looked: Duration,
    due: Duration,
}

impl LookSchedule {
    fn new(now: Duration) -> Self {
        Self { looked: now, due: now + LOOK_EVERY }
    }

    /// News has arrived: brings the next check forward.
    fn hear(&mut self) {
        self.due = self.due.min(self.looked + LOOK_PAUSE);
    }

    /// Schedules another check soon.
    fn go_on(&mut self, now: Duration) {
        self.due = self.due.min(now + LOOK_PAUSE);
    }

    /// How long until the next check.
    const fn left(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Whether a check is due now. If so, schedules the next one.
    fn look(&mut self, now: Duration) -> bool {
        let is_due = now >= self.due;
        if is_due {
            (self.looked, self.due) = (now, now + LOOK_EVERY);
        }
        is_due
    }
}

/// Says in words which packets are measured.
fn what_is_taken(packets: Packets) -> String {
    match packets {
        Packets::OneIn(1) => "every packet".to_owned(),
        Packets::OneIn(rate) => format!("one packet in {rate}"),
        Packets::Auto => "every packet, but fewer while the daemon cannot keep up".to_owned(),
    }
}

/// Warns that the wall clock was stepped.
fn warn_of_step(step: Option<SignedDuration>) {
    if let Some(step) = step {
        warn!(
            seconds = step.as_secs_f64(),
            "the wall clock was stepped: the next window begins at the new time, and the times of windows may repeat or \
             leave a gap"
        );
    }
}

/// Warns that weir was delayed, so that a window is too long.
fn warn_of_length(length: Duration, interval: Duration, has_alerts: bool) {
    if length > interval + interval / 10 {
        warn!(
            seconds = length.as_secs_f64(),
            interval_s = interval.as_secs_f64(),
            "weir was held up, and this window is longer than the interval{}",
            if has_alerts { ": no alert begins or ends with it" } else { "" }
        );
    }
}

/// Warns of packets that are missing in a window, and says what to do about it.
fn warn_of(interface: &str, ledger: &Ledger) {
    if !ledger.balances() {
        error!(interface, ?ledger, "the ledger does not balance: this is a bug in weir, please report it");
    }
    let Missing { dropped, died, missed, lost } = Missing::of(ledger);
    if missed > 0 {
        warn!(
            interface,
            packets = missed,
            "weir was blind when the interface counted these packets: they are lost, and the bounds in the report are wider"
        );
    }
    if dropped > 0 {
        warn!(
            interface,
            packets = dropped,
            "the packet socket dropped packets, and the bounds in the report are wider: try a larger \
             datapath.packet_ring, or eBPF (CAP_BPF)"
        );
    }
    if died > 0 {
        warn!(
            interface,
            packets = died,
            "an earlier weir was killed when it had read these packets and not reported them: they are lost, and the bounds \
             in the report are wider"
        );
    }
    if lost > 0 {
        warn!(
            interface,
            packets = lost,
            "the rings were full, and these packets are lost. The bounds in the report are wider: try a larger \
             datapath.ring"
        );
    }
}

/// Packets of a window that were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    /// Dropped by packet sockets.
    dropped: u64,
    /// Read by an earlier weir that was killed before it reported them.
    died: u64,
    /// Not seen, because another program had removed weir's program or ran in front of it.
    missed: u64,
    /// Lost between the kernel programs and the workers.
    lost: u64,
}

impl Missing {
    fn of(ledger: &Ledger) -> Self {
        let of = |reason: Loss| ledger.counters.lost[reason as usize].packets;
        let (dropped, died, missed) = (of(Loss::SocketDrop), of(Loss::Restart), of(Loss::Blind));
        Self { dropped, died, missed, lost: ledger.lost().packets - dropped - died - missed }
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn interfaces_are_looked_at_every_second_without_news() {
        let mut looks = LookSchedule::new(ms(5_000));
        assert_eq!(looks.left(ms(5_400)), ms(600));
        assert!(!looks.look(ms(5_999)) && looks.look(ms(6_100)));
        assert_eq!(looks.left(ms(6_100)), ms(1_000));
    }

    #[test]
    fn a_report_does_not_wait_for_the_next_window() {
        assert_eq!(patience(ms(1_000)), ms(500));
        assert_eq!(patience(ms(3_600_000)), PATIENCE_MAX);
    }

    #[test]
    fn news_are_followed_at_once_but_not_at_every_word() {
        let mut looks = LookSchedule::new(ms(0));
        looks.hear();
        assert_eq!(looks.left(ms(500)), Duration::ZERO, "nothing was looked at for half a second");
        assert!(looks.look(ms(500)));
        looks.hear();
        looks.hear();
        assert_eq!((looks.look(ms(549)), looks.left(ms(549))), (false, ms(1)));
        assert!(looks.look(ms(550)) && !looks.look(ms(1_549)) && looks.look(ms(1_550)));
    }

    #[test]
    fn each_reason_for_a_loss_is_told_apart() {
        let mut ledger = Ledger::default();
        assert_eq!(Missing::of(&ledger), Missing { dropped: 0, died: 0, missed: 0, lost: 0 });
        ledger.counters.lost[Loss::SocketDrop as usize] = Tally::new(3, 300);
        ledger.counters.lost[Loss::RingFull as usize] = Tally::new(4, 400);
        ledger.counters.lost[Loss::Restart as usize] = Tally::new(5, 500);
        ledger.counters.lost[Loss::Blind as usize] = Tally::new(6, 600);
        assert_eq!(Missing::of(&ledger), Missing { dropped: 3, died: 5, missed: 6, lost: 4 });
    }
}
