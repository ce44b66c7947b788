//! Finds the network of an address by longest prefix match.
//!
//! When the configuration is read, all prefixes become ranges that do not overlap, each with its network. A lookup then
//! only searches for the last range that starts at or before the address.
//!
//! This is not a crate, because `prefix-trie` 0.10, which is well maintained, took about seven times as long in the
//! same run, with ten prefixes and with 100,000: it descends bit by bit. `scripts/bench networks` measures this.

use std::{
    iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use weir_common::flow::Address;

use super::{Network, Prefix};

/// The names of addresses. It is built from the configuration and never modified.
#[derive(Clone, Debug)]
pub struct Networks {
    names: Vec<String>,
    /// True at the ids of the operator's own networks. There is an entry for every possible id, so that no index is out
    /// of bounds.
    own: [bool; IDS],
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

const IDS: usize = u8::MAX as usize + 1;

/// The direction of packets relative to the operator's own networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Packets to an own address.
    In,
    /// Packets from an own address.
    Out,
    /// Neither address is own.
    Transit,
    /// Packets from one own address to another.
    Internal,
}

impl Scope {
    /// All scopes, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::In, Self::Out, Self::Transit, Self::Internal];

    /// Returns the name in the configuration and in reports.
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
    /// The id for addresses in no network. The networks count from 1, in the order of the configuration.
    pub const NONE: u8 = 0;

    /// Creates one unnamed network with these prefixes.
    pub fn of_prefixes(prefixes: &[Prefix]) -> Self {
        let (name, prefixes) = (String::new(), prefixes.to_vec());
        Self::new(&[Network { name, prefixes, file: None, own: false }])
    }

    /// Creates the networks of a configuration. One byte distinguishes 255; further networks are left out.
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

    /// The id of the network that has the longest matching prefix. `is_v6` is the IP version of the packet: an IPv6
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

    /// The id of the network with this name.
    pub fn id(&self, name: &str) -> Option<u8> {
        let index = self.names.iter().position(|known| known == name)?;
        u8::try_from(index + 1).ok()
    }

    /// Returns true if the network with this id is the operator's own.
    pub const fn is_own(&self, id: u8) -> bool {
        self.own[id as usize]
    }

    /// Calls `each` with the first address of each range of addresses in one network, and the id of that network: the
    /// ranges of IPv4, and then those of IPv6, each in ascending order. Neighbouring ranges have different ids.
    pub fn each_range(&self, mut each: impl FnMut(IpAddr, u8)) {
        for (first, id) in self.v4.all() {
            each(Ipv4Addr::from_bits(first).into(), id);
        }
        for (first, id) in self.v6.all() {
            each(Ipv6Addr::from_bits(first).into(), id);
        }
    }

    /// The number of networks. Their ids are 1 to this number.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if no network is named.
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

    /// The memory of the tables, in bytes.
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

    /// The distance from `base` to this number, in units of 2^`shift`; 0 if this number is below `base`.
    fn steps(self, base: Self, shift: u8) -> u64;

    /// How many bits the distance from `base` to this number needs. `base` must not be above this number.
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

/// Ranges that cover all numbers. A search by their starts finds them.
///
/// A node splits the numbers between its first and its last key into about as many equal parts as it has keys. A part
/// with few keys has their position; a part with more keys has a node of its own. So evenly spread keys need one node,
/// and clustered keys need a few. The keys of a part are compared without branches, so that the processor can overlap
/// several lookups.
#[derive(Clone, Debug)]
struct Ranges<N> {
    /// The nodes. The first one is the root.
    nodes: Vec<Node<N>>,
    /// The parts of all nodes: the index of a part's first key, or [`NODE`] plus the index of a node.
    parts: Vec<u32>,
    /// The first number of each range except the lowest one, sorted, followed by [`KEYS`] times the largest number.
    keys: Vec<N>,
    /// The network of the range below each key, and of the range that starts at the last key: one more than `keys`.
    ids: Vec<u8>,
}

/// A node: its numbers are split into parts of 2^`shift`.
#[derive(Clone, Copy, Debug)]
struct Node<N> {
    /// The first key of the node.
    base: N,
    /// The index of its first part.
    start: u32,
    /// How many parts follow the first part.
    last: u32,
    shift: u8,
}

/// How many keys a part may have. With more keys, the comparisons would take longer than another node.
const KEYS: usize = 4;
/// The minimum number of parts of the first node. With it, a few prefixes rarely need a second node, whose branch the
/// processor cannot predict.
const FIRST_PARTS: usize = 256;
/// Marks a part that has its own node. The number of keys and nodes is far below this.
const NODE: u32 = 1 << 31;

impl<N: Number> Ranges<N> {
    fn new(spans: Vec<Span<N>>) -> Self {
        let (firsts, ids) = flatten(spans);
        let keys = firsts[1..].to_vec();
        let mut ranges = Self { nodes: Vec::new(), parts: Vec::new(), keys, ids };
        ranges.split(0, ranges.keys.len(), FIRST_PARTS);
        // The last part needs enough keys to compare. The added keys can match the largest number, so they need ids.
        ranges.keys.extend([N::MAX; KEYS]);
        ranges.ids.extend(iter::repeat_n(*ranges.ids.last().unwrap_or(&Networks::NONE), KEYS));
        ranges.nodes.shrink_to_fit();
        ranges.parts.shrink_to_fit();
        ranges
    }

    /// Creates a node for some keys, and the nodes below it. Each level consumes at least three bits of the numbers.
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
                // Keys after this part are above the number, so comparing them, too, changes nothing.
                let keys = &self.keys[first..first + KEYS];
                let below: usize = keys.iter().map(|key| usize::from(*key <= number)).sum();
                return self.ids[first + below];
            }
            node = &self.nodes[(part & !NODE) as usize];
        }
    }

    /// The first number of each range, and its id.
    fn all(&self) -> impl Iterator<Item = (N, u8)> {
        let firsts = iter::once(N::MIN).chain(self.keys[..self.keys.len() - KEYS].iter().copied());
        firsts.zip(self.ids.iter().copied())
    }

    fn memory_bytes(&self) -> usize {
        let Self { nodes, parts, keys, ids } = self;
        size_of_val(nodes.as_slice()) + size_of_val(parts.as_slice()) + size_of_val(keys.as_slice()) + ids.len()
    }
}

/// The first number of each range, from the smallest number on, and its id. If two spans overlap, one contains the
/// other, and the inner one decides.
fn flatten<N: Number>(mut spans: Vec<Span<N>>) -> (Vec<N>, Vec<u8>) {
    // Sort each span after the spans that contain it.
    spans.sort_unstable_by(|one, other| one.first.cmp(&other.first).then(other.last.cmp(&one.last)));
    let (mut firsts, mut ids) = (vec![N::MIN], vec![Networks::NONE]);
    let mut begin = |first: N, id: u8| {
        if firsts.last() == Some(&first) {
            firsts.pop();
            ids.pop();
        }
        // Two adjacent ranges with the same id become one.
        if ids.last() != Some(&id) {
            firsts.push(first);
            ids.push(id);
        }
    };
    // The spans that contain the last number, the smallest span last.
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
mod tests;
