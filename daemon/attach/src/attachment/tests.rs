use weir_config::Direction;

use super::*;
use crate::{
    plan::wanted,
    present::Origin,
    testing::{attached, device, rule},
    watch::Position,
};

/// The end of a window of a second.
const WINDOW: WindowEnd = WindowEnd { length: Duration::from_secs(1), is_last: false };

fn none() -> HashMap<u32, Departure> {
    HashMap::new()
}

#[test]
fn an_attachment_stays_while_its_interface_has_a_name_that_the_rule_covers() {
    let rules = [rule("eth*", Direction::Ingress)];
    let one = attached(0, "eth0", Way::Ingress, 2);
    let devices = [device(2, "eth7"), device(3, "eth0")];
    let wanted = wanted(&rules, &devices, true);
    assert_eq!(one.fate(&rules, &wanted, &none()), Some(Fate::Stays(&wanted[0])), "only the index matters");
    assert_eq!(
        one.fate(&rules, &wanted, &HashMap::from([(2, Departure::Deleted)])),
        Some(Fate::Gone),
        "another interface has this index now"
    );
    assert_eq!(one.fate(&rules, &wanted[1..], &none()), Some(Fate::Gone));
    assert_eq!(Attachment::new(0, "eth0", Way::Ingress).fate(&rules, &wanted, &none()), None, "nothing is attached");
}

#[test]
fn an_attachment_ends_if_another_rule_or_direction_wants_the_interface() {
    let devices = [device(2, "eth0")];
    let one = attached(0, "eth0", Way::Ingress, 2);
    let first_rule = [rule("eth0", Direction::Egress)];
    assert_eq!(one.fate(&first_rule, &wanted(&first_rule, &devices, true), &none()), Some(Fate::Gone));
    let second_rule = [rule("wan0", Direction::Ingress), rule("eth0", Direction::Ingress)];
    assert_eq!(one.fate(&second_rule, &wanted(&second_rule, &devices, true), &none()), Some(Fate::Gone));
}

#[test]
fn a_removed_program_keeps_its_slot_and_counts_until_it_is_attached_again() {
    let present =
        || Present { ifindex: 2, xdp: None, is_virtual: true, address: None, origin: Origin::default(), number: 1 };
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    one.attach(present());
    one.coverage = Coverage::new(Some(Reading { own: [Tally::default(); 2], seen: [SeenPackets::default(); 2] }));
    one.lose();
    assert_eq!(
        (one.obtained, one.nowhere.map(|nowhere| nowhere.ifindex), one.changed),
        (Obtained::Blind, Some(2), false)
    );
    one.attach(present());
    assert!(!one.coverage.is_new() && one.watched.was_wrong() && one.nowhere.is_none());
    one.end();
    one.attach(present());
    assert!(one.coverage.is_new() && !one.watched.was_wrong(), "it is another interface");
}

#[test]
fn a_changed_window_has_no_coverage_and_a_blind_one_needs_counts() {
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    one.changed = true;
    let readings = Readings::new(None).unwrap();
    let counters = Counters { seen: Tally::new(50, 5_000), ..Counters::default() };
    assert_eq!(one.compare(0, &readings, &counters, WINDOW), None);
    assert_eq!((one.compared, one.told.all.packets), (Compared::default(), 50));
    one.changed = false;
    assert_eq!(one.compare(0, &readings, &counters, WINDOW), None, "it was not blind");
    one.lose();
    one.watched.note_wrong(&Position::Removed, WINDOW.length);
    let unseen = one.compare(0, &readings, &counters, WINDOW).unwrap();
    assert!(unseen.counted.is_zero() && unseen.beyond.packets > 1 << 40 && one.blind.is_some(), "{unseen:?}");
}

/// A reading in which both counts are exact.
fn reading(own: u64, seen: u64) -> Option<Reading> {
    let [own, seen] = [own, seen].map(|packets| Tally::new(packets, packets * 100));
    Some(Reading { own: [own; 2], seen: [SeenPackets { all: seen, merged: 0 }; 2] })
}

