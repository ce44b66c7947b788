//! The hashes of a flow and of its parts, from one pass over its words.

use super::keyed::{KeyedHash, finish};
use crate::flow::FlowKey;

/// What a flow is counted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHashes {
    /// Its source address.
    pub source: u64,
    /// Its destination address. (Another function than the source's: an address that is both has two hashes.)
    pub destination: u64,
    /// Both addresses, in this order.
    pub pair: u64,
    /// Everything but its scope.
    pub flow: u64,
    /// Its protocol and destination port.
    pub service: u64,
}

impl KeyedHash {
    /// The hashes of a flow and of its parts.
    ///
    /// Each is strongly universal: a sum of products of the part's words with secret numbers. The parts share the
    /// products, so that five hashes take six products. IPv4 and IPv6 addresses of the same bits differ.
    #[inline(always)]
    pub const fn flow(&self, key: &FlowKey) -> FlowHashes {
        let key = key.identity();
        let ([a, b], [c, d]) = (key.src.0, key.dst.0);
        let source = self.product(0, a).wrapping_add(self.product(1, b));
        let destination = self.product(2, c).wrapping_add(self.product(3, d));
        let pair = source.wrapping_add(destination);
        let service = (key.proto() as u64) << 16 | key.dst_port() as u64;
        // The version chooses the offset, which costs no product.
        let version = key.is_v6() as usize;
        FlowHashes {
            source: finish(self.offsets[version].wrapping_add(source)),
            destination: finish(self.offsets[2 + version].wrapping_add(destination)),
            pair: finish(self.offsets[4 + version].wrapping_add(pair)),
            flow: finish(self.offsets[6].wrapping_add(pair).wrapping_add(self.product(4, key.tail()))),
            service: finish(self.offsets[7].wrapping_add(self.product(5, service))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flow::{Address, Scope, class},
        hash::Key,
    };

    #[test]
    fn each_hash_depends_on_its_part_and_on_nothing_else() {
        let hash = KeyedHash::new(Key([1, 2]));
        let (one, other) = (Address([0, 1]), Address([0, 2]));
        let flow = FlowKey::new(one, other, 6, 0).with_ports(1_000, 443);
        let hashes = hash.flow(&flow);
        assert_eq!(hash.flow(&flow.with_scope(Scope::new(3, 9))), hashes, "the scope is no part of it");
        let port = hash.flow(&FlowKey::new(one, other, 6, 0).with_ports(1_001, 443));
        assert_eq!(FlowHashes { flow: hashes.flow, ..port }, hashes);
        assert_ne!(port.flow, hashes.flow);
        let back = hash.flow(&FlowKey::new(other, one, 6, 0).with_ports(1_000, 443));
        assert_eq!(back.service, hashes.service);
        assert!(back.source != hashes.source && back.destination != hashes.destination && back.pair != hashes.pair);
        let v6 = hash.flow(&flow.with_class(class::V6));
        assert!(v6.source != hashes.source && v6.destination != hashes.destination);
        assert!(v6.pair != hashes.pair && v6.flow != hashes.flow);
        let service = hash.flow(&FlowKey::new(one, other, 17, 0).with_ports(1_000, 443));
        assert!(service.service != hashes.service && service.pair == hashes.pair);
    }
}
