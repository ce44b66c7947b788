//! A Bloom filter of the addresses of a block, so that a block is opened only where an address may be.
//!
//! ```text
//! magic (8) | bytes of the rest (4) | CRC-32 of the rest (4) | key (16) | the image of the filter
//! ```
//!
//! Each filter has a random key of its own, which never leaves the machine.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr},
};

use serde_json::Value;
use weir_schema::{KeyAnswer, ListKey, Tally, Top};
use weir_sketch::{
    Bloom, Image,
    hash::{Key, sip},
};

use crate::block::Kept;

const MAGIC: [u8; 8] = *b"weirflt1";
const HEAD: usize = 16;
const KEY: usize = 16;
/// How often a block is opened in vain.
const FALSE_POSITIVE_RATE: f64 = 0.002;
/// The largest filter that is read, in bytes.
const FILTER_MAX: usize = 1 << 20;

/// The addresses of a block.
#[derive(Debug)]
pub struct Filter {
    key: Key,
    bloom: Bloom,
}

impl Filter {
    /// The addresses in the lists and views of these windows. `None` if the system has no random numbers for its key.
    pub fn of(kept: &[Kept]) -> Option<Self> {
        let addresses = addresses(kept);
        let key = Key::random().ok()?;
        let mut bloom = Bloom::with_capacity(addresses.len() as u64, FALSE_POSITIVE_RATE, key.id()).ok()?;
        for address in addresses {
            bloom.insert(hash(key, address));
        }
        Some(Self { key, bloom })
    }

    /// Returns true if an address may be in the block.
    pub fn may_have(&self, address: IpAddr) -> bool {
        self.bloom.contains(hash(self.key, address))
    }

    /// The filter in its format on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Key([low, high]) = self.key;
        let rest = [&low.to_le_bytes()[..], &high.to_le_bytes(), &self.bloom.to_image()].concat();
        let mut bytes = MAGIC.to_vec();
        bytes.extend((rest.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&rest).to_le_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Reads the filter at the start of these bytes. Returns it and the remaining bytes; `None` if there is no valid
    /// one.
    pub fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let (content, rest) = rest.split_at_checked(word(8)? as usize)?;
        if head[..8] != MAGIC || crc32fast::hash(content) != word(12)? {
            return None;
        }
        let (key, image) = content.split_at_checked(KEY)?;
        let half = |at: usize| key[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let key = Key([half(0)?, half(8)?]);
        Some((Self { key, bloom: Bloom::from_image(image, FILTER_MAX).ok()? }, rest))
    }
}

fn hash(key: Key, address: IpAddr) -> u64 {
    let v6 = match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    sip(key, &v6.octets())
}

/// All addresses that have a row.
fn addresses(kept: &[Kept]) -> HashSet<IpAddr> {
    let mut all = HashSet::new();
    for union in kept.iter().map(|kept| &kept.union) {
        let lists = [&union.top, &union.top_by_packets].into_iter().flat_map(Top::lists);
        for row in lists.flat_map(|list| list.rows) {
            all.extend(
                [row.key.host, row.key.src_ip, row.key.dst_ip].into_iter().flatten().map(|ip| ip.to_canonical()),
            );
        }
        let tables = |view: &weir_schema::View| {
            let tables = view.tables.clone().into_iter().flatten().flat_map(|table| table.rows);
            view.rows.clone().into_iter().flatten().chain(tables).collect::<Vec<_>>()
        };
        for row in union.views.iter().flat_map(tables) {
            let texts = row.key.values().filter_map(Value::as_str);
            all.extend(texts.filter_map(|text| text.parse::<IpAddr>().ok()).map(|ip| ip.to_canonical()));
        }
    }
    all
}

/// The most that a source without a row had in these windows together, and a destination.
pub fn unlisted(kept: &[Kept]) -> [Tally; 2] {
    // Packets may have any address, also one that nobody has. So it is one without a row.
    let listed = addresses(kept);
    let without_row = (0xf000_0000..u32::MAX).map(Ipv4Addr::from).find(|ip| !listed.contains(&IpAddr::V4(*ip)));
    let without_row = without_row.unwrap_or(Ipv4Addr::BROADCAST);
    let keys = ["src_ip", "dst_ip"].map(|side| ListKey::parse(&format!("{side}={without_row}"), None).ok());
    keys.map(|key| {
        let mut sum = Tally::default();
        for kept in kept {
            let most = match key.as_ref().map(|key| kept.union.of_key(key)) {
                Some(KeyAnswer::Asked(sums, _)) => sums.at_most,
                _ => Tally { packets: kept.past.packets, bytes: kept.past.bytes },
            };
            sum.packets = sum.packets.saturating_add(most.packets);
            sum.bytes = sum.bytes.saturating_add(most.bytes);
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        testing::{ROWS, report},
        windows::of_report,
    };

    /// Whoever sends from the address that is looked up may have few bytes in many packets.
    #[test]
    fn no_packet_lowers_what_an_unlisted_key_may_have() {
        for source in [u32::MAX, 0, 0xf000_0000] {
            let others: Vec<_> = (0..100).map(|nth| (0x0b00_0000 + nth, 1_000)).collect();
            let mut report = report(0, &others);
            let row = weir_schema::TopSource {
                src_ip: Ipv4Addr::from(source).into(),
                bytes: weir_schema::Estimate { value: 5_000, lower: 5_000, upper: 5_000, sampled: None },
                ..report.top_by_packets.sources[0]
            };
            report.top_by_packets.sources.insert(0, row);
            let [of_source, _] = unlisted(&[of_report(&report, ROWS)]);
            assert!(of_source.bytes >= 100_000 && of_source.packets >= 1_000, "{source}: {of_source:?}");
        }
    }

    #[test]
    fn every_address_of_a_block_is_found_and_hardly_any_other() {
        let kept: Vec<_> = (0..30)
            .map(|nth| of_report(&report(nth, &[(0x0a00_0001, 5), (0x0a00_0100 + nth as u32, 1)]), ROWS))
            .collect();
        let bytes = [Filter::of(&kept).unwrap().to_bytes(), b"more".to_vec()].concat();
        let (filter, rest) = Filter::read(&bytes).unwrap();
        assert_eq!(rest, b"more");
        assert!(addresses(&kept).len() > 31 && addresses(&kept).into_iter().all(|address| filter.may_have(address)));
        assert!(filter.may_have("::ffff:10.0.0.1".parse().unwrap()), "the same address");
        let others = (0..10_000_u32).filter(|nth| filter.may_have(Ipv4Addr::from(0xc000_0000 + nth).into()));
        assert!(others.count() < 100);
        for at in [0, 9, 13, 20, bytes.len() - 10] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Filter::read(&damaged).is_none_or(|(filter, _)| !filter.may_have("10.0.0.1".parse().unwrap())));
        }
    }
}
