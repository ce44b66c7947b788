//! An hour of seconds: the exact traffic of each interface and direction, in fixed memory.
//!
//! A row is one reading of all counters, which usually covers one second. If weir was delayed, a row covers more, and
//! all of it counts in the second in which the row ends, so sums stay exact. Each row knows how much time it covers, so
//! that rates are right even if some seconds of a step are not known. Each interface and direction has a track under
//! its name, because its slot may change. A renamed interface gets another track.

use std::{
    collections::VecDeque,
    iter,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use weir_schema::{InterfaceHistory, Steps};

/// How many rows are kept.
pub const ROWS: usize = 3600;
/// How many interfaces and directions are kept at most. If there are more, the first ones are kept.
pub const TRACKS_MAX: usize = 64;
/// The memory of a track, in bytes.
pub const TRACK_BYTES: usize = ROWS * size_of::<Cell>() + size_of::<Track>();
/// The memory without tracks, in bytes.
pub const ROWS_BYTES: usize = ROWS * size_of::<Time>();
/// Lengths of rows are kept in tenths of a second, because readings are taken a few milliseconds early or late.
const TENTHS: u32 = 10;

/// The traffic of an interface in one direction since the previous reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// The name of the interface.
    pub name: &'a str,
    /// `ingress` or `egress`; `None` for the sum of all other interfaces.
    pub direction: Option<&'a str>,
    /// The packets and bytes of the interface, and how many of the packets were lost; `None` if unknown.
    pub counts: Option<Counts>,
}

/// The counts of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Packets that were lost.
    pub lost: u64,
}

/// Counts in little memory.
#[derive(Clone, Copy, Debug)]
struct Cell {
    bytes: u64,
    /// [`UNKNOWN`] if the row has no counts.
    packets: u32,
    lost: u32,
}

/// The value for unknown counts. A second never has this many packets.
const UNKNOWN: u32 = u32::MAX;
const NOTHING: Cell = Cell { bytes: 0, packets: UNKNOWN, lost: 0 };

impl Cell {
    fn of(counts: Option<Counts>) -> Self {
        let fits = |count: u64| u32::try_from(count).ok().filter(|count| *count != UNKNOWN);
        let cell = counts.and_then(|Counts { packets, bytes, lost }| {
            Some(Self { bytes, packets: fits(packets)?, lost: fits(lost)? })
        });
        cell.unwrap_or(NOTHING)
    }

    fn counts(self) -> Option<Counts> {
        let Self { bytes, packets, lost } = self;
        (packets != UNKNOWN).then(|| Counts { packets: packets.into(), bytes, lost: lost.into() })
    }
}

/// The time of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Time {
    /// The second in which it ended, in seconds since 1970.
    end: i64,
    /// How much time it covers, in tenths of a second.
    tenths: u32,
}

/// The rows of one interface in one direction.
#[derive(Debug)]
struct Track {
    name: String,
    direction: Option<String>,
    /// The cells by row number modulo [`ROWS`].
    cells: Box<[Cell]>,
    /// The first and the last row in which the interface existed.
    first: u64,
    last: u64,
}

impl Track {
    fn is_of(&self, name: &str, direction: Option<&str>) -> bool {
        self.name == name && self.direction.as_deref() == direction
    }
}

/// The rows of the last seconds.
#[derive(Debug, Default)]
pub struct Seconds {
    /// The number of the next row.
    next: u64,
    /// The time of each row, the oldest first.
    times: VecDeque<Time>,
    tracks: Vec<Track>,
}

/// Rows that follow each other, in the format on disk.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The second in which each row ended, in seconds since 1970.
    ends: Vec<i64>,
    /// How much time each row covers, in tenths of a second. Earlier versions did not write it: a second.
    #[serde(default)]
    tenths: Vec<u32>,
    tracks: Vec<PartOfTrack>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PartOfTrack {
    name: String,
    direction: Option<String>,
    /// Packets, bytes and lost packets of each row; `None` if unknown.
    counts: Vec<Option<[u64; 3]>>,
}

impl Part {
    /// Returns true if it has no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.ends.len()
    }
}

