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
//! | `baseline` | by test-run, in the benchmark | nothing: what a run costs without weir |
//! | `draw` | by test-run, in the benchmark | nothing but drawing one of a million flows (Zipf 1.1) |
//! | `two_flows` | by test-run, in the benchmark | the same as `weir`, as if packets were of two flows in turn |
//! | `all_miss` | by test-run, in the benchmark | the same as `weir`, as if every packet began a new flow |
//! | `zipf` | by test-run, in the benchmark | the same, as if packets were of a million flows (Zipf 1.1) |

#![no_std]
#![no_main]
#![feature(asm_experimental_arch, stmt_expr_attributes)]
#![allow(missing_docs, reason = "the macro of the programs drops their doc comments")]
#![allow(unsafe_code, reason = "maps hand out raw pointers; each use says why it is sound")]

mod bench;
mod cache;
mod flush;
mod maps;
mod measure;
mod packet;
mod ring;
mod sampling;
mod skb;
mod xdp;

use aya_ebpf::{macros::xdp, programs::XdpContext};
use weir_common::control::Flush;

/// Closes this CPU's window, in as many calls as it takes; returns a [`Flush`].
#[xdp]
pub fn flush(_ctx: XdpContext) -> u32 {
    flush::flush().unwrap_or(Flush::NoRing) as u32
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
