//! The datapath of a replay: the userspace counterpart of the kernel program, or the kernel program itself.

use weir_common::ledger::{Tally, Uncertain};
use weir_datapath::{KernelError, capture::Packet, rates::WindowSeconds, userspace::Buffer};
use weir_measure::{order::Closed, shard::Shard, userspace::UserspaceAggregator};

/// Counts packets into records, in userspace or in the kernel.
pub trait Datapath {
    /// Measures a packet, which brings this uncertainty.
    fn measure(&mut self, packet: &Packet<'_>, uncertain: Option<Uncertain>) -> Result<(), KernelError>;
    /// Closes the window, whose seconds are `cut`, and continues with the empty shard `spare`.
    fn close(&mut self, spare: Box<Shard>, cut: &WindowSeconds) -> Result<Closed, KernelError>;
}

impl Datapath for UserspaceAggregator {
    fn measure(&mut self, packet: &Packet<'_>, uncertain: Option<Uncertain>) -> Result<(), KernelError> {
        let &Packet { link, wire_bytes, captured, .. } = packet;
        let (tally, tick, second) = (Tally::new(1, u64::from(wire_bytes)), tick(packet), second(packet));
        Self::measure(self, 0, &Buffer { headers: captured, link, tally, uncertain, tick, second, repeated: false });
        Ok(())
    }

    fn close(&mut self, spare: Box<Shard>, cut: &WindowSeconds) -> Result<Closed, KernelError> {
        Ok(Self::close(self, spare, cut))
    }
}

/// Capture time in milliseconds modulo 2^32; 0 if unknown.
pub const fn tick(packet: &Packet<'_>) -> u32 {
    const NS_PER_MS: u64 = 1_000_000;
    match packet.time_ns {
        Some(time_ns) => (time_ns / NS_PER_MS) as u32,
        None => 0,
    }
}

/// Capture time in seconds since 1970, if known.
pub fn second(packet: &Packet<'_>) -> Option<u64> {
    const NS_PER_SECOND: u64 = 1_000_000_000;
    packet.time_ns.map(|time_ns| time_ns / NS_PER_SECOND)
}
