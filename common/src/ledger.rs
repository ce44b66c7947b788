//! The ledger accounts for every packet, exactly.
//!
//! Per interface and window, for packets and for bytes:
//! `seen = attributed + sampled_out + sum(skipped) + sum(lost)`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::size::{COARSE_CLASSES, coarse_class};

/// Packets and bytes, counted together.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire as the link layer frames them.
    pub bytes: u64,
}

impl Tally {
    /// A tally of `packets` packets that carried `bytes` bytes.
    #[inline]
    pub const fn new(packets: u64, bytes: u64) -> Self {
        Self { packets, bytes }
    }

    /// Adds another tally. Counters wrap after 2^64, which at 100 Gb/s takes 46 years.
    #[inline(always)]
    pub const fn add(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }

    /// What was added since `earlier`, if both are readings of one cumulative counter.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { packets: self.packets.wrapping_sub(earlier.packets), bytes: self.bytes.wrapping_sub(earlier.bytes) }
    }

    /// The mean packet size in bytes; 0 if there are no packets.
    #[inline(always)]
    pub const fn mean_bytes(self) -> u64 {
        match self.packets {
            0 => 0,
            // Saves the division for most packets.
            1 => self.bytes,
            packets => self.bytes / packets,
        }
    }

    /// Whether nothing was counted.
    pub const fn is_zero(self) -> bool {
        self.packets == 0 && self.bytes == 0
    }
}

/// Packets whose number or length on the wire is uncertain: those of some buffers that an offload merged, and some that
/// were lost before weir saw them. They count as the minimum.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Uncertain {
    /// The minimum, as counted.
    pub least: Tally,
    /// The maximum.
    pub most: Tally,
}

impl Uncertain {
    /// Adds other uncertain packets.
    pub const fn add(&mut self, other: Self) {
        self.least.add(other.least);
        self.most.add(other.most);
    }

    /// What was added since `earlier`, if both are readings of the same cumulative counters.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self { least: self.least.since(earlier.least), most: self.most.since(earlier.most) }
    }

    /// By how much the truth may exceed the count.
    pub const fn beyond(self) -> Tally {
        self.most.since(self.least)
    }
}

impl core::iter::Sum for Tally {
    fn sum<I: Iterator<Item = Self>>(tallies: I) -> Self {
        let mut total = Self::default();
        tallies.for_each(|tally| total.add(tally));
        total
    }
}

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// All reasons, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// The number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// The reason's name in reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

reasons! {
    /// Why a packet that was seen has no flow key. Each reason has a counter.
    Skip {
        /// Address resolution (`EtherType` 0x0806).
        Arp = "arp",
        /// Link layer discovery (0x88cc).
        Lldp = "lldp",
        /// An IEEE 802.3 length instead of an `EtherType`, and no `EtherType` after it (SNAP): spanning tree, IS-IS.
        Llc = "llc",
        /// MPLS (0x8847, 0x8848) without a valid IP header after it: a pseudowire, a control channel, or a packet that
        /// was only partly captured.
        Mpls = "mpls",
        /// More MPLS labels than [`crate::packet::MPLS_LABELS_MAX`].
        MplsDepth = "mpls_depth",
        /// PPP over Ethernet: discovery (0x8863), or a session (0x8864) of an unknown version.
        Pppoe = "pppoe",
        /// PPP with a protocol other than IP and MPLS: link control, authentication, address negotiation; or IP that
        /// PPP has compressed, encrypted or split.
        Ppp = "ppp",
        /// `MACsec` (0x88e5): the payload is encrypted.
        Macsec = "macsec",
        /// Any other protocol above the link layer; it may contain IP in a way that weir does not parse.
        NonIp = "non_ip",
        /// The packet ends inside its link-layer header.
        TruncatedLink = "truncated_link",
        /// More tags than [`crate::packet::VLAN_TAGS_MAX`].
        VlanDepth = "vlan_depth",
        /// The packet ends inside its IP header or inside an IPv6 extension header.
        TruncatedIp = "truncated_ip",
        /// The IP version field contradicts the link layer, or the IPv4 header length is below 20 bytes.
        BadIpHeader = "bad_ip_header",
        /// More IPv6 extension headers than [`crate::packet::EXTENSION_HEADERS_MAX`].
        ExtensionDepth = "extension_depth",
        /// A capture's link type that weir does not support.
        LinkType = "link_type",
    }
}

