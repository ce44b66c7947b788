//! The sketch of one question in a shard.

use std::borrow::Cow;

use weir_common::{ledger::Tally, record::Record};
use weir_config::{
    names::Facts,
    view::{KeyLayout, Side, ViewKey, layout},
};
use weir_sketch::{HyperLogLog, MergeError, candidate_buckets::Packed, hash::KeyedHash, simd};

use super::{Question, Structure};
use crate::{
    by::{By, Kind, Network, of_interface},
    columns::{Columns, Item, TOGETHER},
    configured::distinct,
    fields::{self, FieldLoop},
    heavy_hitters::{HeavyHitters, KeyEstimate},
    hosts::{HostNetworks, Hosts},
    prefixes::{Prefix, Prefixes},
    spreaders::Spreaders,
};

/// The sketch that a view's records go into.
pub struct ViewSketch {
    /// The sum of all matched records, scaled by their sampling rates.
    pub total: Tally,
    /// The sums by interface slot, if each interface has its own table and the tables do not add up to the sum.
    by_slot: Box<[Tally]>,
    /// The distinct keys, if the answers do not show how many there are.
    keys: Option<HyperLogLog>,
    answers: Answers,
    batch: PickedRecords,
}

/// The structure that answers the question.
enum Answers {
    Total,
    Table(Box<[Tally]>),
    HeavyHitters(Box<HeavyHitters<ViewKey>>),
    Prefixes(Box<Prefixes>),
    Hosts(Box<Hosts>),
    Unique(HyperLogLog),
    Spread(Box<Spreaders>),
}

impl Answers {
    /// Returns what it needs to know about each record; `None` if it does not look at records.
    const fn needs(&self) -> Option<Needs> {
        let (keys, hashes) = match self {
            // Hosts find their records themselves.
            Self::Total | Self::Hosts(_) => return None,
            Self::Table(_) | Self::Prefixes(_) => (true, false),
            Self::Unique(_) => (false, false),
            Self::HeavyHitters(_) | Self::Spread(_) => (true, true),
        };
        Some(Needs { keys, hashes })
    }
}

/// The records of a batch that a view matches, in columns.
#[derive(Default)]
struct PickedRecords {
    /// The index of each record, and which of its addresses is the host.
    picked: Vec<(u8, Side)>,
    keys: Vec<ViewKey>,
    hashes: Vec<u64>,
    tallies: Vec<Tally>,
    packed: Vec<Packed<Tally>>,
    /// The hashes of the values that are counted distinct.
    items: Vec<u64>,
}

impl PickedRecords {
    /// Room for this many records. A record may count for both of its addresses.
    fn new(question: &Question, together: usize) -> Self {
        let room = if question.by.layout.has_host() { 2 * together } else { together };
        Self {
            picked: Vec::with_capacity(room),
            keys: Vec::with_capacity(room),
            hashes: Vec::with_capacity(room),
            tallies: Vec::with_capacity(room),
            packed: Vec::with_capacity(room),
            items: Vec::with_capacity(if question.of.is_some() { room } else { 0 }),
        }
    }

    /// Picks the records whose bit is set. By `host`, a record counts for both of its addresses, but only once if their
    /// keys are the same.
    #[inline]
    fn pick(&mut self, passing: u32, by: &By, items: &[Item<'_>]) {
        let has_host = by.layout.has_host();
        self.picked.clear();
        for (nth, item) in (0..).zip(items).filter(|(nth, _)| passing >> nth & 1 == 1) {
            self.picked.push((nth, Side::Src));
            if has_host && by.has_two_keys(&item.record.key) {
                self.picked.push((nth, Side::Dst));
            }
        }
    }

    /// Fills the needed columns with the picked records.
    #[inline]
    fn gather(&mut self, question: &Question, hash: &KeyedHash, facts: Facts<'_>, items: &[Item<'_>], needs: Needs) {
        let picked = std::mem::take(&mut self.picked);
        let all = picked.iter().map(|(nth, host)| (&items[usize::from(*nth)], *host));
        self.tallies.clear();
        self.tallies.extend(all.clone().map(|(item, _)| item.tally));
        self.packed.clear();
        self.packed.extend(self.tallies.iter().copied().map(Packed::from));
        self.fill(question, hash, facts, &all, needs);
        self.picked = picked;
    }

