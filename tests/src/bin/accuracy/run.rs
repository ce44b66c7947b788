//! One seed's traffic through the measurement: packets into collectors, their shards into a summary.

use std::sync::Arc;

use anyhow::Result;
use weir::{
    datapath::{Cpus, Plan, userspace::Buffer},
    measure::{new_flows::Asked, order::Closed, seen, shard::Shard, summary::Summary, userspace::UserspaceCollector},
    question::Views,
};
use weir_common::{flow::FlowKey, hash::FlowHashes, ledger::Tally, packet::Link};
use weir_sketch::hash::{Key, KeyedHash};
use weir_tests::{oracle::Oracle, traffic::Packet};

use crate::{
    judge::Judge,
    scenario::{Geometry, RATES, Rate, Scenario},
    tally::{CONFIDENCES, STATED, Tallies},
};

/// Entries of each list.
const TOP: usize = 10;

/// Measures a scenario at every rate with every size, and judges what comes out.
pub fn all(scenario: &'static Scenario, seed: u64, found: &mut Tallies) -> Result<()> {
    let packets = scenario.packets(seed)?;
    // The first third only makes flows known.
    let (before, window) = packets.split_at(packets.len() / 3);
    let mut oracle = Oracle::new();
    oracle.extend(before.iter().map(|packet| &packet.truth));
    oracle.next_window();
    oracle.extend(window.iter().map(|packet| &packet.truth));
    let judge = Judge::new(&oracle);
    for (nth, (geometry, rate)) in Geometry::ALL.into_iter().flat_map(|size| RATES.map(|rate| (size, rate))).enumerate()
    {
        let key = Key([seed, nth as u64]);
        // One worker's window can be merged again and again; that of two, only once.
        let workers = 1 + (seed as usize + nth) % 2;
        let Measured { mut window, seen, memory } = measure(geometry, rate, key, workers, before, window);
        let asked = Asked::steadily(&seen);
        let confidences: &[f64] = if workers == 1 { &CONFIDENCES } else { &[STATED] };
        for &confidence in confidences {
            let plan = window[0].shard.plan().clone();
            let summary = Summary::merge(&mut window, (&plan, &[]), 1, asked, confidence)?;
            judge.summary(&plan, &summary, confidence, found.cell((scenario.name, geometry, rate), memory));
        }
    }
    Ok(())
}

/// A window that was measured.
struct Measured {
    window: Vec<Closed>,
    seen: Arc<weir_sketch::Seen>,
    /// Bytes of a worker's sketches, and of the filter of seen flows.
    memory: usize,
}

fn measure(
    geometry: Geometry,
    rate: Rate,
    key: Key,
    workers: usize,
    before: &[Packet],
    packets: &[Packet],
) -> Measured {
    let config = geometry.config(rate);
    let sketch_key = key.derive("sketches");
    let views = Views::built_in(&config.estimates, TOP);
    let shard = || Box::new(Shard::new(&config.estimates, &views, sketch_key));
    let seen = Arc::new(seen::filter(&config.seen_flows, sketch_key.id()));
    let hash = KeyedHash::new(sketch_key);
    for packet in before {
        if let Ok(flow) = packet.truth.flow {
            seen.insert(FlowHashes::new(&hash, &FlowKey::from(flow)).flow);
        }
    }
    if seen.should_rotate() {
        seen.rotate();
    }
    let plan = Plan { interfaces: 1, ..Plan::new(&config, key, &Cpus::of(1)) };
    let mut collectors: Vec<_> =
        (0..workers).map(|nth| UserspaceCollector::new(&plan.of_reader(nth), seen.clone(), shard())).collect();
    for (nth, packet) in packets.iter().enumerate() {
        if let Some(rate) = rate.change(nth, packets.len(), key.0[0]) {
            collectors.iter_mut().for_each(|collector| collector.set_rate(rate));
        }
        let tally = Tally::new(1, packet.truth.bytes);
        let buffer =
            Buffer { headers: &packet.frame, link: Link::Ethernet, tally, tick: 0, second: 0, repeated: false };
        collectors[nth % workers].measure(0, &buffer);
    }
    let window: Vec<_> = collectors.iter_mut().map(|collector| collector.close(shard())).collect();
    let memory = window[0].shard.memory_bytes() + seen.memory_bytes();
    Measured { window, seen, memory }
}
