//! The hot path: what every hook does for each packet.
//!
//! The code does the following, in a form that the verifier accepts:
//!
//! ```text
//! slot     = interface table[ifindex]               or: passing[ifindex], if it has no place in the table
//! in_packet = 1; at the end of each line that passes: in_packet = 0
//! counters = this CPU's counters[epoch's parity][slot];  seen += packet, and its size
//! has fed totals and lists on another interface?  repeated += packet, else  sizes[length] += 1
//! left out by sampling?  sampled_out += packet, pass
//! key      = parse(packet)      or: skipped[reason] += packet, pass
//! record   = this CPU's cache[hash(key)]
//! record.key == key ? record += packet : (evict record into the ring; record = packet)
//! TCP flags that begin or end a connection?  tcp[each of them] += 1
//! pass
//! ```
//!
//! Only four registers survive a call, and to the compiler each kernel helper is a call. So common packets come first,
//! in an order that keeps few values alive across calls.
//!
//! A call that really is made is dear: on processors whose returns may not be predicted (AMD up to Zen 4, Speculative
//! Return Stack Overflow), each return costs 4 to 10 ns. So no packet that has a key makes one, unless it evicts a
//! record. What is rare is in separate functions.

use core::{arch::asm, mem::offset_of};

use aya_ebpf::helpers::generated::bpf_jiffies64;
use weir_common::{
    control::{Feeds, INTERFACE_PROBES, InterfaceSlot, Passing, SLOTS_MAX, egress, is_egress},
    cpu::Cpu,
    flow::Scope,
    ledger::{Counters, Skip, Tally, TcpPackets, Uncertain},
    packet::Parsed,
    record::{Marks, Record, Sample},
    size::{EXACT, size_class},
};

use crate::{
    cache,
    counters::counters,
    maps::{CPUS, PASSING, at, interface_entry, is_sampling, masked, store, this_cpu},
    ring, sampling,
};

/// A packet as seen by a hook.
pub trait Packet: Copy {
    /// The index of its interface, or its [`weir_common::control::egress`] key for a packet that the interface sends.
    fn interface(self) -> u32;
    /// For a packet that the router sends, the index of the interface through which it arrived; 0 for the router's own
    /// packets and for all received packets.
    fn came_by(self) -> u32;
    /// One packet, or as many as an offload merged into it.
    fn tally(self) -> Tally;
    /// Whether an offload merged several packets.
    #[inline(always)]
    fn is_merged(self) -> bool {
        false
    }
    /// What is uncertain about merged packets; call it after [`Packet::tally`].
    #[inline(always)]
    fn uncertain(self) -> Uncertain {
        Uncertain::default()
    }
    /// Arrival time: see [`Record::first_tick`].
    #[inline(always)]
    fn tick(self) -> u32 {
        // SAFETY: the helper takes no argument; the verifier turns it into a load.
        unsafe { bpf_jiffies64() as u32 }
    }
    /// Calls `found` with the flow of a common packet, whose headers are at fixed offsets; `None` for any other packet.
    fn common<T>(self, found: impl FnOnce(Parsed) -> T) -> Option<T>;
    /// The flow of a packet that is not common, or the reason why it has none.
    fn walk(self) -> Result<Parsed, Skip>;
}

/// Counts a packet.
///
/// `None` if a map lookup fails. The sizes of the maps rule that out, but the verifier requires the check.
#[inline(always)]
pub fn measure(packet: impl Packet) -> Option<()> {
    // First, while nothing has to outlive these calls.
    // SAFETY: this CPU's block. No other packet is measured on this CPU until this one is finished, and `flush` returns
    // at once if it finds `in_packet`.
    let cpu = unsafe { &mut *CPUS.get_ptr_mut(this_cpu())? };
    let tally = packet.tally();
    let entry = interface_slot(packet.interface());
    store::<{ offset_of!(Cpu, in_packet) }>(cpu, 1);
    let counted = count_seen(packet, cpu, entry, tally);
    store::<{ offset_of!(Cpu, in_packet) }>(cpu, 0);
    counted
}

