//! Hosts: own addresses with their traffic in both directions, and how many flows and peers each has.
//!
//! A record counts for its source if that is an own address, and for its destination if that is one. Both are the same
//! key, so a host has one bucket ([`HeavyHitters`]) whatever its direction. That bucket bounds the sum of both
//! directions for every host. Beside each candidate, its sums in each direction are counted since it became one: they
//! are lower bounds of each direction, and an upper bound of one direction is that of the sum without the lower bound
//! of the other. A host that is a candidate from its first packet has exact numbers.
//!
//! Flows and peers are counted in two more structures ([`SampleAndHold`]): a counter for each host, which is exact up
//! to some hundred peers. They hold as many hosts as there are candidates. If there are more, those with the most
//! flows or peers stay, and the bounds of the others are wide.
//!
//! Own networks that the configuration names have sums of their own, which every record of their hosts is added to.

use std::collections::{BTreeMap, HashMap};

use weir_common::{
    flow::{Address, FlowKey},
    ledger::Tally,
    sketch::Metric,
};
use weir_config::{
    Config,
    names::{Networks, Prefix},
    view::{KeyLayout, Side, ViewKey},
};
use weir_sketch::{
    Bounds, Estimate, MergeError, SampleAndHold, Spreader, Weight as _,
    candidate_buckets::Packed,
    hash::{KeyedHash, combine_all},
};

use super::{
    columns::{Item, TOGETHER},
    configured::configured,
    heavy_hitters::{HeavyHitters, KeyEstimate},
    ranking::Ranked,
    uncertainty::{Uncertainty, ViewUncertainty},
};
use crate::by::By;

/// The relative standard error of peers beyond those that are counted exactly: some 208.
const PEERS_ERROR: f64 = 0.034;
/// The same for flows, of which some 110 are counted exactly.
const FLOWS_ERROR: f64 = 0.048;
/// The most entries of a group of records: each counts for up to two hosts.
const ENTRIES: usize = 2 * TOGETHER;
/// How many prefixes of an IP version are compared one by one. If there are more, ranges are searched.
const FEW: usize = 8;

/// The addresses that are hosts.
#[derive(Clone, Debug)]
pub struct HostNetworks {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    /// All prefixes, by the number of their network if that has a name.
    networks: Networks,
    /// True if there are too many prefixes to compare them one by one.
    are_many: bool,
    /// How many of the networks have a name.
    named: usize,
}

impl HostNetworks {
    /// The addresses that are hosts with this configuration.
    pub fn of(config: &Config) -> Self {
        let own: Vec<_> = config.networks.iter().filter(|network| network.own).cloned().collect();
        if own.is_empty() {
            return Self::new(&config.networks_of_hosts());
        }
        let networks = Networks::new(&own);
        Self { named: networks.len(), networks, ..Self::new(&config.networks_of_hosts()) }
    }

    /// The addresses in these prefixes.
    pub fn new(prefixes: &[Prefix]) -> Self {
        use std::net::IpAddr::{V4, V6};
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            match (prefix.first(), prefix.last()) {
                (V4(first), V4(last)) => v4.push((first.to_bits(), !(first.to_bits() ^ last.to_bits()))),
                (V6(first), V6(last)) => v6.push((first.to_bits(), !(first.to_bits() ^ last.to_bits()))),
                _ => {}
            }
        }
        let are_many = v4.len() > FEW || v6.len() > FEW;
        Self { v4, v6, networks: Networks::of_prefixes(prefixes), are_many, named: 0 }
    }

    /// The names of the networks that have one, in the order of their sums.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        (1..=self.named).filter_map(|id| self.networks.name(id as u8))
    }

    /// How many networks have a name.
    pub const fn named(&self) -> usize {
        self.named
    }

    /// Which of at most [`TOGETHER`] records have a source that is a host, and which have such a destination, one bit
    /// each. Prefix by prefix, all addresses are compared at once, which takes a fraction of the time of a look-up for
    /// each.
    #[inline]
    fn sides(&self, items: &[Item<'_>]) -> [u32; 2] {
        let (mut addresses, mut others) = ([[0_u32; TOGETHER]; 2], 0_u32);
        for (nth, item) in items.iter().enumerate().take(TOGETHER) {
            let key = &item.record.key;
            for (addresses, address) in addresses.iter_mut().zip([key.src, key.dst]) {
                addresses[nth] = u64::from_be(address.0[1]) as u32;
            }
            others |= u32::from(key.is_v6() || self.are_many) << nth;
        }
        let all = u32::MAX.checked_shr((TOGETHER - items.len().min(TOGETHER)) as u32).unwrap_or(0);
        let mut sides = addresses.map(|addresses| {
            let mut hits = [0_u32; TOGETHER];
            for (first, mask) in &self.v4 {
                for (hit, address) in hits.iter_mut().zip(addresses) {
                    *hit |= u32::from(address & mask == *first);
                }
            }
            (0..).zip(hits).fold(0, |bits, (nth, hit)| bits | hit << nth) & all & !others
        });
        while others != 0 {
            let nth = others.trailing_zeros();
            others &= others - 1;
            let key = &items[nth as usize].record.key;
            for (side, address) in sides.iter_mut().zip([key.src, key.dst]) {
                *side |= u32::from(self.has(address, key.is_v6())) << nth;
            }
        }
        sides
    }

    /// Returns true if this address is a host. `is_v6` is the IP version of the packet.
    #[inline(always)]
    pub fn has(&self, address: Address, is_v6: bool) -> bool {
        if self.are_many {
            return self.networks.of(address, is_v6) != Networks::NONE;
        }
        let [high, low] = address.0.map(u64::from_be);
        if is_v6 {
            let address = u128::from(high) << 64 | u128::from(low);
            self.v6.iter().any(|(first, mask)| address & mask == *first)
        } else {
            self.v4.iter().any(|(first, mask)| low as u32 & mask == *first)
        }
    }
}

