//! The thread that reads the configuration again. It does all that takes time, or that can fail.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crossbeam::{
    channel::{Receiver, Sender, bounded, never},
    select,
};
use jiff::Timestamp;
use sd_notify::NotifyState;
use tracing::{error, info};

use super::{
    InForce, Offer, Outcome, Prepared, Reloaded, Reloads, Request,
    difference::{Started, changed, needs_restart, slots_between},
};
use crate::{
    config::{Config, Interface},
    datapath::{Cpus, descriptors},
    memory::Memory,
    notify::notify,
    question::Views,
    sink,
    text::with_causes,
};

/// How long the coordinator may take to answer: it may be closing a window.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the configuration, as it was read at the start; or tells what is wrong with it.
pub type Reread<'a> = &'a (dyn Fn() -> Result<Config, String> + Sync);

/// Makes other configurations ready.
pub struct Reloader<'a> {
    reread: Reread<'a>,
    started: Started,
    cpus: &'a Cpus,
    /// Threads that wait for something.
    threads: u64,
    hangups: Receiver<()>,
    requests: Receiver<Request>,
    end: Receiver<Infallible>,
    offers: Sender<Offer>,
    in_force: Arc<Mutex<InForce>>,
}

impl<'a> Reloader<'a> {
    /// A reloader, and the coordinator's side of it. It goes to work at each of `hangups`, and for each of `requests`.
    pub fn new(
        (reread, hangups): (Reread<'a>, Receiver<()>),
        requests: Receiver<Request>,
        (config, interfaces): (Arc<Config>, usize),
        started: Started,
        (cpus, threads): (&'a Cpus, u64),
    ) -> (Self, Reloads) {
        let in_force = Arc::new(Mutex::new(InForce { config, interfaces, generation: 0 }));
        let (offers, offers_out) = bounded(0);
        let (end_in, end) = bounded(0);
        let reloads = Reloads { offers: offers_out, in_force: in_force.clone(), _end: end_in };
        (Self { reread, started, cpus, threads, hangups, requests, end, offers, in_force }, reloads)
    }

    /// Works until the coordinator's side is gone.
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
                        // Whoever asked may be gone.
                        let _ = reply.send(self.reload("weir reload"));
                        waker.wake();
                    }
                    Err(_) => self.requests = never(),
                },
            }
        }
    }

    /// Reads the configuration, and says in the log what came of it; `asked_by` whom.
    fn reload(&self, asked_by: &str) -> Outcome {
        // systemd asks for the time, too.
        notify(&NotifyState::monotonic_usec_now().map_or_else(|_| vec![], |now| vec![NotifyState::Reloading, now]));
        let outcome = self.prepare();
        notify(&[NotifyState::Ready]);
        match &outcome {
            Ok(Reloaded { applies_at, changed }) => {
                let changed = if changed.is_empty() { "nothing".to_owned() } else { changed.join(", ") };
                info!(asked_by, changed, %applies_at, "the configuration is valid, and applies from the end of this window on");
            }
            Err(why) => {
                // One line, however many mistakes there are.
                let why = why.trim_end().replace('\n', "; ");
                error!(asked_by, "the configuration stays as it is: {why}");
            }
        }
        outcome
    }

    fn prepare(&self) -> Outcome {
        loop {
            let base = self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let config = (self.reread)()?;
            let changed = changed(&base.config, &config).into_iter().map(str::to_owned).collect();
            let prepared = self.make_ready(&base, config)?;
            if let Some(applies_at) = self.offer(prepared)? {
                return Ok(Reloaded { applies_at, changed });
            }
        }
    }

    /// Makes everything that the configuration needs.
    fn make_ready(&self, base: &InForce, config: Config) -> Result<Prepared, String> {
        if config.interfaces.is_empty() {
            return Err("it names no interface to measure: list some under `interfaces:`".to_owned());
        }
        let stays = needs_restart(&base.config, &config, self.started);
        if !stays.is_empty() {
            return Err(stays.join("; "));
        }
        let interfaces = slots_between(&base.config, &config, base.interfaces);
        let views = Views::new(&config, interfaces).map_err(|error| with_causes(&error))?;
        let memory = Memory::plan(&config, &views, self.cpus, self.started.has_programs);
        memory.check_budget(&config, &views, self.cpus).map_err(|error| with_causes(&error))?;
        if self.started.has_programs {
            let any_number = config.interfaces.iter().any(Interface::is_pattern);
            let provided = descriptors::provide(self.cpus.possible.into(), self.threads, any_number);
            provided.map_err(|error| with_causes(&error))?;
        }
        let new: Vec<_> = config.sinks.iter().filter(|sink| !base.config.sinks.contains(sink)).cloned().collect();
        let opened = sink::open(&new).map_err(|error| with_causes(&error))?;
        let webhook = config.alerts.webhook.as_ref().filter(|_| config.alerts.webhook != base.config.alerts.webhook);
        let webhook = webhook.map(sink::open_webhook).transpose().map_err(|error| with_causes(&error))?;
        Ok(Prepared {
            config: Arc::new(config),
            views,
            interfaces,
            memory_bytes: memory.resident(),
            opened: new.into_iter().zip(opened).collect(),
            webhook,
            from: base.generation,
        })
    }

    /// Hands over what is ready. Gives the time from which it applies; nothing if something else has come into force since
    /// it was made.
    fn offer(&self, prepared: Prepared) -> Result<Option<Timestamp>, String> {
        let ends = || "weir ends".to_owned();
        let (reply, answer) = bounded(1);
        self.offers.send_timeout(Offer { prepared, reply }, PATIENCE).map_err(|error| {
            if error.is_timeout() { "weir is busy with the end of a window: reload again".to_owned() } else { ends() }
        })?;
        answer.recv_timeout(PATIENCE).map_err(|_| ends())
    }
}
