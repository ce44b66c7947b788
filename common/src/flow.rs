//! The flow key: who talks to whom, how.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::proto;

/// An IP address as 128 bits in network byte order; IPv4 is mapped (`::ffff:a.b.c.d`, RFC 4291 section 2.5.5.2).
///
/// Two 64-bit words, so that the kernel compares it in two instructions.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Address(pub [u64; 2]);

impl Address {
    /// The IPv4 address whose four octets in memory order are `word`.
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
///
/// Only the IP version distinguishes flows. Reports show no other bit besides addresses, ports and protocol, so no
/// other bit may be part of what they count by: see [`FlowKey::identity`].
pub mod class {
    /// The packet is IPv6; without this bit it is IPv4.
    pub const V6: u8 = 1;
    /// A fragment of a packet, the first or a later one. The key has no ports, and the record takes no TCP flags.
    ///
    /// Only the first fragment has the ports. If its key had them, the fragments of one packet would belong to two
    /// flows that could not be joined. So all fragments of a packet share one key: addresses, protocol and this bit.
    /// For IPv6 the protocol is that of the fragment header, which is the same in all fragments. A whole packet with an
    /// IPv6 fragment header (an "atomic fragment", RFC 6946) is not a fragment and has its ports.
    pub const FRAGMENT: u8 = 2;
    /// The transport header is missing, or the packet was cut off before it. The key has no ports.
    pub const NO_TRANSPORT: u8 = 4;
}

/// The fields that identify a flow.
///
/// A key is five words, which the kernel hashes and compares in a few instructions: four for the addresses and one for
/// everything else. In the flow cache a key also has an interface and an epoch: a flow on two interfaces, or on both
/// sides of a window's edge, has two records. So do a flow's fragments and its whole packets, even if the protocol has
/// no ports. [`FlowKey::identity`] removes all of that and leaves the flow.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FlowKey {
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// From the lowest bit: destination port (16 bits), source port (16), protocol (8), class (7), whether it is
    /// repeated (1), interface, epoch (8 each).
    tail: u64,
}

const _: () = assert!(size_of::<FlowKey>() == 40 && align_of::<FlowKey>() == 8);

/// An interface slot, a window, and whether the packets feed totals and lists on another interface. A flow has a
/// separate record for each combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope(u64);

impl Scope {
    /// The scope of an interface slot and a window number modulo 256.
    #[inline(always)]
    pub const fn new(interface: u8, epoch: u8) -> Self {
        Self((interface as u64) << INTERFACE | (epoch as u64) << EPOCH)
    }

    /// The scope of a key, from its [`FlowKey::tail`].
    #[inline(always)]
    pub const fn of_tail(tail: u64) -> Self {
        Self(tail & !(REPEATED - 1))
    }

    /// The scope of packets that feed totals and lists on another interface.
    #[must_use]
    #[inline(always)]
    pub const fn repeated(self) -> Self {
        Self(self.0 | REPEATED)
    }

    /// Whether these packets feed totals and lists on another interface.
    #[inline(always)]
    pub const fn is_repeated(self) -> bool {
        self.0 & REPEATED != 0
    }

    /// Whether it leaves the rest of a key alone, as every scope does. The kernel program asserts it, because the
    /// compiler cannot prove that the IP version is preserved.
    #[inline(always)]
    pub const fn is_apart(self) -> bool {
        self.0 & (REPEATED - 1) == 0
    }

    /// The interface's slot.
    #[inline(always)]
    pub const fn interface(self) -> u8 {
        (self.0 >> INTERFACE) as u8
    }

    /// The window's number modulo 256.
    #[inline(always)]
    pub const fn epoch(self) -> u8 {
        (self.0 >> EPOCH) as u8
    }
}

const SRC_PORT: u32 = 16;
const PROTO: u32 = 32;
const CLASS: u32 = 40;
const INTERFACE: u32 = 48;
const EPOCH: u32 = 56;
/// The lowest bit of a scope is the highest bit of the class field, which no class uses.
const SCOPE: u32 = INTERFACE - 1;
const REPEATED: u64 = 1 << SCOPE;
/// The part of the last word that belongs to the flow: ports, protocol, IP version.
const IDENTITY: u64 = (class::V6 as u64) << CLASS | ((1 << CLASS) - 1);

