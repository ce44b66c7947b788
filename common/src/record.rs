//! The records that go from the kernel to userspace, with a fixed size and layout.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    flow::{Address, FlowKey},
    ledger::Tally,
    packet::Parsed,
};

/// What one flow did on one CPU since it was last evicted from that CPU's flow cache.
///
/// All its packets have the same TOS, VLAN and interface, so sums of records by these are exact. TOS and VLAN are not
/// in the key: [`FlowKey::identity`] identifies the flow without them.
///
/// A record is one cache line, and so is a [`Slot`] of the kernel's flow cache.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Record {
    /// The flow.
    pub key: FlowKey,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets. The count never wraps: see [`Record::takes`].
    pub packets: u32,
    /// The sampling rate: one packet in this many was counted.
    pub sampling: u16,
    /// All TCP flags seen, `ORed` (RFC 9293: FIN is bit 0).
    pub tcp_flags: u8,
    /// The TOS byte of all its packets: see [`Parsed::tos`](crate::packet::Parsed::tos).
    pub tos: u8,
    /// Arrival time of its first packet: the kernel's ticks (jiffies) modulo 2^32. In userspace and for captures:
    /// milliseconds modulo 2^32.
    pub first_tick: u32,
    /// Ticks from its first packet to its last. It never wraps: see [`Record::takes`].
    pub duration: u16,
    /// The VLAN of all its packets: see [`Parsed::vlan`](crate::packet::Parsed::vlan).
    pub vlan: u16,
}

const _: () = assert!(size_of::<Record>() == 64 && align_of::<Record>() == 8);

/// The number of 64-bit words in a record.
pub const WORDS: usize = size_of::<Record>() / 8;
/// Words with several fields that are loaded, compared and stored together: packets, sampling rate, TCP flags and TOS
/// in one; the times and the VLAN in the other.
const STATE: usize = core::mem::offset_of!(Record, packets) / 8;
const TIMES: usize = core::mem::offset_of!(Record, first_tick) / 8;

/// The first word after the addresses.
const TAIL: usize = size_of::<[Address; 2]>() / 8;

/// The bit offset of each field in its word.
const PACKETS: u32 = if cfg!(target_endian = "little") { 0 } else { 32 };
const SAMPLING: u32 = if cfg!(target_endian = "little") { 32 } else { 16 };
const TCP_FLAGS: u32 = if cfg!(target_endian = "little") { 48 } else { 8 };
const TOS: u32 = if cfg!(target_endian = "little") { 56 } else { 0 };
const FIRST_TICK: u32 = if cfg!(target_endian = "little") { 0 } else { 32 };
const DURATION: u32 = if cfg!(target_endian = "little") { 32 } else { 16 };
const VLAN: u32 = if cfg!(target_endian = "little") { 48 } else { 0 };

/// What a record takes from a packet, besides its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The packet and its bytes; several packets if an offload merged them.
    pub tally: Tally,
    /// Arrival time: see [`Record::first_tick`], by a clock that may have more bits.
    pub tick: u64,
    /// Its VLAN.
    pub vlan: u16,
    /// The other fields.
    pub marks: Marks,
}

impl Sample {
    /// What a record takes from a parsed packet; `sampling` is the sampling rate.
    #[inline(always)]
    pub const fn new(parsed: &Parsed, tally: Tally, tick: u64, sampling: u16) -> Self {
        Self { tally, tick, vlan: parsed.vlan, marks: Marks::new(parsed, sampling) }
    }

    /// What all packets of a record share besides its key, as one word.
    #[inline(always)]
    const fn same(&self) -> u64 {
        self.marks.tos() as u64 | (self.marks.sampling() as u64) << 8 | (self.vlan as u64) << 32
    }
}

/// Sampling rate, TCP flags and TOS of a packet, laid out as in a record's word: one number, where the kernel program
/// would otherwise have to keep three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(pub u64);

