//! The largest prefixes of addresses: heavy hitters, fed with the traffic that a list of addresses does not hold.
//!
//! The list of sources (or destinations) already sees every record. While an address is a candidate there, the list
//! keeps its records. It passes all other records on to the prefixes, and also the sum of an address that stops being a
//! candidate. These are added to their prefixes at once. When the window closes, the sums that the candidates still
//! hold are added to their prefixes. So every packet and every byte reaches its prefix exactly once, and the records of
//! candidates, which are the majority, cost nothing here.
//!
//! Without a list of addresses, each record adds to its prefix when it comes.
//!
//! **Errors**: those of [`HeavyHitters`], whose bounds always hold.
//!
//! **Paper**: a prefix that is large even without its listed members is a hierarchical heavy hitter: Cormode, Korn,
//! Muthukrishnan and Srivastava, "Finding hierarchical heavy hitters in data streams", 2003.

use std::fmt;

use weir_common::{flow::Address, ledger::Tally};
use weir_config::view::{Lengths, ViewKey, lengths::show_address};
use weir_sketch::{
    MergeError,
    candidate_buckets::{Packed, Rest},
    hash::KeyedHash,
};

use super::heavy_hitters::{HeavyHitters, KeyEstimate};

/// How many prefixes wait to be added to the candidates together, after their memory was prefetched.
const TOGETHER: usize = 32;

/// A prefix of the length that [`Lengths::PREFIX`] has for its IP version, in one word: its leading bits, and the
/// word's highest bit set for IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix(u64);

impl Prefix {
    const V6: u64 = 1 << 63;

    /// The prefix of an address.
    #[inline(always)]
    pub const fn new(Address([high, low]): Address, is_v6: bool) -> Self {
        // An IPv4 address is the last half of the second word.
        let v4 = (u64::from_be(low) as u32) >> (32 - Lengths::PREFIX.v4);
        let v6 = u64::from_be(high) >> (64 - Lengths::PREFIX.v6);
        Self(if is_v6 { v6 | Self::V6 } else { v4 as u64 })
    }

    /// The prefix of a key whose first two words are an address, and whose last word's highest bit is set for IPv6.
    #[inline(always)]
    pub const fn of(key: &ViewKey) -> Self {
        let [high, low, _, _, shared] = key.0;
        Self::new(Address([high, low]), shared >> 63 == 1)
    }

    /// The key of a view by prefix.
    pub const fn key(self) -> ViewKey {
        let Self(word) = self;
        if self.is_v6() {
            return ViewKey([(word << (64 - Lengths::PREFIX.v6)).to_be(), 0, 0, 0, Self::V6]);
        }
        let Address([high, low]) = Address::from_v4_word(((word as u32) << (32 - Lengths::PREFIX.v4)).to_be());
        ViewKey([high, low, 0, 0, 0])
    }

    const fn is_v6(self) -> bool {
        self.0 & Self::V6 != 0
    }

    #[inline(always)]
    const fn hash(self, hash: &KeyedHash) -> u64 {
        hash.words([self.0])
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ViewKey([high, low, ..]) = self.key();
        f.write_str(&show_address(Address([high, low]), self.is_v6(), Lengths::PREFIX))
    }
}

/// The largest prefixes of addresses.
pub struct Prefixes {
    table: HeavyHitters<Prefix>,
    waiting: usize,
    prefixes: [Prefix; TOGETHER],
    tallies: [Packed<Tally>; TOGETHER],
    /// True if the sums of the candidates of the list of addresses have been added.
    is_finished: bool,
}

impl Prefixes {
    /// An empty sketch with at least this many candidates. Bounds are seldom further apart than `error`, a share of
    /// everything that is added.
    pub fn new(error: f64, candidates: usize, key_id: u64) -> Self {
        Self {
            table: HeavyHitters::new(error, candidates, key_id),
            waiting: 0,
            prefixes: [Prefix::default(); TOGETHER],
            tallies: [Packed::default(); TOGETHER],
            is_finished: false,
        }
    }

    /// Adds to a prefix.
    #[inline(always)]
    pub fn add(&mut self, hash: &KeyedHash, prefix: Prefix, tally: Packed<Tally>) {
        self.prefixes[self.waiting] = prefix;
        self.tallies[self.waiting] = tally;
        self.waiting += 1;
        if self.waiting == TOGETHER {
            self.settle(hash);
        }
    }

