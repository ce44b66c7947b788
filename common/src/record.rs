//! What crosses from the kernel to userspace: records and edges, fixed in size and layout.
//!
//! An entry of the ring is told apart by its length, which the assertions below keep distinct.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{
    flow::FlowKey,
    ledger::{Counters, Tally},
    size::SIZE_CLASSES,
};

/// What one flow did on one CPU since it was last evicted from that CPU's flow cache.
///
/// Also the flow cache's slot: eviction is a plain copy.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Record {
    /// Whose it is.
    pub key: FlowKey,
    /// Packets and bytes.
    pub tally: Tally,
    /// When its first packet came, on the monotonic clock, in nanoseconds.
    pub first_ns: u64,
    /// When its last packet came.
    pub last_ns: u64,
    /// The sampling rate in force: one packet in this many was counted.
    pub sampling: u32,
    /// All TCP flags seen, `ORed` (RFC 9293: FIN is bit 0).
    pub tcp_flags: u32,
}

const _: () = assert!(size_of::<Record>() == 80 && align_of::<Record>() == 8);

impl Record {
    /// The record of a flow's first packet.
    #[inline(always)]
    pub const fn first(key: FlowKey, bytes: u64, tcp_flags: u8, now_ns: u64) -> Self {
        Self {
            key,
            tally: Tally::new(1, bytes),
            first_ns: now_ns,
            last_ns: now_ns,
            sampling: 1,
            tcp_flags: tcp_flags as u32,
        }
    }

    /// Adds one more packet of the same flow.
    #[inline(always)]
    pub const fn add(&mut self, bytes: u64, tcp_flags: u8, now_ns: u64) {
        self.tally.add(Tally::new(1, bytes));
        self.tcp_flags |= tcp_flags as u32;
        self.last_ns = now_ns;
    }

    /// Whether the slot holds no flow.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.tally.packets == 0
    }
}

/// One interface's counters at a window's edge, cumulative over all windows of the same parity on this CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct InterfaceEdge {
    /// The interface's slot.
    pub interface: u32,
    /// The epoch that this closes.
    pub epoch: u32,
    /// What was counted.
    pub counters: Counters,
}

/// Packet sizes at a window's edge, cumulative likewise; it comes last and closes the window on this CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SizeEdge {
    /// The epoch that this closes.
    pub epoch: u64,
    /// Packets by [`crate::size::size_class`].
    pub packets: [u64; SIZE_CLASSES],
}

const _: () = {
    assert!(size_of::<InterfaceEdge>() != size_of::<Record>());
    assert!(size_of::<InterfaceEdge>() != size_of::<SizeEdge>());
    // A per-CPU map's value must fit the kernel's smallest per-CPU unit.
    assert!(size_of::<SizeEdge>() <= 32 << 10);
};

/// One entry of a ring, borrowed in place.
#[derive(Clone, Copy, Debug)]
pub enum Entry<'a> {
    /// A flow's record.
    Record(&'a Record),
    /// An interface's counters at the edge.
    Interface(&'a InterfaceEdge),
    /// Packet sizes: the end of the edge.
    Sizes(&'a SizeEdge),
}

impl<'a> Entry<'a> {
    /// Reads an entry of the ring; `None` for a length or an alignment that no entry has.
    #[inline]
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() == size_of::<Record>() {
            Record::ref_from_bytes(bytes).ok().map(Entry::Record)
        } else if bytes.len() == size_of::<InterfaceEdge>() {
            InterfaceEdge::ref_from_bytes(bytes).ok().map(Entry::Interface)
        } else {
            SizeEdge::ref_from_bytes(bytes).ok().map(Entry::Sizes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_told_apart_by_length() {
        let record = Record::first(FlowKey { proto: 6, ..FlowKey::default() }, 60, 2, 5);
        assert!(matches!(Entry::read(record.as_bytes()), Some(Entry::Record(read)) if *read == record));
        let edge = InterfaceEdge { interface: 1, ..InterfaceEdge::default() };
        assert!(matches!(Entry::read(edge.as_bytes()), Some(Entry::Interface(read)) if *read == edge));
        assert!(Entry::read(&record.as_bytes()[..79]).is_none());
        assert!(Entry::read(&[]).is_none());
    }

    #[test]
    fn a_record_adds_up() {
        let mut record = Record::first(FlowKey::default(), 60, 0x02, 5);
        record.add(1500, 0x10, 9);
        assert_eq!(record.tally, Tally::new(2, 1560));
        assert_eq!((record.first_ns, record.last_ns, record.tcp_flags), (5, 9, 0x12));
        assert!(!record.is_empty() && Record::default().is_empty());
    }
}
