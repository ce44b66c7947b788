//! The key of each record: packed and hashed, a group of records at a time.
//!
//! [`KeyLayout`] says where a field is in a key. Here keys are made, with a separate loop for each [`Kind`] of key and
//! for each field, so that few decisions are made per record.

mod network;

use std::iter;

use weir_common::{
    flow::{Address, FlowKey},
    hash::FlowHashes,
    record::Record,
};
use weir_config::{
    names::Facts,
    view::{
        FLOW, Field, KeyLayout, Side, Unpackable, ViewKey,
        key::{BITS_MAX, SHARED, WORDS},
        layout::Packed,
    },
};
use weir_sketch::hash::KeyedHash;

pub use self::network::Network;
use crate::fields::{self, FieldLoop};

/// How the keys of a question are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// The layout, which says where each field is in a key.
    pub layout: KeyLayout,
    kind: Kind,
    network: Option<Network>,
}

/// Keys that many views use. They are hashed once for all of these views: see [`FlowHashes`]. Other keys have hashes of
/// their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All fields of a flow.
    Flow,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// Both addresses.
    Pair,
    /// The protocol and the service's port.
    Service,
    /// Both addresses, and the slot of the interface.
    PairOfInterface,
    /// The network of one address.
    Network,
    /// Any other key, with a hash of its own.
    Other,
}

impl Kind {
    /// The key of a record, for kinds that have the same key in all views.
    #[inline(always)]
    pub const fn key(self, key: &FlowKey) -> ViewKey {
        let version = (key.is_v6() as u64) << BITS_MAX;
        let ([a, b], [c, d]) = (key.src.0, key.dst.0);
        ViewKey(match self {
            Self::Flow => [a, b, c, d, key.identity().tail()],
            Self::Source => [a, b, 0, 0, version],
            Self::Destination => [c, d, 0, 0, version],
            Self::Pair => [a, b, c, d, version],
            Self::Service => [0, 0, 0, 0, (key.port() as u64) << 8 | key.proto() as u64],
            Self::PairOfInterface => [a, b, c, d, version | key.interface() as u64],
            Self::Network | Self::Other => [0; WORDS],
        })
    }
}

/// The hash of a key together with the slot of an interface. The hash of the key is uniform, and a shift keeps it
/// uniform: the same key has another hash for each slot, and different keys stay as far apart as before.
#[inline(always)]
pub const fn of_interface(hash: u64, slot: u64) -> u64 {
    // This is a large odd number.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
    hash.wrapping_add(slot.wrapping_mul(STRIDE))
}

impl By {
    /// How keys with these fields are made. `interfaces` is the number of slots in use.
    ///
    /// # Errors
    ///
    /// The fields do not fit into a key.
    pub fn new(fields: &[Field], interfaces: usize) -> Result<Self, Unpackable> {
        let layout = KeyLayout::new(fields, interfaces)?;
        Ok(Self { layout, kind: Kind::of(fields), network: Network::of(fields) })
    }

    /// Returns true if the two addresses of a flow have two different keys. They do not if they are the same, or in the
    /// same network.
    #[inline]
    pub fn has_two_keys(&self, flow: &FlowKey) -> bool {
        self.layout.addresses().iter().any(|(side, lengths)| {
            let mask = lengths.mask(flow.is_v6());
            *side == Side::Host && mask.network(flow.src) != mask.network(flow.dst)
        })
    }

    /// The key of a record. `host` selects which of its addresses is the host.
    pub fn key(&self, record: &Record, host: Side, facts: Facts<'_>) -> ViewKey {
        let mut key = [ViewKey::default()];
        self.write_keys(&mut key, iter::once((record, host)), facts);
        key[0]
    }

    /// Writes the keys of records into `keys`. Each record is paired with the side whose address is the host.
    ///
    /// This works field by field, with one loop for each [`Kind`], so that few decisions are made per record.
    #[inline]
    pub fn write_keys<'a>(
        &self,
        keys: &mut [ViewKey],
        records: impl Iterator<Item = (&'a Record, Side)> + Clone,
        facts: Facts<'_>,
    ) {
        macro_rules! write {
            ($kind:ident) => {
                keys.iter_mut().zip(records).for_each(|(key, (record, _))| *key = Kind::$kind.key(&record.key))
            };
        }
        match self.kind {
            Kind::Flow => write!(Flow),
            Kind::Source => write!(Source),
            Kind::Destination => write!(Destination),
            Kind::Pair => write!(Pair),
            Kind::Service => write!(Service),
            Kind::PairOfInterface => write!(PairOfInterface),
            Kind::Network | Kind::Other => self.pack_keys(keys, &records, facts),
        }
    }

