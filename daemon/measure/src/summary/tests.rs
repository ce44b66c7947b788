use std::{cmp::Reverse, sync::Arc, time::Duration};

use weir_common::{
    control::OTHERS,
    flow::FlowKey,
    ledger::{Loss, Uncertain},
    record::Record,
    size::size_class,
};
use weir_config::{Estimates, view::ViewKey};
use weir_datapath::edge::Edge;
use weir_sketch::{Seen, hash::Key};

use super::*;
use crate::{account::ledgers, answer::Rows, ranking::Ranked, sampling_error::Sampling};

fn plan(estimates: &Estimates, top: usize) -> Arc<Views> {
    Views::built_in(estimates, top)
}

/// The list of flows.
fn flows(closed: Closed, plan: &Views) -> Vec<Ranked<ViewKey>> {
    let summary = Summary::merge(&mut [closed], plan, 1, FilterState::steadily(&seen()), 0.999).unwrap();
    summary.views[0].ranking().unwrap().by_bytes.clone()
}

/// A window of one flow with 10,000 packets of 100 bytes. One packet in ten was taken: `came` of them arrived, and
/// `lost` were lost.
fn sampled(came: u64, lost: u64) -> Closed {
    let estimates = Estimates { top_error: 0.01, ..Estimates::default() };
    let mut shard = Box::new(Shard::new(&estimates, &plan(&estimates, 10), Key([1, 2])));
    let key = FlowKey::default().with_proto(17);
    let record = Record { key, packets: came as u32, bytes: came * 100, sampling: 10, ..Record::default() };
    shard.absorb(&[record], &seen());
    shard.settle(&seen());
    let mut edge = Edge { sampling: (10, 10), ..Edge::empty(1) };
    let tally = |packets| Tally::new(packets, packets * 100);
    let counters = &mut edge.counters[0];
    counters.seen = tally(10_000);
    counters.sampled_out = tally(10_000 - came - lost);
    counters.lost[Loss::RingFull as usize] = tally(lost);
    edge.sizes[size_class(100)] = 10_000;
    Closed { ring_peak: Some(1.0), ..Closed::new(shard, edge) }
}

#[test]
fn packets_without_a_slot_have_a_ledger() {
    let mut closed = sampled(1_000, 0);
    closed.shard.attributed[OTHERS as usize] = Tally::new(2, 200);
    closed.edge.others.seen = Tally::new(2, 200);
    let with_others = ledgers(&[closed.part()], 1);
    assert_eq!(with_others.len(), OTHERS as usize + 1);
    assert!(with_others[1..OTHERS as usize].iter().all(|ledger| *ledger == Ledger::default()));
    let others = with_others[OTHERS as usize];
    assert!(others.balances() && others.counters.seen.packets == 2, "{others:?}");
    assert_eq!(ledgers(&[sampled(1_000, 0).part()], 1).len(), 1, "there is none without such packets");
}

fn seen() -> Seen {
    Seen::with_capacity(1_000, 0.01, Key([1, 2]).id()).unwrap()
}

fn only_flow(closed: Closed) -> Ranked<ViewKey> {
    let plan = closed.shard.plan().clone();
    flows(closed, &plan)[0]
}

/// A worker's window with this many packets of 100 bytes, each of a different flow. `before` packets came earlier.
fn worker(packets: u64, before: u64, ring_peak: f64) -> Closed {
    let estimates = Estimates::default();
    let mut shard = Box::new(Shard::new(&estimates, &plan(&estimates, 10), Key([1, 2])));
    let records: Vec<_> = (before..before + packets)
        .map(|nth| {
            let key = FlowKey::default().with_proto(17).with_ports(nth as u16, 53);
            Record { key, packets: 2, bytes: 200, sampling: 1, ..Record::default() }
        })
        .collect();
    shard.absorb(&records, &seen());
    shard.settle(&seen());
    let mut edge = Edge::empty(2);
    edge.counters[0].seen = Tally::new(2 * packets + 5, 200 * packets + 300);
    edge.counters[0].repeated = Tally::new(3, 180);
    edge.counters[1].seen = Tally::new(7, 700);
    edge.sizes[size_class(100)] = 2 * packets;
    edge.sizes[size_class(60)] = 5;
    let mut rates = [Rates::default(), Rates::default()];
    // One worker reads each interface.
    rates[usize::from(before > 0)].add(Tally::new(7, 700), Duration::from_secs(1));
    edge.rates = rates.into();
    Closed { ring_peak: Some(ring_peak), ..Closed::new(shard, edge) }
}

