//! The flow cache, the ring and the window's edge in the kernel: exact, whatever happens in between.

use std::collections::HashMap;

use anyhow::{Context as _, Error, Result, ensure};
use weir::{
    config::Packets,
    datapath::{Plan, ring_records},
};
use weir_common::{
    control::{Flush, FlushOrder},
    cpu::EVICTED_MAX,
    flow::FlowKey,
    hash::{self, SlotKey},
    ledger::{Loss, Tally},
    packet::{Link, Tunnels, parse},
    record::Record,
};
use weir_tests::{
    chance,
    object::{Object, PLAN, Window},
    traffic::{Mix, Packet, Plan as TrafficPlan, Traffic},
};

use crate::frame::{IPV4, ethernet, ipv4, tcp};

/// The smallest cache and the smallest ring that may be configured.
const TINY: Plan = Plan { cache_flows: 256, ring_bytes: 64 << 10, ..PLAN };
/// The kernel puts this much before each entry of a ring.
const ENTRY_HEADER: usize = 8;

/// A TCP packet of the flow that has this source port.
fn packet(port: u16, flags: u8, bytes: usize) -> Vec<u8> {
    let mut frame = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(flags)));
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame.resize(bytes, 0);
    frame
}

fn key(port: u16) -> FlowKey {
    parse(&packet(port, 0, 60)[..], Link::Ethernet, Tunnels::Outer).expect("the packet is good").key
}

fn slot(plan: &Plan, port: u16) -> u32 {
    hash::slot(&SlotKey::new(plan.slot_key), &key(port), plan.cache_flows.ilog2())
}

pub fn a_flow_is_one_record() -> Result<()> {
    Object::load(PLAN, |object| {
        for (flags, bytes) in [(0x02, 60), (0x10, 1514), (0x18, 590), (0x11, 66)] {
            object.pass(&packet(1000, flags, bytes))?;
        }
        for _ in 4..5_000 {
            object.pass(&packet(1000, 0x10, 100))?;
        }
        ensure!(object.records()?.is_empty(), "it was evicted without need");
        let (window, _) = object.close()?;
        let tally = Tally::new(5_000, 60 + 1514 + 590 + 66 + 4_996 * 100);
        ensure!(
            matches!(window.records[..], [record] if record.key == key(1000)
            && record.tally() == tally
            && record.tcp_flags == 0x1b
            && record.first_tick <= record.last_tick),
            "{:?}",
            window.records
        );
        ensure!(window.ledger().balances() && window.ledger().counters.seen == tally, "{:?}", window.ledger());
        Ok(())
    })
}

pub fn a_collision_evicts() -> Result<()> {
    let first = 1000;
    let second =
        (first + 1..).find(|port| slot(&TINY, *port) == slot(&TINY, first)).expect("65,536 ports in 256 slots");
    Object::load(TINY, |object| {
        for _ in 0..3 {
            object.pass(&packet(first, 0x02, 100))?;
        }
        for _ in 0..2 {
            object.pass(&packet(second, 0x10, 200))?;
        }
        object.pass(&packet(first, 0x01, 100))?;
        ensure!(object.records()?.is_empty(), "records are handed over many at a time");
        let (window, _) = object.close()?;
        // What waits for the ring comes first, then what is still in the cache: in the order of userspace's twin.
        let expected = [
            (key(first), Tally::new(3, 300), 0x02),
            (key(second), Tally::new(2, 400), 0x10),
            (key(first), Tally::new(1, 100), 0x01),
        ];
        let evicted = window.records.iter().map(|record| (record.key, record.tally(), record.tcp_flags));
        ensure!(evicted.eq(expected), "{:?}", window.records);
        Ok(())
    })
}

