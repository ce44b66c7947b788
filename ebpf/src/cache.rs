//! The flow cache: one per CPU, direct-mapped, never grows.

use weir_common::{cpu::Cpu, hash, record::Record};

use crate::{
    maps::{cache_bits, cache_slot, slot_key},
    ring,
};

/// Adds a packet to its flow's record; a record of another flow in its place is evicted.
#[inline(always)]
pub fn count(id: u32, cpu: &mut Cpu, packet: &Record) -> Option<()> {
    let slot = hash::slot(&slot_key(), &packet.key, cache_bits());
    // SAFETY: an element that is this CPU's: nothing else runs on it until the program ends.
    let record = unsafe { &mut *cache_slot(id, slot)? };
    if record.key == packet.key && record.has_room() {
        record.add(packet);
    } else {
        if !record.is_empty() {
            ring::evict(id, cpu, record);
        }
        *record = *packet;
    }
    Some(())
}