impl Marks {
    /// The marks of a parsed packet; `sampling` is the sampling rate.
    #[inline(always)]
    pub const fn new(parsed: &Parsed, sampling: u16) -> Self {
        let Parsed { key: _, tcp_flags, tos, vlan: _ } = *parsed;
        Self((sampling as u64) << SAMPLING | (tcp_flags as u64) << TCP_FLAGS | (tos as u64) << TOS)
    }

    /// The TCP flags, 0 for other protocols.
    #[inline(always)]
    pub const fn tcp_flags(self) -> u8 {
        (self.0 >> TCP_FLAGS) as u8
    }

    /// One packet in this many was taken.
    #[inline(always)]
    pub const fn sampling(self) -> u16 {
        (self.0 >> SAMPLING) as u16
    }

    /// The TOS byte.
    #[inline(always)]
    pub const fn tos(self) -> u8 {
        (self.0 >> TOS) as u8
    }
}

impl Record {
    /// A count with this bit set may have no room for all packets that an offload can merge.
    const FULL: u32 = 1 << 31;
    /// The bits of the word [`STATE`] that tell whether a packet belongs here.
    const SAME: u64 = (Self::FULL as u64) << PACKETS | (u16::MAX as u64) << SAMPLING | (u8::MAX as u64) << TOS;

    /// The record of a flow's first packet.
    #[inline(always)]
    pub fn first(key: FlowKey, packet: Sample) -> Self {
        let mut record = Self { key, bytes: packet.tally.bytes, ..Self::default() };
        let words: &mut [u64; WORDS] = zerocopy::transmute_mut!(&mut record);
        words[STATE] = u64::from(packet.tally.packets as u32) << PACKETS | packet.marks.0;
        words[TIMES] = u64::from(packet.tick as u32) << FIRST_TICK | u64::from(packet.vlan) << VLAN;
        record
    }

    /// Whether a packet of the flow `key` belongs to this record, and the record's fields have room for it. A packet
    /// too long after the first one, or before it, starts a new record.
    #[inline(always)]
    pub fn takes(&self, key: &FlowKey, packet: Sample) -> bool {
        let [state, times] = self.words();
        let other_vlan = (times >> VLAN) as u16 ^ packet.vlan;
        // One branch for VLAN and duration: the upper sixteen bits must be zero in both.
        self.key.is_same(key)
            && (state ^ packet.marks.0) & Self::SAME == 0
            && elapsed(times, packet.tick) | u64::from(other_vlan) << 48 < 1 << 48
    }

    /// Adds one more packet of the same flow.
    #[inline(always)]
    pub fn add(&mut self, packet: Sample) {
        self.bytes = self.bytes.wrapping_add(packet.tally.bytes);
        let [state, times] = self.words();
        let words: &mut [u64; WORDS] = zerocopy::transmute_mut!(self);
        words[STATE] = state.wrapping_add(packet.tally.packets << PACKETS) | packet.marks.0;
        words[TIMES] = times & (u32::MAX as u64) << FIRST_TICK
            | elapsed(times, packet.tick) >> (32 - DURATION)
            | u64::from(packet.vlan) << VLAN;
    }

    /// The words [`STATE`] and [`TIMES`].
    #[inline(always)]
    fn words(&self) -> [u64; 2] {
        let words: &[u64; WORDS] = zerocopy::transmute_ref!(self);
        [words[STATE], words[TIMES]]
    }

    /// Packets and bytes.
    #[inline(always)]
    pub const fn tally(&self) -> Tally {
        Tally::new(self.packets as u64, self.bytes)
    }

    /// Whether the slot holds no flow.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }
}

/// Ticks since a record's first packet, in the upper half of a word: this saves a shift if the duration is in that
/// half.
#[inline(always)]
const fn elapsed(times: u64, tick: u64) -> u64 {
    (tick << 32).wrapping_sub(times >> FIRST_TICK << 32)
}

/// A slot of the kernel's flow cache, with the record in the form in which the kernel compares it.
///
/// A record of IPv4 is packed, so that few comparisons tell whether a packet belongs to it: its first word has both
/// addresses; the second has TOS, sampling rate and VLAN once more; the third means nothing; the fourth has the time of
/// the first packet by a clock that does not begin anew. All other words are those of a record. [`Slot::record`]
/// unpacks it. A record of IPv6 needs all words of its addresses, and is as it is.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Slot(pub Record);

