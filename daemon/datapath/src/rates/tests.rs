use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn tally(packets: u64) -> Tally {
    Tally::new(packets, packets * 100)
}

const NS_PER_MS: u64 = 1_000_000;

/// The seconds of a window between these times in milliseconds. The next window follows immediately.
fn window(start_ms: u64, end_ms: u64) -> WindowSeconds {
    WindowSeconds::of(start_ms * NS_PER_MS, end_ms * NS_PER_MS, Then::Window(end_ms * NS_PER_MS))
}

/// The seconds of a single window that contains everything.
fn all(start_ms: u64, end_ms: u64) -> WindowSeconds {
    WindowSeconds::of(start_ms * NS_PER_MS, end_ms * NS_PER_MS, Then::Nothing)
}

fn counted(packets: impl IntoIterator<Item = (u64, u64)>) -> Seconds {
    let mut seconds = Seconds::default();
    for (second, packets) in packets {
        seconds.count(Some(second), tally(packets));
    }
    seconds
}

/// The number of seconds, the fewest and the most packets in one, and the packets that are in no second.
fn sums(rates: &Rates) -> [u64; 4] {
    [rates.seconds(), rates.least.packets, rates.most.packets, rates.unplaced.packets]
}

#[test]
fn packets_belong_to_their_own_seconds_in_any_order() {
    // There are two sources, one of which is this many seconds late.
    for lag in [0, 1, 3, OPEN as u64 - 1] {
        let times = (0..200 + lag).flat_map(|second| [(1_000 + second, 50), ((1_000 + second).wrapping_sub(lag), 50)]);
        let times = times.filter(|(second, _)| (1_000..1_200).contains(second));
        let mut seconds = counted(times);
        assert_eq!(sums(&seconds.close(&window(1_000_000, 1_200_000))), [200, 100, 100, 0], "{lag} s");
    }
    let mut seconds = counted([(100, 3), (100, 4), (103, 5), (102, 1), (104, 2)]);
    let rates = seconds.close(&window(100_000, 107_000));
    assert_eq!((sums(&rates), rates.packets.count_at(0), rates.longest), ([7, 0, 7, 0], 3, ms(1_000)));
}

#[test]
fn packets_later_than_all_open_seconds_are_in_none_and_silence_is_unknown() {
    let late = OPEN as u64;
    let mut seconds = counted([(1_000, 7), (1_001, 7), (1_020, 7), (1_002 + late, 7), (1_001, 5), (1_003, 1)]);
    let rates = seconds.close(&window(900_000, 1_100_000));
    // The silent seconds are those between the first and the last second with a known count.
    assert_eq!(sums(&rates), [late + 3, 0, 7, 5]);
    let mut rates = rates;
    rates.fill_up(200);
    assert_eq!(rates.seconds(), late + 3, "the counts of the others are unknown");
}

#[test]
fn a_packet_without_a_time_is_in_no_second() {
    let mut seconds = counted([(1_000, 7), (1_001, 6)]);
    seconds.count(None, tally(100));
    assert_eq!(sums(&seconds.close(&window(1_000_000, 1_002_000))), [2, 6, 7, 100]);
    assert_eq!(
        sums(&seconds.close(&window(1_002_000, 1_004_000)))[..],
        [2, 0, 0, 0],
        "the packet belongs to the window before"
    );
}

#[test]
fn one_wrong_time_costs_no_more_than_its_packet() {
    for wrong in [0, 5_000_000_000] {
        let times = [(1_000, 5), (1_001, 5), (wrong, 1), (1_002, 5), (1_003, 5)];
        let (first, last) = (1_000.min(wrong), 1_004.max(wrong + 1));
        let rates = counted(times).close(&all(first * 1_000, last * 1_000));
        assert_eq!(sums(&rates), [4, 5, 5, 1], "{wrong}");
    }
    // If time moves on, the seconds in between were silent.
    let mut seconds = counted([(1_000, 5), (9_000, 5), (9_001, 6)]);
    assert_eq!(sums(&seconds.close(&window(1_000_000, 9_002_000))), [8_002, 0, 6, 0]);
    let mut seconds = counted([(1_000, 5), (9_001, 6), (9_000, 5)]);
    assert_eq!(sums(&seconds.close(&window(1_000_000, 9_002_000))), [8_002, 0, 6, 0]);
    let mut last = counted([(1_000, 5), (9_000, 5)]);
    assert_eq!(sums(&last.close(&window(1_000_000, 9_001_000))), [8_001, 0, 5, 0]);
}

