//! weir's programs for the kernel.
//!
//! | program | runs | does |
//! |---|---|---|
//! | `weir` | attached to each interface | counts a packet into its flow's record, passes it on |
//! | `weir_linear` | the same, before Linux 5.18 | the same, for packets in one piece |
//! | `weir_ingress`, `weir_egress` | attached to an interface's tc hook (TCX) | the same as `weir`, there |
//! | `weir_ingress_ip`, `weir_egress_ip` | attached likewise, to devices without a link header | the same |
//! | `flush` | by test-run on one CPU, at a window's edge | closes that CPU's window |
//! | `replay` | by test-run, one captured packet a run | the same as `weir`, for a packet with a [`ReplayHeader`](weir_common::control::ReplayHeader) |
//!
//! `bin/weir.rs` makes the object that ships with weir out of them; `bin/benchmark.rs` adds the benchmark's programs.

#![no_std]
#![feature(asm_experimental_arch, stmt_expr_attributes)]
#![allow(missing_docs, reason = "the macro of the programs drops their doc comments")]
#![allow(unsafe_code, reason = "maps hand out raw pointers; each use says why it is sound")]

mod cache;
mod counters;
mod flush;
mod maps;
pub mod measure;
mod packet;
mod ring;
mod sampling;
mod skb;
pub mod xdp;

use aya_ebpf::{macros::xdp, programs::XdpContext};
use weir_common::control::Flush;

/// Closes this CPU's window, in as many calls as it takes; returns a [`Flush`].
#[xdp]
pub fn flush(_ctx: XdpContext) -> u32 {
    flush::flush().unwrap_or(Flush::NoRing) as u32
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence that the kernel asks for before it allows GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
