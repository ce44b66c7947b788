//! Finds keys in the past. Blocks on disk whose filter has none of their addresses are not opened. Networks and ports
//! are found in the rows of all blocks, and the samples of flow records make their bounds closer.

use std::{net::IpAddr, ops::Range};

use jiff::Timestamp;
use weir_config::{Addresses, FlowQuestion, names::Prefix};
use weir_schema::{
    AskedFlows, Blocks, Estimate, FOUND_SCHEMA, Found, FoundKey, Gap, KeyAnswer, KeyWindow, ListKey, ListPart,
};

use crate::{
    archive::{Archive, Entry},
    asked_flows::of_samples,
    block::Kept,
    ring::Ring,
    time::Time,
    windows::{Cuts, Windows, gaps, is_repeated, known_times, length_of},
};

/// The most blocks of five minutes that are opened: more take longer than blocks of hours.
const OPENED_MAX: usize = 100;
/// The most keys of a question.
pub const KEYS_MAX: usize = 64;
/// What has the fields that no list has.
const SAMPLES: &str = "the sample of flow records";

/// What is looked for.
enum Sought {
    /// A row of a list.
    Key(ListKey),
    /// A network, a port, or another part of the traffic.
    Part(ListPart, FlowQuestion),
}

/// A key that is looked for.
struct Wanted {
    sought: Sought,
    /// The addresses in it, each with its side. If a block does not have one of them, the key has no row there, and no
    /// more than a source or destination without a row has.
    addresses: Vec<(Side, IpAddr)>,
    found: FoundKey,
}

/// The keys of a question: an address or a network as source and as destination, a port, a service, the fields of a
/// row, or conditions on such fields.
fn wanted(keys: &[String], shown: Addresses) -> Result<Vec<Wanted>, String> {
    if !(1..=KEYS_MAX).contains(&keys.len()) {
        return Err(format!("{} keys: ask for 1 to {KEYS_MAX}", keys.len()));
    }
    let mut all = Vec::new();
    for key in keys {
        if key.parse::<IpAddr>().is_ok() || key.parse::<Prefix>().is_ok() {
            all.push(Wanted::new(&format!("src_ip={key}"), shown)?);
            all.push(Wanted::new(&format!("dst_ip={key}"), shown)?);
            continue;
        }
        let service = key.split_once('/').filter(|_| !key.contains(['=', ',']));
        let service = service.map(|(proto, port)| format!("proto={proto},port={port}"));
        all.push(Wanted::new(service.as_ref().unwrap_or(key), shown)?);
    }
    Ok(all)
}

impl Wanted {
    /// A row of a list, if the key is one; else a part.
    fn new(key: &str, shown: Addresses) -> Result<Self, String> {
        let found = FoundKey::new(key);
        let Ok(row) = ListKey::parse(key, None) else {
            let question = FlowQuestion::parse(key, &[])?;
            let part = ListPart::of(&question).ok_or_else(|| {
                format!(
                    "{key}: the lists of the past have addresses, ports and protocols: {SAMPLES} has the others, by `weir \
                     ask` with a time"
                )
            })?;
            let sought = Sought::Part(part.if_shown(shown)?, question);
            return Ok(Self { sought, addresses: Vec::new(), found });
        };
        let address = |(name, value): (&str, &str)| {
            let side = match name {
                "src_ip" => Side::Source,
                "dst_ip" => Side::Destination,
                _ => return None,
            };
            Some((side, value.parse().ok()?))
        };
        let addresses = key.split(',').filter_map(|part| part.split_once('=')).filter_map(address).collect();
        Ok(Self { sought: Sought::Key(row.if_shown(shown)?), addresses, found })
    }

    /// The side of an address that a block does not have.
    fn absent(&self, archive: &Archive, block: &(usize, Entry)) -> Option<Side> {
        let absent = self.addresses.iter().find(|(_, address)| !archive.may_have(block, *address));
        absent.map(|(side, _)| *side)
    }

