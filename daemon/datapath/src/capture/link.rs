//! Turns the link type of a capture into the parser's [`Link`].

use weir_common::packet::Link;

/// The link type of a `LINKTYPE_` number (<https://www.tcpdump.org/linktypes.html>).
pub(super) const fn link(linktype: u16) -> Link {
    match linktype {
        1 => Link::Ethernet,
        // RAW; the same as DLT_RAW on most systems, and on OpenBSD; IPV4; IPV6.
        101 | 12 | 14 | 228 | 229 => Link::RawIp,
        // NULL; LOOP.
        0 | 108 => Link::Loopback,
        113 => Link::Sll,
        276 => Link::Sll2,
        // PPP; PPP_HDLC; C_HDLC.
        9 | 50 | 104 => Link::Ppp,
        // PPP_PPPD; PPP_WITH_DIR.
        166 | 204 => Link::PppWithDirection,
        // PPP_ETHER.
        51 => Link::Pppoe,
        _ => Link::Other,
    }
}
