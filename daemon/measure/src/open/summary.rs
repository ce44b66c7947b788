//! All workers' numbers of the open window, added up: its lists so far, with the error of each estimate.

use std::{collections::BTreeMap, sync::Arc};

use weir_common::ledger::{Ledger, Tally};
use weir_config::view::{Measure, ViewKey};
use weir_datapath::interface::MeasuredInterface;
use weir_sketch::{Estimate, HyperLogLog, MergeError};

use super::{KeysByQuestion, Numbers, is_readable, numbers::ViewNumbers};
use crate::{
    account::{Account, WorkerAccount},
    answer::{Answer, Largest, Rows, Table, count_new, counted, keys_of, new_flows, order, parts},
    heavy_hitters::KeyEstimate,
    hosts::HostNumbers,
    look_up::{KeyAnswer, KeyOfView, KeyValue, of_interest, of_interfaces},
    new_flows::{FilterState, NewFlows},
    protocols::{self, Protocols},
    question::{KeyQuery, Question, Views},
    uncertainty::Uncertainty,
    unique::bounded,
};

/// The open window so far.
pub struct OpenSummary {
    /// Every packet seen so far, counted once.
    pub fed: Tally,
    /// The number of packets by protocol.
    pub protocols: Protocols<Estimate>,
    /// The number of distinct source addresses.
    pub sources: Estimate,
    /// The number of distinct destination addresses.
    pub destinations: Estimate,
    /// The number of distinct flows.
    pub flows: Estimate,
    /// Flows not seen before.
    pub new_flows: NewFlows,
    /// The answers of the views, in their order. A view that the open window cannot answer has no table.
    pub views: Vec<Answer>,
    /// The highest sampling rate in force.
    pub sampling: u32,
    /// The probability that all bounds of a ranking hold, in both of its orders together.
    pub confidence: f64,
    /// Why the true numbers may differ from those of the records.
    pub uncertainty: Uncertainty,
    sums: Vec<ViewNumbers>,
}

impl OpenSummary {
    /// Adds up the numbers of all workers, which have the same `plan` and hash key.
    ///
    /// # Errors
    ///
    /// Their sketches were built differently.
    pub fn new(
        mut all: Vec<Numbers>,
        plan: &Views,
        interfaces: usize,
        seen: FilterState<'_>,
        confidence: f64,
    ) -> Result<Self, MergeError> {
        let workers = all.len();
        let account = Account::new(&all.iter().map(Numbers::part).collect::<Vec<WorkerAccount<'_>>>(), interfaces);
        let uncounted = account.uncounted();
        let new: u64 = all.iter().map(|numbers| numbers.new_flows).sum();
        let mut protocols = Protocols::default();
        for numbers in &all {
            protocols.merge(&numbers.protocols);
        }
        let unknown = account.unknown.saturating_add(uncounted.packets);
        let mut distinct = |sketch: fn(&mut Numbers) -> &mut HyperLogLog| {
            let union = merged(all.iter_mut().map(sketch))?;
            Ok(union.map_or_else(Estimate::default, |union| bounded(union, unknown, account.most_keys(), confidence)))
        };
        let (sources, destinations) =
            (distinct(|of| &mut of.unique.sources)?, distinct(|of| &mut of.unique.destinations)?);
        let mut flows = distinct(|of| &mut of.unique.flows)?;
        let new_flows = account.new_flows((new, workers), &mut flows, seen, confidence);
        let mut uncertainty = account.uncertainty(new_flows.count.upper.saturating_sub(new), confidence);
        uncertainty.unknown = unknown;
        uncertainty.lost.add(uncounted);
        let sums = sums(all, plan)?;
        let views = plan.questions.iter().zip(&sums);
        Ok(Self {
            fed: account.ledgers.iter().map(Ledger::fed).sum(),
            protocols: protocols.estimates(&uncertainty.of_view(uncertainty.once, account.scaled, protocols::PARTS)),
            sources,
            destinations,
            flows,
            new_flows,
            views: views.map(|(question, sums)| answer(question, sums, &uncertainty)).collect(),
            sampling: account.sampling,
            confidence: if account.highest == 1 { 1.0 } else { confidence },
            uncertainty,
            sums,
        })
    }

    /// The numbers of these keys, which were requested from the workers. The open window cannot answer all views.
    pub fn look_up(&self, plan: &Views, asks: &[KeyQuery], interfaces: &[MeasuredInterface]) -> Vec<KeyAnswer> {
        let mut all = Vec::new();
        for ask in asks {
            let wanted = of_interfaces(plan, ask, interfaces).into_iter();
            let found = wanted.filter_map(|KeyOfView { view, key }| {
                let known = known(&plan.questions[view], &self.sums[view], &key, &self.uncertainty)?;
                let host = host(&plan.questions[view], &self.sums[view], &key, &self.uncertainty);
                Some(KeyAnswer { view, key, known, host })
            });
            all.extend(of_interest(found.collect()));
        }
        all
    }
}

/// Adds the keys of these queries to those that workers have named.
pub fn add_asked(keys: &mut KeysByQuestion, plan: &Views, asks: &[KeyQuery], interfaces: &[MeasuredInterface]) {
    keys.resize(plan.questions.len(), Vec::new());
    for KeyOfView { view, key } in asks.iter().flat_map(|ask| of_interfaces(plan, ask, interfaces)) {
        if !keys[view].contains(&key) {
            keys[view].push(key);
        }
    }
}

/// The number of keys that these queries mean.
pub fn count_asked(plan: &Views, asks: &[KeyQuery], interfaces: &[MeasuredInterface]) -> usize {
    asks.iter().map(|ask| of_interfaces(plan, ask, interfaces).len()).sum()
}

/// The numbers of all workers for each question.
fn sums(all: Vec<Numbers>, plan: &Views) -> Result<Vec<ViewNumbers>, MergeError> {
    let mut sums: Vec<ViewNumbers> = plan.questions.iter().map(|_| ViewNumbers::default()).collect();
    for (nth, numbers) in all.into_iter().enumerate() {
        for (sum, of) in sums.iter_mut().zip(numbers.views) {
            if nth == 0 { *sum = of } else { sum.add(of)? }
        }
    }
    Ok(sums)
}

impl ViewNumbers {
    /// Adds another worker's numbers of the same keys.
    fn add(&mut self, other: Self) -> Result<(), MergeError> {
        let Self { total, by_slot, held, hosts, unique } = other;
        self.total.add(total);
        for (slot, tally) in by_slot {
            self.by_slot.entry(slot).or_default().add(tally);
        }
        for (one, other) in self.held.iter_mut().zip(held) {
            one.value.add(other.value);
            one.lower.add(other.lower);
            one.upper.add(other.upper);
        }
        for (one, other) in self.hosts.iter_mut().zip(hosts) {
            one.add(other);
        }
        match (&mut self.unique, &unique) {
            (Some(one), Some(other)) => one.merge(other),
            _ => Ok(()),
        }
    }
}

fn merged<'a>(mut all: impl Iterator<Item = &'a mut HyperLogLog>) -> Result<Option<&'a HyperLogLog>, MergeError> {
    let Some(first) = all.next() else { return Ok(None) };
    for other in all {
        first.merge(other)?;
    }
    Ok(Some(first))
}