impl Seconds {
    /// Adds a reading at this time, which covers this much time. Readings are taken at full seconds, and a little
    /// later.
    pub fn add<'a>(&mut self, time: Timestamp, length: Duration, interfaces: impl Iterator<Item = Carried<'a>>) {
        let rounded = (time.as_millisecond() + 500).div_euclid(1000);
        let tenths = (length.as_secs_f64() * f64::from(TENTHS)).round() as u32;
        self.push(Time { end: rounded - 1, tenths: tenths.max(1) }, interfaces);
    }

    fn push<'a>(&mut self, time: Time, interfaces: impl Iterator<Item = Carried<'a>>) {
        let (row, index) = (self.next, self.index(self.next));
        self.next += 1;
        if self.times.len() == ROWS {
            self.times.pop_front();
        }
        self.times.reserve_exact(ROWS.saturating_sub(self.times.len()));
        self.times.push_back(time);
        for track in &mut self.tracks {
            track.cells[index] = NOTHING;
        }
        for Carried { name, direction, counts } in interfaces {
            if let Some(track) = self.track(row, name, direction) {
                track.cells[index] = Cell::of(counts);
                track.last = row;
            }
        }
    }

    fn index(&self, row: u64) -> usize {
        (row % ROWS as u64) as usize
    }

    /// The track of an interface. A new interface may get the place of a track that has no counts any more.
    fn track(&mut self, row: u64, name: &str, direction: Option<&str>) -> Option<&mut Track> {
        let nth = match self.tracks.iter().position(|track| track.is_of(name, direction)) {
            Some(nth) => nth,
            None => {
                self.tracks.retain(|track| row - track.last < ROWS as u64);
                if self.tracks.len() == TRACKS_MAX {
                    return None;
                }
                let (name, direction) = (name.to_owned(), direction.map(str::to_owned));
                self.tracks.push(Track { name, direction, cells: vec![NOTHING; ROWS].into(), first: row, last: row });
                self.tracks.len() - 1
            }
        };
        self.tracks.get_mut(nth)
    }

    /// The earliest start of a row, if there are rows. If the clock was set back, that is not the first row.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.times.iter().map(|time| time.end).min().and_then(|end| Timestamp::from_second(end).ok())
    }

    /// How many interfaces and directions are kept.
    pub const fn tracks(&self) -> usize {
        self.tracks.len()
    }

    /// The latest end of a row.
    pub fn newest(&self) -> Option<Timestamp> {
        self.times.iter().map(|time| time.end).max().and_then(|end| Timestamp::from_second(end + 1).ok())
    }

    /// The number of the next row.
    pub const fn next(&self) -> u64 {
        self.next
    }

    /// The numbers and times of the kept rows, starting with the row number `from`.
    fn rows(&self, from: u64) -> impl Iterator<Item = (u64, Time)> {
        let oldest = self.next - self.times.len() as u64;
        (oldest..).zip(self.times.iter().copied()).skip_while(move |(row, _)| *row < from)
    }

    /// The sums of each interface in each of these steps.
    pub fn sums(&self, &Steps { first, seconds, count }: &Steps) -> Vec<InterfaceHistory> {
        let place = |end: i64| {
            let since = u64::try_from(end.checked_sub(first)?).ok()?;
            usize::try_from(since / seconds).ok().filter(|nth| *nth < count)
        };
        let placed = |(row, time): (u64, Time)| Some((row, place(time.end)?, time.tenths));
        let rows: Vec<_> = self.rows(0).filter_map(placed).collect();
        let sums = |track: &Track| {
            let mut sums: Vec<Option<Counts>> = vec![None; count];
            let mut known = vec![0_u64; count];
            for (row, nth, tenths) in &rows {
                let Some(Counts { packets, bytes, lost }) = track.cells[self.index(*row)].counts() else { continue };
                let sum = sums[*nth].get_or_insert_default();
                sum.packets += packets;
                sum.bytes += bytes;
                sum.lost += lost;
                known[*nth] += u64::from(*tenths);
            }
            let each = |of: fn(&Counts) -> u64| sums.iter().map(|sum| sum.as_ref().map(of)).collect();
            InterfaceHistory {
                name: track.name.clone(),
                direction: track.direction.clone(),
                packets: each(|sum| sum.packets),
                bytes: each(|sum| sum.bytes),
                lost: each(|sum| sum.lost),
                seconds: known.iter().map(|tenths| *tenths as f64 / f64::from(TENTHS)).collect(),
            }
        };
        let was_there = |track: &&Track| rows.iter().any(|(row, ..)| (track.first..=track.last).contains(row));
        self.tracks.iter().filter(was_there).map(sums).collect()
    }

    /// The kept rows, starting with the row number `from`.
    pub fn part(&self, from: u64) -> Part {
        let rows: Vec<_> = self.rows(from).collect();
        let counts = |track: &Track| {
            let cell = |(row, _): &(u64, Time)| track.cells[self.index(*row)].counts();
            rows.iter().map(|row| cell(row).map(|counts| [counts.packets, counts.bytes, counts.lost])).collect()
        };
        let of_track = |track: &Track| PartOfTrack {
            name: track.name.clone(),
            direction: track.direction.clone(),
            counts: counts(track),
        };
        let tracks = self.tracks.iter().map(of_track).filter(|track| track.counts.iter().any(Option::is_some));
        Part {
            ends: rows.iter().map(|(_, time)| time.end).collect(),
            tenths: rows.iter().map(|(_, time)| time.tenths).collect(),
            tracks: tracks.collect(),
        }
    }

    /// Adds rows that an earlier weir has written.
    pub fn resume(&mut self, part: &Part) {
        let lengths = part.tenths.iter().copied().chain(iter::repeat(TENTHS));
        for (nth, (end, tenths)) in part.ends.iter().zip(lengths).enumerate() {
            let carried = part.tracks.iter().filter_map(|track| {
                let [packets, bytes, lost] = (*track.counts.get(nth)?)?;
                let counts = Some(Counts { packets, bytes, lost });
                Some(Carried { name: &track.name, direction: track.direction.as_deref(), counts })
            });
            self.push(Time { end: *end, tenths }, carried);
        }
    }
}