    /// Receives the part of a batch that a list of addresses does not hold. `key(i)` has `tallies[i]`.
    pub const fn rest<'a, F: Fn(usize) -> ViewKey>(
        &'a mut self,
        hash: &'a KeyedHash,
        key: F,
        tallies: &'a [Packed<Tally>],
    ) -> RestOfAddresses<'a, F> {
        RestOfAddresses { prefixes: self, hash, key, tallies }
    }

    #[inline(never)]
    fn settle(&mut self, hash: &KeyedHash) {
        let Self { table, waiting, prefixes, tallies, is_finished: _ } = self;
        let hashes = prefixes.map(|prefix| prefix.hash(hash));
        table.add_batch(&hashes[..*waiting], &tallies[..*waiting], |nth| prefixes[nth % TOGETHER], &mut ());
        *waiting = 0;
    }

    /// Adds the sums of the candidates of the list of addresses, after the last record. After that the candidates can
    /// be read, and keys looked up. A window may be read again with other bounds, so a second call adds nothing.
    pub fn finish(&mut self, hash: &KeyedHash, addresses: impl Iterator<Item = KeyEstimate<ViewKey>>) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        for held in addresses {
            self.add(hash, Prefix::of(&held.key), held.lower.into());
        }
        self.settle(hash);
    }

    /// Returns the candidates with their estimates.
    pub fn iter(&self) -> impl Iterator<Item = KeyEstimate<ViewKey>> + '_ {
        self.table.iter().map(|KeyEstimate { key, value, lower, upper }| KeyEstimate {
            key: key.key(),
            value,
            lower,
            upper,
        })
    }

    /// The bounds of any prefix.
    pub fn look_up(&self, hash: &KeyedHash, key: &ViewKey) -> KeyEstimate<ViewKey> {
        let prefix = Prefix::of(key);
        let KeyEstimate { key: _, value, lower, upper } = self.table.look_up(prefix.hash(hash), &prefix);
        KeyEstimate { key: *key, value, lower, upper }
    }

    /// Merges all of these into this one.
    ///
    /// # Errors
    ///
    /// One of them was built differently.
    pub fn merge_all(&mut self, others: &[&Self], hash: &KeyedHash) -> Result<(), MergeError> {
        for other in others {
            for (prefix, tally) in other.prefixes.iter().zip(&other.tallies).take(other.waiting) {
                self.add(hash, *prefix, *tally);
            }
        }
        let tables: Vec<_> = others.iter().map(|other| &other.table).collect();
        self.table.merge_all(&tables, |prefix| prefix.hash(hash), &mut ())
    }

    /// Empties it; every page stays resident.
    pub fn clear(&mut self) {
        self.table.clear();
        self.waiting = 0;
        self.is_finished = false;
    }

    /// Prepares an empty sketch for hashes of another key, with these coins and places.
    pub const fn rekey(&mut self, key_id: u64, coins: u64, places: u64) {
        self.table.rekey(key_id, coins, places);
    }

    /// The memory that it takes, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + size_of_val(&self.prefixes) + size_of_val(&self.tallies)
    }
}

/// Adds the traffic that a list of addresses does not hold to the prefixes of the addresses.
pub struct RestOfAddresses<'a, F> {
    prefixes: &'a mut Prefixes,
    hash: &'a KeyedHash,
    key: F,
    tallies: &'a [Packed<Tally>],
}

