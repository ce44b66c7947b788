//! Packets that wait for their window, in time order.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, VecDeque},
};

use weir_common::packet::{Link, REACH_MAX};

use super::Packet;

/// Memory limit for waiting packets, in bytes.
const BYTES_MAX: usize = 16 << 20;

/// Packets copied from their captures: as many bytes of each as the parser reads.
#[derive(Default)]
pub struct PacketBuffer {
    packets: BinaryHeap<Waiting>,
    /// Packets without a time, in arrival order.
    untimed: VecDeque<Waiting>,
    /// How many packets were added.
    count: u64,
    bytes: usize,
}

/// A waiting packet.
pub struct Waiting {
    time_ns: Option<u64>,
    /// Its arrival number: packets of the same time keep their arrival order.
    nth: u64,
    link: Link,
    wire_bytes: u32,
    captured: Box<[u8]>,
}

impl PacketBuffer {
    /// Adds a packet.
    pub fn push(&mut self, &Packet { time_ns, link, wire_bytes, captured }: &Packet<'_>) {
        let captured = captured[..captured.len().min(REACH_MAX)].into();
        let waiting = Waiting { time_ns, nth: self.count, link, wire_bytes, captured };
        self.count += 1;
        self.bytes += waiting.bytes();
        match time_ns {
            Some(_) => self.packets.push(waiting),
            None => self.untimed.push_back(waiting),
        }
    }

    /// Takes the earliest packet, or the first one without a time if there is no other.
    pub fn pop(&mut self) -> Option<Waiting> {
        let Some(first) = self.packets.pop() else { return self.pop_untimed() };
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
        self.packets.peek()?.time_ns
    }

    /// Whether there is no room for another packet.
    pub const fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX
    }
}

impl Waiting {
    /// The packet as it was added.
    pub const fn packet(&self) -> Packet<'_> {
        Packet { time_ns: self.time_ns, link: self.link, wire_bytes: self.wire_bytes, captured: &self.captured }
    }

    /// The memory that it takes, including the allocator's overhead.
    const fn bytes(&self) -> usize {
        size_of::<Self>() + 16 + self.captured.len()
    }
}

/// The earliest packet is the greatest one, because a heap returns the greatest first.
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time_ns, other.nth).cmp(&(self.time_ns, self.nth))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(time_ns: Option<u64>, wire_bytes: u32, captured: &[u8]) -> Packet<'_> {
        Packet { time_ns, link: Link::Ethernet, wire_bytes, captured }
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
    fn the_packet_buffer_has_a_limit() {
        let mut held = PacketBuffer::default();
        let bytes = [0; REACH_MAX];
        while !held.is_full() {
            held.push(&packet(Some(0), 1, &bytes));
        }
        assert!((BYTES_MAX / 600..BYTES_MAX / REACH_MAX).contains(&(held.count as usize)), "{}", held.count);
        held.pop();
        assert!(!held.is_full());
    }
}
