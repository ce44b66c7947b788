//! Draws the priority sample of a window's records. `weir_schema::flow_sample` says what it is, and what its bounds
//! are. This is the part in the path of records.
//!
//! ```text
//! for each record that feeds: weight = max(bytes, 512 * packets)
//!     draw u; weight > threshold * u? keep the record, with its priority weight / u
//! room is full? keep the records of the highest priorities, and raise the threshold
//! ```
//!
//! In a busy window nearly all records end at the comparison. The memory is fixed, and all of it is resident from the
//! start.

use std::cmp::Reverse;

use weir_common::{ledger::Tally, record::Record};
use weir_config::priority::{fraction, weight};
use weir_sketch::hash::mix;

/// The sample of one shard.
#[derive(Debug)]
pub struct Sampler {
    /// The most records of a sample; 0 if none is drawn.
    size: usize,
    /// The highest priority that was dropped.
    threshold: f64,
    /// Records with their priorities in place of their times, which no question is about: see `priority`.
    held: Vec<Record>,
    /// How many records are held before the least are dropped.
    room: usize,
    /// The state of the random numbers.
    coins: u64,
}

impl Sampler {
    /// A sampler of at most `size` records; 0 draws none.
    pub fn new(size: usize) -> Self {
        let room = Self::room(size);
        let mut held = vec![Record::default(); room];
        held.clear();
        Self { size, threshold: 0.0, held, room, coins: 0 }
    }

    /// With an eighth more room than it needs, records are sorted out once for many that come.
    const fn room(size: usize) -> usize {
        size + size.div_ceil(8)
    }

    /// The memory of a sampler, in bytes.
    pub const fn bytes_for(size: usize) -> usize {
        Self::room(size) * size_of::<Record>()
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.held.capacity() * size_of::<Record>()
    }

    /// Draws from now on with random numbers that follow from this secret.
    pub const fn rekey(&mut self, coins: u64) {
        self.coins = coins;
    }

    /// Returns true if it draws.
    #[inline(always)]
    pub const fn is_on(&self) -> bool {
        self.size > 0
    }

    /// Offers a record. `tally` is that of the record, scaled by its sampling rate.
    #[inline(always)]
    pub fn offer(&mut self, record: &Record, tally: Tally) {
        self.coins = self.coins.wrapping_add(STEP);
        let (weight, u) = (weight(tally) as f64, fraction(mix(self.coins)));
        if weight > self.threshold * u {
            self.hold(Record { first_tick: bits_of(weight / u), ..*record });
        }
    }

    #[cold]
    #[inline(never)]
    fn hold(&mut self, record: Record) {
        self.held.push(record);
        if self.held.len() == self.room {
            self.sort_out();
        }
    }

    /// Drops all but the records of the highest priorities.
    fn sort_out(&mut self) {
        if self.held.len() <= self.size {
            return;
        }
        let (_, next, _) = self.held.select_nth_unstable_by_key(self.size, |record| Reverse(record.first_tick));
        self.threshold = self.threshold.max(priority(next));
        self.held.truncate(self.size);
    }

    /// Empties it for the next window.
    pub fn clear(&mut self) {
        self.held.clear();
        self.threshold = 0.0;
    }

    /// The sample, at the end of the window.
    pub fn finish(&mut self) -> Sampled<'_> {
        self.sort_out();
        let Self { threshold, coins, .. } = *self;
        let records = self.held.iter().filter(|record| priority(record) > threshold);
        Sampled { records: records.collect(), threshold, coins: mix(!coins) }
    }

    /// Adds the sample of another shard of the same window.
    pub fn merge(&mut self, other: &Self) {
        self.threshold = self.threshold.max(other.threshold);
        self.coins = mix(self.coins ^ other.coins);
        for record in &other.held {
            self.hold(*record);
        }
    }
}

/// A priority in 32 bits, rounded up: so it is never below the record's weight. Larger priorities have larger bits.
#[inline(always)]
fn bits_of(priority: f64) -> u32 {
    (priority as f32).next_up().to_bits()
}

/// The priority of a record that is held.
fn priority(record: &Record) -> f64 {
    f32::from_bits(record.first_tick).into()
}

/// The step of a Weyl sequence, whose mixed words are the random numbers (`SplitMix64`).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The sample of a window.
pub struct Sampled<'a> {
    /// The records, in no order. Their packets and bytes are not scaled by their sampling rates.
    pub records: Vec<&'a Record>,
    /// The highest priority that is not in the sample; 0 if it has all records.
    pub threshold: f64,
    /// A secret for more draws.
    pub coins: u64,
}

#[cfg(test)]
mod tests {
    use weir_common::flow::{Address, FlowKey};

    use super::*;

    fn record(flow: u64, packets: u32, bytes: u64) -> Record {
        let [src, dst] = [flow, mix(flow)].map(|word| Address::from_v4_word(word as u32));
        let key = FlowKey::new(src, dst, 6, 0).with_ports(flow as u16, 443);
        Record { key, packets, bytes, sampling: 1, ..Record::default() }
    }

    fn offered(size: usize, coins: u64, records: &[Record]) -> Sampler {
        let mut sampler = Sampler::new(size);
        sampler.rekey(coins);
        for record in records {
            sampler.offer(record, record.tally());
        }
        sampler
    }

    /// Every record that is dropped has a lower priority than those that are held, whenever the room was sorted out.
    #[test]
    fn it_has_the_records_of_the_highest_priorities() {
        let records: Vec<_> =
            (0..5_000).map(|flow| record(flow, 1 + flow as u32 % 9, 60 + mix(flow) % 9_000)).collect();
        let mut coins = 7_u64;
        let mut all: Vec<(f64, u64)> = Vec::new();
        for record in &records {
            coins = coins.wrapping_add(STEP);
            let bits = bits_of(weight(record.tally()) as f64 / fraction(mix(coins)));
            all.push((f32::from_bits(bits).into(), record.bytes));
        }
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut sampler = offered(100, 7, &records);
        let memory = sampler.memory_bytes();
        sampler.sort_out();
        let mut held: Vec<_> = sampler.held.iter().map(|record| (priority(record), record.bytes)).collect();
        held.sort_by(|a, b| b.0.total_cmp(&a.0));
        assert_eq!((held, sampler.threshold), (all[..100].to_vec(), all[100].0));
        assert_eq!((sampler.memory_bytes(), Sampler::bytes_for(100)), (memory, memory));
    }

    #[test]
    fn samples_of_shards_merge_to_that_of_all_records() {
        let records: Vec<_> = (0..3_000).map(|flow| record(flow, 1, 60 + mix(flow) % 1_400)).collect();
        let (mut one, other) = (offered(50, 1, &records[..1_000]), offered(50, 2, &records[1_000..]));
        let mut all: Vec<f64> = one.held.iter().chain(&other.held).map(priority).collect();
        all.sort_by(|a, b| b.total_cmp(a));
        one.merge(&other);
        let Sampled { records: of_both, threshold, .. } = one.finish();
        assert_eq!((of_both.len(), threshold), (50, all[50]));
        let few = offered(5_000, 1, &records);
        assert_eq!((few.threshold, few.held.len()), (0.0, 3_000));
        assert!(!offered(0, 1, &[]).is_on());
    }
}