/// Packets come while the window is closing: none of them may be counted in it, and none be lost.
pub fn the_edge_separates_the_windows() -> Result<()> {
    Object::load(PLAN, |object| {
        for port in 1..=1_000 {
            object.pass(&packet(port, 0x02, 100))?;
        }
        let before = object.records()?;
        let mut after = 0;
        let (mut during, mut flushed) = (Vec::new(), Flush::Again);
        while flushed == Flush::Again {
            let (state, mut of_cache) = object.flush()?;
            flushed = state;
            during.append(&mut of_cache);
            // Old flows and new ones; some of them find their slot still taken by the closed window.
            for port in [1, 500, 1_000, 3_000 + after as u16] {
                object.pass(&packet(port, 0x10, 200))?;
                after += 1;
            }
        }
        ensure!(flushed == Flush::Done, "{flushed:?}");
        ensure!(after >= 8, "the default cache was closed in {} calls", after / 4);
        during.append(&mut object.records()?);
        let edge = object.edge()?;
        ensure!(edge.counters[0].seen == Tally::new(1_000, 100_000), "{:?}", edge.counters[0].seen);
        let (next, _) = object.close()?;
        let (of_first, of_next): (Vec<_>, Vec<_>) =
            before.into_iter().chain(during).chain(next.records).partition(|record| record.key.epoch() == 0);
        let sum = |records: &[Record]| records.iter().map(|record| record.tally()).sum::<Tally>();
        ensure!(sum(&of_first) == Tally::new(1_000, 100_000), "{:?}", sum(&of_first));
        ensure!(sum(&of_next) == Tally::new(after, after * 200), "{:?}", sum(&of_next));
        ensure!(of_next.iter().all(|record| record.key.epoch() == 1 && record.tcp_flags == 0x10));
        ensure!(next.edge.counters[0].seen == Tally::new(after, after * 200), "{:?}", next.edge.counters[0].seen);
        Ok(())
    })
}

pub fn an_empty_window_is_closed_in_several_calls() -> Result<()> {
    Object::load(PLAN, |object| {
        let (window, calls) = object.close()?;
        ensure!(calls > 1, "the default cache was closed in one call");
        ensure!(window.records.is_empty() && window.ledger() == Default::default(), "{:?}", window.ledger());
        Ok(())
    })
}

pub fn a_full_ring_is_counted_to_the_packet() -> Result<()> {
    let plan = TrafficPlan { packets: 20_000, flows: 10_000, zipf: 0.6, mix: Mix::plain(), ..TrafficPlan::default() };
    let room = TINY.ring_bytes as usize / (EVICTED_MAX * size_of::<Record>() + ENTRY_HEADER) * EVICTED_MAX;
    ensure!(room as u64 == ring_records(TINY.ring_bytes.into()), "the library thinks otherwise");
    let slot_key = SlotKey::new(TINY.slot_key);
    Object::load(TINY, |object| {
        for round in 0..3 {
            // Nobody reads the ring. What finds it full is known from the hash.
            let (mut cache, mut evicted) = (HashMap::<u32, (FlowKey, Tally)>::new(), Vec::new());
            let mut seen = Tally::default();
            for Packet { frame, truth } in Traffic::new(TrafficPlan { seed: round, ..plan })? {
                object.pass(&frame)?;
                let one = Tally::new(1, truth.bytes);
                seen.add(one);
                let key = FlowKey::from(truth.flow.expect("plain traffic has flows"));
                let slot = hash::slot(&slot_key, &key, TINY.cache_flows.ilog2());
                let held = cache.entry(slot).or_insert((key, Tally::default()));
                if held.0 != key {
                    evicted.push(std::mem::replace(held, (key, Tally::default())).1);
                }
                held.1.add(one);
            }
            ensure!(evicted.len() > 2 * room, "only {} evictions", evicted.len());
            // What the ring had no room for, but for the evicted records that still wait for room.
            let lost: Tally = evicted[room + EVICTED_MAX..].iter().copied().sum();
            // The window is closed all the same: what is in the cache does not go through the ring.
            let mut of_cache = Vec::new();
            loop {
                let (flushed, records) = object.flush()?;
                of_cache.extend(records);
                match flushed {
                    Flush::Again => {}
                    Flush::Done => break,
                    Flush::Busy | Flush::NoBlock => anyhow::bail!("flush said {flushed:?}"),
                }
            }
            let mut records = object.records()?;
            ensure!(records.len() == room, "{} records in room for {room}", records.len());
            records.append(&mut of_cache);
            let ledger = Window { records, edge: object.edge()? }.ledger();
            ensure!(ledger.counters.lost[Loss::RingFull as usize] == lost, "{ledger:?}\nlost should be {lost:?}");
            ensure!(ledger.lost() == lost && ledger.counters.seen == seen && ledger.balances(), "{ledger:?}");
        }
        Ok(())
    })
}

