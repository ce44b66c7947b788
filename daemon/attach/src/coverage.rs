//! Whether a program sees all packets of its interface: compares its count with the interface's own.
//!
//! Two counts cannot be read at the same instant. For a program, weir reads the counters in place, then the interface's
//! own, then the program's again, all within some hundred microseconds. For a packet socket, weir reads the interface's
//! own count before and after it closes the socket's window. Either way one count lies between two readings of the
//! other, and the numbers of a window are differences of two such [`Reading`]s, with bounds. A comparison begins with a
//! reading after the program was attached.
//!
//! A packet that the interface has counted and the program has not was either missed, or is still in a queue (a card's
//! ring, a backlog). Queues drain: their packets do not add up from window to window, but missed packets do. So the
//! bounds of a window allow for a short queue. weir warns only of packets that were missing at two edges in a row, and
//! that are more than a long queue holds at the rate of the window. Packets that were queued when the comparison began
//! stay missing forever. This is allowed for as well, at the rate of the first window: the two allowances add up.
//!
//! If offloads merge packets, some interfaces count the merged buffers (a veth) and some the packets (`WireGuard`). So
//! any count between the number of buffers and the number of packets in them is accepted as complete. The same holds
//! for bytes: each packet in a buffer had headers of its own.
//!
//! Packets that a packet socket dropped are lost in the ledger, where a merged buffer counts as one packet. In a window
//! with such losses other missing packets cannot be distinguished from them, so weir reports none for that window.

use std::time::Duration;

use weir_common::ledger::Tally;
use weir_datapath::interface::Share;

/// A smaller share of missing packets is not reported.
const MISSING_SHARE: f64 = 0.001;
/// The traffic that may be in queues at an edge: what arrives while a busy CPU does not serve a queue, ...
const ON_ITS_WAY: Duration = Duration::from_millis(50);
/// ... or this many packets, if that is more.
const ON_ITS_WAY_PACKETS: u64 = 64;
/// What the coverage bounds of a window allow for in queues: what arrives in this time, or the number above, if more.
const QUEUED: Duration = Duration::from_millis(5);
/// An interface must count this many packets in this time before a program that saw none is reported.
const SILENCE_PACKETS: u64 = 16;
const SILENCE: Duration = Duration::from_millis(500);
/// The headers of each packet in a merged buffer, in bytes, at most: Ethernet with two tags, IPv6, TCP with options,
/// twice for a tunnel.
const HEADERS_MAX: u64 = 2 * (22 + 40 + 60);
/// The most packets that offloads merge into one buffer.
const MERGED_MAX: u64 = 128;
/// By how many bytes an interface's count of a packet may differ from weir's: a bridge omits the Ethernet header, some
/// cards add the frame check sequence.
const FRAMING: u64 = 18;
/// The shortest packet, in bytes.
const PACKET_MIN: u64 = 60;

/// What weir has seen of an interface since some moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// All packets.
    pub all: Tally,
    /// Of these, packets that offloads had merged into an earlier one.
    pub merged: u64,
}

impl Seen {
    /// Adds what else was seen.
    pub const fn add(&mut self, all: Tally, merged: u64) {
        self.all.add(all);
        self.merged = self.merged.wrapping_add(merged);
    }

    /// What was seen since `earlier`.
    pub const fn since(self, earlier: Self) -> Self {
        Self { all: self.all.since(earlier.all), merged: self.merged.wrapping_sub(earlier.merged) }
    }
}

/// Both counts at one moment: each was at least the first value and at most the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The interface's own.
    pub own: [Tally; 2],
    /// weir's.
    pub seen: [Seen; 2],
}

/// What the interface counted and weir did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// By the interface's own count.
    pub counted: Tally,
    /// How many more it may have been.
    pub beyond: Tally,
}

/// Whether packets are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shortage {
    /// No more than a short queue holds at this rate.
    #[default]
    None,
    /// Possibly: a long queue may hold that many.
    Possible,
    /// No queue explains it.
    Certain,
}

