//! Tests which reports are kept and which are dropped.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use weir_schema::{Encoded, Reason};

use super::{
    super::{Limits, Spool, files::Files, name::Name, remove_report},
    ROOMY, Received,
    disk::{Disk, Rest},
    open, report,
};

fn keep(spool: &Spool, seqs: impl IntoIterator<Item = u64>) {
    for seq in seqs {
        spool.keep(report(seq), 1000 + seq).unwrap();
    }
}

#[test]
fn with_enough_room_a_spool_is_a_queue_on_disk_and_in_memory() {
    for seed in 0..50_u64 {
        let disk = Arc::<Disk>::default();
        let mut spools = [open(&disk, ROOMY), Spool::in_memory(ROOMY)];
        let mut model = VecDeque::new();
        let mut random = seed;
        for seq in 1..=60 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let choice = random >> 33;
            for spool in &spools {
                keep(spool, [seq]);
            }
            model.push_back(seq);
            let count = 1 + choice as usize / 8 % 5;
            match choice % 8 {
                0..=2 => {
                    let expected: Vec<u64> = model.drain(..count.min(model.len())).collect();
                    for spool in &spools {
                        let batch = spool.batch(count, 1 << 20, &BTreeSet::new()).unwrap();
                        let mut received = Received::default();
                        received.take(&batch);
                        assert_eq!(received, Received { reports: expected.clone(), lost: vec![] }, "seed {seed}");
                        spool.delivered(&batch);
                    }
                }
                3 => spools[0] = open(&disk, ROOMY),
                4 => spools.iter().for_each(|spool| drop(spool.batch(count, 1 << 20, &BTreeSet::new()).unwrap())),
                _ => {}
            }
            for spool in &spools {
                assert_eq!(spool.holding().reports, model.len() as u64, "seed {seed}");
            }
        }
        assert_eq!(disk.names().len(), model.len());
        for spool in &spools {
            assert_eq!(Received::drain(spool, 7).reports, Vec::from_iter(model.clone()), "seed {seed}");
        }
        assert!(disk.names().is_empty());
    }
}

#[test]
fn a_full_spool_keeps_the_newest_and_says_which_are_lost() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { bytes: 6 * 4096, ..ROOMY });
    keep(&spool, 1..=20);
    assert!(spool.holding().bytes <= 6 * 4096, "{:?}", spool.holding());
    assert_eq!(spool.holding().lost[&Reason::SpoolFull], 15);
    // A restart finds the same reports.
    let spool = open(&disk, Limits { bytes: 6 * 4096, ..ROOMY });
    let batch = spool.batch(1, 1 << 20, &BTreeSet::new()).unwrap();
    let mut received = Received::default();
    received.take(&batch);
    assert_eq!(received.lost, [(1, 15, Reason::SpoolFull)], "in the place of the lost ones");
    spool.delivered(&batch);
    assert_eq!(Received::drain(&spool, 10), Received { reports: (16..=20).collect(), lost: vec![] });
}

#[test]
fn reports_in_flight_are_not_dropped() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { bytes: 8 * 4096, ..ROOMY });
    keep(&spool, 1..=3);
    let batch = spool.batch(2, 1 << 20, &BTreeSet::new()).unwrap();
    assert_eq!(batch.parcels.len(), 2, "a quarter of the spool");
    keep(&spool, 4..=20);
    spool.delivered(&batch);
    let received = Received::drain(&spool, 10);
    assert_eq!(received.lost, [(3, 15, Reason::SpoolFull)]);
    assert_eq!(received.reports, (16..=20).collect::<Vec<_>>());
}

#[test]
fn a_tombstone_in_flight_does_not_change() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { bytes: 8 * 4096, ..ROOMY });
    keep(&spool, 1..=10);
    let batch = spool.batch(1, 1 << 20, &BTreeSet::new()).unwrap();
    let mut received = Received::default();
    received.take(&batch);
    assert_eq!(received.lost, [(1, 3, Reason::SpoolFull)]);
    keep(&spool, 11..=13);
    spool.delivered(&batch);
    let rest = Received::drain(&spool, 10);
    assert_eq!(rest.lost.first().map(|(first, ..)| *first), Some(4), "another one goes on: {rest:?}");
    let all: Vec<u64> = rest.lost_numbers().chain(rest.reports.clone()).collect();
    assert_eq!(all, (4..=13).collect::<Vec<_>>());
}

