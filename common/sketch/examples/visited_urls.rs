//! The visited set of a crawler: was this page already fetched? A Bloom filter is compared with a hash set.
//!
//! ```sh
//! cargo run --release -p weir-sketch --example visited_urls
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it shows")]

use std::{collections::HashSet, error::Error, fs, hint::black_box, time::Instant};

use weir_sketch::{Bloom, Geometry, Keyed};

const VISITED: u64 = 1_000_000;
/// One new page in a hundred is mistaken for a visited one, and never fetched. A crawler can tolerate that.
const RATE: f64 = 0.01;

fn main() -> Result<(), Box<dyn Error>> {
    // The key is random, so that no site can construct addresses that seem visited.
    let mut filter = Bloom::new(VISITED, RATE)?;
    let mut set = HashSet::new();
    for url in (0..VISITED).map(url) {
        filter.insert(url.as_str());
        set.insert(url);
    }

    let visited: Vec<String> = (0..VISITED).map(url).collect();
    let fresh: Vec<String> = (VISITED..2 * VISITED).map(url).collect();
    let by_filter = Looked::up(&visited, &fresh, |url| filter.contains(url));
    let by_set = Looked::up(&visited, &fresh, |url| set.contains(url));
    let filter_bytes = filter.memory_bytes();
    let set_bytes = set.capacity() * (size_of::<String>() + 1) + set.iter().map(String::capacity).sum::<usize>();

    println!("{VISITED} pages visited; {VISITED} others asked for as well\n");
    println!("                 memory    a look-up    visited but not found    found but not visited");
    for (name, bytes, looked) in [("hash set", set_bytes, &by_set), ("Bloom filter", filter_bytes, &by_filter)] {
        let Looked { nanoseconds, missed, mistaken } = looked;
        println!("{name:12} {:>6} KiB {nanoseconds:>9.0} ns {missed:>24} {mistaken:>24}", bytes >> 10);
    }
    let rate = by_filter.mistaken as f64 / VISITED as f64;
    println!(
        "\nThe filter needs {} times less memory. The price: {:.2} % of new pages are mistaken for visited \
         ones; the filter expects {:.2} %, from the bits that are set.",
        set_bytes / filter_bytes,
        rate * 100.0,
        filter.false_positive_rate() * 100.0
    );

    assert_eq!(by_filter.missed, 0, "a visited page is always found");
    assert!(rate < 1.1 * RATE, "there are no more mistakes than planned");
    assert!(filter_bytes * 10 < set_bytes, "it takes less than a tenth of the memory");
    assert!((1_190_000..=1_200_000).contains(&filter_bytes), "{filter_bytes} bytes instead of 1.2 MB");
    assert!(matches!(filter.geometry(), Geometry::Bits { hashes: 7, .. }));

    // The crawl continues on another day, with the same key, which is stored as a secret.
    let file = std::env::temp_dir().join(format!("weir-visited-urls-{}", std::process::id()));
    fs::write(&file, filter.to_image())?;
    let image = fs::read(&file)?;
    fs::remove_file(&file)?;
    let loaded = Keyed::<Bloom>::from_image(filter.key(), &image)?;
    assert!(visited.iter().all(|url| loaded.contains(url.as_str())), "no page is forgotten");
    let other = Bloom::new(VISITED, RATE)?;
    assert!(Keyed::<Bloom>::from_image(other.key(), &image).is_err(), "another key is refused");
    Ok(())
}

/// The n-th page of the web.
fn url(n: u64) -> String {
    format!("https://www.example.org/{}/articles/{n}.html?page={}", n % 97, n % 7)
}

/// The results of looking up visited pages, and pages that were not visited.
struct Looked {
    nanoseconds: f64,
    missed: usize,
    mistaken: usize,
}

impl Looked {
    #[expect(clippy::disallowed_methods, reason = "the time of a look-up is what is shown")]
    fn up(visited: &[String], fresh: &[String], is_visited: impl Fn(&str) -> bool) -> Self {
        let start = Instant::now();
        let missed = visited.iter().filter(|url| !is_visited(black_box(url))).count();
        let mistaken = fresh.iter().filter(|url| is_visited(black_box(url))).count();
        let nanoseconds = start.elapsed().as_nanos() as f64 / (visited.len() + fresh.len()) as f64;
        Self { nanoseconds, missed, mistaken }
    }
}

#[test]
fn its_claims_hold() {
    main().unwrap();
}