/// The state of an earlier weir that had counted 890 packets when the interface had counted 900, and 1,000 when the
/// window ended.
fn state() -> SlotState {
    let counters = Counters { seen: Tally::new(1_000, 100_000), ..Counters::default() };
    SlotState {
        slot: 0,
        name: "eth0".to_owned(),
        way: Way::Ingress,
        ifindex: Some(2),
        own: Some(900),
        own_bytes: Some(90_000),
        seen: Some([[890, 89_000, 0]; 2]),
        missed: [[0; 2]; 2],
        away: Vec::new(),
        address: None,
        reported: weir_datapath::kept::words(&counters),
    }
}

#[test]
fn packets_between_the_reading_and_the_end_of_the_last_window_are_compared_once() {
    let (now, since) = (clock::now().monotonic, reading(0, 4_000).unwrap().seen[0]);
    let next = |state: &SlotState, own| {
        let mut one = attached(0, "eth0", Way::Ingress, 2);
        one.take_over(state, since, now);
        one.compare_with(reading(own, 500), 0, WINDOW);
        one.compared.packets.map(|share| share.value)
    };
    // 4,110 packets of the earlier weir and 500 of this one.
    assert_eq!(next(&state(), 900 + 4_610), Some(1.0));
    assert_eq!(next(&SlotState { seen: None, ..state() }, 900 + 4_500), Some(1.0), "a socket's window ends there");
    assert_eq!(next(&SlotState { own_bytes: None, ..state() }, 900 + 4_610), None, "the count is unknown");
    let before_wrapping = [[u64::MAX - 109, u64::MAX - 10_999, 0]; 2];
    let state = SlotState { seen: Some(before_wrapping), reported: vec![0; state().reported.len()], ..state() };
    assert_eq!(next(&state, 900 + 4_610), Some(1.0), "counters wrap");
}

#[test]
fn what_an_earlier_weir_counted_after_its_reading_was_not_missed() {
    let (now, since) = (clock::now().monotonic, reading(0, 4_000).unwrap().seen[0]);
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    one.attach(Present {
        ifindex: 2,
        xdp: None,
        is_virtual: true,
        address: None,
        origin: Origin::default(),
        number: 1,
    });
    let mut missed = |state: &SlotState| {
        one.missed = Unseen::default();
        one.start_anew(state, since, now, reading(900 + 4_110 + 300, 0));
        (one.missed.counted.packets, one.missed.beyond.packets)
    };
    assert_eq!(missed(&state()), (300, 900 + 4_110), "or it is another one with this index");
    let other = SlotState { ifindex: Some(1), ..state() };
    assert_eq!(missed(&other), (0, 900 + 4_110 + 300), "it may have carried them in another network namespace");
    let other = SlotState { own: Some(6_000), ..state() };
    assert_eq!(missed(&other), (0, 900 + 4_110 + 300), "it has counted less than before");
    let address = Some([2, 0, 0, 0, 0, 9]);
    one.attach(Present { ifindex: 2, xdp: None, is_virtual: true, address, origin: Origin::default(), number: 1 });
    let mut missed = |state: &SlotState| {
        one.missed = Unseen::default();
        one.start_anew(state, since, now, reading(900 + 4_110 + 300, 0));
        (one.missed.counted.packets, one.missed.beyond.packets)
    };
    let other = SlotState { address: Some([2, 0, 0, 0, 0, 8]), ..state() };
    assert_eq!(missed(&other), (0, 900 + 4_110 + 300), "it has another address");
    let same = SlotState { ifindex: Some(1), address, ..state() };
    assert_eq!(missed(&same), (300, 900 + 4_110), "it was away, and has another index");
}

