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

/// The network of an address, found by checking every prefix.
fn naive(networks: &[Network], address: IpAddr) -> u8 {
    let all = (1..).zip(networks).flat_map(|(id, network)| network.all_prefixes().map(move |prefix| (prefix, id)));
    let around = all.filter(|(prefix, _)| prefix.contains(address));
    around.max_by_key(|(prefix, _)| prefix.length()).map_or(Networks::NONE, |(_, id)| id)
}

/// The addresses at both ends of every prefix, and next to them.
fn edges(networks: &[Network]) -> Vec<IpAddr> {
    let mut edges = Vec::new();
    for end in networks.iter().flat_map(Network::all_prefixes).flat_map(|prefix| [prefix.first(), prefix.last()]) {
        match end {
            IpAddr::V4(v4) => edges
                .extend([-1, 0, 1].map(|step| IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits().wrapping_add_signed(step))))),
            IpAddr::V6(v6) => edges
                .extend([-1, 0, 1].map(|step| IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits().wrapping_add_signed(step))))),
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

    // The networks n1 and n3 are own.
    assert_eq!(networks.scope(2, 1), Scope::In);
    assert_eq!(networks.scope(Networks::NONE, 3), Scope::In);
    assert_eq!(networks.scope(1, Networks::NONE), Scope::Out);
    assert_eq!(networks.scope(2, Networks::NONE), Scope::Transit);
    assert_eq!(networks.scope(1, 3), Scope::Internal);
    assert_eq!(networks.scope(255, 255), Scope::Transit, "an id that no network has");
    assert_eq!(Scope::ALL.map(Scope::name), ["in", "out", "transit", "internal"]);
}

#[test]
fn all_255_networks_have_ids() {
    let config =
        networks(&(0..=255).map(|nth| vec![Prefix::of(Ipv4Addr::new(10, nth, 0, 0).into(), 16)]).collect::<Vec<_>>());
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
fn lookups_agree_with_a_search_of_every_prefix() {
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
        let near: Vec<IpAddr> = within.flat_map(|first| (0..128).step_by(9).map(move |bit| flip(first, bit))).collect();
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
    // Each prefix is the lower or the upper half of the one before: the worst case for equal parts.
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
fn memory_grows_with_the_prefixes() {
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
