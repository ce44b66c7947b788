//! Random histories of the interfaces of one attachment. Over all windows, the packets that weir has seen or declared
//! lost are those that the interfaces carried, within the declared uncertainty.

use super::*;
use crate::{coverage::SeenPackets, present::Origin, testing::attached, watch::Position};

/// How many of each kind.
const HISTORIES: u64 = 3_000;
const STEPS: u64 = 40;
const BYTES: u64 = 100;
const WINDOW: Duration = Duration::from_secs(1);

/// The kind of interface and attachment, which limits the events that a history can have.
#[derive(Clone, Copy, Debug)]
struct Kind {
    by_socket: bool,
    /// Packets pass while the counts are read, and the counts cannot always be read.
    is_busy: bool,
    /// Packets wait in a queue, at most over two edges, and the interface stays.
    has_queue: bool,
    /// The kernel does not report everything, and interfaces are renamed.
    is_vague: bool,
    /// An interface that moves may have another index elsewhere.
    has_other_indexes: bool,
    /// How many bytes fewer an interface counts for each packet.
    omitted: u64,
}

impl Kind {
    const fn may_be_uncertain(self) -> bool {
        self.by_socket || self.is_busy || self.has_queue || self.is_vague || self.has_other_indexes
    }
}

struct Link {
    present: Present,
    own: u64,
    /// The packets that it has carried since it left.
    away: u64,
}

/// An attachment, the interfaces that it may measure, and the truth about their packets.
struct World {
    kind: Kind,
    random: u64,
    one: Attachment,
    links: Vec<Link>,
    /// The link that is attached, if any.
    here: Option<usize>,
    indexes: u32,
    is_removed: bool,
    queued: u64,
    /// At how many edges in a row a queue had packets.
    queued_at: u32,
    /// The packets in the account `others`: those that an interface carried elsewhere, where it had another index.
    others: u64,
    /// The account `others` at the last edge.
    others_then: u64,
    /// The packets that the slot has counted, and those of them in windows that have ended.
    seen: u64,
    told: u64,
    truth: u64,
    declared: Unseen,
    /// The events so far; `None` unless a failure has to be explained.
    log: Option<Vec<String>>,
}

fn tally(packets: u64, bytes: u64) -> Tally {
    Tally::new(packets, packets * bytes)
}

fn saw(packets: u64) -> SeenPackets {
    SeenPackets { all: tally(packets, BYTES), merged: 0 }
}

fn now() -> Duration {
    clock::now().monotonic
}

impl World {
    fn new(seed: u64, kind: Kind, is_logged: bool) -> Self {
        let mut world = Self {
            kind,
            random: seed * 2 + 1,
            one: attached(0, "eth0", Way::Ingress, 0),
            links: Vec::new(),
            here: None,
            indexes: 1,
            is_removed: false,
            queued: 0,
            queued_at: 0,
            others: 0,
            others_then: 0,
            seen: 0,
            told: 0,
            truth: 0,
            declared: Unseen::default(),
            log: is_logged.then(Vec::new),
        };
        world.one.present = None;
        let lifetime = world.upto(100_000);
        let first = world.make(lifetime);
        world.come(first, Origin::listed(None, false));
        world
    }

    fn note(&mut self, what: impl FnOnce(&Self) -> String) {
        if self.log.is_some() {
            let line = what(self);
            self.log.iter_mut().for_each(|log| log.push(line.clone()));
        }
    }