/// Locks the content. It is always consistent, so it does no harm if a thread panicked while it held the lock.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_764_144_000;
    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millisecond((START + second) * 1000 + 3).unwrap()
    }

    fn carried(name: &str, packets: u64) -> Carried<'_> {
        let counts = Some(Counts { packets, bytes: packets * 100, lost: packets / 10 });
        Carried { name, direction: Some("ingress"), counts }
    }

    fn packets(seconds: &Seconds, from: i64, step: u64, steps: usize) -> Vec<(String, Vec<Option<u64>>)> {
        let sums = seconds.sums(&Steps { first: START + from, seconds: step, count: steps });
        sums.into_iter().map(|interface| (interface.name, interface.packets)).collect()
    }

    #[test]
    fn a_second_has_its_own_packets_and_a_step_has_the_sum() {
        let mut seconds = Seconds::default();
        for second in 1..=10 {
            seconds.add(at(second), SECOND, [carried("eth0", second as u64)].into_iter());
        }
        assert_eq!(
            (seconds.oldest(), seconds.newest()),
            (Timestamp::from_second(START).ok(), at(10).round(jiff::Unit::Second).ok())
        );
        let each = (1..=10).map(Some).chain([None]).collect();
        assert_eq!(packets(&seconds, 0, 1, 11), [("eth0".to_owned(), each)]);
        assert_eq!(packets(&seconds, -5, 10, 2), [("eth0".to_owned(), vec![Some(15), Some(40)])]);
        assert!(packets(&seconds, 20, 1, 5).is_empty(), "there was no interface");
        let sums = &seconds.sums(&Steps { first: START, seconds: 10, count: 1 })[0];
        assert_eq!((&sums.bytes[..], &sums.lost[..]), (&[Some(5500)][..], &[Some(1)][..]));
    }

    #[test]
    fn the_ring_keeps_each_second_of_an_hour_once() {
        let mut seconds = Seconds::default();
        for second in 1..=2 * ROWS as i64 + 7 {
            seconds.add(at(second), SECOND, [carried("eth0", second as u64)].into_iter());
        }
        let first = ROWS as i64 + 7;
        assert_eq!(seconds.oldest(), Timestamp::from_second(START + first).ok());
        let kept: u64 = (first as u64 + 1..=2 * ROWS as u64 + 7).sum();
        assert_eq!(packets(&seconds, 0, 10_000, 1), [("eth0".to_owned(), vec![Some(kept)])]);
        assert_eq!(seconds.times.capacity(), ROWS);
    }

    #[test]
    fn interfaces_that_appear_vanish_or_are_renamed_keep_separate_numbers() {
        let mut seconds = Seconds::default();
        let names = [vec!["a", "b"], vec!["a", "b"], vec!["b"], vec!["c", "b"], vec!["b", "a"]];
        for (second, names) in (1..).zip(names) {
            seconds.add(at(second), SECOND, names.iter().map(|name| carried(name, second as u64)));
        }
        let known = packets(&seconds, 0, 1, 5);
        let of = |name: &str| &known.iter().find(|(known, _)| known == name).unwrap().1[..];
        assert_eq!(of("a"), [Some(1), Some(2), None, None, Some(5)]);
        assert_eq!(of("b"), [1, 2, 3, 4, 5].map(Some));
        assert_eq!(of("c"), [None, None, None, Some(4), None]);
    }

    #[test]
    fn unknown_is_not_zero() {
        let mut seconds = Seconds::default();
        let unknown = Carried { counts: None, ..carried("eth0", 0) };
        seconds.add(at(1), SECOND, [unknown].into_iter());
        seconds.add(at(2), SECOND, [carried("eth0", 0)].into_iter());
        let many = Counts { packets: u64::from(u32::MAX), bytes: 0, lost: 0 };
        seconds.add(at(3), SECOND, [Carried { counts: Some(many), ..carried("eth0", 0) }].into_iter());
        assert_eq!(packets(&seconds, 0, 1, 3), [("eth0".to_owned(), vec![None, Some(0), None])]);
    }

    /// Twenty packets pass in each second, but some seconds are unknown.
    #[test]
    fn the_rate_of_a_step_is_that_of_the_seconds_that_are_known() {
        let mut seconds = Seconds::default();
        for second in (1..=10).filter(|second| *second != 4 && *second < 8) {
            seconds.add(at(second), SECOND, [carried("eth0", 20)].into_iter());
        }
        // weir was delayed for three seconds.
        seconds.add(at(10), 3 * SECOND, [carried("eth0", 60)].into_iter());
        let sums = seconds.sums(&Steps { first: START, seconds: 5, count: 3 });
        let eth0 = &sums[0];
        assert_eq!(eth0.packets, [Some(80), Some(100), None]);
        assert_eq!(eth0.seconds, [4.0, 5.0, 0.0]);
        let rates = [0, 1, 2].map(|nth| Some(eth0.packets[nth]? as f64 / eth0.known_seconds(nth, 5)?));
        assert_eq!(rates, [Some(20.0), Some(20.0), None]);
        // Parts that an earlier version has written have rows of a second.
        let part = Part { tenths: Vec::new(), ..seconds.part(0) };
        let mut resumed = Seconds::default();
        resumed.resume(&part);
        assert_eq!(resumed.sums(&Steps { first: START, seconds: 5, count: 1 })[0].seconds, [4.0]);
    }

    #[test]
    fn a_clock_that_is_set_back_loses_nothing() {
        let mut seconds = Seconds::default();
        for second in [1, 2, 3, 2, 3, 4, 90, 91] {
            seconds.add(at(second), SECOND, [carried("eth0", 10)].into_iter());
        }
        assert_eq!(packets(&seconds, 0, 1, 4), [("eth0".to_owned(), [10, 20, 20, 10].map(Some).to_vec())]);
        assert_eq!(packets(&seconds, 0, 100, 1), [("eth0".to_owned(), vec![Some(80)])]);
        assert_eq!(seconds.sums(&Steps { first: START, seconds: 2, count: 2 })[0].seconds, [3.0, 3.0]);
        let mut back = Seconds::default();
        for second in [90, 91, 2] {
            back.add(at(second), SECOND, [carried("eth0", 10)].into_iter());
        }
        let whole = |second: i64| Timestamp::from_second(START + second).ok();
        assert_eq!((back.oldest(), back.newest()), (whole(1), whole(91)));
    }

    #[test]
    fn too_many_interfaces_take_no_more_memory() {
        let mut seconds = Seconds::default();
        let names: Vec<_> = (0..TRACKS_MAX + 10).map(|nth| format!("eth{nth}")).collect();
        for second in 1..=3 {
            seconds.add(at(second), SECOND, names.iter().map(|name| carried(name, 1)));
        }
        assert_eq!(packets(&seconds, 0, 1, 3).len(), TRACKS_MAX);
        // After the old interfaces have been gone for an hour, in the last but one of these seconds, others get their
        // places.
        for second in 4..=4 + ROWS as i64 {
            seconds.add(at(second), SECOND, [carried("new", 1)].into_iter());
        }
        assert_eq!(packets(&seconds, 0, 10_000, 1), [("new".to_owned(), vec![Some(2)])]);
        assert_eq!(seconds.tracks.len(), 1);
    }

    #[test]
    fn resumed_rows_equal_the_written_ones() {
        let mut seconds = Seconds::default();
        for second in 1..=20 {
            let egress = Carried { direction: None, counts: None, ..carried("others", 0) };
            seconds.add(at(second), SECOND, [carried("eth0", second as u64), egress].into_iter());
        }
        let mut resumed = Seconds::default();
        for (from, to) in [(0, 20), (20, 20)] {
            let part = seconds.part(from);
            assert_eq!(part.is_empty(), from == to);
            let text = serde_json::to_vec(&part).unwrap();
            resumed.resume(&serde_json::from_slice(&text).unwrap());
        }
        assert_eq!(resumed.part(0), seconds.part(0));
        assert_eq!(packets(&resumed, 0, 1, 20), packets(&seconds, 0, 1, 20)[..1]);
    }
}
