//! What an interface has carried in one direction in an hour, in steps of five minutes, and its format on disk.

use std::ops::AddAssign;

use weir_schema::Amount;

use super::{
    calendar::month_of_hour,
    entry::{Entry, put, put_text, signed, take, take_text, unsigned},
};

/// The length of a step, in milliseconds and in seconds.
pub const SLOT_MS: u64 = 300_000;
pub const SLOT_SECONDS: i64 = 300;
/// How many steps an hour has.
pub const SLOTS: usize = 12;
/// Five minutes of which less is missing are seen completely: the clock runs a little faster or slower than time.
pub const TOLERANCE_MS: u64 = 1000;

/// An interface and a direction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The name of the interface.
    pub interface: String,
    /// `ingress` or `egress`; `None` for the sum of all interfaces without an entry of their own.
    pub direction: Option<String>,
}

/// Directions on disk, by number.
const DIRECTIONS: [Option<&str>; 3] = [None, Some("ingress"), Some("egress")];

/// Five minutes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// The bytes that weir counted.
    pub bytes: u64,
    /// How many more bytes there may have been.
    pub more: u64,
    /// How many of `bytes` are assumed: the sizes of packets that a packet socket dropped.
    pub assumed: u64,
    /// How long weir saw the interface, in milliseconds. It is more than five minutes if the clock was set back.
    pub seen_ms: u64,
}

/// The busiest second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Busiest {
    /// Its bytes.
    pub bytes: u64,
    /// When it began, in seconds since 1970.
    pub second: i64,
}

/// What the whole hour has, apart from its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The packets that weir counted.
    pub packets: u64,
    /// How many more packets there may have been.
    pub more: u64,
    /// How many of the packets were lost, and their bytes.
    pub lost_packets: u64,
    pub lost_bytes: u64,
    /// The busiest second, if seconds are known.
    pub busiest: Option<Busiest>,
}

/// An hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hour {
    pub slots: [Slot; SLOTS],
    pub sums: Sums,
}

impl AddAssign for Slot {
    fn add_assign(&mut self, Self { bytes, more, assumed, seen_ms }: Self) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.more = self.more.saturating_add(more);
        self.assumed = self.assumed.saturating_add(assumed);
        self.seen_ms = self.seen_ms.saturating_add(seen_ms);
    }
}

impl AddAssign for Sums {
    fn add_assign(&mut self, Self { packets, more, lost_packets, lost_bytes, busiest }: Self) {
        self.packets = self.packets.saturating_add(packets);
        self.more = self.more.saturating_add(more);
        self.lost_packets = self.lost_packets.saturating_add(lost_packets);
        self.lost_bytes = self.lost_bytes.saturating_add(lost_bytes);
        self.busiest = self.busiest.max(busiest);
    }
}

/// A number of which there may have been more, and of which a part is assumed.
pub fn amount(value: u64, more: u64, assumed: u64) -> Amount {
    let upper = (assumed == 0).then(|| value.saturating_add(more));
    Amount { value, lower: value.saturating_sub(assumed), upper }
}

impl Hour {
    /// Whether nothing is known of it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// An hour of all interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Distinguishes it from other blocks of the same hour: when its first window began, in nanoseconds since 1970, or
    /// a little later.
    pub id: i64,
    /// The hour, in hours since 1970.
    pub hour: i64,
    pub tracks: Vec<(Name, Hour)>,
}

impl Entry for Block {
    const MAGIC: [u8; 8] = *b"weirusg1";
    const PREFIX: &'static str = "";

    fn id(&self) -> (i64, i64) {
        (self.id, self.hour)
    }

    fn month(&self) -> String {
        month_of_hour(self.hour)
    }

    fn put(&self, body: &mut Vec<u8>) {
        put(body, signed(self.id));
        put(body, signed(self.hour));
        put(body, self.tracks.len() as u64);
        for (name, hour) in &self.tracks {
            put_name(body, name);
            put_hour(body, hour, self.hour);
        }
    }

    fn take(body: &mut &[u8]) -> Option<Self> {
        let (id, hour) = (unsigned(take(body)?), unsigned(take(body)?));
        let count = take(body)?;
        let mut tracks = Vec::new();
        for _ in 0..count {
            tracks.push((take_name(body)?, take_hour(body, hour)?));
        }
        Some(Self { id, hour, tracks })
    }
}

fn put_name(bytes: &mut Vec<u8>, Name { interface, direction }: &Name) {
    let known = DIRECTIONS.iter().position(|known| *known == direction.as_deref()).unwrap_or(0);
    bytes.push(known as u8);
    put_text(bytes, interface);
}

fn take_name(bytes: &mut &[u8]) -> Option<Name> {
    let (&direction, rest) = bytes.split_first()?;
    let direction = DIRECTIONS.get(usize::from(direction))?.map(str::to_owned);
    *bytes = rest;
    Some(Name { interface: take_text(bytes)?, direction })
}