/// The result for a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Compared {
    /// Packets seen per packet that the interface counted; `None` if it counted none, or gives no count.
    pub packets: Option<Share>,
    /// The same for bytes.
    pub bytes: Option<Share>,
    /// What was not seen; `None` if that is not known.
    pub unseen: Option<Unseen>,
    /// Whether packets are missing.
    pub shortage: Shortage,
    /// What is wrong.
    pub finding: Option<Finding>,
}

/// One direction of an interface, since its program was attached or since the last warning.
#[derive(Debug, Default)]
pub struct Coverage {
    reading: Option<Reading>,
    /// The reading before that one and the length of the window between the two; `None` if packets missing between the
    /// two must not be counted again.
    before: Option<(Reading, Duration)>,
    /// By how much the compared time is longer than the window that ends.
    longer: Duration,
    own: u64,
    seen: u64,
    missing: u64,
    /// What may have been queued when the comparison began; unknown before the first window.
    first: Option<u64>,
    /// Whether the interface counts the bytes of a packet as weir does; unknown before it has counted any.
    counts_alike: Option<bool>,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The interface counted packets and the program saw none.
    Silent {
        /// How many.
        own: u64,
    },
    /// The program does not see all.
    Missing {
        /// How many it did not see.
        packets: u64,
        /// How many the interface counted.
        own: u64,
    },
}

/// What was counted between two readings: the likeliest, the smallest and the largest value.
#[derive(Clone, Copy, Debug)]
struct Passed {
    own: [Tally; 3],
    seen: [Seen; 3],
}