/// The words of a packed record that are not those of a record.
const ADDRESSES: usize = 0;
const SAME: usize = 1;
const STARTED: usize = 3;

impl Slot {
    /// As [`Record::takes`].
    #[inline(always)]
    pub fn takes(&self, key: &FlowKey, packet: Sample) -> bool {
        let Self(record) = self;
        if key.is_v6() {
            return record.takes(key, packet);
        }
        let words: &[u64; WORDS] = zerocopy::transmute_ref!(record);
        words[ADDRESSES] == key.v4_addresses()
            && record.key.tail() == key.tail()
            && words[SAME] == packet.same()
            // One packet less than in a record: the compiler would turn a comparison with a power of two into four
            // instructions.
            && record.packets < Record::FULL - 1
            && packet.tick.wrapping_sub(words[STARTED]) <= u16::MAX as u64
    }

    /// As [`Record::add`], for a packet of the flow `key` that the record takes.
    #[inline(always)]
    pub fn add(&mut self, key: &FlowKey, packet: Sample) {
        let Self(record) = self;
        if key.is_v6() {
            return record.add(packet);
        }
        record.bytes = record.bytes.wrapping_add(packet.tally.bytes);
        record.packets = record.packets.wrapping_add(packet.tally.packets as u32);
        record.tcp_flags |= packet.marks.tcp_flags();
        let words: &[u64; WORDS] = zerocopy::transmute_ref!(&*record);
        record.duration = packet.tick.wrapping_sub(words[STARTED]) as u16;
    }

    /// Makes it the record of a flow's first packet.
    #[inline(always)]
    pub fn start(&mut self, key: &FlowKey, packet: Sample) {
        let Self(record) = self;
        let first = Record::first(*key, packet);
        let first: &[u64; WORDS] = zerocopy::transmute_ref!(&first);
        let words: &mut [u64; WORDS] = zerocopy::transmute_mut!(record);
        if key.is_v6() {
            *words = *first;
        } else {
            words[ADDRESSES] = key.v4_addresses();
            words[SAME] = packet.same();
            words[STARTED] = packet.tick;
            words[TAIL..].copy_from_slice(&first[TAIL..]);
        }
    }

    /// The record.
    #[inline(always)]
    pub const fn record(&self) -> Record {
        let Self(record) = *self;
        if record.key.is_v6() {
            return record;
        }
        let FlowKey { src: Address([addresses, _]), .. } = record.key;
        Record { key: record.key.with_v4_addresses(addresses), ..record }
    }

    /// Whether the slot holds no flow.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The window of the record, modulo 256.
    #[inline(always)]
    pub const fn epoch(&self) -> u8 {
        self.0.key.epoch()
    }
}

