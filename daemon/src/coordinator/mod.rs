//! The coordinator follows the interfaces and the CPUs, ends each window on time, and has its report published.
//!
//! [`Coordinator`] is one loop over everything that can happen. [`Measuring`] closes windows and makes their reports,
//! the [`Publisher`] publishes them. `schedule` decides when interfaces are checked, and `losses` logs missing packets.

mod losses;
mod measuring;
mod publisher;
mod readings;
mod schedule;

use std::{sync::Arc, time::Duration};

use crossbeam::channel::{Receiver, never, select};
use jiff::{SignedDuration, Timestamp};
use rustix::system::uname;
use sd_notify::NotifyState;
use thiserror::Error;
use tracing::{info, warn};
use weir_attach::{
    Departure, Obtained, TaskResult,
    netlink::{Ender, News},
};
use weir_config::{Config, Packets, interface::Way};
use weir_datapath::rates::Pulse;
use weir_measure::window::Window;
use weir_names::Names;
use weir_report::questions;
use weir_sketch::MergeError;
use weir_system::{
    clock::{self, Moment},
    notify::notify,
    text::escaped,
};

pub use self::{measuring::Measuring, publisher::Publisher};
use self::{
    measuring::{Ended, WindowEnd},
    readings::{Now, Readings},
    schedule::{LookSchedule, brief_patience, patience, since_second},
};
use crate::{
    control::{Control, Order},
    history,
    memory::Memory,
    reload::{Accepted, Offer, Prepared, Reloads},
    seconds::{Counted, Seconds},
    workers::WorkersError,
};

/// How long a stopping daemon waits for all interfaces to be detached.
const DETACHING: Duration = Duration::from_secs(5);
/// How long a stopping daemon waits for its workers to close the last window.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

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
    /// Everything that measures windows.
    pub measuring: Measuring<'a, 'scope>,
    /// Passes reports on to the sinks and the services.
    pub publisher: Publisher,
    /// The first window, which began when the shards got their keys.
    pub window: Window,
    /// Yields changes of interfaces.
    pub news: Receiver<News>,
    /// Ends the thread that delivers them.
    pub ender: Ender,
    /// Queries to a running weir.
    pub control: Control,
    /// The names of hosts, which follow the configuration.
    pub names: Names,
    /// Yields new configurations.
    pub reloads: Reloads,
    /// The configuration that takes effect at the end of the window.
    pub pending: Option<Prepared>,
}

/// Facts about the machine for the log, once everything is attached.
#[derive(Clone, Copy)]
pub struct Greeting<'a> {
    /// How many CPUs are online.
    pub cpus: usize,
    /// The memory that is planned.
    pub memory: &'a Memory,
}

/// The state that changes from one turn of the loop to the next.
struct LoopState {
    window: Window,
    looks: LookSchedule,
    pulse: Pulse,
    seconds: Seconds,
    readings: Readings,
    /// True if the unit has a watchdog.
    has_watchdog: bool,
    /// True if systemd was told that weir is ready.
    is_ready: bool,
    /// True if any worker measured the last window. If not, weir does not ping the watchdog.
    is_alive: bool,
}

impl Coordinator<'_, '_> {
    /// Measures and reports until `stop` receives a message or is disconnected. Then closes the last window, ends the
    /// workers, and gives the sinks a while to deliver what is queued.
    ///
    /// # Errors
    ///
    /// Why measuring cannot continue.
    pub fn run(mut self, greeting: Greeting<'_>, stop: &Receiver<()>) -> Result<(), MeasureError> {
        let result = self.measure(greeting, stop);
        if self.measuring.handover.is_some() {
            self.measuring.attachments.leave_behind(DETACHING);
        }
        self.leave();
        result
    }

