//! The interfaces that an attachment has measured and that have vanished, and where the comparison of counts begins
//! when an interface is in their place again.
//!
//! An interface that was moved to another network namespace and back continues its counters. So the comparison
//! continues where it stopped, however many windows have ended meanwhile. Any other interface may have counted packets
//! before it came: those are no concern of weir. The kernel reports the counts with which an interface arrives.

use std::time::Duration;

use weir_common::ledger::Tally;
use weir_config::interface::Way;
use weir_datapath::{kept::Away, tap::LinkAddress};

use super::{
    coverage::{Reading, SeenPackets, Unseen},
    present::{Origin, Present},
    tasks::Number,
};

/// So many vanished interfaces are remembered for each attachment. The one that vanished first is forgotten first; if
/// it comes back nevertheless, it is treated as another one.
const REMEMBERED: usize = 8;

/// The reason why an interface vanished, as far as weir knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// The reason is unknown. The interface may even be present.
    Unknown,
    /// It is still there, but the configuration does not ask for it any more, for example because it was renamed.
    Unwanted,
    /// It moved to another network namespace. It may come back, and its counters continue.
    Moved,
    /// It was deleted. An interface with the same name, index or address is another one.
    Deleted,
}

/// An interface that has vanished, and may come back.
#[derive(Clone, Copy, Debug)]
struct Vanished {
    present: Present,
    departure: Departure,
    /// Both counts when they were last compared.
    reading: Option<Reading>,
    /// Packets that were missed before it vanished and are not declared.
    unseen: Unseen,
    /// Bounds of the packets that the slot had counted when another interface was about to be attached.
    seen: Option<[SeenPackets; 2]>,
    /// The packets in the account `others` before the interface vanished, and when its program was detached.
    others: (SeenPackets, Option<SeenPackets>),
    /// True if these counts are known better at the end of the open window.
    is_open: bool,
}

/// An attachment that ends because its interface vanishes.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// The interface that vanishes.
    pub present: Present,
    /// The reason why it vanishes.
    pub departure: Departure,
    /// Both counts when they were last compared.
    pub reading: Option<Reading>,
    /// Packets that were missed before it vanished and are not declared: they were in a queue at that moment.
    pub unseen: Unseen,
    /// The packets in the account `others` before it vanished.
    pub others: SeenPackets,
    /// Until when it is known to have been there.
    pub since: Duration,
}

/// The reading at which a comparison of counts begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// Both counts at the beginning.
    pub reading: Reading,
    /// Packets that were missed before the beginning and are not declared.
    pub unseen: Unseen,
    /// True if another interface was measured since then.
    pub is_another: bool,
    /// True if the slot has packets of several interfaces since then.
    pub is_mixed: bool,
}

/// The vanished interfaces of an attachment, the latest last.
#[derive(Debug, Default)]
pub struct Departures {
    all: Vec<Vanished>,
    /// The earliest time at which an interface may be in their place; `None` if weir does not wait for one.
    since: Option<Duration>,
    /// The packets that the slot had counted when an interface was last about to be attached, as far as known then.
    seen: SeenPackets,
    /// The upper bound of the same number.
    most: SeenPackets,
    /// True if the slot may have counted more by then, in the window that is open.
    is_more: bool,
    /// The packets in the account `others` at that moment.
    others: SeenPackets,
}

impl Departures {
    /// Returns the earliest time at which an interface may be in their place; `None` if weir does not wait for one.
    pub const fn since(&self) -> Option<Duration> {
        self.since
    }

    /// An interface has come at this time that none of these was before: weir waits for it until it is attached.
    pub const fn expect(&mut self, at: Duration) {
        self.since = Some(at);
    }

    /// weir does not wait any more.
    pub const fn expect_none(&mut self) {
        self.since = None;
    }

    /// Returns true if an interface with this index and address has vanished and may come back. The packets that it
    /// counts meanwhile are compared then.
    pub fn may_return(&self, ifindex: u32, address: Option<LinkAddress>) -> bool {
        let origin = Origin::default();
        let present = Present { ifindex, xdp: None, is_virtual: true, address, origin, number: 0 };
        self.all.iter().any(|one| one.departure != Departure::Deleted && one.present.is_same(&present))
    }

    /// Adds one that vanishes.
    pub fn add(&mut self, Leaving { present, departure, reading, unseen, others, since }: Leaving) {
        self.all.retain(|one| !one.present.is_same(&present));
        if self.all.len() >= REMEMBERED {
            self.all.remove(0);
        }
        let others = (others, None);
        self.all.push(Vanished { present, departure, reading, unseen, seen: None, others, is_open: false });
        self.since = Some(since);
    }

    /// Those that the next weir must know, if the slot has counted `seen` and the account `others` has counted
    /// `others`.
    pub fn kept(&self, seen: SeenPackets, others: SeenPackets) -> Vec<Away> {
        let words = |Tally { packets, bytes }| [packets, bytes];
        let kept = |one: &Vanished| {
            let has_moved = match one.departure {
                Departure::Moved => true,
                Departure::Unknown => false,
                Departure::Unwanted | Departure::Deleted => return None,
            };
            let reading = one.reading?;
            let ([least, most], (counted_then, detached)) = (one.seen.unwrap_or([seen; 2]), one.others);
            let elsewhere = detached.unwrap_or(others).since(counted_then);
            let mut later = [least.since(reading.seen[1]), most.since(reading.seen[0])];
            later[1].add(elsewhere.all, elsewhere.merged);
            Some(Away {
                ifindex: one.present.ifindex,
                address: one.present.address,
                has_moved,
                own: reading.own.map(words),
                later: later.map(SeenPackets::words),
                unseen: [one.unseen.counted, one.unseen.beyond].map(words),
            })
        };
        self.all.iter().filter_map(kept).collect()
    }

