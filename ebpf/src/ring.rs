//! The ring: one per CPU, read by the worker that is pinned to that CPU.

use aya_ebpf::{
    bindings::{BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP},
    helpers::bpf_get_smp_processor_id,
};
use weir_common::{control::counters_index, ledger::Loss, record::Record};

use crate::maps::{COUNTERS, RINGS, STATE};

/// The reader is woken once per this many entries; it looks by itself every few milliseconds.
const WAKE_EVERY: u32 = 256;

/// Hands a record over; what finds no room is counted as lost, in its own window and interface.
#[inline(always)]
pub fn emit(record: &Record) {
    if let Err(loss) = write(record) {
        let index = counters_index(record.key.epoch, record.key.interface);
        if let Some(edge) = COUNTERS.get_ptr_mut(index) {
            // SAFETY: a per-CPU element: nothing else runs on this CPU until the program ends.
            let lost = unsafe { &mut (*edge).counters.lost };
            lost[loss as usize].add(record.tally);
        }
    }
}

/// Copies an entry into this CPU's ring.
///
/// # Errors
///
/// There is no ring, or no room in it.
#[inline(always)]
pub fn write<T>(entry: &T) -> Result<(), Loss> {
    // SAFETY: the helper takes no argument.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    let ring = RINGS.get(cpu).ok_or(Loss::NoRing)?;
    ring.output_untyped::<T>(entry, wakeup()).map_err(|_| Loss::RingFull)
}

#[inline(always)]
fn wakeup() -> u64 {
    let Some(state) = STATE.get_ptr_mut(0) else { return 0 };
    // SAFETY: a per-CPU element: nothing else runs on this CPU until the program ends.
    let written = unsafe { &mut (*state).written };
    *written = written.wrapping_add(1);
    u64::from(if *written % WAKE_EVERY == 0 { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP })
}
