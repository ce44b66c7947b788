//! A worker's numbers so far: its exact counters, and the bounds of keys.

use std::{collections::BTreeMap, sync::Arc};

use weir_common::ledger::Tally;
use weir_config::view::ViewKey;
use weir_datapath::edge::Edge;
use weir_sketch::HyperLogLog;

use super::{KeysByQuestion, is_readable};
use crate::{
    account::WorkerAccount,
    heavy_hitters::KeyEstimate,
    hosts,
    protocols::Protocols,
    question::{Question, Views},
    sampling_control::SamplingControl,
    shard::Shard,
    unique::Unique,
};

/// The probability with which a bound of the flows and peers of a worker's hosts may fail.
const FAILURE: f64 = 1.0 - weir_sketch::hyperloglog::CONFIDENCE;

/// A worker's numbers in the open window.
pub struct Numbers {
    /// The questions that it answers.
    pub plan: Arc<Views>,
    /// The fingerprint of its hash key.
    pub key_id: u64,
    /// The exact counters of the worker.
    pub edge: Edge,
    /// The sum of the records of each interface slot.
    pub attributed: Box<[Tally]>,
    /// The sum of all records that feed, scaled by their sampling rates.
    pub total: Tally,
    /// Counts by protocol, scaled by the sampling rates.
    pub protocols: Protocols,
    /// The distinct counts of the worker.
    pub unique: Unique,
    /// Flows that the filter of seen flows did not know.
    pub new_flows: u64,
    /// The numbers for each question.
    pub views: Vec<ViewNumbers>,
    sampling: Option<(u32, u32)>,
    rate: u32,
    is_late: bool,
}

/// A worker's numbers for one question.
#[derive(Default)]
pub struct ViewNumbers {
    /// The sum of all matched records, scaled by their sampling rates.
    pub total: Tally,
    /// The same by interface slot, if each has its own table and total.
    pub by_slot: BTreeMap<usize, Tally>,
    /// The requested keys, in that order.
    pub held: Vec<KeyEstimate<ViewKey>>,
    /// What is counted of each of these keys besides, if they are hosts.
    pub hosts: Vec<hosts::Counts>,
    /// The distinct values, if the question counts them without a key.
    pub unique: Option<HyperLogLog>,
}

impl Numbers {
    /// The numbers of these keys.
    pub fn new(shard: &Shard, keys: &KeysByQuestion, (edge, is_late): (Edge, bool), control: &SamplingControl) -> Self {
        let questions = shard.plan().questions.iter().enumerate().zip(keys);
        let views = questions.map(|((nth, question), keys)| ViewNumbers::new(shard, nth, question, keys)).collect();
        Self {
            plan: shard.plan().clone(),
            key_id: shard.key_id(),
            attributed: shard.attributed.into(),
            total: shard.total,
            protocols: shard.protocols,
            unique: shard.unique.clone(),
            new_flows: shard.new_flows,
            views,
            sampling: sampling(shard, &edge, control),
            rate: control.rate(),
            is_late,
            edge,
        }
    }

    /// Returns the exact numbers.
    pub fn part(&self) -> WorkerAccount<'_> {
        let &Self { ref edge, ref attributed, total, sampling, rate, is_late, .. } = self;
        WorkerAccount { edge, attributed, total, sampling, rate, is_late }
    }
}

impl ViewNumbers {
    fn new(shard: &Shard, nth: usize, question: &Question, keys: &[ViewKey]) -> Self {
        if !is_readable(question) {
            return Self::default();
        }
        let sketch = &shard.views[question.sketch(nth)];
        let look_up = |key: &ViewKey| sketch.look_up(&question.by, shard.hash(), key);
        let mut by_slot = BTreeMap::new();
        if question.view.per_interface {
            let totals = sketch.totals(&question.by);
            let slots = keys.iter().filter_map(|key| question.by.layout.slot(key));
            by_slot.extend(slots.map(|slot| (slot, totals.get(slot).copied().unwrap_or_default())));
        }
        Self {
            total: sketch.total,
            by_slot,
            held: keys.iter().filter_map(look_up).collect(),
            hosts: sketch.hosts().map(|hosts| hosts.counts(keys, FAILURE)).unwrap_or_default(),
            unique: sketch.unique().cloned(),
        }
    }
}

/// The lowest and the highest rate in force so far, if it left anything out or took records at more than 1.
fn sampling(shard: &Shard, edge: &Edge, control: &SamplingControl) -> Option<(u32, u32)> {
    let (mut least, mut most) = (u32::from(shard.sampling_least), u32::from(shard.sampling));
    if edge.has_left_out() {
        let (low, high) = control.in_force();
        least = least.min(low).min(edge.sampling.0);
        most = most.max(high).max(edge.sampling.1);
    }
    (least <= most).then_some((least, most))
}