#[test]
fn a_disk_without_room_keeps_the_newest() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, ROOMY);
    keep(&spool, 1..=5);
    let used: usize = disk.names().iter().map(|name| disk.content(name).len()).sum();
    disk.set_room(Some(used + 10));
    keep(&spool, 6..=12);
    assert!(spool.holding().in_memory == 0, "{:?}", spool.holding());
    let received = Received::drain(&open(&disk, ROOMY), 10);
    let all: Vec<u64> = received.lost_numbers().chain(received.reports.clone()).collect();
    assert_eq!(all, (1..=12).collect::<Vec<_>>(), "{received:?}");
    assert!(received.reports.contains(&12) && !received.lost.is_empty(), "{received:?}");
}

#[test]
fn reports_that_a_disk_does_not_accept_wait_in_memory_and_are_written_later() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { memory: 3, ..ROOMY });
    keep(&spool, 1..=2);
    disk.set_read_only(true);
    for seq in 3..=9 {
        let error = spool.keep(report(seq), 1000).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    let holding = spool.holding();
    assert_eq!((holding.reports, holding.in_memory, holding.lost[&Reason::QueueFull]), (6, 4, 3));
    disk.set_read_only(false);
    keep(&spool, [10]);
    assert_eq!(spool.holding().in_memory, 0);
    let received = Received::drain(&spool, 3);
    assert_eq!(received.lost, [(3, 5, Reason::QueueFull)]);
    assert_eq!(received.reports, [1, 2, 6, 7, 8, 9, 10]);
    assert!(disk.names().is_empty(), "{:?}", disk.names());
}

#[test]
fn reports_lost_from_memory_at_the_end_have_a_tombstone() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { memory: 8, ..ROOMY });
    keep(&spool, 1..=2);
    disk.set_read_only(true);
    for seq in 3..=6 {
        spool.keep(report(seq), 1000).unwrap_err();
    }
    disk.set_read_only(false);
    drop(spool);
    let received = Received::drain(&open(&disk, ROOMY), 10);
    assert_eq!(received, Received { reports: vec![1, 2], lost: vec![(3, 6, Reason::QueueFull)] });
}

#[test]
fn reports_that_wait_too_long_are_dropped() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { age: Some(Duration::from_secs(60)), ..ROOMY });
    spool.keep(report(1), 1000).unwrap();
    spool.keep(report(2), 1010).unwrap();
    // Setting the clock back makes no report too old.
    spool.keep(report(3), 10).unwrap();
    spool.keep(report(4), 1061).unwrap();
    let received = Received::drain(&spool, 10);
    assert_eq!(received, Received { reports: vec![2, 3, 4], lost: vec![(1, 1, Reason::TooOld)] });
}

#[test]
fn a_refused_report_is_kept_aside_and_has_a_tombstone() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, ROOMY);
    keep(&spool, 1..=3);
    let batch = spool.batch(1, 1 << 20, &BTreeSet::new()).unwrap();
    spool.refused(&batch.parcels[0], "422 Unprocessable Entity: no such table");
    let aside: Vec<String> = disk.names().into_iter().filter(|name| name.contains("refused")).collect();
    assert_eq!(aside.len(), 3, "the report, the answer and the tombstone: {aside:?}");
    assert!(aside.iter().any(|name| disk.content(name) == b"422 Unprocessable Entity: no such table"));
    let received = Received::drain(&open(&disk, ROOMY), 10);
    assert_eq!(received, Received { reports: vec![2, 3], lost: vec![(1, 1, Reason::Refused)] });
    // A refused tombstone is removed.
    let spool = open(&disk, ROOMY);
    keep(&spool, [4]);
    spool.refused(&spool.batch(1, 1 << 20, &BTreeSet::new()).unwrap().parcels[0], "no");
    spool.refused(&spool.batch(1, 1 << 20, &BTreeSet::new()).unwrap().parcels[0], "no");
    assert_eq!(Received::drain(&spool, 10), Received::default());
    assert_eq!(disk.names().len(), 4, "two reports and two answers stay aside: {:?}", disk.names());
}

#[test]
fn removed_reports_have_a_tombstone() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, ROOMY);
    keep(&spool, 1..=3);
    let second = disk.names().into_iter().find(|name| name.starts_with("1.")).unwrap();
    Files::remove(&disk, &second).unwrap();
    assert_eq!(Received::drain(&spool, 10), Received { reports: vec![1, 3], lost: vec![(2, 2, Reason::Removed)] });
}

