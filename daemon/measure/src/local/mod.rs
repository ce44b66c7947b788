//! What is measured with a local key: distinct counts over horizons that are longer than a window, and hosts that were
//! not seen for a long time.
//!
//! The keys of the other sketches change every day (see [`crate::keys`]), so sketches of two days cannot be united. The
//! local key lives as long as the horizons and the filter of known hosts. Nothing that is made with it leaves the
//! machine, neither a sketch nor the fingerprint of the key: reports have numbers only.
//!
//! Each worker's shard has a [`local_shard`](crate::local_shard). At the end of a window, [`Local`] unites these, adds
//! the union to each [`horizon`], and counts hosts that the filter of [`known_hosts`](crate::known_hosts) did not know.
//! `image` is its format on disk.

pub mod horizon;
mod image;

use std::{mem, net::IpAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use weir_config::{Config, NewHosts};
use weir_sketch::{Estimate, MergeError, hash::Key};
use weir_system::memory::Part as MemoryPart;

use self::horizon::Horizon;
pub use self::image::{DamagedImage, Kept};
use crate::{
    closed::Closed,
    known_hosts::{GENERATIONS, KnownHosts},
    local_shard::{Common, LocalShard},
    new_flows,
    summary::Summary,
    window::Span,
};

/// Images that are in memory at once: one that is made, and one that is written.
const IMAGES: usize = 2;

/// What a report says about a window besides its summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// The distinct counts of each horizon, the shortest first.
    pub horizons: Vec<horizon::Answer>,
    /// The new hosts, if they are looked for.
    pub new_hosts: Option<NewHostsAnswer>,
}

/// Hosts that the filter of known hosts did not know.
#[derive(Clone, Debug, PartialEq)]
pub struct NewHostsAnswer {
    /// Their number. The lower bound always holds.
    pub count: Estimate,
    /// The highest probability in the window that the filter mistook a new host for a known one.
    pub false_positive_rate: f64,
    /// The share of the bits of the current generation that are set.
    pub fill: f64,
    /// Since when the filter knows hosts.
    pub since: Timestamp,
    /// For how long of this weir has measured, at the end of the window.
    pub known: Duration,
    /// True if weir has not known hosts for long enough, so that known ones count as new.
    pub is_learning: bool,
    /// The first of them in the order in which workers met them: at most
    /// [`LISTED_MAX`](crate::local_shard::LISTED_MAX).
    pub hosts: Vec<IpAddr>,
}

/// Everything that is measured with the local key.
pub struct Local {
    key: Key,
    horizons: Vec<Horizon>,
    hosts: Option<Hosts>,
}

/// A generation of known hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// When it began; `None` before its first window.
    pub begun: Option<Timestamp>,
    /// For how long of it weir has measured.
    pub filled: Duration,
}

/// The known hosts.
struct Hosts {
    settings: NewHosts,
    filter: Arc<KnownHosts>,
    /// The current generation, then the youngest.
    generations: [Generation; GENERATIONS],
    /// Whether the filter was rotated in this window, and the rate of the generation that was emptied.
    emptied: Option<f64>,
    /// For how long weir knew hosts when the window began.
    known_before: Duration,
}

impl Local {
    /// What this configuration needs, if anything, beginning anew with this key.
    pub fn new(config: &Config, key: Key) -> Option<Self> {
        Self::resume(config, Kept { key, horizons: Vec::new(), hosts: None })
    }

    /// Continues with what an earlier weir has left. Horizons that are not configured any more are dropped. Known hosts
    /// are dropped if the filter has another size now.
    pub fn resume(config: &Config, kept: Kept) -> Option<Self> {
        let Kept { key, mut horizons, hosts } = kept;
        if !config.has_local_key() {
            return None;
        }
        let mut parts_of = |length: &Duration| {
            let nth = horizons.iter().position(|(kept, _)| kept == length);
            nth.map(|nth| horizons.swap_remove(nth).1).unwrap_or_default()
        };
        let interval = config.report.interval;
        let horizons = config.report.horizons.iter();
        let horizons =
            horizons.map(|length| Horizon::new(*length, interval, key.id(), parts_of(length))).collect::<Vec<_>>();
        let hosts = config.new_hosts.map(|settings| Hosts::new(settings, key.id(), hosts));
        Some(Self { key, horizons, hosts })
    }

    /// What the local shards of all workers have in common.
    pub fn common(&self) -> Common {
        Common {
            key: self.key,
            has_horizons: !self.horizons.is_empty(),
            known_hosts: self.hosts.as_ref().map(|hosts| hosts.filter.clone()),
        }
    }