fn answer(question: &Question, sums: &ViewNumbers, uncertainty: &Uncertainty) -> Answer {
    // The bounds of sums are certain, unless packets were left out.
    let is_sure = question.view.measure.is_tally() && uncertainty.sampling.is_none();
    let tables = if is_readable(question) { tables(question, sums, uncertainty) } else { Vec::new() };
    Answer {
        confidence: if is_sure { 1.0 } else { uncertainty.confidence },
        entropy: None,
        hosts: Arc::new(hosts(question, sums, &tables, uncertainty)),
        networks: Arc::default(),
        tables,
        remembered: Vec::new(),
    }
}

/// The numbers of the hosts in these tables.
fn hosts(
    question: &Question,
    sums: &ViewNumbers,
    tables: &[Table],
    uncertainty: &Uncertainty,
) -> BTreeMap<ViewKey, HostNumbers> {
    let keys = keys_of(tables.iter());
    let uncertainties = uncertainty.of_view(uncertainty.whole(question.is_fed_by_all), sums.total, parts(question));
    let listed = sums.held.iter().zip(&sums.hosts).filter(|(held, _)| keys.contains(&held.key));
    listed.map(|(held, counts)| (held.key, HostNumbers::new(*counts, held, &uncertainties, uncertainty))).collect()
}

fn tables(question: &Question, sums: &ViewNumbers, uncertainty: &Uncertainty) -> Vec<Table> {
    let whole = uncertainty.whole(question.is_fed_by_all);
    let keys = || sums.held.iter().copied();
    match question.view.measure {
        Measure::Bytes | Measure::Packets => {
            let uncertainties = uncertainty.of_view(whole, sums.total, parts(question));
            let total_of = |slot: Option<usize>| match slot {
                Some(slot) => sums.by_slot.get(&slot).copied().unwrap_or_default(),
                None => sums.total,
            };
            let errors = (&uncertainties, uncertainty);
            let largest = Largest::of(question, keys().filter(has_some), question.view.top, None, errors);
            largest.tables(question.reported_rows(largest.count()), total_of)
        }
        Measure::NewFlows => vec![count_new(question, keys().filter(has_some), sums.total, uncertainty)],
        Measure::Flows | Measure::Distinct(_) => {
            let distinct = sums.unique.iter().map(|distinct| distinct.bounds_at(uncertainty.confidence));
            let rows = distinct.map(|of| (ViewKey::default(), counted(question, of, uncertainty))).collect();
            vec![Table { slot: None, total: None, rows: Rows::Distinct(rows) }]
        }
    }
}

/// The numbers of one host.
fn host(question: &Question, sums: &ViewNumbers, key: &ViewKey, uncertainty: &Uncertainty) -> Option<HostNumbers> {
    let (held, counts) = sums.held.iter().zip(&sums.hosts).find(|(held, _)| held.key == *key)?;
    let uncertainties = uncertainty.of_view(uncertainty.whole(question.is_fed_by_all), sums.total, parts(question));
    Some(HostNumbers::new(*counts, held, &uncertainties, uncertainty))
}

/// Returns true if a key certainly has traffic. Only then it has a row.
const fn has_some(held: &KeyEstimate<ViewKey>) -> bool {
    held.lower.packets > 0
}

fn known(question: &Question, sums: &ViewNumbers, key: &ViewKey, uncertainty: &Uncertainty) -> Option<KeyValue> {
    if !is_readable(question) {
        return None;
    }
    let held = || sums.held.iter().find(|held| held.key == *key);
    Some(match question.view.measure {
        Measure::Bytes | Measure::Packets => {
            let whole = uncertainty.whole(question.is_fed_by_all);
            let uncertainties = uncertainty.of_view(whole, sums.total, parts(question));
            KeyValue::Sums(uncertainties.ranked(held()?, order(&question.view.measure), 0))
        }
        Measure::NewFlows => KeyValue::Counted(new_flows(sums.total, *held()?, uncertainty)),
        Measure::Flows | Measure::Distinct(_) => {
            let distinct = sums.unique.as_ref()?.bounds_at(uncertainty.confidence);
            KeyValue::Counted(counted(question, distinct, uncertainty))
        }
    })
}
