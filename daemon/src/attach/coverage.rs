//! Whether a program sees all packets of its interface: its count is compared with the interface's own.
//!
//! The two counts cannot be read at the same instant. weir reads the interface's own count first and closes the window
//! after that. A packet that is missing then was not seen by the program, or was still in a queue (a card's ring, a
//! backlog). Queues empty themselves: their packets do not add up from window to window, but packets that the program
//! never sees do. So weir reports only packets that were missing at two edges in a row, and that are more than such a
//! queue holds at the rate of the window. What was on its way when the comparison began stays missing for ever. That is
//! allowed for as well, at the rate of the first window: the two add up.
//!
//! Of packets that offloads merge, some interfaces count the merged buffers (a veth) and some the packets
//! (`WireGuard`). So any count between the number of buffers and the number of packets in them is taken for complete.
//!
//! Packets that a packet socket dropped are lost in the ledger, where a merged buffer counts as one packet. In a window
//! with such a loss other missing packets cannot be told from it, and weir reports nothing for that window.

use std::time::Duration;

use weir_common::ledger::{Counters, Loss};

/// A smaller share of missing packets is not reported.
const MISSING_SHARE: f64 = 0.001;
/// The traffic that may be in queues at an edge: what arrives while a busy CPU does not look at a queue, ...
const ON_ITS_WAY: Duration = Duration::from_millis(50);
/// ... or this many packets, if that is more.
const ON_ITS_WAY_PACKETS: u64 = 64;
/// An interface must count this many packets in this time before a program that saw none is reported.
const SILENCE_PACKETS: u64 = 16;
const SILENCE: Duration = Duration::from_millis(500);

/// One direction of an interface, since its program was attached or since something was reported.
#[derive(Debug, Default)]
pub struct Coverage {
    reading: Option<u64>,
    own: u64,
    seen: u64,
    missing: u64,
    /// What may have been on its way when the comparison began; not known before the first window.
    first: Option<u64>,
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
        /// Of how many.
        own: u64,
    },
}

impl Coverage {
    /// Begins now, with the interface's own count as it is; if that is `None`, begins at the next edge.
    pub const fn new(own: Option<u64>) -> Self {
        Self { reading: own, own: 0, seen: 0, missing: 0, first: None }
    }

    /// Whether nothing is known yet.
    pub const fn is_new(&self) -> bool {
        self.reading.is_none() && self.own == 0
    }

    /// A window's edge, at which the interface's own count has come to `own` and the program counted `counters` in this
    /// window of this length. Gives the window's coverage if it is known, and what is wrong.
    pub fn edge(&mut self, own: Option<u64>, counters: &Counters, length: Duration) -> (Option<f64>, Option<Finding>) {
        let seen = counters.seen.packets;
        let buffers = seen.saturating_sub(counters.merged);
        let passed = match (own, self.reading) {
            (Some(own), Some(earlier)) => own.checked_sub(earlier),
            _ => None,
        };
        let Some(passed) = passed else {
            // Nothing to compare, or the driver began to count anew.
            *self = Self::new(own);
            return (None, None);
        };
        self.reading = own;
        self.own += passed;
        self.seen += seen;
        let coverage = (passed > 0).then(|| passed.clamp(buffers, seen) as f64 / passed as f64);
        if counters.lost[Loss::SocketDrop as usize].packets > 0 {
            *self = Self::new(own);
            return (coverage, None);
        }
        (coverage, self.judge(passed, length))
    }

