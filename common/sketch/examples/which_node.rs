//! Finds out which of N nodes has a key. Each node publishes a filter of its keys. A client asks only the nodes whose
//! filter contains the key, and no node if no filter does.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example which_node
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use std::error::Error;

use weir_sketch::{
    BlockedBloom, ImageError, Keyed, SettingError,
    hash::{Key, mix},
};

const NODES: usize = 16;
const KEYS: u64 = 320_000;
const RATE: f64 = 0.01;

fn main() -> Result<(), Box<dyn Error>> {
    // All nodes share this key, so that their filters have the same hashes.
    let secret = Key::random()?;
    let images: Vec<Vec<u8>> = (0..NODES).map(|node| publish(secret, node)).collect::<Result<_, _>>()?;
    let directory = Directory::read(secret, &images)?;
    assert!(Directory::read(Key::random()?, &images).is_err(), "they cannot be read without the secret");

    // Ask for every key that a node has.
    let (mut asked, mut missed) = (0, 0);
    for n in 0..KEYS {
        let candidates: Vec<usize> = directory.candidates(&object(n)).collect();
        asked += candidates.len();
        missed += u64::from(!candidates.contains(&owner(n)));
    }
    // Ask for as many keys that no node has.
    let asked_in_vain: usize = (KEYS..2 * KEYS).map(|n| directory.candidates(&object(n)).count()).sum();

    let per_key = |asked: usize| asked as f64 / KEYS as f64;
    println!("{KEYS} keys on {NODES} nodes; a directory of {} KiB\n", directory.memory_bytes() >> 10);
    println!("                              nodes asked for a key");
    println!("without a directory           {NODES:>8}");
    println!("a key that a node has         {:>8.2}   (the right one is always among them)", per_key(asked));
    println!("a key that no node has        {:>8.2}", per_key(asked_in_vain));

    assert_eq!(missed, 0, "the owner is always asked");
    assert!(per_key(asked) < 1.0 + 1.1 * RATE * NODES as f64, "hardly any other node is asked");
    assert!(per_key(asked_in_vain) < 1.1 * RATE * NODES as f64);
    Ok(())
}

/// The image of the filter that a node publishes. It contains all its keys.
fn publish(secret: Key, node: usize) -> Result<Vec<u8>, SettingError> {
    let keys: Vec<String> = (0..KEYS).filter(|n| owner(*n) == node).map(object).collect();
    let mut filter = BlockedBloom::with_key(secret, keys.len() as u64, RATE)?;
    filter.insert_batch(&keys);
    Ok(filter.to_image())
}

/// The filters of all nodes, made with one secret: a key has the same hash on every node.
struct Directory {
    filters: Vec<Keyed<BlockedBloom>>,
}

impl Directory {
    fn read(secret: Key, images: &[Vec<u8>]) -> Result<Self, ImageError> {
        let filters = images.iter().map(|image| Keyed::from_image(secret, image));
        Ok(Self { filters: filters.collect::<Result<_, _>>()? })
    }

    /// The nodes that may have this key. The node that has it is always among them.
    fn candidates(&self, key: &str) -> impl Iterator<Item = usize> {
        // All filters have the same secret, so one hash is enough for all of them.
        let hash = self.filters[0].hash(key);
        let says_yes = move |(node, filter): (usize, &Keyed<BlockedBloom>)| (**filter).contains(hash).then_some(node);
        self.filters.iter().enumerate().filter_map(says_yes)
    }

    fn memory_bytes(&self) -> usize {
        self.filters.iter().map(|filter| filter.memory_bytes()).sum()
    }
}

/// Returns the n-th key of the example.
fn object(n: u64) -> String {
    format!("objects/{:016x}", mix(n))
}

/// The node that has it.
fn owner(n: u64) -> usize {
    (mix(!n) % NODES as u64) as usize
}

#[test]
fn its_claims_hold() {
    main().unwrap();
}
