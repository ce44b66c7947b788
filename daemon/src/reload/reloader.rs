//! The thread that reloads the configuration. It does everything that takes time or can fail.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crossbeam::{
    channel::{Receiver, Sender, bounded, never},
    select,
};
use sd_notify::NotifyState;
use tracing::{error, info, warn};
use weir_config::{Config, Interface, Refused, Started, names::Geo, slots};
use weir_datapath::{Cpus, descriptors};
use weir_deliver::{sink, spool::root::SpoolRoot};
use weir_system::{confined::HINT, notify::notify, text::with_causes};

use super::{
    Accepted, InForce, Offer, Outcome, Prepared, Reloaded, Reloads, Request,
    reading::{Read, Reading},
};
use crate::memory::{self, Fit, Fitted};

/// How long to wait for the coordinator: it may be closing a window.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts to read the configuration in the same way as at the start.
pub type Reread<'a> = &'a (dyn Fn() -> Reading + Sync);

/// The system's error for a file that may not be opened (EACCES).
const NOT_PERMITTED: &str = "(os error 13)";

/// Why a reload fails while weir stops.
const STOPPING: &str = "weir is stopping";

/// The facts about the start that a reloader needs.
pub struct Start<'a> {
    /// Reads the configuration again.
    pub reread: Reread<'a>,
    /// The decisions of the start that a reload cannot change.
    pub started: Started,
    /// The folder in which reports wait on disk, if they do.
    pub spools: Option<SpoolRoot>,
    /// The CPUs of the machine.
    pub cpus: Cpus,
    /// Threads that wait for events.
    pub threads: u64,
}

/// Prepares new configurations while weir runs.
pub struct Reloader<'a> {
    reread: Reread<'a>,
    started: Started,
    spools: Option<SpoolRoot>,
    cpus: Cpus,
    /// Threads that wait for events.
    threads: u64,
    hangups: Receiver<()>,
    requests: Receiver<Request>,
    end: Receiver<Infallible>,
    offers: Sender<Offer>,
    in_force: Arc<Mutex<InForce>>,
}

impl<'a> Reloader<'a> {
    /// A reloader, and the coordinator's side of it. Each message in `hangups` or `requests` triggers a reload.
    pub fn new(
        start: Start<'a>,
        hangups: Receiver<()>,
        requests: Receiver<Request>,
        in_force: InForce,
    ) -> (Self, Reloads) {
        let Start { reread, started, spools, cpus, threads } = start;
        let in_force = Arc::new(Mutex::new(in_force));
        let (offers, offers_out) = bounded(0);
        let (end_in, end) = bounded(0);
        let reloads = Reloads { offers: offers_out, in_force: in_force.clone(), _end: end_in };
        (Self { reread, started, spools, cpus, threads, hangups, requests, end, offers, in_force }, reloads)
    }

    /// Runs until the coordinator's side is gone.
    pub fn run(mut self) {
        loop {
            select! {
                recv(self.end) -> _ => return,
                recv(self.hangups) -> hangup => match hangup {
                    Ok(()) => drop(self.reload("SIGHUP")),
                    Err(_) => self.hangups = never(),
                },
                recv(self.requests) -> request => match request {
                    Ok(Request { reply, waker }) => {
                        // The requester may have disconnected.
                        let _ = reply.send(self.reload("weir reload"));
                        waker.wake();
                    }
                    Err(_) => self.requests = never(),
                },
            }
        }
    }

    /// Reloads the configuration and logs the outcome; `asked_by` names the trigger.
    fn reload(&self, asked_by: &str) -> Outcome {
        // systemd also needs the time.
        notify(&NotifyState::monotonic_usec_now().map_or_else(|_| vec![], |now| vec![NotifyState::Reloading, now]));
        let outcome = self.prepare();
        notify(&[NotifyState::Ready]);
        match &outcome {
            Ok(reloaded @ Reloaded { applies_at, changed, .. }) => {
                let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") };
                info!(asked_by, changed, %applies_at, "the configuration is valid, and applies from the end of this window");
                for line in reloaded.more() {
                    warn!("{line}");
                }
            }
            Err(why) => {
                // A single line, however many mistakes there are.
                let why = why.trim_end().replace('\n', "; ");
                error!(asked_by, "the configuration stays as it is: {why}");
            }
        }
        outcome
    }