    /// Fills the needed columns, except tallies, with these records.
    #[inline]
    fn fill<'a>(
        &mut self,
        question: &Question,
        hash: &KeyedHash,
        facts: Facts<'_>,
        all: &(impl ExactSizeIterator<Item = (&'a Item<'a>, Side)> + Clone),
        needs: Needs,
    ) {
        let Question { by, of, .. } = question;
        let Self { picked: _, keys, hashes, tallies: _, packed: _, items: distinct } = self;
        let records = all.clone().map(|(item, host)| (item.record, host));
        let flows = all.clone().map(|(item, _)| &item.hashes);
        let count = all.len();
        hashes.resize(count, 0);
        keys.resize(count, ViewKey::default());
        if let Some(of) = of {
            distinct.resize(count, 0);
            of.write_keys(keys, records.clone(), facts);
            of.write_hashes(distinct, hash, keys, flows.clone());
        }
        if needs.keys {
            by.write_keys(keys, records, facts);
        }
        if needs.hashes {
            by.write_hashes(hashes, hash, keys, flows);
        }
    }

    const fn memory_bytes(&self) -> usize {
        let Self { picked, keys, hashes, tallies, packed, items } = self;
        picked.capacity() * size_of::<(u8, Side)>()
            + keys.capacity() * size_of::<ViewKey>()
            + (hashes.capacity() + items.capacity()) * size_of::<u64>()
            + tallies.capacity() * size_of::<Tally>()
            + packed.capacity() * size_of::<Packed<Tally>>()
    }
}

/// The parts of a record that a structure needs to know.
#[derive(Clone, Copy)]
struct Needs {
    keys: bool,
    hashes: bool,
}

/// Adds each record to the sum with the index that `at` returns, if there is one. Often several records in a row go to
/// the same sum. These are added up first, because adding to memory takes several times as long as adding to a
/// register.
#[inline(always)]
fn add_runs(sums: &mut [Tally], columns: Columns<'_>, at: impl Fn(&Record) -> usize) {
    if sums.is_empty() {
        return;
    }
    let (mut place, mut run) = (0, Tally::default());
    let mut end = |place: usize, run: Tally| sums.get_mut(place).into_iter().for_each(|sum| sum.add(run));
    for (item, tally) in columns.items.iter().zip(columns.tallies) {
        let next = at(item.record);
        if next != place {
            end(place, run);
            (place, run) = (next, Tally::default());
        }
        run.add(*tally);
    }
    end(place, run);
}

/// Adds records to a table whose keys are one field and the slot of the interface.
struct AddNarrow<'t, 'c> {
    cells: &'t mut [Tally],
    columns: Columns<'c>,
    field: layout::Packed,
}

impl FieldLoop for AddNarrow<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run(self, number: impl Fn(&Record) -> u64) {
        let bits = self.field.bits;
        add_runs(self.cells, self.columns, |record| {
            usize::from(record.key.interface()) << bits | number(record) as usize
        });
    }
}

