//! Reads packets in a form that the verifier can follow.

use core::{arch::asm, marker::PhantomData};

use aya_ebpf::programs::{TcContext, XdpContext};
use weir_common::{
    ledger::Uncertain,
    packet::{Bytes, HEADER_MAX, PLACES, REACH_MAX, Window},
};

/// A packet that is read in place, between `data` and `data_end`.
pub struct Frame {
    data: usize,
    data_end: usize,
    captured: usize,
    length: usize,
    /// The index of the interface through which it arrived.
    ifindex: usize,
}

impl Frame {
    /// The context's packet, which is `length` bytes long, of which at most `captured` bytes are real.
    #[inline(always)]
    pub fn new(ctx: &XdpContext, captured: usize, length: usize) -> Self {
        Self { data: ctx.data(), data_end: ctx.data_end(), captured, length, ifindex: ctx.ingress_ifindex() }
    }

    /// The linear part of the context's socket buffer.
    #[inline(always)]
    pub fn linear(ctx: &TcContext) -> Self {
        Self { data: ctx.data(), data_end: ctx.data_end(), captured: usize::MAX, length: usize::MAX, ifindex: 0 }
    }
}

/// `N` bytes that are proven to be inside the packet, for as long as the packet is borrowed.
pub struct Proven<'a, const N: usize>(*const u8, PhantomData<&'a ()>);

impl Bytes for Frame {
    type Window<'a, const N: usize> = Proven<'a, N>;

    #[inline(always)]
    fn window<const N: usize>(&self, at: usize) -> Option<Proven<'_, N>> {
        if at > REACH_MAX - N || at + N > self.captured {
            return None;
        }
        let (mut start, mut end): (usize, usize);
        // The verifier proves a range for the register that was compared. So the address must be computed once and
        // compared as it is. LLVM would share parts of the sum with other reads, and turn `start + N > data_end` into a
        // comparison of `start`, which proves nothing. Assembly stays as written.
        // SAFETY: register arithmetic only.
        unsafe {
            asm!("{0} += {1}", "{2} = {0}", "{2} += {3}",
                inout(reg) self.data => start, in(reg) at, out(reg) end, const N, options(pure, nomem, nostack));
        }
        if end > self.data_end { None } else { Some(Proven(start as *const u8, PhantomData)) }
    }

    /// As `window(0)`, without the addition.
    #[inline(always)]
    fn first<const N: usize>(&self) -> Option<Proven<'_, N>> {
        if N > self.captured {
            return None;
        }
        let end: usize;
        // SAFETY: register arithmetic only.
        unsafe {
            asm!("{0} = {1}", "{0} += {2}", out(reg) end, in(reg) self.data, const N, options(pure, nomem, nostack));
        }
        if end > self.data_end { None } else { Some(Proven(self.data as *const u8, PhantomData)) }
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    fn place(&self, number: u16) -> usize {
        place(number)
    }

    #[inline(always)]
    fn predict<const USUAL: usize>(&self, number: usize) -> usize {
        predict::<USUAL>(number)
    }

    #[inline(always)]
    fn forget(&self, at: usize) -> usize {
        forget(at, unknown_zero(self.ifindex))
    }

    #[inline(always)]
    fn forget_word(&self, number: u64) -> u64 {
        forget_word(number, unknown_zero(self.ifindex))
    }
}

/// A number that the verifier, too, knows to be below 2^16.
#[inline(always)]
fn place(number: u16) -> usize {
    let mut place = usize::from(number);
    // In assembly, because LLVM would see that this does nothing.
    // SAFETY: register arithmetic only.
    unsafe { asm!("{0} &= 0xffff", inout(reg) place, options(pure, nomem, nostack)) };
    place
}

/// The same number, by a branch that is nearly always predicted: then the number is a constant to the processor.
#[inline(always)]
fn predict<const USUAL: usize>(mut number: usize) -> usize {
    // SAFETY: register arithmetic only; the jump stays within.
    unsafe {
        asm!("if {0} != {1} goto +1", "{0} = {1}", inout(reg) number, const USUAL, options(pure, nomem, nostack));
    }
    number
}

/// A zero that the verifier takes for 0 or -1: the sign of an interface index, negated. An index is positive, but the
/// verifier does not know that.
#[inline(always)]
pub fn unknown_zero(ifindex: usize) -> usize {
    let zero;
    // SAFETY: register arithmetic only.
    unsafe { asm!("{0} >>= 31", "{0} = -{0}", inout(reg) ifindex => zero, options(pure, nomem, nostack)) };
    zero
}