/// The sums of a host in each direction, as far as they were counted one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directions {
    /// To the host.
    pub down: Tally,
    /// From the host.
    pub up: Tally,
}

impl Directions {
    /// Adds a record that has the host on this side.
    #[inline(always)]
    fn add(&mut self, side: Side, tally: Tally) {
        let direction = if side == Side::Src { &mut self.up } else { &mut self.down };
        direction.add(tally);
    }
}

/// The sums of a candidate, with its key and the hash of that.
#[derive(Clone, Copy, Default)]
struct Sums {
    hash: u64,
    key: ViewKey,
    directions: Directions,
}

/// What is counted of one host besides the sum of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Its sums in each direction, as far as they were counted one by one: the truth is at least this.
    pub directions: Directions,
    /// Different flows, in either direction.
    pub flows: Estimate,
    /// Different addresses that it sent to or received from.
    pub peers: Estimate,
}

/// The numbers of one host besides the sum of both directions, with bounds that allow for missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostNumbers {
    counted: Directions,
    down: Bounds<Tally>,
    up: Bounds<Tally>,
    /// Different flows, in either direction.
    pub flows: Estimate,
    /// Different addresses that it sent to or received from.
    pub peers: Estimate,
}

/// Packets and bytes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneDirection {
    /// The packets.
    pub packets: Estimate,
    /// The bytes on the wire.
    pub bytes: Estimate,
}

impl Counts {
    /// Adds what another worker counted of the same host, at the same time. Flows and peers may be the same ones.
    pub fn add(&mut self, other: Self) {
        let Self { directions: Directions { down, up }, flows, peers } = other;
        self.directions.down.add(down);
        self.directions.up.add(up);
        for (one, other) in [(&mut self.flows, flows), (&mut self.peers, peers)] {
            let (lower, upper) = (one.lower.max(other.lower), one.upper.saturating_add(other.upper));
            let most = one.value.saturating_add(other.value);
            *one = Estimate { value: one.value.max(other.value).midpoint(most).clamp(lower, upper), lower, upper };
        }
    }
}

impl HostNumbers {
    /// The numbers of a host whose records in both directions together have the bounds `held`.
    pub fn new(
        counts: Counts,
        held: &KeyEstimate<ViewKey>,
        uncertainties: &ViewUncertainty,
        uncertainty: &Uncertainty,
    ) -> Self {
        let Counts { directions: counted @ Directions { down, up }, flows, peers } = counts;
        // What one direction certainly has, the other does not.
        let direction = |lower: Tally, other: Tally| {
            let upper = held.upper.saturating_sub(other).most(lower);
            let both = |metric| uncertainties.bounds(metric, lower, upper);
            Bounds { lower: Metric::each(|metric| both(metric).0), upper: Metric::each(|metric| both(metric).1) }
        };
        // Each flow and each peer has a packet.
        let most = uncertainties.bounds(Metric::Packets, held.lower, held.upper).1;
        let distinct = |counted| uncertainty.distinct(counted, most);
        Self {
            counted,
            down: direction(down, up),
            up: direction(up, down),
            flows: distinct(flows),
            peers: distinct(peers),
        }
    }