    fn prepare(&self) -> Outcome {
        loop {
            let base = self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let read = self.read()?;
            let machine = Fit {
                cpus: &self.cpus,
                has_programs: self.started.has_programs,
                interfaces: slots_between(&base.config, &read.config, base.interfaces),
                running: Some(&base.config),
            };
            let geo = Geo::open(&read.config.geo).map_err(|error| read.at("geo", &with_causes(&error)))?;
            let mut fitted = memory::fit(&read.config, machine, &Arc::new(geo));
            let (smaller, kept) = (fitted.smaller.take(), fitted.kept.take());
            let changed = base.config.changed(&fitted.config).into_iter().map(str::to_owned).collect();
            let prepared = self.make_ready(&base, &read, machine, fitted)?;
            if let Some(Accepted { applies_at, detached }) = self.offer(prepared)? {
                return Ok(Reloaded { applies_at, changed, smaller, kept, detached });
            }
        }
    }

    /// Waits for the configuration, but only while weir runs.
    fn read(&self) -> Result<Read, String> {
        let reading = (self.reread)();
        select! {
            recv(reading) -> read => {
                read.map_err(|_| "reading the configuration failed: this is a bug in weir, please report it")?
                    .map_err(|why| self.with_sandbox(why))
            }
            recv(self.end) -> _ => Err(STOPPING.to_owned()),
        }
    }

    /// Adds the sandbox as a possible reason if a file cannot be opened.
    fn with_sandbox(&self, why: String) -> String {
        let is_closed = self.started.places.is_some() && why.contains(NOT_PERMITTED);
        if is_closed { format!("{why}\nBesides, {HINT}") } else { why }
    }

    /// Creates everything that the configuration needs.
    fn make_ready(&self, base: &InForce, read: &Read, machine: Fit<'_>, fitted: Fitted) -> Result<Prepared, String> {
        let at = |setting: &str, what: &str| read.at(setting, what);
        let config = &fitted.config;
        if config.interfaces.is_empty() {
            return Err(at("interfaces", "it names no interface to measure: list some under `interfaces:`"));
        }
        let stays = base.config.needs_restart(config, &self.started);
        if !stays.is_empty() {
            let one = |(name, why): &Refused| at(name.as_ref(), &format!("{name}: needs a restart: {why}"));
            return Err(stays.iter().map(one).collect::<Vec<_>>().join("\n"));
        }
        fitted.check(&read.config, machine).map_err(|error| at("memory", &with_causes(&error)))?;
        if self.started.has_programs {
            let any_number = config.interfaces.iter().any(Interface::is_pattern);
            let provided = descriptors::provide(self.cpus.possible.into(), self.threads, any_number);
            provided.map_err(|error| with_causes(&error))?;
        }
        let new: Vec<_> = config.sinks.iter().filter(|sink| !base.config.sinks.contains(sink)).cloned().collect();
        let opened =
            sink::open(&new, self.spools.as_ref(), self.started.has_tables).map_err(|error| with_causes(&error))?;
        let webhook = config.alerts.webhook.as_ref().filter(|_| config.alerts.webhook != base.config.alerts.webhook);
        let webhook = webhook.map(sink::open_webhook).transpose().map_err(|error| with_causes(&error))?;
        let Fitted { config, views, memory, .. } = fitted;
        Ok(Prepared {
            config: Arc::new(config),
            views,
            interfaces: machine.interfaces,
            memory_bytes: memory.resident(),
            opened: new.into_iter().zip(opened).collect(),
            webhook,
            from: base.generation,
        })
    }

    /// Hands over a prepared configuration. Returns `None` if another one has come into force since it was prepared.
    fn offer(&self, prepared: Prepared) -> Result<Option<Accepted>, String> {
        let ends = || STOPPING.to_owned();
        let (reply, answer) = bounded(1);
        self.offers.send_timeout(Offer { prepared, reply }, PATIENCE).map_err(|error| {
            if error.is_timeout() { "weir is busy closing a window: reload again".to_owned() } else { ends() }
        })?;
        answer.recv_timeout(PATIENCE).map_err(|_| ends())
    }
}

