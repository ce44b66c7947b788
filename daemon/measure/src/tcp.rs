//! Packets that begin or end TCP connections: estimates from the counts of an interface, with their error.

use weir_common::{
    ledger::{Ledger, Tally, TcpPackets},
    sketch::Metric,
};
use weir_sketch::Estimate;

use super::sampling_error::{Sampling, SamplingError};

/// Packets of one interface in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Packets with SYN and without ACK.
    pub syn: Estimate,
    /// Packets with SYN and ACK.
    pub syn_ack: Estimate,
    /// Packets with RST.
    pub rst: Estimate,
    /// Packets with FIN.
    pub fin: Estimate,
}

impl TcpCounts {
    /// The counts of an interface whose packets were drawn at rates up to `rate`, all at exactly that rate if
    /// `is_steady`. The bounds of all four hold together with the probability `confidence`.
    ///
    /// The kernel counts before it looks for room in a ring, so the counts include packets that a ring lost. They do
    /// not include packets that a socket dropped. If nothing was left out, counts may exceed the true numbers by
    /// `overstated`, because each was multiplied by the rate of its draw.
    pub fn new(ledger: &Ledger, rate: u32, is_steady: bool, overstated: u64, confidence: f64) -> Self {
        /// How many of these kinds a packet can be: SYN or SYN-ACK, RST, and FIN.
        const KINDS_MAX: u64 = 3;
        let TcpPackets { syn, syn_ack, rst, fin } = ledger.counters.tcp;
        let candidates = ledger.counters.seen.since(ledger.skipped()).packets;
        let dropped = ledger.unread().packets;
        let error = (rate > 1).then(|| {
            let total = Tally::new(candidates.saturating_mul(KINDS_MAX), 0);
            // A merged buffer has at most one such packet.
            let largest = Tally::new(1, 0);
            SamplingError::new(Sampling { rate, is_steady, largest, total }, confidence)
        });
        let estimate = |counted: u64| {
            if error.is_none() && dropped == 0 && overstated == 0 {
                // This is so even if a CPU was late and the packets themselves were counted in the previous window.
                return Estimate { value: counted, lower: counted, upper: counted };
            }
            let (lower, upper) = error.as_ref().map_or((counted.saturating_sub(overstated), counted), |error| {
                error.bounds(Metric::Packets, counted, counted)
            });
            let upper = upper.saturating_add(dropped).min(candidates);
            let lower = lower.min(upper);
            Estimate { value: counted.clamp(lower, upper), lower, upper }
        };
        Self { syn: estimate(syn), syn_ack: estimate(syn_ack), rst: estimate(rst), fin: estimate(fin) }
    }

