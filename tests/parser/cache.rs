//! The flow cache, the ring and the window's edge in the kernel are exact, with any events in between.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context as _, Error, Result, ensure};
use weir_common::{
    control::{Flush, FlushOrder},
    cpu::EVICTED_MAX,
    flow::FlowKey,
    hash::{self, SlotKey},
    ledger::{Loss, Tally, TcpPackets},
    packet::{Link, Parsed, Tunnels, parse},
    record::Record,
    size::EXACT,
};
use weir_config::Packets;
use weir_datapath::{
    Plan,
    edge::Edge,
    rates::WindowSeconds,
    ring_records,
    userspace::{Buffer, UserspaceProgram},
};
use weir_tests::{
    chance,
    object::{Object, PLAN, Window},
    traffic::{Mix, Packet, Plan as TrafficPlan, Traffic, random::Random},
};

use crate::frame::{IPV4, TOS, ethernet, ipv4, tcp};

/// The smallest cache and the smallest ring that may be configured.
const TINY: Plan = Plan { cache_flows: 256, ring_bytes: 64 << 10, ..PLAN };
/// The bytes of the header that the kernel puts before each entry of a ring.
const ENTRY_HEADER: usize = 8;

/// A TCP packet of the flow that has this source port.
fn packet(port: u16, flags: u8, bytes: usize) -> Vec<u8> {
    let mut frame = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(flags)));
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame.resize(bytes, 0);
    frame
}

fn key(port: u16) -> FlowKey {
    parsed(port).key
}

fn parsed(port: u16) -> Parsed {
    parse(&packet(port, 0, 60)[..], Link::Ethernet, Tunnels::Outer).expect("the packet is good")
}

fn slot(plan: &Plan, port: u16) -> u32 {
    hash::slot(&SlotKey::new(plan.slot_key), &parsed(port), plan.cache_flows.ilog2())
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
            && (record.tos, record.vlan) == (TOS, 0)),
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
        // Records that wait for the ring come first, then those in the cache, in the same order as in userspace.
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

