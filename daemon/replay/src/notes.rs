//! The remarks in a report about the packets of a capture, apart from their numbers.

use weir_common::{ledger::Tally, packet::Link};
use weir_datapath::{
    capture::{Packet, link::LinkType},
    interface::Counts,
};
use weir_schema::UnreadLinkType;

/// At most this many link types that weir does not read are told apart in a window. A capture has one for each of its
/// interfaces.
const LINK_TYPES_MAX: usize = 16;

/// How many of them are named in words.
const NAMED_MAX: usize = 2;

/// The remarks about the open window so far.
#[derive(Debug, Default)]
pub struct Notes {
    unread: Vec<(LinkType, Tally)>,
    /// Those of all other link types that are not read.
    unread_others: Tally,
    has_buffers: bool,
}

impl Notes {
    /// Notes anything special about a packet.
    #[inline]
    pub fn add(&mut self, packet: &Packet<'_>) {
        self.has_buffers |= packet.split.is_buffer();
        if packet.link == Link::Other {
            self.add_unread(packet.link_type, packet.tally());
        }
    }

    #[cold]
    fn add_unread(&mut self, link_type: LinkType, tally: Tally) {
        if let Some((_, known)) = self.unread.iter_mut().find(|(known, _)| *known == link_type) {
            known.add(tally);
        } else if self.unread.len() < LINK_TYPES_MAX {
            self.unread.push((link_type, tally));
        } else {
            self.unread_others.add(tally);
        }
    }

    /// Returns the unit of one packet in the window.
    pub const fn counts(&self) -> Counts {
        if self.has_buffers { Counts::Buffers } else { Counts::Packets }
    }

    /// The link types that were not read, those with the most packets first.
    pub fn unread(&self) -> Vec<UnreadLinkType> {
        let mut known = self.unread.clone();
        known.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.packets));
        let known = known.into_iter().map(|(link_type, tally)| UnreadLinkType {
            link_type: Some(link_type.0),
            name: link_type.name().map(str::to_owned),
            packets: tally.packets,
            bytes: tally.bytes,
        });
        let others = UnreadLinkType {
            link_type: None,
            name: None,
            packets: self.unread_others.packets,
            bytes: self.unread_others.bytes,
        };
        known.chain(Some(others).filter(|others| others.packets > 0)).collect()
    }

    /// The same in words; `None` if every link type was read.
    pub fn trouble(&self) -> Option<String> {
        let one = |UnreadLinkType { link_type, name, packets, .. }: &UnreadLinkType| {
            let packets = format!("{packets} packet{}", if *packets == 1 { "" } else { "s" });
            match (link_type, name) {
                (Some(number), Some(name)) => format!("{packets} of link type {number} ({name})"),
                (Some(number), None) => format!("{packets} of link type {number}"),
                (None, _) => format!("{packets} of others"),
            }
        };
        let unread = self.unread();
        let mut named: Vec<_> = unread.iter().take(NAMED_MAX).map(one).collect();
        let more: u64 = unread.iter().skip(NAMED_MAX).map(|of| of.packets).sum();
        if more > 0 {
            named.push(format!("{more} of others"));
        }
        (!named.is_empty()).then(|| format!("weir cannot read {}", named.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use weir_datapath::capture::buffers::Split;

    use super::*;

    fn packet(link_type: u16, link: Link) -> Packet<'static> {
        let link_type = LinkType(link_type);
        let split = Split::NONE;
        Packet { time_ns: None, stray: false, link_type, link, wire_bytes: 100, split, captured: &[] }
    }

    #[test]
    fn link_types_that_are_not_read_are_named_with_their_packets() {
        let mut notes = Notes::default();
        notes.add(&packet(1, Link::Ethernet));
        assert_eq!((notes.trouble(), notes.unread()), (None, Vec::new()));
        for link_type in [999, 147, 147] {
            notes.add(&packet(link_type, Link::Other));
        }
        let due = "weir cannot read 2 packets of link type 147 (USER0), 1 packet of link type 999";
        assert_eq!(notes.trouble().as_deref(), Some(due));
        for link_type in 2_000..2_100 {
            notes.add(&packet(link_type, Link::Other));
        }
        assert_eq!(notes.trouble().unwrap(), format!("{due}, 100 of others"));
        let unread = notes.unread();
        assert_eq!(unread.len(), LINK_TYPES_MAX + 1);
        assert_eq!(unread.iter().map(|of| of.packets).sum::<u64>(), 103);
        assert_eq!((unread[LINK_TYPES_MAX].link_type, unread[LINK_TYPES_MAX].bytes), (None, 8_600));
    }
}
