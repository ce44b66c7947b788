//! weir's kernel programs.
//!
//! | program | runs | does |
//! |---|---|---|
//! | `weir` | attached to each interface | counts a packet into its flow's record and passes it on |
//! | `weir_linear` | the same, before Linux 5.18 | the same, for packets without fragments |
//! | `weir_generic`, `weir_gen_linear` | the same, in generic mode | the same, except for copies of sent packets |
//! | `weir_ingress`, `weir_egress` | attached to an interface's tc hook (TCX) | the same as `weir`, there |
//! | `weir_ingress_ip`, `weir_egress_ip` | likewise, to devices without a link header | the same |
//! | `flush` | by test run on a given CPU, at the end of a window | closes that CPU's window |
//! | `replay` | by test run, one captured packet per run | the same as `weir`, for a packet with a [`ReplayHeader`](weir_common::control::ReplayHeader) |
//!
//! `bin/weir.rs` builds the object that ships with weir from them; `bin/benchmark.rs` adds the benchmark's programs.

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

use core::ffi::c_void;

use aya_ebpf::programs::RawTracePointContext;

/// Closes a CPU's window, over as many calls as needed. The arguments are the CPU and a
/// [`FlushOrder`](weir_common::control::FlushOrder); returns the code of a [`Flushed`](weir_common::control::Flushed).
///
/// This is a raw tracepoint program, because the kernel can run such a program on any given CPU. It is not attached.
/// The macro for these programs would drop the return value.
#[unsafe(link_section = "raw_tp/weir_flush")]
#[unsafe(no_mangle)]
pub fn flush(ctx: *mut c_void) -> u32 {
    let ctx = RawTracePointContext::new(ctx);
    flush::flush(ctx.arg::<u64>(0) as u32, ctx.arg(1)).code()
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence that the kernel requires for GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
