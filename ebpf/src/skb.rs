//! The tc hook: packets as socket buffers, for devices where XDP is missing, is taken, or costs more than it is worth.
//!
//! TCX attaches weir before all other programs, so that weir counts packets that those drop. weir returns [`NEXT`], so
//! that those run. At this hook a packet may differ from the packet on the wire. weir counts the packet on the wire:
//!
//! - An offload may have merged several packets into one (GRO), or may have to split one later (GSO). They are counted
//!   as the packets that they were or will be, each with its own headers.
//! - The outer VLAN tag may be in the buffer's metadata: its four bytes are counted.
//! - Headers may lie outside of the buffer's linear part.
//! - The router's own multicast and broadcast packets come back as copies for its own sockets, without a link header.
//!   The interface did not receive them, and they are not counted.
//!
//! Common packets, whose headers have fixed places, are read in place, if the linear part has the headers and the tag
//! is not in the metadata. For all other packets the parser reads a copy of the beginning, as it was on the wire:
//! `bpf_skb_load_bytes` copies it from all parts of the buffer, and the tag is put back. `bpf_skb_pull_data` would
//! rearrange the buffer, and copy a shared one.

use core::arch::asm;

use aya_ebpf::{
    bindings::{__sk_buff, TC_ACT_UNSPEC},
    helpers::generated::bpf_skb_load_bytes,
    macros::classifier,
    programs::TcContext,
};
use weir_common::{
    control::egress,
    ledger::{Skip, Tally},
    packet::{Link, Parsed, REACH_MAX, common, walk},
    proto,
};

use crate::{
    maps::{SCRATCH, tunnels},
    measure::{Packet, measure},
    packet::{Copied, Frame, unknown_zero},
};

/// `TCX_NEXT`: the programs after this one decide.
const NEXT: i32 = TC_ACT_UNSPEC;
/// A copy of a packet that the interface sends, for the sockets of this machine (`linux/if_packet.h`).
const PACKET_LOOPBACK: u32 = 5;
/// A VLAN tag, in bytes.
const VLAN_BYTES: u32 = 4;
/// The two addresses that begin an Ethernet header, and these with a tag after them.
const ADDRESSES_BYTES: u32 = 12;
const TAGGED: usize = (ADDRESSES_BYTES + VLAN_BYTES) as usize;
const ETHERNET_BYTES: u64 = 14;
const IPV6_BYTES: u64 = 40;
const UDP_BYTES: u64 = 8;

/// Measures what an interface with Ethernet headers receives.
#[classifier]
pub fn weir_ingress(ctx: TcContext) -> i32 {
    Buffer::<ETHERNET, INGRESS>(ctx.skb.skb).receive()
}

/// Measures what it sends.
#[classifier]
pub fn weir_egress(ctx: TcContext) -> i32 {
    let _ = measure(Buffer::<ETHERNET, EGRESS>(ctx.skb.skb));
    NEXT
}

/// Measures what an interface without link headers receives.
#[classifier]
pub fn weir_ingress_ip(ctx: TcContext) -> i32 {
    Buffer::<RAW_IP, INGRESS>(ctx.skb.skb).receive()
}

/// Measures what it sends.
#[classifier]
pub fn weir_egress_ip(ctx: TcContext) -> i32 {
    let _ = measure(Buffer::<RAW_IP, EGRESS>(ctx.skb.skb));
    NEXT
}

const ETHERNET: u8 = Link::Ethernet as u8;
const RAW_IP: u8 = Link::RawIp as u8;
const INGRESS: bool = false;
const EGRESS: bool = true;

/// A socket buffer: what its packet begins with, and which way it goes.
#[derive(Clone, Copy)]
struct Buffer<const LINK: u8, const WAY: bool>(*mut __sk_buff);

impl<const LINK: u8, const WAY: bool> Buffer<LINK, WAY> {
    const LINK: Link = Link::from_code(LINK);

    /// Measures what the interface has received, and no copy of what it sends.
    #[inline(always)]
    fn receive(self) -> i32 {
        // SAFETY: the context is the one that the kernel passed to this program.
        if unsafe { (*self.0).pkt_type } != PACKET_LOOPBACK {
            let _ = measure(self);
        }
        NEXT
    }

    /// The index of the interface that the packet is at.
    #[inline(always)]
    fn ifindex(self) -> u32 {
        // SAFETY: the context is the one that the kernel passed to this program.
        unsafe { (*self.0).ifindex }
    }

    /// Whether the outer VLAN tag is in the buffer's metadata.
    #[inline(always)]
    fn is_tagged(self) -> bool {
        // SAFETY: the context is the one that the kernel passed to this program.
        unsafe { (*self.0).vlan_present != 0 }
    }

    /// What a merged buffer is on the wire: `segments` packets with at most `segment` bytes of payload each. A buffer
    /// that was made outside of this kernel (by a guest, or at a tap) may not tell how many: then `segments` is 0.
    #[inline(always)]
    fn merged(self, length: u64, tag: u64, segment: u64, segments: u64) -> Tally {
        let headers = self.header_bytes();
        let packets = if segments != 0 {
            segments
        } else {
            let payload = length.saturating_sub(headers.max(ETHERNET_BYTES));
            // `segment` is never 0 here, but the compiler would keep a panic for that case.
            (payload + segment).saturating_sub(1).checked_div(segment).unwrap_or(1).max(1)
        };
        // Headers inside a tunnel are not looked for. But all headers together have at least the bytes that full
        // payloads leave; that is exact if the last packet is full.
        let headers = headers.max(length.saturating_sub(packets * segment));
        Tally::new(packets, length + tag + (packets - 1) * (headers + tag))
    }