/// Packets come while the window is closing. None of them may be counted in this window, and none may be lost.
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
            // The packets are of old and new flows; the slots of some are still taken by the closed window.
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
    ensure!(room as u64 == ring_records(TINY.ring_bytes.into()), "the library computes another number");
    let slot_key = SlotKey::new(TINY.slot_key);
    Object::load(TINY, |object| {
        for round in 0..3 {
            // The ring is not read. The hash tells which records find it full.
            let (mut cache, mut evicted) = (HashMap::<u32, (FlowKey, Tally)>::new(), Vec::new());
            let mut seen = Tally::default();
            for Packet { frame, truth } in Traffic::new(TrafficPlan { seed: round, ..plan })? {
                object.pass(&frame)?;
                let one = Tally::new(1, truth.bytes);
                seen.add(one);
                let parsed = truth.parsed().expect("plain traffic has flows");
                let (key, slot) = (parsed.key, hash::slot(&slot_key, &parsed, TINY.cache_flows.ilog2()));
                let held = cache.entry(slot).or_insert((key, Tally::default()));
                if held.0 != key {
                    evicted.push(std::mem::replace(held, (key, Tally::default())).1);
                }
                held.1.add(one);
            }
            ensure!(evicted.len() > 2 * room, "only {} evictions", evicted.len());
            // The lost records are those that the ring had no room for, except for evicted ones that still wait.
            let lost: Tally = evicted[room + EVICTED_MAX..].iter().copied().sum();
            // The window is still closed, because the cache is not emptied through the ring.
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

/// A packet may interrupt `flush` while it empties the cache, because the kernel does not block softirqs then.
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

/// If `flush` interrupts a packet, it returns without doing anything, and the packet is counted whole in its window.
pub fn a_packet_that_is_half_counted_is_left_alone() -> Result<()> {
    Object::load(PLAN, |object| {
        object.pass(&packet(1, 0x02, 100))?;
        object.change(|cpu| cpu.in_packet = 1)?;
        for _ in 0..3 {
            ensure!(object.flush()? == (Flush::Busy, vec![]));
        }
        // That packet is finished, and the next one still belongs to the same window, because `flush` did nothing.
        object.pass(&packet(2, 0x02, 200))?;
        let (state, _) = object.flush()?;
        ensure!(state == Flush::Again, "a finished packet has cleared its flag");
        object.pass(&packet(3, 0x02, 400))?;
        object.change(|cpu| cpu.in_packet = 1)?;
        ensure!(object.flush()? == (Flush::Busy, vec![]), "it also checks the flag between two calls");
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

/// The window of an offline CPU is closed from another CPU. The CPU comes back meanwhile: its packets do not use the
/// cache until the window is closed.
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

/// This is more windows than there are epochs in keys.
pub fn three_hundred_windows_stay_exact() -> Result<()> {
    let traffic = TrafficPlan { packets: 300 * 400, flows: 3_000, mix: Mix::odd(), ..TrafficPlan::default() };
    let mut packets = Traffic::new(traffic)?;
    Object::load(TINY, |object| {
        for nth in 0..300_u32 {
            let (mut seen, mut attributed) = (Tally::default(), Tally::default());
            let mut records = Vec::new();
            // Some windows are empty, and the others differ in size.
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

/// A packet of one flow with this TOS byte and, if it is not 0, this tag control word.
fn marked(tos: u8, control: u16, flags: u8) -> Vec<u8> {
    let tags: &[u16] = if control == 0 { &[] } else { &[0x8100] };
    let mut frame = ethernet(tags, IPV4, &ipv4(6, 0, 0, &tcp(flags)));
    frame[if control == 0 { 15 } else { 19 }] = tos;
    if control != 0 {
        frame[14..16].copy_from_slice(&control.to_be_bytes());
    }
    frame.resize(60 + usize::from(tos), 0);
    frame
}

/// Packets of one flow come with every TOS byte and every VLAN in turn. The sums of their records by TOS and by VLAN
/// are exact, and the flow does not evict its own records.
pub fn counts_by_tos_and_by_vlan_are_exact() -> Result<()> {
    const VLANS: [u16; 7] = [0, 1, 2, 7, 100, 2048, 4095];
    const ROUNDS: usize = 20;
    Object::load(PLAN, |object| {
        let mut marks: Vec<(u8, u16)> = Vec::new();
        for round in 0..ROUNDS {
            marks.extend((0..=u8::MAX).map(|tos| (tos, VLANS[(usize::from(tos) + round) % VLANS.len()])));
        }
        // There are so many packets with one TOS byte that hundreds of them use the slot of another VLAN.
        marks.extend((0..4096).map(|vlan| (0, vlan)));
        let (mut by_tos, mut by_vlan) = (HashMap::<u8, Tally>::new(), HashMap::<u16, Tally>::new());
        let mut records = Vec::new();
        for marks in marks.chunks(256) {
            for &(tos, vlan) in marks {
                // The tag has a priority, which is not part of the VLAN.
                let frame = marked(tos, if vlan == 0 { 0 } else { 0xa000 | vlan }, 0x10);
                object.pass(&frame)?;
                let one = Tally::new(1, frame.len() as u64);
                by_tos.entry(tos).or_default().add(one);
                by_vlan.entry(vlan).or_default().add(one);
            }
            records.append(&mut object.records()?);
        }
        let (window, _) = object.close()?;
        records.extend(&window.records);
        let (mut found_tos, mut found_vlan) = (HashMap::<u8, Tally>::new(), HashMap::<u16, Tally>::new());
        for record in &records {
            found_tos.entry(record.tos).or_default().add(record.tally());
            found_vlan.entry(record.vlan).or_default().add(record.tally());
        }
        ensure!(found_tos == by_tos, "by TOS: {found_tos:?}\nshould be {by_tos:?}");
        ensure!(found_vlan == by_vlan, "by VLAN: {found_vlan:?}\nshould be {by_vlan:?}");
        let identity = records[0].key.without_scope();
        ensure!(records.iter().all(|record| record.key.without_scope() == identity), "it is one flow");
        // There are 1,792 combinations in 16,384 slots, and then 4,096; some share a slot. If all shared one slot, each
        // packet would be a record.
        ensure!(records.len() < 1_792 * 3 / 2 + 4_096, "{} records of {} packets", records.len(), marks.len());
        Ok(())
    })
}

/// Every combination of flags, on the fast path and on the full one.
pub fn connections_are_counted_exactly() -> Result<()> {
    Object::load(PLAN, |object| {
        let mut expected = TcpPackets::default();
        for flags in 0..=u8::MAX {
            // There are more packets with ACK: equal numbers would hide a mix-up.
            let more = u64::from(flags >> 4 & 1);
            for (control, times) in [(0, 2 + more), (7, 3 + more)] {
                for _ in 0..times {
                    object.pass(&marked(0, control, flags))?;
                }
                // The definition is repeated here with the names of the flags.
                let [fin, syn, rst, _, ack] = [0, 1, 2, 3, 4].map(|bit| flags >> bit & 1 == 1);
                expected.syn += if syn && !ack { times } else { 0 };
                expected.syn_ack += if syn && ack { times } else { 0 };
                expected.rst += if rst { times } else { 0 };
                expected.fin += if fin { times } else { 0 };
            }
        }
        // These do not count: a packet that is not TCP, a fragment, and a packet cut before its flags.
        let mut udp = marked(0, 0, 0xff);
        udp[23] = 17;
        let piece = ethernet(&[], IPV4, &ipv4(6, 0x2000, 0, &tcp(0xff)));
        let cut = ethernet(&[], IPV4, &ipv4(6, 0, 0, &tcp(0xff)[..12]));
        for frame in [udp, piece, cut] {
            object.pass(&frame)?;
        }
        object.records()?;
        let (window, _) = object.close()?;
        let found = window.edge.counters[0].tcp;
        ensure!(found == expected, "{found:?}\nshould be {expected:?}");
        // The next window starts at zero, also for packets that come while `flush` uses the cache.
        object.pass(&marked(0, 0, 0x02))?;
        object.pass(&marked(0, 7, 0x02))?;
        object.change(|cpu| cpu.busy = 1)?;
        object.pass(&marked(0, 0, 0x12))?;
        object.pass(&marked(0, 7, 0x11))?;
        object.change(|cpu| cpu.busy = 0)?;
        object.records()?;
        let (window, _) = object.close()?;
        let found = window.edge.counters[0].tcp;
        let expected = TcpPackets { syn: 2, syn_ack: 1, rst: 0, fin: 1 };
        ensure!(found == expected, "{found:?}\nshould be {expected:?}");
        Ok(())
    })
}

/// The kernel's program and the same program in userspace make the same records to the last bit, in the same order, and
/// the same counters. The cache is small, time jumps back and forth, and flows change their TOS byte.
pub fn kernel_and_userspace_make_the_same_records() -> Result<()> {
    const WINDOWS: u32 = 6;
    let traffic = TrafficPlan { packets: 40_000, flows: 1_500, zipf: 1.1, mix: Mix::odd(), ..TrafficPlan::default() };
    for tunnels in [Tunnels::Outer, Tunnels::Inner] {
        let plan = Plan { tunnels, ..TINY };
        Object::load(plan, |object| {
            let mut twin = UserspaceProgram::new(&plan);
            let (mut random, mut tick) = (Random::new(144), u32::MAX - 70_000);
            let mut packets = Traffic::new(TrafficPlan { seed: 144, ..traffic })?;
            let mut met = [0; 4];
            for window in 0..WINDOWS {
                let (mut kernels, mut twins) = (Vec::new(), Vec::new());
                for Packet { mut frame, .. } in packets.by_ref().take(traffic.packets as usize / WINDOWS as usize) {
                    tick = tick.wrapping_add(match random.between(0, 99) {
                        0 => 65_536,
                        1 => 65_535,
                        2 => u32::MAX - 10,
                        _ => random.between(0, 2) as u32,
                    });
                    if frame[12..14] == IPV4.to_be_bytes() && random.chance(0.1) {
                        frame[15] ^= random.pick(&[0x01, 0x02, 0x03, 0xb8]);
                    }
                    let bytes = frame.len() as u32;
                    object.pass_captured_at(tick, Link::Ethernet, bytes, &frame)?;
                    let (tally, link) = (Tally::new(1, bytes.into()), Link::Ethernet);
                    let buffer =
                        Buffer { headers: &frame, link, tally, uncertain: None, tick, second: None, repeated: false };
                    twin.measure(0, &buffer, |record| twins.push(*record));
                    kernels.append(&mut object.records()?);
                }
                let (closed, _) = object.close()?;
                kernels.extend(closed.records);
                // The kernel's programs do nothing for rates.
                let edge = Edge {
                    rates: Vec::new(),
                    ..twin.close(&WindowSeconds::at(0, Duration::ZERO), |record| twins.push(*record))
                };
                let differ = kernels.iter().zip(&twins).find(|(kernel, twin)| kernel != twin);
                ensure!(differ.is_none(), "window {window}: {differ:?}");
                ensure!(kernels.len() == twins.len(), "window {window}: {} and {}", kernels.len(), twins.len());
                // The kernel does not note the largest packet if it is below the size classes.
                let [kernel, twin] = [closed.edge.largest, edge.largest].map(|bytes| bytes.max(EXACT));
                ensure!(kernel == twin, "window {window}: the largest packets are {kernel} and {twin} bytes");
                let edge = Edge { largest: closed.edge.largest, ..edge };
                ensure!(closed.edge == edge, "window {window}: {:?}\n{edge:?}", closed.edge.counters);
                for record in &kernels {
                    met[0] += u32::from(record.tos != 0);
                    met[1] += u32::from(record.vlan != 0);
                    met[2] += u32::from(record.duration != 0);
                    met[3] += u32::from(record.duration == u16::MAX);
                }
            }
            ensure!(met.iter().all(|met| *met > 0), "too few of the compared cases occurred: {met:?}");
            Ok(())
        })
        .with_context(|| format!("{tunnels:?}"))?;
    }
    Ok(())
}

/// Each window is a new draw. On average the scaled sample equals all packets, and each ledger counts exactly how many
/// were left out.
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
