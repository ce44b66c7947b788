//! Finds the network of an address by longest prefix match.
//!
//! When the configuration is read, all prefixes become ranges that do not overlap, each with its network. So a lookup
//! is just a search for the last range that starts at or before the address.
//!
//! Why not a crate: `prefix-trie` 0.10, which is well maintained, took about seven times as long in the same run, with
//! ten prefixes and with 100,000, because it descends bit by bit. `scripts/bench networks` measures this.

use std::{iter, net::IpAddr};

use weir_common::flow::Address;

use super::{Network, Prefix};

/// The names of addresses. Built from the configuration and never modified.
#[derive(Clone, Debug)]
pub struct Networks {
    names: Vec<String>,
    /// By ID, one entry for every possible ID, so that none is out of bounds.
    own: [bool; IDS],
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

const IDS: usize = u8::MAX as usize + 1;

/// The direction of packets relative to the user's own networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// To an own address.
    In,
    /// From an own address.
    Out,
    /// Neither address is own.
    Transit,
    /// From one own address to another.
    Internal,
}

impl Scope {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::In, Self::Out, Self::Transit, Self::Internal];

    /// Its name in the configuration and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Transit => "transit",
            Self::Internal => "internal",
        }
    }
}

impl Networks {
    /// The ID of "in none of them". The others count from 1, in the order of the configuration.
    pub const NONE: u8 = 0;

    /// One unnamed network with these prefixes.
    pub fn of_prefixes(prefixes: &[Prefix]) -> Self {
        let (name, prefixes) = (String::new(), prefixes.to_vec());
        Self::new(&[Network { name, prefixes, file: None, own: false }])
    }

    /// The networks of a configuration. One byte tells 255 apart; any more are left out.
    pub fn new(networks: &[Network]) -> Self {
        let mut own = [false; IDS];
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (id, network) in (1..=u8::MAX).zip(networks) {
            own[usize::from(id)] = network.own;
            for prefix in network.all_prefixes() {
                match (prefix.first(), prefix.last()) {
                    (IpAddr::V4(first), IpAddr::V4(last)) => v4.push(Span::new(first.to_bits(), last.to_bits(), id)),
                    (IpAddr::V6(first), IpAddr::V6(last)) => v6.push(Span::new(first.to_bits(), last.to_bits(), id)),
                    _ => {}
                }
            }
        }
        let names = networks.iter().take(IDS - 1).map(|network| network.name.clone()).collect();
        Self { names, own, v4: Ranges::new(v4), v6: Ranges::new(v6) }
    }

    /// The ID of the network with the longest prefix of an address. `is_v6` gives the IP version of the packet: an IPv6
    /// address that maps an IPv4 address is still IPv6.
    #[inline]
    pub fn of(&self, address: Address, is_v6: bool) -> u8 {
        let [high, low] = address.0.map(u64::from_be);
        if is_v6 { self.v6.id(u128::from(high) << 64 | u128::from(low)) } else { self.v4.id(low as u32) }
    }

    /// The name of a network.
    pub fn name(&self, id: u8) -> Option<&str> {
        let index = usize::from(id).checked_sub(1)?;
        self.names.get(index).map(String::as_str)
    }

    /// The ID of a name.
    pub fn id(&self, name: &str) -> Option<u8> {
        let index = self.names.iter().position(|known| known == name)?;
        u8::try_from(index + 1).ok()
    }

    /// How many there are; their IDs are 1 to this.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The scope of packets, by the networks of their addresses.
    #[inline]
    pub const fn scope(&self, src: u8, dst: u8) -> Scope {
        match (self.own[src as usize], self.own[dst as usize]) {
            (false, true) => Scope::In,
            (true, false) => Scope::Out,
            (false, false) => Scope::Transit,
            (true, true) => Scope::Internal,
        }
    }

    /// The memory of the tables in bytes.
    pub fn memory_bytes(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name.capacity() + size_of::<String>()).sum();
        size_of::<Self>() + names + self.v4.memory_bytes() + self.v6.memory_bytes()
    }
}

/// An address as a number.
trait Number: Copy + Ord {
    const MIN: Self;
    const MAX: Self;

    /// The number after this one, if it is not the last.
    fn next(self) -> Option<Self>;

    /// How far this is above `base`, 0 if it is below, in units of 2^`shift`.
    fn steps(self, base: Self, shift: u8) -> u64;