    /// Both directions, down and up, of the row of this host. Their values add up to that of the row, and no bound of a
    /// direction is beyond that of the row.
    pub fn directions(&self, row: &Ranked<ViewKey>) -> [OneDirection; 2] {
        let split = |metric: Metric| {
            let whole = row.estimate(metric);
            let [mut down, mut up] = [self.down, self.up].map(|bounds| {
                let (lower, upper) = (metric.of(bounds.lower), metric.of(bounds.upper));
                (lower.min(whole.value), upper.min(whole.upper))
            });
            // Bounds of both directions have room for the row's value.
            down.0 = down.0.min(whole.value - up.0.min(whole.value));
            up.1 = up.1.max(whole.value.saturating_sub(down.1));
            let [of_down, of_up] = [self.counted.down, self.counted.up].map(|counted| u128::from(metric.of(counted)));
            let share = (u128::from(whole.value) * of_down).checked_div(of_down + of_up);
            let share = share.unwrap_or_else(|| u128::from(whole.value / 2));
            let least = down.0.max(whole.value.saturating_sub(up.1));
            let value = (share as u64).clamp(least, down.1.min(whole.value.saturating_sub(up.0)).max(least));
            [(value, down), (whole.value - value, up)].map(|(value, (lower, upper))| Estimate { value, lower, upper })
        };
        let [packets, bytes] = [Metric::Packets, Metric::Bytes].map(split);
        [0, 1].map(|nth: usize| OneDirection { packets: packets[nth], bytes: bytes[nth] })
    }
}

/// The bytes of a named network, with bounds that allow for missing packets. A packet from one of its hosts to another
/// is in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNumbers {
    /// Its name in the configuration.
    pub name: String,
    /// The bytes on the wire to its hosts.
    pub down: Estimate,
    /// Those from its hosts.
    pub up: Estimate,
    /// Both together.
    pub bytes: Estimate,
}

impl NetworkNumbers {
    /// The numbers of a network with these sums.
    pub fn new(name: &str, Directions { down, up }: Directions, uncertainties: &ViewUncertainty) -> Self {
        let of = |counted: Tally| {
            let (lower, upper) = uncertainties.bounds(Metric::Bytes, counted, counted);
            Estimate { value: counted.bytes.clamp(lower, upper), lower, upper }
        };
        Self { name: name.to_owned(), down: of(down), up: of(up), bytes: of(down.saturating_add(up)) }
    }
}

/// The hosts of a view.
pub struct Hosts {
    sums: HeavyHitters<ViewKey>,
    /// The sums of each candidate in each direction, by its position.
    beside: Box<[Sums]>,
    peers: SampleAndHold<ViewKey>,
    flows: SampleAndHold<ViewKey>,
    /// The sums of each named network.
    networks: Box<[Directions]>,
    group: Group,
}

/// What the records of a group count for: one entry for each host of a record.
struct Group {
    count: usize,
    /// The number of the record, and the side whose address is the host.
    from: [(u8, Side); ENTRIES],
    keys: [ViewKey; ENTRIES],
    hashes: [u64; ENTRIES],
    packed: [Packed<Tally>; ENTRIES],
    /// The hashes of peers or flows.
    items: [u64; ENTRIES],
    pairs: [u64; ENTRIES],
}

impl Group {
    fn empty() -> Self {
        Self {
            count: 0,
            from: [(0, Side::Src); ENTRIES],
            keys: [ViewKey([0; 5]); ENTRIES],
            hashes: [0; ENTRIES],
            packed: [Packed::default(); ENTRIES],
            items: [0; ENTRIES],
            pairs: [0; ENTRIES],
        }
    }

