//! The window's edge on one CPU.
//!
//! The first call opens the next epoch: from that store on, packets count in the other set of counters and their
//! keys differ from every record of the closed window. So nothing can be torn, however many calls follow and
//! whatever interrupts them: what belongs to the closed window is the records with its epoch, and its counters stand
//! still. In ring order its last records come first, then one edge per interface, then the sizes.

use weir_common::{
    control::{Flush, INTERFACES_MAX, counters_index},
    ledger::Loss,
    record::Record,
};

use crate::{
    maps::{CACHE, COUNTERS, SIZES, STATE, State, cache_mask, interface_count},
    ring,
};

/// Slots walked per call: a longer loop is refused by the verifiers of kernels without `bpf_loop`.
const SLOTS_PER_CALL: u32 = 512;

/// Goes on closing the window; `None` where a map lookup fails, which the maps' sizes rule out.
#[inline(always)]
pub fn flush() -> Option<Flush> {
    // SAFETY: a per-CPU element. A packet may interrupt on kernels that do not disable softirqs for test-run; it reads
    // `epoch` and `busy`, and writes only `written`.
    let state = unsafe { &mut *STATE.get_ptr_mut(0)? };
    if state.closing == 0 {
        state.closing = 1;
        state.cursor = 0;
        state.epoch = state.epoch.wrapping_add(1);
    }
    let epoch = state.epoch.wrapping_sub(1);
    let slots = cache_mask() + 1;
    if state.cursor < slots {
        state.busy = 1;
        let result = evict(state, epoch as u8, slots);
        state.busy = 0;
        return result;
    }
    let result = edge(state, epoch, slots)?;
    if matches!(result, Flush::Done) {
        state.closing = 0;
    }
    Some(result)
}

#[inline(always)]
fn evict(state: &mut State, epoch: u8, slots: u32) -> Option<Flush> {
    for _ in 0..SLOTS_PER_CALL {
        if state.cursor >= slots {
            break;
        }
        // SAFETY: a per-CPU element; packets leave the cache alone while `busy` is set.
        let record = unsafe { &mut *CACHE.get_ptr_mut(state.cursor)? };
        if !record.is_empty() && record.key.epoch == epoch {
            match ring::write(record) {
                Ok(()) => *record = Record::default(),
                Err(loss) => return Some(retry(loss)),
            }
        }
        state.cursor += 1;
    }
    Some(Flush::Again)
}

#[inline(always)]
fn edge(state: &mut State, epoch: u32, slots: u32) -> Option<Flush> {
    for _ in 0..INTERFACES_MAX {
        let interface = state.cursor - slots;
        if interface >= interface_count() {
            break;
        }
        // SAFETY: a per-CPU element of the closed epoch: no packet counts there any more.
        let edge = unsafe { &mut *COUNTERS.get_ptr_mut(counters_index(epoch as u8, interface as u8))? };
        edge.interface = interface;
        edge.epoch = epoch;
        if let Err(loss) = ring::write(edge) {
            return Some(retry(loss));
        }
        state.cursor += 1;
    }
    // SAFETY: as above.
    let sizes = unsafe { &mut *SIZES.get_ptr_mut(epoch & 1)? };
    sizes.epoch = u64::from(epoch);
    Some(match ring::write(sizes) {
        Ok(()) => Flush::Done,
        Err(loss) => retry(loss),
    })
}

#[inline(always)]
const fn retry(loss: Loss) -> Flush {
    match loss {
        Loss::RingFull => Flush::RingFull,
        Loss::NoRing => Flush::NoRing,
    }
}