    fn upto(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % (most + 1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.upto(99) < percent
    }

    /// Makes an interface that has carried this many packets, and returns its number.
    fn make(&mut self, own: u64) -> usize {
        self.indexes += 1;
        let last = self.indexes.to_be_bytes()[3];
        let origin = Origin::default();
        let present = Present {
            ifindex: self.indexes,
            xdp: None,
            is_virtual: true,
            address: Some([2, 0, 0, 0, 0, last]),
            origin,
            number: 1,
        };
        self.links.push(Link { present, own, away: 0 });
        self.links.len() - 1
    }

    fn own(&self, link: usize) -> Tally {
        tally(self.links[link].own, BYTES - self.kind.omitted)
    }

    fn counts(&self, link: usize) -> [Tally; 2] {
        [self.own(link), Tally::default()]
    }

    /// Packets pass on the attached interface.
    fn carry(&mut self, packets: u64) {
        let Some(here) = self.here else { return };
        self.links[here].own += packets;
        self.truth += packets;
        self.note(|world| format!("carries {packets}, removed {}", world.is_removed));
        if self.is_removed {
            // No one sees these packets.
        } else if self.kind.has_queue && self.chance(50) {
            self.queued += packets;
        } else {
            self.seen += packets;
        }
    }

    fn drain(&mut self) {
        self.seen += std::mem::take(&mut self.queued);
    }

    /// Packets pass while the counts are read.
    fn carry_some(&mut self) {
        if self.kind.is_busy && self.chance(50) {
            let some = self.upto(20);
            self.carry(some);
        }
    }

    fn reading(&mut self) -> Option<Reading> {
        if self.kind.by_socket {
            let first = self.own(self.here?);
            self.carry_some();
            let told = saw(self.seen);
            self.carry_some();
            return Some(Reading { own: [first, self.own(self.here?)], seen: [told; 2] });
        }
        let first = saw(self.seen);
        self.carry_some();
        let own = self.own(self.here?);
        self.carry_some();
        Some(Reading { own: [own; 2], seen: [first, saw(self.seen)] })
    }

    /// A window ends, after a check of the attachment.
    fn edge(&mut self, is_last: bool) {
        self.queued_at = if self.queued > 0 { self.queued_at + 1 } else { 0 };
        if self.queued_at > 2 {
            self.drain();
            self.queued_at = 0;
        }
        // No one can remove a program while the lock is held.
        let is_held = !is_last && !self.is_removed && self.chance(if self.kind.has_queue { 50 } else { 20 });
        if self.here.is_some() {
            let at = now();
            if is_held {
                self.one.watched.note_unknown(at, at);
            } else {
                self.check();
            }
            if self.kind.is_busy && !is_last && !is_held && self.may_be_removed() && self.chance(10) {
                // Another process removes the program after the check.
                self.is_removed = true;
                self.carry(3);
            }
        }
        let is_unread = self.kind.is_busy && !is_last && self.chance(10);
        let reading = self.reading().filter(|_| !is_unread);
        let told = if self.kind.by_socket {
            reading.map_or(saw(self.seen), |reading| reading.seen[0])
        } else {
            saw(self.seen)
        };
        self.told = told.all.packets;
        self.one.told = told;
        self.others_then = self.others;
        let unseen = self.one.compare_with(reading, 0, WindowEnd { length: WINDOW, is_last });
        self.note(|_| format!("edge {reading:?} held {is_held}: {unseen:?}"));
        self.declared.add(unseen.unwrap_or_default());
        self.one.changed = false;
        if self.chance(50) {
            self.drain();
        }
    }

    fn check(&mut self) {
        if !std::mem::take(&mut self.is_removed) {
            self.one.watched.note_well(now());
            return;
        }
        self.one.watched.note_wrong(&Position::Removed, now());
        if self.chance(50) {
            // It takes a while to attach it again.
            self.is_removed = true;
            self.carry(5);
            self.is_removed = false;
        }
        self.one.watched.note_mended(now());
    }

    const fn may_be_removed(&self) -> bool {
        !self.kind.by_socket && !self.kind.has_queue
    }

    /// Lets the interface vanish.
    fn go(&mut self) {
        self.drain();
        let Some(here) = self.here else { return };
        let choices = if self.kind.is_vague { 3 } else { 1 };
        let departure = [Departure::Moved, Departure::Deleted, Departure::Unknown, Departure::Unwanted]
            [self.upto(choices) as usize];
        if self.is_removed {
            // A check finds that the program was removed before the interface vanishes.
            self.check();
        }
        let own = self.own(here);
        let last = Reading { own: [own; 2], seen: [saw(self.seen); 2] };
        let is_known = departure == Departure::Moved && !self.kind.by_socket;
        self.one.leave(departure, Some(last).filter(|_| is_known), saw(self.others_then));
        self.one.end();
        if departure == Departure::Moved {
            self.stay(here);
        }
        self.here = None;
        self.note(|world| format!("{:?} {departure:?}", world.links[here].present.ifindex));
        match departure {
            Departure::Deleted => drop(self.links.remove(here)),
            Departure::Unwanted => {
                // It has another name for a while, and is listed with these counts.
                self.links[here].own += self.random % 50;
                let origin = Origin::renamed(Some(self.counts(here)));
                self.links[here].own += self.random % 7;
                self.pause();
                let meanwhile = self.upto(30);
                self.links[here].own += meanwhile;
                self.truth += meanwhile;
                self.come(here, origin);
            }
            Departure::Unknown if self.chance(50) => {
                // It was deleted, and another one has its index and its address.
                (self.links[here].own, self.links[here].away) = (0, 0);
                let meanwhile = self.upto(2 * own.packets);
                (self.links[here].own, self.truth) = (meanwhile, self.truth + meanwhile);
                self.pause();
                self.come(here, Origin::listed(None, false));
            }
            Departure::Unknown => {
                let meanwhile = self.upto(50);
                (self.links[here].own, self.truth) = (self.links[here].own + meanwhile, self.truth + meanwhile);
                self.pause();
                self.come(here, Origin::listed(None, false));
            }
            Departure::Moved => {}
        }
    }

    /// The interface has moved. Its program stays on it for a moment, and sees packets there.
    fn stay(&mut self, link: usize) {
        if self.kind.by_socket {
            return;
        }
        if self.chance(20) {
            // A list still had it, and it could not be attached.
            self.one.note_seen(Some(saw(self.seen)), saw(self.others));
        }
        let some = if self.chance(30) { self.upto(9) } else { 0 };
        self.links[link].own += some;
        self.truth += some;
        if self.kind.has_other_indexes && self.chance(50) {
            self.others += some;
        } else {
            self.seen += some;
        }
        self.one.departures.note_detached(1, saw(self.others));
        self.note(|_| format!("stays for {some}"));
    }

    /// Lets some windows end while no interface is present.
    fn pause(&mut self) {
        for _ in 0..self.upto(2) {
            self.edge(false);
        }
    }

    /// An interface is there, perhaps one that was there before.
    fn arrive(&mut self) {
        if self.here.is_some() {
            return;
        }
        let known = self.upto(2) as usize;
        let link = if known < self.links.len() {
            self.truth += std::mem::take(&mut self.links[known].away);
            known
        } else if self.chance(50) {
            self.make(0)
        } else {
            let lifetime = self.upto(60_000);
            self.make(lifetime)
        };
        let origin = Origin::arrived(self.counts(link));
        let meanwhile = self.upto(20);
        self.links[link].own += meanwhile;
        self.truth += meanwhile;
        self.come(link, origin);
    }

    /// Attaches the link.
    fn come(&mut self, link: usize, origin: Origin) {
        self.links[link].present.origin = origin;
        self.one.note_idle(now(), false, false);
        if self.one.departures.since().is_none() {
            // Packets that the very first interface carried before do not count.
            self.truth = 0;
        }
        self.one.note_seen((!self.kind.by_socket).then(|| saw(self.seen)), saw(self.others));
        if self.chance(20) {
            self.edge(false);
        }
        if self.chance(50) {
            // Packets pass before it is attached.
            self.links[link].own += 2;
            self.truth += if self.one.departures.since().is_some() { 2 } else { 0 };
        }
        self.one.obtained = if self.kind.by_socket { Obtained::AfPacket } else { Obtained::Tcx };
        self.one.attach(self.links[link].present);
        self.here = Some(link);
        self.note(|world| format!("{:?} attached, own {}", world.links[link].present, world.links[link].own));
        let is_read = !self.kind.is_busy || self.chance(80);
        let reading = if self.kind.by_socket {
            let told = saw(self.told);
            Some(Reading { own: [self.own(link); 2], seen: [told; 2] })
        } else {
            self.reading()
        };
        let is_first = self.one.departures.since().is_none();
        self.one.begin(reading.filter(|_| is_read || is_first));
    }

    fn step(&mut self) {
        match self.upto(9) {
            0..=3 => {
                let packets = self.upto(300);
                self.carry(packets);
            }
            4 => {
                // Packets pass on an interface that is elsewhere.
                let away = self.upto(2) as usize;
                if away < self.links.len() && self.here != Some(away) {
                    self.links[away].own += 7;
                    self.links[away].away += 7;
                }
            }
            5 if self.may_be_removed() && self.here.is_some() => {
                self.is_removed = true;
                let missed = self.upto(200);
                self.carry(missed);
                if self.chance(50) {
                    self.check();
                }
            }
            6 if !self.kind.has_queue => self.go(),
            7 => self.arrive(),
            _ => self.edge(false),
        }
    }

    /// Runs a history. Returns how many packets there were, how many of them are declared, and how many more may be.
    fn run(&mut self) -> Result<[u64; 3], String> {
        let was = self.kind;
        for _ in 0..STEPS {
            self.step();
        }
        self.drain();
        self.kind.is_busy = false;
        for _ in 0..6 {
            self.kind.has_queue = false;
            self.edge(false);
        }
        self.edge(true);
        let Unseen { counted, beyond } = self.declared;
        let truth = tally(self.truth, BYTES);
        let least = [tally(self.seen + self.others, BYTES), counted].into_iter().sum::<Tally>();
        let most = [least, beyond].into_iter().sum::<Tally>();
        if least.packets > truth.packets || least.bytes > truth.bytes {
            return Err(format!("at least {least:?} of {truth:?}"));
        }
        if most.packets < truth.packets || most.bytes < truth.bytes {
            return Err(format!("at most {most:?} of {truth:?}"));
        }
        let is_exact = beyond.packets == 0 || beyond.packets >= Unseen::UNKNOWN.beyond.packets;
        if !was.may_be_uncertain() && !is_exact {
            return Err(format!("{beyond:?} are uncertain"));
        }
        Ok([truth.packets, least.packets, beyond.packets])
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}, seen {}, declared {:?}", self.kind, self.seen, self.declared)?;
        self.log.iter().flatten().try_for_each(|line| write!(out, "\n  {line}"))
    }
}