    /// Finds the hosts of those records whose bit is set. Returns the records that have any.
    #[inline]
    fn fill(&mut self, passing: u32, own: &HostNetworks, by: &By, hash: &KeyedHash, items: &[Item<'_>]) -> u32 {
        let [sources, destinations] = own.sides(items).map(|own| own & passing);
        let found = sources | destinations;
        let (mut count, mut left) = (0, found);
        while left != 0 {
            let nth = left.trailing_zeros();
            left &= left - 1;
            let item = &items[nth as usize];
            let key = &item.record.key;
            for (side, address, own) in [(Side::Src, key.src, sources), (Side::Dst, key.dst, destinations)] {
                if own >> nth & 1 == 0 {
                    continue;
                }
                let host = host_key(&by.layout, address, key);
                self.from[count] = (nth as u8, side);
                self.hashes[count] = hash_of(hash, &host);
                self.keys[count] = host;
                self.packed[count] = item.tally.into();
                count += 1;
            }
        }
        self.count = count;
        found
    }
}

/// The key of a host, as [`By`] makes it: its address, and the interface's slot if each interface has its own table.
#[inline(always)]
fn host_key(layout: &KeyLayout, Address([high, low]): Address, flow: &FlowKey) -> ViewKey {
    let slot = layout.slots().map_or(0, |_| u64::from(flow.interface()));
    ViewKey([high, low, 0, 0, u64::from(flow.is_v6()) << layout.version_bit() | slot])
}

/// The hash of a host's key, as [`By`] computes it.
#[inline(always)]
fn hash_of(hash: &KeyedHash, ViewKey([high, low, _, _, shared]): &ViewKey) -> u64 {
    hash.words([*high, *low, *shared])
}

impl Hosts {
    /// An empty structure for at least this many hosts and so many named networks. The bounds of the hosts' sums are
    /// seldom further apart than `error`, a share of everything that is added.
    pub fn new(error: f64, candidates: usize, networks: usize, key_id: u64) -> Self {
        let sums = HeavyHitters::new(error, candidates, key_id);
        let room = sums.capacity();
        Self {
            beside: vec![Sums::default(); room].into_boxed_slice(),
            peers: configured(SampleAndHold::with_room(room, PEERS_ERROR, key_id)),
            flows: configured(SampleAndHold::with_room(room, FLOWS_ERROR, key_id)),
            networks: vec![Directions::default(); networks].into_boxed_slice(),
            group: Group::empty(),
            sums,
        }
    }

