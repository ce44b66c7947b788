//! Measures packets in userspace. The counterpart of the kernel programs fills a shard directly, without a ring.

use std::sync::Arc;

use weir_common::ledger::Tally;
use weir_datapath::{
    plan::Plan,
    rates::WindowSeconds,
    userspace::{Buffer, UserspaceProgram},
};
use weir_sketch::Seen;

use super::{
    batch::RecordBatch,
    closed::Closed,
    open::{Content, OpenRequest},
    sampling_control::SamplingControl,
    shard::Shard,
};

/// A userspace program, and the shard that gets its records.
pub struct UserspaceAggregator {
    program: UserspaceProgram,
    batch: RecordBatch,
    seen: Arc<Seen>,
}

impl UserspaceAggregator {
    /// An aggregator that fills `shard`.
    pub fn new(plan: &Plan, seen: Arc<Seen>, shard: Box<Shard>) -> Self {
        Self { program: UserspaceProgram::new(plan), batch: RecordBatch::new(shard), seen }
    }

    /// Takes one packet in `rate` from now on. A draw that was already made still counts.
    pub fn set_rate(&mut self, rate: u32) {
        self.program.set_rate(rate);
    }

    /// Makes room for this many interfaces. The number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        self.program.provide(interfaces);
    }

    /// Measures a buffer from the interface of this slot, for which there is room.
    pub fn measure(&mut self, slot: u8, buffer: &Buffer<'_>) {
        let Self { program, batch, seen } = self;
        program.measure(slot, buffer, |record| batch.push(record, seen));
    }

    /// Accounts for packets that a socket dropped: the number that is counted, and how many more they may have been.
    pub fn lose(&mut self, slot: u8, counted: Tally, beyond: Tally, repeated: bool) {
        self.program.lose(slot, counted, beyond, repeated);
    }

    /// Begins the window of an interface at this time: see [`UserspaceProgram::begin`].
    pub fn begin(&mut self, slot: u8, time_ns: u64) {
        self.program.begin(slot, time_ns);
    }

    /// Reads the open window without closing it, after emptying the flow cache.
    pub fn read(&mut self, wanted: &OpenRequest, control: &SamplingControl) -> Content {
        let Self { program, batch, seen } = self;
        program.empty(|record| batch.push(record, seen));
        batch.read(wanted, (program.counted(), false), seen, control)
    }

    /// Closes the window, whose seconds are `cut`, and continues with the empty shard `spare`.
    pub fn close(&mut self, spare: Box<Shard>, cut: &WindowSeconds) -> Closed {
        let Self { program, batch, seen } = self;
        let edge = program.close(cut, |record| batch.push(record, seen));
        let shard = batch.replace(RecordBatch::new(spare), seen, !edge.has_left_out());
        Closed { rate: program.rate(), ..Closed::new(shard, edge) }
    }

    /// Closes the last window.
    pub fn close_last(self, cut: &WindowSeconds) -> Closed {
        let Self { mut program, mut batch, seen } = self;
        let edge = program.close(cut, |record| batch.push(record, &seen));
        let shard = batch.finish(&seen, !edge.has_left_out());
        Closed { rate: program.rate(), ..Closed::new(shard, edge) }
    }
}