impl ViewSketch {
    /// An empty sketch for keys with this fingerprint, which takes up to `together` records at once. It allocates
    /// nothing if the sketch of another question answers this one.
    pub fn new(question: &Question, key_id: u64, together: usize) -> Self {
        if question.answered_by.is_some() {
            let (total, by_slot, batch) = Default::default();
            return Self { total, by_slot, keys: None, answers: Answers::Total, batch };
        }
        let answers = match question.structure {
            Structure::Total => Answers::Total,
            Structure::Table { cells } => Answers::Table(vec![Tally::default(); cells].into_boxed_slice()),
            Structure::HeavyHitters { error, candidates, distinct: _ } => {
                Answers::HeavyHitters(Box::new(HeavyHitters::new(error, candidates, key_id)))
            }
            Structure::Prefixes { error, candidates } => {
                Answers::Prefixes(Box::new(Prefixes::new(error, candidates, key_id)))
            }
            Structure::Hosts { error, candidates } => {
                let networks = question.own.as_ref().map_or(0, |own| own.named());
                Answers::Hosts(Box::new(Hosts::new(error, candidates, networks, key_id)))
            }
            Structure::Unique { error } => Answers::Unique(distinct(error, key_id)),
            Structure::Spread { pairs, smallest, held, error } => {
                Answers::Spread(Box::new(Spreaders::new(pairs, smallest, (held, error), key_id)))
            }
        };
        let keys = match question.structure {
            Structure::HeavyHitters { distinct: Some(error), .. } => Some(distinct(error, key_id)),
            _ => None,
        };
        let has_sums_of_slots =
            question.view.per_interface && matches!(answers, Answers::HeavyHitters(_) | Answers::Hosts(_));
        let slots = question.by.layout.slots().filter(|_| has_sums_of_slots).unwrap_or(0);
        let batch = PickedRecords::new(question, together);
        let by_slot = vec![Tally::default(); slots].into_boxed_slice();
        Self { total: Tally::default(), by_slot, keys, answers, batch }
    }

    /// Prefetches the sum, and the memory for the first of these records if their keys need not be read for that.
    #[inline]
    pub fn prefetch(&self, question: &Question, columns: Columns<'_>) {
        simd::prefetch(&self.total);
        let Answers::HeavyHitters(hitters) = &self.answers else { return };
        if question.filter.is_empty() {
            hitters.prefetch_first(columns.hashes(question.by.kind()).unwrap_or_default());
        }
    }

    /// Adds the records that the view matches. `prefixes` is the view that it feeds, if any.
    #[inline]
    pub fn absorb(
        &mut self,
        question: &Question,
        prefixes: Option<&mut Self>,
        hash: &KeyedHash,
        facts: Facts<'_>,
        columns: Columns<'_>,
    ) {
        if self.absorb_narrow(question, facts, columns) {
            return;
        }
        if let Some(own) = &question.own {
            self.absorb_hosts(question, own, hash, facts, columns);
            return;
        }
        if self.absorb_all(question, prefixes, hash, facts, columns) {
            self.total.add(columns.total);
            return;
        }
        let needs = self.answers.needs();
        let takes_all = question.filter.is_empty() && !question.by.layout.has_host();
        if takes_all {
            self.total.add(columns.total);
            add_runs(&mut self.by_slot, columns, |record| record.key.interface().into());
            if let Some(needs) = needs {
                let all = columns.items.iter().map(|item| (item, Side::Src));
                self.batch.fill(question, hash, facts, &all, needs);
            }
        } else {
            let passing = question.filter.passing(&columns.items.iter().map(|item| item.record), facts);
            if passing == 0 {
                return;
            }
            self.batch.pick(passing, &question.by, columns.items);
            self.add_totals(passing, columns);
            if let Some(needs) = needs {
                self.batch.gather(question, hash, facts, columns.items, needs);
            }
        }
        let PickedRecords { keys, hashes, tallies, packed, items, picked: _ } = &self.batch;
        let (tallies, packed) = if takes_all { (columns.tallies, columns.packed) } else { (&**tallies, &**packed) };
        match &mut self.answers {
            Answers::Total => (),
            Answers::Table(cells) => {
                for (key, tally) in keys.iter().zip(tallies) {
                    cells[KeyLayout::index(key)].add(*tally);
                }
            }
            Answers::HeavyHitters(hitters) => {
                hitters.add_batch(hashes, packed, |nth| keys[nth], &mut ());
                if let Some(distinct) = &mut self.keys {
                    distinct.insert_batch(hashes);
                }
            }
            Answers::Prefixes(prefixes) => {
                for (key, tally) in keys.iter().zip(packed) {
                    prefixes.add(hash, Prefix::of(key), *tally);
                }
            }
            Answers::Unique(distinct) => distinct.insert_batch(items),
            Answers::Spread(spread) => spread.insert_batch(hashes, items, |nth| keys[nth]),
            Answers::Hosts(_) => (),
        }
    }