/// Counts a packet: it is half counted from here on.
#[inline(always)]
fn count_seen(packet: impl Packet, cpu: &mut Cpu, entry: u32, tally: Tally) -> Option<()> {
    let slot = masked::<{ SLOTS_MAX as usize }>(entry as usize);
    let mut scope = Scope::new(slot as u8, cpu.epoch as u8);
    let set = &mut cpu.counter_sets[usize::from(scope.epoch() & 1)];
    let counters = &mut set.interfaces[slot];
    counters.seen.add(tally);
    if packet.is_merged() {
        count_merged(packet, counters, tally);
    }
    let bytes = tally.mean_bytes();
    if entry >> 8 == Feeds::All as u32 && bytes < EXACT {
        counters.sizes.count(bytes as usize, tally.packets);
        set.sizes[bytes as usize] += tally.packets;
    } else {
        if entry >> 8 != Feeds::All as u32 && has_fed(entry >> 8, packet.came_by()) {
            counters.repeated.add(tally);
            scope = scope.repeated();
        }
        count_size(cpu, scope, tally);
    }
    // SAFETY: this is true for every scope.
    unsafe { core::hint::assert_unchecked(scope.is_apart()) };
    if is_sampling() {
        // The verifier knows the answer, and drops either this call or everything after it.
        return measure_sampled(packet, cpu, scope, tally);
    }
    let counted = packet.common(
        // Inlined in all places that call it; otherwise the key would go through memory.
        #[inline(always)]
        |parsed: Parsed| count_common(packet, parsed, cpu, scope, tally),
    );
    match counted {
        Some(counted) => counted,
        None => measure_uncommon(packet, cpu, scope, tally),
    }
}

/// Counts what applies only to a merged buffer.
#[cold]
#[inline(never)]
fn count_merged(packet: impl Packet, counters: &mut Counters, tally: Tally) {
    counters.merged += tally.packets - 1;
    let Uncertain { least, most } = packet.uncertain();
    counters.uncertain.least.add(least);
    counters.uncertain.most.add(most);
}

/// Counts the size of any packet. The class of a large one covers several sizes, so the largest packet of a window is
/// noted.
#[inline(always)]
fn count_size(cpu: &mut Cpu, scope: Scope, tally: Tally) {
    let bytes = tally.mean_bytes();
    let class = size_class(bytes);
    let parity = usize::from(scope.epoch() & 1);
    let set = &mut cpu.counter_sets[parity];
    at(&mut set.interfaces, usize::from(scope.interface())).sizes.count(class, tally.packets);
    if scope.is_repeated() {
        return;
    }
    if let Some(packets) = set.sizes.get_mut(class) {
        *packets += tally.packets;
        if class >= EXACT as usize {
            note_largest(cpu, scope, tally);
        }
    }
}

/// Notes the largest packet of a window.
#[cold]
#[inline(never)]
fn note_largest(cpu: &mut Cpu, scope: Scope, tally: Tally) {
    let bytes = tally.mean_bytes() as u32;
    let largest = at(&mut cpu.largest, usize::from(scope.epoch() & 1));
    if bytes > *largest {
        *largest = bytes;
    }
}

/// Counts a packet that is not common.
#[inline(always)]
fn measure_uncommon(packet: impl Packet, cpu: &mut Cpu, scope: Scope, tally: Tally) -> Option<()> {
    let tally = Tally::new(tally.packets, barrier(tally.bytes));
    count_parsed(packet, packet.walk(), cpu, scope, tally, 1)
}

/// Counts any packet, or leaves it out, with sampling on.
#[inline(never)]
fn measure_sampled(packet: impl Packet, cpu: &mut Cpu, scope: Scope, tally: Tally) -> Option<()> {
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
    count_parsed(packet, parsed, cpu, scope, tally, sampling)
}

/// Counts a common packet.
#[inline(always)]
fn count_common(packet: impl Packet, parsed: Parsed, cpu: &mut Cpu, scope: Scope, tally: Tally) -> Option<()> {
    let marks = Marks(opaque(Marks::new(&parsed, 1).0));
    let parsed = Parsed { key: parsed.key.with_scope(scope), tos: marks.tos(), ..parsed };
    count(packet, &parsed, cpu, tally, marks)?;
    // This is last, because it needs hardly anything of the packet.
    count_connections(cpu, &parsed, marks);
    Some(())
}