    /// Adds the packets and bytes of those records whose bit is set. Returns the records that have a host.
    #[inline]
    pub fn absorb(
        &mut self,
        passing: u32,
        (own, by): (&HostNetworks, &By),
        hash: &KeyedHash,
        items: &[Item<'_>],
    ) -> u32 {
        let found = self.group.fill(passing, own, by, hash, items);
        if found == 0 {
            return 0;
        }
        let Self { sums, beside, networks, group, .. } = self;
        let Group { count, from, keys, hashes, packed, .. } = group;
        sums.add_batch(&hashes[..*count], &packed[..*count], |nth| keys[nth], &mut ());
        for (entry, ((nth, side), hash)) in from.iter().zip(&*hashes).take(*count).enumerate() {
            let Some(place) = sums.position(*hash) else { continue };
            let candidate = &mut beside[place];
            if candidate.hash != *hash {
                *candidate = Sums { hash: *hash, key: keys[entry], directions: Directions::default() };
            }
            candidate.directions.add(*side, items[usize::from(*nth)].tally);
        }
        if !networks.is_empty() {
            for (nth, side) in from.iter().take(*count) {
                let item = &items[usize::from(*nth)];
                let key = &item.record.key;
                let host = if *side == Side::Src { key.src } else { key.dst };
                // Networks count from 1.
                let place = usize::from(own.networks.of(host, key.is_v6())).wrapping_sub(1);
                if let Some(directions) = networks.get_mut(place) {
                    directions.add(*side, item.tally);
                }
            }
        }
        found
    }

    /// Counts the flows and peers of those records whose bit is set.
    #[inline]
    pub fn absorb_flows(
        &mut self,
        passing: u32,
        (own, by): (&HostNetworks, &By),
        hash: &KeyedHash,
        items: &[Item<'_>],
    ) {
        if self.group.fill(passing, own, by, hash, items) == 0 {
            return;
        }
        let Self { peers, flows, group, .. } = self;
        let Group { count, from, keys, hashes, items: of, pairs, .. } = group;
        let (count, keys) = (*count, &*keys);
        for (item, (nth, side)) in of.iter_mut().zip(&*from).take(count) {
            let record = items[usize::from(*nth)].record;
            let peer = if *side == Side::Src { record.key.dst } else { record.key.src };
            *item = hash_of(hash, &ViewKey([peer.0[0], peer.0[1], 0, 0, u64::from(record.key.is_v6())]));
        }
        combine_all(&hashes[..count], &of[..count], pairs);
        peers.insert_pairs(&hashes[..count], &pairs[..count], |nth| keys[nth]);
        for (item, (nth, _)) in of.iter_mut().zip(&*from).take(count) {
            *item = items[usize::from(*nth)].hashes.flow;
        }
        combine_all(&hashes[..count], &of[..count], pairs);
        flows.insert_pairs(&hashes[..count], &pairs[..count], |nth| keys[nth]);
    }

    /// The sums of both directions together.
    pub const fn sums(&self) -> &HeavyHitters<ViewKey> {
        &self.sums
    }

    /// The sums of a host in each direction, as far as they were counted one by one. The truth is at least this.
    pub fn directions(&self, hash: u64) -> Directions {
        let candidate = self.sums.position(hash).map(|place| self.beside[place]);
        candidate.filter(|sums| sums.hash == hash).map_or_else(Directions::default, |sums| sums.directions)
    }

    /// The sums of each named network.
    pub const fn networks(&self) -> &[Directions] {
        &self.networks
    }

    /// What is counted of these hosts, in their order. All bounds of flows and peers hold together except with the
    /// probability `failure`.
    pub fn counts(&self, keys: &[ViewKey], failure: f64) -> Vec<Counts> {
        let known: BTreeMap<ViewKey, &Sums> =
            self.beside.iter().filter(|sums| sums.hash != 0).map(|sums| (sums.key, sums)).collect();
        let [flows, peers] = [&self.flows, &self.peers].map(|counted| {
            // The same margin for a short list and for a long one.
            let margin = counted.margin(self.beside.len(), failure / 2.0);
            let held: BTreeMap<ViewKey, Estimate> =
                counted.held(&margin).into_iter().map(|Spreader { key, touched, .. }| (key, touched)).collect();
            let count = |key: &ViewKey| {
                let unheld = || known.get(key).map(|sums| counted.estimate_unheld(sums.hash, &margin));
                // Of a host that is not counted at all, its packets are the only bound.
                let unknown = Estimate { value: 0, lower: 0, upper: u64::MAX };
                held.get(key).copied().or_else(unheld).unwrap_or(unknown)
            };
            keys.iter().map(count).collect::<Vec<_>>()
        });
        let directions = |key| known.get(key).map_or_else(Directions::default, |sums| sums.directions);
        let all = keys.iter().zip(flows).zip(peers);
        all.map(|((key, flows), peers)| Counts { directions: directions(key), flows, peers }).collect()
    }

    /// Merges all of these into this one.
    ///
    /// # Errors
    ///
    /// One of them was built differently.
    pub fn merge_all(&mut self, others: &[&Self], hash_of: impl Fn(&ViewKey) -> u64) -> Result<(), MergeError> {
        let mut all: HashMap<u64, Sums> = HashMap::new();
        for of in others.iter().flat_map(|other| &other.beside[..]).chain(&self.beside[..]).filter(|of| of.hash != 0) {
            let sums = all.entry(of.hash).or_insert(Sums { directions: Directions::default(), ..*of });
            sums.directions.down.add(of.directions.down);
            sums.directions.up.add(of.directions.up);
        }
        let sums: Vec<_> = others.iter().map(|other| &other.sums).collect();
        self.sums.merge_all(&sums, hash_of, &mut ())?;
        for other in others {
            self.peers.merge(&other.peers)?;
            self.flows.merge(&other.flows)?;
            for (sums, more) in self.networks.iter_mut().zip(&other.networks) {
                sums.down.add(more.down);
                sums.up.add(more.up);
            }
        }
        // A host that is no candidate of the whole has no exact sums.
        self.beside.fill(Sums::default());
        for (hash, sums) in all {
            if let Some(place) = self.sums.position(hash) {
                self.beside[place] = sums;
            }
        }
        Ok(())
    }

    /// Returns the bounds of both directions together. Their sum is at least what was counted one by one.
    pub fn raised(&self, hash: u64, held: KeyEstimate<ViewKey>) -> KeyEstimate<ViewKey> {
        let Directions { down, up } = self.directions(hash);
        let least = down.saturating_add(up);
        let raise = |one: Tally| Tally::new(one.packets.max(least.packets), one.bytes.max(least.bytes));
        KeyEstimate { lower: raise(held.lower), value: raise(held.value), upper: raise(held.upper), ..held }
    }

    /// Empties it; every page stays resident.
    pub fn clear(&mut self) {
        self.sums.clear();
        self.beside.fill(Sums::default());
        self.networks.fill(Directions::default());
        self.peers.clear();
        self.flows.clear();
    }

    /// Prepares an empty structure for hashes of another key, with these coins and places.
    pub const fn rekey(&mut self, key_id: u64, coins: u64, places: u64) {
        self.sums.rekey(key_id, coins, places);
        self.peers.rekey(key_id);
        self.flows.rekey(key_id);
    }

    /// The memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let inside = size_of::<HeavyHitters<ViewKey>>() + 2 * size_of::<SampleAndHold<ViewKey>>();
        let sketches = self.sums.memory_bytes() + self.peers.memory_bytes() + self.flows.memory_bytes();
        size_of::<Self>() - inside + size_of_val(&*self.beside) + size_of_val(&*self.networks) + sketches
    }
}

#[cfg(test)]
mod tests;