#[test]
fn pauses_between_single_packets_are_silence() {
    for pause in [OPEN as u64 - 1, OPEN as u64, 100, 1_000] {
        let mut quiet = counted((0..10).map(|nth| (1_000 + nth * pause, 1)));
        let rates = quiet.close(&all(1_000_000, (1_001 + 9 * pause) * 1_000));
        assert_eq!(sums(&rates), [9 * pause + 1, 0, 1, 0], "{pause} s");
        assert_eq!(rates.packets.count_at(1), 10, "{pause} s");
    }
}

/// The time that a capture covers is known at its end. What came before it is in no second.
#[test]
fn packets_before_the_time_of_a_capture_are_in_no_second() {
    let most = || (0..600).map(|nth| (1_000_000 + nth, 7));
    for strays in [
        vec![(100, 3), (130, 3)],
        vec![(100, 3), (101, 3)],
        vec![(100, 3), (50_000, 3), (900_000, 3)],
        (0..100).map(|nth| (100 + nth, 3)).collect(),
        (0..20).map(|nth| (100 + nth * 10_000, 3)).collect(),
    ] {
        let times: Vec<_> = strays.iter().copied().chain(most()).collect();
        let rates = counted(times.clone()).close(&all(1_000_000_000, 1_000_600_000));
        assert_eq!(sums(&rates), [600, 7, 7, 3 * strays.len() as u64], "{strays:?}");
        // The first second may be incomplete.
        let rates = counted(times.clone()).close(&all(1_000_000_500, 1_000_599_500));
        assert_eq!(sums(&rates), [600, 7, 7, 3 * strays.len() as u64], "{strays:?}");
        // If it was a pause, all count.
        let rates = counted(times).close(&all(100_000, 1_000_600_000));
        assert_eq!(sums(&rates), [1_000_500, 0, 7, 0], "{strays:?}");
    }
}

#[test]
fn packets_of_open_seconds_are_counted_there() {
    for lag in [1, 59, OPEN as u64 - 1] {
        let (ahead, late) = (1_005 + OPEN as u64, 1_005 + OPEN as u64 - lag);
        let times = [(1_000, 1), (1_005, 1), (ahead, 1), (late, 1), (ahead + 10, 1)];
        let rates = counted(times).close(&all(1_000_000, (ahead + 11) * 1_000));
        assert_eq!(sums(&rates), [ahead + 11 - 1_000, 0, 1, 0], "{lag} s");
    }
}

#[test]
fn an_incomplete_second_does_not_count() {
    // The capture has half of the first second and half of the last.
    let times = [(100, 5), (101, 10), (102, 10), (103, 5)];
    assert_eq!(sums(&counted(times).close(&window(100_500, 103_500))), [2, 10, 10, 0]);
    assert_eq!(sums(&counted(times).close(&all(100_500, 103_500))), [2, 10, 10, 0]);
    // But if the last packet of a capture comes shortly before the end of its second, that second counts.
    let even = [(100, 10), (101, 10), (102, 11), (103, 10)];
    assert_eq!(sums(&counted(even).close(&all(100_000, 103_990))), [4, 10, 11, 0]);
    assert_eq!(counted([(100, 10), (101, 10)]).close(&all(100_400, 101_600)).seconds(), 0, "no second is whole");
    // The first second may end long before the window does.
    let long = (100..300).map(|second| (second, if second == 100 { 5 } else { 10 }));
    assert_eq!(sums(&counted(long).close(&all(100_500, 300_000))), [199, 10, 10, 0]);
}

#[test]
fn each_second_of_a_packet_socket_is_in_one_window() {
    let mut seconds = Seconds::default();
    seconds.begin(100 * NS + 300_000_000);
    let mut read = |times: &[(u64, u64)], end_ms: u64, passed_ms: u64| {
        for (second, packets) in times {
            seconds.count(Some(*second), tally(*packets));
        }
        sums(&seconds.close(&WindowSeconds::at(end_ms * NS_PER_MS, ms(passed_ms))))
    };
    // The socket was opened within the first second, and read 4 ms into the next window.
    assert_eq!(read(&[(100, 9), (101, 10), (102, 10), (103, 1)], 103_004, 2_704), [2, 10, 10, 0]);
    assert_eq!(read(&[(103, 9), (104, 10)], 105_001, 1_997), [2, 10, 10, 0]);
    // By the clock, the window has not quite ended.
    assert_eq!(read(&[(105, 10)], 105_999, 998), [1, 10, 10, 0]);
    assert_eq!(read(&[(105, 1), (106, 10)], 107_000, 1_001), [1, 10, 10, 1], "one packet was read too late");
    // The clock jumps forward by an hour: these seconds did not pass.
    assert_eq!(read(&[(107, 10), (3_707, 10), (3_708, 10)], 3_709_000, 3_000), [3, 10, 10, 0]);
    // The clock jumps back: nothing is known about the seconds after that.
    assert_eq!(read(&[(3_709, 10), (110, 10), (111, 10)], 112_000, 3_000), [0, u64::MAX, 0, 30]);
    assert_eq!(read(&[(112, 10), (113, 10)], 114_000, 2_000), [2, 10, 10, 0], "the clock is steady again");
}

