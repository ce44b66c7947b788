//! Which of N nodes has a key? Each node publishes a filter of its keys. A client asks only the nodes whose filter says
//! yes, and no node if none does.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example which_node
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use weir_sketch::{
    BlockedBloom, Keyed,
    hash::{Key, mix},
};

const NODES: usize = 16;
const KEYS: u64 = 320_000;
const RATE: f64 = 0.01;

fn main() {
    let directory = Directory::of((0..KEYS).map(|n| (object(n), owner(n))));

    // Every key that somebody has.
    let (mut asked, mut missed) = (0, 0);
    for n in 0..KEYS {
        let candidates: Vec<usize> = directory.candidates(&object(n)).collect();
        asked += candidates.len();
        missed += u64::from(!candidates.contains(&owner(n)));
    }
    // As many that nobody has.
    let asked_in_vain: usize = (KEYS..2 * KEYS).map(|n| directory.candidates(&object(n)).count()).sum();

    let per_key = |asked: usize| asked as f64 / KEYS as f64;
    println!("{KEYS} keys on {NODES} nodes; a directory of {} KiB\n", directory.memory_bytes() >> 10);
    println!("                              nodes asked for a key");
    println!("without a directory           {NODES:>8}");
    println!("a key that a node has         {:>8.2}   (the right one is always among them)", per_key(asked));
    println!("a key that no node has        {:>8.2}", per_key(asked_in_vain));

    assert_eq!(missed, 0, "the owner is always asked");
    assert!(per_key(asked) < 1.0 + 1.1 * RATE * NODES as f64, "and hardly anybody else");
    assert!(per_key(asked_in_vain) < 1.1 * RATE * NODES as f64);
}

/// The filters of all nodes, made with one secret: the same key has the same hash everywhere.
struct Directory {
    filters: Vec<Keyed<BlockedBloom>>,
}

impl Directory {
    fn of(keys: impl Iterator<Item = (String, usize)>) -> Self {
        let secret = Key([0x2545_f491_4f6c_dd1d, 0x9e37_79b9_7f4a_7c15]);
        // Some more than its share: keys are not spread quite evenly.
        let share = KEYS / NODES as u64 * 105 / 100;
        let filter = |_| BlockedBloom::with_key(secret, share, RATE);
        let mut filters: Vec<_> = (0..NODES).map(filter).collect();
        for (key, node) in keys {
            filters[node].insert(key.as_str());
        }
        Self { filters }
    }

    /// The nodes that may have this key; the one that has it is among them.
    fn candidates(&self, key: &str) -> impl Iterator<Item = usize> {
        // One hash for all of them.
        let hash = self.filters[0].hash(key);
        let says_yes = move |(node, filter): (usize, &Keyed<BlockedBloom>)| (**filter).contains(hash).then_some(node);
        self.filters.iter().enumerate().filter_map(says_yes)
    }

    fn memory_bytes(&self) -> usize {
        self.filters.iter().map(|filter| filter.memory_bytes()).sum()
    }
}

/// The n-th key.
fn object(n: u64) -> String {
    format!("objects/{:016x}", mix(n))
}

/// The node that has it.
fn owner(n: u64) -> usize {
    (mix(!n) % NODES as u64) as usize
}

#[test]
fn its_claims_hold() {
    main();
}
