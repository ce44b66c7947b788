//! Reads any bytes as an image of any sketch. They are refused, or the sketch can be used and written again. Half of
//! the inputs first get the right length and checksum, as a forger would do.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_sketch::{
    BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountAndSum, CountMin, CountingBloom, Cuckoo, Distinct,
    Estimate, Filter, HeavyLight, HyperLogLog, Image, ImageError, Merge, Quotient, SampleAndHold, ScalableBloom, Seen,
    SharedBloom, Spread, TopK, Touch, TwoChoice, UltraLogLog,
    count_min::Plain,
    image::ImageKey,
};

const MEMORY_MAX: usize = 1 << 20;
/// The place of length and checksum in an image.
const LENGTH: std::ops::Range<usize> = 16..24;
const CHECKSUM: usize = 4;
/// How many bytes a scalable filter may grow by, once.
const GROWTH_MAX: usize = 40;
/// Hashes from the whole range.
const HASHES: [u64; 4] = [0, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX];

/// Adds a weight for each key, and asks for its bounds.
macro_rules! weigh {
    ($weight:expr, |$sketch:ident, $hash:ident| $bounds:expr) => {
        |$sketch, twin| {
            for hash in HASHES {
                _ = $sketch.add(hash, $weight);
            }
            $sketch.merge(twin).expect("it merges with its own image");
            for $hash in HASHES {
                _ = ($sketch.estimate($hash), $bounds);
            }
        }
    };
}

fuzz_target!(|input: &[u8]| {
    let Some((&choice, image)) = input.split_first() else { return };
    let mut image = image.to_vec();
    if choice & 1 == 1 && image.len() >= LENGTH.end {
        let length = (image.len() - LENGTH.end) as u64;
        image[LENGTH].copy_from_slice(&length.to_le_bytes());
        image.extend(crc32fast::hash(&image).to_le_bytes());
    }
    read::<HyperLogLog>(&image, count_distinct);
    read::<CompactHyperLogLog>(&image, count_distinct);
    read::<UltraLogLog>(&image, count_distinct);
    read::<CountMin<CountAndSum>>(
        &image,
        weigh!(CountAndSum::new(1, 100), |sketch, hash| sketch.bounds(hash, sketch.excess(0.99))),
    );
    read::<CountMin<u64, Plain>>(&image, weigh!(100, |sketch, hash| sketch.bounds(hash, sketch.excess(0.99))));
    read::<BlockedCountMin<CountAndSum>>(
        &image,
        weigh!(CountAndSum::new(1, 100), |sketch, hash| sketch.bounds(hash, sketch.excess(0.99))),
    );
    read::<HeavyLight<CountAndSum>>(&image, weigh!(CountAndSum::new(1, 100), |sketch, hash| sketch.bounds(hash)));
    read::<HeavyLight<u32>>(&image, weigh!(100, |sketch, hash| sketch.bounds(hash)));
    read::<CandidateBuckets<u64, CountAndSum>>(&image, |sketch, twin| {
        for hash in HASHES {
            sketch.add(hash, !hash, CountAndSum::new(1, 100));
        }
        sketch.merge(twin).expect("it merges with its own image");
        for listed in sketch.iter() {
            assert!(listed.value.sum <= listed.upper.sum);
        }
        sketch.light().for_each(drop);
    });
    read::<Bloom>(&image, filter_and_merge);
    read::<BlockedBloom>(&image, filter_and_merge);
    read::<CountingBloom>(&image, filter_and_merge);
    read::<SharedBloom>(&image, filter_and_merge);
    read::<ScalableBloom>(&image, filter_and_merge);
    read::<Quotient>(&image, filter_and_merge);
    read::<Cuckoo>(&image, filter);
    read::<TwoChoice>(&image, filter);
    read::<Spread<u64>>(&image, find_spreaders);
    read::<Spread<[u8; 13]>>(&image, |_, _| {});
    read::<SampleAndHold<u64>>(&image, hold_spreaders);
    read::<TopK<u64>>(&image, |table, twin| list(table, twin, |hash| hash));
    read::<TopK<String>>(&image, |table, twin| list(table, twin, |hash| hash.to_string()));
    read::<Seen>(&image, |seen, _| {
        for hash in HASHES {
            seen.insert(hash);
            assert!(seen.contains(hash));
        }
        seen.rotate();
    });
});

