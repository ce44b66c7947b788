//! Compares a program's count of packets with its interface's own count, to find out if the program sees all of them.
//!
//! Two counts cannot be read at the same instant. For a program, weir reads the program's counters, then the
//! interface's own, then the program's again, all within some hundred microseconds. For a packet socket, weir reads the
//! interface's own count before and after it closes the socket's window. Either way one count lies between two readings
//! of the other, and the numbers of a window are differences of two such [`Reading`]s, with bounds. A comparison begins
//! with a reading after the program was attached.
//!
//! A packet that the interface has counted and the program has not counted was either missed, or is still in a queue (a
//! card's ring, a backlog). Queues drain: their packets do not add up from window to window, but missed packets do. So
//! the bounds of a window allow for a short queue. weir warns only if packets are missing at two edges in a row, and if
//! they are more than a long queue holds at the rate of the window. Packets that were queued when the comparison began
//! stay missing forever. weir allows for these as well, at the rate of the first window: the two allowances add up.
//!
//! Packets that pass while the two counts are read also look as if they were missing. A packet is certainly missing
//! only if no order of the readings explains it. All others may be missing, and [`Unseen`] has the bounds.
//!
//! If offloads merge packets, some interfaces count the merged buffers (a veth) and some the packets (`WireGuard`). So
//! any count between the number of buffers and the number of packets in them is accepted as complete. The same holds
//! for bytes: each packet in a buffer had headers of its own.
//!
//! Packets that a packet socket dropped are lost in the ledger, where a merged buffer counts as one packet. In a window
//! with such losses, other missing packets cannot be distinguished from dropped ones, so weir reports none.

use std::time::Duration;

use weir_common::ledger::Tally;
use weir_datapath::interface::Share;

/// A smaller share of missing packets is not reported.
const MISSING_SHARE: f64 = 0.001;
/// The traffic that may be queued at an edge: the packets that arrive while a busy CPU does not serve a queue, ...
const ON_ITS_WAY: Duration = Duration::from_millis(50);
/// ... or this many packets, if that is more.
const ON_ITS_WAY_PACKETS: u64 = 64;
/// The coverage bounds of a window allow for a queue this long, or for the number of packets above, if that is more.
const QUEUED: Duration = Duration::from_millis(5);
/// If the interface counts this many packets in a window and the program sees none, that is reported.
const SILENCE_PACKETS: u64 = 16;
const SILENCE: Duration = Duration::from_millis(500);
/// The headers of each packet in a merged buffer, in bytes, at most: Ethernet with two tags, IPv6, and TCP with
/// options, twice for a tunnel.
const HEADERS_MAX: u64 = 2 * (22 + 40 + 60);
/// The most packets that offloads merge into one buffer.
const MERGED_MAX: u64 = 128;
/// By how many bytes an interface's count of a packet may differ from weir's: a bridge omits the Ethernet header, and
/// some cards add the frame check sequence.
const FRAMING: u64 = 18;
/// The shortest packet, in bytes.
const PACKET_MIN: u64 = 60;
/// The headers that each packet has, in bytes: Ethernet.
const HEADER_MIN: u64 = 14;

/// The packets that weir has seen of an interface since some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenPackets {
    /// All packets that were seen, with their bytes.
    pub all: Tally,
    /// How many of these were packets that offloads had merged into an earlier one.
    pub merged: u64,
}

impl SeenPackets {
    /// Adds packets that were seen later.
    pub const fn add(&mut self, all: Tally, merged: u64) {
        self.all.add(all);
        self.merged = self.merged.wrapping_add(merged);
    }

    /// Packets, bytes and merged packets.
    pub const fn words(self) -> [u64; 3] {
        [self.all.packets, self.all.bytes, self.merged]
    }

    /// Reads the packets from the words of [`Self::words`].
    pub const fn from_words([packets, bytes, merged]: [u64; 3]) -> Self {
        Self { all: Tally::new(packets, bytes), merged }
    }

    /// Returns the packets that were seen since `earlier`.
    pub const fn since(self, earlier: Self) -> Self {
        Self { all: self.all.since(earlier.all), merged: self.merged.wrapping_sub(earlier.merged) }
    }
}

