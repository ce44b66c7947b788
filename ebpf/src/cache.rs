//! The flow cache: one per CPU, direct-mapped, never grows.

use aya_ebpf::helpers::generated::bpf_jiffies64;
use weir_common::{
    cpu::Cpu,
    flow::FlowKey,
    hash,
    ledger::Tally,
    record::{Record, Sample},
};

use crate::{
    maps::{cache_place, slot_key, this_cpu},
    ring,
};

/// Adds a packet, or several that an offload merged, to its flow's record. A record of another flow in the same slot is
/// evicted.
#[inline(always)]
pub fn count(cpu: &mut Cpu, key: FlowKey, tally: Tally, sampling: u16, tcp_flags: u8) -> Option<()> {
    let place = hash::place(&slot_key(), &key);
    // SAFETY: an element that is this CPU's: nothing else runs on it until the program ends.
    let record = unsafe { &mut *cache_place(cpu, place)? };
    // SAFETY: the helper takes no argument; the verifier makes it a load.
    let tick = unsafe { bpf_jiffies64() } as u32;
    let packet = Sample { tally, tick, sampling, tcp_flags };
    if record.takes(&key, packet) {
        record.add(packet);
    } else {
        if !record.is_empty() {
            ring::evict(this_cpu(), cpu, record);
        }
        *record = Record::first(key, packet);
    }
    Some(())
}