#[test]
fn packets_missed_earlier_are_lost_in_the_window_that_detects_them() {
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    let mut now = clock::now().monotonic;
    (one.watched, one.coverage) = (Watched::new(now), Coverage::new(reading(0, 0)));
    // The program is removed after the last check of this window: weir does not notice that, and 400 packets are
    // missed.
    assert_eq!(one.compare_with(reading(1_000, 600), 0, WINDOW), None);
    now = clock::now().monotonic;
    one.watched.note_wrong(&Position::Removed, now);
    one.watched.note_mended(now);
    let unseen = one.compare_with(reading(1_100, 650), 0, WINDOW).unwrap();
    assert_eq!(unseen.counted, Tally::new(450, 45_000), "the packets of both windows");
    one.watched.note_well(clock::now().monotonic);
    assert_eq!(one.compare_with(reading(1_200, 750), 0, WINDOW), None, "they are reported once");
}

/// An attachment whose interface has left, and which has seen 500 packets of 1,200 at the end of the last window.
fn left(departure: Departure, was: Present) -> Attachment {
    let mut one = attached(0, "eth0", Way::Ingress, was.ifindex);
    (one.present, one.coverage) = (Some(was), Coverage::new(reading(1_200, 500)));
    one.leave(departure, None, SeenPackets::default());
    one.end();
    one
}

/// It is attached again, with this own count, and sees all packets from then on. Returns what is declared at the end of
/// the window, and whether another interface was measured.
fn is_back(one: &mut Attachment, present: Present, own: u64) -> (u64, u64, bool) {
    one.note_idle(clock::now().monotonic, false, false);
    one.note_seen(Some(reading(0, 500).unwrap().seen[0]), SeenPackets::default());
    one.attach(present);
    one.begin(reading(own, 500));
    let is_another = one.changed;
    let unseen = one.compare_with(reading(own + 10, 510), 0, WINDOW).unwrap();
    (unseen.counted.packets, unseen.beyond.packets, is_another)
}

#[test]
fn missed_packets_depend_on_whether_the_interface_is_another_one() {
    let counts = |packets| [Tally::new(packets, packets * 100); 2];
    let origin = Origin::arrived(counts(0));
    let was = Present { ifindex: 2, xdp: None, is_virtual: true, address: Some([2, 0, 0, 0, 0, 9]), origin, number: 1 };
    let missed = |departure, is: Present| is_back(&mut left(departure, was), is, 3_000);
    assert_eq!(missed(Departure::Deleted, was), (3_000, 0, true), "all its packets were missed");
    assert_eq!(missed(Departure::Moved, was), (1_800, 0, false));
    assert_eq!(missed(Departure::Unknown, was), (1_800, 1_200, false), "it may be the same interface or another one");
    let other = Present { ifindex: 7, address: Some([2, 0, 0, 0, 0, 7]), ..was };
    assert_eq!(missed(Departure::Moved, other), (3_000, 0, true));
    let origin = Origin::renamed(Some(counts(2_900)));
    assert_eq!(missed(Departure::Deleted, Present { origin, ..other }), (0, 100, true), "it was renamed then");
    assert_eq!(missed(Departure::Unwanted, Present { origin, ..was }), (0, 100, true), "it has its name again");
    let origin = Origin::arrived(counts(2_900));
    assert_eq!(
        missed(Departure::Moved, Present { origin, ..other }),
        (100, 0, true),
        "it had counted elsewhere before"
    );
    let origin = Origin::listed(Some(counts(2_900)), true);
    assert_eq!(missed(Departure::Moved, Present { origin, ..other }), (100, 2_900, true), "nobody knows where");
    assert_eq!(
        is_back(&mut left(Departure::Moved, was), was, 300),
        (300, 0, true),
        "the driver has reset its counters"
    );
}

#[test]
fn an_interface_may_be_away_for_any_number_of_windows() {
    let was = Present {
        ifindex: 2,
        xdp: None,
        is_virtual: true,
        address: Some([2, 0, 0, 0, 0, 9]),
        origin: Origin::default(),
        number: 1,
    };
    for windows in 0..4 {
        let mut one = left(Departure::Moved, was);
        for _ in 0..windows {
            assert_eq!(one.compare_with(None, 0, WINDOW), None);
            one.changed = false;
        }
        assert_eq!(is_back(&mut one, was, 1_207), (7, 0, false), "{windows}");
    }
}

