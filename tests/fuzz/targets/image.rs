//! Any bytes as an image of any sketch: refused, or a sketch that can be used and written again. Half of the inputs get the
//! right length and checksum first, as from a forger.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_common::{
    ledger::Tally,
    sketch::{
        BlockedBloom, BlockedCountMin, Bloom, CompactHyperLogLog, CountMin, CountingBloom, Cuckoo, HeavyLight,
        HyperLogLog, Image, ImageError, Quotient, ScalableBloom, TwoChoice, UltraLogLog, count_min::Plain,
    },
};

const MEMORY_MAX: usize = 1 << 20;
/// Length and checksum.
const LENGTH: std::ops::Range<usize> = 16..24;
const CHECKSUM: usize = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&choice, image)) = input.split_first() else { return };
    let mut image = image.to_vec();
    if choice & 1 == 1 && image.len() >= LENGTH.end {
        let length = (image.len() - LENGTH.end) as u64;
        image[LENGTH].copy_from_slice(&length.to_le_bytes());
        image.extend(crc32fast::hash(&image).to_le_bytes());
    }
    read::<HyperLogLog>(&image);
    read::<CountMin<Tally>>(&image);
    read::<CountMin<u64, Plain>>(&image);
    read::<BlockedCountMin<Tally>>(&image);
    read::<HeavyLight<Tally>>(&image);
    read::<HeavyLight<u32>>(&image);
    read::<Quotient>(&image);
    read::<Bloom>(&image);
    read::<BlockedBloom>(&image);
    read::<CountingBloom>(&image);
    read::<ScalableBloom>(&image);
    read::<CompactHyperLogLog>(&image);
    read::<UltraLogLog>(&image);
    read::<Cuckoo>(&image);
    read::<TwoChoice>(&image);
});

fn read<S: Image>(image: &[u8]) {
    match S::from_image(image, MEMORY_MAX) {
        Ok(mut sketch) => {
            assert!(sketch.memory_bytes() <= MEMORY_MAX + size_of::<S>());
            let again = sketch.to_image();
            let read = S::from_image(&again, MEMORY_MAX).expect("what was read is written as it can be read");
            assert_eq!(read.to_image(), again);
            sketch.clear();
        }
        Err(error) => assert!(refers_to_the_image(error, image.len()), "{error}"),
    }
}

fn refers_to_the_image(error: ImageError, length: usize) -> bool {
    match error {
        ImageError::Truncated { at, needed, available, .. } => at + available <= length && needed > available as u64,
        ImageError::Value { at, .. } => at <= length,
        ImageError::TooLarge { at, needed, allowed, .. } => at <= length && needed > allowed as u64,
        ImageError::Checksum { stored, computed } => stored != computed && length >= LENGTH.end + CHECKSUM,
    }
}