    /// The memory that this configuration needs besides that of shards, with a line for each.
    pub fn memory(config: &Config) -> [MemoryPart; 3] {
        let bytes = |length: &Duration| Horizon::bytes_for(*length, config.report.interval);
        let of_horizons: usize = config.report.horizons.iter().map(bytes).sum();
        let hosts = config.new_hosts.map_or(0, |hosts| KnownHosts::bytes_for(hosts.hosts));
        let images = IMAGES * (of_horizons + hosts);
        [
            MemoryPart::new("horizons", of_horizons as u64, "their parts, and room to unite them").if_any(),
            MemoryPart::new("filter of known hosts", hosts as u64, "shared by all").if_any(),
            MemoryPart::new("their images for the disk", images as u64, "while they are written").if_any(),
        ]
    }

    /// Notes that a window of this length ends now, and rotates the filter of known hosts if that is due. The daemon
    /// calls it before it orders the workers to close the window, as [`crate::seen`] explains.
    pub fn end_window(&mut self, span: Span) {
        if let Some(hosts) = &mut self.hosts {
            hosts.end_window(span);
        }
    }

    /// Adds a window that has ended, whose shards were merged into `summary`. Bounds hold with the probability
    /// `confidence`.
    ///
    /// # Errors
    ///
    /// The shards were built differently.
    pub fn add(
        &mut self,
        window: &mut [Closed],
        span: Span,
        summary: &Summary,
        confidence: f64,
    ) -> Result<Answers, MergeError> {
        let workers = window.len() as u64;
        let mut shards = window.iter_mut().filter_map(|closed| closed.shard.local.as_deref_mut());
        let Some(first) = shards.next() else { return Ok(self.add_nothing(span, summary, confidence)) };
        for other in shards {
            first.merge(other)?;
        }
        self.add_shard(first, workers, span, summary, confidence)
    }

    /// Adds a window in which no worker was ready.
    fn add_nothing(&mut self, span: Span, summary: &Summary, confidence: f64) -> Answers {
        let nothing = LocalShard::new(&self.common());
        self.add_shard(&nothing, 0, span, summary, confidence).unwrap_or_default()
    }

    fn add_shard(
        &mut self,
        local: &LocalShard,
        workers: u64,
        span: Span,
        summary: &Summary,
        confidence: f64,
    ) -> Result<Answers, MergeError> {
        let (unknown, most) = (summary.uncertainty.unknown, summary.uncertainty.most_keys(false));
        let mut answers = Answers::default();
        if let Some(unique) = &local.unique {
            let window = horizon::Window {
                start: span.start,
                end: span.end,
                length: span.length,
                clock_step: span.clock_step,
                unknown,
                most,
                unique,
                counted: [summary.sources, summary.destinations, summary.flows],
            };
            for horizon in &mut self.horizons {
                answers.horizons.extend(horizon.add(&window, confidence)?);
            }
        }
        let counted = new_flows::Counted { new: local.new_hosts, workers, unknown, flows: summary.sources };
        answers.new_hosts = self.hosts.as_mut().map(|hosts| hosts.answer(counted, local, span, confidence));
        Ok(answers)
    }
}

impl Hosts {
    fn new(settings: NewHosts, key_id: u64, kept: Option<image::KeptHosts>) -> Self {
        let planned = settings.hosts;
        let kept = kept.and_then(|image::KeptHosts { filters, generations }| {
            Some((KnownHosts::from_generations(filters, planned, key_id)?, generations))
        });
        let (filter, generations) =
            kept.unwrap_or_else(|| (KnownHosts::new(planned, key_id), [Generation::default(); GENERATIONS]));
        Self { settings, filter: Arc::new(filter), generations, emptied: None, known_before: Duration::ZERO }
    }

    /// For how long weir has measured since it knows hosts.
    fn known(&self) -> Duration {
        self.generations.iter().map(|generation| generation.filled).sum()
    }

    fn end_window(&mut self, span: Span) {
        self.known_before = self.known();
        let [current, others @ ..] = &mut self.generations;
        current.begun.get_or_insert(span.start);
        current.filled = current.filled.saturating_add(span.length);
        let is_over = current.filled >= self.settings.memory() / (GENERATIONS as u32 - 1);
        if is_over || self.filter.is_full() {
            others.rotate_right(1);
            others[0] = mem::take(current);
            self.emptied = Some(self.filter.rotate());
        }
    }

    fn answer(
        &mut self,
        counted: new_flows::Counted,
        local: &LocalShard,
        span: Span,
        confidence: f64,
    ) -> NewHostsAnswer {
        let emptied = self.emptied.take();
        let false_positive_rate = self.filter.false_positive_rate(emptied.unwrap_or(0.0));
        let since = self.generations.iter().rev().find_map(|generation| generation.begun).unwrap_or(span.start);
        NewHostsAnswer {
            count: counted.bounded(false_positive_rate, emptied.is_some(), confidence),
            false_positive_rate,
            fill: self.filter.fill(),
            since,
            known: self.known(),
            is_learning: self.known_before < self.settings.learning,
            hosts: local.listed.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