    /// Returns true if all counts are exact.
    pub fn is_exact(&self) -> bool {
        let &Self { syn, syn_ack, rst, fin } = self;
        [syn, syn_ack, rst, fin].into_iter().all(|Estimate { value: _, lower, upper }| lower == upper)
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::{Counters, Loss};

    use super::*;

    const SEEN: u64 = 100_000;

    /// 1,000 of the 100,000 seen packets have no flow.
    fn ledger(tcp: TcpPackets) -> Ledger {
        let mut ledger = Ledger { attributed: Tally::new(SEEN - 1_000, 0), ..Ledger::default() };
        ledger.counters.seen = Tally::new(SEEN, 0);
        ledger.counters.skipped[0] = Tally::new(1_000, 0);
        ledger.counters.tcp = tcp;
        ledger
    }

    const TCP: TcpPackets = TcpPackets { syn: 40_000, syn_ack: 700, rst: 0, fin: 600 };

    #[test]
    fn counts_are_exact_if_every_packet_is_examined() {
        let exact = |value| Estimate { value, lower: value, upper: value };
        let mut ledger = ledger(TCP);
        let expected = TcpCounts { syn: exact(40_000), syn_ack: exact(700), rst: exact(0), fin: exact(600) };
        assert_eq!(TcpCounts::new(&ledger, 1, true, 0, 0.999), expected);
        assert!(expected.is_exact());
        ledger.counters.lost[Loss::RingFull as usize] = Tally::new(500, 0);
        assert_eq!(TcpCounts::new(&ledger, 1, true, 0, 0.999), expected, "they were counted before they were lost");
        let late = Ledger { counters: Counters { tcp: TCP, ..Counters::default() }, ..Ledger::default() };
        assert_eq!(TcpCounts::new(&late, 1, true, 0, 0.999), expected, "the packets were counted in an earlier window");
    }

    #[test]
    fn packets_that_a_socket_dropped_may_have_had_any_flags() {
        let mut ledger = ledger(TCP);
        ledger.counters.lost[Loss::SocketDrop as usize] = Tally::new(500, 0);
        let counts = TcpCounts::new(&ledger, 1, true, 0, 0.999);
        assert!(!counts.is_exact());
        assert_eq!(counts.syn_ack, Estimate { value: 700, lower: 700, upper: 1_200 });
        assert_eq!(counts.rst, Estimate { value: 0, lower: 0, upper: 500 });
    }

    #[test]
    fn sampling_gives_a_range_within_the_seen_packets() {
        let counts = TcpCounts::new(&ledger(TCP), 100, true, 0, 0.999);
        assert!(!counts.is_exact());
        let TcpCounts { syn, syn_ack, rst, fin } = counts;
        for (estimate, counted) in [(syn, 40_000), (syn_ack, 700), (rst, 0), (fin, 600)] {
            assert_eq!(estimate.value, counted);
            assert!(estimate.lower <= counted && estimate.upper > counted, "{estimate:?}");
        }
        assert!(syn.lower > 28_000 && syn.upper < 56_000, "{syn:?}");
        assert!(syn_ack.lower >= 7, "this many were taken: {syn_ack:?}");
        assert!((500..3_000).contains(&rst.upper), "{rst:?}");
        let all = TcpCounts::new(&ledger(TcpPackets { syn: SEEN + 500, ..TCP }), 100, true, 0, 0.999).syn;
        assert_eq!((all.value, all.upper), (SEEN - 1_000, SEEN - 1_000), "at most the packets that have a flow");
        let unsteady = TcpCounts::new(&ledger(TCP), 100, false, 0, 0.999).syn;
        assert!(unsteady.lower < syn.lower && unsteady.upper > syn.upper, "{unsteady:?}");
        assert!(TcpCounts::new(&Ledger::default(), 100, true, 0, 0.999).is_exact(), "nothing was seen");
    }

    /// All four bounds of an interface hold together as often as stated: at 99 %, at most 20 failures in 2,000 are
    /// expected, and 45 have a probability below one in a million.
    #[test]
    fn bounds_hold_as_often_as_stated() {
        const TRIALS: u64 = 2_000;
        const RATE: u32 = 20;
        let truth = TcpPackets { syn: 5_000, syn_ack: 300, rst: 40, fin: 3 };
        let mut random = 7_u64;
        let mut draw = |of: u64| {
            let mut taken = 0;
            for _ in 0..of {
                random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
                taken += u64::from(weir_common::hash::mix(random).is_multiple_of(u64::from(RATE)));
            }
            taken * u64::from(RATE)
        };
        let mut failures = 0;
        for _ in 0..TRIALS {
            let TcpPackets { syn, syn_ack, rst, fin } = truth;
            let sampled = TcpPackets { syn: draw(syn), syn_ack: draw(syn_ack), rst: draw(rst), fin: draw(fin) };
            let found = TcpCounts::new(&ledger(sampled), RATE, true, 0, 0.99);
            let holds = [(found.syn, syn), (found.syn_ack, syn_ack), (found.rst, rst), (found.fin, fin)]
                .into_iter()
                .all(|(found, truth)| (found.lower..=found.upper).contains(&truth));
            failures += u64::from(!holds);
        }
        assert!(failures < 45, "{failures} of {TRIALS}");
    }
}
