//! Packets that wait for their window, in time order.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use weir_common::packet::REACH_MAX;

use super::Packet;

/// Memory limit for waiting packets, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// Packets copied from their captures: as many bytes of each as the parser reads.
#[derive(Default)]
pub struct PacketBuffer {
    /// By time, and packets of the same time by arrival.
    packets: BTreeMap<(u64, u64), Waiting>,
    /// Packets without a time, in arrival order.
    untimed: VecDeque<Waiting>,
    /// How many packets were added.
    count: u64,
    bytes: usize,
}

/// A copy of a packet.
pub struct Waiting {
    /// The packet without its bytes.
    packet: Packet<'static>,
    captured: Box<[u8]>,
}

impl PacketBuffer {
    /// Copies a packet into the buffer.
    pub fn push(&mut self, packet: &Packet<'_>) {
        let waiting = Waiting::new(packet);
        self.bytes += waiting.bytes();
        match packet.time_ns {
            Some(time_ns) => drop(self.packets.insert((time_ns, self.count), waiting)),
            None => self.untimed.push_back(waiting),
        }
        self.count += 1;
    }

    /// Takes the earliest packet, or the first one without a time if there is no other.
    pub fn pop(&mut self) -> Option<Waiting> {
        let Some((_, first)) = self.packets.pop_first() else { return self.pop_untimed() };
        self.bytes -= first.bytes();
        Some(first)
    }

    /// Takes the earliest packet of these times.
    pub fn pop_within(&mut self, times_ns: Range<u64>) -> Option<Waiting> {
        let (&key, _) = self.packets.range((times_ns.start, 0)..(times_ns.end, 0)).next()?;
        let first = self.packets.remove(&key)?;
        self.bytes -= first.bytes();
        Some(first)
    }

    /// Takes the first packet without a time.
    pub fn pop_untimed(&mut self) -> Option<Waiting> {
        let first = self.untimed.pop_front()?;
        self.bytes -= first.bytes();
        Some(first)
    }

    /// The time of the earliest packet.
    pub fn first_ns(&self) -> Option<u64> {
        self.packets.first_key_value().map(|((time_ns, _), _)| *time_ns)
    }

    /// Returns true if there is no room for another packet.
    pub const fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX
    }
}

impl Waiting {
    pub(super) fn new(packet: &Packet<'_>) -> Self {
        let captured = packet.captured;
        Self { packet: Packet { captured: &[], ..*packet }, captured: captured[..captured.len().min(REACH_MAX)].into() }
    }

    /// The packet as it was added.
    pub const fn packet(&self) -> Packet<'_> {
        Packet { captured: &self.captured, ..self.packet }
    }

    /// The memory that it takes, including the overhead of the allocator and of the tree, whose nodes may be half
    /// empty.
    const fn bytes(&self) -> usize {
        2 * (size_of::<Self>() + size_of::<(u64, u64)>()) + 16 + self.captured.len()
    }
}

#[cfg(test)]
mod tests {
    use weir_common::packet::Link;

    use super::{
        super::{buffers::Split, link::LinkType},
        *,
    };

    fn packet(time_ns: Option<u64>, wire_bytes: u32, captured: &[u8]) -> Packet<'_> {
        let (link_type, split) = (LinkType(1), Split::NONE);
        Packet { time_ns, stray: false, link_type, link: Link::Ethernet, wire_bytes, split, captured }
    }

    #[test]
    fn packets_are_returned_in_time_order_and_otherwise_in_arrival_order() {
        let mut held = PacketBuffer::default();
        for (time_ns, nth) in [(Some(30), 0), (Some(10), 1), (None, 2), (Some(10), 3), (Some(20), 4), (None, 5)] {
            held.push(&packet(time_ns, nth, &[nth as u8; 600]));
        }
        let mut order = Vec::new();
        while let Some(waiting) = held.pop() {
            let Packet { wire_bytes, captured, .. } = waiting.packet();
            assert_eq!(captured, [wire_bytes as u8; REACH_MAX]);
            order.push(wire_bytes);
        }
        assert_eq!(order, [1, 3, 4, 0, 2, 5]);
        assert_eq!((held.bytes, held.first_ns()), (0, None));
    }

    #[test]
    fn packets_of_a_time_can_be_taken_from_the_middle() {
        let mut held = PacketBuffer::default();
        for (time_ns, nth) in [(10, 0), (20, 1), (20, 2), (29, 3), (30, 4)] {
            held.push(&packet(Some(time_ns), nth, &[]));
        }
        let taken: Vec<_> = std::iter::from_fn(|| held.pop_within(20..30)).map(|one| one.packet().wire_bytes).collect();
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!((held.first_ns(), held.packets.len()), (Some(10), 2));
    }

    #[test]
    fn the_packet_buffer_has_a_limit() {
        let mut held = PacketBuffer::default();
        let bytes = [0; REACH_MAX];
        while !held.is_full() {
            held.push(&packet(Some(0), 1, &bytes));
        }
        assert!((BYTES_MAX / 1_000..BYTES_MAX / REACH_MAX).contains(&(held.count as usize)), "{}", held.count);
        held.pop();
        assert!(!held.is_full());
    }
}