    fn judge(&mut self, passed: u64, length: Duration) -> Option<Finding> {
        let missing = self.own.saturating_sub(self.seen);
        let lasting = missing.min(std::mem::replace(&mut self.missing, missing));
        let queue = passed as f64 * (ON_ITS_WAY.as_secs_f64() / length.as_secs_f64().max(ON_ITS_WAY.as_secs_f64()));
        let queue = ON_ITS_WAY_PACKETS.max(queue as u64);
        let on_their_way = queue + *self.first.get_or_insert(queue);
        let finding = if self.seen == 0 && self.own >= SILENCE_PACKETS && length >= SILENCE {
            Finding::Silent { own: self.own }
        } else if lasting > on_their_way && lasting as f64 > self.own as f64 * MISSING_SHARE {
            Finding::Missing { packets: lasting, own: self.own }
        } else {
            return None;
        };
        // This is reported now. Packets that go missing from here on are reported again.
        *self = Self::new(self.reading);
        Some(finding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_common::ledger::Tally;

    const SECOND: Duration = Duration::from_secs(1);

    fn saw(packets: u64) -> Counters {
        Counters { seen: Tally::new(packets, packets * 100), ..Counters::default() }
    }

    #[test]
    fn what_offloads_merge_may_be_counted_either_way() {
        let merged = Counters { merged: 900, ..saw(1_000) };
        for (own, expected) in [(50, 2.0), (100, 1.0), (500, 1.0), (1_000, 1.0), (2_000, 0.5)] {
            let (coverage, finding) = Coverage::new(Some(0)).edge(Some(own), &merged, SECOND);
            assert_eq!((coverage, finding), (Some(expected), None), "{own}");
        }
    }

    #[test]
    fn what_was_on_its_way_at_the_beginning_is_not_missing_when_traffic_ends() {
        // 4 ms of 20,000 packets a second came between the two counts of the first edge.
        let mut coverage = Coverage::new(None);
        assert_eq!(coverage.edge(Some(5_000), &saw(5_080), SECOND).1, None);
        assert_eq!(coverage.edge(Some(25_000), &saw(20_000), SECOND).1, None);
        assert_eq!(coverage.edge(Some(26_000), &saw(920), SECOND).1, None);
        for own in [26_000, 26_010, 26_020] {
            assert_eq!(coverage.edge(Some(own), &saw(10), SECOND).1, None, "{own}");
        }
        // More than 50 ms of that are missing, however slowly.
        let mut findings = (1..=20).map(|nth| coverage.edge(Some(26_020 + nth * 100), &saw(0), SECOND).1);
        assert!(findings.any(|finding| matches!(finding, Some(Finding::Missing { packets: 1_001..1_200, .. }))));
    }

    #[test]
    fn what_was_on_its_way_at_both_ends_adds_up() {
        // 40 ms of 20,000 packets a second at the beginning, and as many at two edges in a row.
        let mut coverage = Coverage::new(Some(0));
        for (own, seen) in [(20_000, 19_200), (40_000, 19_200), (60_000, 20_000)] {
            assert_eq!(coverage.edge(Some(own), &saw(seen), SECOND).1, None, "{own}");
        }
        // Each end has an allowance at its own rate: 2,000 packets for both, and 1,000 and 64 when traffic ends.
        let told = |missing: u64, last: u64| {
            let mut coverage = Coverage::new(Some(0));
            coverage.edge(Some(20_000), &saw(20_000 - missing), SECOND);
            coverage.edge(Some(20_000 + last), &saw(last), SECOND).1
        };
        assert_eq!(told(2_000, 20_000), None);
        assert_eq!(told(2_001, 20_000), Some(Finding::Missing { packets: 2_001, own: 40_000 }));
        assert_eq!(told(1_064, 0), None);
        assert_eq!(told(1_065, 0), Some(Finding::Missing { packets: 1_065, own: 20_000 }));
    }

    #[test]
    fn packets_on_their_way_are_not_missing() {
        let mut coverage = Coverage::new(Some(1_000));
        let (mut own, mut seen) = (1_000, 0);
        for window in 1..100 {
            own += 100_000;
            // At each edge some thousand wait, never the same number.
            let now = own - 1_000 - window * 40;
            let (share, finding) = coverage.edge(Some(own), &saw(now - seen), SECOND);
            seen = now;
            assert!(share.unwrap() > 0.94, "{window}: {share:?}");
            assert_eq!(finding, None, "{window}");
        }
    }

    #[test]
    fn what_is_missing_is_told_once_it_lasts_and_again_if_it_goes_on() {
        let mut coverage = Coverage::new(Some(0));
        assert_eq!(coverage.edge(Some(20_000), &saw(10_000), SECOND), (Some(0.5), None), "it may be on its way");
        let told = Finding::Missing { packets: 10_000, own: 20_000 };
        assert_eq!(coverage.edge(Some(20_000), &saw(0), SECOND), (None, Some(told)));
        for _ in 0..5 {
            assert_eq!(coverage.edge(Some(20_000), &saw(0), SECOND), (None, None));
        }
        assert_eq!(coverage.edge(Some(40_000), &saw(19_000), SECOND).1, None);
        assert_eq!(
            coverage.edge(Some(60_000), &saw(19_000), SECOND).1,
            None,
            "1,000 are no more than 50 ms at this rate"
        );
        assert_eq!(
            coverage.edge(Some(80_000), &saw(19_000), SECOND).1,
            Some(Finding::Missing { packets: 2_000, own: 60_000 })
        );
    }

    #[test]
    fn a_little_is_missing_only_when_it_adds_up() {
        let mut coverage = Coverage::new(Some(0));
        let told = (1..=60_u64).find(|n| coverage.edge(Some(n * 100_000), &saw(99_500), SECOND).1.is_some());
        assert_eq!(told, Some(22), "half a percent of 100,000 a second exceeds twice 50 ms of it after twenty windows");
        let mut coverage = Coverage::new(Some(0));
        assert!(
            (1..=60_u64).all(|n| coverage.edge(Some(n * 100_000), &saw(99_950), SECOND).1.is_none()),
            "half of what is told"
        );
    }

    #[test]
    fn what_may_be_on_its_way_is_told_by_the_rate_of_the_window() {
        // 100,000 packets in ten seconds: 500 in the 50 ms that a queue may wait, at each end.
        let told = |missing: u64| {
            let mut coverage = Coverage::new(Some(0));
            let window = saw(100_000 - missing);
            coverage.edge(Some(100_000), &window, 10 * SECOND);
            coverage.edge(Some(200_000), &saw(100_000), 10 * SECOND).1
        };
        assert_eq!(told(1_000), None);
        assert_eq!(told(1_001), Some(Finding::Missing { packets: 1_001, own: 200_000 }));
    }

    #[test]
    fn a_thousandth_is_not_told() {
        let told = |missing: u64| {
            let mut coverage = Coverage::new(Some(0));
            coverage.edge(Some(0), &saw(0), SECOND);
            coverage.edge(Some(200_000), &saw(200_000 - missing), SECOND);
            coverage.edge(Some(200_000), &saw(0), SECOND).1
        };
        assert_eq!(told(200), None);
        assert_eq!(told(201), Some(Finding::Missing { packets: 201, own: 200_000 }));
    }

    #[test]
    fn it_is_new_until_the_interface_has_been_read_or_has_counted() {
        let mut coverage = Coverage::new(None);
        assert!(coverage.is_new());
        coverage.edge(None, &saw(5), SECOND);
        assert!(coverage.is_new(), "still nothing to compare");
        coverage.edge(Some(10), &saw(5), SECOND);
        assert!(!coverage.is_new() && !Coverage::new(Some(0)).is_new());
    }

    #[test]
    fn what_a_socket_dropped_is_not_told_once_more() {
        let mut dropped = saw(1_000);
        dropped.lost[Loss::SocketDrop as usize] = Tally::new(100, 100 * 1_000);
        let mut coverage = Coverage::new(Some(0));
        for window in 1..10 {
            assert_eq!(coverage.edge(Some(window * 5_000), &dropped, SECOND), (Some(0.2), None), "{window}");
        }
        for window in 10..20 {
            assert_eq!(coverage.edge(Some(window * 5_000), &saw(5_000), SECOND), (Some(1.0), None), "{window}");
        }
        assert_eq!(coverage.edge(Some(100_000), &saw(1_000), SECOND).1, None, "it may be on its way");
        let told = Finding::Missing { packets: 4_000, own: 55_000 };
        assert_eq!(coverage.edge(Some(100_000), &saw(0), SECOND).1, Some(told), "and is told without such a loss");
    }

    #[test]
    fn a_silent_program_is_told_in_its_first_window() {
        let mut coverage = Coverage::new(Some(5));
        assert_eq!(coverage.edge(Some(15), &saw(0), SECOND), (Some(0.0), None));
        assert_eq!(coverage.edge(Some(30), &saw(0), SECOND), (Some(0.0), Some(Finding::Silent { own: 25 })));
    }

    #[test]
    fn counters_that_are_unknown_or_begin_anew_are_no_fault() {
        let mut coverage = Coverage::new(None);
        assert_eq!(
            coverage.edge(Some(10_000), &saw(10), SECOND),
            (None, None),
            "what came before it was attached is unknown"
        );
        assert_eq!(coverage.edge(Some(10_100), &saw(100), SECOND), (Some(1.0), None));
        assert_eq!(coverage.edge(Some(50), &saw(100), SECOND), (None, None));
        assert_eq!(coverage.edge(None, &saw(100), SECOND), (None, None));
        assert_eq!(coverage.edge(Some(99), &saw(100), SECOND), (None, None));
        assert_eq!(
            coverage.edge(Some(199), &saw(110), SECOND),
            (Some(1.1), None),
            "more than the interface counts is no fault"
        );
    }
}
