//! What each interface carried in each second, for those who subscribe. Nothing is read while nobody does.

use std::time::Duration;

use jiff::Timestamp;
use weir_attach::{InterfaceNow, Obtained};
use weir_common::ledger::Tally;
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

/// Makes a message of two readings.
#[derive(Debug, Default)]
pub struct Seconds {
    /// When the counters were read last, on the monotonic clock, and what they said.
    before: Option<(Duration, Vec<Counted>)>,
    /// What was lost when the open window began. `None` if nobody subscribed then.
    lost: Option<Vec<Tally>>,
}

impl Seconds {
    /// Nobody subscribes: what was read is too old for the next one who does.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// A window begins.
    pub fn begin(&mut self) {
        self.lost = self.before.as_ref().map(|(_, all)| all.iter().map(|of| of.lost).collect());
    }

    /// Takes the counters of all slots at this time, in the window that began then. Returns what came
    /// since the reading before, unless this is the first one.
    pub fn read(
        &mut self,
        (now, window_start): (Moment, Timestamp),
        interfaces: &[InterfaceNow<'_>],
        counted: Vec<Counted>,
    ) -> Option<Second> {
        let before = self.before.replace((now.monotonic, counted));
        let (then, before) = before?;
        let (_, counted) = self.before.as_ref()?;
        let interface = |now: &InterfaceNow<'_>| {
            let of = |all: &[Counted]| all.get(now.slot).copied().unwrap_or_default();
            let (before, after) = (of(&before), of(counted));
            let lost = self.lost.as_ref().map(|lost| after.lost.since(lost.get(now.slot).copied().unwrap_or_default()));
            let is_known = now.obtained != Obtained::AfPacket;
            InterfaceSecond {
                name: now.name.to_owned(),
                direction: now.way.map(|way| way.name().to_owned()),
                mode: now.obtained.name().to_owned(),
                counted: is_known.then(|| after.seen.since(before.seen).into()),
                total: is_known.then(|| after.seen.into()),
                lost: lost.filter(|_| is_known).map(Into::into),
                trouble: now.trouble.map(str::to_owned),
            }
        };
        Some(Second {
            schema: SECOND_SCHEMA.to_owned(),
            time: now.wall,
            seconds: now.monotonic.saturating_sub(then).as_secs_f64(),
            skipped: 0,
            window_start,
            last_report: None,
            interfaces: interfaces.iter().map(interface).collect(),
            troubles: Vec::new(),
        })
    }
}
