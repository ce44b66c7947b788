//! One worker's sketches for the open window. They need no locks: only the filter of seen flows is shared.
//!
//! The hot loop in plain text, for some records at a time:
//!
//! ```text
//! for each record: the interface's sum += record
//! for each record that feeds: hash the flow and its parts
//! for each of these:
//!     totals += record; offer it to the sample
//!     flow not seen moments ago? it waits until a group is full
//! for each view, such as the largest sources:
//!     for each record that it matches: add
//!     (prefixes: nothing; they get what the lists of addresses do not hold)
//! for each waiting record:
//!     unique sources, destinations, flows: insert
//!     flow absent from the filter of seen flows? one more new flow, also in views that count new flows
//!     for each view that counts distinct parts of flows: insert
//! ```
//!
//! A group of records goes through one sketch after the other, because a record touches some fifteen cache lines in
//! random places: each sketch first prefetches the lines of the whole group, and then uses them.

use std::{cmp::Reverse, sync::Arc};

use weir_common::{control::SLOTS_MAX, hash::FlowHashes, ledger::Tally, record::Record};
use weir_config::{Estimates, view::Measure};
use weir_sketch::{
    Seen,
    hash::{Key, KeyedHash, sip},
};

use super::{
    columns::{Item, TOGETHER, Transposed},
    drawn::Drawn,
    local_shard::LocalShard,
    pool::Pool,
    protocols::Protocols,
    recent::Recent,
    sampler::Sampler,
    unique::Unique,
};
use crate::question::{Question, Repeated, Views, sketch::ViewSketch};

/// The most records that leave the pool before they go through the sketches: 16 KiB.
const READY: usize = 256;

/// How many records are hashed between the prefetch of a flow's place among the recent ones, and the look at it.
const RECENT_LAG: usize = 8;

/// Records of flows that did not come moments ago, which wait until a group is full.
struct Fresh<'a> {
    items: [Item<'a>; TOGETHER],
    count: usize,
}

/// The secrets of the lists, besides the key of their hashes.
#[derive(Clone, Copy)]
pub struct Secrets {
    /// The number of the window. Later windows have higher numbers.
    pub window: u64,
    /// Coins are derived from this. It differs for each shard.
    pub coins: Key,
    /// Places are derived from this. It is the same for all shards of a window.
    pub places: Key,
}

/// The sketches of one CPU for one window.
pub struct Shard {
    hash: KeyedHash,
    key_id: u64,
    window: u64,
    /// The key of draws: see [`Secrets::coins`].
    coins: Key,
    /// Earlier keys, with their fingerprints. The filter of seen flows may still know flows by these keys.
    earlier: Vec<(u64, KeyedHash)>,
    /// The sum of the records of each interface slot: the taken packets, not scaled by the sampling rate.
    pub attributed: [Tally; SLOTS_MAX as usize],
    /// The sum of all records, scaled by their sampling rates.
    pub total: Tally,
    /// Counts by protocol, scaled by the sampling rates.
    pub protocols: Protocols,
    /// The most by which the kernel's TCP counts of each interface slot exceed the true numbers. The kernel scales each
    /// count by the rate of its draw, even if nothing was left out.
    pub overstated: [u64; SLOTS_MAX as usize],
    /// Records taken by a draw, until it is known whether anything was left out in this window.
    drawn: Drawn,
    /// Records that wait for more of their flow.
    pool: Pool,
    /// Records that the sketches take next.
    ready: Vec<Record>,
    /// Recent flows of this window. Their next records are not counted as distinct again.
    recent: Recent,
    /// The sample of records that the history keeps.
    pub sampler: Sampler,
    /// The sketches of distinct counts.
    pub unique: Unique,
    /// Flows that the filter of seen flows did not know.
    pub new_flows: u64,
    /// What is measured with the local key, if anything is.
    pub local: Option<Box<LocalShard>>,
    /// The questions of this window.
    plan: Arc<Views>,
    /// The sketch of each question.
    pub views: Vec<ViewSketch>,
    /// The number of absorbed records.
    pub records: u64,
    /// The lowest sampling rate of any record; the type's maximum before the first one.
    pub sampling_least: u16,
    /// The highest sampling rate of any record, at least 1.
    pub sampling: u16,
}