#[test]
fn the_parts_of_workers_add_up() {
    let plan = plan(&Estimates::default(), 10);
    let merge = |window: &mut [Closed]| {
        for closed in window.iter_mut() {
            assert_eq!(closed.shard.plan().questions.len(), plan.questions.len());
        }
        Summary::merge(window, &plan, 2, FilterState::steadily(&seen()), 0.999).unwrap()
    };
    // The first worker also has 50 of these flows.
    let summary = merge(&mut [worker(100, 0, 0.25), worker(200, 50, 0.5)]);
    assert_eq!((summary.seen(), summary.fed()), (Tally::new(624, 62_000), Tally::new(618, 61_640)));
    assert_eq!((summary.records, summary.cache_hit_rate(), summary.ring_peak), (300, Some(0.5), Some(0.5)));
    assert_eq!((summary.protocols.udp.value, summary.protocols.ipv4.value), (600, 600));
    assert!((245..=255).contains(&summary.flows.value), "{:?}", summary.flows);
    assert_eq!([summary.sources, summary.destinations].map(|estimate| estimate.value), [1, 1]);
    assert_eq!((summary.new_flows.count.lower, summary.sampling, summary.confidence), (300, 1, 1.0));
    assert!(summary.uncertainty.sampling.is_none(), "nothing was sampled");
    assert_eq!(summary.ledgers.iter().map(|ledger| ledger.attributed.packets).collect::<Vec<_>>(), [600, 0]);
    assert_eq!(summary.sizes.len(), 610);
    assert_eq!(summary.sizes.count_between(60, 60), 10);
    let seconds: Vec<_> = summary.rates.iter().map(|rates| (rates.seconds(), rates.most)).collect();
    assert_eq!(seconds, [(1, Tally::new(7, 700)); 2]);
    let none = merge(&mut []);
    assert_eq!((none.cache_hit_rate(), none.seen(), none.flows), (None, Tally::default(), Estimate::default()));
    let sampled = Summary::merge(&mut [sampled(1_000, 0)], &plan, 1, FilterState::steadily(&seen()), 0.999).unwrap();
    assert_eq!((sampled.confidence, sampled.sampling), (0.999, 10));
}

/// Packets that an offload merged, or whose sizes are not reported yet, may be larger than the largest known one.
#[test]
fn left_out_packets_may_be_as_large_as_the_largest_known_size() {
    let sampling = |change: fn(&mut Closed)| {
        let mut closed = sampled(1_000, 0);
        change(&mut closed);
        let plan = closed.shard.plan().clone();
        let summary = Summary::merge(&mut [closed], &plan, 1, FilterState::steadily(&seen()), 0.999).unwrap();
        let Sampling { largest, is_steady, total, .. } = summary.uncertainty.sampling.unwrap();
        (largest.bytes, is_steady, total.packets)
    };
    let (known, is_steady, total) = sampling(|_| ());
    assert!(known < 200 && is_steady && total == 10_000, "{known}");
    assert!(sampling(|closed| closed.late.push(1)).0 > known);
    assert!(sampling(|closed| closed.edge.counters[0].merged = 1).0 > known);
    assert!(!sampling(|closed| closed.edge.sampling = (9, 10)).1);
}

#[test]
fn a_rate_that_changed_widens_the_bounds_of_tcp_counts() {
    let syn = |least| {
        let mut closed = sampled(1_000, 0);
        closed.edge.sampling = (least, 10);
        closed.edge.counters[0].tcp.syn = 4_000;
        let plan = closed.shard.plan().clone();
        Summary::merge(&mut [closed], &plan, 1, FilterState::steadily(&seen()), 0.999).unwrap().tcp[0].syn
    };
    let [steady, unsteady] = [10, 5].map(syn);
    assert!(steady.lower < 4_000 && 4_000 < steady.upper, "{steady:?}");
    assert!(unsteady.lower < steady.lower && unsteady.upper > steady.upper, "{unsteady:?}, {steady:?}");
}

