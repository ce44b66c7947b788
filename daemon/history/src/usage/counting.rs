//! Counts what windows and seconds say, in the open hour and in the last days.
//!
//! The ledgers of windows are what counts: their sums are exact. Seconds only say which one was the busiest, and how to
//! divide a window that is in several steps of five minutes. Windows whose length divides five minutes are in one step
//! each. Another window is divided as its seconds were, and where these are not known, by time; the sum stays exact.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use jiff::Timestamp;
use tracing::warn;
use weir_schema::{Amount, Interface, Window, is_measured};

use super::{
    calendar::Period,
    hour::{Block, Busiest, Hour, Name, SLOT_MS, SLOT_SECONDS, SLOTS, Slot, Sums, TOLERANCE_MS, amount},
};
use crate::seconds::{Carried, TRACKS_MAX};

/// How many days are kept in memory: a month of any length, and the day before.
const DAYS: usize = 32;
/// How many steps a window is in at most. Of a longer one, the last steps have everything.
const WINDOW_SLOTS_MAX: i64 = 24;
/// How many closed hours wait for a disk that does not answer.
const CLOSED_MAX: usize = 24;
/// A window that reaches over the edge of a step by less than this is not divided: it was closed a little late.
const EDGE_MS: i64 = 500;
const DAY_SLOTS: i64 = 288;

/// What seconds say of a step before its window is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    slot: i64,
    bytes: u64,
    busiest: Busiest,
}

/// One interface in one direction.
#[derive(Clone, Debug)]
struct Track {
    name: Name,
    hour: Hour,
    /// By days since 1970.
    days: BTreeMap<i64, Slot>,
    pending: VecDeque<Pending>,
    /// The number of the last window that had the interface.
    last: u64,
}

/// The memory of a track at most, with its hours that wait for the disk.
pub const TRACK_BYTES: usize = size_of::<Track>()
    + 2 * DAYS * size_of::<(i64, Slot)>()
    + 32 * size_of::<Pending>()
    + CLOSED_MAX * size_of::<Hour>();

/// What is known of the open hour and of the last days.
#[derive(Clone, Debug)]
pub struct Counting {
    tracks: Vec<Track>,
    /// The open hour since 1970, and its id.
    open: Option<(i64, i64)>,
    /// The largest id so far.
    last_id: i64,
    /// Hours that are not on disk yet.
    closed: VecDeque<Block>,
    /// The end of the last window.
    until: Option<Timestamp>,
    windows: u64,
    /// The day on which a month begins.
    pub first_day: u8,
    /// Whether an interface had no place, and whether the log says so.
    left_out: bool,
    told: bool,
    /// How many closed hours were dropped since the last warning.
    dropped: u64,
}

/// What an interface has carried since the start of a month, both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Month {
    /// Its bytes.
    pub sums: Slot,
    /// How long weir saw it in the direction that it saw less of, in milliseconds.
    pub seen_ms: u64,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            tracks: Vec::new(),
            open: None,
            last_id: i64::MIN,
            closed: VecDeque::new(),
            until: None,
            windows: 0,
            first_day: 1,
            left_out: false,
            told: false,
            dropped: 0,
        }
    }
}

impl Month {
    /// Its bytes from the start of the month until this time.
    pub fn bytes(&self, since: Timestamp, until: Timestamp) -> Amount {
        let elapsed = (until.as_millisecond() - since.as_millisecond()).max(0).unsigned_abs();
        // The clock runs a little faster or slower than time.
        let is_whole = self.seen_ms.saturating_add(elapsed.div_ceil(SLOT_MS) * TOLERANCE_MS) >= elapsed;
        let Slot { bytes, more, assumed, .. } = self.sums;
        let bytes = amount(bytes, more, assumed);
        Amount { upper: bytes.upper.filter(|_| is_whole), ..bytes }
    }
}