impl Shard {
    /// An empty shard whose hashes are keyed with `key`. All its memory is allocated and resident from the start.
    pub fn new(settings: &Estimates, plan: &Arc<Views>, key: Key) -> Self {
        let mut shard = Self {
            hash: KeyedHash::new(key),
            key_id: key.id(),
            window: 0,
            coins: Key([0; 2]),
            earlier: Vec::new(),
            attributed: [Tally::default(); SLOTS_MAX as usize],
            total: Tally::default(),
            protocols: Protocols::default(),
            overstated: [0; SLOTS_MAX as usize],
            drawn: Drawn::default(),
            pool: Pool::default(),
            ready: Vec::with_capacity(READY + TOGETHER),
            recent: Recent::default(),
            sampler: Sampler::new(plan.sample),
            unique: Unique::new(settings, key.id()),
            new_flows: 0,
            local: None,
            views: plan.questions.iter().map(|question| ViewSketch::new(question, key.id(), TOGETHER)).collect(),
            plan: plan.clone(),
            records: 0,
            sampling_least: u16::MAX,
            sampling: 1,
        };
        shard.clear();
        shard
    }

    /// Prepares an empty shard for a window with another key. `earlier` has the other keys with which the generations
    /// of seen flows began.
    pub fn rekey(&mut self, key: Key, earlier: &[Key], Secrets { window, coins, places }: Secrets) {
        let key_id = key.id();
        (self.window, self.coins) = (window, coins);
        self.hash = KeyedHash::new(key);
        self.key_id = key_id;
        self.earlier.clear();
        self.earlier.extend(earlier.iter().map(|key| (key.id(), KeyedHash::new(*key))));
        self.unique.rekey(key_id);
        self.sampler.rekey(sip(coins, b"sample"));
        for (nth, view) in (0..).zip(&mut self.views) {
            view.rekey(key_id, sip(coins, &[nth]), sip(places, &[nth]));
        }
    }

    /// The questions that its sketches answer.
    pub const fn plan(&self) -> &Arc<Views> {
        &self.plan
    }

    /// The hash function of its sketches.
    pub const fn hash(&self) -> &KeyedHash {
        &self.hash
    }

    /// The fingerprint of its hash key.
    pub const fn key_id(&self) -> u64 {
        self.key_id
    }

    /// The number of its window.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Returns the shard's place in the order in which the shards of a window are merged: those of late windows come
    /// last.
    pub fn place_in_merge(&self) -> impl Ord + use<> {
        (Reverse(self.window), self.coins.0)
    }

    /// Adds records. No answer includes them before [`Shard::settle`].
    pub fn absorb(&mut self, records: &[Record], seen: &Seen) {
        self.records += records.len() as u64;
        if self.drawn.is_open() && records.iter().any(|record| record.sampling > 1) {
            for record in records {
                if self.drawn.hold(record) {
                    continue;
                }
                if record.sampling > 1 {
                    self.release_drawn(seen);
                }
                self.take(std::slice::from_ref(record), seen);
            }
            return;
        }
        self.take(records, seen);
    }

    /// Notes that something was or may have been left out in this window. Each record that a draw took stands for as
    /// many packets as its rate says.
    pub fn release_drawn(&mut self, seen: &Seen) {
        let held = self.drawn.take();
        self.take(&held, seen);
        self.drawn.close(held);
    }

    /// Notes that nothing was left out in this window. Each packet that a draw took counts once, because the packets
    /// that the draw left out were counted in an earlier window.
    pub fn count_drawn_once(&mut self, seen: &Seen) {
        let held = self.drawn.take();
        for record in &held {
            let slot = usize::from(record.key.interface()) % SLOTS_MAX as usize;
            self.overstated[slot] += u64::from(record.sampling - 1) * u64::from(record.packets);
            self.take(&[Record { sampling: 1, ..*record }], seen);
        }
        self.drawn.close(held);
    }

