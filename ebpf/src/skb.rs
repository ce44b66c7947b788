//! The tc hook: packets as socket buffers, for devices where XDP is missing, taken, or not worth its cost.
//!
//! TCX attaches weir before all other programs, so that weir also counts packets that those drop. weir returns
//! [`NEXT`], so that they run. At this hook a packet may differ from the packet on the wire. weir counts the packet on
//! the wire:
//!
//! - An offload may have merged several packets into one (GRO), or may have to split one later (GSO). They count as the
//!   packets that they were or will be, each with its own headers: see `weir_common::packet::Merged`.
//! - The link header may be before the program's view of the packet. The kernel shows as much of it as the buffer says,
//!   and copying a buffer for XDP in generic mode sets that to zero (Linux 6.18). The header is still there.
//! - The outer VLAN tag may be in the buffer's metadata: its four bytes are counted.
//! - Headers may be outside of the buffer's linear part.
//! - The router's own multicast and broadcast packets come back as copies for its own sockets, without a link header.
//!   The interface did not receive them, so they are not counted.
//!
//! Common packets, whose headers are at fixed offsets, are read in place if the linear part has the headers. For all
//! other packets the parser reads a copy of the beginning as it was on the wire: `bpf_skb_load_bytes` copies it from
//! all parts of the buffer, and the tag is put back. `bpf_skb_pull_data` would move data and copy a shared buffer.

use core::arch::asm;

use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_UNSPEC},
    helpers::generated::{bpf_skb_load_bytes, bpf_skb_load_bytes_relative},
    macros::classifier,
    programs::TcContext,
};
use weir_common::{
    control::egress,
    ledger::{Skip, Tally, Uncertain},
    packet::{Bytes as _, Link, Merged, PLACES, Parsed, REACH_MAX, common, headers, vlan_id, walk},
};

use crate::{
    maps::{Configured, SCRATCH},
    measure::{Packet, measure},
    packet::{Copied, Frame, Scratch, unknown_zero},
};

/// `TCX_NEXT`: the programs after this one decide.
const NEXT: i32 = TC_ACT_UNSPEC;
/// A copy of a sent packet for the sockets of this machine (`linux/if_packet.h`).
const PACKET_LOOPBACK: u32 = 5;
/// Offsets count from the start of the link header (`enum bpf_hdr_start_off` in `linux/bpf.h`).
const FROM_LINK_HEADER: u32 = 0;
/// A VLAN tag, in bytes.
const VLAN_BYTES: u32 = 4;
/// The two addresses at the start of an Ethernet header, and these with a tag after them.
const ADDRESSES_BYTES: u32 = 12;
const TAGGED: usize = (ADDRESSES_BYTES + VLAN_BYTES) as usize;
const TYPE_BYTES: u32 = 2;
const ETHERNET_BYTES: u32 = ADDRESSES_BYTES + TYPE_BYTES;

/// Measures what an interface with Ethernet headers receives.
#[classifier]
#[inline(always)]
pub fn weir_ingress(ctx: TcContext) -> i32 {
    Buffer::<ETHERNET, INGRESS>(ctx.skb.skb).receive()
}

/// Measures what an interface with Ethernet headers sends.
#[classifier]
#[inline(always)]
pub fn weir_egress(ctx: TcContext) -> i32 {
    let _ = measure(Buffer::<ETHERNET, EGRESS>(ctx.skb.skb));
    NEXT
}

/// Measures what an interface without link headers receives.
#[classifier]
#[inline(always)]
pub fn weir_ingress_ip(ctx: TcContext) -> i32 {
    Buffer::<RAW_IP, INGRESS>(ctx.skb.skb).receive()
}

/// Measures what an interface without link headers sends.
#[classifier]
#[inline(always)]
pub fn weir_egress_ip(ctx: TcContext) -> i32 {
    let _ = measure(Buffer::<RAW_IP, EGRESS>(ctx.skb.skb));
    NEXT
}