/// Both counts at one moment: each count was at least the first value and at most the second.
///
/// A comparison may also begin with bounds of counts, if an interface had some count already when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The interface's own count, before and after weir's was read.
    pub own: [Tally; 2],
    /// weir's count, before and after the interface's was read.
    pub seen: [SeenPackets; 2],
}

impl Reading {
    /// The same without packets that weir saw after the interface's count was read: since `earlier`, it has seen no
    /// more than the interface had counted.
    #[must_use]
    pub fn without_later(self, earlier: &Self) -> Self {
        const LONGEST: u64 = 1 << 16;
        let own = less(self.own[1], earlier.own[0]).packets;
        let seen = self.seen[1].since(earlier.seen[1]);
        let later = seen.all.packets.saturating_sub(own);
        if later == 0 || seen.merged > 0 || seen.all.packets > u64::MAX / 2 {
            return self;
        }
        let upto = |longest: u64| {
            let mut upto = earlier.seen[1];
            upto.add(Tally::new(own, seen.all.bytes.saturating_sub(later.saturating_mul(longest))), 0);
            upto
        };
        Self { own: self.own, seen: [upto(LONGEST), upto(HEADER_MIN)] }
    }
}

/// The packets that the interface counted and weir did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// How many there were, at least.
    pub counted: Tally,
    /// How many more there may have been.
    pub beyond: Tally,
}

impl Unseen {
    /// Nothing is known. The bound is more than any interface can carry in a window.
    pub const UNKNOWN: Self = Self { counted: Tally::new(0, 0), beyond: Tally::new(1 << 50, 1 << 60) };

    /// The packets between two readings; `None` if the interface has reset its counters.
    pub fn between(earlier: &Reading, later: &Reading) -> Option<Self> {
        Passed::between(earlier, later).map(|passed| passed.unseen(None))
    }

    /// Adds other packets that were not seen.
    pub const fn add(&mut self, other: Self) {
        self.counted.add(other.counted);
        self.beyond.add(other.beyond);
    }

    /// Returns true if no packet can have been missed.
    pub const fn is_none(self) -> bool {
        self.counted.is_zero() && self.beyond.is_zero()
    }

    /// Returns bounds for the same packets if none of them is certain.
    #[must_use]
    pub fn doubted(self) -> Self {
        Self { counted: Tally::default(), beyond: [self.counted, self.beyond].into_iter().sum() }
    }

    /// Combines two comparisons with the same beginning, of which this is the later one, if no more packets can have
    /// been missed since the first. Both have a lower and an upper bound: packets that are in a queue at one end need
    /// not be in one at the other.
    #[must_use]
    fn narrowed_by(self, earlier: Self) -> Self {
        let least = |a: Tally, b: Tally| Tally::new(a.packets.min(b.packets), a.bytes.min(b.bytes));
        let most = |one: Self| [one.counted, one.beyond].into_iter().sum();
        let counted = least(self.counted, earlier.counted);
        Self { counted, beyond: less(least(most(self), most(earlier)), counted) }
    }
}

/// `all` without `part`; 0 if that is more.
pub const fn less(all: Tally, part: Tally) -> Tally {
    Tally::new(all.packets.saturating_sub(part.packets), all.bytes.saturating_sub(part.bytes))
}

/// The verdict on missing packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shortage {
    /// No packets are missing.
    #[default]
    None,
    /// Packets may be missing, but they may also have passed between the readings, or a long queue may hold them.
    Possible,
    /// Packets are missing, and no queue explains it.
    Certain,
}

/// The result for a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Packets seen per packet that the interface counted; `None` if it counted none, or has no counters.
    pub packets: Option<Share>,
    /// The share of the bytes that weir has seen.
    pub bytes: Option<Share>,
    /// The packets that were not seen; `None` if that is not known.
    pub unseen: Option<Unseen>,
    /// The verdict on missing packets.
    pub shortage: Shortage,
    /// The problem to report, if any.
    pub finding: Option<Finding>,
}