#[test]
fn an_interface_is_known_again_after_another_one_had_its_place() {
    let was = Present {
        ifindex: 2,
        xdp: None,
        is_virtual: true,
        address: Some([2, 0, 0, 0, 0, 9]),
        origin: Origin::default(),
        number: 1,
    };
    let origin = Origin::arrived([Tally::new(100, 10_000); 2]);
    let other = Present { ifindex: 7, address: Some([2, 0, 0, 0, 0, 7]), origin, ..was };
    let mut one = left(Departure::Moved, was);
    assert_eq!(is_back(&mut one, other, 103), (3, 0, true));
    one.changed = false;
    one.leave(Departure::Moved, None, SeenPackets::default());
    one.end();
    one.note_seen(Some(reading(0, 510).unwrap().seen[0]), SeenPackets::default());
    one.attach(was);
    one.begin(reading(1_207, 510));
    let unseen = one.compare_with(reading(1_207, 510), 0, WINDOW).unwrap();
    assert_eq!((unseen.counted.packets, unseen.beyond.packets), (7, 0), "the other one's packets are not its own");
}

/// A burst passes while the counts are read at the end of a window. At the end of the next one another process holds
/// the kernel's lock, and nothing passes any more.
#[test]
fn packets_between_two_readings_may_have_been_missed_and_are_not_lost() {
    let at = |own: u64, seen: [u64; 2]| {
        let own = Tally::new(own, own * 100);
        Some(Reading { own: [own; 2], seen: seen.map(|seen| reading(0, seen).unwrap().seen[0]) })
    };
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    one.watched = Watched::new(clock::now().monotonic);
    one.coverage = Coverage::new(at(0, [0; 2]));
    one.watched.note_well(clock::now().monotonic);
    assert_eq!(one.compare_with(at(50, [48, 55]), 0, WINDOW), None);
    let now = clock::now().monotonic;
    one.watched.note_well(now);
    one.watched.note_unknown(clock::now().monotonic, clock::now().monotonic);
    let mut declared = Unseen::default();
    for _ in 0..6 {
        declared.add(one.compare_with(at(101, [101; 2]), 0, WINDOW).unwrap_or_default());
        one.watched.note_well(clock::now().monotonic);
    }
    assert_eq!((declared.counted, declared.beyond.packets), (Tally::default(), 5), "48 to 55 of 50 were seen by then");
}

#[test]
fn packets_that_a_program_sees_after_its_interface_has_moved_are_not_lost() {
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    (one.watched, one.coverage) = (Watched::new(clock::now().monotonic), Coverage::new(reading(5_000, 0)));
    // The message has the count of the move. Seven more packets had passed elsewhere when weir read it.
    let present = one.present.unwrap();
    one.leave(Departure::Moved, reading(5_100, 107), SeenPackets::default());
    one.end();
    one.note_seen(Some(reading(0, 107).unwrap().seen[0]), SeenPackets::default());
    one.attach(present);
    one.begin(reading(5_107, 107));
    let unseen = one.compare_with(reading(5_107, 107), 0, WINDOW);
    assert!(unseen.is_none_or(Unseen::is_none), "{unseen:?}");
}

#[test]
fn a_count_that_cannot_be_read_at_an_edge_is_compared_at_the_next() {
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    (one.watched, one.coverage) = (Watched::new(clock::now().monotonic), Coverage::new(reading(50_000, 0)));
    one.watched.note_wrong(&Position::Removed, clock::now().monotonic);
    assert_eq!(one.compare_with(None, 0, WINDOW), None, "its name has just changed");
    let unseen = one.compare_with(reading(50_010, 3), 0, WINDOW).unwrap();
    assert_eq!((unseen.counted.packets, unseen.beyond.packets), (7, 0));
}