    /// Adds the records of own addresses.
    #[inline]
    fn absorb_hosts(
        &mut self,
        question: &Question,
        own: &HostNetworks,
        hash: &KeyedHash,
        facts: Facts<'_>,
        columns: Columns<'_>,
    ) {
        let Answers::Hosts(hosts) = &mut self.answers else { return };
        let passing = question.filter.passing(&columns.items.iter().map(|item| item.record), facts);
        let found = hosts.absorb(passing, (own, &question.by), hash, columns.items);
        if !question.counts_first_records {
            hosts.absorb_flows(found, (own, &question.by), hash, columns.items);
        }
        for item in (0..).zip(columns.items).filter(|(nth, _)| found >> nth & 1 == 1).map(|(_, item)| item) {
            self.total.add(item.tally);
            if let Some(sum) = self.by_slot.get_mut(usize::from(item.record.key.interface())) {
                sum.add(item.tally);
            }
        }
    }

    /// Counts flows and peers of hosts. These records are of flows that did not come moments ago.
    pub fn absorb_first_records(
        &mut self,
        question: &Question,
        hash: &KeyedHash,
        facts: Facts<'_>,
        columns: Columns<'_>,
    ) {
        let (Answers::Hosts(hosts), Some(own)) = (&mut self.answers, &question.own) else { return };
        let passing = question.filter.passing(&columns.items.iter().map(|item| item.record), facts);
        hosts.absorb_flows(passing, (own, &question.by), hash, columns.items);
    }

    /// Adds all records to a table of small keys, if the view matches every record.
    #[inline]
    fn absorb_narrow(&mut self, question: &Question, facts: Facts<'_>, columns: Columns<'_>) -> bool {
        let (Answers::Table(cells), Some(field), true) =
            (&mut self.answers, question.by.narrow(), question.filter.is_empty())
        else {
            return false;
        };
        self.total.add(columns.total);
        fields::run(field.field, facts, AddNarrow { cells, columns, field });
        true
    }

    /// Adds all records, if the view matches every record and its keys can be read directly from a record. Then nothing
    /// has to be gathered.
    #[inline]
    fn absorb_all(
        &mut self,
        question: &Question,
        prefixes: Option<&mut Self>,
        hash: &KeyedHash,
        facts: Facts<'_>,
        columns: Columns<'_>,
    ) -> bool {
        let Question { filter, by, of, .. } = question;
        let (items, mut own) = (columns.items, [0; TOGETHER]);
        let hashes = match (filter.is_empty(), by.kind()) {
            (false, _) | (_, Kind::Other) => return false,
            (_, Kind::Network) => {
                let (Answers::HeavyHitters(_), Some(network)) = (&self.answers, by.network()) else { return false };
                for (own, item) in own.iter_mut().zip(items) {
                    *own = Network::hash(hash, &network.key(&item.record.key));
                }
                &own[..items.len()]
            }
            (_, Kind::PairOfInterface) => {
                let pairs = columns.hashes(Kind::Pair).unwrap_or_default();
                for ((own, pair), item) in own.iter_mut().zip(pairs).zip(items) {
                    *own = of_interface(*pair, item.record.key.interface().into());
                }
                &own[..items.len()]
            }
            (_, kind) => columns.hashes(kind).unwrap_or_default(),
        };
        match (&mut self.answers, of) {
            (Answers::HeavyHitters(hitters), None) => {
                // Use a separate loop for each kind.
                macro_rules! add {
                    ($kind:ident) => {
                        hitters.add_batch(
                            hashes,
                            columns.packed,
                            |nth| Kind::$kind.key(&items[nth].record.key),
                            &mut (),
                        )
                    };
                    ($kind:ident, $prefixes:expr) => {{
                        let key = |nth: usize| Kind::$kind.key(&items[nth].record.key);
                        hitters.add_batch(hashes, columns.packed, key, &mut $prefixes.rest(hash, key, columns.packed))
                    }};
                }
                match (by.kind(), prefixes.and_then(Self::prefixes)) {
                    (Kind::Source, Some(prefixes)) => add!(Source, prefixes),
                    (Kind::Destination, Some(prefixes)) => add!(Destination, prefixes),
                    (Kind::Flow, _) => add!(Flow),
                    (Kind::Source, None) => add!(Source),
                    (Kind::Destination, None) => add!(Destination),
                    (Kind::Pair, _) => add!(Pair),
                    (Kind::Service, _) => add!(Service),
                    (Kind::PairOfInterface, _) => add!(PairOfInterface),
                    (Kind::Network, _) => {
                        let Some(network) = by.network() else { return false };
                        let key = |nth: usize| network.key(&items[nth].record.key);
                        hitters.add_batch(hashes, columns.packed, key, &mut ());
                    }
                    (Kind::Other, _) => return false,
                }
                if let Some(distinct) = &mut self.keys {
                    distinct.insert_batch(hashes);
                }
                add_runs(&mut self.by_slot, columns, |record| record.key.interface().into());
            }
            (Answers::Spread(spread), Some(of)) => {
                let (mut keys, mut own) = ([ViewKey::default(); TOGETHER], [0; TOGETHER]);
                let values = columns.hashes(of.kind()).unwrap_or_else(|| {
                    let (keys, own) = (&mut keys[..items.len()], &mut own[..items.len()]);
                    of.write_keys(keys, items.iter().map(|item| (item.record, Side::Src)), facts);
                    of.write_hashes(own, hash, keys, items.iter().map(|item| &item.hashes));
                    own
                });
                spread.insert_batch(hashes, values, |nth| by.kind().key(&items[nth].record.key));
            }
            _ => return false,
        }
        true
    }