const ETHERNET: u8 = Link::Ethernet as u8;
const RAW_IP: u8 = Link::RawIp as u8;
const INGRESS: bool = false;
const EGRESS: bool = true;

/// A socket buffer, with the link layer and the direction of its packet.
#[derive(Clone, Copy)]
struct Buffer<const LINK: u8, const WAY: bool>(*mut __sk_buff);

impl<const LINK: u8, const WAY: bool> Buffer<LINK, WAY> {
    const LINK: Link = Link::from_code(LINK);

    /// Measures received packets, but no copies of sent ones.
    #[inline(always)]
    fn receive(self) -> i32 {
        // SAFETY: the kernel passed this context to the program.
        if unsafe { (*self.0).pkt_type } != PACKET_LOOPBACK {
            let _ = measure(self);
        }
        NEXT
    }

    /// The index of the packet's interface.
    #[inline(always)]
    fn ifindex(self) -> u32 {
        // SAFETY: the kernel passed this context to the program.
        unsafe { (*self.0).ifindex }
    }

    /// Whether the outer VLAN tag is in the buffer's metadata.
    #[inline(always)]
    fn is_tagged(self) -> bool {
        // SAFETY: the kernel passed this context to the program.
        unsafe { (*self.0).vlan_present != 0 }
    }

    /// Whether the Ethernet header is before the program's view of the packet.
    ///
    /// `wire_len` is the buffer's length from before the kernel showed the link header: for most packets it is 14 bytes
    /// less. If it is not, or if it may have been computed for the packets of a merged buffer (since Linux 6.19),
    /// `hidden_bytes` has to check.
    #[inline(always)]
    fn hides_link_header(self) -> bool {
        if WAY || !matches!(Self::LINK, Link::Ethernet) {
            return false;
        }
        // SAFETY: the kernel passed this context to the program.
        let (length, before, segment) = unsafe { ((*self.0).len, (*self.0).wire_len, (*self.0).gso_size) };
        (length == before || segment != 0) && self.hidden_bytes() != 0
    }

    /// How many bytes of the Ethernet header are before the program's view of the packet: none or all. If all are, the
    /// linear part reaches further from the start of the link header than from the start of the program's view.
    ///
    /// There is no branch, so that the verifier has one path to follow instead of two.
    #[inline(never)]
    fn hidden_bytes(self) -> u64 {
        let linear = TcContext::new(self.0);
        let last = linear.data_end().wrapping_sub(linear.data()) as u32 + ETHERNET_BYTES - 1;
        let mut byte = 0_u8;
        // SAFETY: the context is the kernel's, and the helper writes one byte.
        let result =
            unsafe { bpf_skb_load_bytes_relative(self.0.cast(), last, (&raw mut byte).cast(), 1, FROM_LINK_HEADER) };
        // 0, or a negative error.
        let mut is_there = result as u64;
        // SAFETY: register arithmetic only; LLVM would turn it into a branch.
        unsafe { asm!("{0} s>>= 63", "{0} += 1", inout(reg) is_there, options(pure, nomem, nostack)) };
        is_there * u64::from(ETHERNET_BYTES)
    }