#[test]
fn an_interface_may_have_a_temporary_name() {
    let rules = [rule("eth0", Direction::Ingress), rule("eth1", Direction::Ingress)];
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    let ms = Duration::from_millis;
    let (strayed, followed) = ([device(2, "tmp")], [device(2, "tmp"), device(3, "eth0")]);
    let mut may = |devices: &[Device], now| one.note_straying(&rules, &wanted(&rules, devices, true), devices, ms(now));
    assert!(may(&strayed, 1_000) && may(&strayed, 1_499) && !may(&strayed, 1_500));
    assert!(!may(&followed, 2_000), "another interface has its name now");
    assert!(may(&strayed, 3_000), "the time starts again");
    assert!(!may(&[], 3_001), "the interface is gone");
}

#[test]
fn an_interface_that_is_not_measured_says_why() {
    let present =
        Present { ifindex: 2, xdp: None, is_virtual: true, address: None, origin: Origin::default(), number: 1 };
    let order = |urgency, before| Ordered { present, urgency, before, is_fresh: false, by_socket: false };
    let mut one = Attachment::new(0, "eth0", Way::Ingress);
    let state = |one: &Attachment| (one.obtained, one.trouble().map(str::to_owned));
    let why = |obtained, why: &str| (obtained, Some(why.to_owned()));
    assert_eq!(state(&one), why(Obtained::Absent, ABSENT));
    one.order(order(Urgency::Named, one.obtained));
    assert_eq!(state(&one), why(Obtained::Waiting, WAITS));
    assert!(!one.note_refused("the driver has no XDP".to_owned()), "it keeps its slot");
    assert_eq!(state(&one), why(Obtained::Refused, "the driver has no XDP"), "it is there");
    // Until another attempt succeeds.
    one.order(order(Urgency::Refused, one.obtained));
    assert_eq!(state(&one), why(Obtained::Refused, "the driver has no XDP"));
    one.attach(present);
    one.obtained = Obtained::Native;
    assert_eq!(state(&one), (Obtained::Native, None));
    one.end();
    for (is_there, is_released, expected) in [
        (true, true, why(Obtained::Detached, DETACHED)),
        (false, true, why(Obtained::Absent, ABSENT)),
        (true, true, why(Obtained::Detached, DETACHED)),
        (true, false, why(Obtained::Absent, ABSENT)),
    ] {
        one.note_idle(Duration::ZERO, is_there, is_released);
        assert_eq!(state(&one), expected);
    }
}

/// The next weir starts while the interface is away, or after it is back.
#[test]
fn the_next_weir_continues_the_comparison_of_an_interface_that_is_away() {
    let now = clock::now().monotonic;
    let was = Present {
        ifindex: 2,
        xdp: None,
        is_virtual: true,
        address: Some([2, 0, 0, 0, 0, 9]),
        origin: Origin::default(),
        number: 1,
    };
    let (none, packets) = (SeenPackets::default(), |packets| reading(0, packets).unwrap().seen[0]);
    let state = |away: Vec<Away>| SlotState { ifindex: None, own: None, seen: None, away, ..state() };
    // Five packets were seen after the last comparison of 1,200 with 500, and two perhaps elsewhere.
    let mut one = left(Departure::Moved, was);
    one.departures.note_detached(1, packets(2));
    let away = one.departures.kept(packets(505), packets(2));
    assert_eq!(one.departures.kept(packets(505), packets(7)), away, "others counted more later");
    let is = Present { ifindex: 5, ..was };
    // The interface returns later.
    let mut next = attached(0, "eth0", Way::Ingress, 5);
    next.present = None;
    next.await_return(&state(away.clone()), packets(44), now, None);
    next.note_seen(Some(none), none);
    next.attach(is);
    next.begin(reading(1_220, 0));
    let unseen = next.compare_with(reading(1_220 + 90, 90), 0, WINDOW).unwrap();
    assert_eq!((unseen.counted.packets, unseen.beyond.packets), (20 - 5 - 2, 2));
    // It is back when the next weir starts.
    let mut next = attached(0, "eth0", Way::Ingress, 5);
    (next.present, next.coverage) = (Some(is), Coverage::new(reading(1_220, 0)));
    next.await_return(&state(away.clone()), packets(44), now, reading(1_220, 0));
    let unseen = next.compare_with(reading(1_220 + 90, 90), 0, WINDOW).unwrap();
    assert_eq!((unseen.counted.packets, unseen.beyond.packets), (20 - 5 - 2, 2));
    assert!(next.blind.is_some());
    // The next weir hands it on.
    let mut next = attached(0, "eth0", Way::Ingress, 5);
    next.present = None;
    next.await_return(&state(away.clone()), packets(44), now, None);
    assert_eq!(next.departures.kept(none, packets(3)), away);
    for departure in [Departure::Deleted, Departure::Unwanted] {
        assert_eq!(left(departure, was).departures.kept(packets(505), none), []);
    }
}