#[test]
fn counters_are_read_at_full_seconds() {
    let mut pulse = Pulse::new(ms(10_300), ms(700), vec![tally(50), tally(0)]);
    assert_eq!(pulse.left(ms(10_400)), ms(200));
    pulse.look(ms(10_570), ms(970), |_| unreachable!("it is not time yet"));
    // Packets of the 300 ms before belong to no second.
    pulse.look(ms(10_600), ms(0), |slot| if slot == 0 { tally(70) } else { tally(3) });
    assert_eq!((pulse.slots[0].rates.seconds(), pulse.left(ms(10_600))), (0, ms(1_000)));
    pulse.look(ms(11_600), ms(0), |slot| if slot == 0 { tally(70 + 130) } else { tally(13) });
    // The reading is 50 ms late, so the second is longer.
    pulse.look(ms(12_650), ms(50), |slot| if slot == 0 { tally(200 + 210) } else { tally(13) });
    assert_eq!(pulse.left(ms(12_650)), ms(950));
    let rates = pulse.close();
    assert_eq!((rates[0].seconds(), rates[0].most, rates[0].longest), (2, tally(200), ms(1_050)));
    assert_eq!((rates[1].packets.min(), rates[1].most), (0, tally(10)));
    // The window ends slightly before its last second does.
    pulse.look(ms(13_595), ms(995), |_| tally(1_000));
    assert_eq!((pulse.close()[0].seconds(), pulse.left(ms(13_595))), (1, ms(1_005)));
    assert_eq!(pulse.close()[0].seconds(), 0);
}

#[test]
fn nothing_is_scaled_up() {
    // Counting starts 895 ms before a full second, with an immediate burst. That part does not count as a second.
    let mut started = Pulse::new(ms(105), ms(105), vec![tally(0)]);
    started.look(ms(1_000), ms(0), |_| tally(1_000));
    started.look(ms(2_000), ms(0), |_| tally(1_000));
    assert_eq!(sums(&started.close()[0])[..3], [1, 0, 0]);
    // A reading is 460 ms late: the rest of its second is part of the next one, at the mean rate of both.
    let mut held_up = Pulse::new(ms(0), ms(0), vec![tally(0)]);
    held_up.look(ms(1_460), ms(460), |_| tally(0));
    held_up.look(ms(2_000), ms(0), |_| tally(1_000));
    held_up.look(ms(3_000), ms(0), |_| tally(1_000));
    assert_eq!(sums(&held_up.close()[0])[..3], [3, 0, 649]);
    // A stretch of slightly less than a second is not scaled.
    let mut jitter = Pulse::new(ms(0), ms(0), vec![tally(0)]);
    jitter.look(ms(1_060), ms(60), |_| tally(0));
    jitter.look(ms(2_000), ms(0), |_| tally(1_000));
    assert_eq!(sums(&jitter.close()[0])[..3], [2, 0, 1_000]);
}

#[test]
fn a_new_interface_begins_with_its_first_whole_second() {
    let mut pulse = Pulse::new(ms(0), ms(0), vec![tally(0)]);
    pulse.provide(2);
    pulse.look(ms(1_000), ms(0), |slot| tally(if slot == 0 { 5 } else { 700 }));
    pulse.look(ms(2_000), ms(0), |slot| tally(if slot == 0 { 10 } else { 900 }));
    let rates = pulse.close();
    assert_eq!((sums(&rates[0])[..3].to_vec(), sums(&rates[1])[..3].to_vec()), (vec![2, 5, 5], vec![1, 200, 200]));
}

#[test]
fn a_reading_that_is_seconds_late_counts_for_each_at_the_mean_rate() {
    let mut pulse = Pulse::new(ms(0), ms(0), vec![tally(0)]);
    pulse.look(ms(3_000), ms(0), |_| tally(300));
    let rates = &pulse.close()[0];
    assert_eq!((rates.seconds(), rates.most, rates.longest), (3, tally(100), ms(3_000)));
}

#[test]
fn the_source_that_saw_packets_has_the_rates() {
    let (mut silent, mut busy) = (Rates::default(), Rates::default());
    silent.fill_up(10);
    busy.add(tally(5), ms(1_000));
    let mut one = silent.clone();
    one.merge(busy.clone());
    assert_eq!(one, busy);
    one.merge(silent.clone());
    assert_eq!(one, busy);
    let mut nothing = Rates::default();
    nothing.merge(silent.clone());
    assert_eq!(nothing, silent);
}
