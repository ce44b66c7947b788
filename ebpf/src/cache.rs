//! The flow cache: one per CPU, direct-mapped, never grows.

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

/// Adds a packet, or several that came as one, to its flow's record; a record of another flow in its place is evicted.
#[inline(always)]
pub fn count(id: u32, cpu: &mut Cpu, key: FlowKey, packet: Sample) -> Option<()> {
    let slot = hash::slot(&slot_key(), &key, cache_bits());
    // SAFETY: an element that is this CPU's: nothing else runs on it until the program ends.
    let record = unsafe { &mut *cache_slot(id, slot)? };
    if record.takes(&key, packet) {
        record.add(packet);
    } else {
        if !record.is_empty() {
            ring::evict(id, cpu, record);
        }
        *record = Record::first(key, packet);
    }
    Some(())
}
