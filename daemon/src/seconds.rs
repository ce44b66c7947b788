//! The traffic of each interface in each second, for the history and for subscribers. Nothing is read if there is
//! neither.

use std::time::Duration;

use jiff::Timestamp;
use weir_attach::{InterfaceNow, Obtained};
use weir_common::ledger::Tally;
use weir_config::interface::Way;
use weir_history::{Carried, Counts};
use weir_schema::{InterfaceSecond, SECOND_SCHEMA, Second};
use weir_system::clock::Moment;

/// The counters of a slot, which only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// All packets that were seen.
    pub seen: Tally,
    /// The packets of these that are lost.
    pub lost: Tally,
}

/// The time of a reading, on the monotonic clock, and the counters by slot.
#[derive(Debug)]
struct Reading {
    time: Duration,
    counted: Vec<Counted>,
}

impl Reading {
    fn of(&self, slot: Option<usize>) -> Counted {
        of(&self.counted, slot)
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

    /// Begins a new window.
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
            let counts = readings.and_then(|(before, last)| {
                let (before, last) = (before.of(now.slot), last.of(now.slot));
                let counted = last.seen.since(before.seen);
                let Tally { packets, bytes } = counted;
                let lost = last.lost.since(before.lost).packets;
                is_counted(now, counted).then_some(Counts { packets, bytes, lost })
            });
            Carried { name: now.name, direction: now.way.map(Way::name), counts }
        })
    }

    /// The message for subscribers. The open window began at `window_start`. Returns `None` after the first reading.
    pub fn message(&self, now: Moment, window_start: Timestamp, interfaces: &[InterfaceNow<'_>]) -> Option<Second> {
        let (before, last) = self.before.as_ref().zip(self.last.as_ref())?;
        let interface = |now: &InterfaceNow<'_>| {
            let (earlier, later) = (before.of(now.slot), last.of(now.slot));
            let lost = self.lost.as_ref().map(|lost| later.lost.since(of(lost, now.slot)));
            let counted = later.seen.since(earlier.seen);
            let is_known = is_counted(now, counted);
            InterfaceSecond {
                name: now.name.to_owned(),
                direction: now.way.map(|way| way.name().to_owned()),
                mode: now.obtained.name().to_owned(),
                counted: is_known.then(|| counted.into()),
                total: is_known.then(|| later.seen.into()),
                lost: lost.filter(|_| is_known).map(Into::into),
                trouble: now.trouble.as_deref().map(str::to_owned),
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

fn of<C: Copy + Default>(all: &[C], slot: Option<usize>) -> C {
    slot.and_then(|slot| all.get(slot)).copied().unwrap_or_default()
}

/// Returns true if the count is what the interface carried. What packet sockets see is known at the end of a window. If
/// weir does not see its packets, nothing is known of them; but the programs may have counted some until then.
fn is_counted(now: &InterfaceNow<'_>, counted: Tally) -> bool {
    match now.obtained {
        Obtained::AfPacket => false,
        obtained => obtained.sees_packets() || !counted.is_zero(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_measured_has_no_rate() {
        let mut seconds = Seconds::default();
        for (second, packets) in [(1, 10), (2, 15), (3, 15)] {
            let seen = Tally::new(packets, packets * 100);
            seconds.read(Duration::from_secs(second), vec![Counted { seen, lost: Tally::default() }]);
            let counted = |obtained| {
                let way = Some(Way::Ingress);
                let now = [InterfaceNow { slot: Some(0), name: "eth0", way, obtained, trouble: None }];
                let carried = seconds.carried(&now).next().unwrap().counts.map(|counts| counts.packets);
                let told = seconds.message(weir_system::clock::now(), Timestamp::UNIX_EPOCH, &now);
                let told = told.and_then(|told| told.interfaces[0].counted).map(|counted| counted.packets);
                assert_eq!(carried, told, "history and stream agree");
                told
            };
            let all = Obtained::ALL.map(|obtained| (obtained, counted(obtained)));
            for (obtained, counted) in all.into_iter().filter(|(obtained, _)| *obtained != Obtained::AfPacket) {
                let expected = match (second, obtained.sees_packets()) {
                    (1, _) => None,
                    // They were counted before the program was removed.
                    (2, _) => Some(5),
                    (_, true) => Some(0),
                    (_, false) => None,
                };
                assert_eq!(counted, expected, "{obtained:?} in second {second}");
            }
        }
    }

    #[test]
    fn readers_of_reports_know_in_which_modes_weir_sees_packets() {
        for obtained in Obtained::ALL {
            assert_eq!(weir_schema::is_measured(obtained.name()), obtained.sees_packets(), "{obtained:?}");
        }
        assert!(!weir_schema::is_measured(weir_config::interface::NO_ROUTE));
    }
}