/// What a packet does that interrupts `flush` inside the cache, where the kernel does not shut softirqs out.
pub fn while_flush_is_in_the_cache_each_packet_is_a_record() -> Result<()> {
    Object::load(PLAN, |object| {
        for _ in 0..3 {
            object.pass(&packet(1, 0x02, 100))?;
        }
        object.change(|cpu| cpu.busy = 1)?;
        for nth in 0..500 {
            object.pass(&packet(nth % 2 + 1, 0x10, 200))?;
        }
        object.change(|cpu| cpu.busy = 0)?;
        object.pass(&packet(1, 0x01, 100))?;
        let own = object.records()?;
        ensure!(own.len() == 500, "{} records", own.len());
        for (nth, record) in own.iter().enumerate() {
            let expected = (key(nth as u16 % 2 + 1), Tally::new(1, 200), 0x10);
            ensure!((record.key, record.tally(), record.tcp_flags) == expected, "{nth}: {record:?}");
        }
        let (mut window, _) = object.close()?;
        ensure!(
            matches!(window.records[..], [record] if record.key == key(1)
            && record.tally() == Tally::new(4, 400) && record.tcp_flags == 0x03),
            "{:?}",
            window.records
        );
        window.records.extend(own);
        let ledger = window.ledger();
        ensure!(ledger.balances() && ledger.counters.seen == Tally::new(504, 100_400), "{ledger:?}");
        Ok(())
    })
}

/// What `flush` does that interrupts a packet: it goes away, and the packet is whole in its window.
pub fn a_packet_that_is_half_counted_is_left_alone() -> Result<()> {
    Object::load(PLAN, |object| {
        object.pass(&packet(1, 0x02, 100))?;
        object.change(|cpu| cpu.in_packet = 1)?;
        for _ in 0..3 {
            ensure!(object.flush()? == (Flush::Busy, vec![]));
        }
        // That packet ends, and the next one is still of the same window: nothing was begun.
        object.pass(&packet(2, 0x02, 200))?;
        let (state, _) = object.flush()?;
        ensure!(state == Flush::Again, "a packet that is through has taken its flag along");
        object.pass(&packet(3, 0x02, 400))?;
        object.change(|cpu| cpu.in_packet = 1)?;
        ensure!(object.flush()? == (Flush::Busy, vec![]), "half-way it has to look again, too");
        object.change(|cpu| cpu.in_packet = 0)?;
        let (window, _) = object.close()?;
        let ledger = window.ledger();
        ensure!(ledger.counters.seen == Tally::new(2, 300), "{ledger:?}");
        let (next, _) = object.close()?;
        let ledger = next.ledger();
        ensure!(ledger.balances() && ledger.counters.seen == Tally::new(1, 400), "{ledger:?}");
        Ok(())
    })
}

/// The window of a CPU that is offline is closed from another one. The CPU comes back in the midst of it: its packets
/// leave the cache alone until all is done.
pub fn an_offline_cpu_is_closed_from_elsewhere() -> Result<()> {
    Object::load(PLAN, |object| {
        for port in 1..=1_000 {
            object.pass(&packet(port, 0x02, 100))?;
        }
        let mut records = object.records()?;
        ensure!(object.flush_elsewhere(FlushOrder::Claim)? == (Flush::Again, vec![]));
        let mut after = 0;
        let mut own = Vec::new();
        loop {
            for port in [1, 500, 3_000 + after as u16] {
                object.pass(&packet(port, 0x10, 200))?;
                after += 1;
            }
            let (state, of_cache) = object.flush_elsewhere(FlushOrder::CloseOffline)?;
            records.extend(of_cache);
            own.extend(object.records()?);
            if state == Flush::Done {
                break;
            }
        }
        ensure!(own.len() as u64 == after, "{} records of {after} packets", own.len());
        ensure!(own.iter().all(|record| record.key.epoch() == 1), "packets of the next window");
        ensure!(object.flush_elsewhere(FlushOrder::Release)? == (Flush::Again, vec![]));
        let first = Window { records, edge: object.edge()? }.ledger();
        ensure!(first.balances() && first.counters.seen == Tally::new(1_000, 100_000), "{first:?}");
        object.pass(&packet(1, 0x10, 200))?;
        ensure!(object.records()?.is_empty(), "packets use the cache again");
        let (mut next, _) = object.close()?;
        next.records.extend(own);
        let ledger = next.ledger();
        ensure!(ledger.balances() && ledger.counters.seen == Tally::new(after + 1, (after + 1) * 200), "{ledger:?}");
        Ok(())
    })
}

