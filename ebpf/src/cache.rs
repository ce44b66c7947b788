//! The flow cache: one per CPU, direct-mapped, never grows.

use weir_common::{flow::FlowKey, hash, record::Record};

use crate::{
    maps::{CACHE, cache_mask, slot_key},
    ring,
};

/// Adds a packet to its flow's record; a record of another flow in its place is evicted into the ring.
#[inline(always)]
pub fn count(key: FlowKey, bytes: u64, tcp_flags: u8, now_ns: u64) -> Option<()> {
    let slot = hash::slot(&slot_key(), &key) as u32 & cache_mask();
    // SAFETY: a per-CPU element: nothing else runs on this CPU until the program ends.
    let record = unsafe { &mut *CACHE.get_ptr_mut(slot)? };
    if record.key == key {
        record.add(bytes, tcp_flags, now_ns);
    } else {
        if !record.is_empty() {
            ring::emit(record);
        }
        *record = Record::first(key, bytes, tcp_flags, now_ns);
    }
    Some(())
}