#[test]
fn a_packet_that_is_lost_after_its_draw_stands_for_those_that_were_left_out() {
    let whole = only_flow(sampled(1_000, 0));
    assert!(whole.packets.upper < 12_000 && whole.packets.lower > 8_000, "{whole:?}");
    let ranked = only_flow(sampled(100, 900));
    for (estimate, truth) in [(ranked.packets, 10_000), (ranked.bytes, 1_000_000)] {
        assert!(estimate.lower < truth / 5 && estimate.upper >= truth, "{estimate:?} of {truth}");
    }
    assert_eq!(ranked.sampled, Some(Tally::new(100, 10_000)));
}

#[test]
fn a_packet_that_a_socket_drops_before_a_draw_counts_once() {
    let mut closed = sampled(1_000, 0);
    let none = only_flow(sampled(1_000, 0));
    closed.edge.counters[0].lost[Loss::SocketDrop as usize] = Tally::new(7, 700);
    closed.edge.counters[0].uncertain = Uncertain { least: Tally::new(7, 700), most: Tally::new(7, 1_000) };
    let ranked = only_flow(closed);
    assert_eq!(ranked.packets.upper, none.packets.upper + 7);
    assert_eq!(ranked.bytes.upper, none.bytes.upper + 1_000);
    assert_eq!(ranked.packets.lower, none.packets.lower);
}

/// All uncertain packets may belong to any one row.
#[test]
fn upper_bounds_include_uncertain_packets() {
    let mut closed = sampled(1_000, 0);
    let none = only_flow(sampled(1_000, 0));
    closed.edge.counters[0].uncertain = Uncertain { least: Tally::new(10, 1_000), most: Tally::new(12, 1_300) };
    let ranked = only_flow(closed);
    assert_eq!(ranked.packets.upper, none.packets.upper + 2);
    assert_eq!(ranked.bytes.upper, none.bytes.upper + 300);
    assert_eq!((ranked.packets.lower, ranked.bytes.lower), (none.packets.lower, none.bytes.lower));
}

/// The packets of a buffer have one key, however many they are. Packets that weir missed may have any.
#[test]
fn buffers_have_no_keys_that_no_record_has() {
    const MORE: u64 = 1_000_000;
    let config = "views: [{name: ports, by: [src_ip], measure: {distinct: dst_port}}, {name: all, by: [], measure: flows}, \
                  {name: new, by: [src_ip], measure: new_flows}, {name: even, by: [src_ip], entropy: true}]";
    let plan = Views::new(&weir_config::Config::parse(config, "a test").unwrap(), 1).unwrap();
    let summary = |change: fn(&mut Edge)| {
        let mut shard = Box::new(Shard::new(&Estimates::default(), &plan, Key([1, 2])));
        let record = |port: u16| {
            let key = FlowKey::default().with_proto(17).with_ports(port, 53);
            Record { key, packets: 2, bytes: 200, sampling: 1, ..Record::default() }
        };
        shard.absorb(&(0..5).map(record).collect::<Vec<_>>(), &seen());
        shard.settle(&seen());
        let mut edge = Edge::empty(1);
        shard.attributed[0] = Tally::new(10, 1_000);
        edge.counters[0].seen = Tally::new(10, 1_000);
        change(&mut edge);
        Summary::merge(&mut [Closed::new(shard, edge)], &plan, 1, FilterState::steadily(&seen()), 0.999).unwrap()
    };
    let counts = |summary: &Summary| {
        let of_views = summary.views.iter().flat_map(|view| &view.tables).flat_map(|table| match &table.rows {
            Rows::Distinct(rows) => rows.iter().map(|(_, counted)| counted.upper).collect(),
            Rows::Tallies(ranking) => ranking.unlisted.map_or(vec![], |most| vec![most.packets, most.bytes]),
            Rows::Prefixes(_) => vec![],
        });
        let Summary { sources, destinations, flows, new_flows, .. } = summary;
        let all = [*sources, *destinations, *flows, new_flows.count].map(|count| count.upper);
        all.into_iter().chain(of_views).collect::<Vec<u64>>()
    };
    let none = summary(|_| ());
    let buffers = summary(|edge| {
        let least = Tally::new(1, 1_000);
        edge.counters[0].uncertain = Uncertain { least, most: Tally::new(1 + MORE, 1_000 + MORE) };
    });
    assert_eq!(counts(&buffers), counts(&none));
    let row = |summary: &Summary| summary.views[0].ranking().unwrap().by_bytes[0].packets.upper;
    assert_eq!(row(&buffers), row(&none) + MORE, "all packets may belong to one row");
    let entropy = |summary: &Summary| summary.views.iter().find_map(|view| view.entropy).unwrap();
    assert!(entropy(&buffers).keys.upper == entropy(&none).keys.upper, "{:?}", entropy(&buffers));
    let missed = summary(|edge| edge.miss(0, Tally::default(), Tally::new(MORE, MORE), false));
    // There are 65,536 ports.
    assert!(counts(&missed).iter().all(|upper| *upper >= MORE || *upper == 1 << 16), "{:?}", counts(&missed));
    assert_eq!(row(&missed), row(&none) + MORE);
}

