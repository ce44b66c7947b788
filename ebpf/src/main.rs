//! weir's programs for the kernel.
//!
//! | program | runs | does |
//! |---|---|---|
//! | `weir` | attached to each interface | counts a packet into its flow's record, passes it on |
//! | `weir_linear` | the same, before Linux 5.18 | the same, for packets in one piece |
//! | `weir_ingress`, `weir_egress` | attached to an interface's tc hook (TCX) | the same as `weir`, there |
//! | `weir_ingress_ip`, `weir_egress_ip` | attached likewise, to devices without a link header | the same |
//! | `flush` | by test-run on one CPU, at a window's edge | closes that CPU's window |
//! | `replay` | by test-run, one captured packet a run | the same as `weir`, for a packet with a [`ReplayHeader`] |
//! | `baseline` | by test-run, in the benchmark | nothing: what a run costs without weir |
//! | `two_flows` | by test-run, in the benchmark | the same as `weir`, as if packets were of two flows in turn |
//! | `all_miss` | by test-run, in the benchmark | the same as `weir`, as if every packet began a new flow |
//! | `zipf` | by test-run, in the benchmark | the same, as if packets were of a million flows (Zipf 1.1) |
//!
//! The hot path in plain text; [`measure`] is the same with the verifier's needs:
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

#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
#![allow(missing_docs, reason = "the macro of the programs drops their doc comments")]
#![allow(unsafe_code, reason = "maps hand out raw pointers; each use says why it is sound")]

mod cache;
mod flush;
mod maps;
mod packet;
mod ring;
mod sampling;
mod skb;
mod vary;

use aya_ebpf::{
    EbpfContext as _,
    bindings::xdp_action::XDP_PASS,
    helpers::generated::{bpf_jiffies64, bpf_xdp_get_buff_len},
    macros::xdp,
    programs::XdpContext,
};
use weir_common::{
    control::{Flush, INTERFACE_PROBES, InterfaceSlot, ReplayHeader},
    ledger::Tally,
    packet::Link,
    record::{Record, Sample},
    size::size_class,
};

use crate::{
    maps::{CPUS, INTERFACES, at, has_fragments, is_sampling, this_cpu},
    packet::{Frame, Headers},
    vary::Vary,
};

/// Measures every packet of an interface.
#[xdp(frags)]
pub fn weir(ctx: XdpContext) -> u32 {
    let _ = measure(interface(&ctx), &Frame::new(&ctx, usize::MAX), Link::Ethernet, one(&ctx), Vary::Nothing);
    XDP_PASS
}

/// As [`weir`], for kernels that do not know packets in several pieces and refuse the flag by which a program takes
/// them.
#[xdp]
pub fn weir_linear(ctx: XdpContext) -> u32 {
    let _ = measure(interface(&ctx), &Frame::new(&ctx, usize::MAX), Link::Ethernet, one(&ctx), Vary::Nothing);
    XDP_PASS
}

/// Measures a captured packet; see [`ReplayHeader`].
#[xdp(frags)]
pub fn replay(ctx: XdpContext) -> u32 {
    if let Some(header) = replay_header(&ctx) {
        let frame = Frame::new(&ctx, header.captured as usize);
        let one = Tally::new(1, u64::from(header.wire_bytes));
        let _ = measure(interface(&ctx), &frame, Link::from_code(header.link as u8), one, Vary::Nothing);
    }
    XDP_PASS
}

/// Closes this CPU's window, in as many calls as it takes; returns a [`Flush`].
#[xdp]
pub fn flush(_ctx: XdpContext) -> u32 {
    flush::flush().unwrap_or(Flush::NoRing) as u32
}