impl Compared {
    /// Bounds of the packets that were not seen, if some were certainly missed.
    pub fn certainly_unseen(&self) -> Option<[Tally; 2]> {
        let Unseen { counted, beyond } = self.unseen.filter(|_| self.shortage == Shortage::Certain)?;
        Some([counted, [counted, beyond].into_iter().sum()])
    }
}

/// One direction of an interface, since its program was attached or since the last warning.
#[derive(Debug, Default)]
pub struct Coverage {
    reading: Option<Reading>,
    /// The reading with which the last one was compared, and the time between the two; `None` if packets missing
    /// between them must not be counted again.
    before: Option<(Reading, Duration)>,
    /// How much longer the compared time is than the window that ends.
    longer: Duration,
    /// The result of the last comparison.
    last: Unseen,
    /// The combined result of earlier comparisons with the same beginning, and the last reading, if no packet can have
    /// been missed since.
    waited: Option<(Unseen, Reading)>,
    /// That reading and the time since then, if packets missing since then are not in what the last comparison showed.
    recent: Option<(Reading, Duration)>,
    own: u64,
    seen: u64,
    missing: u64,
    /// How many packets may have been queued when the comparison began; unknown before the first window.
    first: Option<u64>,
    /// How many bytes the interface adds to each packet, compared with weir; unknown before all packets of a window
    /// were seen.
    surplus: Option<i64>,
}

/// A problem to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The interface counted packets and the program saw none.
    Silent {
        /// The number of packets that the interface has counted.
        own: u64,
    },
    /// The program does not see all packets.
    Missing {
        /// How many packets it did not see.
        packets: u64,
        /// How many packets the interface counted.
        own: u64,
    },
}

/// The packets between two readings: the likeliest, the smallest and the largest number.
#[derive(Clone, Copy, Debug)]
struct Passed {
    own: [Tally; 3],
    seen: [SeenPackets; 3],
}

impl Passed {
    /// `None` if the interface has reset its counters.
    fn between(earlier: &Reading, later: &Reading) -> Option<Self> {
        let (before, after) = (earlier.own, later.own);
        if after[0].packets < before[0].packets || after[0].bytes < before[0].bytes {
            return None;
        }
        let seen_less = |a: SeenPackets, b: SeenPackets| {
            // Counters wrap, but the later value is never smaller by more than what was counted between the readings.
            let apart = a.since(b);
            if apart.all.packets > u64::MAX / 2 { SeenPackets::default() } else { apart }
        };
        Some(Self {
            own: [less(after[1], before[1]), less(after[0], before[1]), less(after[1], before[0])],
            seen: [
                seen_less(later.seen[1], earlier.seen[1]),
                seen_less(later.seen[0], earlier.seen[1]),
                seen_less(later.seen[1], earlier.seen[0]),
            ],
        })
    }

    /// Returns true if no packet was counted while the counts were read.
    fn is_exact(&self) -> bool {
        self.own[1] == self.own[2] && self.seen[1] == self.seen[2]
    }

    fn packets(&self, queued: u64) -> Option<Share> {
        let complete = |seen: SeenPackets| [seen.all.packets.saturating_sub(seen.merged), seen.all.packets];
        share(self.own.map(|own| own.packets), self.seen.map(complete), queued)
    }

    fn bytes(&self, queued: u64) -> Option<Share> {
        let complete = |seen: SeenPackets| {
            [seen.all.bytes.saturating_sub(seen.merged.saturating_mul(HEADERS_MAX)), seen.all.bytes]
        };
        let own = self.own[0];
        share(self.own.map(|own| own.bytes), self.seen.map(complete), queued.saturating_mul(own.mean_bytes()))
    }