/// Combines `at` with an [`unknown_zero`], so that the verifier forgets what it knows about `at`. Then all paths that
/// lead here look the same to it, and it continues only once. The mask bounds the result for the verifier; no header
/// reaches that far, and a VLAN has no more bits.
///
/// Uses exclusive or: the verifier knows that the zero is 0 or -1, and a sum would not make it forget anything.
#[inline(always)]
fn forget(at: usize, zero: usize) -> usize {
    const BOUND: usize = 0x0fff;
    const { assert!(BOUND >= REACH_MAX + HEADER_MAX) };
    let forgotten;
    // In assembly, because LLVM would see that this does nothing.
    // SAFETY: register arithmetic only.
    unsafe {
        asm!("{0} ^= {1}", "{0} &= {2}",
            inout(reg) at => forgotten, in(reg) zero, const BOUND, options(pure, nomem, nostack));
    }
    forgotten
}

/// As [`forget`], without a bound on the result.
#[inline(always)]
fn forget_word(mut number: u64, zero: usize) -> u64 {
    // SAFETY: register arithmetic only.
    unsafe { asm!("{0} ^= {1}", inout(reg) number, in(reg) zero, options(pure, nomem, nostack)) };
    number
}

/// One load at any alignment. Packets are unaligned, and the compiler would assemble an unaligned read from single
/// bytes.
macro_rules! load {
    ($window:expr, $at:ident of $n:ident, $type:ty, $instruction:literal) => {{
        const { assert!($at + size_of::<$type>() <= $n, "the read lies within the window") };
        let value: u64;
        // SAFETY: `window` proved `$n` bytes, and the assertion that these are among them; the load writes nothing.
        unsafe { asm!($instruction, out(reg) value, in(reg) $window.0, const $at, options(pure, readonly, nostack)) };
        // SAFETY: the instruction clears the rest of the register.
        unsafe { core::hint::assert_unchecked(value <= <$type>::MAX as u64) };
        value as $type
    }};
}

impl<const N: usize> Window<N> for Proven<'_, N> {
    #[inline(always)]
    fn u8<const AT: usize>(&self) -> u8 {
        load!(self, AT of N, u8, "{0} = *(u8 *)({1} + {2})")
    }
    #[inline(always)]
    fn be16<const AT: usize>(&self) -> u16 {
        u16::from_be(load!(self, AT of N, u16, "{0} = *(u16 *)({1} + {2})"))
    }
    #[inline(always)]
    fn word32<const AT: usize>(&self) -> u32 {
        load!(self, AT of N, u32, "{0} = *(u32 *)({1} + {2})")
    }
    #[inline(always)]
    fn word64<const AT: usize>(&self) -> u64 {
        load!(self, AT of N, u64, "{0} = *(u64 *)({1} + {2})")
    }
}

/// Room for a packet's beginning, for [`Bytes::forget_all`], and for what is uncertain.
#[repr(C)]
pub struct Scratch {
    beginning: [u8; REACH_MAX],
    places: [u16; PLACES],
    /// What is uncertain about the packet, if an offload merged it.
    pub uncertain: Uncertain,
}

/// A packet's beginning, copied into the program's own memory.
pub struct Copied {
    data: *const Scratch,
    copied: usize,
    length: usize,
    /// An [`unknown_zero`].
    zero: usize,
}

impl Copied {
    /// A packet of `length` bytes, of which the first `copied` bytes are in a map element; and an [`unknown_zero`].
    #[inline(always)]
    pub const fn new(data: *const Scratch, copied: usize, length: usize, zero: usize) -> Self {
        Self { data, copied, length, zero }
    }
}

impl Bytes for Copied {
    type Window<'a, const N: usize> = Proven<'a, N>;

    #[inline(always)]
    fn window<const N: usize>(&self, at: usize) -> Option<Proven<'_, N>> {
        if at + N > self.copied {
            return None;
        }
        // The verifier needs the bound on the same register that is added.
        let mut at = at;
        // SAFETY: register arithmetic only.
        unsafe { asm!("{0} += 0", inout(reg) at, options(pure, nomem, nostack)) };
        if at > REACH_MAX - N { None } else { Some(Proven(self.data.cast::<u8>().wrapping_add(at), PhantomData)) }
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    fn place(&self, number: u16) -> usize {
        place(number)
    }

    #[inline(always)]
    fn predict<const USUAL: usize>(&self, number: usize) -> usize {
        predict::<USUAL>(number)
    }

    #[inline(always)]
    fn forget(&self, at: usize) -> usize {
        forget(at, self.zero)
    }

    #[inline(always)]
    fn forget_word(&self, number: u64) -> u64 {
        forget_word(number, self.zero)
    }

    /// Through map memory, whose content the verifier does not track.
    #[inline(always)]
    fn forget_all<const PLACE: usize>(&self, number: usize) -> usize {
        const { assert!(PLACE < PLACES) };
        let forgotten;
        // SAFETY: a place after the copy in the same element; nothing else runs on this CPU until the program ends.
        unsafe {
            asm!("*(u16 *)({0} + {2}) = {1}", "{1} = *(u16 *)({0} + {2})",
                in(reg) self.data, inout(reg) number => forgotten, const REACH_MAX + 2 * PLACE, options(nostack));
        }
        forgotten
    }
}