reasons! {
    /// Why a packet that may have had a flow key is missing from the records. Each reason has a counter.
    Loss {
        /// The ring was full when its record was evicted: userspace did not keep up.
        RingFull = "ring_full",
        /// Its CPU had no ring yet: the CPU came online while the daemon ran, and the daemon notices it within a
        /// second.
        NoRing = "no_ring",
        /// A packet socket dropped it: its ring was full because userspace did not keep up, or the socket could not
        /// describe the buffer. The socket counts buffers, so packets that an offload had merged count as one. Their
        /// bytes are an estimate: see [`Counters::lost`].
        SocketDrop = "socket_drop",
        /// An earlier weir had read its record and was killed before it could report it. The next weir determines how
        /// many these are.
        Restart = "restart",
        /// weir was blind: another program had removed weir's, or ran before it. These are the packets that the
        /// interface counted and weir did not see. Their content is unknown; their bytes are from the interface's
        /// counter.
        Blind = "blind",
    }
}

impl Loss {
    /// Reasons for which a packet was never parsed: its size and flags are not counted, and sampling did not draw it.
    pub const UNREAD: [Self; 2] = [Self::SocketDrop, Self::Blind];
}

/// Packets that begin or end TCP connections. Each counts as many times as its sampling rate says; without sampling
/// these are exact counts.
///
/// A packet counts under each name that applies. SYN and SYN-ACK exclude each other. RST and FIN count whatever else is
/// set: a packet with FIN and SYN, which no correct sender makes, counts in two of them. Offloads never merge two
/// packets with such a flag into one buffer, so a buffer counts as 1.
///
/// They are counted where the flags are parsed. This excludes fragments, packets that end before the flags, those
/// inside a tunnel that is not looked into, and those that sampling leaves out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct TcpPackets {
    /// SYN without ACK: a connection request.
    pub syn: u64,
    /// SYN with ACK: an accepted connection.
    pub syn_ack: u64,
    /// RST.
    pub rst: u64,
    /// FIN.
    pub fin: u64,
}

impl TcpPackets {
    /// The flags that are counted (RFC 9293 section 3.1).
    pub const COUNTED: u8 = Self::FIN | Self::SYN | Self::RST;
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;

    /// Counts a packet with these flags, which stands for `packets`.
    #[inline(always)]
    pub const fn count(&mut self, tcp_flags: u8, packets: u64) {
        let Self { syn, syn_ack, rst, fin } = self;
        if tcp_flags & Self::SYN != 0 {
            let opening = if tcp_flags & Self::ACK == 0 { syn } else { syn_ack };
            *opening = opening.wrapping_add(packets);
        }
        if tcp_flags & Self::RST != 0 {
            *rst = rst.wrapping_add(packets);
        }
        if tcp_flags & Self::FIN != 0 {
            *fin = fin.wrapping_add(packets);
        }
    }

    /// Adds other counts.
    pub const fn add(&mut self, other: Self) {
        let Self { syn, syn_ack, rst, fin } = other;
        self.syn = self.syn.wrapping_add(syn);
        self.syn_ack = self.syn_ack.wrapping_add(syn_ack);
        self.rst = self.rst.wrapping_add(rst);
        self.fin = self.fin.wrapping_add(fin);
    }

    /// What was counted since `earlier`, if both are readings of the same cumulative counters.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            syn: self.syn.wrapping_sub(earlier.syn),
            syn_ack: self.syn_ack.wrapping_sub(earlier.syn_ack),
            rst: self.rst.wrapping_sub(earlier.rst),
            fin: self.fin.wrapping_sub(earlier.fin),
        }
    }
}

/// Packets by [`coarse_class`]. Packets that an offload merged count with their mean size.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct PacketSizes(pub [u64; COARSE_CLASSES]);

impl PacketSizes {
    /// Counts packets whose mean size is in this [`crate::size::size_class`].
    #[inline(always)]
    pub const fn count(&mut self, class: usize, packets: u64) {
        let class = &mut self.0[coarse_class(class)];
        *class = class.wrapping_add(packets);
    }

    /// Adds other counts.
    pub fn add(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, packets)| *sum = sum.wrapping_add(packets));
    }

    /// What was counted since `earlier`, if both are readings of the same cumulative counters.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(core::array::from_fn(|class| self.0[class].wrapping_sub(earlier.0[class])))
    }
}