    /// The packets that were not seen. `surplus` is what the interface adds to the bytes of each packet, if known. If
    /// it is unknown, it is taken to be 0 for the lower bound.
    fn unseen(&self, surplus: Option<i64>) -> Unseen {
        let [own_least, own_most] = [self.own[1], self.own[2]].map(|own| without_surplus(own, surplus.unwrap_or(0)));
        let [_, seen_least, seen_most] = self.seen;
        let counted = match own_least.packets.saturating_sub(seen_most.all.packets) {
            0 => Tally::default(),
            packets => {
                let bytes = own_least.bytes.saturating_sub(seen_most.all.bytes);
                Tally::new(packets, bytes.max(packets.saturating_mul(HEADER_MIN)))
            }
        };
        let framing = if surplus.is_some() { 0 } else { FRAMING.saturating_mul(own_most.packets) };
        let mut most = Tally::new(
            own_most.packets.saturating_sub(seen_least.all.packets.saturating_sub(seen_least.merged)),
            own_most.bytes.saturating_sub(seen_least.all.bytes).saturating_add(framing),
        );
        if most.packets == 0 {
            return Unseen::default();
        }
        if seen_least.merged > 0 {
            // A missed buffer may have held many packets.
            let buffers = most.packets;
            most.packets = buffers.max(most.bytes / PACKET_MIN).min(buffers.saturating_mul(MERGED_MAX));
            most.bytes = most.bytes.saturating_add(most.packets.saturating_mul(HEADERS_MAX));
        }
        Unseen { counted, beyond: less(most, counted) }
    }
}

/// An interface's count if it adds this many bytes to each packet; fewer than 0 if it omits some.
fn without_surplus(own: Tally, surplus: i64) -> Tally {
    let bytes = i128::from(own.bytes) - i128::from(surplus) * i128::from(own.packets);
    Tally::new(own.packets, u64::try_from(bytes.max(0)).unwrap_or(u64::MAX))
}

/// The share of `own` that was seen. Both have the likeliest, the smallest and the largest value. Any count between the
/// two values of `seen` is accepted as complete.
fn share(own: [u64; 3], seen: [[u64; 2]; 3], queued: u64) -> Option<Share> {
    let [value, least, most] = own;
    let of = |own: u64, [from, to]: [u64; 2]| own.clamp(from, to);
    let (likeliest, fewest, all) = (of(value, seen[0]), of(most, seen[1]), of(least, seen[2]));
    (value > 0).then(|| {
        let share = likeliest as f64 / value as f64;
        let lower = fewest.saturating_sub(queued) as f64 / most as f64;
        let upper = all.saturating_add(queued) as f64 / least.max(1) as f64;
        Share { value: share, lower: lower.min(share), upper: upper.max(share) }
    })
}

impl Coverage {
    /// Starts with this reading; if it is `None`, starts at the next edge.
    pub const fn new(reading: Option<Reading>) -> Self {
        Self {
            reading,
            before: None,
            longer: Duration::ZERO,
            last: Unseen { counted: Tally::new(0, 0), beyond: Tally::new(0, 0) },
            waited: None,
            recent: None,
            own: 0,
            seen: 0,
            missing: 0,
            first: None,
            surplus: None,
        }
    }

    /// Both counts at the last comparison, or when it began.
    pub const fn reading(&self) -> Option<Reading> {
        self.reading
    }

    /// Returns the result of the last comparison.
    pub const fn last(&self) -> Unseen {
        self.last
    }

    /// Notes that weir's count when the comparison began may have been as large as this.
    pub const fn note_seen_at_most(&mut self, seen: SeenPackets) {
        if let Some(reading) = &mut self.reading {
            reading.seen[1] = seen;
        }
    }

    /// The interface's own count could not be read at the edge of a window of this length. The next edge compares both
    /// windows.
    pub fn postpone(&mut self, length: Duration) {
        self.longer += length;
    }

    /// Starts over with this reading, but remembers how the interface counts.
    const fn begin(&mut self, reading: Option<Reading>) {
        *self = Self { surplus: self.surplus, ..Self::new(reading) };
    }

    /// Marks the missing packets that the last comparison showed as accounted for.
    pub const fn account(&mut self) {
        self.before = self.recent;
    }

    /// Makes the next edge compare with the edge before the last one, unless the packets missing then are accounted
    /// for: packets may already have been missed before the last edge.
    pub fn go_back(&mut self) {
        if let Some((before, longer)) = self.before {
            let (last, waited) = (self.last, self.reading.map(|reading| (self.last, reading)));
            *self = Self { surplus: self.surplus, longer, last, waited, ..Self::new(Some(before)) };
        }
    }

    /// More packets may have been missed since the last comparison: it says nothing about the next one.
    pub const fn forget_earlier(&mut self) {
        self.waited = None;
    }