/// Passes.
#[xdp(frags)]
pub fn baseline(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

/// Measures packets as those of two flows in turn.
#[xdp(frags)]
pub fn two_flows(ctx: XdpContext) -> u32 {
    let _ = measure(interface(&ctx), &Frame::new(&ctx, usize::MAX), Link::Ethernet, one(&ctx), Vary::InTurn);
    XDP_PASS
}

/// Measures every packet as one of a flow of its own, since test-run repeats the same.
#[xdp(frags)]
pub fn all_miss(ctx: XdpContext) -> u32 {
    let _ = measure(interface(&ctx), &Frame::new(&ctx, usize::MAX), Link::Ethernet, one(&ctx), Vary::Each);
    XDP_PASS
}

/// Measures every packet as one of a million flows, of which some are much larger than others.
#[xdp(frags)]
pub fn zipf(ctx: XdpContext) -> u32 {
    let _ = measure(interface(&ctx), &Frame::new(&ctx, usize::MAX), Link::Ethernet, one(&ctx), Vary::Zipf);
    XDP_PASS
}

/// The index of the interface that a packet came in by.
#[inline(always)]
fn interface(ctx: &XdpContext) -> u32 {
    ctx.ingress_ifindex() as u32
}

/// One packet of the context's length, fragments included.
///
/// The verifier of a kernel without fragments sees that the helper, which it does not know, is never called.
#[inline(always)]
fn one(ctx: &XdpContext) -> Tally {
    let bytes = if has_fragments() {
        // SAFETY: the context is the one that the kernel passed to this program.
        unsafe { bpf_xdp_get_buff_len(ctx.as_ptr().cast()) }
    } else {
        (ctx.data_end() - ctx.data()) as u64
    };
    Tally::new(1, bytes)
}

/// Counts what came in by the interface with this index: `one` packet, of which `frame` has the headers; or as many as
/// an offload merged into one, which then share them.
///
/// `None` where a map lookup fails, which the maps' sizes rule out but the verifier wants handled.
#[inline(always)]
fn measure(ifindex: u32, frame: &impl Headers, link: Link, one: Tally, vary: Vary) -> Option<()> {
    let interface = interface_slot(ifindex)?;
    let id = this_cpu();
    // SAFETY: this CPU's block: nothing else runs on this CPU between here and the end of the program.
    let cpu = unsafe { &mut *CPUS.get_ptr_mut(id)? };
    let taken = if is_sampling() { sampling::take(id, cpu) } else { Some(1) };
    let epoch = cpu.epoch as u8;
    let parity = usize::from(epoch & 1);
    let counters = &mut at(&mut cpu.counters[parity], usize::from(interface)).counters;
    counters.seen.add(one);
    counters.merged += one.packets - 1;
    if let Some(class) = cpu.sizes[parity].packets.get_mut(size_class(one.mean_bytes())) {
        *class += one.packets;
    }
    let Some(sampling) = taken else {
        counters.sampled_out.add(one);
        return Some(());
    };

    let parsed = match frame.parse(link) {
        Ok(parsed) => parsed,
        Err(skip) => {
            if let Some(skipped) = counters.skipped.get_mut(skip as usize) {
                skipped.add(one);
            }
            return Some(());
        }
    };
    let mut key = parsed.key.with_scope(interface, epoch);
    key.src.0[1] ^= vary.mask(counters.seen.packets);
    // SAFETY: the helper takes no argument; the verifier makes it a load.
    let tick = unsafe { bpf_jiffies64() } as u32;
    let packet = Sample { tally: one, tick, sampling, tcp_flags: parsed.tcp_flags };
    if cpu.busy != 0 {
        // `flush` was interrupted on this CPU, where the kernel does not shut softirqs out: the cache is not ours.
        ring::emit(id, cpu, &Record::first(key, packet));
        return Some(());
    }
    cache::count(id, cpu, key, packet)
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

#[inline(always)]
fn replay_header(ctx: &XdpContext) -> Option<ReplayHeader> {
    let header = ctx.metadata();
    if header + size_of::<ReplayHeader>() > ctx.metadata_end() {
        return None;
    }
    // SAFETY: the header lies within the metadata, by the check above; 4-byte alignment is the kernel's rule for it.
    Some(unsafe { *(header as *const ReplayHeader) })
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence that the kernel asks for before it allows GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