    /// The field and its number of bits, if the key is this field and the slot of the interface after it. Then the
    /// index of a record's key is read without making the key.
    pub fn narrow(&self) -> Option<Packed> {
        match self.layout.packed() {
            [field, Packed { field: Field::Interface, .. }] if self.layout.addresses().is_empty() => Some(*field),
            _ => None,
        }
    }

    /// The network that forms the key, for [`Kind::Network`].
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// The kind of hash, which it may share with other views.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    #[inline]
    fn pack_keys<'a>(
        &self,
        keys: &mut [ViewKey],
        records: &(impl Iterator<Item = (&'a Record, Side)> + Clone),
        facts: Facts<'_>,
    ) {
        let (addresses, version_bit) = (self.layout.addresses(), self.layout.version_bit());
        if addresses.is_empty() {
            keys.fill(ViewKey::default());
        }
        for (nth, (side, lengths)) in addresses.iter().enumerate() {
            let masks = [false, true].map(|is_v6| lengths.mask(is_v6));
            for (ViewKey(key), (Record { key: flow, .. }, host)) in keys.iter_mut().zip(records.clone()) {
                let side = if *side == Side::Host { host } else { *side };
                let Address([high, low]) = masks[usize::from(flow.is_v6())].network(side.address(flow));
                let version = u64::from(flow.is_v6()) << version_bit;
                *key = if nth == 0 { [high, low, 0, 0, version] } else { [key[0], key[1], high, low, version] };
            }
        }
        for &Packed { field, shift, .. } in self.layout.packed() {
            fields::run(field, facts, Pack { keys, records: records.clone().map(|(record, _)| record), shift });
        }
    }

    /// The hash of a record's key. `hashes` are the hashes of the record's flow.
    #[inline]
    pub fn hash(&self, hash: &KeyedHash, key: &ViewKey, hashes: &FlowHashes) -> u64 {
        let mut one = [0];
        self.write_hashes(&mut one, hash, &[*key], iter::once(hashes));
        one[0]
    }

    /// Writes the hashes of keys into `out`, with one loop for each [`Kind`].
    #[inline]
    pub fn write_hashes<'a>(
        &self,
        out: &mut [u64],
        hash: &KeyedHash,
        keys: &[ViewKey],
        flows: impl Iterator<Item = &'a FlowHashes>,
    ) {
        macro_rules! share {
            ($part:ident) => {
                out.iter_mut().zip(flows).for_each(|(out, hashes)| *out = hashes.$part)
            };
        }
        macro_rules! words {
            ($($word:expr),+) => {
                out.iter_mut().zip(keys).for_each(|(out, ViewKey(key))| *out = hash.words([$(key[$word]),+]))
            };
        }
        match (self.kind, self.layout.addresses().len()) {
            (Kind::Flow, _) => share!(flow),
            (Kind::Source, _) => share!(source),
            (Kind::Destination, _) => share!(destination),
            (Kind::Pair, _) => share!(pair),
            (Kind::Service, _) => share!(service),
            (Kind::PairOfInterface, _) => {
                for (out, (hashes, ViewKey(key))) in out.iter_mut().zip(flows.zip(keys)) {
                    *out = of_interface(hashes.pair, key[SHARED] & !(1 << BITS_MAX));
                }
            }
            (Kind::Network, _) => out.iter_mut().zip(keys).for_each(|(out, key)| *out = Network::hash(hash, key)),
            // Words that are always 0 need no multiplication.
            (Kind::Other, 0) => words!(SHARED),
            (Kind::Other, 1) => words!(0, 1, SHARED),
            (Kind::Other, _) => words!(0, 1, 2, 3, SHARED),
        }
    }

    /// The hash of a key.
    pub fn hash_of(&self, hash: &KeyedHash, key: &ViewKey) -> u64 {
        self.hash(hash, key, &FlowHashes::new(hash, &self.flow(key)))
    }