/// The records of a ring entry. `None` if no entry has this length or alignment.
#[inline]
pub fn read(entry: &[u8]) -> Option<&[Record]> {
    <[Record]>::ref_from_bytes(entry).ok().filter(|records| !records.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: u64, tcp_flags: u8, tick: u32) -> Sample {
        marked(bytes, tick, 1, Parsed { tcp_flags, ..Parsed::new(FlowKey::default()) })
    }

    fn marked(bytes: u64, tick: u32, sampling: u16, parsed: Parsed) -> Sample {
        Sample::new(&parsed, Tally::new(1, bytes), tick.into(), sampling)
    }

    #[test]
    fn an_entry_is_one_record_or_more() {
        let record = Record::first(FlowKey::default().with_proto(6), packet(60, 2, 5));
        for records in [&[record][..], &[record; 3]] {
            assert_eq!(read(records.as_bytes()), Some(records));
        }
        assert_eq!(read(&record.as_bytes()[..63]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn a_record_adds_up() {
        let mut record = Record::first(FlowKey::default(), packet(60, 0x02, 5));
        record.add(packet(1500, 0x10, 9));
        assert_eq!(record.tally(), Tally::new(2, 1560));
        assert_eq!((record.first_tick, record.duration, record.tcp_flags), (5, 4, 0x12));
        assert_eq!((record.sampling, record.tos, record.vlan), (1, 0, 0));
        assert!(!record.is_empty() && Record::default().is_empty());
    }

    #[test]
    fn marks_are_what_was_parsed() {
        let marks = Marks::new(&Parsed { tcp_flags: 0x12, tos: 0xb8, ..Parsed::new(FlowKey::default()) }, 0x1234);
        assert_eq!((marks.tcp_flags(), marks.tos(), marks.sampling()), (0x12, 0xb8, 0x1234));
    }

    #[test]
    fn a_record_takes_its_own_flow_at_its_own_rate() {
        let key = FlowKey::default().with_proto(6);
        let record = Record::first(key, packet(60, 0, 0));
        assert!(record.takes(&key, packet(1500, 0x10, 9)));
        assert!(!record.takes(&key.with_proto(17), packet(60, 0, 0)));
        assert!(!record.takes(&key, marked(60, 0, 2, Parsed::new(key))));
        assert!(!record.takes(&key, marked(60, 0, 1 | 1 << 15, Parsed::new(key))));
        let with_flags = Record::first(key, packet(60, 0xff, 0));
        assert!(with_flags.takes(&key, packet(60, 0, 0)), "flags are no part of a flow");
    }

    #[test]
    fn a_record_takes_its_own_tos_and_its_own_vlan() {
        let key = FlowKey::default().with_proto(6);
        let at = |tick, tcp_flags, tos, vlan| marked(60, tick, 1, Parsed { key, tcp_flags, tos, vlan });
        let marked = |tos, vlan| at(5, 0x12, tos, vlan);
        for (tos, vlan) in [(0, 0), (0xb8, 0), (0xb9, 7), (0xff, 4095), (1, 4094)] {
            let mut record = Record::first(key, marked(tos, vlan));
            for bit in 0..8 {
                assert!(!record.takes(&key, marked(tos ^ 1 << bit, vlan)), "bit {bit} of TOS {tos:#x}");
            }
            for bit in 0..16 {
                assert!(!record.takes(&key, marked(tos, vlan ^ 1 << bit)), "bit {bit} of VLAN {vlan}");
            }
            assert!(record.takes(&key, marked(tos, vlan)));
            for bit in 0..16 {
                let (late, vlan) = (5 + (1 << (16 + bit)), vlan ^ 1 << bit);
                assert!(!record.takes(&key, at(late, 0, tos, vlan)), "both bits {bit} of VLAN {vlan}, and too late");
            }
            record.add(at(9, 0xff, tos, vlan));
            assert_eq!((record.tos, record.vlan, record.tcp_flags, record.sampling), (tos, vlan, 0xff, 1));
            assert_eq!((record.first_tick, record.duration, record.packets), (5, 4, 2));
            assert!(record.takes(&key, marked(tos, vlan)), "as before");
        }
    }

    #[test]
    fn the_duration_never_begins_anew() {
        const LAST: u32 = u16::MAX as u32;
        let key = FlowKey::default();
        for first in [0, 5, u32::MAX - 10, u32::MAX] {
            let mut record = Record::first(key, packet(60, 0, first));
            let takes = |record: &Record, after: u32| record.takes(&key, packet(60, 0, first.wrapping_add(after)));
            assert!(takes(&record, 0) && takes(&record, 1) && takes(&record, LAST));
            assert!(!takes(&record, LAST + 1) && !takes(&record, 1 << 31));
            assert!(!takes(&record, u32::MAX), "it came before the first");
            for after in [0, 1, 700, LAST, 9] {
                record.add(packet(60, 0, first.wrapping_add(after)));
                assert_eq!((record.first_tick, u32::from(record.duration)), (first, after), "the last packet's time");
            }
        }
    }

    #[test]
    fn a_slot_has_the_record_of_its_packets() {
        use crate::flow::{Scope, class};
        use core::net::{Ipv4Addr, Ipv6Addr};
        let v4 = |host: u32| Address::from(Ipv4Addr::from_bits(host));
        let v6 = |host: u128| Address::from(Ipv6Addr::from_bits(host));
        let scope = Scope::new(3, 9);
        let keys = [
            FlowKey::new(v4(0xc000_0201), v4(0xc633_6407), 6, 0).with_ports(51_000, 443),
            FlowKey::new(v4(0xc633_6407), v4(0xc000_0201), 6, 0).with_ports(51_000, 443),
            FlowKey::new(v4(0xc000_0201), v4(0xc633_6407), 6, class::FRAGMENT),
            FlowKey::new(v4(0xc000_0201), v4(0xc633_6407), 17, 0).with_ports(51_000, 443),
            FlowKey::new(v4(0), v4(u32::MAX), 17, 0),
            FlowKey::new(v6(1 << 64 | 1), v6(2), 6, class::V6).with_ports(51_000, 443),
            FlowKey::new(v6(0), v6(u128::MAX), 6, class::V6),
        ];
        let packets = keys.iter().flat_map(|key| {
            [key.with_scope(scope), key.with_scope(scope.repeated()), key.with_scope(Scope::new(4, 9))]
                .into_iter()
                .flat_map(|key| [(0, 0, 1), (0xb8, 0, 1), (0, 7, 1), (0, 0, 10)].map(|marks| (key, marks)))
        });
        let packets: std::vec::Vec<_> = packets.collect();
        let sample = |(key, (tos, vlan, sampling)): (FlowKey, (u8, u16, u16)), tick, tcp_flags| {
            marked(100, tick, sampling, Parsed { key, tcp_flags, tos, vlan })
        };
        for one in &packets {
            let first = sample(*one, 5, 0x02);
            let (mut slot, mut record) = (Slot::default(), Record::first(one.0, first));
            assert!(slot.is_empty());
            slot.start(&one.0, first);
            assert_eq!((slot.record(), slot.is_empty(), slot.epoch()), (record, false, 9));
            for other in &packets {
                for tick in [4, 5, 6, 5 + 0xffff, 6 + 0xffff] {
                    let packet = sample(*other, tick, 0x10);
                    assert_eq!(
                        slot.takes(&other.0, packet),
                        record.takes(&other.0, packet),
                        "{one:?} {other:?} {tick}"
                    );
                    if slot.takes(&other.0, packet) {
                        assert_eq!(one, other);
                        slot.add(&other.0, packet);
                        record.add(packet);
                    }
                    assert_eq!(slot.record(), record);
                }
            }
            assert_eq!((record.packets, record.tcp_flags, record.duration), (4, 0x12, 0xffff));
        }
    }

    #[test]
    fn the_count_of_packets_in_a_slot_never_begins_anew() {
        let merged = |packets| Sample { tally: Tally::new(packets, 60), ..packet(60, 0, 0) };
        for key in [FlowKey::default(), FlowKey::default().with_class(crate::flow::class::V6)] {
            let mut slot = Slot::default();
            slot.start(&key, merged(u64::from(Record::FULL) - 2));
            assert!(slot.takes(&key, merged(1 << 16)));
            slot.add(&key, merged(1 << 16));
            assert_eq!(slot.record().packets, Record::FULL - 2 + (1 << 16));
            assert!(!slot.takes(&key, merged(1)));
        }
    }

    #[test]
    fn the_count_of_packets_never_begins_anew() {
        let merged = |packets| Sample { tally: Tally::new(packets, 60), ..packet(60, 0, 0) };
        let mut record = Record::first(FlowKey::default(), merged(u64::from(Record::FULL) - 1));
        assert!(record.takes(&FlowKey::default(), merged(1 << 16)));
        record.add(merged(1 << 16));
        assert_eq!(record.packets, Record::FULL - 1 + (1 << 16));
        assert!(!record.takes(&FlowKey::default(), merged(1)));
    }
}
