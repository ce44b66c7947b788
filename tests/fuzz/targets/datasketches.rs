//! Reads any bytes as an image of Apache `DataSketches`. They are refused, or the sketch is the same after it is
//! written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_sketch::datasketches::{FrequentItems, PUBLIC, frequent_items::Item, hll};

fuzz_target!(|image: &[u8]| {
    if let Ok(sketch) = hll::read(image, PUBLIC) {
        let bounds = sketch.bounds();
        assert!(bounds.lower <= bounds.value && bounds.value <= bounds.upper);
        assert!(hll::read(&hll::write(&sketch), PUBLIC) == Ok(sketch));
    }
    items::<i64>(image);
    items::<String>(image);
});

fn items<T: Item + PartialEq + std::fmt::Debug>(image: &[u8]) {
    let Ok(sketch) = FrequentItems::<T>::read(image) else { return };
    for (_, bounds) in sketch.iter() {
        assert!(0 < bounds.lower && bounds.lower <= bounds.value && bounds.value <= bounds.upper);
    }
    let again = FrequentItems::<T>::read(&sketch.write()).expect("a sketch that was read can be written and read again");
    assert!(again.iter().eq(sketch.iter()));
}