    /// Logs how each interface is measured, and tells systemd that weir is ready: everything that can be attached is
    /// attached.
    fn greet(&self, Greeting { cpus, memory }: Greeting<'_>) {
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
        let (measured, others): (Vec<_>, Vec<_>) =
            self.measuring.attachments.modes().partition(|(.., obtained)| obtained.sees_packets());
        let [measured, others] =
            [measured, others].map(|all| all.into_iter().map(shown).collect::<Vec<_>>().join(", "));
        // `systemctl status` prints it.
        let status = escaped(&match (measured.is_empty(), others.is_empty()) {
            (_, true) => format!("measuring {measured}"),
            (true, false) => format!("not measured: {others}"),
            (false, false) => format!("measuring {measured}; not measured: {others}"),
        });
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    fn measure(&mut self, greeting: Greeting<'_>, stop: &Receiver<()>) -> Result<(), MeasureError> {
        let now = clock::now();
        let mut state = LoopState {
            window: self.window,
            looks: LookSchedule::new(now.monotonic),
            pulse: Pulse::new(now.monotonic, since_second(now), self.measuring.seen_by_slot()),
            seconds: Seconds::default(),
            readings: Readings::new(self.measuring.workers.count()),
            // systemd sets this variable if the unit has a watchdog.
            has_watchdog: std::env::var_os("WATCHDOG_USEC").is_some(),
            is_ready: self.measuring.attachments.waiting() == 0,
            is_alive: true,
        };
        self.control.board.open_window(state.window.end());
        if state.is_ready {
            self.greet(greeting);
        }
        while self.wait(&mut state, stop)? {
            if self.measuring.workers.has_failed() {
                return Err(self.measuring.workers.failure().into());
            }
            self.publisher.check().map_err(MeasureError::NoSink)?;
            let now = clock::now();
            if state.pulse.look(now.monotonic, since_second(now), |slot| self.measuring.seen(slot)) {
                self.tell_second(&mut state.seconds, now, state.window.start());
            }
            self.measuring.attachments.catch_up();
            if state.looks.look(now.monotonic) {
                self.look(&mut state, greeting);
            }
            if state.window.left(now).is_zero() {
                self.end_window(&mut state, now)?;
            }
            if state.readings.is_due(now) {
                state.readings.begin(&self.open_window(state.window));
            }
        }
        self.end_last_window(state)
    }

    /// Waits until something is due or has happened, and handles that. Returns whether to go on.
    fn wait(&mut self, state: &mut LoopState, stop: &Receiver<()>) -> Result<bool, MeasureError> {
        let now = clock::now();
        let left = state.window.left(now).min(state.looks.left(now.monotonic)).min(state.pulse.left(now.monotonic));
        let left = left.min(state.readings.left(now));
        let parts = state.readings.parts().clone();
        select! {
            recv(stop) -> _ => return Ok(false),
            recv(self.news) -> first => {
                if first.is_err() {
                    warn!("the kernel no longer reports interface changes: weir now notices them within two seconds");
                    self.news = never();
                }
                self.note_news(&mut state.looks, first.into_iter().chain(self.news.try_iter()).collect());
            }
            recv(self.measuring.attachments.done()) -> done => {
                // Handle changes of interfaces first: an interface that vanished must not be mistaken for a detached
                // program.
                let news = self.news.try_iter().collect::<Vec<_>>();
                if !news.is_empty() {
                    self.note_news(&mut state.looks, news);
                }
                self.hear(&mut state.looks, done.map_err(|_| MeasureError::Attacher)?);
            }
            recv(self.control.questions) -> question => match question {
                Ok(question) => self.measuring.answer(&question),
                Err(_) => self.control.questions = never(),
            },
            recv(self.control.live) -> request => match request {
                Ok(request) => state.readings.ask(clock::now(), request),
                Err(_) => self.control.live = never(),
            },
            recv(parts) -> part => {
                if let Ok(part) = part {
                    state.readings.take(part, &self.open_window(state.window));
                }
            }
            recv(self.control.orders) -> order => match order {
                Ok(Order::Detach(interfaces, reply)) => self.measuring.attachments.release(&interfaces, reply),
                Ok(Order::Attach(interfaces, reply)) => self.measuring.attachments.attach_again(&interfaces, reply),
                Err(_) => self.control.orders = never(),
            },
            recv(self.reloads.offers) -> offer => match offer {
                Ok(Offer { prepared, reply }) => {
                    let accepted = self.reloads.is_current(&prepared).then(|| Accepted {
                        applies_at: state.window.end(),
                        detached: self.measuring.attachments.stays_released(&prepared.config.interfaces),
                    });
                    if accepted.is_some() {
                        self.pending = Some(prepared);
                    }
                    // If the reloader has given up waiting, it has logged that itself.
                    let _ = reply.send(accepted);
                }
                Err(_) => self.reloads.offers = never(),
            },
            default(left) => {}
        }
        Ok(true)
    }

    /// Handles a result of the attacher thread.
    fn hear(&mut self, looks: &mut LookSchedule, done: TaskResult) {
        let is_attached = self.measuring.attachments.hear(done);
        if is_attached && self.measuring.attachments.waiting() == 0 {
            // From now on, compare it with the interface's own count.
            looks.go_on(clock::now().monotonic);
        }
    }

    /// Handles interfaces that appeared, vanished or changed.
    fn note_news(&mut self, looks: &mut LookSchedule, news: Vec<News>) {
        let attachments = &mut self.measuring.attachments;
        for one in news {
            match one {
                News::Deleted(device) => attachments.note_left(&device, Departure::Deleted),
                News::Moved(device) => attachments.note_left(&device, Departure::Moved),
                News::Described(device) => attachments.note_device(&device),
                News::Missed => attachments.note_missed(),
                News::Changed => {}
            }
        }
        looks.hear();
    }

    /// Checks the interfaces and the CPUs, and tells systemd the state of weir.
    fn look(&mut self, state: &mut LoopState, greeting: Greeting<'_>) {
        let attachments = &mut self.measuring.attachments;
        attachments.follow();
        self.publisher.warn(attachments.troubles());
        let is_behind = attachments.waiting() > 0;
        if !state.is_ready && !is_behind {
            self.greet(greeting);
        } else if !state.is_ready {
            notify(&[NotifyState::ExtendTimeoutUsec(MORE_TIME.as_micros() as u32)]);
        }
        state.is_ready |= !is_behind;
        self.measuring.note_interfaces();
        if let Some(cpu_rings) = &mut self.measuring.cpu_rings {
            cpu_rings.look();
        }
        if state.is_alive && state.has_watchdog {
            notify(&[NotifyState::Watchdog]);
        }
    }

    /// Publishes the traffic of the last second, if it has subscribers.
    fn tell_second(&self, seconds: &mut Seconds, now: Moment, window_start: Timestamp) {
        let (board, history) = (&self.control.board, self.publisher.history());
        let usage = self.measuring.usage.as_ref();
        if !board.is_subscribed() && history.is_none() && usage.is_none() {
            return seconds.forget();
        }
        let Measuring { attachments, cpu_rings, closing, .. } = &self.measuring;
        let counted = |slot| match cpu_rings {
            Some(cpu_rings) => Counted { seen: cpu_rings.seen(slot), lost: cpu_rings.lost(slot) },
            None => Counted::default(),
        };
        let interfaces = attachments.now();
        let slots = interfaces
            .iter()
            .filter_map(|now| now.slot)
            .map(|slot| slot + 1)
            .max()
            .unwrap_or(0)
            .max(closing.interfaces);
        let counted = (0..slots).map(counted).collect();
        seconds.read(now.monotonic, counted);
        if let Some(history) = history {
            history.add_second(now.wall, seconds.length(), seconds.carried(&interfaces));
        }
        if let Some(usage) = usage {
            usage.add_second(now.wall, seconds.length(), seconds.carried(&interfaces));
        }
        if board.is_subscribed()
            && let Some(second) = seconds.message(now, window_start, &interfaces)
        {
            board.publish_second(second);
        }
    }

    /// Returns everything that a reading of the open window needs.
    fn open_window(&self, window: Window) -> Now<'_, '_> {
        let Measuring { attachments, workers, closing, .. } = &self.measuring;
        Now {
            now: clock::now(),
            window,
            views: &closing.views,
            key_id: closing.keys.id(),
            seen: &closing.seen,
            interfaces: closing.interfaces,
            names: readings::names(&attachments.now()),
            addresses: self.config.addresses,
            workers,
        }
    }

    /// Ends the window on time. A new configuration takes effect with the next one.
    fn end_window(&mut self, state: &mut LoopState, now: Moment) -> Result<(), MeasureError> {
        let before = self.config.report.interval;
        let span;
        (span, state.window) = state.window.advance(now, before);
        let may_change = self.prepare_change(state.window.start(), brief_patience(before));
        let next = self.pending.take_if(|_| may_change);
        let interval = next.as_ref().map_or(&self.config, |next| &next.config).report.interval;
        if interval != before {
            state.window = state.window.realigned(interval);
        }
        warn_of_step(span.clock_step);
        warn_of_length(span.length, before, !self.measuring.closing.alerts.is_empty());
        self.measuring.attachments.look(brief_patience(before), false);
        let (next_begin, patience) = (state.window.begin(), patience(before.min(interval)));
        let end = WindowEnd { span, next: next_begin, may_change, patience, rates: state.pulse.close() };
        state.is_alive = self.report(end, next.as_ref())?;
        state.seconds.begin();
        state.readings.end_window();
        self.control.board.open_window(state.window.end());
        if let Some(next) = next {
            self.install(next);
            state.pulse.provide(self.measuring.closing.interfaces);
        }
        Ok(())
    }

    /// Asks the workers if the window that begins at `begin` would have another configuration or another key than the
    /// one before. Returns whether it may. That needs all shards to change together: a worker that is late still has
    /// records in a shard of the old kind, which could not be merged with the others any more.
    fn prepare_change(&mut self, begin: Timestamp, patience: Duration) -> bool {
        let Measuring { workers, closing, .. } = &mut self.measuring;
        let changes_key = closing.keys.change_by(begin);
        if self.pending.is_none() && !changes_key || workers.all_answer(patience) {
            return true;
        }
        let what = if self.pending.is_some() { "the new configuration" } else { "the key of the new day" };
        warn!("a worker is late: {what} waits for the end of the next window");
        false
    }

    /// Detaches, unless the next weir takes over, and reports what was measured so far.
    fn end_last_window(&mut self, mut state: LoopState) -> Result<(), MeasureError> {
        info!("stopping: closing and reporting the last window");
        notify(&[NotifyState::Stopping]);
        let Measuring { attachments, workers, handover, .. } = &mut self.measuring;
        attachments.look(brief_patience(self.config.report.interval), true);
        if handover.is_none() {
            let time = MORE_TIME + GRACE_PERIOD * attachments.links() as u32;
            notify(&[NotifyState::ExtendTimeoutUsec(u32::try_from(time.as_micros()).unwrap_or(u32::MAX))]);
            // Detach first, so that the caches and rings hold everything that the programs saw.
            if !attachments.detach(DETACHING) {
                warn!("weir has not detached from all interfaces yet: the last report does not wait for that");
            }
        }
        workers.end();
        let now = clock::now();
        let (span, rates) = (state.window.cut(now), state.pulse.close());
        self.measuring.closing.exporter.end();
        self.report(WindowEnd { span, next: now, may_change: false, patience: LAST_PATIENCE, rates }, None).map(drop)
    }

    /// Closes the window and publishes its report. Returns whether any worker has measured.
    fn report(&mut self, end: WindowEnd, upcoming: Option<&Prepared>) -> Result<bool, MeasureError> {
        let Self { config, measuring, publisher, .. } = self;
        if upcoming.is_some() {
            measuring.closing.exporter.end();
        }
        let Ended { mut report, remembered, views, has_measured } =
            measuring.close(config, end, upcoming, || publisher.metrics())?;
        publisher.publish(&mut report, remembered, &views, measuring.attachments.troubles());
        publisher.alert(&report, upcoming.filter(|next| next.config.alerts.webhook != config.alerts.webhook));
        Ok(has_measured)
    }

    /// Puts a new configuration in force. The open window is the first that is measured with it.
    fn install(&mut self, prepared: Prepared) {
        let Prepared { config, views, interfaces, memory_bytes, opened, webhook, from: _ } = prepared;
        self.names.change(config.names.clone(), config.addresses);
        let Measuring { closing, cpu_rings, attachments, usage, .. } = &mut self.measuring;
        if let Some((usage, set)) = usage.as_ref().zip(config.usage.as_ref()) {
            usage.change(history::usage_settings(&config, set));
        }
        closing.views = views;
        closing.alerts.change(&config.rules(), &questions(&closing.views), config.report.interval);
        closing.exporter.change(config.export.clone());
        closing.interfaces = closing.interfaces.max(interfaces);
        closing.memory_bytes = memory_bytes;
        closing.rotation.change(config.seen_flows.generation);
        if let Some(cpu_rings) = cpu_rings {
            cpu_rings.provide(closing.interfaces);
        }
        self.publisher.change(&self.config, &config, opened, webhook, memory_bytes);
        self.reloads.note(&config, closing.interfaces);
        self.config = config;
        info!("the new configuration is in force");
        attachments.follow();
        self.measuring.note_interfaces();
    }

    /// Ends the workers, and gives the sinks a while to deliver what is queued.
    fn leave(self) {
        let Self { measuring, publisher, ender, control, reloads, .. } = self;
        let Measuring { workers, handover, closing, local_writer, .. } = measuring;
        if let Some(handover) = handover {
            handover.end(&closing.seen, closing.rotation.begun());
        }
        if let Some((writer, local)) = local_writer.zip(closing.local.as_ref()) {
            writer.end(local.to_bytes());
        }
        drop(ender);
        drop(control);
        drop(reloads);
        drop(workers);
        publisher.finish();
    }
}

/// Says which packets are measured.
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
            "weir was delayed, and this window is longer than the interval{}",
            if has_alerts {
                ": an alert begins in it only if a shorter window would raise it, too, and none ends"
            } else {
                ""
            }
        );
    }
}