    /// Adds the picked records to the sum of all matched records.
    #[inline]
    fn add_totals(&mut self, passing: u32, columns: Columns<'_>) {
        let Self { total, by_slot, batch, .. } = self;
        if by_slot.is_empty() && passing.count_ones() as usize == columns.items.len() {
            total.add(columns.total);
            return;
        }
        let once = batch.picked.iter().filter(|(_, host)| *host == Side::Src);
        for item in once.map(|(nth, _)| &columns.items[usize::from(*nth)]) {
            total.add(item.tally);
            if let Some(sum) = by_slot.get_mut(usize::from(item.record.key.interface())) {
                sum.add(item.tally);
            }
        }
    }

    const fn prefixes(&mut self) -> Option<&mut Prefixes> {
        if let Answers::Prefixes(prefixes) = &mut self.answers { Some(prefixes) } else { None }
    }

    /// Adds the sums of the candidates of the merged list of addresses to the merged view of their prefixes. After that
    /// the view can be read. Without such a list, everything has been added already.
    pub fn finish_prefixes(&mut self, addresses: Option<&Self>, hash: &KeyedHash) {
        let Answers::Prefixes(prefixes) = &mut self.answers else { return };
        if let Some(addresses) = addresses {
            self.total = addresses.total;
        }
        prefixes.finish(hash, addresses.into_iter().flat_map(Self::held));
    }

    /// Merges the sketches that other shards have of the same view. `prefixes` is the view that it feeds, if any.
    ///
    /// # Errors
    ///
    /// One of them was built differently.
    pub fn merge_all(
        &mut self,
        others: &[&Self],
        prefixes: Option<&mut Self>,
        by: &By,
        hash: &KeyedHash,
    ) -> Result<(), MergeError> {
        for other in others {
            self.merge_one(other)?;
        }
        // Merge all at once, so that their order does not matter.
        match &mut self.answers {
            Answers::HeavyHitters(one) => {
                let others: Vec<_> = others.iter().filter_map(|other| other.hitters()).collect();
                let hash_of = |key: &ViewKey| by.hash_of(hash, key);
                match prefixes.and_then(Self::prefixes) {
                    Some(prefixes) => {
                        one.merge_all(&others, hash_of, &mut prefixes.rest(hash, |_| ViewKey::default(), &[]))
                    }
                    None => one.merge_all(&others, hash_of, &mut ()),
                }
            }
            Answers::Prefixes(one) => {
                let others: Vec<_> = others.iter().filter_map(|other| other.fed_prefixes()).collect();
                one.merge_all(&others, hash)
            }
            Answers::Hosts(one) => {
                let others: Vec<_> = others.iter().filter_map(|other| other.hosts()).collect();
                one.merge_all(&others, |key| by.hash_of(hash, key))
            }
            _ => Ok(()),
        }
    }