/// The uncertain packets of one interface do not widen the bounds of another.
#[test]
fn uncertain_packets_widen_only_the_bounds_of_their_interface() {
    let plan = plan(&Estimates::default(), 10);
    let most = |uncertain: bool| {
        let mut closed = worker(100, 0, 0.0);
        if uncertain {
            closed.edge.counters[0].uncertain = Uncertain { least: Tally::new(1, 100), most: Tally::new(5, 900) };
        }
        let summary = Summary::merge(&mut [closed], &plan, 2, FilterState::steadily(&seen()), 0.999).unwrap();
        let Uncertainty { slots, everywhere, .. } = &summary.uncertainty;
        [slots[0].most, slots[1].most, everywhere.most]
    };
    let ([one, other, all], more) = (most(false), Tally::new(4, 800));
    assert_eq!(most(true), [[one, more].into_iter().sum(), other, [all, more].into_iter().sum()]);
}

/// A truncated list favours lucky keys: the value of its last row is less than its sample says. A list with room
/// for all keys has no such bias.
#[test]
fn values_of_a_truncated_list_allow_for_luck() {
    let listed = |top| {
        let plan = plan(&Estimates::default(), top);
        let mut shard = Box::new(Shard::new(&Estimates::default(), &plan, Key([1, 2])));
        let record = |flow: u16| {
            let key = FlowKey::default().with_proto(17).with_ports(flow, 53);
            let packets = 20 + u32::from(flow);
            Record { key, packets, bytes: u64::from(packets) * 100, sampling: 10, ..Record::default() }
        };
        shard.absorb(&(0..30).map(record).collect::<Vec<_>>(), &seen());
        shard.settle(&seen());
        let mut edge = Edge { sampling: (10, 10), ..Edge::empty(1) };
        edge.counters[0].sampled_out = Tally::new(9 * 1_035, 9 * 103_500);
        edge.sizes[size_class(100)] = 11_000;
        flows(Closed::new(shard, edge), &plan)
    };
    for (list, top) in [(listed(50), 30), (listed(5), 5)] {
        assert_eq!(list.len(), top);
        let last = list[top - 1];
        let sampled = last.sampled.unwrap();
        let of_sample = last.packets.value as f64 / (10 * sampled.packets) as f64;
        assert!(if top == 30 { of_sample == 1.0 } else { (0.3..0.8).contains(&of_sample) }, "{last:?}");
        assert!(list.is_sorted_by_key(|ranked| Reverse(ranked.bytes.value)));
        let proportion = last.bytes.value as f64 / last.packets.value as f64;
        assert!((proportion - 100.0).abs() < 5.0, "{last:?}");
    }
}
