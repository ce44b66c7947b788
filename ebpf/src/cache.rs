//! The flow cache: one per CPU, direct-mapped, never grows.

use weir_common::{
    cpu::Cpu,
    hash,
    packet::Parsed,
    record::{Record, Sample},
};

use crate::{
    maps::{cache_place, slot_key, this_cpu},
    ring,
};

/// Adds a packet, or several that an offload merged, to its flow's record. If the slot has a record of another flow,
/// that one is evicted. The packet's key must have its scope; `sample` makes what the record takes.
#[inline(always)]
pub fn count(cpu: &mut Cpu, parsed: &Parsed, sample: impl Fn() -> Sample) -> Option<()> {
    let place = hash::place(&slot_key(), parsed);
    // SAFETY: this element belongs to this CPU, and nothing else runs on it until the program ends.
    let record = unsafe { &mut *cache_place(cpu, place)? };
    let packet = sample();
    if record.takes(&parsed.key, packet) {
        record.add(packet);
    } else {
        if !record.is_empty() {
            ring::evict(this_cpu(), cpu, record);
        }
        // Call it again, so that no part of it has to outlive the call above.
        *record = Record::first(parsed.key, sample());
    }
    Some(())
}
