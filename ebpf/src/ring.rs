//! The ring: one per CPU, read by that CPU's worker.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::generated::bpf_ringbuf_query,
};
use weir_common::{
    cpu::{BATCH_RECORDS, Cpu},
    ledger::Loss,
    record::Record,
};

use crate::{
    counters::counters,
    maps::{RINGS, at, ring_bytes},
};

/// The reader need not be woken: whoever runs `flush` reads the ring next.
pub const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;

/// Puts a record on its way out, in a batch: a reservation in the ring costs some 50 ns, so one serves for many. Where
/// the batch is full and the ring has no room for it, the record is counted as lost, in its own window and interface.
#[inline(always)]
pub fn evict(id: u32, cpu: &mut Cpu, record: &Record) {
    if let Err(loss) = push(id, cpu, record) {
        lose(cpu, record, loss);
    }
}

/// The same for a record that can wait.
///
/// # Errors
///
/// The batch is full, and there is no ring or no room in it.
#[inline(always)]
pub fn push(id: u32, cpu: &mut Cpu, record: &Record) -> Result<(), Loss> {
    if cpu.batched as usize >= BATCH_RECORDS {
        // A whole batch, of a length that older verifiers see at once.
        write(id, &cpu.batch, wakeup(id))?;
        cpu.batched = 0;
    }
    *at(&mut cpu.batch, cpu.batched as usize) = *record;
    cpu.batched += 1;
    Ok(())
}

/// Hands over the records that wait in the batch, at a window's edge.
///
/// # Errors
///
/// There is no ring, or no room in it; they still wait.
#[inline(always)]
pub fn write_batch(id: u32, cpu: &mut Cpu) -> Result<(), Loss> {
    if let Some(records @ [_, ..]) = cpu.batch.get(..cpu.batched as usize) {
        write::<[Record]>(id, records, NO_WAKEUP)?;
    }
    cpu.batched = 0;
    Ok(())
}

/// Hands over a record at once, where cache and batch are not ours; what finds no room is counted as lost.
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

/// Copies an entry into this CPU's ring.
///
/// # Errors
///
/// There is no ring, or no room in it.
#[inline(always)]
pub fn write<T: ?Sized>(id: u32, entry: &T, flags: u64) -> Result<(), Loss> {
    let ring = RINGS.get(id).ok_or(Loss::NoRing)?;
    ring.output_untyped::<T>(entry, flags).map_err(|_| Loss::RingFull)
}

/// The reader is woken when the ring has come to be a quarter full, which a batch brings about once each time, and
/// looks by itself several times a second. Waking takes an interrupt: 10 us where that is the hypervisor's.
#[inline(always)]
fn wakeup(id: u32) -> u64 {
    const BATCH_BYTES: u64 = size_of::<[Record; BATCH_RECORDS]>() as u64 + 8;
    let Some(ring) = RINGS.get(id) else { return NO_WAKEUP };
    let quarter = u64::from(ring_bytes() / 4);
    // SAFETY: a map's reference is the pointer that the kernel gave for it.
    let waiting =
        unsafe { bpf_ringbuf_query(core::ptr::from_ref(ring).cast_mut().cast(), u64::from(BPF_RB_AVAIL_DATA)) };
    if (quarter..quarter + BATCH_BYTES).contains(&waiting) { u64::from(BPF_RB_FORCE_WAKEUP) } else { NO_WAKEUP }
}
