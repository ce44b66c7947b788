//! Runs every captured packet through the kernel program, by test run.

use std::sync::Arc;

use aya::programs::Xdp;
use weir_common::{
    control::{Feeds, ReplayHeader},
    ledger::{Tally, Uncertain},
};
use weir_datapath::{
    KernelError, Parts, Ring,
    capture::Packet,
    programs::test_run,
    rates::{Seconds, WindowSeconds},
};
use weir_measure::{lane::KernelSource, order::Closed, ring_aggregator::RingAggregator, shard::Shard};
use weir_sketch::Seen;
use zerocopy::IntoBytes;

use super::datapath::{Datapath, second, tick};

/// A frame for the kernel has at least an Ethernet header and must fit in a page. The parser never reads beyond that.
/// The true length is in the capture's header.
const FRAME_MIN: usize = 14;
const FRAME_MAX: usize = 2048;
const HEADER: usize = size_of::<ReplayHeader>();
/// A packet evicts at most one record, so after this many even the smallest ring is not full.
const PACKETS_PER_DRAIN: u32 = 256;
/// Test-run packets arrive on the loopback interface, which has this index in every network namespace.
const LOOPBACK: u32 = 1;

/// The kernel datapath on this thread's CPU.
pub struct KernelDatapath<'a> {
    program: &'a Xdp,
    aggregator: RingAggregator<KernelSource<'a>>,
    frame: Vec<u8>,
    undrained: u32,
    /// Seconds by capture time, which the kernel's counters do not have.
    seconds: Seconds,
    /// The uncertain packets of the open window. The kernel's program counts what it is given.
    uncertain: Uncertain,
}

impl<'a> KernelDatapath<'a> {
    /// A datapath that fills `shard`; `ring` is the ring of this thread's CPU.
    pub fn new(parts: Parts<'a>, ring: Ring, seen: Arc<Seen>, shard: Box<Shard>) -> Result<Self, KernelError> {
        let Parts { xdp: _, tc: _, flush, rings: _, replay, interfaces, others: _ } = parts;
        interfaces.insert(LOOPBACK, 0, Feeds::All)?;
        let mut aggregator = RingAggregator::new(seen, 1, shard);
        aggregator.add(KernelSource::new(ring, flush, 1));
        Ok(Self {
            program: replay,
            aggregator,
            frame: Vec::with_capacity(HEADER + FRAME_MAX),
            undrained: 0,
            seconds: Seconds::default(),
            uncertain: Uncertain::default(),
        })
    }
}

impl Datapath for KernelDatapath<'_> {
    fn measure(&mut self, packet: &Packet<'_>, uncertain: Option<Uncertain>) -> Result<(), KernelError> {
        let captured = &packet.captured[..packet.captured.len().min(FRAME_MAX)];
        let header = ReplayHeader {
            wire_bytes: packet.wire_bytes,
            captured: captured.len() as u32,
            link: packet.link as u32,
            tick: tick(packet),
        };
        self.frame.clear();
        self.frame.extend_from_slice(header.as_bytes());
        self.frame.extend_from_slice(captured);
        self.frame.resize(self.frame.len().max(HEADER + FRAME_MIN), 0);
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex. The header is
        // before `data`, as XDP metadata.
        let context = [HEADER as u32, self.frame.len() as u32, 0, 0, 0, 0];
        test_run(self.program, "replay", &self.frame, Some(context.as_bytes()))?;
        self.seconds.count(second(packet), Tally::new(1, packet.wire_bytes.into()));
        self.uncertain.add(uncertain.unwrap_or_default());
        self.undrained += 1;
        if self.undrained == PACKETS_PER_DRAIN {
            self.undrained = 0;
            while self.aggregator.drain().more {}
        }
        Ok(())
    }

    fn close(&mut self, spare: Box<Shard>, cut: &WindowSeconds) -> Result<Closed, KernelError> {
        let mut closed = self.aggregator.close(spare)?;
        closed.rate = closed.edge.sampling.1;
        closed.edge.add_rates(vec![self.seconds.close(cut)]);
        if let Some(counters) = closed.edge.counters.first_mut() {
            counters.uncertain.add(std::mem::take(&mut self.uncertain));
        }
        Ok(closed)
    }
}