impl Counting {
    /// Adds a reading at this time, which covers this much time.
    pub fn add_second<'a>(&mut self, time: Timestamp, length: Duration, interfaces: impl Iterator<Item = Carried<'a>>) {
        // Readings are taken at full seconds, and a little later.
        let end = (time.as_millisecond() + 500).div_euclid(1000);
        let second = end - 1;
        let slot = second.div_euclid(SLOT_SECONDS);
        for Carried { name, direction, counts } in interfaces {
            let Some(counts) = counts else { continue };
            let name = Name { interface: name.to_owned(), direction: direction.map(str::to_owned) };
            let Some(nth) = self.place(&name) else { continue };
            // In a longer reading, some second had at least the mean.
            let mean = counts.bytes as f64 / length.as_secs_f64().max(1.0);
            self.tracks[nth].note(Pending {
                slot,
                bytes: counts.bytes,
                busiest: Busiest { bytes: mean as u64, second },
            });
        }
    }

    /// Adds the window of a report.
    pub fn add_window(&mut self, window: &Window, interfaces: &[Interface]) {
        let shares = shares(window);
        self.windows += 1;
        let parts: Vec<_> = interfaces
            .iter()
            .filter_map(|interface| {
                let nth = self.place(&Name::of(interface))?;
                Some((nth, self.tracks[nth].divide(window, interface, &shares)))
            })
            .collect();
        for (at, share) in shares.iter().enumerate() {
            self.open(share.slot.div_euclid(SLOTS as i64), window.start);
            for (nth, parts) in &parts {
                self.tracks[*nth].add(share.slot, parts[at]);
            }
        }
        self.until = Some(window.end);
    }

    /// Adds an hour that an earlier weir has written to its day.
    pub fn resume(&mut self, Block { id, hour, tracks }: &Block) {
        self.last_id = self.last_id.max(*id);
        // Interfaces of this hour take the place of those that have been away for longest.
        self.windows += 1;
        for (name, of) in tracks {
            let Some(nth) = self.place(name) else { continue };
            for (slot, sums) in (hour * SLOTS as i64..).zip(of.slots) {
                self.tracks[nth].add_to_day(slot, sums);
            }
        }
    }

    /// Goes on with the hour that was open.
    pub fn reopen(&mut self, Block { id, hour, tracks }: Block) {
        self.open = Some((hour, id));
        for (name, of) in tracks {
            if let Some(track) = self.tracks.iter_mut().find(|track| track.name == name) {
                track.hour = of;
            }
        }
    }

    /// The open hour.
    pub fn open_hour(&self) -> Option<Block> {
        let (hour, id) = self.open?;
        let known = self.tracks.iter().filter(|track| !track.hour.is_empty());
        Some(Block { id, hour, tracks: known.map(|track| (track.name.clone(), track.hour)).collect() })
    }

    /// The hours that are not on disk yet, the open one last.
    pub fn unwritten(&self) -> Vec<Block> {
        self.closed.iter().cloned().chain(self.open_hour()).collect()
    }

    /// Forgets this many closed hours, because they are on disk.
    pub fn forget(&mut self, written: usize) {
        self.closed.drain(..written.min(self.closed.len()));
    }

    /// The closed hours that are not on disk yet.
    pub fn closed(&self) -> Vec<Block> {
        self.closed.iter().cloned().collect()
    }

    /// Logs what could not be kept.
    pub fn warn(&mut self) {
        if self.left_out && !std::mem::replace(&mut self.told, true) {
            warn!("the usage has room for {TRACKS_MAX} interfaces and directions, and lacks those that came later");
        }
        if std::mem::take(&mut self.dropped) > 0 {
            warn!("the usage lacks an hour: the disk could not take it for {CLOSED_MAX} hours");
        }
    }

    /// The end of the last window.
    pub const fn until(&self) -> Option<Timestamp> {
        self.until
    }

    /// What each interface has carried in this month so far.
    pub fn months(&self, month: Period) -> BTreeMap<&str, Month> {
        let mut all = BTreeMap::<&str, Month>::new();
        for track in &self.tracks {
            let days = track.days.range(month.start.div_euclid(86_400)..month.end.div_euclid(86_400));
            let sums = days.fold(Slot::default(), |mut sums, (_, day)| {
                sums += *day;
                sums
            });
            let of = all.entry(&track.name.interface).or_insert(Month { seen_ms: u64::MAX, ..Month::default() });
            of.sums += sums;
            of.seen_ms = of.seen_ms.min(sums.seen_ms);
        }
        all
    }

    /// Makes this hour the open one. If the clock was set back, it may have been open before.
    fn open(&mut self, hour: i64, begun: Timestamp) {
        if self.open.is_some_and(|(open, _)| open == hour) {
            return;
        }
        let block = self.open_hour().filter(|block| !block.tracks.is_empty());
        self.closed.extend(block);
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
            self.dropped += 1;
        }
        for track in &mut self.tracks {
            track.hour = Hour::default();
        }
        // If the clock was set back, another block of this hour may have begun at the same time.
        let id = i64::try_from(begun.as_nanosecond()).unwrap_or(i64::MAX).max(self.last_id.saturating_add(1));
        self.last_id = id;
        self.open = Some((hour, id));
    }

    /// The place of an interface. If there is none, the one takes it that has been away for longest, unless it has been
    /// here in this hour.
    fn place(&mut self, name: &Name) -> Option<usize> {
        let known = self.tracks.iter().position(|track| track.name == *name);
        let nth = known.or_else(|| {
            let track = Track {
                name: name.clone(),
                hour: Hour::default(),
                days: BTreeMap::new(),
                pending: VecDeque::new(),
                last: 0,
            };
            if self.tracks.len() < TRACKS_MAX {
                self.tracks.push(track);
                return Some(self.tracks.len() - 1);
            }
            let gone = (0..).zip(&self.tracks).filter(|(_, track)| track.hour.is_empty());
            let (nth, _) = gone.min_by_key(|(_, track)| track.last).filter(|(_, track)| track.last < self.windows)?;
            self.tracks[nth] = track;
            Some(nth)
        });
        match nth {
            Some(nth) => self.tracks[nth].last = self.windows,
            None => self.left_out = true,
        }
        nth
    }
}

