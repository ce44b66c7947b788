//! Runs one seed's traffic through the measurement: packets go into collectors, and their shards into a summary.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use weir_common::{flow::FlowKey, hash::FlowHashes, ledger::Tally, packet::Link};
use weir_config::Config;
use weir_datapath::{Cpus, Plan, rates::WindowSeconds, userspace::Buffer};
use weir_measure::{
    new_flows::FilterState, order::Closed, question::Views, seen, shard::Shard, summary::Summary,
    userspace::UserspaceAggregator,
};
use weir_sketch::{
    Seen,
    hash::{Key, KeyedHash},
};
use weir_tests::{oracle::Oracle, traffic::Packet};

use crate::{
    judge::Judge,
    scenario::{Geometry, RATES, Rate, Scenario},
    tally::{CONFIDENCES, STATED, Tallies},
    views::{self, INTERFACES},
};

/// Measures a scenario at every rate with every size, and judges the results.
pub fn all(scenario: &'static Scenario, seed: u64, found: &mut Tallies) -> Result<()> {
    let packets = scenario.packets(seed)?;
    // The first third of the packets only makes flows known.
    let (before, window) = packets.split_at(packets.len() / 3);
    let mut oracle = Oracle::new();
    oracle.extend(before.iter().map(|packet| &packet.truth));
    oracle.next_window();
    oracle.extend(window.iter().map(|packet| &packet.truth));
    let judge = Judge::new(&oracle);
    for (nth, (geometry, rate)) in Geometry::ALL.into_iter().flat_map(|size| RATES.map(|rate| (size, rate))).enumerate()
    {
        let key = Key([seed, nth as u64]);
        // The window of one worker can be merged repeatedly; that of two workers only once.
        let workers = 1 + (seed as usize + nth) % 2;
        let Measured { mut window, seen, memory } = measure(geometry, rate, key, workers, (before, window))?;
        let asked = FilterState::steadily(&seen);
        let confidences: &[f64] = if workers == 1 { &CONFIDENCES } else { &[STATED] };
        for &confidence in confidences {
            let plan = window[0].shard.plan().clone();
            let summary = Summary::merge(&mut window, &plan, INTERFACES as usize, asked, confidence)?;
            judge.summary(&plan, &summary, (rate, confidence), found.cell((scenario.name, geometry, rate), memory));
        }
    }
    Ok(())
}

fn measure(
    geometry: Geometry,
    rate: Rate,
    key: Key,
    workers: usize,
    (before, packets): (&[Packet], &[Packet]),
) -> Result<Measured> {
    let config = geometry.config(rate)?;
    let views = Views::new(&config, INTERFACES as usize)?;
    let mut meter = Meter::new(&config, &views, key, workers, before);
    for (nth, packet) in packets.iter().enumerate() {
        if let Some(rate) = rate.change(nth, packets.len(), key.0[0]) {
            for collector in &mut meter.collectors {
                collector.set_rate(rate);
            }
        }
        meter.measure(nth, packet);
    }
    Ok(meter.close())
}

/// The workers that measure a window.
pub struct Meter<'a> {
    config: &'a Config,
    views: &'a Arc<Views>,
    key: Key,
    collectors: Vec<UserspaceAggregator>,
    seen: Arc<Seen>,
}

/// A window that has been measured.
pub struct Measured {
    pub window: Vec<Closed>,
    pub seen: Arc<Seen>,
    /// Bytes of a worker's sketches, and of the filter of seen flows.
    pub memory: usize,
}

impl<'a> Meter<'a> {
    /// A meter with this many workers, which know the flows of earlier packets.
    pub fn new<'p>(
        config: &'a Config,
        views: &'a Arc<Views>,
        key: Key,
        workers: usize,
        before: impl IntoIterator<Item = &'p Packet>,
    ) -> Self {
        let key = key.derive("sketches");
        let seen = Arc::new(seen::filter(&config.seen_flows, key.id()));
        let hash = KeyedHash::new(key);
        for packet in before {
            if let Ok(flow) = packet.truth.flow {
                seen.insert(FlowHashes::new(&hash, &FlowKey::from(flow)).flow);
            }
        }
        if seen.should_rotate() {
            seen.rotate();
        }
        let plan = Plan { interfaces: INTERFACES, ..Plan::new(config, key.derive("flow cache"), &Cpus::of(1)) };
        let shard = || Box::new(Shard::new(&config.estimates, views, key));
        let collector = |nth| UserspaceAggregator::new(&plan.of_reader(nth), seen.clone(), shard());
        let collectors = (0..workers).map(collector).collect();
        Self { config, views, key, collectors, seen }
    }

    /// Measures a packet; the workers take turns.
    pub fn measure(&mut self, nth: usize, packet: &Packet) {
        let tally = Tally::new(1, packet.truth.bytes);
        let (headers, link) = (&packet.frame[..], Link::Ethernet);
        let buffer = Buffer { headers, link, tally, uncertain: None, tick: 0, second: None, repeated: false };
        let slot = packet.truth.flow.as_ref().map_or(0, views::slot);
        let workers = self.collectors.len();
        self.collectors[nth % workers].measure(slot, &buffer);
    }

    /// Ends the window and returns it.
    pub fn close(mut self) -> Measured {
        let shard = || Box::new(Shard::new(&self.config.estimates, self.views, self.key));
        let window: Vec<_> = self
            .collectors
            .iter_mut()
            .map(|collector| collector.close(shard(), &WindowSeconds::at(0, Duration::ZERO)))
            .collect();
        let memory = window[0].shard.memory_bytes() + self.seen.memory_bytes();
        Measured { window, seen: self.seen, memory }
    }
}