impl Passed {
    /// `None` if the interface has reset its counters.
    fn between(earlier: &Reading, later: &Reading) -> Option<Self> {
        let (before, after) = (earlier.own, later.own);
        if after[0].packets < before[0].packets || after[0].bytes < before[0].bytes {
            return None;
        }
        let less =
            |a: Tally, b: Tally| Tally::new(a.packets.saturating_sub(b.packets), a.bytes.saturating_sub(b.bytes));
        let seen_less = |a: Seen, b: Seen| {
            // Counters wrap, but the later value is never smaller by more than what was read in between.
            let apart = a.since(b);
            if apart.all.packets > u64::MAX / 2 { Seen::default() } else { apart }
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

    fn packets(&self, queued: u64) -> Option<Share> {
        let complete = |seen: Seen| [seen.all.packets.saturating_sub(seen.merged), seen.all.packets];
        share(self.own.map(|own| own.packets), self.seen.map(complete), queued)
    }

    fn bytes(&self, queued: u64) -> Option<Share> {
        let complete =
            |seen: Seen| [seen.all.bytes.saturating_sub(seen.merged.saturating_mul(HEADERS_MAX)), seen.all.bytes];
        let own = self.own[0];
        share(self.own.map(|own| own.bytes), self.seen.map(complete), queued.saturating_mul(own.mean_bytes()))
    }

    /// What was not seen.
    fn unseen(&self, counts_alike: bool) -> Unseen {
        let [own, _, own_most] = self.own;
        let [seen, seen_least, _] = self.seen;
        let packets = own.packets.saturating_sub(seen.all.packets);
        let bytes = own.bytes.saturating_sub(seen.all.bytes);
        // A missed packet has at least its headers.
        let bytes = if bytes < packets * 14 { packets * (own.mean_bytes() + 14) } else { bytes };
        let counted = if packets == 0 { Tally::default() } else { Tally::new(packets, bytes) };
        let (mut most, mut most_bytes) = (
            own_most.packets.saturating_sub(seen_least.all.packets - seen_least.merged.min(seen_least.all.packets)),
            own_most.bytes.saturating_sub(seen_least.all.bytes),
        );
        if !counts_alike {
            most_bytes += FRAMING * own_most.packets;
        }
        if seen.merged > 0 {
            // A missed buffer may have held many packets.
            let buffers = most;
            most = buffers.max(most_bytes / PACKET_MIN).min(buffers.saturating_mul(MERGED_MAX));
            most_bytes += most * HEADERS_MAX;
        }
        let beyond = Tally::new(most.saturating_sub(counted.packets), most_bytes.saturating_sub(counted.bytes));
        Unseen { counted, beyond: if most == 0 { Tally::default() } else { beyond } }
    }
}

/// The share of `own` that was seen. Both have the likeliest, the smallest and the largest value. Any number between
/// the two of `seen` counts as complete.
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
            own: 0,
            seen: 0,
            missing: 0,
            first: None,
            counts_alike: None,
        }
    }

    /// Both counts when it was last compared, or when it began.
    pub const fn reading(&self) -> Option<Reading> {
        self.reading
    }

    /// Starts over with this reading, but keeps what is known about how the interface counts.
    const fn begin(&mut self, reading: Option<Reading>) {
        *self = Self { counts_alike: self.counts_alike, ..Self::new(reading) };
    }

    /// Marks the missing packets of the window that has ended as accounted for.
    pub const fn account(&mut self) {
        self.before = None;
    }

    /// Compares at the next edge from the edge before the last one, unless the packets missing then are accounted for:
    /// packets may already have been missed before the last edge.
    pub const fn go_back(&mut self) {
        if let Some((before, longer)) = self.before {
            *self = Self { counts_alike: self.counts_alike, longer, ..Self::new(Some(before)) };
        }
    }

    /// Whether nothing is known yet.
    pub const fn is_new(&self) -> bool {
        self.reading.is_none() && self.own == 0
    }

    /// Adds what another weir, an earlier one, has seen since the reading.
    pub const fn credit(&mut self, more: Seen) {
        if let Some(reading) = &mut self.reading {
            reading.seen = [reading.seen[0].since(more), reading.seen[1].since(more)];
        }
    }

    /// The edge of a window of this length, in which the packet socket dropped `dropped` packets. `was_blind` if it is
    /// already known that packets may have been missed, and why.
    pub fn edge(&mut self, now: Option<Reading>, dropped: u64, was_blind: bool, length: Duration) -> Compared {
        let passed = now.zip(self.reading).and_then(|(now, earlier)| Passed::between(&earlier, &now));
        let Some(passed) = passed else {
            // There is nothing to compare, or the driver has reset its counters.
            self.begin(now);
            return Compared::default();
        };
        self.before = std::mem::replace(&mut self.reading, now).map(|before| (before, length));
        let length = length + std::mem::take(&mut self.longer);
        let ([own, ..], [seen, ..]) = (passed.own, passed.seen);
        self.own += own.packets;
        self.seen += seen.all.packets;
        let queued = in_queues(own.packets, QUEUED, length);
        let unseen = passed.unseen(self.counts_alike == Some(true));
        let mut compared = Compared {
            packets: passed.packets(queued),
            bytes: passed.bytes(queued),
            unseen: Some(unseen),
            shortage: match unseen.counted.packets {
                missing if missing <= arriving(own.packets, QUEUED, length) => Shortage::None,
                missing if missing <= in_queues(own.packets, ON_ITS_WAY, length) => Shortage::Possible,
                _ => Shortage::Certain,
            },
            finding: None,
        };
        if dropped > 0 || was_blind {
            let before = self.before.filter(|_| dropped == 0);
            self.begin(now);
            self.before = before;
            return compared;
        }
        if own.packets > 0 && own.packets == seen.all.packets && seen.merged == 0 {
            self.counts_alike = Some(own.bytes == seen.all.bytes);
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
        // It is reported now. Packets that go missing from here on are reported again.
        self.begin(self.reading);
        Some(finding)
    }
}

