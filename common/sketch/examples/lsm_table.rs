//! Bloom filters save reads in a log-structured store. Each table on the disk has a filter of its keys. A lookup goes
//! from the newest table to the oldest, and skips tables whose filter excludes the key. The filter is stored with its
//! table, and loaded with it.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example lsm_table
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{cell::Cell, error::Error};

use weir_sketch::{
    BlockedBloom, ImageError, Keyed, SettingError,
    hash::{Key, mix},
};

const TABLES: u64 = 8;
const KEYS_PER_TABLE: u64 = 50_000;
/// The planned rate of false positives of each filter.
const RATE: f64 = 0.01;

fn main() -> Result<(), Box<dyn Error>> {
    // One hash key for the whole store. It is kept apart from the tables, because filters are no defence against those
    // who know it.
    let secret = Key::random()?;
    let mut store = Store::default();
    for generation in 0..TABLES {
        // Half of the keys are new, and the others get a new value.
        let first = generation * KEYS_PER_TABLE / 2;
        let rows = (first..first + KEYS_PER_TABLE).map(|n| (name(n), generation)).collect();
        let [table, filter] = write_table(secret, rows)?;
        store.tables.push(Table::load(secret, &table, &filter)?);
    }
    let keys = (TABLES + 1) * KEYS_PER_TABLE / 2;
    let filters: usize = store.tables.iter().map(|table| table.filter.memory_bytes()).sum();
    println!("{keys} keys in {TABLES} tables of {KEYS_PER_TABLE}; {} KiB of filters\n", filters >> 10);

    // Every key must have its newest value.
    let wrong = (0..keys).filter(|n| store.get(&name(*n)) != Some((n / (KEYS_PER_TABLE / 2)).min(TABLES - 1))).count();
    let per_key = |reads: u64| reads as f64 / keys as f64;
    let for_present = per_key(store.reads.take());
    let found = (keys..2 * keys).filter(|n| store.get(&name(*n)).is_some()).count();
    let for_absent = per_key(store.reads.take());

    println!("                     tables read for a key, of {TABLES}");
    println!("a key that is there  {for_present:>8.3}");
    println!("a key that is not    {for_absent:>8.3}");

    assert_eq!((wrong, found), (0, 0), "filters do not change any answer");
    assert!(for_absent < 1.1 * RATE * TABLES as f64, "an absent key costs hardly any reads");
    assert!(
        for_present < 1.0 + 1.1 * RATE * TABLES as f64,
        "a present key costs hardly more than the read of its own table"
    );

    // A filter of another store, or a damaged one, is refused. A store then builds it again from the table's keys.
    let [table, filter] = write_table(Key::random()?, vec![(name(1), 0)])?;
    assert!(matches!(Table::load(secret, &table, &filter), Err(ImageError::Key(_))));
    assert!(matches!(Table::load(secret, &table, &filter[1..]), Err(ImageError::Value { .. })));
    Ok(())
}

/// Returns the n-th key of the example.
fn name(n: u64) -> String {
    format!("user/{:016x}", mix(n))
}

/// The data for the disk: the sorted rows, and their filter.
fn write_table(secret: Key, mut rows: Vec<(String, u64)>) -> Result<[Vec<u8>; 2], SettingError> {
    let mut filter = BlockedBloom::with_key(secret, rows.len() as u64, RATE)?;
    for (key, _) in &rows {
        filter.insert(key.as_str());
    }
    rows.sort();
    let lines: Vec<String> = rows.into_iter().map(|(key, value)| format!("{key} {value}\n")).collect();
    Ok([lines.concat().into_bytes(), filter.to_image()])
}

/// A table whose filter is in memory.
struct Table {
    filter: Keyed<BlockedBloom>,
    /// The rows. In a real store they stay on the disk.
    rows: Vec<(String, u64)>,
}

impl Table {
    fn load(secret: Key, table: &[u8], filter: &[u8]) -> Result<Self, ImageError> {
        let text = String::from_utf8_lossy(table);
        let rows = text.lines().filter_map(|line| line.split_once(' '));
        let rows = rows.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect();
        Ok(Self { filter: Keyed::from_image(secret, filter)?, rows })
    }
}

/// The tables, oldest first.
#[derive(Default)]
struct Store {
    tables: Vec<Table>,
    /// How often a table was read, because its filter did not exclude the key.
    reads: Cell<u64>,
}

impl Store {
    fn get(&self, key: &str) -> Option<u64> {
        self.tables.iter().rev().filter(|table| table.filter.contains(key)).find_map(|table| {
            self.reads.set(self.reads.get() + 1);
            let at = table.rows.binary_search_by(|(other, _)| other.as_str().cmp(key)).ok()?;
            Some(table.rows[at].1)
        })
    }
}

#[test]
fn its_claims_hold() {
    main().unwrap();
}