impl FlowKey {
    /// The key of a flow without ports and scope. `proto` is the IP protocol number (IANA); `class` has bits of
    /// [`class`], such as the IP version.
    #[inline(always)]
    pub const fn new(src: Address, dst: Address, proto: u8, class: u8) -> Self {
        Self { src, dst, tail: (proto as u64) << PROTO | (class as u64) << CLASS }
    }

    /// The same key with ports, which it must not have yet. For ICMP and `ICMPv6` they are the type and the code.
    #[must_use]
    #[inline(always)]
    pub const fn with_ports(self, src_port: u16, dst_port: u16) -> Self {
        self.with_both_ports((src_port as u32) << SRC_PORT | dst_port as u32)
    }

    /// The same key with the two ports in one word: the source port in the upper half, as in a header.
    #[must_use]
    #[inline(always)]
    pub const fn with_both_ports(mut self, ports: u32) -> Self {
        self.tail |= ports as u64;
        self
    }

    /// The same key with another protocol.
    #[must_use]
    #[inline(always)]
    pub const fn with_proto(mut self, proto: u8) -> Self {
        self.tail = self.tail & !(0xff << PROTO) | (proto as u64) << PROTO;
        self
    }

    /// The same key with more bits of [`class`].
    #[must_use]
    #[inline(always)]
    pub const fn with_class(mut self, bits: u8) -> Self {
        self.tail |= (bits as u64) << CLASS;
        self
    }