    /// `N` bytes at this offset from the start of the link header, if the linear part has them.
    #[inline(always)]
    fn load_from_link_header<const N: usize>(self, at: u32) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        // SAFETY: the context is the kernel's, and the helper writes at most `N` bytes.
        let result = unsafe {
            bpf_skb_load_bytes_relative(self.0.cast(), at, bytes.as_mut_ptr().cast(), N as u32, FROM_LINK_HEADER)
        };
        (result == 0).then_some(bytes)
    }

    /// The packets of a merged buffer: their number in the upper 16 bits, their bytes on the wire in the lower 48. The
    /// kernel merges no more packets than fit.
    #[inline(never)]
    fn merged(self) -> u64 {
        const BYTES: u64 = (1 << 48) - 1;
        // SAFETY: the kernel passed this context to the program.
        let (length, segment, segments) = unsafe {
            let skb = self.0;
            (u64::from(self.wire_length()), u64::from((*skb).gso_size), u64::from((*skb).gso_segs))
        };
        // The number of packets is unknown for fragments: no kernel that weir supports makes them itself, but virtual
        // machines do.
        let fragments = if segments == 0 { None } else { Some(false) };
        let merged = Merged { length, segment, segments, fragments };
        let (tally, uncertain) = merged.tally(self.copied().and_then(|packet| headers(&packet, Self::LINK, length)));
        if let Some(scratch) = SCRATCH.get_ptr_mut(0) {
            // SAFETY: a per-CPU element; nothing else runs on this CPU until the program ends.
            unsafe { (*scratch).uncertain = uncertain.unwrap_or_default() };
        }
        tally.packets << 48 | tally.bytes & BYTES
    }

    /// The buffer's bytes, including those outside the program's view.
    #[inline(always)]
    fn wire_length(self) -> u32 {
        let tag = if self.is_tagged() { VLAN_BYTES } else { 0 };
        let link = if self.hides_link_header() { ETHERNET_BYTES } else { 0 };
        // SAFETY: the kernel passed this context to the program.
        let mut length = u64::from(unsafe { (*self.0).len.wrapping_add(tag + link) });
        // To the verifier this is an unknown number, whichever path led here.
        // SAFETY: register arithmetic only.
        unsafe { asm!("{0} &= -1", inout(reg) length, options(pure, nomem, nostack)) };
        length as u32
    }

    /// A copy of the packet's beginning as it was on the wire.
    #[inline(always)]
    fn copied(self) -> Option<Copied> {
        let scratch = SCRATCH.get_ptr_mut(0)?;
        let zero = unknown_zero(self.ifindex() as usize);
        let copied = self.copy_to(scratch)?;
        let length = self.wire_length() as usize;
        // To the verifier this is the same copy, whichever path made it.
        let copied = Copied::new(scratch, copied, length, zero).forget_all::<{ PLACES - 1 }>(copied);
        Some(Copied::new(scratch, copied, length, zero))
    }

    /// Copies the packet's beginning as it was on the wire; returns how many bytes were copied.
    #[inline(always)]
    fn copy_to(self, scratch: *mut Scratch) -> Option<usize> {
        const HIDDEN: usize = ETHERNET_BYTES as usize;
        const HIDDEN_AND_TAGGED: usize = HIDDEN + VLAN_BYTES as usize;
        // SAFETY: the kernel passed this context to the program.
        let length = unsafe { (*self.0).len };
        match (self.hides_link_header(), self.is_tagged()) {
            (false, false) => self.copy::<0>(0, length, scratch),
            (false, true) => {
                self.copy::<0>(0, length.min(ADDRESSES_BYTES), scratch)?;
                self.put_tag(scratch);
                self.copy::<{ TAGGED }>(ADDRESSES_BYTES, length.saturating_sub(ADDRESSES_BYTES), scratch)
            }
            (true, false) => {
                put(scratch, 0, self.load_from_link_header::<HIDDEN>(0)?);
                self.copy::<HIDDEN>(0, length, scratch)
            }
            (true, true) => {
                put(scratch, 0, self.load_from_link_header::<{ ADDRESSES_BYTES as usize }>(0)?);
                self.put_tag(scratch);
                put(scratch, TAGGED, self.load_from_link_header::<{ TYPE_BYTES as usize }>(ADDRESSES_BYTES)?);
                self.copy::<HIDDEN_AND_TAGGED>(0, length, scratch)
            }
        }
    }

    /// Puts the tag from the metadata back in its place.
    #[inline(always)]
    fn put_tag(self, scratch: *mut Scratch) {
        // SAFETY: the kernel passed this context to the program.
        let [protocol, control] = unsafe { [(*self.0).vlan_proto as u16, ((*self.0).vlan_tci as u16).to_be()] };
        put(scratch, ADDRESSES_BYTES as usize, protocol);
        put(scratch, ADDRESSES_BYTES as usize + 2, control);
    }

    /// Copies `length` bytes of the packet, or as many as fit, from offset `from` to offset `TO` of the copy; returns
    /// where the copy ends.
    #[inline(always)]
    fn copy<const TO: usize>(self, from: u32, length: u32, scratch: *mut Scratch) -> Option<usize> {
        let mut length = u64::from(length).min((REACH_MAX - TO) as u64);
        // The verifier needs both bounds on the same register that is passed to the helper, and before Linux 5.11 it
        // learns nothing from a comparison with 0. So the last byte's offset is compared, which is huge if there is no
        // byte.
        // SAFETY: register arithmetic only.
        unsafe { asm!("{0} += -1", inout(reg) length, options(pure, nomem, nostack)) };
        if length >= (REACH_MAX - TO) as u64 {
            return None;
        }
        // SAFETY: as above.
        unsafe { asm!("{0} += 1", inout(reg) length, options(pure, nomem, nostack)) };
        // SAFETY: a per-CPU element of `REACH_MAX` bytes; nothing else runs on this CPU until the program ends.
        let result =
            unsafe { bpf_skb_load_bytes(self.0.cast(), from, scratch.cast::<u8>().add(TO).cast(), length as u32) };
        (result == 0).then_some(TO + length as usize)
    }
}