    /// The length of all headers of a TCP or UDP packet, from the first byte to the payload: each packet of a merged
    /// buffer has them. 0 for other protocols. Kernel calls read them, so that the verifier has little to follow.
    #[inline(always)]
    fn header_bytes(self) -> u64 {
        const VLAN: [u16; 2] = [0x8100, 0x88a8];
        const TAGGED_BYTES: u64 = ETHERNET_BYTES + VLAN_BYTES as u64;
        let ip = match Self::LINK {
            Link::Ethernet if VLAN.contains(&u16::from_be(self.load(12))) => TAGGED_BYTES,
            Link::Ethernet => ETHERNET_BYTES,
            _ => 0,
        };
        let version: u8 = self.load(ip);
        let (protocol, transport) = match version >> 4 {
            4 => (self.load::<u8>(ip + 9), ip + u64::from(version & 15) * 4),
            6 => (self.load::<u8>(ip + 6), ip + IPV6_BYTES),
            _ => return 0,
        };
        match protocol {
            proto::TCP => transport + u64::from(self.load::<u8>(transport + 12) >> 4) * 4,
            proto::UDP => transport + UDP_BYTES,
            _ => 0,
        }
    }

    /// The number at `at`, in whichever part of the buffer; 0 if the packet ends before.
    #[inline(always)]
    fn load<T: Default>(self, at: u64) -> T {
        TcContext::new(self.0).load(at as usize).unwrap_or_default()
    }

    /// Copies the packet's beginning as it was on the wire; returns how many bytes were copied.
    #[inline(always)]
    fn copy_to(self, scratch: *mut [u8; REACH_MAX]) -> Option<usize> {
        // SAFETY: the context is the one that the kernel passed to this program.
        let (length, tag) = unsafe {
            let skb = self.0;
            ((*skb).len, self.is_tagged().then(|| [(*skb).vlan_proto as u16, ((*skb).vlan_tci as u16).to_be()]))
        };
        match tag {
            None => self.copy::<0>(0, length, scratch),
            Some([protocol, control]) => {
                self.copy::<0>(0, length.min(ADDRESSES_BYTES), scratch)?;
                // SAFETY: a per-CPU element, as in `copy`; the tag ends at byte 16 of its `REACH_MAX`.
                unsafe {
                    scratch.cast::<u16>().add(6).write(protocol);
                    scratch.cast::<u16>().add(7).write(control);
                }
                self.copy::<{ TAGGED }>(ADDRESSES_BYTES, length.saturating_sub(ADDRESSES_BYTES), scratch)
            }
        }
    }

    /// Copies `length` bytes of the packet, or as many as there is room for, from offset `from` to offset `TO` of the
    /// copy; returns where the copy ends.
    #[inline(always)]
    fn copy<const TO: usize>(self, from: u32, length: u32, scratch: *mut [u8; REACH_MAX]) -> Option<usize> {
        let mut length = u64::from(length).min((REACH_MAX - TO) as u64);
        // The verifier wants both bounds on the very register that it is called with; and before Linux 5.11 it learns
        // nothing from a comparison with 0. So the last byte's offset is compared, which is huge if there is no byte.
        // SAFETY: register arithmetic only.
        unsafe { asm!("{0} += -1", inout(reg) length, options(pure, nomem, nostack)) };
        if length >= (REACH_MAX - TO) as u64 {
            return None;
        }
        // SAFETY: as above.
        unsafe { asm!("{0} += 1", inout(reg) length, options(pure, nomem, nostack)) };
        // SAFETY: a per-CPU element of `REACH_MAX` bytes: nothing else runs on this CPU until the program ends.
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
        // SAFETY: the context is the one that the kernel passed to this program.
        if WAY { unsafe { (*self.0).ingress_ifindex } } else { 0 }
    }

    /// The packets on the wire, and their bytes: each has its own headers.
    #[inline(always)]
    fn tally(self) -> Tally {
        // SAFETY: the context is the one that the kernel passed to this program.
        let (length, segment, segments) = unsafe {
            let skb = self.0;
            ((*skb).len, (*skb).gso_size, (*skb).gso_segs)
        };
        let tag = if self.is_tagged() { VLAN_BYTES } else { 0 };
        if segment == 0 || segments == 1 {
            return Tally::new(1, u64::from(length + tag));
        }
        self.merged(u64::from(length), u64::from(tag), u64::from(segment), u64::from(segments))
    }

    #[inline(always)]
    fn common<T>(self, found: impl FnOnce(Parsed) -> T) -> Option<T> {
        if !matches!(Self::LINK, Link::Ethernet) || self.is_tagged() {
            return None;
        }
        common(&Frame::linear(&TcContext::new(self.0)), tunnels, found)
    }

    #[inline(always)]
    fn walk(self) -> Result<Parsed, Skip> {
        let scratch = SCRATCH.get_ptr_mut(0).ok_or(Skip::TruncatedLink)?;
        let length = self.copy_to(scratch).ok_or(Skip::TruncatedLink)?;
        walk(&Copied::new(scratch, length, unknown_zero(self.ifindex() as usize)), Self::LINK, tunnels())
    }
}
