//! The hot path: one packet, at whichever hook.
//!
//! In plain text; the code is the same with the verifier's needs:
//!
//! ```text
//! slot     = interface table[ifindex]
//! counters = this CPU's counters[epoch's parity][slot];  seen += packet;  sizes[length] += 1
//! left out by sampling?  sampled_out += packet, pass
//! key      = parse(packet)      or: skipped[reason] += packet, pass
//! record   = this CPU's cache[hash(key)]
//! record.key == key ? record += packet : (evict record into the ring; record = packet)
//! pass
//! ```
//!
//! A call, and each of the kernel's helpers is one to the compiler, leaves four registers as they were. So what common
//! packets need comes first and in an order in which little must outlive a call; what the others need is in functions of
//! its own, or it would take the registers.

use aya_ebpf::helpers::generated::bpf_jiffies64;
use weir_common::{
    control::{INTERFACE_PROBES, InterfaceSlot},
    cpu::Cpu,
    flow::{FlowKey, Scope},
    ledger::{Skip, Tally},
    packet::Parsed,
    record::{Record, Sample},
    size::size_class,
};

use crate::{
    cache,
    counters::counters,
    maps::{CPUS, INTERFACES, at, is_sampling, this_cpu},
    ring, sampling,
};

/// A packet, where a hook has it.
pub trait Packet: Copy {
    /// The index of its interface; what it sends has another, see [`weir_common::control::egress`].
    fn interface(self) -> u32;
    /// One packet, or as many as an offload merged into one, which then share its headers.
    fn tally(self) -> Tally;
    /// What `found` makes of the flow of a common packet, whose headers have fixed places; `None` for any other.
    fn common<T>(self, found: impl FnOnce(Parsed) -> T) -> Option<T>;
    /// The flow of a packet that is not a common one, or why it has none.
    fn walk(self) -> Result<Parsed, Skip>;
}

/// Counts a packet.
///
/// `None` where a map lookup fails, which the maps' sizes rule out but the verifier wants handled.
#[inline(always)]
pub fn measure(packet: impl Packet) -> Option<()> {
    let tally = packet.tally();
    let interface = interface_slot(packet.interface())?;
    // SAFETY: this CPU's block: nothing else runs on this CPU between here and the end of the program.
    let cpu = unsafe { &mut *CPUS.get_ptr_mut(this_cpu())? };
    let scope = Scope::new(interface, cpu.epoch as u8);
    let set = &mut cpu.sets[usize::from(scope.epoch() & 1)];
    let counters = &mut at(&mut set.interfaces, usize::from(interface)).counters;
    counters.seen.add(tally);
    counters.merged += tally.packets - 1;
    if let Some(class) = set.sizes.packets.get_mut(size_class(tally.mean_bytes())) {
        *class += tally.packets;
    }
    if is_sampling() {
        // The verifier knows, and drops this or all that follows.
        return sampled(packet, cpu, scope, tally);
    }
    let counted = packet.common(
        // In each of its two places, or the key would go through memory.
        #[inline(always)]
        |parsed: Parsed| count(cpu, parsed.key.with_scope(scope), tally, 1, parsed.tcp_flags),
    );
    match counted {
        Some(counted) => counted,
        None => rest(packet, cpu, scope, tally),
    }
}

/// The same for a packet that is not a common one.
#[inline(never)]
fn rest(packet: impl Packet, cpu: &mut Cpu, scope: Scope, tally: Tally) -> Option<()> {
    account(packet.walk(), cpu, scope, tally, 1)
}

/// The same for any packet, where some are left out.
#[inline(never)]
fn sampled(packet: impl Packet, cpu: &mut Cpu, scope: Scope, tally: Tally) -> Option<()> {
    let Some(sampling) = sampling::take(this_cpu(), cpu) else {
        counters(cpu, scope).sampled_out.add(tally);
        return Some(());
    };
    let common = packet.common(
        #[inline(always)]
        |parsed| parsed,
    );
    let parsed = match common {
        Some(parsed) => Ok(parsed),
        None => packet.walk(),
    };
    account(parsed, cpu, scope, tally, sampling)
}

#[inline(always)]
fn account(parsed: Result<Parsed, Skip>, cpu: &mut Cpu, scope: Scope, tally: Tally, sampling: u16) -> Option<()> {
    match parsed {
        Ok(parsed) => count(cpu, parsed.key.with_scope(scope), tally, sampling, parsed.tcp_flags),
        Err(skip) => {
            counters(cpu, scope).skipped.get_mut(skip as usize)?.add(tally);
            Some(())
        }
    }
}

#[inline(always)]
fn count(cpu: &mut Cpu, key: FlowKey, tally: Tally, sampling: u16, tcp_flags: u8) -> Option<()> {
    if cpu.busy != 0 {
        // SAFETY: the helper takes no argument; the verifier makes it a load.
        let tick = unsafe { bpf_jiffies64() } as u32;
        // `flush` was interrupted on this CPU, where the kernel does not shut softirqs out: the cache is not ours.
        ring::emit(this_cpu(), cpu, &Record::first(key, Sample { tally, tick, sampling, tcp_flags }));
        return Some(());
    }
    cache::count(cpu, key, tally, sampling, tcp_flags)
}

#[inline(always)]
fn interface_slot(ifindex: u32) -> Option<u8> {
    for probe in 0..INTERFACE_PROBES {
        let entry = INTERFACES.get(InterfaceSlot::place(ifindex, probe))?;
        if entry.ifindex == ifindex {
            return Some(entry.slot as u8);
        }
    }
    None
}