    /// Takes records that are final.
    fn take(&mut self, records: &[Record], seen: &Seen) {
        for records in records.chunks(READY) {
            for records in records.chunks(TOGETHER) {
                for record in records {
                    self.pool.prefetch(record);
                }
                self.ready.extend(records.iter().filter_map(|record| self.pool.exchange(record)));
            }
            // Take only full groups, so that the result does not depend on how many records come at once.
            self.enter_ready(self.ready.len() / TOGETHER * TOGETHER, seen);
        }
    }

    /// Passes all records to the sketches, at the end of the window.
    pub fn settle(&mut self, seen: &Seen) {
        self.release_drawn(seen);
        self.settle_waiting(seen);
    }

    /// Passes the records that wait for more of their flow to the sketches.
    pub fn settle_waiting(&mut self, seen: &Seen) {
        for place in 0..Pool::PLACES {
            self.ready.extend(self.pool.take(place));
            if self.ready.len() == READY {
                self.enter_ready(READY, seen);
            }
        }
        self.enter_ready(self.ready.len(), seen);
    }

    /// Adds the first `count` ready records to all sketches.
    fn enter_ready(&mut self, count: usize, seen: &Seen) {
        let mut ready = std::mem::take(&mut self.ready);
        self.enter(&ready[..count], seen);
        ready.drain(..count);
        self.ready = ready;
    }

    /// Adds records to all sketches.
    fn enter(&mut self, records: &[Record], seen: &Seen) {
        let Some(first) = records.first() else { return };
        let empty = [Item::with_hashes(FlowHashes::default(), first); TOGETHER];
        let (mut items, mut all, mut others) = (empty, Transposed::default(), Transposed::default());
        let mut fresh = Fresh { items: empty, count: 0 };
        for records in records.chunks(TOGETHER) {
            // Put records that feed first.
            let (mut feeding, mut repeated) = (0, TOGETHER);
            for record in records {
                self.account(record);
                if record.key.scope().is_repeated() {
                    let item = match self.plan.repeated {
                        Repeated::Ignored => continue,
                        Repeated::Plain => Item::with_hashes(FlowHashes::default(), record),
                        Repeated::Hashed => Item::new(&self.hash, record),
                    };
                    repeated -= 1;
                    items[repeated] = item;
                    continue;
                }
                let item = &mut items[feeding];
                *item = Item::new(&self.hash, record);
                self.recent.prefetch(item.hashes.flow);
                self.total.add(item.tally);
                self.protocols.add(&item.record.key, item.tally.packets);
                if self.sampler.is_on() {
                    self.sampler.offer(record, item.tally);
                }
                feeding += 1;
                if feeding > RECENT_LAG {
                    self.meet(&items[feeding - RECENT_LAG - 1], &mut fresh, seen);
                }
            }
            for item in &items[feeding.saturating_sub(RECENT_LAG)..feeding] {
                self.meet(item, &mut fresh, seen);
            }
            let (repeated, items) = (&items[repeated..], &items[..feeding]);
            let (columns, others) = (all.columns(items), others.columns(repeated));
            let facts = self.plan.facts();
            for (nth, question) in self.plan.questions.iter().enumerate() {
                if let (Some(next), Some(view)) = (self.plan.questions.get(nth + 1), self.views.get(nth + 1)) {
                    view.prefetch(next, columns);
                }
                if !question.is_fed_by_records() || question.view.measure == Measure::NewFlows {
                    continue;
                }
                let Some((view, mut prefixes)) = with_prefixes(&mut self.views, nth, question) else { continue };
                if !question.is_of_flows {
                    view.absorb(question, prefixes.as_deref_mut(), &self.hash, facts, columns);
                }
                if question.is_fed_by_all && !repeated.is_empty() {
                    view.absorb(question, prefixes, &self.hash, facts, others);
                }
            }
        }
        if fresh.count > 0 {
            self.absorb_fresh(&fresh.items[..fresh.count], seen);
        }
    }