    fn add(&mut self, Kept { past, union, .. }: &Kept) {
        let sums = match &self.sought {
            Sought::Key(key) => union.of_key(key),
            Sought::Part(part, _) => KeyAnswer::Asked(union.of_part(part), None),
        };
        if let KeyAnswer::Asked(sums, _) = sums {
            self.found.confidence = f64::max(self.found.confidence - (1.0 - sums.confidence), 0.0);
            self.found.add(&KeyWindow::new(past, union.window.seconds, &sums));
        }
    }

    /// Takes the bounds of sampled flow records where these are closer. The windows of this time are from `from` to
    /// `to`, without a gap; `windows_found` is their number.
    fn ask_samples(&mut self, windows: &Windows, time: &Time, (from, to): (Timestamp, Timestamp), windows_found: u64) {
        let Sought::Part(_, question) = &self.sought else { return };
        let outer = Time { from: Some(from), to: Some(to) };
        let Some(most) = sampled(windows, question, &outer) else { return };
        if most.from > from || most.to < to || most.windows < windows_found {
            return;
        }
        // Samples are of whole minutes, so the lower bounds are those of the minutes within this time.
        let (start, end) = (from.max(time.from.unwrap_or(from)), to.min(time.to.unwrap_or(to)));
        let within = Time { from: Some(minute(start, true)), to: Some(minute(end, false)) };
        let least = if within.from < within.to { sampled(windows, question, &within) } else { None };
        let least = least.filter(|least| start <= least.from && least.to <= end);
        let least_of = |of: fn(&AskedFlows) -> Estimate| least.as_ref().map(of);
        let of_packets = (least_of(|of| of.packets), most.packets);
        let of_bytes = (least_of(|of| of.bytes), most.bytes);
        let taken = [of_packets, of_bytes].map(|(least, most)| (least.map_or(0, |of| of.lower), most));
        let confidences = [Some(&most), least.as_ref()].into_iter().flatten().map(|of| 1.0 - of.confidence);
        self.found.narrow(taken, 1.0 - confidences.sum::<f64>());
    }
}

/// What the samples of a time have of a question; `None` if some of the time has no sample.
fn sampled(windows: &Windows, question: &FlowQuestion, time: &Time) -> Option<AskedFlows> {
    let asked = of_samples(windows, time, question, String::new()).ok()??;
    asked.missing.is_empty().then_some(asked)
}

/// The start of the minute of a time, or of the next one.
fn minute(time: Timestamp, is_next: bool) -> Timestamp {
    const MINUTE: i64 = 60_000;
    let ms = time.as_millisecond();
    let minute = if is_next { (ms + MINUTE - 1).div_euclid(MINUTE) } else { ms.div_euclid(MINUTE) };
    Timestamp::from_millisecond(minute * MINUTE).unwrap_or(time)
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
    /// The sum of their lengths.
    seconds: f64,
    known: Vec<Gap>,
}

/// What the windows of this time have of some keys.
///
/// # Errors
///
/// A key is none of a list, and the lists do not know its fields.
pub fn find(windows: &Windows, time: &Time, keys: &[String]) -> Result<Option<Found>, String> {
    let wanted = wanted(keys, windows.shown())?;
    let mut search = Search { time, wanted, blocks: Blocks::default(), windows: 0, seconds: 0.0, known: Vec::new() };
    for (ring, numbers) in windows.kinds(&cuts(windows, time, &search.wanted)) {
        search.look(windows, ring, &numbers);
    }
    let Search { mut wanted, blocks, windows: count, seconds, known, .. } = search;
    let times = (known.iter().map(|of| of.start).min(), known.iter().map(|of| of.end).max());
    let (Some(from), Some(to)) = times else { return Ok(None) };
    if gaps(known.clone(), Some(from), to).is_empty() && !is_repeated(seconds, from, to) {
        wanted.iter_mut().for_each(|wanted| wanted.ask_samples(windows, time, (from, to), count));
    }
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
            self.seconds += length_of(&kept.past);
            self.known.extend(known_times(&kept.past, &kept.union));
            self.wanted.iter_mut().for_each(|wanted| wanted.add(kept));
        }
    }
}