impl<const LINK: u8, const WAY: bool> Packet for Buffer<LINK, WAY> {
    #[inline(always)]
    fn interface(self) -> u32 {
        if WAY { egress(self.ifindex()) } else { self.ifindex() }
    }

    #[inline(always)]
    fn came_by(self) -> u32 {
        // SAFETY: the kernel passed this context to the program.
        if WAY { unsafe { (*self.0).ingress_ifindex } } else { 0 }
    }

    /// The packets on the wire and their bytes, each with its own headers.
    #[inline(always)]
    fn tally(self) -> Tally {
        // SAFETY: the kernel passed this context to the program.
        let (segment, segments) = unsafe { ((*self.0).gso_size, (*self.0).gso_segs) };
        if segment == 0 || segments == 1 {
            return Tally::new(1, u64::from(self.wire_length()));
        }
        let merged = self.merged();
        Tally::new(merged >> 48, merged << 16 >> 16)
    }

    #[inline(always)]
    fn is_merged(self) -> bool {
        // SAFETY: the kernel passed this context to the program.
        unsafe { (*self.0).gso_size != 0 && (*self.0).gso_segs != 1 }
    }

    #[inline(always)]
    fn uncertain(self) -> Uncertain {
        // SAFETY: `merged` has written it for this packet.
        SCRATCH.get_ptr(0).map_or_else(Uncertain::default, |scratch| unsafe { (*scratch).uncertain })
    }

    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Result<Parsed, Skip>) -> T) -> Option<T> {
        if !matches!(Self::LINK, Link::Ethernet) || self.hides_link_header() {
            return None;
        }
        let frame = Frame::linear(&TcContext::new(self.0));
        if !self.is_tagged() {
            return common(&frame, Configured, found);
        }
        // The tag in the metadata is the outermost one.
        // SAFETY: the kernel passed this context to the program.
        let vlan = vlan_id(unsafe { (*self.0).vlan_tci } as u16);
        common(
            &frame,
            Configured,
            #[inline(always)]
            |result| {
                found(result.map(
                    #[inline(always)]
                    |parsed| Parsed { vlan, ..parsed },
                ))
            },
        )
    }

    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        walk(&self.copied().ok_or(Skip::TruncatedLink)?, Self::LINK, Configured)
    }
}

/// Writes a value at this offset of a copy. It is always in bounds, because all offsets here are of link headers.
#[inline(always)]
fn put<T>(scratch: *mut Scratch, at: usize, value: T) {
    // SAFETY: a per-CPU element that nothing else uses until the program ends.
    unsafe { scratch.cast::<u8>().add(at).cast::<T>().write_unaligned(value) };
}