    /// Continues with those that an earlier weir knew when it last checked at `looked`. This weir counts from zero.
    pub fn resume(&mut self, away: &[Away], looked: Duration) {
        let tally = |[packets, bytes]: [u64; 2]| Tally::new(packets, bytes);
        for &Away { ifindex, address, has_moved, own, later, unseen } in away {
            let departure = if has_moved { Departure::Moved } else { Departure::Unknown };
            let present =
                Present { ifindex, xdp: None, is_virtual: true, address, origin: Origin::default(), number: 0 };
            let [least, most] = later.map(|later| SeenPackets::default().since(SeenPackets::from_words(later)));
            let reading = Some(Reading { own: own.map(tally), seen: [most, least] });
            let [counted, beyond] = unseen.map(tally);
            let (unseen, others) = (Unseen { counted, beyond }, SeenPackets::default());
            self.add(Leaving { present, departure, reading, unseen, others, since: looked });
            self.note_detached(present.number, others);
        }
    }

    /// Notes that no interface is in their place at this time.
    pub fn note_absent(&mut self, now: Duration) {
        self.since = self.since.map(|_| now);
    }

    /// Notes that the interface with this index has vanished, if that was not known.
    pub fn note_gone(&mut self, ifindex: u32, departure: Departure) {
        for one in self.all.iter_mut().filter(|one| one.present.ifindex == ifindex) {
            if one.departure <= Departure::Unwanted {
                one.departure = departure;
            }
        }
    }

    /// Notes what the slot and the account `others` had counted when an interface is about to be attached. The slot may
    /// have counted more in the open window (`is_more`), which only a packet socket does not tell before the window
    /// ends.
    pub const fn note_seen(&mut self, seen: SeenPackets, is_more: bool, others: SeenPackets) {
        (self.seen, self.most, self.is_more, self.others) = (seen, seen, is_more, others);
    }

    /// Notes that the interface is attached. Until then the program of an earlier one may still have counted its
    /// packets.
    pub fn note_attached(&mut self) {
        for one in self.all.iter_mut().filter(|one| one.seen.is_none()) {
            (one.seen, one.is_open) = (Some([self.seen, self.most]), self.is_more);
        }
    }

    /// The attachment with this number is detached, and the account `others` has counted this.
    pub fn note_detached(&mut self, number: Number, others: SeenPackets) {
        for one in self.all.iter_mut().filter(|one| one.present.number == number) {
            one.others.1.get_or_insert(others);
        }
    }

    /// A window has ended. A packet socket has seen `told` in all windows.
    pub fn end_window(&mut self, told: SeenPackets) {
        if self.is_more && self.most == self.seen {
            self.most = told;
        }
        for one in self.all.iter_mut().filter(|one| one.is_open) {
            one.seen = one.seen.map(|[least, _]| [least, told]);
            one.is_open = false;
        }
    }

    /// An interface has been attached, and has these counts now. Returns where its comparison begins, if weir has
    /// waited for it.
    pub fn meet(&mut self, present: &Present, way: Way, now: &Reading) -> Option<Beginning> {
        self.since.take()?;
        let is_its = |one: &Vanished| one.departure != Departure::Deleted && one.present.is_same(present);
        let found = self.all.iter().position(is_its);
        let others = found.is_some_and(|place| place + 1 < self.all.len());
        let earlier = found.map(|place| self.all.remove(place)).filter(|one| one.departure != Departure::Unwanted);
        let ([_, own], seen) = (now.own, self.seen);
        let Some((Vanished { departure, unseen, seen: ended, others: (counted_then, detached), .. }, reading)) =
            earlier.and_then(|one| Some((one, one.reading?)))
        else {
            let reading = Reading { own: present.origin.bounds(way, own), seen: [seen; 2] };
            let unseen = Unseen::default();
            return Some(Beginning { reading, unseen, is_another: true, is_mixed: self.is_more });
        };
        // Since it vanished, the slot may have counted packets of other interfaces.
        let [ended_least, ended_most] = ended.unwrap_or([seen; 2]);
        let mut seen_then = reading.seen;
        for (then, ended) in seen_then.iter_mut().zip([ended_most, ended_least]) {
            let of_others = seen.since(ended);
            then.add(of_others.all, of_others.merged);
        }
        // If it had another index elsewhere, its program counted its packets there in the account `others`, together
        // with those of the interfaces that share it.
        seen_then[0] = seen_then[0].since(detached.unwrap_or(self.others).since(counted_then));
        if reading.own[0].packets > own.packets {
            // The driver has reset its counters, and they have counted this since then. Or it is another interface.
            let [_, most] = present.origin.bounds(way, own);
            let most = if departure == Departure::Unknown { most } else { Tally::default() };
            let reading = Reading { own: [Tally::default(), most], seen: [seen; 2] };
            return Some(Beginning { reading, unseen, is_another: true, is_mixed: self.is_more });
        }
        if departure == Departure::Unknown {
            // It may also be another interface, whose counters began at 0.
            let reading = Reading { own: [Tally::default(), reading.own[1]], seen: [seen_then[0], seen] };
            return Some(Beginning { reading, unseen, is_another: others, is_mixed: others && self.is_more });
        }
        let reading = Reading { own: reading.own, seen: seen_then };
        Some(Beginning { reading, unseen, is_another: others, is_mixed: others && self.is_more })
    }
}
