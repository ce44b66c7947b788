//! The facts that a hook tells a program about a packet, at the offsets of the kernel's `include/uapi/linux/bpf.h`.

use anyhow::{Result, bail};

/// A packet at a hook.
#[derive(Clone, Debug)]
pub struct Arrival<'a> {
    /// The bytes of the packet, as the program sees them.
    pub frame: &'a [u8],
    /// The outer VLAN tag, if the kernel has moved it from the frame to the buffer's metadata: its protocol and its
    /// content.
    pub tag: Option<[u16; 2]>,
    /// The index of its interface.
    pub ifindex: u32,
}

impl<'a> Arrival<'a> {
    /// A packet that arrives on the loopback interface.
    pub const fn new(frame: &'a [u8]) -> Self {
        Self { frame, tag: None, ifindex: 1 }
    }
}

/// The kind of a program, which decides what its context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// XDP, with `struct xdp_md`.
    Xdp,
    /// tc, with `struct __sk_buff`.
    Tc,
}

/// The length of a link header, which `wire_len` does not include.
const ETHERNET_BYTES: u64 = 14;

impl Hook {
    /// The field at this offset of the context; `data` is the packet's address.
    pub(super) fn field(self, offset: u64, data: u64, arrival: &Arrival<'_>) -> Result<u64> {
        let length = arrival.frame.len() as u64;
        let tag = arrival.tag.unwrap_or_default().map(u64::from);
        Ok(match (self, offset) {
            (Self::Xdp, 0 | 8) | (Self::Tc, 76) => data,
            (Self::Xdp, 4) | (Self::Tc, 80) => data + length,
            (Self::Xdp, 12) | (Self::Tc, 40) => arrival.ifindex.into(),
            (Self::Tc, 0) => length,
            (Self::Tc, 20) => arrival.tag.is_some().into(),
            (Self::Tc, 24) => tag[1],
            // The tag is in network byte order.
            (Self::Tc, 28) => u64::from((tag[0] as u16).to_be()),
            // `wire_len`, as the kernel computed it before it showed the link header.
            (Self::Tc, 160) => length - ETHERNET_BYTES,
            // `pkt_type`: to this machine. `ingress_ifindex`: the router's own packet. `gso_segs` and `gso_size`: an
            // offload has merged nothing.
            (Self::Tc, 4 | 36 | 164 | 176) => 0,
            _ => bail!("a program reads byte {offset} of the context of {self:?}"),
        })
    }
}
