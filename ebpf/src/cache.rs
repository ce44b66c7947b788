//! The flow cache: one per CPU, direct-mapped, never grows.

use core::hint::cold_path;

use weir_common::{cpu::Cpu, hash, packet::Parsed, record::Sample};

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
    let slot = unsafe { &mut *cache_place(cpu, place)? };
    let packet = sample();
    if slot.takes(&parsed.key, packet) {
        slot.add(&parsed.key, packet);
    } else {
        cold_path();
        if !slot.is_empty() {
            ring::evict(this_cpu(), cpu, slot);
        }
        // Call it again, so that no part of it has to outlive the call above.
        slot.start(&parsed.key, sample());
    }
    Some(())
}