fn all(kind: Kind) -> impl Iterator<Item = [u64; 3]> {
    (1..=HISTORIES).map(move |seed| {
        World::new(seed, kind, false).run().unwrap_or_else(|_| {
            let mut again = World::new(seed, kind, true);
            let why = again.run();
            panic!("history {seed}: {why:?}: {again}")
        })
    })
}

const CALM: Kind =
    Kind { by_socket: false, is_busy: false, has_queue: false, is_vague: false, has_other_indexes: false, omitted: 0 };

/// If no packet passes while the counts are read and the kernel reports everything, nothing is uncertain: only an
/// interface that is deleted while weir is blind leaves it open how many packets were missed. A packet socket does not
/// tell how many packets belong to each of two interfaces in a window.
#[test]
fn calm_histories_are_exact() {
    for by_socket in [false, true] {
        let mut exact = 0;
        for [truth, least, beyond] in all(Kind { by_socket, ..CALM }) {
            exact += u64::from(truth == least);
            assert!(truth == least || beyond > 0, "{least} of {truth}");
        }
        assert!(by_socket || exact * 10 > HISTORIES * 7, "{exact} of {HISTORIES}");
    }
}

#[test]
fn busy_histories_are_within_their_bounds() {
    for by_socket in [false, true] {
        for omitted in [0, 14] {
            assert_eq!(all(Kind { by_socket, is_busy: true, omitted, ..CALM }).count() as u64, HISTORIES);
        }
    }
}

#[test]
fn vague_histories_are_within_their_bounds() {
    for is_busy in [false, true] {
        for has_other_indexes in [false, true] {
            assert_eq!(all(Kind { is_busy, is_vague: true, has_other_indexes, ..CALM }).count() as u64, HISTORIES);
        }
    }
}

/// Packets in a queue look as if they were missing, and weir cannot check whether it was blind.
#[test]
fn queued_packets_are_never_lost() {
    for is_busy in [false, true] {
        for [truth, least, _] in all(Kind { is_busy, has_queue: true, ..CALM }) {
            assert_eq!(least, truth, "every packet is seen");
        }
    }
}