fn read<S: Image>(image: &[u8], exercise: fn(&mut S, &S)) {
    match S::from_image(image, MEMORY_MAX) {
        Ok(mut sketch) => {
            assert!(sketch.memory_bytes() <= MEMORY_MAX + size_of::<S>());
            let again = sketch.to_image();
            let read = S::from_image(&again, MEMORY_MAX).expect("a sketch that was read can be written and read again");
            assert_eq!(read.to_image(), again);
            exercise(&mut sketch, &read);
            assert!(sketch.memory_bytes() <= GROWTH_MAX * MEMORY_MAX);
            sketch.clear();
            assert!(sketch.memory_bytes() <= MEMORY_MAX + size_of::<S>());
        }
        Err(error) => assert!(refers_to_the_image(error, image.len()), "{error}"),
    }
}

fn filter<F: Filter>(filter: &mut F, _: &F) {
    for hash in HASHES {
        assert!(filter.insert(hash).is_err() || filter.contains(hash));
    }
    assert!([filter.fill(), filter.false_positive_rate()].iter().all(|share| (0.0..=1.0).contains(share)));
    filter.is_saturated();
}

fn filter_and_merge<F: Filter + Merge>(sketch: &mut F, twin: &F) {
    // A quotient filter may have no room for both.
    _ = sketch.merge(twin);
    filter(sketch, twin);
}

fn count_distinct<D: Distinct + Merge>(sketch: &mut D, twin: &D) {
    for hash in HASHES {
        sketch.insert(hash);
    }
    sketch.merge(twin).expect("it merges with its own image");
    let Estimate { value, lower, upper } = sketch.bounds();
    assert!(lower <= value && value <= upper);
}

fn find_spreaders(sketch: &mut Spread<u64>, twin: &Spread<u64>) {
    for hash in HASHES {
        sketch.insert(Touch { key: hash, key_hash: hash, item_hash: !hash });
    }
    sketch.merge(twin).expect("it merges with its own image");
    for spreader in sketch.survey().top(3) {
        let Estimate { value, lower, upper } = spreader.touched;
        assert!(lower <= value && value <= upper);
    }
}

fn hold_spreaders(sketch: &mut SampleAndHold<u64>, twin: &SampleAndHold<u64>) {
    for hash in HASHES {
        sketch.insert(Touch { key: hash, key_hash: hash, item_hash: !hash });
    }
    sketch.merge(twin).expect("it merges with its own image");
    for spreader in sketch.held(&sketch.margin(0, 0.01)) {
        let Estimate { value, lower, upper } = spreader.touched;
        assert!(lower <= value && value <= upper);
    }
}

fn list<K: ImageKey + Eq + Default>(table: &mut TopK<K>, twin: &TopK<K>, key: fn(u64) -> K) {
    for hash in HASHES {
        table.add(hash, key(hash), 100);
    }
    table.merge(twin).expect("it merges with its own image");
    for hash in HASHES {
        let bounds = table.bounds(hash, &key(hash));
        assert!(bounds.lower <= bounds.upper);
    }
    table.top(3);
}

fn refers_to_the_image(error: ImageError, length: usize) -> bool {
    match error {
        ImageError::Truncated { at, needed, available, .. } => at + available <= length && needed > available as u64,
        ImageError::Value { at, .. } => at <= length,
        ImageError::TooLarge { at, needed, allowed, .. } => at <= length && needed > allowed as u64,
        ImageError::Older { at, .. } => at < length,
        ImageError::Key(_) => false,
        ImageError::Checksum { stored, computed } => stored != computed && length >= LENGTH.end + CHECKSUM,
    }
}