    /// Returns true if nothing has been compared yet.
    pub const fn is_new(&self) -> bool {
        self.reading.is_none() && self.own == 0
    }

    /// Compares at the edge of a window of this length, in which the packet socket dropped `dropped` packets.
    /// `was_blind` means that the caller already knows that packets may have been missed, and why.
    pub fn edge(&mut self, now: Option<Reading>, dropped: u64, was_blind: bool, length: Duration) -> Compared {
        let passed = now.zip(self.reading).and_then(|(now, earlier)| Passed::between(&earlier, &now));
        let Some(passed) = passed else {
            // There is nothing to compare, or the driver has reset its counters.
            self.begin(now);
            return Compared::default();
        };
        let (window, length) = (length, length + std::mem::take(&mut self.longer));
        let waited = self.waited.take();
        self.recent = waited.map(|(_, reading)| (reading, window));
        self.before = std::mem::replace(&mut self.reading, now).map(|before| (before, length));
        let ([own, ..], [seen, ..]) = (passed.own, passed.seen);
        self.own += own.packets;
        self.seen += seen.all.packets;
        let queued = in_queues(own.packets, QUEUED, length);
        let mut unseen = passed.unseen(self.surplus);
        if let Some((earlier, _)) = waited {
            unseen = unseen.narrowed_by(earlier);
        }
        let mut compared = Compared {
            packets: passed.packets(queued),
            bytes: passed.bytes(queued),
            unseen: Some(unseen),
            shortage: if unseen.is_none() {
                Shortage::None
            } else if unseen.counted.packets <= in_queues(own.packets, ON_ITS_WAY, length) {
                Shortage::Possible
            } else {
                Shortage::Certain
            },
            finding: None,
        };
        if dropped > 0 || was_blind {
            let (before, recent) = (self.before.filter(|_| dropped == 0), self.recent);
            self.begin(now);
            (self.before, self.recent, self.last) = (before, recent, unseen);
            return compared;
        }
        self.last = unseen;
        if own.packets > 0 && own.packets == seen.all.packets && seen.merged == 0 && passed.is_exact() {
            self.surplus = surplus(own, seen.all.bytes);
        }
        compared.finding = self.judge(own.packets, length);
        compared
    }

    fn judge(&mut self, passed: u64, length: Duration) -> Option<Finding> {
        let missing = self.own.saturating_sub(self.seen);
        let lasting = missing.min(std::mem::replace(&mut self.missing, missing));
        let queue = in_queues(passed, ON_ITS_WAY, length);
        let on_their_way = queue + *self.first.get_or_insert(queue);
        let finding = if self.seen == 0 && self.own >= SILENCE_PACKETS && length >= SILENCE {
            Finding::Silent { own: self.own }
        } else if lasting > on_their_way && lasting as f64 > self.own as f64 * MISSING_SHARE {
            Finding::Missing { packets: lasting, own: self.own }
        } else {
            return None;
        };
        // It is reported now. If more packets are missed later, those are reported, too. A later check may still find
        // that the program was blind in this window.
        let (before, recent, last) = (self.before, self.recent, self.last);
        self.begin(self.reading);
        (self.before, self.recent, self.last) = (before, recent, last);
        Some(finding)
    }
}

/// How many bytes an interface adds to each of these packets, which have this many `bytes` for weir. `None` if it adds
/// more to some than to others.
fn surplus(own: Tally, bytes: u64) -> Option<i64> {
    let (all, packets) = (i128::from(own.bytes) - i128::from(bytes), i128::from(own.packets));
    i64::try_from(all / packets).ok().filter(|each| i128::from(*each) * packets == all)
}

/// How many packets may be queued: those that arrive in `time`, if this many passed in `length`.
fn in_queues(passed: u64, time: Duration, length: Duration) -> u64 {
    ON_ITS_WAY_PACKETS.max(arriving(passed, time, length))
}

/// How many of these packets arrived in `time`, on average.
fn arriving(passed: u64, time: Duration, length: Duration) -> u64 {
    (passed as f64 * (time.as_secs_f64() / length.max(time).as_secs_f64())) as u64
}

#[cfg(test)]
mod tests;