    /// A flow with the addresses, the ports and the protocol of a key. What the key does not have is 0.
    pub fn flow(&self, key: &ViewKey) -> FlowKey {
        let [a, b, c, d, shared] = key.0;
        let class = u8::from(shared >> self.layout.version_bit() & 1 == 1);
        match self.kind {
            Kind::Flow => {
                let ports = FlowKey::new(Address([a, b]), Address([c, d]), (shared >> 32) as u8, (shared >> 40) as u8);
                ports.with_both_ports(shared as u32)
            }
            Kind::Service => {
                let port = (shared >> 8) as u16;
                FlowKey::default().with_proto(shared as u8).with_ports(port, port)
            }
            Kind::Destination => FlowKey::new(Address::default(), Address([a, b]), 0, class),
            Kind::Source | Kind::Pair | Kind::PairOfInterface | Kind::Network => {
                FlowKey::new(Address([a, b]), Address([c, d]), 0, class)
            }
            Kind::Other => {
                let number = |field| self.layout.number(key, field).unwrap_or(0);
                let port = number(Field::Port) as u16;
                let [source, destination] = [Field::SrcPort, Field::DstPort].map(|field| number(field) as u16 | port);
                let (mut src, mut dst) = (Address::default(), Address::default());
                for ((side, _), address) in self.layout.addresses().iter().zip([Address([a, b]), Address([c, d])]) {
                    *(if *side == Side::Dst { &mut dst } else { &mut src }) = address;
                }
                FlowKey::new(src, dst, number(Field::Proto) as u8, class).with_ports(source, destination)
            }
        }
    }
}

/// Puts a field into keys.
struct Pack<'k, I> {
    keys: &'k mut [ViewKey],
    records: I,
    shift: u32,
}

impl<'a, I: Iterator<Item = &'a Record>> FieldLoop for Pack<'_, I> {
    type Out = ();

    #[inline(always)]
    fn run(self, number: impl Fn(&Record) -> u64) {
        for (ViewKey(key), record) in self.keys.iter_mut().zip(self.records) {
            key[SHARED] |= number(record) << self.shift;
        }
    }
}

impl Kind {
    fn of(fields: &[Field]) -> Self {
        const SOURCE: Field = FLOW[0];
        const DESTINATION: Field = FLOW[1];
        match fields {
            [SOURCE] => Self::Source,
            [DESTINATION] => Self::Destination,
            [SOURCE, DESTINATION] => Self::Pair,
            [SOURCE, DESTINATION, Field::Interface] => Self::PairOfInterface,
            [Field::Proto, Field::Port] => Self::Service,
            flow if *flow == FLOW => Self::Flow,
            fields if Network::of(fields).is_some() => Self::Network,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, fmt::Write as _};

    use serde_json::{Value, json};
    use weir_common::flow::{Scope, class};
    use weir_config::{
        interface::{Directions, Way},
        names::{Geo, Networks},
        view::lengths::network,
    };
    use weir_sketch::hash::{Key, mix};

    use super::*;

    /// Reads the field of one record.
    struct Of<'r>(&'r Record);

    impl FieldLoop for Of<'_> {
        type Out = u64;

