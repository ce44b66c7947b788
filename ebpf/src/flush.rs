//! Closes a window on one CPU.
//!
//! The first call opens the next epoch with a single store. From then on packets count in the other set of counters,
//! and their keys differ from every record of the closed window. So no packet is split between two windows, however
//! many calls follow: the closed window has the records with its epoch, and its counters no longer change. The first
//! call hands over the records that wait for the ring, and each further call those of a part of the cache. They go
//! through a map, never through the ring: the ring's lock sleeps on real-time kernels before 6.12, and an interrupt
//! must not sleep.
//!
//! There are three kinds of calls:
//!
//! | runs | meets | guard |
//! |---|---|---|
//! | on the CPU, in an interrupt | a half-counted packet | it finds `in_packet`, does nothing, and is called again |
//! | on the CPU, in a system call | a packet may interrupt it | the packet finds `busy` and leaves the cache alone |
//! | elsewhere: the CPU is offline | the CPU may come back | the same; [`FlushOrder`] has the order of steps |

use core::mem::offset_of;

use weir_common::{
    control::{Flush, FlushOrder, Flushed},
    cpu::{Cpu, EVICTED_MAX, HANDED_OVER_MAX, HandedOver},
    record::{Record, Slot, WORDS},
};

use crate::{
    maps::{CPUS, HANDED_OVER, at, cache_slot, store},
    sampling,
};

/// Cache slots that one call visits: as many as it can hand over. The verifier follows each iteration of the loop. With
/// more of them, older kernels refuse the program for its number of jumps, and newer ones take longer to load it.
const SLOTS_PER_CALL: u32 = HANDED_OVER_MAX as u32;

/// The first value of `closing` while a window is being closed. Records evicted earlier come first, as in userspace.
const EVICTED_FIRST: u32 = 1;
const CACHE_NEXT: u32 = 2;

const CLAIM: u64 = FlushOrder::Claim as u64;
const CLOSE: u64 = FlushOrder::Close as u64;
const RELEASE: u64 = FlushOrder::Release as u64;

/// Does the next part of closing the window of CPU `id`.
#[inline(always)]
pub fn flush(id: u32, order: u64) -> Flushed {
    let none = Flushed { state: Flush::NoBlock, records: 0 };
    // SAFETY: the block of that CPU. The table above lists its other users and how they are kept apart.
    let (Some(cpu), Some(handed_over)) =
        (CPUS.get_ptr_mut(id).map(|cpu| unsafe { &mut *cpu }), HANDED_OVER.get_ptr_mut(id))
    else {
        return none;
    };
    let again = Flushed { state: Flush::Again, records: 0 };
    if order == RELEASE {
        store::<{ offset_of!(Cpu, busy) }>(cpu, 0);
        return again;
    }
    if order == CLOSE && cpu.in_packet != 0 {
        return Flushed { state: Flush::Busy, records: 0 };
    }
    if cpu.closing == 0 {
        let Some(rate) = sampling::pending(id, cpu) else { return none };
        cpu.closing = EVICTED_FIRST;
        cpu.cursor = 0;
        cpu.closed_rate = rate;
        let next = cpu.epoch.wrapping_add(1);
        // The daemon has read it, because it closes one window after the other.
        *at(&mut cpu.largest, (next & 1) as usize) = 0;
        store::<{ offset_of!(Cpu, epoch) }>(cpu, next);
    }
    store::<{ offset_of!(Cpu, busy) }>(cpu, 1);
    if order == CLAIM {
        return again;
    }
    // SAFETY: only the daemon reads it, between two calls.
    let flushed = hand_over(cpu, unsafe { &mut *handed_over });
    if order == CLOSE {
        store::<{ offset_of!(Cpu, busy) }>(cpu, 0);
    }
    flushed.unwrap_or(none)
}

/// Hands over the waiting records, then the cache part by part, then the records waiting by then.
#[inline(always)]
fn hand_over(cpu: &mut Cpu, handed_over: &mut HandedOver) -> Option<Flushed> {
    let epoch = cpu.epoch.wrapping_sub(1) as u8;
    let slots = slots(cpu);
    // Counted in the block, because the verifier would follow each possible value of a local variable.
    cpu.handed_over = 0;
    if cpu.closing == EVICTED_FIRST {
        cpu.closing = CACHE_NEXT;
        return Some(Flushed { state: Flush::Again, records: hand_over_evicted(cpu, handed_over) });
    }
    if cpu.cursor < slots {
        for _ in 0..SLOTS_PER_CALL {
            if cpu.cursor >= slots {
                break;
            }
            // SAFETY: a slot of this CPU; packets leave the cache alone while `busy` is set.
            let slot = unsafe { &mut *cache_slot(cpu, cpu.cursor)? };
            if !slot.is_empty() && slot.epoch() == epoch {
                let to = at(handed_over, cpu.handed_over as usize);
                move_record(&mut slot.0, to);
                *to = Slot(*to).record();
                cpu.handed_over += 1;
            }
            // Likewise, the cursor is stored here and loaded again in the next iteration.
            let next = cpu.cursor + 1;
            store::<{ offset_of!(Cpu, cursor) }>(cpu, next);
        }
        return Some(Flushed { state: Flush::Again, records: cpu.handed_over });
    }
    // Packets between two calls may have evicted more records.
    let evicted = hand_over_evicted(cpu, handed_over);
    cpu.closing = 0;
    Some(Flushed { state: Flush::Done, records: evicted })
}

/// Hands over the records that wait for the ring, and returns how many there are.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the verifier follows one index, but not two iterators")]
fn hand_over_evicted(cpu: &mut Cpu, handed_over: &mut HandedOver) -> u32 {
    let evicted = cpu.evicted_count;
    for nth in 0..EVICTED_MAX {
        if nth as u32 >= evicted {
            break;
        }
        move_record(&mut cpu.evicted[nth], &mut handed_over[nth]);
    }
    cpu.evicted_count = 0;
    evicted
}

/// Moves a record word by word. For a plain copy the compiler calls a function that copies byte by byte, and the
/// verifier follows each iteration of that loop.
#[inline(always)]
fn move_record(from: &mut Record, to: &mut Record) {
    let (from, to) = (core::ptr::from_mut(from).cast::<u64>(), core::ptr::from_mut(to).cast::<u64>());
    for nth in 0..WORDS {
        // SAFETY: two valid, aligned records with this many words.
        unsafe {
            to.add(nth).write_volatile(from.add(nth).read_volatile());
            from.add(nth).write_volatile(0);
        }
    }
}

/// The number of slots in the CPU's cache.
#[inline(always)]
fn slots(cpu: &Cpu) -> u32 {
    1 << (u64::BITS - cpu.place_shift)
}
