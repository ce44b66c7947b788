//! The hot path: what every hook does for each packet.
//!
//! The code does the following, in a form that the verifier accepts:
//!
//! ```text
//! slot     = interface table[ifindex]               or: passing[ifindex], if it has no place in the table
//! in_packet = 1; at the end of each line that passes: in_packet = 0
//! has the interface a histogram, and is the packet an ordinary one?  lengths[epoch's parity][slot][length] += 1
//! else: counters = this CPU's counters[epoch's parity][slot];  seen += packet, and its size
//!       has fed totals and lists on another interface?  repeated += packet, else  sizes[length] += 1
//! left out by sampling?  sampled_out += packet, pass
//! key      = parse(packet)      or: skipped[reason] += packet, pass
//! record   = this CPU's cache[hash(key)]
//! record.key == key ? record += packet : (evict record into the ring; record = packet)
//! TCP flags that begin or end a connection?  tcp[each of them] += 1
//! pass
//! ```
//!
//! Only four registers survive a call, and to the compiler each kernel helper is a call. So common packets come first,
//! in an order that keeps few values alive across calls. `tests/parser/cost.rs` counts the instructions of each kind of
//! packet.
//!
//! A call that really is made is dear: on processors whose returns may not be predicted (AMD up to Zen 4, Speculative
//! Return Stack Overflow), each return costs 4 to 10 ns. So no packet that has a key makes one, unless it evicts a
//! record, or its interface shares a place of the table with another. What is rare is in separate functions.

use core::{arch::asm, hint::cold_path, mem::offset_of};

use aya_ebpf::helpers::generated::bpf_jiffies64;
use weir_common::{
    control::{Feeds, INTERFACE_PROBES, InterfaceSlot, Passing, SLOTS_MAX, egress, is_egress},
    cpu::{Cpu, HISTOGRAMS},
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
    /// Arrival time: see [`Sample::tick`].
    #[inline(always)]
    fn tick(self) -> u64 {
        // SAFETY: the helper takes no argument; the verifier turns it into a load.
        unsafe { bpf_jiffies64() }
    }
    /// Calls `found` with the flow of a common packet, whose headers are at fixed offsets; `None` for any other packet.
    fn common<T>(self, found: impl FnOnce(Result<Parsed, Skip>) -> T) -> Option<T>;
    /// The flow of a packet that is not common, or the reason why it has none.
    fn walk(self) -> Result<Parsed, Skip>;
}

/// Counts a packet.
///
/// `None` if a map lookup fails. The sizes of the maps rule that out, but the verifier requires the check.
#[inline(always)]
pub fn measure(packet: impl Packet) -> Option<()> {
    if is_sampling() {
        // The verifier knows the answer, and drops either this call or everything after it.
        return measure_sampled(packet);
    }
    begin(
        packet,
        #[inline(always)]
        |cpu, scope, tally| {
            let counted = packet.common(
                // Inlined in all places that call it; otherwise the key would go through memory.
                #[inline(always)]
                |parsed| count_common(packet, parsed, cpu, scope, tally),
            );
            match counted {
                Some(counted) => counted,
                None => measure_uncommon(packet, cpu, scope, tally),
            }
        },
    )
}

/// Counts what was seen, and then the flow, which `count_flow` does: meanwhile the packet is half counted.
#[inline(always)]
fn begin(packet: impl Packet, count_flow: impl FnOnce(&mut Cpu, Scope, Tally) -> Option<()>) -> Option<()> {
    // First, while nothing has to outlive these calls.
    let tally = packet.tally();
    // SAFETY: this CPU's block. No other packet is measured on this CPU until this one is finished, and `flush` returns
    // at once if it finds `in_packet`.
    let cpu = unsafe { &mut *CPUS.get_ptr_mut(this_cpu())? };
    let entry = interface_slot(packet.interface());
    store::<{ offset_of!(Cpu, in_packet) }>(cpu, 1);
    let scope = count_seen(packet, cpu, entry, tally);
    let counted = count_flow(cpu, scope, tally);
    store::<{ offset_of!(Cpu, in_packet) }>(cpu, 0);
    counted
}

/// Counts a packet in its interface's ledger, and returns its scope.
#[inline(always)]
fn count_seen(packet: impl Packet, cpu: &mut Cpu, entry: u64, tally: Tally) -> Scope {
    let mut scope = Scope::new(entry as u8, cpu.epoch as u8);
    const { assert!(Feeds::All as u32 == 0) };
    // An entry this small is the slot of an interface that has a histogram and whose packets all feed.
    if entry < HISTOGRAMS.into() && tally.bytes < EXACT && !packet.is_merged() {
        count_length(cpu, entry, tally.bytes);
    } else {
        cold_path();
        scope = count_odd(packet, cpu, entry, tally);
    }
    // SAFETY: this is true for every scope.
    unsafe { core::hint::assert_unchecked(scope.is_apart()) };
    scope
}

/// Counts a packet in its interface's histogram: see [`weir_common::cpu::Lengths`].
#[inline(always)]
fn count_length(cpu: &mut Cpu, slot: u64, bytes: u64) {
    const PARITIES: usize = 2;
    const LENGTHS: usize = PARITIES * HISTOGRAMS as usize * EXACT as usize;
    // One number and one mask, instead of one for each index.
    let histogram = cpu.epoch as usize * HISTOGRAMS as usize + slot as usize;
    let place = masked::<LENGTHS>(histogram * EXACT as usize + bytes as usize);
    // SAFETY: below the length of the array, which consists of these words.
    let packets = unsafe { &mut *(&raw mut cpu.lengths).cast::<u64>().add(place) };
    *packets = packets.wrapping_add(1);
}

