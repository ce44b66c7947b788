//! Each CPU's ring, which a worker reads.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_ringbuf_query,
};
use weir_common::{
    cpu::{Cpu, EVICTED_MAX},
    ledger::Loss,
    record::{Record, Slot},
};

use crate::{
    counters::counters,
    maps::{RINGS, at},
};

/// Does not wake the reader, which polls several times a second.
const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;

/// Evicts a record. It waits until there are [`EVICTED_MAX`] of them, because a reservation in the ring costs about 50
/// ns and one serves them all. If the ring has no room for these, each record is counted as lost in its own window and
/// interface.
#[inline(always)]
pub fn evict(id: u32, cpu: &mut Cpu, slot: &Slot) {
    if cpu.evicted_count as usize >= EVICTED_MAX {
        // Writes the whole array, because older verifiers only accept a constant length.
        if let Err(loss) = write(id, &cpu.evicted, wakeup(id, cpu.ring_bytes)) {
            return lose(cpu, &slot.record(), loss);
        }
        cpu.evicted_count = 0;
    }
    *at(&mut cpu.evicted, cpu.evicted_count as usize) = slot.record();
    cpu.evicted_count += 1;
}

/// Writes a record to the ring immediately, while `flush` owns the cache and the waiting records. If there is no room,
/// the record is counted as lost.
#[inline(always)]
pub fn emit(id: u32, cpu: &mut Cpu, record: &Record) {
    if let Err(loss) = write(id, record, NO_WAKEUP) {
        lose(cpu, record, loss);
    }
}

#[inline(always)]
fn lose(cpu: &mut Cpu, record: &Record, loss: Loss) {
    counters(cpu, record.key.scope()).lost[loss as usize].add(record.tally());
}

/// Copies an entry into the ring of CPU `id`.
///
/// # Errors
///
/// There is no ring, or no room in it.
#[inline(always)]
fn write<T>(id: u32, entry: &T, flags: u64) -> Result<(), Loss> {
    let ring = RINGS.get(id).ok_or(Loss::NoRing)?;
    ring.output_untyped::<T>(entry, flags).map_err(|_| Loss::RingFull)
}

/// Wakes the reader with the one write that finds the ring a quarter full. The reader also polls several times a
/// second. A wake-up takes an interrupt, which costs 10 us under a hypervisor.
#[inline(always)]
fn wakeup(id: u32, ring_bytes: u32) -> u64 {
    const WRITE_BYTES: u64 = size_of::<[Record; EVICTED_MAX]>() as u64 + 8;
    let Some(ring) = RINGS.get(id) else { return NO_WAKEUP };
    let quarter = u64::from(ring_bytes / 4);
    // SAFETY: a map reference is the pointer that the kernel returned for it.
    let waiting =
        unsafe { bpf_ringbuf_query(core::ptr::from_ref(ring).cast_mut().cast(), u64::from(BPF_RB_AVAIL_DATA)) };
    if (quarter..quarter + WRITE_BYTES).contains(&waiting) { u64::from(BPF_RB_FORCE_WAKEUP) } else { NO_WAKEUP }
}