impl<F: Fn(usize) -> ViewKey> Rest<ViewKey, Tally> for RestOfAddresses<'_, F> {
    #[inline(always)]
    fn unlisted(&mut self, first: usize, mut keys: u64) {
        while keys != 0 {
            let nth = first + keys.trailing_zeros() as usize;
            keys &= keys - 1;
            self.prefixes.add(self.hash, Prefix::of(&(self.key)(nth)), self.tallies[nth]);
        }
    }

    #[inline(always)]
    fn leaves(&mut self, key: &ViewKey, tally: Tally) {
        self.prefixes.add(self.hash, Prefix::of(key), tally.into());
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        net::{IpAddr, Ipv4Addr, Ipv6Addr},
    };

    use weir_common::{
        flow::{FlowKey, class},
        record::Record,
        size::size_class,
    };
    use weir_config::{
        Config, Estimates,
        view::{Side, Standard, lengths::network},
    };
    use weir_datapath::edge::Edge;
    use weir_sketch::{
        Seen,
        hash::{Key, mix},
    };

    use super::*;
    use crate::{
        beyond::RankedPrefix, closed::Closed, new_flows::FilterState, question::Views, ranking::Ranked, shard::Shard,
        summary::Summary,
    };

    const KEY: Key = Key([1, 2]);

    #[test]
    fn a_window_that_is_read_again_has_the_same_numbers() {
        let (key, hash) = (Key([5, 6]), KeyedHash::new(Key([5, 6])));
        let mut prefixes = Prefixes::new(0.01, 64, key.id());
        let tally = Tally::new(3, 300);
        let held = KeyEstimate { key: Prefix::default().key(), lower: tally, value: tally, upper: tally };
        for _ in 0..2 {
            prefixes.finish(&hash, [held].into_iter());
            assert!(prefixes.iter().map(|held| held.lower).eq([tally]));
        }
        prefixes.clear();
        prefixes.finish(&hash, [held].into_iter());
        assert!(prefixes.iter().map(|held| held.lower).eq([tally]), "the next window begins anew");
    }

    #[test]
    fn prefixes_equal_those_of_the_users_views() {
        for (ip, prefix) in [
            ("192.0.2.77", "192.0.2.0/24"),
            ("255.255.255.255", "255.255.255.0/24"),
            ("0.0.0.9", "0.0.0.0/24"),
            ("2001:db8:1:2:3::4", "2001:db8:1::/48"),
            ("ffff:ffff:ffff:ffff::", "ffff:ffff:ffff::/48"),
            ("::1", "::/48"),
            ("0:0:ffff:c000:200::", "0:0:ffff::/48"),
        ] {
            let ip: IpAddr = ip.parse().unwrap();
            let of = Prefix::new(ip.into(), ip.is_ipv6());
            assert_eq!((of.to_string(), Prefix::of(&of.key())), (prefix.to_owned(), of), "{ip}");
            let Address([high, low]) = network(ip, Lengths::PREFIX).into();
            assert_eq!(of.key(), ViewKey([high, low, 0, 0, u64::from(ip.is_ipv6()) << 63]), "{ip}");
        }
    }

    /// Records of addresses in this many prefixes of each IP version.
    fn records(count: u64, prefixes: u64, seed: u64) -> Vec<Record> {
        let record = |nth| {
            let random = |what: u64| mix(seed << 48 ^ nth << 3 ^ what);
            // The first prefixes, and the first hosts in each, have much more than the others.
            let few = |what, of: u64| (of as f64 * (random(what) as f64 / u64::MAX as f64).powi(3)) as u64 % of;
            let is_v6 = random(0).is_multiple_of(3);
            let address = |what: u64| -> IpAddr {
                let (prefix, host) = (few(what, prefixes), few(what + 1, 200));
                match is_v6 {
                    false => Ipv4Addr::from_bits((prefix as u32) << 8 | host as u32).into(),
                    true => Ipv6Addr::from_bits(u128::from(prefix) << 80 | u128::from(host)).into(),
                }
            };
            let key = FlowKey::new(address(1).into(), address(3).into(), 17, if is_v6 { class::V6 } else { 0 });
            Record {
                key,
                packets: 1 + (nth % 3) as u32,
                bytes: 60 + random(5) % 1_400,
                sampling: 1,
                ..Record::default()
            }
        };
        (0..count).map(record).collect()
    }

    fn truth(records: &[Record], side: Side) -> BTreeMap<Prefix, Tally> {
        let mut truth = BTreeMap::<_, Tally>::new();
        for record in records {
            let address = if side == Side::Src { record.key.src } else { record.key.dst };
            truth.entry(Prefix::new(address, record.key.is_v6())).or_default().add(record.tally());
        }
        truth
    }

    fn plan(standard: &[Standard], top: usize) -> (Config, std::sync::Arc<Views>) {
        let estimates = Estimates { top_error: 0.01, top_candidates: 512, ..Estimates::default() };
        let mut config = Config { standard_views: standard.to_vec(), estimates, ..Config::default() };
        config.report.top = top;
        let views = Views::new(&config, 1).unwrap();
        (config, views)
    }

    /// The summary of the records, spread over three workers in turn.
    fn summary(records: &[Record], standard: &[Standard], top: usize) -> (Summary, std::sync::Arc<Views>) {
        let (config, views) = plan(standard, top);
        let seen = Seen::with_capacity(100_000, 0.01, KEY.id()).unwrap();
        let mut window: Vec<Closed> = (0..3)
            .map(|worker| {
                let mut shard = Box::new(Shard::new(&config.estimates, &views, KEY));
                let part: Vec<_> = records.iter().skip(worker).step_by(3).copied().collect();
                for records in part.chunks(100) {
                    shard.absorb(records, &seen);
                }
                shard.settle(&seen);
                let mut edge = Edge::empty(1);
                edge.sizes[size_class(100)] = 1;
                Closed::new(shard, edge)
            })
            .collect();
        let summary = Summary::merge(&mut window, &views, 1, FilterState::steadily(&seen), 0.999).unwrap();
        (summary, views)
    }

    const SIDES: [(Side, Standard, Standard); 2] = [
        (Side::Src, Standard::Sources, Standard::SourcePrefixes),
        (Side::Dst, Standard::Destinations, Standard::DestinationPrefixes),
    ];

    fn rows(summary: &Summary, views: &Views, standard: Standard) -> [Vec<RankedPrefix>; 2] {
        let ranked = summary.views[views.standard(standard).unwrap()].prefixes().unwrap();
        [ranked.by_bytes.clone(), ranked.by_packets.clone()]
    }

    #[test]
    fn every_byte_reaches_its_prefix_once() {
        // Few enough prefixes that each is a candidate from its first record on, and far more addresses than
        // candidates.
        let records = records(60_000, 40, 1);
        for with_lists in [true, false] {
            let standard = SIDES.into_iter().flat_map(|(_, list, prefixes)| [(true, prefixes), (with_lists, list)]);
            let standard: Vec<_> = Standard::ALL
                .into_iter()
                .filter(|one| standard.clone().any(|(is_on, other)| is_on && other == *one))
                .collect();
            let (summary, views) = summary(&records, &standard, 1_000);
            for (side, list, prefixes) in SIDES {
                let truth = truth(&records, side);
                assert_eq!(views.standard(list).is_some(), with_lists);
                let fed_by = views.questions[views.standard(prefixes).unwrap()].fed_by;
                assert_eq!(fed_by, views.standard(list), "lists feed prefixes");
                for rows in rows(&summary, &views, prefixes) {
                    let found: BTreeMap<_, _> = rows.iter().map(|row| (Prefix::of(&row.all.key), row)).collect();
                    assert!(with_lists || found.len() == truth.len(), "{} of {}", found.len(), truth.len());
                    assert!(found.len() > 60, "{}", found.len());
                    for (prefix, RankedPrefix { all, .. }) in found {
                        let Tally { packets, bytes } = truth[&prefix];
                        assert_eq!((all.packets.lower, all.packets.upper), (packets, packets), "{prefix}");
                        assert_eq!((all.bytes.lower, all.bytes.upper), (bytes, bytes), "{prefix}");
                    }
                }
            }
        }
    }

    #[test]
    fn bounds_hold_and_rows_are_ordered_by_unlisted_traffic() {
        // Thousands of prefixes: most are not candidates.
        let records = records(90_000, 3_000, 2);
        let (summary, views) = summary(&records, &Standard::ALL, 30);
        let holds = |estimate: weir_sketch::Estimate, truth: u64| {
            assert!((estimate.lower..=estimate.upper).contains(&truth), "{truth} is not within {estimate:?}");
            assert!((estimate.lower..=estimate.upper).contains(&estimate.value), "{estimate:?}");
        };
        for (side, list, prefixes) in SIDES {
            let truth = truth(&records, side);
            let listed = summary.views[views.standard(list).unwrap()].ranking().unwrap();
            let [by_bytes, by_packets] = rows(&summary, &views, prefixes);
            let mut with_members = 0;
            for (rows, listed) in [(&by_bytes, &listed.by_bytes), (&by_packets, &listed.by_packets)] {
                assert_eq!(rows.len(), 30);
                for RankedPrefix { all, beyond, members } in rows {
                    let prefix = Prefix::of(&all.key);
                    let addresses: BTreeSet<ViewKey> =
                        listed.iter().map(|one| one.key).filter(|key| Prefix::of(key) == prefix).collect();
                    assert_eq!(*members as usize, addresses.len());
                    with_members += usize::from(*members > 0);
                    let others: Tally = records
                        .iter()
                        .filter(|record| {
                            let address = if side == Side::Src { record.key.src } else { record.key.dst };
                            let Address([high, low]) = address;
                            let key = ViewKey([high, low, 0, 0, u64::from(record.key.is_v6()) << 63]);
                            Prefix::of(&key) == prefix && !addresses.contains(&key)
                        })
                        .map(Record::tally)
                        .sum();
                    holds(all.packets, truth[&prefix].packets);
                    holds(all.bytes, truth[&prefix].bytes);
                    holds(beyond.packets, others.packets);
                    holds(beyond.bytes, others.bytes);
                }
            }
            assert!(with_members > 5, "{with_members} rows have listed members");
            assert!(by_bytes.is_sorted_by_key(|row| std::cmp::Reverse(row.beyond.bytes.value)));
            assert!(by_packets.is_sorted_by_key(|row| std::cmp::Reverse(row.beyond.packets.value)));
            let is_of_total = |ranked: &Ranked<ViewKey>| ranked.bytes.upper <= records.iter().map(|r| r.bytes).sum();
            assert!(by_bytes.iter().all(|row| is_of_total(&row.all)));
        }
    }
}