/// It was attached when the earlier weir ended, and left while no weir ran.
#[test]
fn an_interface_that_vanishes_while_no_weir_runs_may_come_back() {
    let (now, since) = (clock::now().monotonic, reading(0, 4_000).unwrap().seen[0]);
    let address = Some([2, 0, 0, 0, 0, 9]);
    let mut one = attached(0, "eth0", Way::Ingress, 2);
    one.present = None;
    one.await_return(&SlotState { address, ..state() }, since, now, None);
    one.note_seen(Some(SeenPackets::default()), SeenPackets::default());
    one.attach(Present { ifindex: 5, xdp: None, is_virtual: true, address, origin: Origin::default(), number: 1 });
    one.begin(reading(900 + 4_110 + 300, 0));
    let unseen = one.compare_with(reading(900 + 4_110 + 300, 0), 0, WINDOW).unwrap();
    assert_eq!((unseen.counted.packets, unseen.beyond.packets), (300, 900 + 4_110), "or it is another interface");
}

/// weir is killed after an interface has come back, and before that window is reported.
#[test]
fn what_a_killed_weir_had_not_declared_is_declared_by_the_next_one() {
    let was = Present {
        ifindex: 2,
        xdp: None,
        is_virtual: true,
        address: Some([2, 0, 0, 0, 0, 9]),
        origin: Origin::default(),
        number: 1,
    };
    let mut one = left(Departure::Moved, was);
    one.note_seen(Some(reading(0, 500).unwrap().seen[0]), SeenPackets::default());
    one.attach(was);
    one.begin(reading(1_207, 500));
    let missed = one.undeclared();
    assert_eq!(missed.map(|tally| tally[0]), [7, 0]);
    let now = clock::now().monotonic;
    let mut next = attached(0, "eth0", Way::Ingress, 2);
    next.take_over(&SlotState { missed, ..state() }, SeenPackets::default(), now);
    let declared = next.compare_with(reading(900 + 110, 0), 0, WINDOW).unwrap();
    assert_eq!(declared.counted.packets, 7);
    assert_eq!(next.undeclared(), [[0; 2]; 2], "they are declared once");
}

/// A second weir is killed before its first report: the third one compares from where the first one stopped.
#[test]
fn the_comparison_goes_on_over_several_weirs_without_a_report() {
    let (now, packets) = (clock::now().monotonic, |packets| reading(0, packets).unwrap().seen[0]);
    // The first has counted 4,110 packets after its reading of 900, and the second 300.
    let mut second = attached(0, "eth0", Way::Ingress, 2);
    second.take_over(&state(), packets(4_000), now);
    let (own, seen) = second.kept_reading(reading(900 + 4_110 + 100, 100)).unwrap();
    let seen = Some(seen.map(SeenPackets::words));
    let reported = vec![0; state().reported.len()];
    let kept = SlotState { own: Some(own.packets), own_bytes: Some(own.bytes), seen, reported, ..state() };
    let mut third = attached(0, "eth0", Way::Ingress, 2);
    third.take_over(&kept, packets(4_000 + 300), now);
    third.compare_with(reading(900 + 4_110 + 300 + 50, 50), 0, WINDOW);
    assert_eq!(third.compared.packets.map(|share| share.value), Some(1.0));
    second.compare_with(reading(900 + 4_110 + 300, 300), 0, WINDOW);
    let (own, _) = second.kept_reading(reading(900 + 4_110 + 300, 300)).unwrap();
    assert_eq!(own.packets, 900 + 4_110 + 300, "it has reported now");
}
