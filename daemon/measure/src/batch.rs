//! A shard being filled: records come one by one and are absorbed in batches.

use weir_common::record::Record;
use weir_sketch::Seen;

use super::shard::Shard;

/// Records absorbed at a time: 16 KiB, which stays in the first-level cache.
const ABSORBED_TOGETHER: usize = 256;

/// A shard, and the records that it has not absorbed yet.
pub struct Batch {
    shard: Box<Shard>,
    records: Vec<Record>,
    /// Whether it only keeps records, for another worker to absorb.
    keeps: bool,
}

impl Batch {
    /// Begins to fill `shard`.
    pub fn new(shard: Box<Shard>) -> Self {
        Self { shard, records: Vec::with_capacity(ABSORBED_TOGETHER), keeps: false }
    }

    /// A batch that only keeps records; [`Batch::kept`] returns them.
    pub fn keeping(shard: Box<Shard>) -> Self {
        Self { keeps: true, ..Self::new(shard) }
    }

    /// The records that were kept.
    pub fn kept(&mut self) -> Vec<Record> {
        if self.keeps { std::mem::take(&mut self.records) } else { Vec::new() }
    }

    /// Adds a record.
    #[inline]
    pub fn push(&mut self, record: &Record, seen: &Seen) {
        self.records.push(*record);
        if self.records.len() >= ABSORBED_TOGETHER {
            self.settle(seen);
        }
    }

    /// Absorbs the waiting records.
    pub fn settle(&mut self, seen: &Seen) {
        if self.keeps {
            return;
        }
        self.shard.absorb(&self.records, seen);
        self.records.clear();
    }

    /// The shard; every record was absorbed.
    pub fn into_shard(self) -> Box<Shard> {
        self.shard
    }

    /// The batch belongs to a window that may have left something out: see [`Shard::release_drawn`].
    pub fn release_drawn(&mut self, seen: &Seen) {
        self.settle(seen);
        self.shard.release_drawn(seen);
    }

    /// Goes on with the shard of `next`; returns this one, with everything absorbed. `is_whole` says that sampling left
    /// nothing out of its window.
    pub fn replace(&mut self, next: Self, seen: &Seen, is_whole: bool) -> Box<Shard> {
        self.settle(seen);
        let mut shard = std::mem::replace(self, next).shard;
        if is_whole {
            shard.count_drawn_once(seen);
        }
        shard.settle(seen);
        shard
    }
}
