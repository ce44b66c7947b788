//! What own hosts and networks have carried by day, in both directions.
//!
//! The lists of windows are what counts: a host has at least what its rows say, and at most that and, for each window
//! that did not list it, what that window says of all unlisted hosts. A host that every window lists, as in a network
//! with fewer hosts than rows, has exact sums. Networks are counted packet by packet, so their sums are as exact as
//! those of interfaces. A day keeps its largest hosts; the most that any other host had is kept as well.

mod answer;
mod disk;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
};

use jiff::Timestamp;
use tracing::warn;
use weir_config::{Addresses, names::Prefix};
use weir_schema::{Amount, Estimate, Interface, Top, Window};

pub use self::answer::{ANSWER_BYTES, HostQuery, Known, Whose};

/// How many hosts an open day has.
pub const HOSTS_MAX: usize = 256;
/// How many of them are kept of a day that is over.
const KEPT: usize = 128;
/// How many closed days wait for a disk that does not answer.
const CLOSED_MAX: usize = 4;
const DAY_SECONDS: i64 = 86_400;
/// How much faster or slower than time the wall clock runs at most, as a share.
const CLOCK_ERROR: f64 = 0.01;

/// The memory of a member of a day, with the free places of its table.
const MEMBER_BYTES: usize = 2 * size_of::<(Member, Sums)>();
/// The memory of the open day and of those that wait for the disk, and of a copy for it.
pub const MEMORY_BYTES: usize = (HOSTS_MAX + (CLOSED_MAX + 1) * KEPT) * MEMBER_BYTES;

/// Whose traffic it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// An own address.
    Host(IpAddr),
    /// An own network of the configuration, by its name.
    Network(String),
}

/// The bytes of a member. A packet between two own addresses is in `down` of one and in `up` of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// What was sent to it.
    pub down: Amount,
    /// What it sent.
    pub up: Amount,
    /// Both together.
    pub bytes: Amount,
}

/// A network's bytes in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkBytes {
    /// Its name in the configuration.
    pub name: String,
    /// Its bytes.
    pub sums: Sums,
}

/// A day in UTC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Day {
    /// Distinguishes it from other entries of the same day: when its first window began, in nanoseconds since 1970, or
    /// a little later.
    id: i64,
    /// In days since 1970.
    day: i64,
    /// How long weir saw hosts, in milliseconds.
    seen_ms: u64,
    /// The probability that a bound does not hold is at most this.
    doubt: f64,
    /// The most bytes that a host without an entry has, in either direction or both; `None` if nobody knows.
    unlisted: Option<u64>,
    /// At most [`HOSTS_MAX`] hosts, and the networks.
    members: HashMap<Member, Sums>,
}

/// The open day, and those that wait for the disk.
#[derive(Clone, Debug)]
pub struct Days {
    /// How much of addresses answers show. Unless it is everything, no host is counted.
    pub addresses: Addresses,
    /// Where hosts are.
    pub own: Vec<Prefix>,
    open: Option<Day>,
    closed: VecDeque<Day>,
    /// The largest id so far.
    last_id: i64,
    /// How many closed days were dropped since the last warning.
    dropped: u64,
}

impl Sums {
    fn each(&mut self) -> [&mut Amount; 3] {
        [&mut self.down, &mut self.up, &mut self.bytes]
    }

    fn add(&mut self, Self { down, up, bytes }: Self) {
        for (sum, more) in self.each().into_iter().zip([down, up, bytes]) {
            sum.value = sum.value.saturating_add(more.value);
            sum.lower = sum.lower.saturating_add(more.lower);
            sum.upper = added(sum.upper, more.upper);
        }
    }

    /// A member of which nothing is known but that it has at most this.
    const fn at_most(upper: Option<u64>) -> Self {
        let of = Amount { value: 0, lower: 0, upper };
        Self { down: of, up: of, bytes: of }
    }
}

/// The sum of two upper bounds.
fn added(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    Some(one?.saturating_add(other?))
}

impl Day {
    /// A day of which nothing is known yet.
    fn new(id: i64, day: i64) -> Self {
        Self { id, day, unlisted: Some(0), ..Self::default() }
    }

    /// Adds what was counted of a time of this day. A host that only one of the two has, has at most in the other what
    /// that says of unlisted hosts.
    fn add(&mut self, seen_ms: u64, doubt: f64, unlisted: Option<u64>, members: impl Iterator<Item = (Member, Sums)>) {
        let mut new: HashMap<Member, Sums> = members.collect();
        let before = self.unlisted;
        for (member, sums) in &mut self.members {
            match new.remove(member) {
                Some(more) => sums.add(more),
                None if matches!(member, Member::Host(_)) => sums.add(Sums::at_most(unlisted)),
                None => {}
            }
        }
        for (member, mut sums) in new {
            if matches!(member, Member::Host(_)) {
                sums.add(Sums::at_most(before));
            }
            self.members.insert(member, sums);
        }
        self.seen_ms = self.seen_ms.saturating_add(seen_ms);
        self.doubt += doubt;
        self.unlisted = added(self.unlisted, unlisted);
    }

