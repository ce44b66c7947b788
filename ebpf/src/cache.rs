//! The flow cache: one per CPU, direct-mapped, never grows.

use weir_common::{flow::FlowKey, hash, ledger::Tally, record::Record};

use crate::{
    maps::{CACHE, cache_mask, slot_key},
    ring,
};

/// Adds a packet, or several that came as one, to its flow's record; a record of another flow in its place is evicted
/// into the ring.
#[inline(always)]
pub fn count(key: FlowKey, one: Tally, tcp_flags: u8, now_ns: u64) -> Option<()> {
    let slot = hash::slot(&slot_key(), &key) as u32 & cache_mask();
    // SAFETY: a per-CPU element: nothing else runs on this CPU until the program ends.
    let record = unsafe { &mut *CACHE.get_ptr_mut(slot)? };
    if record.key == key {
        record.add(one.bytes, tcp_flags, now_ns);
        record.tally.packets += one.packets - 1;
    } else {
        if !record.is_empty() {
            ring::emit(record);
        }
        *record = first(key, one, tcp_flags, now_ns);
    }
    Some(())
}

/// The record of a flow's first packet, or of several that came as one.
#[inline(always)]
pub fn first(key: FlowKey, one: Tally, tcp_flags: u8, now_ns: u64) -> Record {
    let mut record = Record::first(key, one.bytes, tcp_flags, now_ns);
    record.tally.packets = one.packets;
    record
}