/// Interface slots needed for the transition between two configurations, given the `provided` ones: an interface that
/// is removed keeps its slot until its last window is reported.
fn slots_between(old: &Config, new: &Config, provided: usize) -> usize {
    if old.interfaces == new.interfaces {
        return provided;
    }
    let most = slots(old.interfaces.iter().chain(&new.interfaces));
    provided.max(most)
}

#[cfg(test)]
mod tests {
    use weir_config::Source;
    use weir_system::waker::Waker;

    use super::*;

    const STARTED: Started = Started {
        has_programs: false,
        can_sample: false,
        has_readers: true,
        can_filter: false,
        has_tables: false,
        places: None,
    };

    fn parse(text: &str) -> Config {
        Config::parse(text, "weir.yaml").unwrap()
    }

    /// The outcome for a weir that measures `eth0` if `reread` provides its new configuration. The weir is stopped
    /// afterwards, or as soon as something arrives on `stop`.
    fn outcome(reread: Reread<'_>, stop: Option<&Receiver<()>>) -> Outcome {
        let in_force = Config::parse("interfaces: [{name: eth0, mode: afpacket}]", "weir.yaml").unwrap();
        let (ask, requests) = bounded(1);
        let (reply, outcome) = bounded(1);
        ask.send(Request { reply, waker: Waker::new().unwrap() }).unwrap();
        let (reloader, reloads) = Reloader::new(
            Start { reread, started: STARTED, spools: None, cpus: Cpus::of(1), threads: 1 },
            never(),
            requests,
            InForce::new(Arc::new(in_force), 1),
        );
        std::thread::scope(|scope| {
            scope.spawn(|| reloader.run());
            let early = stop.is_none().then(|| outcome.recv().unwrap());
            stop.inspect(|stop| stop.recv().unwrap());
            drop(reloads);
            early.unwrap_or_else(|| outcome.recv().unwrap())
        })
    }

    fn refused(text: &str) -> String {
        let reread = || {
            let (read, reading) = bounded(1);
            let config = Config::parse(text, "F").unwrap();
            read.send(Ok(Read { config, source: Source::new("F", text) })).unwrap();
            reading
        };
        outcome(&reread, None).unwrap_err()
    }

    #[test]
    fn a_refusal_names_the_file_with_line_and_column() {
        for (text, expected) in [
            ("", "F: it names no interface to measure: "),
            ("report: {top: 3}\ninterfaces: []", "F:2:1: it names no interface to measure: "),
            (
                "interfaces: [{name: eth0, mode: afpacket}]\nobserver: {name: b}\ndatapath: {tunnels: inner}",
                "F:2:1: observer: needs a restart: the numbers of reports go on for one observer\n\
                 F:3:1: datapath: needs a restart: ",
            ),
            (
                "interfaces: [{name: eth0, mode: afpacket}]\nmemory: 16MiB",
                "F:2:1: memory: 16.0 MiB are allowed, but this configuration needs ",
            ),
        ] {
            let why = refused(text);
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn a_stopping_weir_waits_for_no_file() {
        // Keep the sender: reading this file never ends.
        let (begun, begins) = bounded(1);
        let (_reader, reading) = bounded(1);
        let reread = || {
            begun.send(()).unwrap();
            reading.clone()
        };
        assert_eq!(outcome(&reread, Some(&begins)), Err("weir is stopping".to_owned()));
    }

    #[test]
    fn removed_and_new_interfaces_have_room_together() {
        let (one, two) = (parse("interfaces: [eth0]"), parse("interfaces: [{name: eth1, direction: both}]"));
        assert_eq!(slots_between(&one, &one, 1), 1);
        assert_eq!(slots_between(&one, &two, 1), 3);
        assert_eq!(slots_between(&two, &one, 7), 7, "slots keep their numbers");
        assert_eq!(slots_between(&one, &parse("interfaces: [\"*\"]"), 1), 256);
    }
}