/// One interface's counters on one CPU, as the kernel keeps them: cumulative since load.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Counters {
    /// All packets.
    pub seen: Tally,
    /// Packets that offloads had merged into an earlier one: the number of packets minus the number of socket buffers
    /// that they came in.
    pub merged: u64,
    /// All packets by size, except those of [`Loss::UNREAD`], whose sizes are unknown.
    pub sizes: PacketSizes,
    /// Packets that sampling left out.
    pub sampled_out: Tally,
    /// Of the packets seen, those that feed totals and lists on another interface.
    pub repeated: Tally,
    /// Packets that begin or end TCP connections.
    pub tcp: TcpPackets,
    /// Packets without a flow key, by [`Skip`].
    pub skipped: [Tally; Skip::COUNT],
    /// Packets whose record could not be handed over, by [`Loss`]. All numbers are exact, except the bytes of
    /// [`Loss::SocketDrop`]: the kernel only reports how many packets a socket dropped. Each counts with the mean size
    /// of the packets from the same socket in the same window, or in the last window that had any.
    pub lost: [Tally; Loss::COUNT],
    /// Of the packets seen, those that are uncertain.
    pub uncertain: Uncertain,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            seen: Tally::default(),
            merged: 0,
            sizes: PacketSizes::default(),
            sampled_out: Tally::default(),
            repeated: Tally::default(),
            tcp: TcpPackets::default(),
            skipped: [Tally::default(); Skip::COUNT],
            lost: [Tally::default(); Loss::COUNT],
            uncertain: Uncertain::default(),
        }
    }
}

impl Counters {
    /// Adds counts from elsewhere, or from another window.
    pub fn add(&mut self, other: &Self) {
        let Self { seen, merged, sizes, sampled_out, repeated, tcp, skipped, lost, uncertain } = other;
        self.seen.add(*seen);
        self.merged = self.merged.wrapping_add(*merged);
        self.sizes.add(*sizes);
        self.sampled_out.add(*sampled_out);
        self.repeated.add(*repeated);
        self.tcp.add(*tcp);
        self.skipped.iter_mut().zip(skipped).for_each(|(sum, tally)| sum.add(*tally));
        self.lost.iter_mut().zip(lost).for_each(|(sum, tally)| sum.add(*tally));
        self.uncertain.add(*uncertain);
    }

    /// What was counted since `earlier`, if both are readings of the same cumulative counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            seen: self.seen.since(earlier.seen),
            merged: self.merged.wrapping_sub(earlier.merged),
            sizes: self.sizes.since(earlier.sizes),
            sampled_out: self.sampled_out.since(earlier.sampled_out),
            repeated: self.repeated.since(earlier.repeated),
            tcp: self.tcp.since(earlier.tcp),
            skipped: core::array::from_fn(|i| self.skipped[i].since(earlier.skipped[i])),
            lost: core::array::from_fn(|i| self.lost[i].since(earlier.lost[i])),
            uncertain: self.uncertain.since(earlier.uncertain),
        }
    }
}

/// The account of one interface in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// What the datapath counted.
    pub counters: Counters,
    /// The sum of all records that arrived.
    pub attributed: Tally,
}

impl Ledger {
    /// Adds the ledger of another CPU or window.
    pub fn add(&mut self, other: &Self) {
        let Self { counters, attributed } = other;
        self.attributed.add(*attributed);
        self.counters.add(counters);
    }

    /// The packets seen that feed totals and lists here.
    pub fn fed(&self) -> Tally {
        self.counters.seen.since(self.counters.repeated)
    }

    /// All packets that were counted but whose records were lost.
    pub fn lost(&self) -> Tally {
        self.counters.lost.iter().copied().sum()
    }

    /// The lost packets that were never parsed.
    pub fn unread(&self) -> Tally {
        Loss::UNREAD.iter().map(|reason| self.counters.lost[*reason as usize]).sum()
    }

    /// All packets without a flow key.
    pub fn skipped(&self) -> Tally {
        self.counters.skipped.iter().copied().sum()
    }