    fn fed_prefixes(&self) -> Option<&Prefixes> {
        if let Answers::Prefixes(prefixes) = &self.answers { Some(prefixes) } else { None }
    }

    /// The sketch with candidates, if the view has one.
    pub fn hitters(&self) -> Option<&HeavyHitters<ViewKey>> {
        match &self.answers {
            Answers::HeavyHitters(hitters) => Some(hitters),
            Answers::Hosts(hosts) => Some(hosts.sums()),
            _ => None,
        }
    }

    /// The hosts, if the view has them.
    pub fn hosts(&self) -> Option<&Hosts> {
        if let Answers::Hosts(hosts) = &self.answers { Some(hosts) } else { None }
    }

    /// Merges everything from another sketch except heavy hitters and prefixes.
    fn merge_one(&mut self, other: &Self) -> Result<(), MergeError> {
        self.total.add(other.total);
        for (sum, other) in self.by_slot.iter_mut().zip(&other.by_slot) {
            sum.add(*other);
        }
        if let (Some(keys), Some(others)) = (&mut self.keys, &other.keys) {
            keys.merge(others)?;
        }
        match (&mut self.answers, &other.answers) {
            (Answers::Table(cells), Answers::Table(others)) => {
                for (cell, other) in cells.iter_mut().zip(others) {
                    cell.add(*other);
                }
            }
            (Answers::Unique(one), Answers::Unique(other)) => one.merge(other)?,
            (Answers::Spread(one), Answers::Spread(other)) => one.merge(other)?,
            _ => (),
        }
        Ok(())
    }