/// Counts what was seen where no histogram does, and returns the packets' scope. The class of a large packet covers
/// several sizes, so the largest packet of a window is noted.
#[inline(always)]
fn count_odd(packet: impl Packet, cpu: &mut Cpu, entry: u64, tally: Tally) -> Scope {
    let slot = masked::<{ SLOTS_MAX as usize }>(entry as usize);
    let mut scope = Scope::new(slot as u8, cpu.epoch as u8);
    let set = &mut cpu.counter_sets[usize::from(scope.epoch() & 1)];
    let counters = &mut set.interfaces[slot];
    counters.seen.add(tally);
    if packet.is_merged() {
        count_merged(packet, counters, tally);
    }
    let class = size_class(forget_least(tally.mean_bytes()));
    counters.sizes.count(class, tally.packets);
    if entry >> 8 != Feeds::All as u64 && has_fed(entry >> 8, packet.came_by()) {
        counters.repeated.add(tally);
        scope = scope.repeated();
    } else if let Some(packets) = set.sizes.get_mut(class) {
        *packets += tally.packets;
        if class >= EXACT as usize {
            note_largest(cpu, scope, tally);
        }
    }
    scope
}

/// The same number, of which the verifier forgets that it is at least another one. Verifiers before Linux 6.2 follow a
/// second comparison with that one both ways, and refuse what they find where it is smaller.
#[inline(always)]
fn forget_least(mut number: u64) -> u64 {
    // SAFETY: register arithmetic only.
    unsafe { asm!("{0} &= -1", inout(reg) number, options(pure, nomem, nostack)) };
    number
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
///
/// All of it is in one function. If only a part of it were, the frames of that part and of the program would have to
/// fit together into the 512 bytes of stack that the kernel allows.
#[inline(never)]
fn measure_sampled(packet: impl Packet) -> Option<()> {
    begin(
        packet,
        #[inline(always)]
        |cpu, scope, tally| {
            let Some(sampling) = sampling::take(this_cpu(), cpu) else {
                counters(cpu, scope).sampled_out.add(tally);
                return Some(());
            };
            let common = packet.common(
                #[inline(always)]
                |parsed| parsed,
            );
            let parsed = match common {
                Some(parsed) => parsed,
                None => packet.walk(),
            };
            count_parsed(packet, parsed, cpu, scope, tally, sampling)
        },
    )
}

/// Counts a common packet.
#[inline(always)]
fn count_common(
    packet: impl Packet,
    parsed: Result<Parsed, Skip>,
    cpu: &mut Cpu,
    scope: Scope,
    tally: Tally,
) -> Option<()> {
    let parsed = match parsed {
        Ok(parsed) => Parsed { key: parsed.key.with_scope(scope), ..parsed },
        Err(skip) => return count_skipped(cpu, skip, scope, tally),
    };
    count(
        &parsed,
        cpu,
        #[inline(always)]
        || Sample::new(&parsed, tally, packet.tick(), 1),
    )?;
    // This is last, because it needs hardly anything of the packet.
    if parsed.tcp_flags & TcpPackets::COUNTED != 0 {
        // The compiler cannot keep parts of an opaque number in registers; every packet would pay for that.
        count_tcp(cpu, opaque(parsed.key.tail()), Marks::new(&parsed, 1));
    }
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
            count(
                &parsed,
                cpu,
                #[inline(always)]
                || Sample { tally, tick: packet.tick(), vlan: parsed.vlan, marks },
            )
        }
        Err(skip) => count_skipped(cpu, skip, scope, tally),
    }
}

/// Counts a packet without a key.
#[inline(always)]
fn count_skipped(cpu: &mut Cpu, skip: Skip, scope: Scope, tally: Tally) -> Option<()> {
    counters(cpu, scope).skipped.get_mut(skip as usize)?.add(tally);
    Some(())
}

/// Counts a packet into its flow's record. Its key must have its scope.
#[inline(always)]
fn count(parsed: &Parsed, cpu: &mut Cpu, sample: impl Fn() -> Sample) -> Option<()> {
    if cpu.busy != 0 {
        // This packet has interrupted `flush`, which some kernels allow, so the cache belongs to `flush`.
        ring::emit(this_cpu(), cpu, &Record::first(parsed.key, sample()));
        return Some(());
    }
    cache::count(cpu, parsed, sample)
}

/// Whether a packet has fed totals and lists on another interface, if not all packets feed here.
#[inline(always)]
fn has_fed(feeds: u64, came_by: u32) -> bool {
    feeds == Feeds::None as u64 || passing(came_by).has_fed()
}

/// The slot of an interface and what it feeds: see [`InterfaceSlot::slot`].
#[inline(always)]
fn interface_slot(key: u32) -> u64 {
    let entry = interface_entry(key, 0);
    if entry.ifindex == key {
        return entry.slot.into();
    }
    cold_path();
    at_another_place(key)
}

/// The same for an interface that is not at its first place.
#[cold]
#[inline(never)]
fn at_another_place(key: u32) -> u64 {
    for probe in 1..INTERFACE_PROBES {
        let entry = interface_entry(key, probe);
        if entry.ifindex == key {
            return entry.slot.into();
        }
    }
    without_place(key).into()
}

/// The same for an interface without a place in the table: all its places are taken, or it has no slot of its own.
#[inline(always)]
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