    /// The same key with a scope, which it must not have yet.
    #[must_use]
    #[inline(always)]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.tail |= scope.0;
        self
    }

    /// Maps each word of the key.
    #[must_use]
    #[inline(always)]
    pub fn map_words(self, to: impl Fn(u64) -> u64) -> Self {
        let Self { src, dst, tail } = self;
        Self { src: Address(src.0.map(&to)), dst: Address(dst.0.map(&to)), tail: to(tail) }
    }

    /// The key without its scope: equal on all interfaces and in all windows.
    #[must_use]
    #[inline]
    pub const fn without_scope(mut self) -> Self {
        self.tail &= REPEATED - 1;
        self
    }

    /// The flow: addresses, ports and protocol in one direction. It is the same on any interface, in any window, and
    /// for whole packets, fragments and packets that are cut off before their ports.
    #[must_use]
    #[inline]
    pub const fn identity(mut self) -> Self {
        self.tail &= IDENTITY;
        self
    }

    /// Source port; the type for ICMP and `ICMPv6`; 0 for protocols without ports.
    #[inline(always)]
    pub const fn src_port(&self) -> u16 {
        (self.tail >> SRC_PORT) as u16
    }

    /// Destination port; the code for ICMP and `ICMPv6`; 0 for protocols without ports.
    #[inline(always)]
    pub const fn dst_port(&self) -> u16 {
        self.tail as u16
    }

    /// The port that identifies the service: the lower of the two, which is the same in both directions of a
    /// conversation. 0 if there are none, and for ICMP, whose type and code are in their place.
    #[inline(always)]
    pub const fn port(&self) -> u16 {
        let (src, dst) = (self.src_port(), self.dst_port());
        match self.proto() {
            proto::ICMP | proto::ICMPV6 => 0,
            _ if src < dst => src,
            _ => dst,
        }
    }

    /// IP protocol number (IANA).
    #[inline(always)]
    pub const fn proto(&self) -> u8 {
        (self.tail >> PROTO) as u8
    }

    /// The IP version and what the key lacks: bits of [`class`].
    #[inline(always)]
    pub const fn class(&self) -> u8 {
        (self.tail >> CLASS) as u8 & 0x7f
    }

    /// The interface slot, the window, and whether the packets feed on another interface.
    #[inline(always)]
    pub const fn scope(&self) -> Scope {
        Scope::of_tail(self.tail)
    }

    /// The interface's slot.
    #[inline(always)]
    pub const fn interface(&self) -> u8 {
        self.scope().interface()
    }

    /// The window's number modulo 256.
    #[inline(always)]
    pub const fn epoch(&self) -> u8 {
        self.scope().epoch()
    }

    /// The key as five words without the epoch, so that a flow keeps its place in the cache across windows. The TOS
    /// byte takes the epoch's bits.
    ///
    /// Addresses are numbers here, so that neighbours differ in the lowest bits, which affect every bit of a product.
    #[inline(always)]
    pub const fn place_words(&self, tos: u8) -> [u64; 5] {
        let ([a, b], [c, d]) = (self.src.0, self.dst.0);
        let last = self.tail << (u64::BITS - EPOCH) | tos as u64;
        [u64::from_be(a), u64::from_be(b), u64::from_be(c), u64::from_be(d), last]
    }

    /// Whether two keys from the parser are equal. The first words of IPv4 addresses are always equal, so they are not
    /// compared.
    #[inline(always)]
    pub const fn is_same(&self, other: &Self) -> bool {
        let ([a, b], [c, d]) = (self.src.0, self.dst.0);
        let ([e, f], [g, h]) = (other.src.0, other.dst.0);
        self.tail == other.tail && b == f && d == h && (!other.is_v6() || (a == e && c == g))
    }

    /// Both addresses of an IPv4 key as one word: in memory order, the source address first.
    #[inline(always)]
    pub const fn v4_addresses(&self) -> u64 {
        let ([_, src], [_, dst]) = (self.src.0, self.dst.0);
        if cfg!(target_endian = "little") {
            src >> 32 | dst & !(u32::MAX as u64)
        } else {
            src << 32 | dst & u32::MAX as u64
        }
    }

    /// The same key with these [`FlowKey::v4_addresses`].
    #[must_use]
    #[inline(always)]
    pub const fn with_v4_addresses(self, addresses: u64) -> Self {
        let (low, high) = (addresses as u32, (addresses >> 32) as u32);
        let (src, dst) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        Self { src: Address::from_v4_word(src), dst: Address::from_v4_word(dst), tail: self.tail }
    }

    /// Ports, protocol, class and scope as one word.
    #[inline(always)]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether the packet was IPv6.
    #[inline(always)]
    pub const fn is_v6(&self) -> bool {
        self.class() & class::V6 != 0
    }

    /// The source address as in the packet.
    pub const fn src_ip(&self) -> IpAddr {
        ip(self.src, self.is_v6())
    }

    /// The destination address as in the packet.
    pub const fn dst_ip(&self) -> IpAddr {
        ip(self.dst, self.is_v6())
    }
}

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowKey")
            .field("src", &self.src_ip())
            .field("dst", &self.dst_ip())
            .field("src_port", &self.src_port())
            .field("dst_port", &self.dst_port())
            .field("proto", &self.proto())
            .field("class", &self.class())
            .field("interface", &self.interface())
            .field("epoch", &self.epoch())
            .finish()
    }
}