#[test]
fn reports_removed_by_command_have_a_tombstone_whenever_weir_ends() {
    let disk = Arc::<Disk>::default();
    let remove = |number: u64| {
        let file = disk.names().into_iter().find(|name| name.starts_with(&format!("{number}."))).unwrap();
        remove_report(&disk, &Name::read(&file).unwrap()).unwrap();
    };
    let lost = |numbers: &[u64]| numbers.iter().map(|number| (*number, *number, Reason::Removed)).collect();
    let spool = open(&disk, ROOMY);
    keep(&spool, 1..=5);
    for one in 1..4 {
        remove(one);
    }
    // weir is killed before it handles them.
    drop(spool);
    let spool = open(&disk, ROOMY);
    assert_eq!(Received::drain(&spool, 10), Received { reports: vec![1, 5], lost: lost(&[2, 3, 4]) });
    keep(&spool, 6..=8);
    remove(6);
    assert_eq!(Received::drain(&spool, 10), Received { reports: vec![6, 8], lost: lost(&[7]) });
    assert!(disk.names().is_empty(), "{:?}", disk.names());
    // A report that arrives is not named, although its file was removed in flight.
    keep(&spool, [9]);
    let batch = spool.batch(10, 1 << 20, &BTreeSet::new()).unwrap();
    remove(8);
    spool.delivered(&batch);
    assert!(disk.names().is_empty(), "{:?}", disk.names());
}

#[test]
fn messages_that_are_no_reports_stay_in_memory_and_leave_no_tombstone() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, Limits { memory: 1, ..ROOMY });
    for nth in 1..=4 {
        let message = Encoded { id: format!("7f3c9a52/0000b41d/{nth}/flood"), line: b"{}\n".as_slice().into() };
        spool.keep(message, 1000).unwrap();
    }
    assert!(disk.names().is_empty());
    let batch = spool.batch(10, 1 << 20, &BTreeSet::new()).unwrap();
    let ids: Vec<&str> = batch.parcels.iter().map(|parcel| parcel.encoded.id.as_str()).collect();
    assert_eq!(ids, ["7f3c9a52/0000b41d/3/flood", "7f3c9a52/0000b41d/4/flood"]);
}

#[test]
fn a_full_disk_has_room_for_the_newest_even_if_all_others_are_in_flight() {
    let disk = Arc::<Disk>::default();
    let spool = open(&disk, ROOMY);
    for seq in 1..=6 {
        spool.keep(report(seq), 1000).unwrap();
    }
    drop(spool);
    disk.set_room(Some(disk.names().iter().map(|name| disk.content(name).len()).sum()));
    // An earlier weir may have sent all of them, and so has this one.
    let spool = open(&disk, ROOMY);
    let tried = spool.batch(10, 1 << 20, &BTreeSet::new()).unwrap();
    for seq in 7..=9 {
        spool.keep(report(seq), 1000).unwrap();
    }
    assert_eq!(spool.holding().in_memory, 0, "SIGKILL loses what only memory has");
    let after = Received::drain(&open(&disk.after_crash(u64::MAX, Rest::All), ROOMY), 10);
    let all: BTreeSet<u64> = after.reports.iter().copied().chain(after.lost_numbers()).collect();
    assert_eq!(all, (1..=9).collect(), "{after:?}");
    assert!(after.lost.iter().all(|(.., reason)| *reason == Reason::SpoolFull) && after.reports.ends_with(&[8, 9]));
    // If the attempt succeeds after all, there is no tombstone to deliver.
    spool.delivered(&tried);
    let after = Received::drain(&spool, 10);
    assert!(after.lost_numbers().all(|seq| seq > 6) && after.reports.last() == Some(&9), "{after:?}");
}

#[test]
fn a_retried_report_survives_a_crash_at_any_step() {
    for steps in 0.. {
        let disk = Arc::<Disk>::default();
        let spool = open(&disk, ROOMY);
        spool.keep(report(1), 1000).unwrap();
        let batch = spool.batch(1, 1 << 20, &BTreeSet::new()).unwrap();
        spool.refused(&batch.parcels[0], "400 Bad Request");
        let aside = disk.names().into_iter().find(|name| name.ends_with(".refused")).unwrap();
        disk.rename(&aside, &aside.replace(".refused", ".retry")).unwrap();
        disk.sync_names().unwrap();
        disk.fail_after(steps);
        let _ = spool.keep(report(2), 1000);
        let has_failed = disk.has_failed();
        for kept in [0, u64::MAX, 1, 2, 3] {
            let image = disk.after_crash(kept, Rest::All);
            let after = Received::drain(&open(&image, ROOMY), 10);
            let is_aside = image.names().iter().any(|name| name.ends_with(".refused"));
            let is_named = after.reports.contains(&1) || is_aside && after.lost == [(1, 1, Reason::Refused)];
            assert!(is_named, "{steps}, {kept}: {after:?}, {:?}", image.names());
        }
        if !has_failed {
            assert_eq!(Received::drain(&spool, 10), Received { reports: vec![1, 2], lost: Vec::new() });
            break;
        }
    }
}
