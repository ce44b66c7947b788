//! Reading a packet so that the verifier can follow.

use core::arch::asm;

use aya_ebpf::programs::XdpContext;
use weir_common::{
    ledger::Skip,
    packet::{Bytes, Link, Parsed, REACH_MAX},
};

/// A packet's headers, wherever a hook has them.
pub trait Headers {
    /// The flow that the packet belongs to, or why it belongs to none.
    fn parse(&self, link: Link) -> Result<Parsed, Skip>;
}

/// A packet between `data` and `data_end`.
pub struct Frame {
    data: usize,
    data_end: usize,
    captured: usize,
}

impl Frame {
    /// The context's packet, of which at most `captured` bytes are real.
    #[inline(always)]
    pub fn new(ctx: &XdpContext, captured: usize) -> Self {
        Self { data: ctx.data(), data_end: ctx.data_end(), captured }
    }

    /// A pointer to `N` bytes at `at`, all inside the packet.
    #[inline(always)]
    fn at<const N: usize>(&self, at: usize) -> Option<*const u8> {
        if at > REACH_MAX - N || at + N > self.captured {
            return None;
        }
        let (mut start, mut end): (usize, usize);
        // The verifier knows a proven range by the register that was compared, so the address must be computed once and
        // compared as it is. LLVM would share parts of it with other reads, and turn `start + N > data_end` into a
        // comparison of `start`, which is no proof. In assembly it stays as written.
        // SAFETY: register arithmetic only.
        unsafe {
            asm!("{0} += {1}", "{2} = {0}", "{2} += {3}",
                inout(reg) self.data => start, in(reg) at, out(reg) end, const N, options(pure, nomem, nostack));
        }
        if end > self.data_end { None } else { Some(start as *const u8) }
    }
}

/// One load, whatever the alignment: packets are unaligned, and Rust would compose an unaligned read of bytes.
macro_rules! load {
    ($frame:expr, $at:expr, $type:ty, $instruction:literal) => {
        $frame.at::<{ size_of::<$type>() }>($at).map(|start| {
            let value: u64;
            // SAFETY: `at` checked that the bytes lie inside the packet; the load writes nothing.
            unsafe { core::arch::asm!($instruction, out(reg) value, in(reg) start, options(pure, readonly, nostack)) };
            value as $type
        })
    };
}

/// Reads for something with a method `at` that proves a range.
macro_rules! bytes {
    ($type:ty) => {
        impl Bytes for $type {
            #[inline(always)]
            fn u8(&self, at: usize) -> Option<u8> {
                load!(self, at, u8, "{0} = *(u8 *)({1} + 0)")
            }
            #[inline(always)]
            fn be16(&self, at: usize) -> Option<u16> {
                load!(self, at, u16, "{0} = *(u16 *)({1} + 0)").map(u16::from_be)
            }
            #[inline(always)]
            fn word32(&self, at: usize) -> Option<u32> {
                load!(self, at, u32, "{0} = *(u32 *)({1} + 0)")
            }
            #[inline(always)]
            fn word64(&self, at: usize) -> Option<u64> {
                load!(self, at, u64, "{0} = *(u64 *)({1} + 0)")
            }
        }
    };
}

impl Headers for Frame {
    #[inline(always)]
    fn parse(&self, link: Link) -> Result<Parsed, Skip> {
        weir_common::packet::parse(self, link)
    }
}

bytes!(Frame);

/// A packet's beginning, copied into memory of the program's own.
pub struct Copied {
    data: *const [u8; REACH_MAX],
    length: usize,
}

impl Copied {
    /// The first `length` bytes of an element of a map.
    #[inline(always)]
    pub const fn new(data: *const [u8; REACH_MAX], length: usize) -> Self {
        Self { data, length }
    }

    #[inline(always)]
    fn at<const N: usize>(&self, at: usize) -> Option<*const u8> {
        if at + N > self.length {
            return None;
        }
        // The verifier wants the bound on the very register that is added.
        let mut at = at;
        // SAFETY: register arithmetic only.
        unsafe { asm!("{0} += 0", inout(reg) at, options(pure, nomem, nostack)) };
        if at > REACH_MAX - N { None } else { Some(self.data.cast::<u8>().wrapping_add(at)) }
    }
}

bytes!(Copied);
