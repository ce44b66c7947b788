//! The traffic of each interface in each second, for the history and for subscribers. Nothing is read if there is
//! neither.

use std::time::Duration;

use jiff::Timestamp;
use weir_attach::{InterfaceNow, Obtained};
use weir_common::ledger::Tally;
use weir_config::interface::Way;
use weir_history::{Carried, Counts};
use weir_report::{InterfaceSecond, SECOND_SCHEMA, Second};
use weir_system::clock::Moment;

/// The counters of a slot, which only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// All packets.
    pub seen: Tally,
    /// Those that are lost.
    pub lost: Tally,
}

/// The time of a reading, on the monotonic clock, and the counters by slot.
#[derive(Debug)]
struct Reading {
    time: Duration,
    counted: Vec<Counted>,
}

impl Reading {
    fn of(&self, slot: usize) -> Counted {
        self.counted.get(slot).copied().unwrap_or_default()
    }
}

/// The last two readings.
#[derive(Debug, Default)]
pub struct Seconds {
    before: Option<Reading>,
    last: Option<Reading>,
    /// The losses when the open window began. `None` if nothing was read then.
    lost: Option<Vec<Tally>>,
}

impl Seconds {
    /// Forgets the readings, because there are no subscribers. They will be too old for the next one.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Begins a window.
    pub fn begin(&mut self) {
        self.lost = self.last.as_ref().map(|last| last.counted.iter().map(|of| of.lost).collect());
    }

    /// Adds a reading of the counters of all slots at this time.
    pub fn read(&mut self, time: Duration, counted: Vec<Counted>) {
        self.before = self.last.replace(Reading { time, counted });
    }

    /// The time between the last two readings; 0 if there are not yet two.
    pub fn length(&self) -> Duration {
        let readings = self.before.as_ref().zip(self.last.as_ref());
        readings.map_or(Duration::ZERO, |(before, last)| last.time.saturating_sub(before.time))
    }

    /// The traffic of each interface between the last two readings.
    pub fn carried<'a>(&self, interfaces: &'a [InterfaceNow<'_>]) -> impl Iterator<Item = Carried<'a>> {
        interfaces.iter().map(|now| {
            let readings = self.before.as_ref().zip(self.last.as_ref());
            let counts = readings.filter(|_| is_counted(now)).map(|(before, last)| {
                let (before, last) = (before.of(now.slot), last.of(now.slot));
                let Tally { packets, bytes } = last.seen.since(before.seen);
                Counts { packets, bytes, lost: last.lost.since(before.lost).packets }
            });
            Carried { name: now.name, direction: now.way.map(Way::name), counts }
        })
    }

    /// The message for subscribers. The open window began at `window_start`. Returns `None` after the first reading.
    pub fn message(&self, now: Moment, window_start: Timestamp, interfaces: &[InterfaceNow<'_>]) -> Option<Second> {
        let (before, last) = self.before.as_ref().zip(self.last.as_ref())?;
        let interface = |now: &InterfaceNow<'_>| {
            let (earlier, later) = (before.of(now.slot), last.of(now.slot));
            let lost = self.lost.as_ref().map(|lost| later.lost.since(lost.get(now.slot).copied().unwrap_or_default()));
            let is_known = is_counted(now);
            InterfaceSecond {
                name: now.name.to_owned(),
                direction: now.way.map(|way| way.name().to_owned()),
                mode: now.obtained.name().to_owned(),
                counted: is_known.then(|| later.seen.since(earlier.seen).into()),
                total: is_known.then(|| later.seen.into()),
                lost: lost.filter(|_| is_known).map(Into::into),
                trouble: now.trouble.map(str::to_owned),
            }
        };
        Some(Second {
            schema: SECOND_SCHEMA.to_owned(),
            time: now.wall,
            seconds: self.length().as_secs_f64(),
            skipped: 0,
            window_start,
            last_report: None,
            interfaces: interfaces.iter().map(interface).collect(),
            troubles: Vec::new(),
        })
    }
}

/// Whether the kernel's programs count its packets. What packet sockets see is known at the end of a window.
fn is_counted(now: &InterfaceNow<'_>) -> bool {
    now.obtained != Obtained::AfPacket
}
