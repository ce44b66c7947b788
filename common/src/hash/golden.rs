//! Hashes of flows that must be equal on every machine, whatever its byte order.

use core::net::{Ipv4Addr, Ipv6Addr};

use weir_sketch::hash::{Key, KeyedHash, combine};

use super::{FlowHashes, SlotKey, place};
use crate::{
    flow::{Address, FlowKey, class},
    packet::Parsed,
};

const KEY: Key = Key([7, 9]);
const ITEMS: u64 = 100;

/// Combines many words into one; the order matters.
fn digest(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, combine)
}

fn flow(nth: u64) -> FlowKey {
    let address = |last| Address::from(Ipv4Addr::new(192, 0, 2, last));
    FlowKey::new(address(nth as u8), address(!nth as u8), 6, 0).with_ports(nth as u16, 443)
}

fn flow_v6(nth: u64) -> FlowKey {
    let address = |host: u64| Address::from(Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(host)));
    FlowKey::new(address(nth), address(!nth), 17, class::V6).with_ports(443, nth as u16)
}

#[test]
fn hashes_are_the_same_on_every_machine() {
    let key = KeyedHash::new(KEY);
    let of_flows = digest((0..ITEMS).flat_map(|nth| {
        let FlowHashes { source, destination, pair, flow, service } = FlowHashes::new(&key, &flow(nth));
        [source, destination, pair, flow, service]
    }));
    let slot_key = SlotKey::new(KEY);
    let places = |flow: fn(u64) -> FlowKey| digest((0..ITEMS).map(|nth| place(&slot_key, &Parsed::new(flow(nth)))));
    assert_eq!(
        [of_flows, places(flow), places(flow_v6)].map(|digest| std::format!("{digest:016x}")),
        ["5bc7250cef9bd571", "7028cd01c69554fd", "b3f28738b8400280"]
    );
}