/// How many packets may be queued, if this many passed in `length`: those of `time`.
fn in_queues(passed: u64, time: Duration, length: Duration) -> u64 {
    ON_ITS_WAY_PACKETS.max(arriving(passed, time, length))
}

/// How many of these packets arrived in such a `time`, on average.
fn arriving(passed: u64, time: Duration, length: Duration) -> u64 {
    (passed as f64 * (time.as_secs_f64() / length.max(time).as_secs_f64())) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn saw(packets: u64) -> Seen {
        Seen { all: Tally::new(packets, packets * 100), merged: 0 }
    }

    /// Counts that are read at the same instant.
    struct Case {
        coverage: Coverage,
        seen: Seen,
    }

    impl Case {
        fn new(own: Option<u64>) -> Self {
            let mut case = Self { coverage: Coverage::new(None), seen: Seen::default() };
            case.coverage = Coverage::new(case.reading(own));
            case
        }

        fn reading(&self, own: Option<u64>) -> Option<Reading> {
            Some(Reading { own: [Tally::new(own?, own? * 100); 2], seen: [self.seen; 2] })
        }

        fn compare(&mut self, own: Option<u64>, saw: Seen, was_blind: bool) -> Compared {
            self.seen.add(saw.all, saw.merged);
            self.coverage.edge(self.reading(own), 0, was_blind, SECOND)
        }

        fn edge(&mut self, own: Option<u64>, saw: Seen, length: Duration) -> (Option<f64>, Option<Finding>) {
            self.dropping(own, saw, 0, length)
        }

        fn dropping(
            &mut self,
            own: Option<u64>,
            saw: Seen,
            dropped: u64,
            length: Duration,
        ) -> (Option<f64>, Option<Finding>) {
            self.seen.add(saw.all, saw.merged);
            let compared = self.coverage.edge(self.reading(own), dropped, false, length);
            (compared.packets.map(|share| share.value), compared.finding)
        }
    }

    #[test]
    fn what_offloads_merge_may_be_counted_either_way() {
        let merged = Seen { merged: 900, ..saw(1_000) };
        for (own, expected) in [(50, 2.0), (100, 1.0), (500, 1.0), (1_000, 1.0), (2_000, 0.5)] {
            let (coverage, finding) = Case::new(Some(0)).edge(Some(own), merged, SECOND);
            assert_eq!((coverage, finding), (Some(expected), None), "{own}");
        }
    }

    #[test]
    fn what_was_on_its_way_at_the_beginning_is_not_missing_when_traffic_ends() {
        // 4 ms of 20,000 packets a second arrived between the two counts of the first edge.
        let mut coverage = Case::new(None);
        assert_eq!(coverage.edge(Some(5_000), saw(5_080), SECOND).1, None);
        assert_eq!(coverage.edge(Some(25_000), saw(20_000), SECOND).1, None);
        assert_eq!(coverage.edge(Some(26_000), saw(920), SECOND).1, None);
        for own in [26_000, 26_010, 26_020] {
            assert_eq!(coverage.edge(Some(own), saw(10), SECOND).1, None, "{own}");
        }
        // More than 50 ms of that are missing, however slowly.
        let mut findings = (1..=20).map(|nth| coverage.edge(Some(26_020 + nth * 100), saw(0), SECOND).1);
        assert!(findings.any(|finding| matches!(finding, Some(Finding::Missing { packets: 1_001..1_200, .. }))));
    }

    #[test]
    fn what_was_on_its_way_at_both_ends_adds_up() {
        // 40 ms of 20,000 packets a second at the start, and as many at two edges in a row.
        let mut coverage = Case::new(Some(0));
        for (own, seen) in [(20_000, 19_200), (40_000, 19_200), (60_000, 20_000)] {
            assert_eq!(coverage.edge(Some(own), saw(seen), SECOND).1, None, "{own}");
        }
        // Each end has an allowance at its own rate: 2,000 packets for both, and 1,000 and 64 when traffic ends.
        let told = |missing: u64, last: u64| {
            let mut coverage = Case::new(Some(0));
            coverage.edge(Some(20_000), saw(20_000 - missing), SECOND);
            coverage.edge(Some(20_000 + last), saw(last), SECOND).1
        };
        assert_eq!(told(2_000, 20_000), None);
        assert_eq!(told(2_001, 20_000), Some(Finding::Missing { packets: 2_001, own: 40_000 }));
        assert_eq!(told(1_064, 0), None);
        assert_eq!(told(1_065, 0), Some(Finding::Missing { packets: 1_065, own: 20_000 }));
    }

    #[test]
    fn packets_on_their_way_are_not_missing() {
        let mut coverage = Case::new(Some(1_000));
        let (mut own, mut seen) = (1_000, 0);
        for window in 1..100 {
            own += 100_000;
            // Some thousand are queued at each edge, never the same number.
            let now = own - 1_000 - window * 40;
            let (share, finding) = coverage.edge(Some(own), saw(now - seen), SECOND);
            seen = now;
            assert!(share.unwrap() > 0.94, "{window}: {share:?}");
            assert_eq!(finding, None, "{window}");
        }
    }

    #[test]
    fn what_is_missing_is_told_once_it_lasts_and_again_if_it_goes_on() {
        let mut coverage = Case::new(Some(0));
        assert_eq!(coverage.edge(Some(20_000), saw(10_000), SECOND), (Some(0.5), None), "it may be on its way");
        let told = Finding::Missing { packets: 10_000, own: 20_000 };
        assert_eq!(coverage.edge(Some(20_000), saw(0), SECOND), (None, Some(told)));
        for _ in 0..5 {
            assert_eq!(coverage.edge(Some(20_000), saw(0), SECOND), (None, None));
        }
        assert_eq!(coverage.edge(Some(40_000), saw(19_000), SECOND).1, None);
        assert_eq!(
            coverage.edge(Some(60_000), saw(19_000), SECOND).1,
            None,
            "1,000 are no more than 50 ms at this rate"
        );
        assert_eq!(
            coverage.edge(Some(80_000), saw(19_000), SECOND).1,
            Some(Finding::Missing { packets: 2_000, own: 60_000 })
        );
    }

    #[test]
    fn a_little_is_missing_only_when_it_adds_up() {
        let mut coverage = Case::new(Some(0));
        let told = (1..=60_u64).find(|n| coverage.edge(Some(n * 100_000), saw(99_500), SECOND).1.is_some());
        assert_eq!(told, Some(22), "half a percent of 100,000 a second exceeds twice 50 ms of it after twenty windows");
        let mut coverage = Case::new(Some(0));
        assert!(
            (1..=60_u64).all(|n| coverage.edge(Some(n * 100_000), saw(99_950), SECOND).1.is_none()),
            "half of what is told"
        );
    }

    #[test]
    fn what_may_be_on_its_way_is_told_by_the_rate_of_the_window() {
        // 100,000 packets in ten seconds: 500 in the 50 ms that a queue may wait, at each end.
        let told = |missing: u64| {
            let mut coverage = Case::new(Some(0));
            let window = saw(100_000 - missing);
            coverage.edge(Some(100_000), window, 10 * SECOND);
            coverage.edge(Some(200_000), saw(100_000), 10 * SECOND).1
        };
        assert_eq!(told(1_000), None);
        assert_eq!(told(1_001), Some(Finding::Missing { packets: 1_001, own: 200_000 }));
    }

    #[test]
    fn a_thousandth_is_not_told() {
        let told = |missing: u64| {
            let mut coverage = Case::new(Some(0));
            coverage.edge(Some(0), saw(0), SECOND);
            coverage.edge(Some(200_000), saw(200_000 - missing), SECOND);
            coverage.edge(Some(200_000), saw(0), SECOND).1
        };
        assert_eq!(told(200), None);
        assert_eq!(told(201), Some(Finding::Missing { packets: 201, own: 200_000 }));
    }

    #[test]
    fn it_is_new_until_the_interface_has_been_read_or_has_counted() {
        let mut case = Case::new(None);
        assert!(case.coverage.is_new());
        case.edge(None, saw(5), SECOND);
        assert!(case.coverage.is_new(), "still nothing to compare");
        case.edge(Some(10), saw(5), SECOND);
        assert!(!case.coverage.is_new() && !Case::new(Some(0)).coverage.is_new());
    }

    #[test]
    fn what_a_socket_dropped_is_not_told_once_more() {
        let mut coverage = Case::new(Some(0));
        for window in 1..10 {
            assert_eq!(coverage.dropping(Some(window * 5_000), saw(1_000), 100, SECOND), (Some(0.2), None), "{window}");
        }
        for window in 10..20 {
            assert_eq!(coverage.edge(Some(window * 5_000), saw(5_000), SECOND), (Some(1.0), None), "{window}");
        }
        assert_eq!(coverage.edge(Some(100_000), saw(1_000), SECOND).1, None, "it may be on its way");
        let told = Finding::Missing { packets: 4_000, own: 55_000 };
        assert_eq!(coverage.edge(Some(100_000), saw(0), SECOND).1, Some(told), "and is told without such a loss");
    }

    #[test]
    fn a_silent_program_is_told_in_its_first_window() {
        let mut coverage = Case::new(Some(5));
        assert_eq!(coverage.edge(Some(15), saw(0), SECOND), (Some(0.0), None));
        assert_eq!(coverage.edge(Some(30), saw(0), SECOND), (Some(0.0), Some(Finding::Silent { own: 25 })));
    }

    #[test]
    fn counters_that_are_unknown_or_begin_anew_are_no_fault() {
        let mut coverage = Case::new(None);
        assert_eq!(
            coverage.edge(Some(10_000), saw(10), SECOND),
            (None, None),
            "what came before it was attached is unknown"
        );
        assert_eq!(coverage.edge(Some(10_100), saw(100), SECOND), (Some(1.0), None));
        assert_eq!(coverage.edge(Some(50), saw(100), SECOND), (None, None));
        assert_eq!(coverage.edge(None, saw(100), SECOND), (None, None));
        assert_eq!(coverage.edge(Some(99), saw(100), SECOND), (None, None));
        assert_eq!(
            coverage.edge(Some(199), saw(110), SECOND),
            (Some(1.1), None),
            "more than the interface counts is no fault"
        );
    }

    /// The interface's own count is read between the two readings of weir's count, or the other way round.
    #[test]
    fn the_bounds_are_those_of_the_readings_and_of_a_short_queue() {
        let at = |own: [u64; 2], seen: [u64; 2]| Reading {
            own: own.map(|own| Tally::new(own, own * 100)),
            seen: seen.map(saw),
        };
        let mut coverage = Coverage::new(Some(at([1_000, 1_000], [990, 1_010])));
        let compared = coverage.edge(Some(at([101_000, 101_000], [100_990, 101_010])), 0, false, 10 * SECOND);
        let Share { value, lower, upper } = compared.packets.unwrap();
        assert_eq!((value, lower, upper), (1.0, (99_980.0 - 64.0) / 100_000.0, (100_020.0 + 64.0) / 100_000.0));
        let bytes = compared.bytes.unwrap();
        assert!(bytes.value == 1.0 && (0.999..1.0).contains(&bytes.lower), "{bytes:?}");
        // A half is missing, and no queue explains it.
        let compared = coverage.edge(Some(at([201_000, 201_020], [151_000, 151_000])), 0, false, 10 * SECOND);
        let Share { value, lower, upper } = compared.packets.unwrap();
        assert!((0.499..0.501).contains(&value) && lower < value && value < upper && upper < 0.502, "{compared:?}");
    }

    #[test]
    fn a_window_that_was_blind_tells_what_was_not_seen_and_blames_nobody() {
        let mut case = Case::new(Some(0));
        case.compare(Some(10_000), saw(10_000), false);
        let unseen = Some(Unseen { counted: Tally::new(6_000, 600_000), beyond: Tally::default() });
        let compared = case.compare(Some(20_000), saw(4_000), true);
        assert_eq!((compared.unseen, compared.packets.unwrap().value, compared.finding), (unseen, 0.4, None));
        for own in [30_000, 40_000, 50_000] {
            let compared = case.compare(Some(own), saw(10_000), false);
            assert_eq!((compared.unseen, compared.finding), (Some(Unseen::default()), None));
        }
        assert_eq!(case.compare(None, saw(0), true).unseen, None, "the interface does not tell");
    }

    /// Another process removes the program between the last check and the edge, and the next check finds out.
    #[test]
    fn what_was_missed_before_the_window_began_is_told_in_this_one_and_once() {
        let mut case = Case::new(Some(0));
        case.compare(Some(10_000), saw(10_000), false);
        case.compare(Some(20_000), saw(9_500), false);
        case.coverage.go_back();
        let compared = case.compare(Some(22_000), saw(1_000), true);
        let unseen = Unseen { counted: Tally::new(1_500, 150_000), beyond: Tally::default() };
        assert_eq!(compared.unseen, Some(unseen));
        case.coverage.account();
        case.coverage.go_back();
        assert_eq!(case.compare(Some(23_000), saw(1_000), true).unseen, Some(Unseen::default()));
    }

    /// 180 of 20,000 packets in a second are more than a short queue holds. They still are when 20,000 more have come.
    #[test]
    fn what_is_compared_over_two_windows_has_the_time_of_both() {
        let mut case = Case::new(Some(0));
        assert_eq!(case.compare(Some(20_000), saw(19_820), true).shortage, Shortage::Possible);
        case.coverage.go_back();
        assert_eq!(case.compare(Some(40_000), saw(20_000), true).shortage, Shortage::Possible);
        case.coverage.account();
        case.coverage.go_back();
        assert_eq!(case.compare(Some(60_000), saw(20_000), true).shortage, Shortage::None);
    }

    #[test]
    fn what_a_missed_buffer_held_and_how_its_bytes_were_counted_is_left_open() {
        // Five buffers of eighteen packets each, which the interface counts as buffers.
        let reading =
            |buffers: u64, seen: Seen| Reading { own: [Tally::new(buffers, buffers * 2_000); 2], seen: [seen; 2] };
        let seen = |buffers: u64| Seen { all: Tally::new(buffers * 18, buffers * 2_000), merged: buffers * 17 };
        let mut coverage = Coverage::new(Some(reading(0, seen(0))));
        let compared = coverage.edge(Some(reading(10, seen(5))), 0, true, SECOND);
        let Unseen { counted, beyond } = compared.unseen.unwrap();
        assert!(counted.packets + beyond.packets >= 5 * 18, "{counted:?} {beyond:?}");
        assert!(counted.bytes + beyond.bytes >= 10_000, "{counted:?} {beyond:?}");
        // A bridge omits the Ethernet header.
        let mut coverage = Coverage::new(Some(Reading { own: [Tally::default(); 2], seen: [Seen::default(); 2] }));
        let now = Reading { own: [Tally::new(100, 8_600); 2], seen: [saw(50); 2] };
        let Unseen { counted, beyond } = coverage.edge(Some(now), 0, true, SECOND).unseen.unwrap();
        assert!(counted.packets == 50 && counted.bytes + beyond.bytes >= 5_000, "{counted:?} {beyond:?}");
    }

    #[test]
    fn what_an_earlier_weir_saw_is_credited() {
        let mut case = Case::new(Some(0));
        case.coverage.credit(saw(4_000));
        assert_eq!(case.edge(Some(10_000), saw(6_000), SECOND), (Some(1.0), None));
    }
}