    /// Adds another entry.
    fn add_day(&mut self, Self { seen_ms, doubt, unlisted, members, .. }: &Self) {
        self.add(*seen_ms, *doubt, *unlisted, members.iter().map(|(member, sums)| (member.clone(), *sums)));
    }

    /// Keeps so many hosts: those that may have had the most.
    fn shorten(&mut self, most: usize) {
        let mut hosts: Vec<_> = self.members.iter().filter(|(member, _)| matches!(member, Member::Host(_))).collect();
        if hosts.len() <= most {
            return;
        }
        let size = |sums: &Sums| (sums.bytes.upper.unwrap_or(u64::MAX), sums.bytes.value);
        hosts.sort_by(|(one, a), (other, b)| size(b).cmp(&size(a)).then_with(|| one.cmp(other)));
        let left_out = hosts[most].1.bytes.upper;
        self.unlisted = self.unlisted.zip(left_out).map(|(unlisted, upper)| unlisted.max(upper));
        let left_out: Vec<Member> = hosts[most..].iter().map(|(member, _)| (*member).clone()).collect();
        for member in left_out {
            self.members.remove(&member);
        }
    }
}

/// How long a window was, in seconds of the wall clock, so that windows without gaps fill a month. Where the clock was
/// set, as measured.
fn length(window: &Window) -> f64 {
    let measured = window.seconds.seconds().unwrap_or(0.0);
    let wall = window.end.duration_since(window.start).as_secs_f64();
    if (wall - measured).abs() <= CLOCK_ERROR * measured { wall } else { measured }
}

impl Default for Days {
    fn default() -> Self {
        Self {
            addresses: Addresses::Full,
            own: Vec::new(),
            open: None,
            closed: VecDeque::new(),
            last_id: i64::MIN,
            dropped: 0,
        }
    }
}

impl Days {
    /// Adds the window of a report. `top` are its lists before addresses are masked.
    pub fn add_window(&mut self, window: &Window, interfaces: &[Interface], top: &Top, networks: Vec<NetworkBytes>) {
        let hosts = top.unlisted.hosts.filter(|_| self.addresses == Addresses::Full).map(|unlisted| (top, unlisted));
        if hosts.is_none() && networks.is_empty() {
            return;
        }
        self.open(window.start.as_second().div_euclid(DAY_SECONDS), window.start);
        let Some(open) = &mut self.open else { return };
        // What an interface carried while weir was blind is in no list.
        let blind = interfaces.iter().filter_map(|interface| interface.blind_seconds).fold(0.0, f64::max);
        let seen_ms = ((length(window) - blind) * 1e3).round().max(0.0) as u64;
        let (listed, unlisted, doubt) = match hosts {
            Some((top, unlisted)) => (&*top.hosts, Some(unlisted), 1.0 - top.confidence),
            None => (&[][..], None, 0.0),
        };
        let listed = listed.iter().map(|host| {
            let of = |of: &Estimate| Amount { value: of.value, lower: of.lower, upper: Some(of.upper) };
            let sums =
                Sums { down: of(&host.numbers.down.bytes), up: of(&host.numbers.up.bytes), bytes: of(&host.bytes) };
            (Member::Host(host.host), sums)
        });
        let networks = networks.into_iter().map(|NetworkBytes { name, sums }| (Member::Network(name), sums));
        open.add(seen_ms, doubt, unlisted, listed.chain(networks));
        open.shorten(HOSTS_MAX);
    }

    /// Goes on with the day that was open.
    pub fn reopen(&mut self, open: Day) {
        self.last_id = self.last_id.max(open.id);
        self.open = Some(open);
    }

    /// The open day, with as many hosts as are kept.
    pub fn open_day(&self) -> Option<Day> {
        self.open.clone().map(|mut open| {
            open.shorten(KEPT);
            open
        })
    }

    /// The days that are not on disk yet, the open one last.
    pub fn unwritten(&self) -> Vec<Day> {
        self.closed.iter().cloned().chain(self.open.clone()).collect()
    }

    /// The closed days that are not on disk yet.
    pub fn closed(&self) -> Vec<Day> {
        self.closed.iter().cloned().collect()
    }

    /// Forgets this many closed days, because they are on disk.
    pub fn forget(&mut self, written: usize) {
        self.closed.drain(..written.min(self.closed.len()));
    }

    /// Logs what could not be kept.
    pub fn warn(&mut self) {
        if std::mem::take(&mut self.dropped) > 0 {
            warn!("the usage of hosts lacks a day: the disk could not take it for {CLOSED_MAX} days");
        }
    }

    /// Makes this day the open one. If the clock was set back, it may have been open before.
    fn open(&mut self, day: i64, begun: Timestamp) {
        if self.open.as_ref().is_some_and(|open| open.day == day) {
            return;
        }
        self.closed.extend(self.open_day());
        if self.closed.len() > CLOSED_MAX {
            self.closed.pop_front();
            self.dropped += 1;
        }
        // If the clock was set back, another entry of this day may have begun at the same time.
        let id = i64::try_from(begun.as_nanosecond()).unwrap_or(i64::MAX).max(self.last_id.saturating_add(1));
        self.last_id = id;
        self.open = Some(Day::new(id, day));
    }
}
