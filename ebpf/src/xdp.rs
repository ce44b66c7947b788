//! XDP: packets in the driver's memory, before there is a socket buffer; in generic mode, from a socket buffer.
//!
//! In generic mode the router's own multicast and broadcast packets come back as copies for its own sockets. The
//! interface did not receive them, so they are not counted: see `weir_common::packet::is_looped_back`.

use aya_ebpf::{
    EbpfContext as _,
    bindings::{xdp_action::XDP_PASS, xdp_md},
    helpers::generated::bpf_xdp_get_buff_len,
    macros::xdp,
    programs::XdpContext,
};
use weir_common::{
    control::{ReplayHeader, placeholder},
    ledger::{Skip, Tally},
    packet::{Link, Parsed, common, is_looped_back, walk, walk_captured},
};

use crate::{
    maps::Configured,
    measure::{Packet, measure},
    packet::Frame,
};

/// Measures every packet of an interface.
#[xdp(frags)]
#[inline(always)]
pub fn weir(ctx: XdpContext) -> u32 {
    let _ = measure(Whole::new(&ctx));
    XDP_PASS
}

/// As [`weir`], for kernels before Linux 5.18: they do not support packets with fragments, and refuse a program that
/// declares support.
#[xdp]
#[inline(always)]
pub fn weir_linear(ctx: XdpContext) -> u32 {
    let _ = measure(Linear(ctx.as_ptr().cast()));
    XDP_PASS
}

/// As [`weir`], in generic mode.
#[xdp(frags)]
#[inline(always)]
pub fn weir_generic(ctx: XdpContext) -> u32 {
    measure_received(Whole::new(&ctx))
}

/// As [`weir_linear`], in generic mode.
#[xdp]
#[inline(always)]
pub fn weir_gen_linear(ctx: XdpContext) -> u32 {
    measure_received(Linear(ctx.as_ptr().cast()))
}

/// Measures received packets, but no copies of sent ones.
#[inline(always)]
fn measure_received(packet: impl Xdp) -> u32 {
    if !is_looped_back(&packet.frame()) {
        let _ = measure(packet);
    }
    XDP_PASS
}

/// A packet as seen by XDP.
trait Xdp: Packet {
    /// The packet, with its length.
    fn frame(self) -> Frame;
}

impl Xdp for Whole {
    #[inline(always)]
    fn frame(self) -> Frame {
        self.frame_of(self.tally().bytes as usize)
    }
}

impl Xdp for Linear {
    #[inline(always)]
    fn frame(self) -> Frame {
        Whole(self.0).frame_of(self.tally().bytes as usize)
    }
}

/// Measures a captured packet; see [`ReplayHeader`].
#[xdp(frags)]
#[inline(always)]
pub fn replay(ctx: XdpContext) -> u32 {
    let packet = Captured(ctx.as_ptr().cast());
    if packet.header().is_some() {
        let _ = measure(packet);
    }
    XDP_PASS
}

/// A packet, with or without fragments.
#[derive(Clone, Copy)]
pub struct Whole(*mut xdp_md);

impl Whole {
    /// The packet of a program's context.
    #[inline(always)]
    pub fn new(ctx: &XdpContext) -> Self {
        Self(ctx.as_ptr().cast())
    }

    #[inline(always)]
    fn frame_of(self, length: usize) -> Frame {
        Frame::new(&XdpContext::new(self.0), usize::MAX, length)
    }

    /// The length with all fragments, in bytes.
    ///
    /// Only a packet that may have fragments needs the helper. A call costs every packet 4 to 10 ns on processors where
    /// the kernel must not let returns be predicted (AMD up to Zen 4, Speculative Return Stack Overflow).
    #[inline(always)]
    fn length(self) -> u64 {
        if self.may_have_fragments() {
            core::hint::cold_path();
            // SAFETY: the kernel passed this context to the program.
            return unsafe { bpf_xdp_get_buff_len(self.0) };
        }
        let ctx = XdpContext::new(self.0);
        (ctx.data_end() - ctx.data()) as u64
    }

