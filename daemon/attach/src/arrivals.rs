//! Interfaces that come while weir runs: the packets that they carry before weir is attached to them.
//!
//! The kernel reports an interface when it comes, when it gets another name, and when it goes, each time with the
//! interface's own counts. An [`Origin`] has the counts with which it came. Once weir is attached, the comparison of
//! counts begins there, as it does for an interface that weir waits for (see `departures`): packets that were not seen
//! until then are lost. This file keeps the records of interfaces that have come. `sessions` finds the packets of
//! interfaces that are gone before the comparison has begun. An interface that weir knew already has no such packets.

use std::{collections::HashMap, time::Duration};

use weir_common::ledger::Tally;
use weir_config::interface::Way;
use weir_system::clock;

use super::{
    coverage::{Reading, SeenPackets, Unseen},
    netlink::Device,
    present::Origin,
};

/// One direction of an interface that has come, in the slot where it will be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The counts of the interface when it arrived.
    pub origin: Origin,
    /// When weir heard of it.
    pub at: Duration,
    /// The packets that its slot had counted before the arrival.
    pub seen: SeenPackets,
    /// A lower bound of the interface's own count when its attachment was ordered.
    pub listed: Tally,
}

/// One direction of an interface that has come and is in no list any more, before the comparison of its counts has
/// begun. The kernel's message with its last counts is still to be read.
#[derive(Clone, Copy, Debug)]
pub struct Departed {
    pub arrived: Arrived,
    /// The packets that its slot had counted when the kernel no longer listed the interface; `None` for a packet
    /// socket.
    pub seen: Option<SeenPackets>,
    /// How long it was there and not measured.
    pub blind: Duration,
    /// When it was no longer listed.
    pub at: Duration,
}

/// An interface that has come and is not ordered yet.
#[derive(Clone, Copy, Debug)]
pub struct Coming {
    /// When weir heard of it.
    pub at: Duration,
    /// True if the interface has been set up since it came, so that it may have received packets.
    pub was_up: bool,
}

/// The interfaces that have come and are not ordered yet, by index, and those that are in no list any more.
#[derive(Debug, Default)]
pub struct Arrivals {
    coming: HashMap<u32, Coming>,
    departed: HashMap<(u32, Way), Departed>,
    /// When the counts of attachments that have just begun were last read.
    read_at: Duration,
}

/// How often these are read, at most: reading takes some milliseconds.
const READ_EVERY: Duration = Duration::from_millis(20);

/// The kernel's last message about an interface is read within this time, or never.
const LAST_MESSAGE: Duration = Duration::from_secs(10);

/// Packets of interfaces that have come and gone again, by slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortLives {
    unseen: Unseen,
    /// How long they were there and not measured.
    blind: Duration,
    /// Those with a packet socket. What the sockets have seen is known only when the window ends.
    by_socket: Option<Carried>,
    /// True if a packet socket has also seen packets of another interface.
    pub is_mixed: bool,
}

/// Packets that several interfaces have carried, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Carried {
    /// The sum of it, at least and at most.
    own: [Tally; 2],
    /// The packets that the slot had counted before.
    before: SeenPackets,
}

impl Arrivals {
    /// When weir heard of the interface with this index, if it has come.
    pub fn came_at(&self, ifindex: u32) -> Option<Duration> {
        self.coming.get(&ifindex).map(|coming| coming.at)
    }

    /// Notes that an interface has come, and is not ordered, or no longer.
    pub fn note_came(&mut self, ifindex: u32, at: Duration, is_up: bool) {
        self.coming.entry(ifindex).or_insert(Coming { at, was_up: false }).was_up |= is_up;
    }

    /// Returns and forgets the record of an interface that came, because it goes now.
    pub fn take_came(&mut self, ifindex: u32) -> Option<Coming> {
        self.coming.remove(&ifindex)
    }

    /// Returns and forgets the record of this direction of an interface that the kernel no longer lists.
    pub fn take_departed(&mut self, ifindex: u32, way: Way) -> Option<Departed> {
        self.departed.remove(&(ifindex, way))
    }

    /// This direction of an interface is in no list any more.
    pub fn depart(&mut self, ifindex: u32, way: Way, departed: Departed) {
        self.departed.insert((ifindex, way), departed);
    }

    /// Everything that is listed is ordered, or will not be measured.
    pub fn forget(&mut self, listed: &[Device]) {
        for device in listed {
            self.coming.remove(&device.ifindex);
        }
        let now = clock::now().monotonic;
        self.departed.retain(|_, departed| now.saturating_sub(departed.at) < LAST_MESSAGE);
    }

    /// News may be missing. An interface that is in no list and is not announced again is gone.
    pub fn note_missed(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the counts of attachments that have just begun may be read again, and then counts them as read.
    pub fn take_turn(&mut self, now: Duration) -> bool {
        let is_due = now.saturating_sub(self.read_at) >= READ_EVERY;
        if is_due {
            self.read_at = now;
        }
        is_due
    }
}

impl ShortLives {
    /// Adds an interface that was there for `blind` without being measured.
    pub fn add(&mut self, unseen: Unseen, blind: Duration) {
        self.unseen.add(unseen);
        self.blind += blind;
    }

    /// Adds one with a packet socket, which has counted `own` since it came, when its slot had counted `before`.
    pub fn add_by_socket(&mut self, own: [Tally; 2], before: SeenPackets, blind: Duration) {
        let carried = self.by_socket.get_or_insert(Carried { own: [Tally::default(); 2], before });
        carried.own[0].add(own[0]);
        carried.own[1].add(own[1]);
        self.add(Unseen::default(), blind);
    }

    /// Returns bounds of the packets that programs have missed of these interfaces so far.
    pub const fn unseen_so_far(&self) -> Unseen {
        self.unseen
    }

    /// Returns the packets that were missed of these interfaces, and for how long; `None` if all were seen. The slot
    /// has counted `told` until now, including packets of other interfaces if it `is_mixed`.
    pub fn unseen(&self, told: SeenPackets, is_mixed: bool) -> Option<(Unseen, Duration)> {
        let Self { mut unseen, blind, by_socket, is_mixed: was_mixed } = *self;
        if let Some(Carried { own, before }) = by_socket {
            let none = SeenPackets::default();
            // Another interface may have its slot by now.
            let seen = told.since(if told.all.packets < before.all.packets { none } else { before });
            let least = if is_mixed || was_mixed { none } else { seen };
            let came = Reading { own: [Tally::default(); 2], seen: [none; 2] };
            let gone = Reading { own, seen: [least, seen] };
            unseen.add(Unseen::between(&came, &gone).unwrap_or(Unseen::UNKNOWN));
        }
        (!unseen.is_none()).then_some((unseen, blind))
    }
}
