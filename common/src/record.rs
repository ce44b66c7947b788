//! What crosses from the kernel to userspace: records, fixed in size and layout.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{flow::FlowKey, ledger::Tally};

/// What one flow did on one CPU since it was last evicted from that CPU's flow cache.
///
/// It is also a slot of the flow cache, and one cache line, so that eviction is a plain copy.
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
    /// Padding.
    pub padding: u8,
    /// When its first packet came: the kernel's ticks (jiffies) modulo 2^32. In userspace: milliseconds modulo 2^32.
    pub first_tick: u32,
    /// When its last packet came.
    pub last_tick: u32,
}

const _: () = assert!(size_of::<Record>() == 64 && align_of::<Record>() == 8);

/// How many words a record has, and which word holds packets, sampling rate and TCP flags. These are loaded, compared
/// and stored together.
const WORDS: usize = size_of::<Record>() / 8;
const STATE: usize = core::mem::offset_of!(Record, packets) / 8;

/// Where each of them begins in that word.
const PACKETS: u32 = if cfg!(target_endian = "little") { 0 } else { 32 };
const SAMPLING: u32 = if cfg!(target_endian = "little") { 32 } else { 16 };
const TCP_FLAGS: u32 = if cfg!(target_endian = "little") { 48 } else { 8 };

/// What a record takes from a packet, besides its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The packet and its bytes. More than one packet if an offload merged some.
    pub tally: Tally,
    /// When it came; see [`Record::first_tick`].
    pub tick: u32,
    /// One packet in this many was taken.
    pub sampling: u16,
    /// Its TCP flags, 0 for other protocols.
    pub tcp_flags: u8,
}

impl Record {
    /// A count with this bit may have no room for all packets that an offload merges into one.
    const FULL: u32 = 1 << 31;

    /// The record of a flow's first packet.
    #[inline(always)]
    pub const fn first(key: FlowKey, packet: Sample) -> Self {
        let Sample { tally, tick, sampling, tcp_flags } = packet;
        Self {
            key,
            bytes: tally.bytes,
            packets: tally.packets as u32,
            first_tick: tick,
            last_tick: tick,
            sampling,
            tcp_flags,
            padding: 0,
        }
    }

    /// Whether a packet of the flow `key` belongs to this record, and its counts have room.
    #[inline(always)]
    pub fn takes(&self, key: &FlowKey, packet: Sample) -> bool {
        self.key.is_same(key)
            && self.state() & ((Self::FULL as u64) << PACKETS | (u16::MAX as u64) << SAMPLING)
                == u64::from(packet.sampling) << SAMPLING
    }

    /// Adds one more packet of the same flow.
    #[inline(always)]
    pub fn add(&mut self, packet: Sample) {
        self.bytes = self.bytes.wrapping_add(packet.tally.bytes);
        self.last_tick = packet.tick;
        let words: &mut [u64; WORDS] = zerocopy::transmute_mut!(self);
        words[STATE] = words[STATE].wrapping_add(packet.tally.packets << PACKETS);
        words[STATE] |= u64::from(packet.tcp_flags) << TCP_FLAGS;
    }

    /// The word with packets, sampling rate and TCP flags.
    #[inline(always)]
    fn state(&self) -> u64 {
        let words: &[u64; WORDS] = zerocopy::transmute_ref!(self);
        words[STATE]
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

/// The records of one entry of a ring. `None` if no entry has this length or this alignment.
#[inline]
pub fn read(entry: &[u8]) -> Option<&[Record]> {
    <[Record]>::ref_from_bytes(entry).ok().filter(|records| !records.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(bytes: u64, tcp_flags: u8, tick: u32) -> Sample {
        Sample { tally: Tally::new(1, bytes), tick, sampling: 1, tcp_flags }
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
        assert_eq!((record.first_tick, record.last_tick, record.tcp_flags), (5, 9, 0x12));
        assert_eq!((record.sampling, record.padding), (1, 0));
        assert!(!record.is_empty() && Record::default().is_empty());
    }

    #[test]
    fn a_record_takes_its_own_flow_at_its_own_rate() {
        let key = FlowKey::default().with_proto(6);
        let record = Record::first(key, packet(60, 0, 0));
        assert!(record.takes(&key, packet(1500, 0x10, 9)));
        assert!(!record.takes(&key.with_proto(17), packet(60, 0, 0)));
        assert!(!record.takes(&key, Sample { sampling: 2, ..packet(60, 0, 0) }));
        assert!(!record.takes(&key, Sample { sampling: 1 | 1 << 15, ..packet(60, 0, 0) }));
        let with_flags = Record::first(key, packet(60, 0xff, 0));
        assert!(with_flags.takes(&key, packet(60, 0, 0)), "flags are no part of a flow");
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