/// Most steps are seen completely, and exact: a bit says which are not.
fn put_hour(bytes: &mut Vec<u8>, Hour { slots, sums }: &Hour, hour: i64) {
    let mask = |is_set: fn(&Slot) -> bool| {
        (0..).zip(slots).filter(|(_, slot)| is_set(slot)).fold(0, |mask, (nth, _)| mask | 1_u64 << nth)
    };
    let (partial, inexact) = (mask(|slot| slot.seen_ms != SLOT_MS), mask(|slot| slot.more > 0 || slot.assumed > 0));
    put(bytes, partial);
    put(bytes, inexact);
    for (nth, Slot { bytes: counted, more, assumed, seen_ms }) in slots.iter().enumerate() {
        put(bytes, *counted);
        if partial >> nth & 1 == 1 {
            put(bytes, *seen_ms);
        }
        if inexact >> nth & 1 == 1 {
            put(bytes, *more);
            put(bytes, *assumed);
        }
    }
    let Sums { packets, more, lost_packets, lost_bytes, busiest } = sums;
    for number in [packets, more, lost_packets, lost_bytes] {
        put(bytes, *number);
    }
    put(bytes, busiest.is_some().into());
    if let Some(Busiest { bytes: most, second }) = busiest {
        put(bytes, *most);
        put(bytes, signed(second - hour * 3600));
    }
}

fn take_hour(bytes: &mut &[u8], hour: i64) -> Option<Hour> {
    let mut read = Hour::default();
    let (partial, inexact) = (take(bytes)?, take(bytes)?);
    for (nth, slot) in read.slots.iter_mut().enumerate() {
        slot.bytes = take(bytes)?;
        slot.seen_ms = if partial >> nth & 1 == 1 { take(bytes)? } else { SLOT_MS };
        if inexact >> nth & 1 == 1 {
            (slot.more, slot.assumed) = (take(bytes)?, take(bytes)?);
        }
    }
    let Sums { packets, more, lost_packets, lost_bytes, busiest } = &mut read.sums;
    for number in [packets, more, lost_packets, lost_bytes] {
        *number = take(bytes)?;
    }
    if take(bytes)? == 1 {
        let most = take(bytes)?;
        let second = hour.checked_mul(3600)?.checked_add(unsigned(take(bytes)?))?;
        *busiest = Some(Busiest { bytes: most, second });
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        testing::Random,
        usage::entry::{to_bytes, visit},
    };

    fn read_all(bytes: &[u8], observer: &str) -> (Vec<Block>, usize) {
        let mut blocks = Vec::new();
        let damaged = visit(bytes, observer, |block| blocks.push(block));
        (blocks, damaged)
    }

    fn block(random: &mut Random) -> Block {
        let mut number = || random.below(1 << 31) << random.below(33) >> random.below(64);
        let hour = number() as i64 % 1_000_000;
        let mut track = |interface: &str, direction: Option<&str>| {
            let mut of = Hour::default();
            for slot in &mut of.slots {
                let seen_ms = if number() % 2 == 0 { SLOT_MS } else { number() };
                *slot = Slot { bytes: number(), more: number() % 2 * number(), assumed: number() % 2, seen_ms };
            }
            let busiest = (number() % 2 == 0).then(|| Busiest { bytes: number(), second: hour * 3600 + 17 });
            let [packets, more, lost_packets, lost_bytes] = [(); 4].map(|()| number());
            of.sums = Sums { packets, more, lost_packets, lost_bytes, busiest };
            (Name { interface: interface.to_owned(), direction: direction.map(str::to_owned) }, of)
        };
        let tracks = vec![track("wan0", Some("ingress")), track("größe", Some("egress")), track("others", None)];
        Block { id: number() as i64 - (1 << 40), hour, tracks }
    }

    #[test]
    fn blocks_survive_the_disk() {
        let mut random = Random(7);
        let blocks: Vec<_> = (0..200).map(|_| block(&mut random)).collect();
        let bytes: Vec<_> = blocks.iter().flat_map(|block| to_bytes(block, "7f3c9a52")).collect();
        assert_eq!(read_all(&bytes, "7f3c9a52"), (blocks, 0));
        let (of_another, damaged) = read_all(&bytes, "00000000");
        assert!(of_another.is_empty() && damaged == bytes.len());
    }

    #[test]
    fn a_damaged_block_does_not_hide_those_after_it() {
        let mut random = Random(8);
        let blocks: Vec<_> = (0..3).map(|_| block(&mut random)).collect();
        let each: Vec<_> = blocks.iter().map(|block| to_bytes(block, "o")).collect();
        for at in 0..each[1].len() {
            let mut bytes = each.concat();
            bytes[each[0].len() + at] ^= 0x10;
            let (read, damaged) = read_all(&bytes, "o");
            assert_eq!((read, damaged), (vec![blocks[0].clone(), blocks[2].clone()], each[1].len()), "byte {at}");
        }
        let torn = each.concat().len() - 1;
        let (read, damaged) = read_all(&each.concat()[..torn], "o");
        assert_eq!((read, damaged), (blocks[..2].to_vec(), each[2].len() - 1));
    }

    #[test]
    fn a_busy_hour_takes_less_than_a_hundred_bytes() {
        let slot = Slot { bytes: 30_000_000_000, seen_ms: SLOT_MS, ..Slot::default() };
        let busiest = Some(Busiest { bytes: 1_250_000_000, second: 3600 });
        let sums = Sums { packets: 300_000_000, busiest, ..Sums::default() };
        let name = Name { interface: "wan0".to_owned(), direction: Some("ingress".to_owned()) };
        let tracks = vec![(name, Hour { slots: [slot; SLOTS], sums })];
        let bytes = |tracks: &[_]| to_bytes(&Block { id: i64::MAX, hour: 500_000, tracks: tracks.to_vec() }, "o").len();
        let each = bytes(&[tracks[0].clone(), tracks[0].clone()]) - bytes(&tracks);
        assert!((80..100).contains(&each), "an hour of a direction at 800 Mbit/s takes {each} bytes");
    }
}