/// The IP address in the packet's IP version: a mapped address in a real IPv6 packet stays IPv6.
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
        assert_eq!(Address::from(IpAddr::V4(v4)), Address::from(v4));
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(ip(v6.into(), true), IpAddr::V6(v6));
        assert_eq!(Address::from(v6).octets(), v6.octets());
        assert_eq!(Address::from(IpAddr::V6(v6)), Address::from(v6));
    }

    #[test]
    fn keys_are_the_same_when_every_part_is() {
        let v4 = |host: u32| Address::from(Ipv4Addr::from_bits(host));
        let v6 = |host: u128| Address::from(Ipv6Addr::from_bits(host));
        let scope = Scope::new(3, 9);
        let keys = [
            FlowKey::new(v4(1), v4(2), 6, 0),
            FlowKey::new(v4(3), v4(2), 6, 0),
            FlowKey::new(v4(1), v4(3), 6, 0),
            FlowKey::new(v4(1), v4(2), 17, 0),
            FlowKey::new(v4(1), v4(2), 6, 0).with_ports(0, 1),
            FlowKey::new(v4(1), v4(2), 6, 0).with_scope(scope),
            FlowKey::new(v4(1), v4(2), 6, class::V6),
            FlowKey::new(v6(1 << 64), v6(2), 6, class::V6),
            FlowKey::new(v6(2 << 64), v6(2), 6, class::V6),
            FlowKey::new(v6(1 << 64), v6(2 << 64 | 2), 6, class::V6),
            FlowKey::new(v6(1 << 64 | 1), v6(2), 6, class::V6),
        ];
        for one in &keys {
            assert_eq!(keys.iter().filter(|other| one.is_same(other)).collect::<std::vec::Vec<_>>(), [one]);
        }
    }

    #[test]
    fn the_identity_is_what_reports_show_of_a_flow() {
        let v6 = FlowKey::new(Address([1, 2]), Address([3, 4]), 50, class::V6);
        let v4 = FlowKey::new(Address([1, 2]), Address([3, 4]), 50, 0);
        for flow in [v4, v6, v4.with_ports(7, 9)] {
            for bits in [0, class::FRAGMENT, class::NO_TRANSPORT] {
                let key = flow.with_class(bits).with_scope(Scope::new(3, 9).repeated());
                assert_eq!(key.identity(), flow, "{bits}");
                assert_eq!(key.without_scope(), flow.with_class(bits));
            }
        }
        assert_ne!(v4.identity(), v6.identity());
    }

    #[test]
    fn a_scope_can_be_taken_away() {
        let address = Address([1, 2]);
        let flow = FlowKey::new(address, address, 6, class::V6).with_ports(51000, 443);
        let key = flow.with_scope(Scope::new(3, 9));
        assert_eq!((key.src_port(), key.dst_port(), key.proto(), key.class()), (51000, 443, 6, class::V6));
        assert_eq!((key.interface(), key.epoch()), (3, 9));
        assert_eq!(key.scope(), Scope::new(3, 9));
        assert_eq!(key.identity(), flow);
        assert_eq!(key.place_words(7), flow.with_scope(Scope::new(3, 200)).place_words(7));
        assert_ne!(key.place_words(7), flow.with_scope(Scope::new(4, 9)).place_words(7));
        assert_ne!(key.place_words(7), key.place_words(6));
        let repeated = flow.with_scope(Scope::new(3, 9).repeated());
        assert_eq!((repeated.identity(), repeated.class(), repeated.interface()), (flow, class::V6, 3));
        assert!(repeated.scope().is_repeated() && !key.scope().is_repeated() && !repeated.is_same(&key));
        let fragment = flow.with_proto(17).with_class(class::FRAGMENT);
        assert_eq!((fragment.proto(), fragment.class(), fragment.dst_port()), (17, class::V6 | class::FRAGMENT, 443));
    }

    #[test]
    fn a_scope_is_apart_from_the_rest_of_a_key() {
        for scope in [Scope::new(0, 0), Scope::new(255, 255), Scope::new(3, 9).repeated()] {
            assert!(scope.is_apart(), "{scope:?}");
            assert_eq!(Scope::of_tail(scope.0 | (REPEATED - 1)), scope);
            assert_eq!(scope.repeated().repeated(), scope.repeated());
        }
        for bit in 0..SCOPE {
            assert!(!Scope(1 << bit).is_apart(), "bit {bit}");
        }
    }

    #[test]
    fn a_key_prints_all_that_it_has() {
        let host = |last| Address::from(Ipv4Addr::new(192, 0, 2, last));
        let key = FlowKey::new(host(1), host(2), 17, class::NO_TRANSPORT).with_ports(5, 6).with_scope(Scope::new(7, 8));
        assert_eq!(
            std::format!("{key:?}"),
            "FlowKey { src: 192.0.2.1, dst: 192.0.2.2, src_port: 5, dst_port: 6, proto: 17, class: 4, interface: 7, \
             epoch: 8 }"
        );
    }
}
