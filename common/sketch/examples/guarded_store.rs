//! A store that never reads the disk for records that are not there: a filter in memory knows which records exist.
//! Records come and go, so keys must be removable from the filter.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example guarded_store
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{cell::Cell, collections::HashMap};

use weir_sketch::{Keyed, TwoChoice, hash::Key};

const RECORDS: u64 = 100_000;

fn main() {
    let mut store = GuardedStore::with_capacity(RECORDS);
    (0..RECORDS).for_each(|id| store.put(id, format!("record {id}")));

    println!("{RECORDS} records, {} KiB of filter\n", store.guard.memory_bytes() >> 10);
    println!("                                    asked    disk reads");
    let reads = |what: &str, ids: std::ops::Range<u64>, store: &GuardedStore| {
        let (asked, before) = (ids.end - ids.start, store.disk.reads.get());
        let found = ids.filter(|id| store.get(*id).is_some()).count() as u64;
        let reads = store.disk.reads.get() - before;
        println!("{what:32} {asked:>8} {reads:>13}");
        (found, reads)
    };
    let (found, reads_of_present) = reads("records that are there", 0..RECORDS, &store);
    assert_eq!((found, reads_of_present), (RECORDS, RECORDS), "whatever is there is found");

    let (found, reads_of_absent) = reads("records that never were", RECORDS..10 * RECORDS, &store);
    assert_eq!(found, 0);
    assert!(reads_of_absent < 9 * RECORDS / 200, "the guard stops 199 misses of 200 at least");

    (0..RECORDS / 2).for_each(|id| store.delete(id));
    let (found, reads_of_deleted) = reads("records that were deleted", 0..RECORDS / 2, &store);
    assert_eq!(found, 0);
    assert!(reads_of_deleted < RECORDS / 400, "the guard forgets with the store");

    let (found, _) = reads("records that are still there", RECORDS / 2..RECORDS, &store);
    assert_eq!(found, RECORDS / 2, "and forgets nothing else");
}

/// A store with a filter before it.
struct GuardedStore {
    guard: Keyed<TwoChoice>,
    disk: Disk,
}

impl GuardedStore {
    fn with_capacity(records: u64) -> Self {
        let secret = Key([0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15]);
        Self { guard: TwoChoice::with_key(secret, records), disk: Disk::default() }
    }

    fn put(&mut self, id: u64, record: String) {
        // A guard that is full would have to be built anew, larger, from the store.
        if self.disk.records.insert(id, record).is_none() {
            self.guard.insert(&id).expect("no more records than planned");
        }
    }

    fn get(&self, id: u64) -> Option<&str> {
        if self.guard.contains(&id) { self.disk.read(id) } else { None }
    }

    fn delete(&mut self, id: u64) {
        // Only what was inserted may be removed: else another record would lose its place.
        if self.disk.records.remove(&id).is_some() {
            self.guard.remove(&id);
        }
    }
}

/// Where reads take their time.
#[derive(Default)]
struct Disk {
    records: HashMap<u64, String>,
    reads: Cell<u64>,
}

impl Disk {
    fn read(&self, id: u64) -> Option<&str> {
        self.reads.set(self.reads.get() + 1);
        self.records.get(&id).map(String::as_str)
    }
}

#[test]
fn its_claims_hold() {
    main();
}
