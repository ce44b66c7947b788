//! A shard being filled: records come one by one and are absorbed in batches.

use weir_common::record::Record;
use weir_datapath::edge::Edge;
use weir_sketch::Seen;

use super::{
    open::{Content, Numbers, OpenRequest, candidates},
    sampling_control::SamplingControl,
    shard::Shard,
};

/// Records absorbed at a time: 16 KiB, which stays in the first-level cache.
const ABSORBED_TOGETHER: usize = 256;

/// A shard, and the records that it has not absorbed yet.
pub struct RecordBatch {
    shard: Box<Shard>,
    records: Vec<Record>,
}

impl RecordBatch {
    /// Begins to fill `shard`.
    pub fn new(shard: Box<Shard>) -> Self {
        Self { shard, records: Vec::with_capacity(ABSORBED_TOGETHER) }
    }

    /// Appends a record.
    #[inline]
    pub fn push(&mut self, record: &Record, seen: &Seen) {
        self.records.push(*record);
        if self.records.len() >= ABSORBED_TOGETHER {
            self.settle(seen);
        }
    }

    /// Absorbs the waiting records.
    pub fn settle(&mut self, seen: &Seen) {
        self.shard.absorb(&self.records, seen);
        self.records.clear();
    }

    /// The shard, after absorbing every record.
    pub fn into_shard(self) -> Box<Shard> {
        self.shard
    }

    /// Notes that sampling may have left something out of this window: see [`Shard::release_drawn`].
    pub fn release_drawn(&mut self, seen: &Seen) {
        self.settle(seen);
        self.shard.release_drawn(seen);
    }

    /// Counts all waiting records, then reads the shard. The edge has the exact counters so far, and the flag says
    /// whether the counters of a CPU are still to come.
    pub fn read(
        &mut self,
        wanted: &OpenRequest,
        (edge, is_late): (Edge, bool),
        seen: &Seen,
        control: &SamplingControl,
    ) -> Content {
        self.settle(seen);
        if edge.has_left_out() {
            self.shard.release_drawn(seen);
        }
        self.shard.settle_waiting(seen);
        match wanted {
            OpenRequest::Keys => Content::Keys(candidates(&self.shard)),
            OpenRequest::Numbers(keys) => {
                Content::Numbers(Box::new(Numbers::new(&self.shard, keys, (edge, is_late), control)))
            }
        }
    }

    /// Continues with the shard of `next`, and returns the present shard as [`RecordBatch::finish`] does.
    pub fn replace(&mut self, next: Self, seen: &Seen, is_whole: bool) -> Box<Shard> {
        std::mem::replace(self, next).finish(seen, is_whole)
    }

    /// The shard with everything absorbed. `is_whole` says that sampling left nothing out of its window.
    pub fn finish(mut self, seen: &Seen, is_whole: bool) -> Box<Shard> {
        self.settle(seen);
        if is_whole {
            self.shard.count_drawn_once(seen);
        }
        self.shard.settle(seen);
        self.shard
    }
}
