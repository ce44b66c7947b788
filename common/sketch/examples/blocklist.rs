//! A blocklist in two stages. A filter that fits into a cache lets nearly every request pass. The exact list, which may
//! be on a disk or on another machine, decides about the other requests. No decision is wrong.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example blocklist
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{cell::Cell, collections::BTreeSet, error::Error};

use weir_sketch::{BlockedBloom, hash::mix};

const LISTED: u64 = 100_000;
const REQUESTS: u64 = 500_000;
/// One request in this many is for a listed name.
const ONE_IN: u64 = 100;
const RATE: f64 = 0.001;

fn main() -> Result<(), Box<dyn Error>> {
    let list = ExactList { names: (0..LISTED).map(listed_name).collect(), asked: Cell::new(0) };
    let mut filter = BlockedBloom::new(LISTED, RATE)?;
    for name in &list.names {
        filter.insert(name.as_str());
    }

    let is_blocked = |name: &str| filter.contains(name) && list.contains(name);

    let (mut blocked, mut wrong) = (0, 0);
    for n in 0..REQUESTS {
        let is_listed = n % ONE_IN == 0;
        let name = if is_listed { listed_name(mix(n) % LISTED) } else { innocent_name(n) };
        let verdict = is_blocked(&name);
        blocked += u64::from(verdict);
        wrong += u64::from(verdict != is_listed);
    }

    let in_vain = list.asked.get() - blocked;
    let passed = REQUESTS - list.asked.get();
    println!("{REQUESTS} requests, {LISTED} names on the list\n");
    println!(
        "first stage    {:>4} KiB of filter let {:.2} % pass at once",
        filter.memory_bytes() >> 10,
        passed as f64 / REQUESTS as f64 * 100.0
    );
    println!("second stage   the exact list was asked {} times, {in_vain} of them in vain", list.asked.get());
    println!("verdicts       {blocked} blocked, {wrong} wrong");

    assert_eq!((blocked, wrong), (REQUESTS / ONE_IN, 0), "the second stage makes every decision exact");
    assert!(in_vain as f64 <= 1.3 * RATE * REQUESTS as f64, "only the filter's false positives reach the list in vain");
    Ok(())
}

/// The n-th name on the list.
fn listed_name(n: u64) -> String {
    format!("ads{n}.tracker.example")
}

/// The n-th name that is not on the list.
fn innocent_name(n: u64) -> String {
    format!("host{n}.example.org")
}

/// The list itself: exact, and slow or far away.
struct ExactList {
    names: BTreeSet<String>,
    asked: Cell<u64>,
}

impl ExactList {
    fn contains(&self, name: &str) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.names.contains(name)
    }
}

#[test]
fn its_claims_hold() {
    main().unwrap();
}