    /// Lets a record wait in `fresh` if its flow did not come moments ago, and takes all that wait once they are a
    /// group.
    #[inline(always)]
    fn meet<'a>(&mut self, item: &Item<'a>, fresh: &mut Fresh<'a>, seen: &Seen) {
        if self.recent.meet(item.hashes.flow) {
            return;
        }
        seen.prefetch(item.hashes.flow);
        fresh.items[fresh.count] = *item;
        fresh.count += 1;
        if fresh.count == TOGETHER {
            self.absorb_fresh(&fresh.items, seen);
            fresh.count = 0;
        }
    }

    /// Adds records of flows that did not come moments ago to everything that counts something distinct.
    #[inline(never)]
    fn absorb_fresh(&mut self, items: &[Item<'_>], seen: &Seen) {
        let mut transposed = Transposed::default();
        let columns = transposed.columns(items);
        self.unique.insert_batch(columns);
        let is_new = |item: &Item<'_>| seen.insert_by(|key_id| self.flow_hash(key_id, item));
        let new: u32 = (0..).zip(items).map(|(nth, item)| u32::from(is_new(item)) << nth).sum();
        self.new_flows += u64::from(new.count_ones());
        if let Some(local) = &mut self.local {
            local.absorb(items, &self.plan.hosts);
        }
        let facts = self.plan.facts();
        for (view, question) in self.views.iter_mut().zip(&self.plan.questions) {
            if question.is_of_flows && question.view.measure != Measure::NewFlows {
                view.absorb(question, None, &self.hash, facts, columns);
            }
            if question.counts_first_records {
                view.absorb_first_records(question, &self.hash, facts, columns);
            }
        }
        if new != 0 && self.plan.has_new_flows() {
            self.absorb_new(items, new);
        }
    }

    /// Passes the records whose bit is set in `new` to the views of new flows. Each record counts one in both numbers
    /// of a tally, so that rows can be ranked by either.
    // This is a separate function, so that the loop needs no stack for these records.
    #[inline(never)]
    fn absorb_new(&mut self, fresh: &[Item<'_>], new: u32) {
        let Some(first) = fresh.first() else { return };
        let (mut items, mut count, mut columns) = ([*first; TOGETHER], 0, Transposed::default());
        for (_, item) in fresh.iter().enumerate().filter(|(nth, _)| new >> nth & 1 == 1) {
            items[count] = Item { tally: Tally::new(1, 1), ..*item };
            count += 1;
        }
        let columns = columns.columns(&items[..count]);
        for (view, question) in self.views.iter_mut().zip(&self.plan.questions) {
            if question.view.measure == Measure::NewFlows {
                view.absorb(question, None, &self.hash, self.plan.facts(), columns);
            }
        }
    }

    /// The hash of a flow under the key with this fingerprint, nearly always the shard's own.
    #[inline(always)]
    fn flow_hash(&self, key_id: u64, item: &Item<'_>) -> u64 {
        if key_id == self.key_id { item.hashes.flow } else { self.earlier_hash(key_id, item) }
    }

    #[cold]
    #[inline(never)]
    fn earlier_hash(&self, key_id: u64, item: &Item<'_>) -> u64 {
        let hash = self.earlier.iter().find(|(id, _)| *id == key_id).map_or(&self.hash, |(_, hash)| hash);
        FlowHashes::new(hash, &item.record.key).flow
    }

    #[inline(always)]
    fn account(&mut self, record: &Record) {
        self.sampling_least = self.sampling_least.min(record.sampling);
        self.sampling = self.sampling.max(record.sampling);
        self.attributed[usize::from(record.key.interface()) % SLOTS_MAX as usize].add(record.tally());
    }

    /// Empties the shard for the next window. Every page stays resident.
    pub fn clear(&mut self) {
        let Self {
            hash: _,
            key_id: _,
            window: _,
            coins: _,
            earlier: _,
            attributed,
            total,
            protocols,
            drawn,
            overstated,
            pool,
            ready,
            recent,
            sampler,
            unique,
            new_flows,
            local,
            plan: _,
            views,
            records,
            sampling_least,
            sampling,
        } = self;
        drawn.clear();
        overstated.fill(0);
        pool.clear();
        ready.clear();
        recent.clear();
        sampler.clear();
        unique.clear();
        for one in views.iter_mut() {
            one.clear();
        }
        attributed.fill(Tally::default());
        *total = Tally::default();
        *protocols = Protocols::default();
        *new_flows = 0;
        if let Some(local) = local {
            local.clear();
        }
        *records = 0;
        *sampling_least = u16::MAX;
        *sampling = 1;
    }

    /// The memory of this shard in bytes. It never changes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.drawn.memory_bytes()
            + self.pool.memory_bytes()
            + self.ready.capacity() * size_of::<Record>()
            + self.recent.memory_bytes()
            + self.sampler.memory_bytes()
            + self.unique.memory_bytes()
            + self.local.as_ref().map_or(0, |local| local.memory_bytes())
            + self.views.iter().map(ViewSketch::memory_bytes).sum::<usize>()
    }

    /// The memory of a new shard in bytes. Only one sketch is allocated at a time, so that planning takes much less
    /// memory than what it plans.
    pub fn bytes_for(settings: &Estimates, plan: &Views) -> usize {
        let view = |question: &Question| ViewSketch::new(question, 0, TOGETHER).memory_bytes();
        size_of::<Self>()
            + Drawn::default().memory_bytes()
            + Pool::default().memory_bytes()
            + (READY + TOGETHER) * size_of::<Record>()
            + Recent::default().memory_bytes()
            + Sampler::bytes_for(plan.sample)
            + Unique::new(settings, 0).memory_bytes()
            + plan.questions.iter().map(view).sum::<usize>()
    }
}

