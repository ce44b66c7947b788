use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn saw(packets: u64) -> SeenPackets {
    SeenPackets { all: Tally::new(packets, packets * 100), merged: 0 }
}

/// Counts that are read at the same instant.
struct Case {
    coverage: Coverage,
    seen: SeenPackets,
}

impl Case {
    fn new(own: Option<u64>) -> Self {
        let mut case = Self { coverage: Coverage::new(None), seen: SeenPackets::default() };
        case.coverage = Coverage::new(case.reading(own));
        case
    }

    fn reading(&self, own: Option<u64>) -> Option<Reading> {
        Some(Reading { own: [Tally::new(own?, own? * 100); 2], seen: [self.seen; 2] })
    }

    fn compare(&mut self, own: Option<u64>, saw: SeenPackets, was_blind: bool) -> Compared {
        self.seen.add(saw.all, saw.merged);
        self.coverage.edge(self.reading(own), 0, was_blind, SECOND)
    }

    fn edge(&mut self, own: Option<u64>, saw: SeenPackets, length: Duration) -> (Option<f64>, Option<Finding>) {
        self.dropping(own, saw, 0, length)
    }

    fn dropping(
        &mut self,
        own: Option<u64>,
        saw: SeenPackets,
        dropped: u64,
        length: Duration,
    ) -> (Option<f64>, Option<Finding>) {
        self.seen.add(saw.all, saw.merged);
        let compared = self.coverage.edge(self.reading(own), dropped, false, length);
        (compared.packets.map(|share| share.value), compared.finding)
    }
}

#[test]
fn merged_buffers_may_be_counted_as_buffers_or_packets() {
    let merged = SeenPackets { merged: 900, ..saw(1_000) };
    for (own, expected) in [(50, 2.0), (100, 1.0), (500, 1.0), (1_000, 1.0), (2_000, 0.5)] {
        let (coverage, finding) = Case::new(Some(0)).edge(Some(own), merged, SECOND);
        assert_eq!((coverage, finding), (Some(expected), None), "{own}");
    }
}

#[test]
fn packets_queued_at_the_start_are_not_missing_when_traffic_ends() {
    // 80 packets (4 ms of 20,000 a second) arrived between the two counts of the first edge.
    let mut coverage = Case::new(None);
    assert_eq!(coverage.edge(Some(5_000), saw(5_080), SECOND).1, None);
    assert_eq!(coverage.edge(Some(25_000), saw(20_000), SECOND).1, None);
    assert_eq!(coverage.edge(Some(26_000), saw(920), SECOND).1, None);
    for own in [26_000, 26_010, 26_020] {
        assert_eq!(coverage.edge(Some(own), saw(10), SECOND).1, None, "{own}");
    }
    // In the end more than 50 ms of traffic are missing, however slowly they add up.
    let mut findings = (1..=20).map(|nth| coverage.edge(Some(26_020 + nth * 100), saw(0), SECOND).1);
    assert!(findings.any(|finding| matches!(finding, Some(Finding::Missing { packets: 1_001..1_200, .. }))));
}

