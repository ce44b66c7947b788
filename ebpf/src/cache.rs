//! The flow cache: one per CPU, direct-mapped, never grows.
//!
//! The record of the last packet's flow waits beside it (`Cpu::last`) until a packet of another flow comes. So packets
//! that come in a train neither hash nor search, and a slot has the time between two packets to come near: it is
//! touched when a packet is parsed, and looked into when the next one is.

use core::convert::Infallible;

use weir_common::{
    cpu::Cpu,
    flow::FlowKey,
    hash,
    record::{Record, Sample},
};

use crate::{
    maps::{cache_bits, cache_slot, slot_key},
    ring,
};

/// Adds a packet, or several that came as one, to its flow's record.
#[inline(always)]
pub fn count(id: u32, cpu: &mut Cpu, key: FlowKey, packet: Sample) -> Option<()> {
    if cpu.last.takes(&key, packet) {
        cpu.last.add(packet);
        return Some(());
    }
    let slot = hash::slot(&slot_key(), &key, cache_bits());
    let record = cache_slot(id, slot)?;
    // Nothing waits for what this reads, so that the CPU goes on while the slot is on its way.
    // SAFETY: an element that is this CPU's: nothing else runs on it until the program ends.
    unsafe { (&raw const (*record).key).cast::<u64>().read_volatile() };
    let Ok(()) = settle(id, cpu, |cpu, record| -> Result<(), Infallible> {
        ring::evict(id, cpu, record);
        Ok(())
    })?;
    cpu.last = Record::first(key, packet);
    cpu.last_slot = slot;
    Some(())
}

/// Copies what waits into the cache; a record of another flow in its place is evicted first, or else all stays as it is.
#[inline(always)]
pub fn settle<E>(
    id: u32,
    cpu: &mut Cpu,
    evict: impl FnOnce(&mut Cpu, &Record) -> Result<(), E>,
) -> Option<Result<(), E>> {
    if cpu.last.is_empty() {
        return Some(Ok(()));
    }
    // SAFETY: as in `count`.
    let record = unsafe { &mut *cache_slot(id, cpu.last_slot)? };
    if record.takes_all_of(&cpu.last) {
        record.add_all_of(&cpu.last);
    } else {
        // A copy first: from place to place LLVM would go byte by byte, since the two might overlap.
        let last = cpu.last;
        if !record.is_empty()
            && let Err(error) = evict(cpu, record)
        {
            return Some(Err(error));
        }
        *record = last;
    }
    Some(Ok(()))
}