/// The same number, with its origin hidden from the compiler.
#[inline(always)]
fn opaque(mut number: u64) -> u64 {
    // SAFETY: register arithmetic only.
    unsafe { asm!("{0} += 0", inout(reg) number, options(pure, nomem, nostack)) };
    number
}

/// The same number. Everything that was read before is read again afterwards: otherwise the compiler keeps what it
/// learned from a packet that is not common, and the verifier follows each reason why it is not to the end.
#[inline(always)]
fn barrier(mut number: u64) -> u64 {
    // SAFETY: register arithmetic only; to the compiler it may write any memory.
    unsafe { asm!("{0} += 0", inout(reg) number, options(nostack)) };
    number
}

/// Counts a packet if it begins or ends a TCP connection.
#[inline(always)]
fn count_connections(cpu: &mut Cpu, parsed: &Parsed, marks: Marks) {
    if marks.tcp_flags() & TcpPackets::COUNTED != 0 {
        // The compiler cannot keep parts of an opaque number in registers; every packet would pay for that.
        count_tcp(cpu, opaque(parsed.key.tail()), marks);
    }
}

/// The same for a packet of which only its key's tail and its marks are known.
#[cold]
#[inline(never)]
fn count_tcp(cpu: &mut Cpu, tail: u64, marks: Marks) {
    counters(cpu, Scope::of_tail(tail)).tcp.count(marks.tcp_flags(), marks.sampling().into());
}

/// Counts a packet that is not common, or one that sampling took.
#[inline(always)]
fn count_parsed(
    packet: impl Packet,
    parsed: Result<Parsed, Skip>,
    cpu: &mut Cpu,
    scope: Scope,
    tally: Tally,
    sampling: u16,
) -> Option<()> {
    match parsed {
        Ok(parsed) => {
            let marks = Marks(opaque(Marks::new(&parsed, sampling).0));
            let parsed = Parsed { key: parsed.key.with_scope(scope), tos: marks.tos(), ..parsed };
            // This is first here, because the verifier repeats everything after a record for each path that led to it.
            count_connections(cpu, &parsed, marks);
            count(packet, &parsed, cpu, tally, marks)
        }
        Err(skip) => {
            counters(cpu, scope).skipped.get_mut(skip as usize)?.add(tally);
            Some(())
        }
    }
}

/// Counts a packet into its flow's record. Its key must have its scope.
#[inline(always)]
fn count(packet: impl Packet, parsed: &Parsed, cpu: &mut Cpu, tally: Tally, marks: Marks) -> Option<()> {
    let sample = #[inline(always)]
    || Sample { tally, tick: packet.tick(), vlan: parsed.vlan, marks };
    if cpu.busy != 0 {
        // This packet has interrupted `flush`, which some kernels allow, so the cache belongs to `flush`.
        ring::emit(this_cpu(), cpu, &Record::first(parsed.key, sample()));
        return Some(());
    }
    cache::count(cpu, parsed, sample)
}

/// Whether a packet has fed totals and lists on another interface, if not all packets feed here.
#[inline(always)]
fn has_fed(feeds: u32, came_by: u32) -> bool {
    feeds == Feeds::None as u32 || passing(came_by).has_fed()
}

/// The slot of an interface and what it feeds: see [`InterfaceSlot::slot`].
#[inline(always)]
fn interface_slot(key: u32) -> u32 {
    for probe in 0..INTERFACE_PROBES {
        let entry = interface_entry(key, probe);
        if entry.ifindex == key {
            return entry.slot;
        }
    }
    without_place(key)
}

/// The same for an interface without a place in the table: all its places are taken, or it has no slot of its own.
#[inline(never)]
fn without_place(key: u32) -> u32 {
    let is_egress = is_egress(key);
    let passing = passing(if is_egress { egress(key) } else { key });
    InterfaceSlot::new(key, passing.slot(is_egress), passing.feeds(is_egress)).slot
}

/// What is known about an interface besides its slot.
#[inline(always)]
fn passing(ifindex: u32) -> Passing {
    // SAFETY: the daemon replaces whole words.
    unsafe { PASSING.get(ifindex) }.copied().map_or(Passing::default(), Passing)
}