    /// Whether this module's equation holds for packets and for bytes.
    pub fn balances(&self) -> bool {
        let accounted: Tally =
            [self.attributed, self.counters.sampled_out, self.skipped(), self.lost()].into_iter().sum();
        accounted == self.counters.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::size_class;

    #[test]
    fn tallies_add_up_and_know_their_mean() {
        let mut tally = Tally::default();
        assert!(tally.is_zero());
        assert_eq!(tally.mean_bytes(), 0, "no packet has no size");
        tally.add(Tally::new(1, 60));
        assert_eq!(tally.mean_bytes(), 60);
        tally.add(Tally::new(2, 1_440));
        assert_eq!(tally, Tally::new(3, 1_500));
        assert_eq!(tally.mean_bytes(), 500);
        assert_eq!([tally, Tally::new(4, 100)].into_iter().sum::<Tally>(), Tally::new(7, 1_600));
        assert_eq!(tally.since(Tally::new(1, 60)), Tally::new(2, 1_440));
        assert!(![tally, Tally::new(1, 0), Tally::new(0, 1)].iter().any(|tally| tally.is_zero()));
    }

    #[test]
    fn a_ledger_balances_only_when_every_packet_and_byte_is_named() {
        let mut ledger = Ledger::default();
        assert!(ledger.balances());
        ledger.counters.seen = Tally::new(3, 300);
        ledger.attributed = Tally::new(1, 100);
        ledger.counters.skipped[Skip::Arp as usize] = Tally::new(1, 100);
        assert!(!ledger.balances());
        ledger.counters.lost[Loss::RingFull as usize] = Tally::new(1, 99);
        assert!(!ledger.balances(), "a byte is missing");
        ledger.counters.lost[Loss::RingFull as usize].bytes = 100;
        assert!(ledger.balances());
        let mut sum = ledger;
        sum.add(&ledger);
        assert!(sum.balances());
        assert_eq!(sum.counters.seen, Tally::new(6, 600));
        assert_eq!(sum.counters.since(&ledger.counters), ledger.counters);
        ledger.counters.repeated = Tally::new(1, 120);
        assert_eq!(ledger.fed(), Tally::new(2, 180));
    }

    /// Of all 256 combinations of flags, half have each flag and a quarter have two of them.
    #[test]
    fn connections_are_counted_by_each_flag_that_a_packet_has() {
        let count = |flags: u8| {
            let mut tcp = TcpPackets::default();
            tcp.count(flags, 3);
            assert_eq!(tcp == TcpPackets::default(), flags & TcpPackets::COUNTED == 0, "{flags:#04x}");
            tcp
        };
        let none = TcpPackets::default();
        for (flags, expected) in [
            (0x02, TcpPackets { syn: 3, ..none }),
            (0xc2, TcpPackets { syn: 3, ..none }),
            (0x12, TcpPackets { syn_ack: 3, ..none }),
            (0x52, TcpPackets { syn_ack: 3, ..none }),
            (0x04, TcpPackets { rst: 3, ..none }),
            (0x14, TcpPackets { rst: 3, ..none }),
            (0x11, TcpPackets { fin: 3, ..none }),
            (0x19, TcpPackets { fin: 3, ..none }),
            (0x03, TcpPackets { syn: 3, fin: 3, ..none }),
            (0x16, TcpPackets { syn_ack: 3, rst: 3, ..none }),
            (0xff, TcpPackets { syn_ack: 3, rst: 3, fin: 3, ..none }),
            (0xf8, none),
        ] {
            assert_eq!(count(flags), expected, "{flags:#04x}");
        }
        let mut all = none;
        (0..=u8::MAX).for_each(|flags| all.add(count(flags)));
        assert_eq!(all, TcpPackets { syn: 3 * 64, syn_ack: 3 * 64, rst: 3 * 128, fin: 3 * 128 });
        assert_eq!(all.since(count(0x17)), TcpPackets { syn: 192, syn_ack: 189, rst: 381, fin: 381 });
        let mut ledger = Ledger { counters: Counters { tcp: all, ..Counters::default() }, ..Ledger::default() };
        ledger.add(&ledger.clone());
        assert_eq!(ledger.counters.tcp.since(all), all);
        assert_eq!(ledger.counters.since(&Counters { tcp: all, ..Counters::default() }).tcp, all);
    }

    #[test]
    fn packets_are_counted_by_size() {
        let mut sizes = PacketSizes::default();
        for (bytes, packets) in [(60, 1), (64, 2), (65, 4), (1_514, 8), (1_518, 16), (64_000, 32)] {
            sizes.count(size_class(bytes), packets);
        }
        assert_eq!(sizes, PacketSizes([3, 4, 0, 0, 0, 24, 0, 32]));
        let mut ledger = Ledger { counters: Counters { sizes, ..Counters::default() }, ..Ledger::default() };
        ledger.add(&ledger.clone());
        assert_eq!(ledger.counters.sizes, PacketSizes([6, 8, 0, 0, 0, 48, 0, 64]));
        assert_eq!(ledger.counters.since(&Counters { sizes, ..Counters::default() }).sizes, sizes);
    }

    #[test]
    fn reasons_have_distinct_names() {
        let names: std::collections::BTreeSet<_> = Skip::ALL.iter().map(|skip| skip.name()).collect();
        assert_eq!(names.len(), Skip::COUNT);
        assert_eq!(Skip::ALL[Skip::LinkType as usize], Skip::LinkType);
    }
}
