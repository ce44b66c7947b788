//! Compares a summary with the truth.

use std::{collections::HashMap, net::IpAddr};

use weir_common::{flow::FlowKey, ledger::Tally};
use weir_config::view::ViewKey;
use weir_measure::{answer::Answer, question::Views, ranking::Ranking, summary::Summary};
use weir_sketch::Estimate;
use weir_tests::{
    oracle::{By, Dimension, Oracle, Subject},
    truth::{Key, Lacks},
};

use crate::{
    scenario::Rate,
    tally::{About, Cell, STATED},
    views::{Statement, Truths},
};

/// The truth about a window.
pub struct Judge {
    dimensions: [HashMap<Subject, Tally>; 5],
    /// The bytes of the tenth largest flow, and the ten largest flows' sum.
    tenth: u64,
    top: usize,
    distinct: [(&'static str, u64); 3],
    new: u64,
    views: Truths,
}

impl Judge {
    /// Adds up what the oracle knows.
    pub fn new(oracle: &Oracle) -> Self {
        const TOP: usize = 10;
        let top = oracle.top(Dimension::Flows, By::Bytes, TOP);
        Self {
            dimensions: Dimension::ALL.map(|dimension| oracle.tallies(dimension)),
            tenth: top.last().map_or(0, |(_, tally)| tally.bytes),
            top: top.len(),
            distinct: [
                ("sources", oracle.distinct(Dimension::Sources)),
                ("destinations", oracle.distinct(Dimension::Destinations)),
                ("flows", oracle.distinct(Dimension::Flows)),
            ],
            new: oracle.new_flows(),
            views: Truths::new(oracle),
        }
    }

    /// Judges everything in a summary of packets that were sampled at this rate, at this confidence.
    pub fn summary(&self, plan: &Views, summary: &Summary, (rate, confidence): (Rate, f64), cell: &mut Cell) {
        let empty = Ranking::default();
        let list = |nth: usize| summary.views.get(nth).and_then(Answer::ranking).unwrap_or(&empty);
        let failed = [0, 1, 2, 3, 4].map(|nth| self.list(plan, nth, list(nth)));
        for (dimension, failed) in Dimension::ALL.into_iter().zip(failed) {
            cell.judge(confidence, About::List(dimension.name()), failed);
        }
        let estimates = [summary.sources, summary.destinations, summary.flows];
        for ((name, truth), estimate) in self.distinct.into_iter().zip(estimates) {
            cell.judge(confidence, About::Unique(name), !holds(estimate, truth));
        }
        cell.judge(confidence, About::New, !holds(summary.new_flows.count, self.new));
        for (name, statement, failed) in self.views.judge(plan, &summary.views, rate.is_every_packet()) {
            match statement {
                Statement::Sums => cell.judge(confidence, About::Sums(name), failed),
                Statement::Unique => cell.judge(confidence, About::Unique(name), failed),
                Statement::Spread if confidence == STATED => cell.judge(confidence, About::Spread(name), failed),
                Statement::Spread => (),
            }
        }
        if confidence == STATED {
            self.largest(plan, list(0), cell);
        }
    }

    /// Returns true if any bound of any entry fails.
    fn list(&self, plan: &Views, nth: usize, ranking: &Ranking<ViewKey>) -> bool {
        ranking.by_bytes.iter().chain(&ranking.by_packets).any(|ranked| {
            let truth = self.dimensions[nth].get(&subject(plan, nth, &ranked.key)).copied().unwrap_or_default();
            !holds(ranked.packets, truth.packets) || !holds(ranked.bytes, truth.bytes)
        })
    }

    /// Measures how exactly the largest flows are counted, and whether they are found.
    fn largest(&self, plan: &Views, flows: &Ranking<ViewKey>, cell: &mut Cell) {
        let mut found = 0;
        for ranked in &flows.by_bytes {
            let truth = self.dimensions[0].get(&subject(plan, 0, &ranked.key)).map_or(0, |tally| tally.bytes);
            if truth > 0 {
                let Estimate { value, lower, upper } = ranked.bytes;
                cell.width.add((upper - lower) as f64 / truth as f64);
                cell.error.add(value.abs_diff(truth) as f64 / truth as f64);
            }
            found += usize::from(truth >= self.tenth);
        }
        if !flows.by_bytes.is_empty() {
            cell.precision.add(found as f64 / flows.by_bytes.len() as f64);
        }
        cell.recall.add(found.min(self.top) as f64 / self.top.max(1) as f64);
    }
}

/// The key of a row of the `nth` list, as the oracle names it.
pub fn subject(plan: &Views, nth: usize, key: &ViewKey) -> Subject {
    let key = plan.questions[nth].by.flow(key);
    match Dimension::ALL[nth] {
        Dimension::Flows => Subject::Flow(flow(key)),
        Dimension::Sources => Subject::Source(key.src_ip()),
        Dimension::Destinations => Subject::Destination(key.dst_ip()),
        Dimension::Pairs => Subject::Pair(key.src_ip(), key.dst_ip()),
        Dimension::Services => Subject::Service(key.proto(), key.port()),
    }
}

/// Returns true if the bounds have the truth, and the value, between them.
pub fn holds(Estimate { value, lower, upper }: Estimate, truth: u64) -> bool {
    (lower..=upper).contains(&truth) && (lower..=upper).contains(&value)
}

/// The oracle's name of a flow.
fn flow(key: FlowKey) -> Key {
    let lacks = Lacks::Nothing;
    let [src, dst]: [IpAddr; 2] = [key.src_ip(), key.dst_ip()];
    Key { src, dst, src_port: key.src_port(), dst_port: key.dst_port(), proto: key.proto(), lacks }
}
