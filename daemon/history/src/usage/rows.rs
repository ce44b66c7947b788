//! Periods from hours: sums, the 95th percentile, and the busiest second.

use std::collections::BTreeMap;

use jiff::Timestamp;
use weir_schema::{Amount, BusiestSecond, Tally, UsageRow};

use super::{
    calendar::Period,
    hour::{Block, Hour, Name, SLOT_MS, SLOT_SECONDS, SLOTS, Slot, Sums, TOLERANCE_MS, amount},
};

/// One step in so many is left out of the percentile: 5 %.
const LEFT_OUT: usize = 20;

/// The hours of an interface in one direction in one period.
#[derive(Debug, Default)]
pub struct Hours {
    sums: Sums,
    /// By five minutes since 1970. Only steps of which something is known.
    slots: BTreeMap<i64, Slot>,
}

impl Hours {
    /// Adds an hour, as far as the block has the interface.
    pub fn add(&mut self, block: &Block, name: &Name) {
        for (_, Hour { slots, sums }) in block.tracks.iter().filter(|(known, _)| known == name) {
            self.sums += *sums;
            for (slot, of) in (block.hour * SLOTS as i64..).zip(slots) {
                if *of != Slot::default() {
                    *self.slots.entry(slot).or_default() += *of;
                }
            }
        }
    }

    /// The row of this period, of which windows are known until this time; `None` if nothing is known.
    pub fn row(&self, name: &Name, period: Period, until: Timestamp) -> Option<UsageRow> {
        let Self { sums, slots } = self;
        if slots.is_empty() {
            return None;
        }
        let all = slots.values().fold(Slot::default(), |mut all, slot| {
            all += *slot;
            all
        });
        let Name { interface, direction } = name.clone();
        let time = |second| Timestamp::from_second(second).unwrap_or_default();
        let so_far = until.as_millisecond().clamp(period.start * 1000, period.end * 1000) - period.start * 1000;
        let busiest = sums.busiest.map(|of| BusiestSecond { start: time(of.second), bits: of.bytes.saturating_mul(8) });
        Some(UsageRow {
            interface,
            direction,
            start: time(period.start),
            end: time(period.end),
            packets: amount(sums.packets, sums.more, 0),
            bytes: amount(all.bytes, all.more, all.assumed),
            lost: Tally { packets: sums.lost_packets, bytes: sums.lost_bytes },
            seen_seconds: seconds(all.seen_ms),
            unseen_seconds: seconds(self.unseen(period, so_far)),
            p95: self.percentile(period, (so_far / SLOT_MS.cast_signed()) as usize),
            busiest,
        })
    }

    /// How much of the elapsed time nobody saw, in milliseconds. Time that passed twice, because the clock was set
    /// back, does not make up for that.
    fn unseen(&self, Period { start, end }: Period, so_far: i64) -> u64 {
        let (first, last) = (start.div_euclid(SLOT_SECONDS), end.div_euclid(SLOT_SECONDS));
        let seen = |slot: &Slot| if is_whole(slot) { SLOT_MS } else { slot.seen_ms };
        let seen: u64 = self.slots.range(first..last).map(|(_, slot)| seen(slot)).sum();
        let missing = so_far.unsigned_abs().saturating_sub(seen);
        if missing < TOLERANCE_MS { 0 } else { missing }
    }

    /// The 95th percentile of the first `count` steps of five minutes: their means in order, the largest 5 % left out,
    /// the next one. The lower bound counts what was not seen as nothing, and the upper bound as more than anything
    /// else.
    fn percentile(&self, Period { start, .. }: Period, count: usize) -> Option<Amount> {
        let first = start.div_euclid(SLOT_SECONDS);
        let known: Vec<_> = self.slots.range(first..first + count as i64).map(|(_, slot)| slot).collect();
        if known.is_empty() {
            return None;
        }
        let rate = |bytes: u64, ms: u64| u128::from(bytes) * 8000 / u128::from(ms);
        let seen = known.iter().filter(|slot| slot.seen_ms > 0);
        let mut values: Vec<_> = seen.map(|slot| rate(slot.bytes, while_seen(slot))).collect();
        let certain = |slot: &Slot| slot.bytes.saturating_sub(slot.assumed);
        let mut lowers: Vec<_> = known.iter().map(|slot| rate(certain(slot), in_all(slot))).collect();
        let bounded = known.iter().filter(|slot| is_whole(slot) && slot.assumed == 0);
        let mut uppers: Vec<_> = bounded.map(|slot| rate(slot.bytes.saturating_add(slot.more), in_all(slot))).collect();
        let unbounded = count - uppers.len();
        [&mut values, &mut lowers, &mut uppers].into_iter().for_each(|of| of.sort_unstable_by(|a, b| b.cmp(a)));

        let left_out = count / LEFT_OUT;
        let whole = |rate: Option<&u128>| rate.map_or(0, |rate| u64::try_from(*rate).unwrap_or(u64::MAX));
        let upper = left_out.checked_sub(unbounded).map(|nth| whole(uppers.get(nth)));
        let lower = whole(lowers.get(left_out));
        let value = whole(values.get(values.len() / LEFT_OUT)).max(lower);
        Some(Amount { value, lower, upper })
    }
}

/// Whether weir saw all of a step.
const fn is_whole(slot: &Slot) -> bool {
    slot.seen_ms + TOLERANCE_MS > SLOT_MS
}

/// How long weir saw a step, for a mean of that time.
const fn while_seen(slot: &Slot) -> u64 {
    if is_whole(slot) { in_all(slot) } else { slot.seen_ms }
}

/// How long a step was: longer if the clock was set back.
const fn in_all(slot: &Slot) -> u64 {
    if slot.seen_ms > SLOT_MS + TOLERANCE_MS { slot.seen_ms } else { SLOT_MS }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}