        fn run(self, number: impl Fn(&Record) -> u64) -> u64 {
            number(self.0)
        }
    }

    fn networks() -> Networks {
        Networks::new(&[])
    }

    /// A record in which every field has a different value.
    fn record(seed: u64, is_v6: bool) -> Record {
        let random = |nth: u64| mix(seed ^ nth << 32);
        let address = |nth| match is_v6 {
            true => Address([random(nth), random(nth + 1)]),
            false => Address::from_v4_word(random(nth) as u32),
        };
        let class = if is_v6 { class::V6 } else { 0 } | if random(9) & 1 == 1 { class::FRAGMENT } else { 0 };
        let key = FlowKey::new(address(1), address(3), random(5) as u8, class)
            .with_both_ports(random(6) as u32)
            .with_scope(Scope::new(random(7) as u8 & 7, 3));
        let (tos, tcp_flags, vlan) = (random(8) as u8, random(10) as u8, random(11) as u16 & 0xfff);
        Record { key, tos, tcp_flags, vlan, packets: 1, bytes: 60, sampling: 1, ..Record::default() }
    }

    #[test]
    fn fields_can_be_read_back_from_a_key() {
        let (networks, geo) = (networks(), Geo::default());
        let directions = Directions::default();
        directions.set(1, Some(Way::Ingress));
        directions.set(2, Some(Way::Egress));
        let facts = Facts { networks: &networks, geo: &geo, directions: &directions };
        let parse = |names: &[&str]| names.iter().map(|name| Field::parse(name).unwrap()).collect::<Vec<_>>();
        let lists = [
            parse(&["src_ip"]),
            parse(&["dst_ip"]),
            parse(&["dst_ip", "src_ip"]),
            parse(&["src_ip", "dst_ip"]),
            parse(&["src_ip", "dst_ip", "src_port", "dst_port", "proto"]),
            parse(&["proto", "port"]),
            parse(&["src_ip", "dst_ip", "interface"]),
            parse(&["vlan", "dscp", "ecn", "fragment", "ip_version", "tcp_flags", "interface", "proto"]),
            parse(&["src_port", "dst_ip", "tcp_flags", "dst_port"]),
            parse(&["dst_ip/20/44", "interface", "src_ip/8"]),
            parse(&["src_ip/24"]),
            parse(&["dst_ip/0/128"]),
            parse(&["host/12"]),
            parse(&["direction"]),
            parse(&["interface", "direction", "src_ip"]),
            parse(&["ip_version", "interface"]),
            parse(&["proto", "interface"]),
            parse(&["dscp", "interface"]),
            parse(&["host", "proto"]),
        ];
        for fields in lists {
            let by = By::new(&fields, 8).unwrap();
            for seed in 0..200 {
                let record = record(seed, seed % 2 == 0);
                let key = by.key(&record, Side::Src, facts);
                let index = |Packed { field, bits, .. }| {
                    let number = fields::run(field, facts, Of(&record)) as usize;
                    usize::from(record.key.interface()) << bits | number
                };
                assert_eq!(by.narrow().is_some(), fields.len() == 2 && fields[1] == Field::Interface);
                assert!(by.narrow().is_none_or(|narrow| index(narrow) == KeyLayout::index(&key)), "{fields:?}");
                let shown = by.layout.show(&key, facts, |slot, shown| {
                    shown.insert("interface".to_owned(), json!(slot));
                });
                let ways = [None, Some("ingress"), Some("egress")];
                let way = ways.get(usize::from(record.key.interface())).copied().flatten();
                let has_direction = fields.contains(&Field::Direction);
                assert_eq!(shown.len(), fields.len() - usize::from(has_direction && way.is_none()));
                if has_direction {
                    assert_eq!(shown.get("direction"), way.map(|way| json!(way)).as_ref());
                }
                for field in fields.iter().filter(|field| **field != Field::Direction) {
                    let expected = match field {
                        Field::Ip(side, lengths) => {
                            let ip = if *side == Side::Dst { record.key.dst_ip() } else { record.key.src_ip() };
                            let (network, length) = (network(ip, *lengths), lengths.of(ip.is_ipv6()));
                            let is_whole = length == if ip.is_ipv6() { 128 } else { 32 };
                            json!(if is_whole { ip.to_string() } else { format!("{network}/{length}") })
                        }
                        Field::Interface => json!(record.key.interface()),
                        field => field.row().show(fields::run(*field, facts, Of(&record)), facts),
                    };
                    assert_eq!(shown[field.name()], expected, "{field} of {fields:?}");
                }
                let (mut written, mut words) = (String::new(), Vec::new());
                by.layout.write(&key, facts, |slot, out| _ = write!(out, "{slot}"), &mut written);
                for field in &fields {
                    words.push(match shown.get(field.name()) {
                        None => "-".to_owned(),
                        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
                        Some(Value::String(text)) => text.replace(char::is_whitespace, "_"),
                        Some(other) => other.to_string(),
                    });
                }
                let words = if fields.is_empty() { "*".to_owned() } else { words.join(" ") };
                assert_eq!(written, words, "{fields:?}");
                let is_network =
                    matches!(fields[..], [Field::Ip(Side::Src | Side::Dst, lengths)] if !lengths.is_whole());
                assert_eq!(by.network().is_some(), is_network, "{fields:?}");
                assert!(by.network().is_none_or(|network| network.key(&record.key) == key), "{fields:?}");
                let hash = KeyedHash::new(Key([1, 2]));
                let hashes = FlowHashes::new(&hash, &record.key);
                assert_eq!(by.hash(&hash, &key, &hashes), by.hash_of(&hash, &key), "{fields:?}");
            }
            // Processing all records together gives the same result as one by one.
            let records: Vec<_> =
                (0..7).map(|seed| (record(seed, seed % 3 == 0), [Side::Src, Side::Dst][seed as usize % 2])).collect();
            let mut keys = [ViewKey([u64::MAX; WORDS]); 7];
            by.write_keys(&mut keys, records.iter().map(|(record, host)| (record, *host)), facts);
            for (key, (record, host)) in keys.iter().zip(&records) {
                assert_eq!(*key, by.key(record, *host, facts), "{fields:?}");
            }
        }
    }

    #[test]
    fn a_flow_has_what_its_key_has_of_addresses_ports_and_protocol() {
        let (networks, geo, directions) = (networks(), Geo::default(), Directions::default());
        let facts = Facts { networks: &networks, geo: &geo, directions: &directions };
        for names in [
            &["src_ip", "dst_ip", "src_port", "dst_port", "proto"][..],
            &["src_ip"],
            &["dst_ip"],
            &["src_ip", "dst_ip"],
            &["proto", "dst_port"],
            &["src_port"],
            &["dst_ip", "proto", "dst_port"],
            &["vlan", "src_ip", "src_port", "proto"],
        ] {
            let by = By::new(&names.iter().map(|name| Field::parse(name).unwrap()).collect::<Vec<_>>(), 8).unwrap();
            for record in (1..50).map(|seed| record(seed, seed % 2 == 0)) {
                let (of, flow) = (record.key, by.flow(&by.key(&record, Side::Src, facts)));
                let has = |name: &str| names.contains(&name);
                assert_eq!(flow.src_ip() == of.src_ip(), has("src_ip"), "{names:?}: {flow:?} of {of:?}");
                assert_eq!(flow.dst_ip() == of.dst_ip(), has("dst_ip"), "{names:?}: {flow:?} of {of:?}");
                for (name, found, truth) in [
                    ("src_port", flow.src_port(), of.src_port()),
                    ("dst_port", flow.dst_port(), of.dst_port()),
                    ("proto", flow.proto().into(), of.proto().into()),
                ] {
                    assert_eq!(found, if has(name) { truth } else { 0 }, "{names:?}: {name}");
                }
            }
        }
    }

    #[test]
    fn different_keys_have_different_hashes() {
        let (networks, geo, directions) = (networks(), Geo::default(), Directions::default());
        let facts = Facts { networks: &networks, geo: &geo, directions: &directions };
        let hash = KeyedHash::new(Key([1, 2]));
        for names in
            [&["src_ip/24/96"][..], &["dst_ip/24/96"], &["src_ip/0/48"], &["src_ip", "interface"], &["proto", "port"]]
        {
            let by = By::new(&names.iter().map(|name| Field::parse(name).unwrap()).collect::<Vec<_>>(), 8).unwrap();
            let keys: Vec<_> = (0..2_000).map(|seed| by.key(&record(seed, seed % 2 == 0), Side::Src, facts)).collect();
            let different: HashSet<_> = keys.iter().map(|key| key.0).collect();
            let hashes: HashSet<_> = keys.iter().map(|key| by.hash_of(&hash, key)).collect();
            assert!(different.len() > 900 && hashes.len() == different.len(), "{names:?}: {}", hashes.len());
        }
        // The same bits in both IP versions are two different keys.
        let by = By::new(&[Field::parse("src_ip/24/96").unwrap()], 8).unwrap();
        let [v4, v6] = [0, class::V6].map(|class| {
            let key = FlowKey::new(Address([0, 0xffff_0102_0300]), Address([0, 0]), 6, class);
            by.hash_of(&hash, &by.key(&Record { key, ..Record::default() }, Side::Src, facts))
        });
        assert_ne!(v4, v6);
    }

    #[test]
    fn too_many_fields_are_refused_and_small_domains_are_counted() {
        let by =
            |names: &[&str]| By::new(&names.iter().map(|name| Field::parse(name).unwrap()).collect::<Vec<_>>(), 256);
        assert_eq!(by(&["src_ip", "dst_ip", "src_ip/24"]).unwrap_err(), Unpackable::Addresses);
        assert_eq!(by(&["src_port", "dst_port", "port", "vlan", "proto"]).unwrap_err(), Unpackable::Bits(68));
        assert_eq!(by(&["src_port", "dst_port", "port", "vlan", "ecn"]).unwrap().layout.domain(), None);
        let domain = |names: &[&str]| by(names).unwrap().layout.domain();
        assert_eq!(
            [&["proto"][..], &["port"], &["interface", "proto"], &["direction"]].map(domain),
            [Some(256), Some(65_536), Some(65_536), Some(4)]
        );
        assert_eq!([&["proto", "port"][..], &["src_ip"], &["src_ip/8"]].map(domain), [None; 3]);
    }
}