    /// Whether the packet has fragments. It may have some if the loader left the [`placeholder`]s as they are.
    ///
    /// Otherwise the first one is a call of `bpf_cast_to_kern_ctx`, which the kernel turns into a move, and the second
    /// one loads the flags of its `struct xdp_buff`.
    #[inline(always)]
    fn may_have_fragments(self) -> bool {
        let flags: u64;
        // SAFETY: both constants go into a register; so does what the loader replaces them by, which also overwrites
        // the other registers that a call may.
        #[cfg(target_arch = "bpf")]
        unsafe {
            core::arch::asm!(
                "r0 = {0}", "r0 = {1}",
                const placeholder::KERNEL_CONTEXT, const placeholder::FLAGS,
                inout("r1") self.0 => _, out("r0") flags, out("r2") _, out("r3") _, out("r4") _, out("r5") _,
                options(pure, readonly, nostack)
            );
        }
        // Clippy sees this file on machines that have no such registers.
        #[cfg(not(target_arch = "bpf"))]
        {
            flags = u64::from(placeholder::KERNEL_CONTEXT.cast_unsigned() | placeholder::FLAGS.cast_unsigned());
        }
        flags & placeholder::HAS_FRAGMENTS != 0
    }
}

impl Packet for Whole {
    #[inline(always)]
    fn interface(self) -> u32 {
        XdpContext::new(self.0).ingress_ifindex() as u32
    }
    #[inline(always)]
    fn came_by(self) -> u32 {
        0
    }
    #[inline(always)]
    fn tally(self) -> Tally {
        Tally::new(1, self.length())
    }
    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Result<Parsed, Skip>) -> T) -> Option<T> {
        common(&self.frame_of(usize::MAX), Configured, found)
    }
    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        walk(&self.frame(), Link::Ethernet, Configured)
    }
}

/// A packet without fragments, for kernels that lack the helper for the length of all fragments.
#[derive(Clone, Copy)]
struct Linear(*mut xdp_md);

impl Packet for Linear {
    #[inline(always)]
    fn interface(self) -> u32 {
        Whole(self.0).interface()
    }
    #[inline(always)]
    fn came_by(self) -> u32 {
        0
    }
    #[inline(always)]
    fn tally(self) -> Tally {
        let ctx = XdpContext::new(self.0);
        Tally::new(1, (ctx.data_end() - ctx.data()) as u64)
    }
    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Result<Parsed, Skip>) -> T) -> Option<T> {
        Whole(self.0).common(found)
    }
    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        walk(&self.frame(), Link::Ethernet, Configured)
    }
}

/// A captured packet, with its [`ReplayHeader`] in front.
#[derive(Clone, Copy)]
struct Captured(*mut xdp_md);

impl Captured {
    #[inline(always)]
    fn header(self) -> Option<ReplayHeader> {
        let ctx = XdpContext::new(self.0);
        let header = ctx.metadata();
        if header + size_of::<ReplayHeader>() > ctx.metadata_end() {
            return None;
        }
        // SAFETY: the check above proves that the header is within the metadata; the kernel aligns metadata to 4 bytes.
        Some(unsafe { *(header as *const ReplayHeader) })
    }

    #[inline(always)]
    fn frame(self, header: ReplayHeader) -> Frame {
        Frame::new(&XdpContext::new(self.0), header.captured as usize, header.wire_bytes as usize)
    }
}

impl Packet for Captured {
    #[inline(always)]
    fn interface(self) -> u32 {
        Whole(self.0).interface()
    }
    #[inline(always)]
    fn came_by(self) -> u32 {
        0
    }
    #[inline(always)]
    fn tally(self) -> Tally {
        Tally::new(1, u64::from(self.header().unwrap_or_default().wire_bytes))
    }
    #[inline(always)]
    fn tick(self) -> u64 {
        self.header().unwrap_or_default().tick.into()
    }
    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Result<Parsed, Skip>) -> T) -> Option<T> {
        let header = self.header()?;
        match Link::from_code(header.link as u8) {
            Link::Ethernet => common(&self.frame(header), Configured, found),
            _ => None,
        }
    }
    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        let header = self.header().unwrap_or_default();
        let again = || {
            let ctx = XdpContext::new(self.0);
            let header = ctx.metadata();
            if header + size_of::<ReplayHeader>() > ctx.metadata_end() {
                return Link::Other;
            }
            // SAFETY: as in `header`. The volatile read makes the compiler read it again.
            Link::from_code(unsafe { (&raw const (*(header as *const ReplayHeader)).link).read_volatile() } as u8)
        };
        walk_captured(&self.frame(header), Link::from_code(header.link as u8), again, Configured)
    }
}
