//! A guard for a cache: a filter of the records that exist. Requests for records that do not exist reach neither the
//! cache, where they would push out other records, nor the database. Records come and go, so the filter must be able to
//! forget.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example cache_guard
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    error::Error,
};

use weir_sketch::{Cuckoo, Full, Keyed};

const RECORDS: u64 = 100_000;
/// The number of records that fit into the cache.
const CACHED: usize = 1_000;
/// The number of records that are requested often.
const POPULAR: u64 = 900;

fn main() -> Result<(), Box<dyn Error>> {
    let mut store = Store::with_capacity(RECORDS)?;
    for id in 0..RECORDS {
        store.put(id, format!("record {id}"))?;
    }
    println!("{RECORDS} records, {} KiB of filter\n", store.guard.memory_bytes() >> 10);
    println!("                                    asked    found    database reads");

    let (found, _) = store.ask("popular records, for the first time", 0..POPULAR);
    assert_eq!(found, POPULAR, "every existing record is found");
    let (found, reads) = store.ask("records that never were", RECORDS..10 * RECORDS);
    assert!(found == 0 && reads < 9 * RECORDS / 200, "the guard stops at least 199 of 200");
    let (found, reads) = store.ask("popular records, once more", 0..POPULAR);
    assert_eq!((found, reads), (POPULAR, 0), "they are still in the cache");

    for id in RECORDS / 2..RECORDS {
        store.delete(id);
    }
    let (found, reads) = store.ask("records that were deleted", RECORDS / 2..RECORDS);
    assert!(found == 0 && reads < RECORDS / 400, "the guard forgets deleted records, too");
    let (found, _) = store.ask("records that are still there", 0..RECORDS / 2);
    assert_eq!(found, RECORDS / 2, "it forgets no other record");
    Ok(())
}

/// A database with a cache, and a filter before both.
struct Store {
    guard: Keyed<Cuckoo>,
    cache: Cache,
    database: Database,
}

impl Store {
    fn with_capacity(records: u64) -> Result<Self, Box<dyn Error>> {
        Ok(Self { guard: Cuckoo::new(records)?, cache: Cache::default(), database: Database::default() })
    }

    /// Stores a record. If the guard were full, a larger one would have to be built from the database.
    fn put(&mut self, id: u64, record: String) -> Result<(), Full> {
        if self.database.records.insert(id, record).is_none() {
            self.guard.insert(&id)?;
        }
        Ok(())
    }

    fn get(&mut self, id: u64) -> Option<&str> {
        if !self.guard.contains(&id) {
            return None;
        }
        if !self.cache.records.contains_key(&id) {
            let record = self.database.read(id)?;
            self.cache.keep(id, record);
        }
        self.cache.records.get(&id).map(String::as_str)
    }

    fn delete(&mut self, id: u64) {
        // Remove only keys that were inserted. Otherwise another record would be forgotten.
        if self.database.records.remove(&id).is_some() {
            self.guard.remove(&id);
            self.cache.records.remove(&id);
        }
    }

    /// Asks for these records. Returns how many were found, and how often the database was read.
    fn ask(&mut self, what: &str, ids: std::ops::Range<u64>) -> (u64, u64) {
        let (asked, before) = (ids.end - ids.start, self.database.reads.get());
        let found = ids.filter(|id| self.get(*id).is_some()).count() as u64;
        let reads = self.database.reads.get() - before;
        println!("{what:32} {asked:>8} {found:>8} {reads:>17}");
        (found, reads)
    }
}

/// Keeps the records that were requested last.
#[derive(Default)]
struct Cache {
    records: HashMap<u64, String>,
    order: VecDeque<u64>,
}

impl Cache {
    fn keep(&mut self, id: u64, record: String) {
        if self.order.len() == CACHED
            && let Some(oldest) = self.order.pop_front()
        {
            self.records.remove(&oldest);
        }
        self.order.push_back(id);
        self.records.insert(id, record);
    }
}

/// The database, where reads are slow.
#[derive(Default)]
struct Database {
    records: HashMap<u64, String>,
    reads: Cell<u64>,
}

impl Database {
    fn read(&self, id: u64) -> Option<String> {
        self.reads.set(self.reads.get() + 1);
        self.records.get(&id).cloned()
    }
}

#[test]
fn its_claims_hold() {
    main().unwrap();
}