    /// How many bits the distance to `base` needs; `base` is not above this.
    fn width_above(self, base: Self) -> u32;
}

macro_rules! number {
    ($type:ty) => {
        impl Number for $type {
            const MIN: Self = Self::MIN;
            const MAX: Self = Self::MAX;

            #[inline(always)]
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline(always)]
            fn steps(self, base: Self, shift: u8) -> u64 {
                u64::try_from(self.saturating_sub(base) >> (u32::from(shift) % Self::BITS)).unwrap_or(u64::MAX)
            }

            fn width_above(self, base: Self) -> u32 {
                Self::BITS - (self - base).leading_zeros()
            }
        }
    };
}

number!(u32);
number!(u128);

/// The addresses of a prefix, and its network.
#[derive(Clone, Copy)]
struct Span<N> {
    first: N,
    last: N,
    id: u8,
}

impl<N> Span<N> {
    const fn new(first: N, last: N, id: u8) -> Self {
        Self { first, last, id }
    }
}

/// Ranges that cover all numbers, found by their starts.
///
/// A node splits the numbers between its first and its last key into about as many equal parts as it has keys. A part
/// with few keys tells where they are; one with more keys has a node of its own. So evenly spread keys need one node,
/// and clustered keys a few. The keys of a part are compared without branches, so the processor can overlap several
/// lookups.
#[derive(Clone, Debug)]
struct Ranges<N> {
    /// The first is the root.
    nodes: Vec<Node<N>>,
    /// The parts of all nodes: the index of a part's first key, or [`NODE`] plus the index of a node.
    parts: Vec<u32>,
    /// The first number of each range except the lowest, sorted, then [`KEYS`] times the largest number.
    keys: Vec<N>,
    /// One more than `keys`: the network of the range below each key, and of the range that starts at the last key.
    ids: Vec<u8>,
}

/// A node: its numbers are split into parts of 2^`shift`.
#[derive(Clone, Copy, Debug)]
struct Node<N> {
    /// Its first key.
    base: N,
    /// Its first part.
    start: u32,
    /// How many parts follow the first one.
    last: u32,
    shift: u8,
}

/// Keys per part. With more, the comparisons would take longer than another node.
const KEYS: usize = 4;
/// Minimum number of parts of the first node. With it, a few prefixes rarely need a second node, whose branch the
/// processor cannot predict.
const FIRST_PARTS: usize = 256;
/// Marks a part with its own node. There are far fewer keys and nodes than this.
const NODE: u32 = 1 << 31;

impl<N: Number> Ranges<N> {
    fn new(spans: Vec<Span<N>>) -> Self {
        let (firsts, ids) = flatten(spans);
        let keys = firsts[1..].to_vec();
        let mut ranges = Self { nodes: Vec::new(), parts: Vec::new(), keys, ids };
        ranges.split(0, ranges.keys.len(), FIRST_PARTS);
        // The last part needs enough keys to compare. These keys can match the largest number, so they need IDs.
        ranges.keys.extend([N::MAX; KEYS]);
        ranges.ids.extend(iter::repeat_n(*ranges.ids.last().unwrap_or(&Networks::NONE), KEYS));
        ranges.nodes.shrink_to_fit();
        ranges.parts.shrink_to_fit();
        ranges
    }

    /// Makes a node for some keys, and the nodes below it. Each level consumes at least three bits of the numbers.
    fn split(&mut self, from: usize, to: usize, least_parts: usize) -> u32 {
        let keys = self.keys.get(from..to).unwrap_or_default();
        let (base, end) = (keys.first().map_or(N::MIN, |key| *key), keys.last().map_or(N::MIN, |key| *key));
        let parts_bits = keys.len().max(least_parts).next_power_of_two().trailing_zeros();
        let shift = end.width_above(base).saturating_sub(parts_bits) as u8;
        let last = end.steps(base, shift) as u32;
        let (node, start) = (self.nodes.len() as u32, self.parts.len());
        self.nodes.push(Node { base, start: start as u32, last, shift });
        self.parts.resize(start + last as usize + 1, 0);
        let mut next = from;
        for part in 0..=last {
            let first = next;
            next += self.keys[first..to].iter().take_while(|key| key.steps(base, shift) == u64::from(part)).count();
            let is_small = next - first <= KEYS;
            self.parts[start + part as usize] =
                if is_small { first as u32 } else { NODE | self.split(first, next, KEYS) };
        }
        node
    }