#[test]
fn allowances_for_queues_at_both_ends_add_up() {
    // 40 ms of 20,000 packets a second are queued at the start, and as many at two edges in a row.
    let mut coverage = Case::new(Some(0));
    for (own, seen) in [(20_000, 19_200), (40_000, 19_200), (60_000, 20_000)] {
        assert_eq!(coverage.edge(Some(own), saw(seen), SECOND).1, None, "{own}");
    }
    // Each end has an allowance at its own rate: twice 1,000 packets, or 1,000 plus 64 if traffic ends.
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
fn queued_packets_are_not_missing() {
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
fn lasting_losses_are_reported_and_again_if_they_continue() {
    let mut coverage = Case::new(Some(0));
    assert_eq!(coverage.edge(Some(20_000), saw(10_000), SECOND), (Some(0.5), None), "they may still be queued");
    let told = Finding::Missing { packets: 10_000, own: 20_000 };
    assert_eq!(coverage.edge(Some(20_000), saw(0), SECOND), (None, Some(told)));
    for _ in 0..5 {
        assert_eq!(coverage.edge(Some(20_000), saw(0), SECOND), (None, None));
    }
    assert_eq!(coverage.edge(Some(40_000), saw(19_000), SECOND).1, None);
    assert_eq!(coverage.edge(Some(60_000), saw(19_000), SECOND).1, None, "1,000 are no more than 50 ms at this rate");
    assert_eq!(
        coverage.edge(Some(80_000), saw(19_000), SECOND).1,
        Some(Finding::Missing { packets: 2_000, own: 60_000 })
    );
}

#[test]
fn small_losses_are_reported_once_they_add_up() {
    let mut coverage = Case::new(Some(0));
    let told = (1..=60_u64).find(|n| coverage.edge(Some(n * 100_000), saw(99_500), SECOND).1.is_some());
    assert_eq!(
        told,
        Some(22),
        "half a percent of 100,000 a second exceeds twice 50 ms of traffic after twenty windows"
    );
    let mut coverage = Case::new(Some(0));
    assert!(
        (1..=60_u64).all(|n| coverage.edge(Some(n * 100_000), saw(99_950), SECOND).1.is_none()),
        "half of the reported number"
    );
}

#[test]
fn the_allowance_for_queues_follows_the_rate_of_the_window() {
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
fn a_loss_of_a_thousandth_is_not_reported() {
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
fn coverage_is_new_until_the_interface_has_counted() {
    let mut case = Case::new(None);
    assert!(case.coverage.is_new());
    case.edge(None, saw(5), SECOND);
    assert!(case.coverage.is_new(), "there is still nothing to compare");
    case.edge(Some(10), saw(5), SECOND);
    assert!(!case.coverage.is_new() && !Case::new(Some(0)).coverage.is_new());
}

#[test]
fn packets_dropped_by_a_socket_are_not_reported_again() {
    let mut coverage = Case::new(Some(0));
    for window in 1..10 {
        assert_eq!(coverage.dropping(Some(window * 5_000), saw(1_000), 100, SECOND), (Some(0.2), None), "{window}");
    }
    for window in 10..20 {
        assert_eq!(coverage.edge(Some(window * 5_000), saw(5_000), SECOND), (Some(1.0), None), "{window}");
    }
    assert_eq!(coverage.edge(Some(100_000), saw(1_000), SECOND).1, None, "they may still be queued");
    let told = Finding::Missing { packets: 4_000, own: 55_000 };
    assert_eq!(coverage.edge(Some(100_000), saw(0), SECOND).1, Some(told), "without such a loss, they are reported");
}

#[test]
fn a_silent_program_is_reported_in_its_first_window() {
    let mut coverage = Case::new(Some(5));
    assert_eq!(coverage.edge(Some(15), saw(0), SECOND), (Some(0.0), None));
    assert_eq!(coverage.edge(Some(30), saw(0), SECOND), (Some(0.0), Some(Finding::Silent { own: 25 })));
}

#[test]
fn unknown_or_reset_counters_are_no_fault() {
    let mut coverage = Case::new(None);
    assert_eq!(coverage.edge(Some(10_000), saw(10), SECOND), (None, None), "earlier packets are unknown");
    assert_eq!(coverage.edge(Some(10_100), saw(100), SECOND), (Some(1.0), None));
    assert_eq!(coverage.edge(Some(50), saw(100), SECOND), (None, None));
    assert_eq!(coverage.edge(None, saw(100), SECOND), (None, None));
    assert_eq!(coverage.edge(Some(99), saw(100), SECOND), (None, None));
    assert_eq!(
        coverage.edge(Some(199), saw(110), SECOND),
        (Some(1.1), None),
        "seeing more than the interface counts is no fault"
    );
}

/// The interface's own count is read between the two readings of weir's count, or the other way round.
#[test]
fn the_bounds_are_those_of_the_readings_and_of_a_short_queue() {
    let at =
        |own: [u64; 2], seen: [u64; 2]| Reading { own: own.map(|own| Tally::new(own, own * 100)), seen: seen.map(saw) };
    let mut coverage = Coverage::new(Some(at([1_000, 1_000], [990, 1_010])));
    let compared = coverage.edge(Some(at([101_000, 101_000], [100_990, 101_010])), 0, false, 10 * SECOND);
    let Share { value, lower, upper } = compared.packets.unwrap();
    assert_eq!((value, lower, upper), (1.0, (99_980.0 - 64.0) / 100_000.0, (100_020.0 + 64.0) / 100_000.0));
    let bytes = compared.bytes.unwrap();
    assert!(bytes.value == 1.0 && (0.999..1.0).contains(&bytes.lower), "{bytes:?}");
    // Half of the packets are missing, and no queue explains it.
    let compared = coverage.edge(Some(at([201_000, 201_020], [151_000, 151_000])), 0, false, 10 * SECOND);
    let Share { value, lower, upper } = compared.packets.unwrap();
    assert!((0.499..0.501).contains(&value) && lower < value && value < upper && upper < 0.502, "{compared:?}");
}

#[test]
fn a_blind_window_reports_missed_packets_without_a_warning() {
    let mut case = Case::new(Some(0));
    case.compare(Some(10_000), saw(10_000), false);
    let unseen = Some(Unseen { counted: Tally::new(6_000, 600_000), beyond: Tally::default() });
    let compared = case.compare(Some(20_000), saw(4_000), true);
    assert_eq!((compared.unseen, compared.packets.unwrap().value, compared.finding), (unseen, 0.4, None));
    for own in [30_000, 40_000, 50_000] {
        let compared = case.compare(Some(own), saw(10_000), false);
        assert_eq!((compared.unseen, compared.finding), (Some(Unseen::default()), None));
    }
    assert_eq!(case.compare(None, saw(0), true).unseen, None, "the interface has no counters");
}

/// Another process removes the program between the last check and the edge, and the next check finds out.
#[test]
fn packets_missed_before_the_window_are_reported_once() {
    let mut case = Case::new(Some(0));
    case.compare(Some(10_000), saw(10_000), false);
    case.compare(Some(20_000), saw(9_500), false);
    case.coverage.go_back();
    case.coverage.forget_earlier();
    let compared = case.compare(Some(22_000), saw(1_000), true);
    let unseen = Unseen { counted: Tally::new(1_500, 150_000), beyond: Tally::default() };
    assert_eq!(compared.unseen, Some(unseen));
    case.coverage.account();
    case.coverage.go_back();
    case.coverage.forget_earlier();
    assert_eq!(case.compare(Some(23_000), saw(1_000), true).unseen, Some(Unseen::default()));
}

/// A window without a packet is reported as silent. If the next check finds that the program was removed, that window
/// was blind, too, and its packets are lost.
#[test]
fn a_reported_window_can_still_be_found_blind() {
    let mut case = Case::new(Some(0));
    assert!(case.compare(Some(500), saw(0), false).finding.is_some());
    case.coverage.go_back();
    case.coverage.forget_earlier();
    assert_eq!(case.compare(Some(500), saw(0), true).unseen.unwrap().counted.packets, 500);
}

/// 180 of 20,000 packets in a second are more than a short queue holds. They still are after 20,000 more packets.
#[test]
fn a_comparison_over_several_windows_has_the_time_of_all() {
    let mut case = Case::new(Some(0));
    assert_eq!(case.compare(Some(20_000), saw(19_820), true).shortage, Shortage::Possible);
    case.coverage.go_back();
    assert_eq!(case.compare(Some(40_000), saw(20_000), true).shortage, Shortage::Possible);
    // A short queue holds some 90 packets at the mean rate of three seconds, and some 140 at that of two.
    case.coverage.go_back();
    let third = case.compare(Some(55_000), saw(15_060), true);
    assert_eq!((third.unseen.unwrap().counted.packets, third.shortage), (120, Shortage::Possible));
    case.coverage.go_back();
    assert_eq!(case.compare(Some(57_000), saw(2_120), true).shortage, Shortage::None, "they were queued");
    case.coverage.account();
    case.coverage.go_back();
    assert_eq!(case.compare(Some(77_000), saw(20_000), true).shortage, Shortage::None);
}

#[test]
fn bounds_allow_for_the_content_of_missed_buffers() {
    // Five buffers of eighteen packets each, which the interface counts as buffers.
    let reading =
        |buffers: u64, seen: SeenPackets| Reading { own: [Tally::new(buffers, buffers * 2_000); 2], seen: [seen; 2] };
    let seen = |buffers: u64| SeenPackets { all: Tally::new(buffers * 18, buffers * 2_000), merged: buffers * 17 };
    let mut coverage = Coverage::new(Some(reading(0, seen(0))));
    let compared = coverage.edge(Some(reading(10, seen(5))), 0, true, SECOND);
    let Unseen { counted, beyond } = compared.unseen.unwrap();
    assert!(counted.packets + beyond.packets >= 5 * 18, "{counted:?} {beyond:?}");
    assert!(counted.bytes + beyond.bytes >= 10_000, "{counted:?} {beyond:?}");
    // A bridge omits the Ethernet header.
    let mut coverage = Coverage::new(Some(Reading { own: [Tally::default(); 2], seen: [SeenPackets::default(); 2] }));
    let now = Reading { own: [Tally::new(100, 8_600); 2], seen: [saw(50); 2] };
    let Unseen { counted, beyond } = coverage.edge(Some(now), 0, true, SECOND).unseen.unwrap();
    assert!(counted.packets == 50 && counted.bytes + beyond.bytes >= 5_000, "{counted:?} {beyond:?}");
}
