//! The cost of finding the network of an address.

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Instant,
};

use anyhow::{Result, ensure};
use weir_common::flow::Address;
use weir_config::names::{Network, Networks, Prefix};
use weir_sketch::hash::mix;

use crate::table::{self, least_and_median, thousands};

const ROUNDS: usize = 101;
/// Addresses of a round.
const ADDRESSES: u64 = 1 << 16;
/// Addresses that are also looked up by a simple search.
const CHECKED: usize = 200;
const NETWORKS: usize = 10;

/// A set of prefixes.
struct Case {
    name: &'static str,
    prefixes: u64,
    prefix: fn(u64) -> Prefix,
}

const CASES: [Case; 7] = [
    Case { name: "IPv4, /16 to /32", prefixes: 10, prefix: v4 },
    Case { name: "IPv4, /16 to /32", prefixes: 100_000, prefix: v4 },
    Case { name: "IPv4, single addresses", prefixes: 1_000_000, prefix: v4_host },
    Case { name: "IPv6, /32 to /64", prefixes: 10, prefix: v6 },
    Case { name: "IPv6, /32 to /64", prefixes: 100_000, prefix: v6 },
    Case { name: "IPv6, /56 in one /32, and fe80::/10", prefixes: 100_000, prefix: v6_customers },
    Case { name: "IPv6, single addresses", prefixes: 1_000_000, prefix: v6_host },
];

fn v4(random: u64) -> Prefix {
    Prefix::of(Ipv4Addr::from_bits(mix(random) as u32).into(), 16 + (random % 17) as u8)
}

fn v4_host(random: u64) -> Prefix {
    Prefix::of(Ipv4Addr::from_bits(mix(random) as u32).into(), 32)
}

/// Returns a prefix anywhere in `2000::/3`.
fn v6(random: u64) -> Prefix {
    Prefix::of(v6_address(1 << 61 | mix(random) >> 3, 0), [32, 36, 40, 44, 48, 48, 48, 56, 64][random as usize % 9])
}

fn v6_customers(random: u64) -> Prefix {
    match random % 1000 {
        0 => Prefix::of(v6_address(0xfe80 << 48, 0), 10),
        _ => Prefix::of(v6_address(0x2001_0db8 << 32 | mix(random) >> 32, 0), 56),
    }
}

fn v6_host(random: u64) -> Prefix {
    Prefix::of(v6_address(1 << 61 | mix(random) >> 3, mix(random ^ 1)), 128)
}

fn v6_address(high: u64, low: u64) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into()
}

/// Every second address is in a prefix; the others are anywhere near.
fn address(nth: u64, taken: &[Prefix]) -> IpAddr {
    let random = mix(nth ^ 0xadd7);
    let prefix = taken[(random >> 1) as usize % taken.len()];
    let length = if random & 1 == 0 { u32::from(prefix.length()) } else { 16 };
    match prefix.first() {
        IpAddr::V4(first) => {
            IpAddr::V4(Ipv4Addr::from_bits(first.to_bits() ^ (mix(random) as u32).checked_shr(length).unwrap_or(0)))
        }
        IpAddr::V6(first) => {
            let below = u128::from(mix(random)) << 64 | u128::from(mix(random ^ 1));
            IpAddr::V6(Ipv6Addr::from_bits(first.to_bits() ^ below.checked_shr(length).unwrap_or(0)))
        }
    }
}

/// Measures and prints.
///
/// # Errors
///
/// An answer is wrong.
pub fn bench() -> Result<()> {
    table::say(format!("{}\n", table::machine()?))?;
    let mut rows = Vec::new();
    for Case { name, prefixes, prefix } in CASES {
        let mut taken: Vec<Prefix> = (0..prefixes).map(|nth| prefix(mix(nth))).collect();
        taken.sort_unstable();
        taken.dedup();
        let config: Vec<Network> = (0..NETWORKS)
            .map(|nth| Network {
                name: format!("n{nth}"),
                prefixes: taken.iter().skip(nth).step_by(NETWORKS).copied().collect(),
                file: None,
                own: nth == 0,
            })
            .collect();
        let mut networks = None;
        let built_ms = timed(|| networks = Some(Networks::new(&config))) / 1e6;
        let networks = networks.unwrap_or_else(|| Networks::new(&[]));

        let addresses: Vec<IpAddr> = (0..ADDRESSES).map(|nth| address(nth, &taken)).collect();
        check(&networks, &config, &addresses[..CHECKED])?;
        let is_v6 = addresses[0].is_ipv6();
        let addresses: Vec<Address> = addresses.into_iter().map(Address::from).collect();
        let rounds = (0..ROUNDS).map(|_| {
            let found = || addresses.iter().map(|address| u64::from(networks.of(*address, is_v6))).sum::<u64>();
            timed(|| _ = black_box(found())) / ADDRESSES as f64
        });
        let (least, median) = least_and_median(rounds.collect());
        rows.push([
            name.to_owned(),
            thousands(taken.len() as u64),
            format!("{least:.1}"),
            format!("{median:.1}"),
            thousands(networks.memory_bytes().div_ceil(1 << 10) as u64),
            format!("{built_ms:.1}"),
        ]);
    }
    table::write(["prefixes", "number", "least ns", "median ns", "KiB", "ms to build"], &rows)?;
    table::say(format!(
        "\nNanoseconds per address on one CPU, of {ROUNDS} rounds of {} different addresses, half of them in the smallest \
         prefix that was drawn.\nChecked: {CHECKED} addresses of each kind against a look at every prefix.",
        thousands(ADDRESSES)
    ))
}

/// The nanoseconds that some work takes.
fn timed(work: impl FnOnce()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}

fn check(networks: &Networks, config: &[Network], addresses: &[IpAddr]) -> Result<()> {
    for address in addresses {
        let all = (1..).zip(config).flat_map(|(id, network)| network.all_prefixes().map(move |prefix| (prefix, id)));
        let longest = all.filter(|(prefix, _)| prefix.contains(*address)).max_by_key(|(prefix, _)| prefix.length());
        let (found, truth) = (networks.of((*address).into(), address.is_ipv6()), longest.map_or(0, |(_, id)| id));
        ensure!(found == truth, "{address} is in network {truth}, but {found} was found");
    }
    Ok(())
}