    #[inline]
    fn id(&self, number: N) -> u8 {
        let mut node = &self.nodes[0];
        loop {
            let part = number.steps(node.base, node.shift).min(node.last.into()) as usize;
            let part = self.parts[node.start as usize + part];
            if part & NODE == 0 {
                let first = part as usize;
                // Keys beyond this part are above the number, so comparing them as well changes nothing.
                let keys = &self.keys[first..first + KEYS];
                let below: usize = keys.iter().map(|key| usize::from(*key <= number)).sum();
                return self.ids[first + below];
            }
            node = &self.nodes[(part & !NODE) as usize];
        }
    }

    fn memory_bytes(&self) -> usize {
        let Self { nodes, parts, keys, ids } = self;
        size_of_val(nodes.as_slice()) + size_of_val(parts.as_slice()) + size_of_val(keys.as_slice()) + ids.len()
    }
}

/// The first number of each range, from the smallest number on, and its ID. If two spans overlap, one is inside the
/// other, and the inner one decides.
fn flatten<N: Number>(mut spans: Vec<Span<N>>) -> (Vec<N>, Vec<u8>) {
    // A span comes after the spans that contain it.
    spans.sort_unstable_by(|one, other| one.first.cmp(&other.first).then(other.last.cmp(&one.last)));
    let (mut firsts, mut ids) = (vec![N::MIN], vec![Networks::NONE]);
    let mut begin = |first: N, id: u8| {
        if firsts.last() == Some(&first) {
            firsts.pop();
            ids.pop();
        }
        // Two adjacent ranges with the same ID are one.
        if ids.last() != Some(&id) {
            firsts.push(first);
            ids.push(id);
        }
    };
    // The spans that contain the last number, the smallest last.
    let mut open: Vec<Span<N>> = Vec::new();
    for span in spans.into_iter().map(Some).chain(iter::once(None)) {
        while let Some(ended) = open.pop_if(|ended| span.is_none_or(|span| ended.last < span.first)) {
            if let Some(after) = ended.last.next() {
                begin(after, open.last().map_or(Networks::NONE, |around| around.id));
            }
        }
        if let Some(span) = span {
            begin(span.first, span.id);
            open.push(span);
        }
    }
    firsts.shrink_to_fit();
    ids.shrink_to_fit();
    (firsts, ids)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use weir_sketch::hash::mix;

    use super::*;

    /// Networks n1, n2, ... with these prefixes.
    fn networks(prefixes: &[Vec<Prefix>]) -> Vec<Network> {
        let named = prefixes.iter().zip(1..);
        named
            .map(|(prefixes, nth)| Network {
                name: format!("n{nth}"),
                prefixes: prefixes.clone(),
                file: None,
                own: nth % 2 == 1,
            })
            .collect()
    }

    fn parse(prefixes: &[&[&str]]) -> Vec<Network> {
        let parsed = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        networks(&prefixes.iter().map(parsed).collect::<Vec<_>>())
    }

    fn of(networks: &Networks, address: IpAddr) -> u8 {
        networks.of(address.into(), address.is_ipv6())
    }

    /// The same by checking every prefix.
    fn naive(networks: &[Network], address: IpAddr) -> u8 {
        let all = (1..).zip(networks).flat_map(|(id, network)| network.all_prefixes().map(move |prefix| (prefix, id)));
        let around = all.filter(|(prefix, _)| prefix.contains(address));
        around.max_by_key(|(prefix, _)| prefix.length()).map_or(Networks::NONE, |(_, id)| id)
    }

    /// The addresses at and next to the ends of every prefix.
    fn edges(networks: &[Network]) -> Vec<IpAddr> {
        let mut edges = Vec::new();
        for end in networks.iter().flat_map(Network::all_prefixes).flat_map(|prefix| [prefix.first(), prefix.last()]) {
            match end {
                IpAddr::V4(v4) => edges.extend(
                    [-1, 0, 1].map(|step| IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits().wrapping_add_signed(step)))),
                ),
                IpAddr::V6(v6) => edges.extend(
                    [-1, 0, 1].map(|step| IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits().wrapping_add_signed(step)))),
                ),
            }
        }
        edges
    }

    #[test]
    fn the_longest_prefix_wins() {
        let config = parse(&[
            &["10.0.0.0/8", "::/0", "255.255.255.255"],
            &["10.1.0.0/16", "2001:db8::/32", "0.0.0.0"],
            &["10.1.2.3", "2001:db8::1", "10.1.128.0/17"],
        ]);
        let networks = Networks::new(&config);
        for (address, id) in [
            ("0.0.0.0", 2),
            ("0.0.0.1", 0),
            ("9.255.255.255", 0),
            ("10.0.0.0", 1),
            ("10.0.255.255", 1),
            ("10.1.0.0", 2),
            ("10.1.2.2", 2),
            ("10.1.2.3", 3),
            ("10.1.2.4", 2),
            ("10.1.127.255", 2),
            ("10.1.128.0", 3),
            ("10.1.255.255", 3),
            ("10.2.0.0", 1),
            ("10.255.255.255", 1),
            ("11.0.0.0", 0),
            ("255.255.255.254", 0),
            ("255.255.255.255", 1),
            ("::", 1),
            ("2001:db8::", 2),
            ("2001:db8::1", 3),
            ("2001:db8::2", 2),
            ("2001:db9::", 1),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 1),
        ] {
            assert_eq!(of(&networks, address.parse().unwrap()), id, "{address}");
        }
    }

    #[test]
    fn a_mapped_address_is_not_its_ipv4_address() {
        let networks = Networks::new(&parse(&[&["192.0.2.0/24"], &["::ffff:192.0.2.1"], &["::ffff:0:0/96"]]));
        let address = Address::from(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!((networks.of(address, false), networks.of(address, true)), (1, 2));
        let other = Address::from(Ipv4Addr::new(192, 0, 3, 1));
        assert_eq!((networks.of(other, false), networks.of(other, true)), (Networks::NONE, 3));
    }

    #[test]
    fn without_prefixes_all_addresses_are_in_none() {
        for config in [Vec::new(), parse(&[&[]])] {
            let networks = Networks::new(&config);
            for address in ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"] {
                assert_eq!(of(&networks, address.parse().unwrap()), Networks::NONE);
            }
        }
        let networks = Networks::new(&parse(&[&["0.0.0.0/0"]]));
        for (address, id) in [("0.0.0.0", 1), ("255.255.255.255", 1), ("::", 0)] {
            assert_eq!(of(&networks, address.parse().unwrap()), id);
        }
    }

    #[test]
    fn names_ids_and_scopes() {
        let networks = Networks::new(&parse(&[&["10.0.0.0/8"], &["11.0.0.0/8"], &["12.0.0.0/8"]]));
        assert_eq!((networks.len(), networks.is_empty(), Networks::new(&[]).is_empty()), (3, false, true));
        assert_eq!([0, 1, 3, 4, 255].map(|id| networks.name(id)), [None, Some("n1"), Some("n3"), None, None]);
        assert_eq!(["n1", "n3", "n4", ""].map(|name| networks.id(name)), [Some(1), Some(3), None, None]);

        // n1 and n3 are own.
        assert_eq!(networks.scope(2, 1), Scope::In);
        assert_eq!(networks.scope(Networks::NONE, 3), Scope::In);
        assert_eq!(networks.scope(1, Networks::NONE), Scope::Out);
        assert_eq!(networks.scope(2, Networks::NONE), Scope::Transit);
        assert_eq!(networks.scope(1, 3), Scope::Internal);
        assert_eq!(networks.scope(255, 255), Scope::Transit, "an id that nobody has");
        assert_eq!(Scope::ALL.map(Scope::name), ["in", "out", "transit", "internal"]);
    }

    #[test]
    fn all_255_networks_have_ids() {
        let config = networks(
            &(0..=255).map(|nth| vec![Prefix::of(Ipv4Addr::new(10, nth, 0, 0).into(), 16)]).collect::<Vec<_>>(),
        );
        let networks = Networks::new(&config);
        assert_eq!(networks.len(), 255);
        for nth in 0..=254 {
            assert_eq!(of(&networks, Ipv4Addr::new(10, nth, 7, 7).into()), nth + 1);
        }
        assert_eq!((networks.name(255), networks.id("n255")), (Some("n255"), Some(255)));
        assert_eq!((of(&networks, Ipv4Addr::new(10, 255, 0, 0).into()), networks.id("n256")), (Networks::NONE, None));
    }

    /// A random address. Only `spread` of its highest bits vary, so that prefixes nest.
    fn address(random: u64, v6: bool, spread: u32) -> IpAddr {
        let [high, low] = [mix(random), mix(random ^ 1)];
        if v6 {
            let bits = u128::from(high) << 64 | u128::from(low);
            IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | bits >> spread))
        } else {
            IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 | (high as u32) >> spread))
        }
    }

    #[test]
    fn lookups_agree_with_a_look_at_every_prefix() {
        let mut seed = 0;
        let mut random = move |below: u64| {
            seed += 1;
            mix(seed) % below
        };
        for round in 0..400 {
            let spread = [0, 8, 20, 26][round % 4];
            let mut taken = Vec::new();
            let mut prefixes = vec![Vec::new(); 1 + random(9) as usize];
            for _ in 0..random(120) {
                let v6 = random(2) == 1;
                let length = match (v6, random(4)) {
                    (false, 0) => random(33),
                    (false, _) => 33 - 1 - random(33 - u64::from(spread)),
                    (true, 0) => random(129),
                    (true, _) => 128 - random(96),
                };
                let prefix = Prefix::of(address(random(u64::MAX), v6, spread), length as u8);
                if !taken.contains(&prefix) {
                    taken.push(prefix);
                    let network = random(prefixes.len() as u64) as usize;
                    prefixes[network].push(prefix);
                }
            }
            let config = networks(&prefixes);
            let built = Networks::new(&config);
            let within = taken.iter().map(|prefix| prefix.first());
            let near: Vec<IpAddr> =
                within.flat_map(|first| (0..128).step_by(9).map(move |bit| flip(first, bit))).collect();
            let anywhere = (0..200).map(|nth| address(random(u64::MAX) ^ nth, nth % 2 == 0, spread / 2));
            let far = ["0.0.0.0", "255.255.255.255", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
            let far = far.into_iter().map(|address| address.parse().unwrap());
            for address in edges(&config).into_iter().chain(near).chain(anywhere).chain(far) {
                assert_eq!(of(&built, address), naive(&config, address), "{address} in {prefixes:?}");
            }
        }
    }

    fn flip(address: IpAddr, bit: u32) -> IpAddr {
        match address {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() ^ 1 << (bit % 32))),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() ^ 1 << bit)),
        }
    }

    #[test]
    fn chains_of_nested_prefixes_are_found() {
        // Each is half of the one before, at its lower or its upper end: the worst case for equal parts.
        for upper in [false, true] {
            let bits = if upper { [u32::MAX.into(), u128::MAX] } else { [0; 2] };
            let v4 = (0..=32).map(|length| Prefix::of(Ipv4Addr::from_bits(bits[0] as u32).into(), length));
            let v6 = (0..=128).map(|length| Prefix::of(Ipv6Addr::from_bits(bits[1]).into(), length));
            let config = networks(&v4.chain(v6).map(|prefix| vec![prefix]).collect::<Vec<_>>());
            let built = Networks::new(&config);
            for address in edges(&config) {
                assert_eq!(of(&built, address), naive(&config, address), "{address}");
            }
            assert!(built.memory_bytes() < 64 << 10, "{}", built.memory_bytes());
        }
    }

    #[test]
    fn memory_follows_the_prefixes() {
        let hosts = |count: u32| {
            let prefix = |nth: u32| Prefix::of(Ipv4Addr::from_bits(mix(nth.into()) as u32).into(), 32);
            let prefix6 = |nth: u32| Prefix::of(Ipv6Addr::from_bits(u128::from(mix(nth.into())) << 40).into(), 128);
            Networks::new(&networks(&[(0..count).map(prefix).collect(), (0..count).map(prefix6).collect()]))
        };
        for count in [1000, 20_000] {
            let bytes = hosts(count).memory_bytes() / count as usize;
            assert!((60..100).contains(&bytes), "{bytes} bytes for an IPv4 and an IPv6 address each");
        }
        // Adjacent ranges of one network are one range.
        let neighbours = (0..4096).map(|nth| Prefix::of(Ipv4Addr::from_bits(10 << 24 | nth << 8).into(), 24)).collect();
        assert!(Networks::new(&networks(&[neighbours])).memory_bytes() < 4096);
    }
}