/// Beyond the number at which the epochs in keys begin anew.
pub fn three_hundred_windows_stay_exact() -> Result<()> {
    let traffic = TrafficPlan { packets: 300 * 400, flows: 3_000, mix: Mix::odd(), ..TrafficPlan::default() };
    let mut packets = Traffic::new(traffic)?;
    Object::load(TINY, |object| {
        for nth in 0..300_u32 {
            let (mut seen, mut attributed) = (Tally::default(), Tally::default());
            let mut records = Vec::new();
            // Some windows are empty, and few are as full as others.
            let size = [0, 1, 50, 400, 700][nth as usize % 5];
            for Packet { frame, truth } in packets.by_ref().take(size) {
                object.pass(&frame)?;
                let one = Tally::new(1, truth.bytes);
                seen.add(one);
                if truth.flow.is_ok() {
                    attributed.add(one);
                }
                if seen.packets.is_multiple_of(256) {
                    records.extend(object.records()?);
                }
            }
            let (Window { records: last, edge }, _) = object.close()?;
            records.extend(last);
            ensure!(records.iter().all(|record| record.key.epoch() == nth as u8), "window {nth}: another epoch");
            let sizes: u64 = edge.sizes.iter().sum();
            let ledger = Window { records, edge }.ledger();
            ensure!(ledger.balances(), "window {nth}: {ledger:?}");
            ensure!(
                (ledger.counters.seen, ledger.attributed, sizes) == (seen, attributed, seen.packets),
                "window {nth}: {ledger:?}"
            );
        }
        Ok(())
    })
}

/// Each window another draw: on average the packets that were taken stand for all that came, and in each the ledger
/// says exactly how many were left out.
pub fn sampling_is_unbiased() -> Result<()> {
    const WINDOWS: usize = 200;
    const RATE: u32 = 8;
    let traffic = TrafficPlan { packets: 3_000, flows: 100, mix: Mix::plain(), ..TrafficPlan::default() };
    let packets: Vec<Packet> = Traffic::new(traffic)?.collect();
    let seen: Tally = packets.iter().map(|packet| Tally::new(1, packet.truth.bytes)).sum();
    let plan = Plan { sampling: Packets::OneIn(RATE), ..PLAN };
    Object::load(plan, |object| {
        let mut estimates = Vec::new();
        for _ in 0..WINDOWS {
            packets.iter().try_for_each(|packet| object.pass(&packet.frame))?;
            let mut records = object.records()?;
            let (mut window, _) = object.close()?;
            records.append(&mut window.records);
            window.records = records;
            ensure!(window.records.iter().all(|record| u32::from(record.sampling) == RATE), "another rate");
            let ledger = window.ledger();
            ensure!(ledger.balances() && ledger.counters.seen == seen, "{ledger:?}");
            let Tally { packets, bytes } = ledger.attributed;
            ensure!(packets + ledger.counters.sampled_out.packets == seen.packets, "{ledger:?}");
            estimates.push([packets, bytes].map(|taken| taken as f64 * f64::from(RATE)));
        }
        for (what, metric, truth) in [("packets", 0, seen.packets), ("bytes", 1, seen.bytes)] {
            let estimates: Vec<_> = estimates.iter().map(|estimate: &[f64; 2]| estimate[metric]).collect();
            chance::unbiased(&estimates, truth as f64).map_err(Error::msg).context(what)?;
        }
        Ok(())
    })
}