/// The sketch of a question, and that of the question that it feeds, if any.
#[inline(always)]
pub(super) fn with_prefixes<'a>(
    views: &'a mut [ViewSketch],
    nth: usize,
    question: &Question,
) -> Option<(&'a mut ViewSketch, Option<&'a mut ViewSketch>)> {
    match question.feeds {
        None => Some((views.get_mut(nth)?, None)),
        Some(fed) => {
            let [view, fed] = views.get_disjoint_mut([nth, fed]).ok()?;
            Some((view, Some(fed)))
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_common::{
        flow::{Address, FlowKey, Scope, class},
        proto,
    };
    use weir_config::{Config, view::Standard};
    use weir_sketch::{HyperLogLog, hash::mix};

    use super::*;
    use crate::{by::Kind, question::Structure};

    const SECRETS: Secrets = Secrets { window: 1, coins: Key([1, 2]), places: Key([3, 4]) };

    fn record(flow: u64) -> Record {
        let [src, dst] = [mix(flow) as u32 % 500, mix(!flow) as u32 % 300].map(Address::from_v4_word);
        let key = FlowKey::new(src, dst, 6, 0).with_ports(flow as u16, 443);
        Record { key, packets: 1, bytes: 100, sampling: 1, ..Record::default() }
    }

    fn fed(views: &Arc<Views>, records: &[Record]) -> Shard {
        fed_by(100, views, records)
    }

    fn fed_by(together: usize, views: &Arc<Views>, records: &[Record]) -> Shard {
        let key = Key([5, 6]);
        let mut shard = Shard::new(&Estimates::default(), views, key);
        let seen = Seen::with_capacity(100_000, 0.001, key.id()).unwrap();
        for records in records.chunks(together) {
            shard.absorb(records, &seen);
        }
        shard.settle(&seen);
        shard
    }

    /// A record of this many packets, on an interface.
    fn of_protocol(number: u8, is_v6: bool, packets: u32, interface: u8) -> Record {
        let class = if is_v6 { class::V6 } else { 0 };
        let key = FlowKey::new(Address([1, number.into()]), Address([2, 3]), number, class);
        let key = key.with_scope(Scope::new(interface, 0));
        Record { key, packets, bytes: 100 * u64::from(packets), sampling: 1, ..Record::default() }
    }

    #[test]
    fn protocols_interfaces_and_rates_are_counted_separately_and_add_up() {
        let views = Views::built_in(&Estimates::default(), 10);
        let numbers =
            [(proto::TCP, false), (proto::UDP, true), (proto::ICMP, false), (proto::ICMPV6, true), (47, false)];
        let records: Vec<_> =
            (0..).zip(numbers).map(|(nth, (number, is_v6))| of_protocol(number, is_v6, 1 << nth, nth as u8)).collect();
        let shard = fed(&views, &records);
        let expected = Protocols { ipv4: 1 + 4 + 16, ipv6: 2 + 8, tcp: 1, udp: 2, icmp: 4 + 8, other: 16 };
        assert_eq!((shard.protocols, shard.records), (expected, 5));
        let attributed: Vec<_> = shard.attributed[..6].iter().map(|tally| tally.packets).collect();
        assert_eq!(attributed, [1, 2, 4, 8, 16, 0]);
        assert_eq!((shard.total, shard.sampling_least, shard.sampling), (Tally::new(31, 3_100), 1, 1));
        let mut both = shard.protocols;
        both.merge(&Protocols { ipv4: 100, ipv6: 200, tcp: 300, udp: 400, icmp: 500, other: 600 });
        let sums = Protocols { ipv4: 121, ipv6: 210, tcp: 301, udp: 402, icmp: 512, other: 616 };
        assert_eq!(both, sums);
        let sampled = [3, 7].map(|sampling| Record { sampling, ..record(1) });
        let shard = fed(&views, &sampled);
        assert_eq!((shard.sampling_least, shard.sampling, shard.total), (3, 7, Tally::new(10, 1_000)));
        assert_eq!(shard.attributed[0].packets, 2, "the packets that were taken");
    }

    #[test]
    fn a_drawn_packet_counts_once_in_a_window_that_left_nothing_out() {
        let views = Views::built_in(&Estimates::default(), 10);
        let seen = Seen::with_capacity(100, 0.01, Key([1, 2]).id()).unwrap();
        let records = [Record { sampling: 10, ..record(1) }, record(2), Record { sampling: 4, ..record(3) }];
        let fed = |is_whole: bool| {
            let mut shard = Shard::new(&Estimates::default(), &views, Key([1, 2]));
            shard.absorb(&records, &seen);
            if is_whole {
                shard.count_drawn_once(&seen);
            }
            shard.settle(&seen);
            (shard.total.packets, shard.sampling, shard.attributed[0].packets, shard.overstated[0], shard.records)
        };
        assert_eq!([true, false].map(fed), [(3, 1, 3, 12, 3), (15, 10, 3, 0, 3)]);
    }

    #[test]
    fn repeated_records_feed_only_interface_sums_and_views_of_interfaces() {
        let mut config = Config { standard_views: Vec::new(), ..Config::default() };
        for view in ["{by: [interface]}", "{by: [proto]}", "{by: [src_ip], per: interface}"] {
            config.views.push(config.parse_view(view, "a test", view).unwrap());
        }
        let views = Views::new(&config, 4).unwrap();
        let repeated = |mut record: Record| {
            record.key = record.key.with_scope(Scope::new(3, 0).repeated());
            record
        };
        let records: Vec<_> =
            (0..90).flat_map(|nth| [record(nth), repeated(record(nth)), repeated(record(1_000))]).collect();
        let shard = fed(&views, &records);
        assert_eq!((shard.attributed[0].packets, shard.attributed[3].packets), (90, 180));
        assert_eq!((shard.total.packets, shard.protocols.ipv4), (90, 90));
        let packets = |nth: usize| shard.views[nth].total.packets;
        assert_eq!([0, 1, 2].map(packets), [270, 90, 270]);
        assert_eq!(shard.unique.flows.bounds().value, 90);
    }

    #[test]
    fn a_cleared_shard_equals_a_new_one_and_all_its_memory_is_counted() {
        let views = Views::built_in(&Estimates::default(), 10);
        let key = Key([5, 6]);
        let new = || Shard::new(&Estimates::default(), &views, key);
        let mut shard = fed(&views, &(0..5_000).map(record).collect::<Vec<_>>());
        assert!(shard.new_flows > 4_900 && shard.records == 5_000);
        // A record waits in the pool, and must not get into the next window.
        shard.absorb(&[record(1)], &Seen::with_capacity(100, 0.1, key.id()).unwrap());
        let memory = shard.memory_bytes();
        assert_eq!(memory, Shard::bytes_for(&Estimates::default(), &views));
        shard.clear();
        let (cleared, mut fresh) = (shard, new());
        assert_eq!(cleared.attributed, fresh.attributed);
        assert_eq!((cleared.total, cleared.protocols), (Tally::default(), Protocols::default()));
        assert_eq!((cleared.new_flows, cleared.records), (0, 0));
        assert_eq!((cleared.sampling_least, cleared.sampling), (u16::MAX, 1));
        assert!(cleared.unique.flows == fresh.unique.flows && cleared.unique.sources == fresh.unique.sources);
        assert!(cleared.unique.destinations == fresh.unique.destinations);
        assert!(cleared.views.iter().all(|view| view.total == Tally::default()));
        let mut cleared = cleared;
        let seen = Seen::with_capacity(100, 0.1, key.id()).unwrap();
        cleared.settle(&seen);
        assert_eq!(cleared.total, Tally::default());
        // The flow of the last earlier record is not recent in this window.
        cleared.absorb(&[record(4_999)], &seen);
        cleared.settle(&seen);
        assert_eq!((cleared.unique.flows.bounds().value, cleared.new_flows), (1, 1));
        let parts = cleared.views.iter().map(ViewSketch::memory_bytes).sum::<usize>();
        let unique = [&cleared.unique.flows, &cleared.unique.sources, &cleared.unique.destinations];
        let unique: usize = unique.into_iter().map(HyperLogLog::memory_bytes).sum();
        // Pool, recent flows, ready records, and records of draws.
        let rest = (128 << 10) + (128 << 10) + 64 * (READY + TOGETHER) + 64 * 64 + Sampler::bytes_for(views.sample);
        assert_eq!(memory, size_of::<Shard>() + parts + unique + rest);
        fresh.rekey(Key([7, 8]), &[key], SECRETS);
        assert_eq!((fresh.key_id(), new().key_id()), (Key([7, 8]).id(), key.id()));
        let ids = [&fresh.unique.flows, &fresh.unique.sources, &fresh.unique.destinations].map(HyperLogLog::key_id);
        assert_eq!(ids, [fresh.key_id(); 3]);
    }

    #[test]
    fn a_flow_is_known_by_the_key_of_its_generation() {
        let views = Views::built_in(&Estimates::default(), 10);
        let [old, other, key] = [[1, 2], [3, 4], [5, 6]].map(Key);
        // The filter keeps the keys that its generations began with.
        let seen = Seen::with_capacity(100_000, 0.001, old.id()).unwrap();
        let records: Vec<_> = (0..1_000).map(record).collect();
        let count = |key: Key, earlier: &[Key]| {
            let mut shard = Shard::new(&Estimates::default(), &views, key);
            shard.rekey(key, earlier, SECRETS);
            shard.absorb(&records, &seen);
            shard.settle(&seen);
            shard.new_flows
        };
        assert_eq!(count(old, &[]), 1_000);
        assert_eq!(count(key, &[other, old]), 0, "known by yesterday's key");
        assert!(count(key, &[other]) > 990, "without that key they look new");
    }

    #[test]
    fn the_second_record_of_a_flow_changes_no_distinct_count() {
        let views = Views::built_in(&Estimates::default(), 10);
        let once: Vec<_> = (0..20_000).map(record).collect();
        // Some flows come often, with others in between.
        let often: Vec<_> =
            (0..20_000).flat_map(|nth| [record(nth), record(nth / 3), record(nth % 7), record(nth)]).collect();
        let (once, often) = (fed(&views, &once), fed(&views, &often));
        assert_eq!((often.total.packets, once.total.packets), (80_000, 20_000));
        assert_eq!(often.new_flows, once.new_flows);
        assert!(often.unique.flows == once.unique.flows && often.unique.sources == once.unique.sources);
        let spreads = [Standard::SourcesPerDestination, Standard::DestinationsPerSource, Standard::PortsPerSource];
        for nth in spreads.map(|view| views.standard(view).unwrap()) {
            assert!(matches!(views.questions[nth].structure, Structure::Spread { .. }));
            let [often, once] = [&often, &once].map(|shard| shard.views[nth].spread().unwrap().lines());
            assert!(often == once);
        }
    }

    #[test]
    fn views_of_new_flows_count_flows_that_the_filter_did_not_know() {
        let mut config = Config { standard_views: Vec::new(), ..Config::default() };
        for view in [
            "{by: [src_ip], measure: new_flows}",
            "{by: [src_ip], measure: bytes}",
            "{measure: {distinct: src_port}}",
            "{by: [proto], measure: new_flows}",
        ] {
            config.views.push(config.parse_view(view, "a test", view).unwrap());
        }
        let (views, key) = (Views::new(&config, 1).unwrap(), Key([5, 6]));
        let seen = Seen::with_capacity(100_000, 0.001, key.id()).unwrap();
        let fed = |records: &[Record]| {
            let mut shard = Shard::new(&Estimates::default(), &views, key);
            shard.absorb(records, &seen);
            shard.settle(&seen);
            shard
        };
        let of_odd_flows: Vec<_> = (0..50).map(|nth| record(2 * nth + 1)).collect();
        fed(&of_odd_flows);
        let records: Vec<_> = (0..100).map(|nth| Record { packets: 3, bytes: 999, ..record(nth) }).collect();
        let shard = fed(&records);
        assert_eq!(shard.new_flows, 50);
        let totals = [0, 1, 3].map(|nth| shard.views[nth].total);
        assert_eq!(totals, [Tally::new(50, 50), Tally::new(300, 99_900), Tally::new(50, 50)]);
        let source = |nth: u64| Kind::Source.key(&record(nth).key);
        let new: Vec<_> = shard.views[0].held().map(|held| held.key).collect();
        assert!((0..50).all(|nth| new.contains(&source(2 * nth))), "each new flow counts for its source");
        assert_eq!(shard.views[2].unique().unwrap().bounds().value, 100);
        let again = fed(&records);
        assert_eq!((again.new_flows, again.views[0].total, again.views[1].total.packets), (0, Tally::default(), 300));
    }

    #[test]
    fn it_does_not_matter_how_many_records_come_at_once() {
        let views = Views::built_in(&Estimates { top_candidates: 64, top_error: 0.01, ..Estimates::default() }, 10);
        let records: Vec<_> = (0..30_000).map(|nth| record(mix(nth) % 5_000)).collect();
        let held = |together| {
            let shard = fed_by(together, &views, &records);
            let bounds = |view: &ViewSketch| view.held().map(|held| (held.key, held.lower, held.upper)).collect();
            (shard.total, shard.views.iter().map(bounds).collect::<Vec<Vec<_>>>())
        };
        let of_256 = held(256);
        assert_eq!(of_256.0.packets, 30_000);
        for together in [1, 33, 64, 30_000] {
            assert!(held(together) == of_256, "{together}");
        }
    }

    #[test]
    fn a_view_of_more_than_the_flow_key_gets_each_record() {
        let mut config = Config { standard_views: Vec::new(), ..Config::default() };
        let view = "{measure: {distinct: [dst_ip]}, match: {dscp: 46}}";
        config.views.push(config.parse_view(view, "a test", "marked").unwrap());
        let views = Views::new(&config, 1).unwrap();
        let marked = Record { tos: 46 << 2, ..record(1) };
        let count = |records: &[Record]| fed(&views, records).views[0].unique().unwrap().bounds().value;
        assert_eq!((count(&[record(1)]), count(&[record(1), marked])), (0, 1));
    }
}
