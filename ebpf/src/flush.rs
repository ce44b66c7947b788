//! The window's edge on one CPU.
//!
//! The first call opens the next epoch by one store. From then on packets count in the other set of counters, and their
//! keys differ from every record of the closed window. So no packet is torn between two windows, however many calls
//! follow and whatever interrupts them: the closed window has the records with its epoch, and its counters stand still.
//! The ring gets the window's last records first, then one edge per interface, then the sizes.

use weir_common::{control::Flush, cpu::Cpu, ledger::Loss, record::Record};

use crate::{
    maps::{CPUS, at, cache_bits, cache_slot, interface_count, this_cpu},
    ring::{self, NO_WAKEUP},
    sampling,
};

/// Cache slots that one call visits. The verifier follows each turn of the loop: with more turns, older kernels refuse
/// the program for its number of jumps, and newer ones take longer to load it.
const SLOTS_PER_CALL: u32 = 256;
/// Interfaces whose edges one call writes, for the same reason.
const EDGES_PER_CALL: u32 = 64;

/// Does the next part of closing the window; `None` if a map lookup fails, which the maps' sizes rule out.
#[inline(always)]
pub fn flush() -> Option<Flush> {
    let id = this_cpu();
    // SAFETY: this CPU's block. On kernels that do not disable softirqs for test-run, a packet may interrupt this program.
    // While `busy` is set, that packet leaves the cache and the waiting records alone. While it is not, the packet may
    // change them, and this program reads neither.
    let cpu = unsafe { &mut *CPUS.get_ptr_mut(id)? };
    if cpu.closing == 0 {
        cpu.closing = 1;
        cpu.cursor = 0;
        cpu.closed_rate = sampling::pending(id, cpu)?;
        cpu.epoch = cpu.epoch.wrapping_add(1);
    }
    let epoch = cpu.epoch.wrapping_sub(1);
    let slots = 1 << cache_bits();
    if cpu.cursor < slots {
        cpu.busy = 1;
        let result = evict(id, cpu, epoch as u8, slots);
        cpu.busy = 0;
        return result;
    }
    let result = edge(id, cpu, epoch, slots);
    if matches!(result, Flush::Done) {
        cpu.closing = 0;
    }
    Some(result)
}

#[inline(always)]
fn evict(id: u32, cpu: &mut Cpu, epoch: u8, slots: u32) -> Option<Flush> {
    for _ in 0..SLOTS_PER_CALL {
        if cpu.cursor >= slots {
            break;
        }
        // SAFETY: a slot of this CPU's; packets leave the cache alone while `busy` is set.
        let record = unsafe { &mut *cache_slot(id, cpu.cursor)? };
        if !record.is_empty() && record.key.epoch() == epoch {
            match ring::push(id, cpu, record) {
                Ok(()) => *record = Record::default(),
                Err(loss) => return Some(retry(loss)),
            }
        }
        cpu.cursor += 1;
    }
    Some(Flush::Again)
}

#[inline(always)]
fn edge(id: u32, cpu: &mut Cpu, epoch: u32, slots: u32) -> Flush {
    // The last records of the closed window must be in the ring before its edge.
    cpu.busy = 1;
    let written = ring::write_evicted(id, cpu);
    cpu.busy = 0;
    if let Err(loss) = written {
        return retry(loss);
    }
    let (parity, closed_rate) = ((epoch & 1) as usize, cpu.closed_rate);
    for _ in 0..EDGES_PER_CALL {
        let interface = cpu.cursor - slots;
        if interface >= interface_count() {
            break;
        }
        let edge = at(&mut cpu.counter_sets[parity].interfaces, interface as usize);
        edge.interface = interface;
        edge.epoch = epoch;
        edge.sampling = u64::from(closed_rate);
        if let Err(loss) = ring::write(id, edge, NO_WAKEUP) {
            return retry(loss);
        }
        cpu.cursor += 1;
    }
    if cpu.cursor - slots < interface_count() {
        return Flush::Again;
    }
    let sizes = &mut cpu.counter_sets[parity].sizes;
    sizes.epoch = u64::from(epoch);
    match ring::write(id, sizes, NO_WAKEUP) {
        Ok(()) => Flush::Done,
        Err(loss) => retry(loss),
    }
}

#[inline(always)]
const fn retry(loss: Loss) -> Flush {
    match loss {
        Loss::RingFull => Flush::RingFull,
        // Only packet sockets have the last reason.
        Loss::NoRing | Loss::SocketDrop => Flush::NoRing,
    }
}
