//! The flow key: who talks to whom, how.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An IP address as 128 bits in network byte order; IPv4 is mapped (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
///
/// Two 64-bit words, so that the kernel compares it in two instructions.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Address(pub [u64; 2]);

impl Address {
    /// The IPv4 address whose four octets, read in memory order, are `word`.
    #[inline(always)]
    pub const fn from_v4_word(word: u32) -> Self {
        let mapped = if cfg!(target_endian = "little") {
            0xffff_0000 | (word as u64) << 32
        } else {
            0xffff_0000_0000 | word as u64
        };
        Self([0, mapped])
    }

    /// The sixteen octets in network byte order.
    pub const fn octets(self) -> [u8; 16] {
        let [high, low] = [self.0[0].to_ne_bytes(), self.0[1].to_ne_bytes()];
        let mut octets = [0; 16];
        let mut i = 0;
        while i < 8 {
            octets[i] = high[i];
            octets[i + 8] = low[i];
            i += 1;
        }
        octets
    }
}

impl From<Ipv6Addr> for Address {
    fn from(ip: Ipv6Addr) -> Self {
        let octets = ip.octets();
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&octets[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Self([word(0), word(8)])
    }
}

impl From<Ipv4Addr> for Address {
    fn from(ip: Ipv4Addr) -> Self {
        Self::from_v4_word(u32::from_ne_bytes(ip.octets()))
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

/// Bits of [`FlowKey::class`].
pub mod class {
    /// The packet is IPv6; without this bit it is IPv4.
    pub const V6: u8 = 1;
    /// A piece of a fragmented packet, the first or a later one: the key has no ports, and no TCP flags are taken.
    ///
    /// Only the first piece has the ports. If its key had them, one packet's pieces would be of two flows, with nothing
    /// to join them by. So all pieces of a packet, first and later, share one key: addresses, protocol and this bit. The
    /// protocol over IPv6 is what the fragment header says, which is the same in all pieces. A whole packet in an IPv6
    /// fragment header (an "atomic fragment", RFC 6946) is no piece, and has its ports.
    pub const FRAGMENT: u8 = 2;
    /// The transport header is not in the packet, or not within reach (cut short): the key has no ports.
    pub const NO_TRANSPORT: u8 = 4;
}

/// What makes two packets the same flow.
///
/// `interface` and `epoch` scope a key inside the flow cache (a flow on two interfaces, or on both sides of a window
/// edge, has two records); [`FlowKey::identity`] drops them.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct FlowKey {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// Source port; the type for ICMP and `ICMPv6`; 0 for protocols without ports.
    pub src_port: u16,
    /// Destination port; the code for ICMP and `ICMPv6`; 0 for protocols without ports.
    pub dst_port: u16,
    /// IP protocol number (IANA).
    pub proto: u8,
    /// IP version and what the key lacks: bits of [`class`].
    pub class: u8,
    /// The interface's slot, in the order of the configuration.
    pub interface: u8,
    /// The window's number modulo 256.
    pub epoch: u8,
}

const _: () = assert!(size_of::<FlowKey>() == 40 && align_of::<FlowKey>() == 8);

impl FlowKey {
    /// The key without its scope: the same flow on any interface, in any window.
    #[inline]
    pub const fn identity(mut self) -> Self {
        self.interface = 0;
        self.epoch = 0;
        self
    }

    /// Whether the packet was IPv6.
    #[inline]
    pub const fn is_v6(&self) -> bool {
        self.class & class::V6 != 0
    }

    /// The source address as the packet had it.
    pub const fn src_ip(&self) -> IpAddr {
        ip(self.src, self.is_v6())
    }

    /// The destination address as the packet had it.
    pub const fn dst_ip(&self) -> IpAddr {
        ip(self.dst, self.is_v6())
    }
}

/// The IP address of the version that the packet had: a mapped address inside a real IPv6 packet stays IPv6.
pub const fn ip(address: Address, v6: bool) -> IpAddr {
    let octets = address.octets();
    if v6 {
        IpAddr::V6(Ipv6Addr::from_octets(octets))
    } else {
        IpAddr::V4(Ipv4Addr::new(octets[12], octets[13], octets[14], octets[15]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_octets() {
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(ip(v4.into(), false), IpAddr::V4(v4));
        assert_eq!(Address::from(v4), Address::from(v4.to_ipv6_mapped()));
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(ip(v6.into(), true), IpAddr::V6(v6));
        assert_eq!(Address::from(v6).octets(), v6.octets());
    }

    #[test]
    fn identity_drops_the_scope_only() {
        let key = FlowKey { proto: 6, class: class::V6, interface: 3, epoch: 9, ..FlowKey::default() };
        assert_eq!(key.identity(), FlowKey { proto: 6, class: class::V6, ..FlowKey::default() });
    }
}
