//! Finds keys in the past. Blocks on disk whose filter has none of their addresses are not opened.

use std::{net::IpAddr, ops::Range};

use jiff::Timestamp;
use weir_config::Addresses;
use weir_schema::{Blocks, FOUND_SCHEMA, Found, FoundKey, Gap, KeyAnswer, KeyWindow, ListKey};

use crate::{
    archive::{Archive, Entry},
    block::Kept,
    ring::Ring,
    time::Time,
    windows::{Cuts, Windows, gaps, known_times},
};

/// The most blocks of five minutes that are opened: more take longer than blocks of hours.
const OPENED_MAX: usize = 100;
/// The most keys of a question.
pub const KEYS_MAX: usize = 64;

/// A key that is looked for.
struct Wanted {
    key: ListKey,
    /// The addresses in it, each with its side. If a block does not have one of them, the key has no row there, and no
    /// more than a source or destination without a row has.
    addresses: Vec<(Side, IpAddr)>,
    found: FoundKey,
}

/// The keys of a question: an address as source and as destination, or the fields of a row.
fn wanted(keys: &[String], shown: Addresses) -> Result<Vec<Wanted>, String> {
    if !(1..=KEYS_MAX).contains(&keys.len()) {
        return Err(format!("{} keys: ask for 1 to {KEYS_MAX}", keys.len()));
    }
    let mut all = Vec::new();
    for key in keys {
        match key.parse::<IpAddr>() {
            Ok(address) => {
                all.push(Wanted::new(&format!("src_ip={address}"), shown)?);
                all.push(Wanted::new(&format!("dst_ip={address}"), shown)?);
            }
            Err(_) if key.contains('=') => all.push(Wanted::new(key, shown)?),
            Err(_) => {
                return Err(format!(
                    "{key}: the past has the keys of lists: an address, or the fields of a row, such as \
                     src_ip=192.0.2.7,dst_ip=192.0.2.8 or proto=tcp,port=443"
                ));
            }
        }
    }
    Ok(all)
}

impl Wanted {
    fn new(key: &str, shown: Addresses) -> Result<Self, String> {
        let address = |(name, value): (&str, &str)| {
            let side = match name {
                "src_ip" => Side::Source,
                "dst_ip" => Side::Destination,
                _ => return None,
            };
            Some((side, value.parse().ok()?))
        };
        let addresses = key.split(',').filter_map(|part| part.split_once('=')).filter_map(address).collect();
        Ok(Self { key: ListKey::parse(key, None)?.if_shown(shown)?, addresses, found: FoundKey::new(key) })
    }

    /// The side of an address that a block does not have.
    fn absent(&self, archive: &Archive, block: &(usize, Entry)) -> Option<Side> {
        let absent = self.addresses.iter().find(|(_, address)| !archive.may_have(block, *address));
        absent.map(|(side, _)| *side)
    }

    fn add(&mut self, Kept { past, union, .. }: &Kept) {
        if let KeyAnswer::Asked(sums, _) = union.of_key(&self.key) {
            self.found.confidence = f64::max(self.found.confidence - (1.0 - sums.confidence), 0.0);
            self.found.add(&KeyWindow::new(past, union.window.seconds, &sums));
        }
    }
}

/// The side of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

/// A walk over windows.
struct Search<'w> {
    time: &'w Time,
    wanted: Vec<Wanted>,
    blocks: Blocks,
    windows: u64,
    known: Vec<Gap>,
}

/// What the windows of this time have of some keys.
///
/// # Errors
///
/// A key is none of a list.
pub fn find(windows: &Windows, time: &Time, keys: &[String]) -> Result<Option<Found>, String> {
    let wanted = wanted(keys, windows.shown())?;
    let mut search = Search { time, wanted, blocks: Blocks::default(), windows: 0, known: Vec::new() };
    for (ring, numbers) in windows.kinds(&cuts(windows, time, &search.wanted)) {
        search.look(windows, ring, &numbers);
    }
    let Search { wanted, blocks, windows: count, known, .. } = search;
    let times = (known.iter().map(|of| of.start).min(), known.iter().map(|of| of.end).max());
    let (Some(from), Some(to)) = times else { return Ok(None) };
    let end = windows.newest().into_iter().chain(time.to).min().unwrap_or(Timestamp::MAX);
    Ok(Some(Found {
        schema: FOUND_SCHEMA.to_owned(),
        from,
        to,
        windows: count,
        reaches_back_to: windows.oldest(),
        blocks,
        missing: gaps(known, time.from.or(windows.oldest()), end),
        keys: wanted.into_iter().map(|wanted| wanted.found).collect(),
    }))
}

/// Which windows are asked: unions of five minutes, as filters leave most of them out, or of hours where they do not.
fn cuts(windows: &Windows, time: &Time, wanted: &[Wanted]) -> Cuts {
    let fine = windows.fine_cuts(time);
    let [_, (ring, numbers), _] = windows.kinds(&fine);
    let Some(archive) = ring.archive() else { return windows.cuts(time) };
    let blocks = ring.archived(&numbers, time);
    let may_have = |block: &&(usize, Entry)| wanted.iter().any(|wanted| wanted.absent(archive, block).is_none());
    if blocks.iter().filter(may_have).take(OPENED_MAX + 1).count() > OPENED_MAX { windows.cuts(time) } else { fine }
}

impl Search<'_> {
    /// Looks in the windows of one kind with these numbers.
    fn look(&mut self, windows: &Windows, ring: &Ring, numbers: &Range<u64>) {
        let time = self.time;
        for entry in ring.archived(numbers, time) {
            if entry.1.addresses() < windows.shown() {
                continue;
            }
            if self.is_skipped(ring, &entry, numbers) {
                continue;
            }
            match ring.archive().and_then(|archive| archive.read(&entry)) {
                Some(block) => {
                    self.blocks.opened += 1;
                    self.add(&block.kept(|number, past| numbers.contains(&number) && time.is_touched(past)));
                }
                None => self.blocks.damaged += 1,
            }
        }
        for block in ring.in_memory(numbers.clone(), time).filter(|block| block.addresses >= windows.shown()) {
            self.add(&block.kept(|number, past| numbers.contains(&number) && time.is_touched(past)));
        }
    }

    /// Skips a block that has none of the keys, if its index says what one of its windows may have of them.
    fn is_skipped(&mut self, ring: &Ring, found: &(usize, Entry), numbers: &Range<u64>) -> bool {
        let (_, entry) = found;
        let (Some(unlisted), Some(archive)) = (entry.unlisted, ring.archive()) else { return false };
        // At the edge of the time, only some of its windows are meant.
        let is_whole = self.time.covers(entry.start, entry.end)
            && numbers.start <= entry.first
            && entry.first + entry.windows <= numbers.end;
        if !is_whole {
            return false;
        }
        let absent = self.wanted.iter().map(|wanted| wanted.absent(archive, found)).collect::<Option<Vec<_>>>();
        let Some(absent) = absent else { return false };
        for (wanted, side) in self.wanted.iter_mut().zip(absent) {
            let [source, destination] = unlisted;
            wanted.found.add_unlisted(if side == Side::Source { source } else { destination });
        }
        self.blocks.skipped += 1;
        self.windows += entry.windows;
        self.known.push(Gap { start: entry.start, end: entry.end });
        true
    }

    fn add(&mut self, all: &[Kept]) {
        for kept in all {
            self.windows += kept.past.windows;
            self.known.extend(known_times(&kept.past, &kept.union));
            self.wanted.iter_mut().for_each(|wanted| wanted.add(kept));
        }
    }
}