impl Name {
    fn of(interface: &Interface) -> Self {
        Self { interface: interface.name.clone(), direction: interface.direction.clone() }
    }
}

/// A step that a window is in, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    slot: i64,
    ms: u64,
}

/// The steps that a window is in.
fn shares(window: &Window) -> Vec<Share> {
    let (start, end) = (window.start.as_millisecond(), window.end.as_millisecond());
    let edge = EDGE_MS.min((end - start) / 2);
    let step = SLOT_MS.cast_signed();
    let last = (end - edge).div_euclid(step);
    let first = (start + edge).div_euclid(step).clamp(last - WINDOW_SLOTS_MAX + 1, last);
    let share = |slot: i64| {
        let begins = if slot == first { start } else { slot * step };
        let ends = if slot == last { end } else { (slot + 1) * step };
        Share { slot, ms: (ends - begins).max(1).unsigned_abs() }
    };
    (first..=last).map(share).collect()
}

/// A number in parts with these weights. The sum of the parts is the number.
fn divided(number: u64, weights: &[u64]) -> Vec<u64> {
    let all = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
    let (mut weight_so_far, mut so_far) = (0_u128, 0_u64);
    let part = |weight: &u64| {
        weight_so_far += u128::from(*weight);
        // At most the number itself.
        let next = (u128::from(number) * weight_so_far / all) as u64;
        next - std::mem::replace(&mut so_far, next)
    };
    weights.iter().map(part).collect()
}

impl Track {
    fn note(&mut self, next: Pending) {
        if let Some(known) = self.pending.iter_mut().find(|known| known.slot == next.slot) {
            known.bytes = known.bytes.saturating_add(next.bytes);
            known.busiest = known.busiest.max(next.busiest);
            return;
        }
        if self.pending.len() == WINDOW_SLOTS_MAX as usize {
            self.pending.pop_front();
        }
        self.pending.push_back(next);
    }

    /// What the interface carried in each of these steps, which are those of the window.
    fn divide(&mut self, window: &Window, interface: &Interface, shares: &[Share]) -> Vec<(Slot, Sums)> {
        let (first, last) = (shares[0].slot, shares[shares.len() - 1].slot);
        // The first second of the next window may be here already. If the clock was set back, nothing waits for later.
        let (later, now): (VecDeque<_>, _) = self.pending.drain(..).partition(|one| one.slot == last + 1);
        self.pending = later;
        let mut busiest: Vec<Option<Busiest>> = vec![None; shares.len()];
        let mut by_seconds = vec![0; shares.len()];
        for Pending { slot, bytes, busiest: most } in now {
            let at = (slot.clamp(first, last) - first) as usize;
            by_seconds[at] += bytes;
            busiest[at] = busiest[at].max(Some(most));
        }
        let by_time: Vec<_> = shares.iter().map(|share| share.ms).collect();
        let weights = if by_seconds.iter().all(|bytes| *bytes == 0) { &by_time } else { &by_seconds };

        let ledger = &interface.ledger;
        let beyond = |of: fn(&weir_schema::Uncertain) -> weir_schema::Bounds| {
            ledger.uncertain.as_ref().map_or(0, |uncertain| of(uncertain).upper - of(uncertain).lower)
        };
        let lost = |of: fn(&weir_schema::Tally) -> u64| ledger.lost.values().map(of).sum::<u64>();
        let assumed = ledger.lost.get("socket_drop").map_or(0, |dropped| dropped.bytes);
        let seconds = window.seconds.seconds().unwrap_or(0.0) - interface.blind_seconds.unwrap_or(0.0);
        let seen_ms = if is_measured(&interface.mode) { (seconds * 1e3).round().max(0.0) as u64 } else { 0 };

        let [bytes, more, assumed] = [ledger.seen.bytes, beyond(|of| of.bytes), assumed].map(|of| divided(of, weights));
        let [packets, more_packets] = [ledger.seen.packets, beyond(|of| of.packets)].map(|of| divided(of, weights));
        let [lost_packets, lost_bytes] = [lost(|of| of.packets), lost(|of| of.bytes)].map(|of| divided(of, weights));
        let seen_ms = divided(seen_ms, &by_time);
        (0..shares.len())
            .map(|nth| {
                let slot = Slot { bytes: bytes[nth], more: more[nth], assumed: assumed[nth], seen_ms: seen_ms[nth] };
                let sums = Sums {
                    packets: packets[nth],
                    more: more_packets[nth],
                    lost_packets: lost_packets[nth],
                    lost_bytes: lost_bytes[nth],
                    busiest: busiest[nth],
                };
                (slot, sums)
            })
            .collect()
    }

    fn add(&mut self, slot: i64, (of, sums): (Slot, Sums)) {
        self.hour.slots[slot.rem_euclid(SLOTS as i64) as usize] += of;
        self.hour.sums += sums;
        self.add_to_day(slot, of);
    }

    fn add_to_day(&mut self, slot: i64, of: Slot) {
        *self.days.entry(slot.div_euclid(DAY_SLOTS)).or_default() += of;
        while self.days.len() > DAYS {
            self.days.pop_first();
        }
    }
}