    /// The sums of all matched records of each interface slot. A table of sums is read once for all slots: it has as
    /// many cells for each.
    pub fn totals(&self, by: &By) -> Cow<'_, [Tally]> {
        let Answers::Table(cells) = &self.answers else { return Cow::Borrowed(&self.by_slot) };
        let mut sums = vec![Tally::default(); by.layout.slots().unwrap_or(0)];
        for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.packets > 0) {
            if let Some(sum) = by.layout.slot(&KeyLayout::at(index)).and_then(|slot| sums.get_mut(slot)) {
                sum.add(*cell);
            }
        }
        Cow::Owned(sums)
    }

    /// Every key that may be listed, with its bounds. Empty if the view counts flows or distinct values.
    pub fn held(&self) -> Box<dyn Iterator<Item = KeyEstimate<ViewKey>> + '_> {
        let exact = |key, sum| KeyEstimate { key, value: sum, lower: sum, upper: sum };
        match &self.answers {
            Answers::Total => Box::new([exact(KeyLayout::at(0), self.total)].into_iter()),
            Answers::Table(cells) => {
                let used = cells.iter().enumerate().filter(|(_, sum)| sum.packets > 0);
                Box::new(used.map(move |(index, sum)| exact(KeyLayout::at(index), *sum)))
            }
            Answers::HeavyHitters(hitters) => Box::new(hitters.iter()),
            Answers::Hosts(hosts) => Box::new(hosts.sums().iter()),
            Answers::Prefixes(prefixes) => Box::new(prefixes.iter()),
            Answers::Unique(_) | Answers::Spread(_) => Box::new([].into_iter()),
        }
    }

    /// The bounds of any key, if the view has bytes and packets.
    pub fn look_up(&self, by: &By, hash: &KeyedHash, key: &ViewKey) -> Option<KeyEstimate<ViewKey>> {
        let exact = |sum| KeyEstimate { key: *key, value: sum, lower: sum, upper: sum };
        match &self.answers {
            Answers::Total => Some(exact(self.total)),
            Answers::Table(cells) => Some(exact(cells.get(KeyLayout::index(key)).copied().unwrap_or_default())),
            Answers::HeavyHitters(hitters) => Some(hitters.look_up(by.hash_of(hash, key), key)),
            Answers::Hosts(hosts) => {
                let of_key = by.hash_of(hash, key);
                Some(hosts.raised(of_key, hosts.sums().look_up(of_key, key)))
            }
            Answers::Prefixes(prefixes) => Some(prefixes.look_up(hash, key)),
            Answers::Unique(_) | Answers::Spread(_) => None,
        }
    }

    /// The sketch of distinct keys, if the view counts them for its entropy.
    pub const fn keys(&self) -> Option<&HyperLogLog> {
        self.keys.as_ref()
    }

    /// How many keys there can be, if each has its own cell.
    pub const fn cells(&self) -> Option<usize> {
        if let Answers::Table(cells) = &self.answers { Some(cells.len()) } else { None }
    }

    /// Returns true if several keys of a group together may have more than the group's bound in [`ViewSketch::light`].
    pub fn has_strays(&self) -> bool {
        self.hitters().is_some_and(HeavyHitters::has_strays)
    }

    /// Upper bounds for keys that are not candidates, by group.
    pub fn light(&self) -> Box<dyn Iterator<Item = Tally> + '_> {
        match &self.answers {
            Answers::HeavyHitters(hitters) => Box::new(hitters.light()),
            Answers::Hosts(hosts) => Box::new(hosts.sums().light()),
            _ => Box::new([].into_iter()),
        }
    }

    /// An upper bound for each key that is not a candidate.
    pub fn most_of_others(&self) -> Tally {
        self.hitters().map_or_else(Tally::default, HeavyHitters::most_of_others)
    }

    /// The sketch of distinct values without a key.
    pub const fn unique(&self) -> Option<&HyperLogLog> {
        if let Answers::Unique(distinct) = &self.answers { Some(distinct) } else { None }
    }

    /// The sketch of distinct values by key.
    pub fn spread(&self) -> Option<&Spreaders> {
        if let Answers::Spread(spread) = &self.answers { Some(spread) } else { None }
    }

    /// Empties it; every page stays resident.
    pub fn clear(&mut self) {
        let Self { total, by_slot, keys, answers, batch: _ } = self;
        *total = Tally::default();
        by_slot.fill(Tally::default());
        if let Some(keys) = keys {
            keys.clear();
        }
        match answers {
            Answers::Total => (),
            Answers::Table(cells) => cells.fill(Tally::default()),
            Answers::HeavyHitters(hitters) => hitters.clear(),
            Answers::Prefixes(prefixes) => prefixes.clear(),
            Answers::Hosts(hosts) => hosts.clear(),
            Answers::Unique(distinct) => distinct.clear(),
            Answers::Spread(spread) => spread.clear(),
        }
    }

    /// Prepares an empty sketch for hashes of another key, with these coins and places.
    pub const fn rekey(&mut self, key_id: u64, coins: u64, places: u64) {
        if let Some(keys) = &mut self.keys {
            keys.rekey(key_id);
        }
        match &mut self.answers {
            Answers::Total | Answers::Table(_) => (),
            Answers::HeavyHitters(hitters) => hitters.rekey(key_id, coins, places),
            Answers::Prefixes(prefixes) => prefixes.rekey(key_id, coins, places),
            Answers::Hosts(hosts) => hosts.rekey(key_id, coins, places),
            Answers::Unique(distinct) => distinct.rekey(key_id),
            Answers::Spread(spread) => spread.rekey(key_id),
        }
    }

    /// The memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let answers = match &self.answers {
            Answers::Total => 0,
            Answers::Table(cells) => size_of_val(&**cells),
            Answers::HeavyHitters(hitters) => hitters.memory_bytes(),
            Answers::Prefixes(prefixes) => prefixes.memory_bytes(),
            Answers::Hosts(hosts) => hosts.memory_bytes(),
            Answers::Unique(distinct) => distinct.memory_bytes(),
            Answers::Spread(spread) => spread.memory_bytes(),
        };
        let keys = self.keys.as_ref().map_or(0, HyperLogLog::memory_bytes);
        size_of::<Self>() + size_of_val(&*self.by_slot) + keys + answers + self.batch.memory_bytes()
    }
}
