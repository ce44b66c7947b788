//! Frequent items in the format of `DataSketches`: the largest keys, each with bounds, for programs that merge or query
//! them with that library.
//!
//! An image begins with 8 bytes of preamble: its length in 64-bit words, the version of the format, the family, the
//! logarithms of the largest and of the present table size, and flags. Unless a flag marks the sketch as empty, 24
//! bytes follow (the number of items, the total weight, the error), then the lower bounds, then the items: longs of 8
//! bytes, or UTF-8 strings, each after a length of 4 bytes. All numbers are little endian.
//!
//! **Errors**: the weight of an item is at least its lower bound, and at most [`FrequentItems::error`] more. An absent
//! item has at most that error. The format has only one error for all items, so bounds of different widths are written
//! with the widest.
//!
//! **Source**: the documentation of the format and the C++ folder `fi` of `DataSketches`; Anderson, Bevan, Lang,
//! Liberty, Rhodes and Thaler, "A high-performance algorithm for identifying frequent items in data streams", 2017.

use alloc::{string::String, vec::Vec};

use crate::{
    Estimate,
    image::{ImageError, Reader},
};

const VERSION: u8 = 1;
const FAMILY: u8 = 10;
/// The preamble's length in 64-bit words: of an empty sketch, and of a filled one.
const EMPTY: u8 = 1;
const FILLED: u8 = 4;
/// The flags of an empty sketch: two bits, because Java and C++ use different ones.
const EMPTY_FLAGS: u8 = 1 | 4;
/// A table of `DataSketches` has two to a power of entries, within these limits, and uses up to three quarters of them.
const TABLE_LG_MIN: u8 = 3;
const TABLE_LG_MAX: u8 = 31;
/// The largest weight, because Java has no unsigned numbers.
const WEIGHT_MAX: u64 = i64::MAX as u64;

/// The largest keys of a stream, with bounds.
///
/// ```
/// use weir_sketch::{Estimate, datasketches::FrequentItems};
///
/// let addresses = [("192.0.2.1", 900, 910), ("192.0.2.7", 500, 500)];
/// let items = addresses.map(|(address, lower, upper)| (address.to_owned(), Estimate { value: upper, lower, upper }));
/// let image = FrequentItems::new(items, 2_000, 40).write();
///
/// let read = FrequentItems::<String>::read(&image).unwrap();
/// assert_eq!(read.error(), 40); // one for all, the widest
/// assert_eq!(read.iter().next().unwrap().1, Estimate { value: 940, lower: 900, upper: 940 });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrequentItems<T> {
    /// Each item with its lower bound, which is not 0.
    items: Vec<(T, u64)>,
    total: u64,
    error: u64,
}

impl<T: Item> FrequentItems<T> {
    /// A sketch of items with bounds, the total weight of the stream, and the largest weight that any other item may
    /// have.
    ///
    /// Numbers above 2^63 - 1 become 2^63 - 1. An item whose lower bound is 0 is left out: the format cannot contain
    /// it, and the error covers its weight.
    pub fn new(items: impl IntoIterator<Item = (T, Estimate)>, total: u64, absent: u64) -> Self {
        let mut error = absent;
        let items = items.into_iter().filter_map(|(item, Estimate { lower, upper, .. })| {
            error = error.max(upper.saturating_sub(lower));
            (lower != 0).then(|| (item, lower.min(WEIGHT_MAX)))
        });
        Self { items: items.collect(), total: total.min(WEIGHT_MAX), error: error.min(WEIGHT_MAX) }
    }

    /// The items, each with its bounds. `value` is the upper bound, as in `DataSketches`.
    pub fn iter(&self) -> impl Iterator<Item = (&T, Estimate)> {
        self.items.iter().map(|(item, lower)| {
            let upper = lower.saturating_add(self.error);
            (item, Estimate { value: upper, lower: *lower, upper })
        })
    }

    /// The total weight of the stream.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The difference between the upper and the lower bound. An absent item has at most this weight.
    pub const fn error(&self) -> u64 {
        self.error
    }

    /// The sketch as an image. It is flagged as empty only if weight and error are 0, because an empty image has
    /// neither. (The official package can read an image that has them but no items. It drops them when it writes that
    /// sketch again or merges it into another.)
    pub fn write(&self) -> Vec<u8> {
        let count = self.items.len();
        let is_empty = count == 0 && self.total == 0 && self.error == 0;
        let (flags, words) = if is_empty { (EMPTY_FLAGS, EMPTY) } else { (0, FILLED) };
        let table_lg = (TABLE_LG_MIN..TABLE_LG_MAX).find(|lg| count <= 3 << lg >> 2).unwrap_or(TABLE_LG_MAX);
        let mut image = Vec::with_capacity(8 * usize::from(words) + 16 * count);
        image.extend([words, VERSION, FAMILY, table_lg, table_lg, flags, 0, 0]);
        if !is_empty {
            image.extend((count as u64).to_le_bytes());
            image.extend(self.total.to_le_bytes());
            image.extend(self.error.to_le_bytes());
            self.items.iter().for_each(|(_, lower)| image.extend(lower.to_le_bytes()));
            self.items.iter().for_each(|(item, _)| item.write(&mut image));
        }
        image
    }

    /// Reads an image. This takes about four times the image's size in memory. Bytes after the image are ignored, as in
    /// `DataSketches`.
    ///
    /// # Errors
    ///
    /// The bytes are not such an image, or are an image of another kind of items. The error has the position.
    pub fn read(image: &[u8]) -> Result<Self, ImageError> {
        let mut reader = Reader::new(image, 0);
        let words = reader.u8("the preamble's length")?;
        reader.within("the format's version", VERSION..=VERSION, "1", Reader::u8)?;
        reader.within("the family", FAMILY..=FAMILY, "10 (frequent items)", Reader::u8)?;
        let most = reader.within("lg of the largest table", TABLE_LG_MIN..=TABLE_LG_MAX, "from 3 to 31", Reader::u8)?;
        let expected = "from 3 to that of the largest";
        reader.within("lg of the present table", TABLE_LG_MIN..=most, expected, Reader::u8)?;
        let is_empty = reader.u8("the flags")? & EMPTY_FLAGS != 0;
        reader.u16("the padding")?;
        if words != if is_empty { EMPTY } else { FILLED } {
            let expected = "1 if it is empty, otherwise 4";
            return Err(ImageError::Value { field: "the preamble's length", at: 0, found: words.into(), expected });
        }
        if is_empty {
            return Ok(Self { items: Vec::new(), total: 0, error: 0 });
        }
        let count = reader.u32("the number of items")?;
        reader.u32("the padding")?;
        let total = weight(&mut reader, "the total weight", 0)?;
        let error = weight(&mut reader, "the error", 0)?;
        let mut weights = reader.part("the weights", 8 * u64::from(count))?;
        let items = (0..count).map(|_| Ok((T::read(&mut reader)?, weight(&mut weights, "a weight", 1)?)));
        Ok(Self { items: items.collect::<Result<_, _>>()?, total, error })
    }
}

fn weight(reader: &mut Reader, field: &'static str, least: u64) -> Result<u64, ImageError> {
    reader.within(field, least..=WEIGHT_MAX, "from 0 (an item's: 1) to 2^63 - 1", Reader::u64)
}

/// The kinds of items that the format can contain: `i64` and `String`.
pub trait Item: sealed::Form {}
impl<T: sealed::Form> Item for T {}

mod sealed {
    use super::{ImageError, Reader, String, Vec};

    pub trait Form: Sized {
        fn write(&self, image: &mut Vec<u8>);
        fn read(reader: &mut Reader) -> Result<Self, ImageError>;
    }

    impl Form for i64 {
        fn write(&self, image: &mut Vec<u8>) {
            image.extend(self.to_le_bytes());
        }
        fn read(reader: &mut Reader) -> Result<Self, ImageError> {
            reader.array("an item").map(Self::from_le_bytes)
        }
    }

    impl Form for String {
        fn write(&self, image: &mut Vec<u8>) {
            image.extend((self.len() as u32).to_le_bytes());
            image.extend(self.as_bytes());
        }
        fn read(reader: &mut Reader) -> Result<Self, ImageError> {
            let length = reader.u32("an item's length")?;
            let at = reader.at();
            let bytes = reader.take("an item", length.into())?;
            core::str::from_utf8(bytes).map(Self::from).map_err(|error| {
                let at = at + error.valid_up_to();
                let found = bytes[error.valid_up_to()].into();
                ImageError::Value { field: "a byte of an item", at, found, expected: "valid UTF-8" }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{datasketches::golden, image::damage};
    use std::{collections::BTreeMap, format, string::ToString};

    /// The item, its lower bound, and its upper bound.
    fn rows<T: Item + Clone + Ord>(sketch: &FrequentItems<T>) -> Vec<(T, u64, u64)> {
        let mut rows: Vec<_> = sketch.iter().map(|(item, bounds)| (item.clone(), bounds.lower, bounds.upper)).collect();
        rows.sort();
        rows
    }

    fn bounds(lower: u64, upper: u64) -> Estimate {
        Estimate { value: upper, lower, upper }
    }

    #[test]
    fn exact_items_are_read() {
        let sketch = FrequentItems::<i64>::read(golden::LONGS_EXACT).unwrap();
        assert_eq!((sketch.total(), sketch.error()), (1_045, 0));
        assert_eq!(rows(&sketch), (-3..7).zip(100..).map(|(n, weight)| (n, weight, weight)).collect::<Vec<_>>());

        let sketch = FrequentItems::<String>::read(golden::STRINGS).unwrap();
        let odd = (1..20).step_by(2).map(|n| (format!("192.0.2.{n} → ☃"), n, n));
        let mut expected: Vec<_> = odd.chain([(String::new(), 90, 90)]).collect();
        expected.sort();
        assert_eq!(rows(&sketch), expected);

        let sketch = FrequentItems::<i64>::read(golden::LONGS_EMPTY).unwrap();
        assert_eq!((rows(&sketch), sketch.total()), (Vec::new(), 0));
    }

    #[test]
    fn bounds_contain_the_truth() {
        let mut truth: BTreeMap<i64, u64> = (-3..7).zip(100..).collect();
        for n in 0..2_000 {
            *truth.entry(n % 100).or_default() += 1 + 200 / (1 + n as u64 % 100);
        }
        let sketch = FrequentItems::<i64>::read(golden::LONGS_PURGED).unwrap();
        assert_eq!(sketch.total(), truth.values().sum::<u64>());
        assert!(sketch.error() > 0);
        for (item, lower, upper) in rows(&sketch) {
            assert!((lower..=upper).contains(&truth.remove(&item).unwrap()));
        }
        assert!(truth.values().all(|absent| *absent <= sketch.error()));
    }

    #[test]
    fn written_values_are_read_back() {
        for count in [0, 1, 6, 7, crate::test_size::of(1_000, 60)] {
            let items = (0..count).map(|n| (n - 5, bounds(n as u64 + 1, n as u64 + 3)));
            let sketch = FrequentItems::new(items, 1 << 40, 1);
            let read = FrequentItems::<i64>::read(&sketch.write()).unwrap();
            assert_eq!(read, sketch);

            let items = (0..count).map(|n| (n.to_string(), bounds(n as u64 + 1, n as u64 + 1)));
            let sketch = FrequentItems::new(items, 1 << 40, 0);
            let read = FrequentItems::<String>::read(&sketch.write()).unwrap();
            assert_eq!(read, sketch);
        }
    }

    #[test]
    fn the_image_equals_that_of_the_official_package() {
        let exact = FrequentItems::<i64>::read(golden::LONGS_EXACT).unwrap();
        let mut image = exact.write();
        assert_eq!(image[3..5], [4, 4], "a table of 16 holds 12");
        image[3] = 5; // the official table may grow to 32
        assert_eq!(image, golden::LONGS_EXACT);
        assert_eq!(FrequentItems::<i64>::read(golden::LONGS_EMPTY).unwrap().write()[4..], golden::LONGS_EMPTY[4..]);
    }

    #[test]
    fn unequal_and_extreme_bounds_are_widened() {
        let items = [(1, bounds(5, 9)), (2, bounds(0, 6)), (3, bounds(u64::MAX, u64::MAX)), (4, bounds(7, 7))];
        let sketch = FrequentItems::new(items, u64::MAX, 2);
        assert_eq!((sketch.error(), sketch.total()), (6, WEIGHT_MAX));
        assert_eq!(rows(&sketch), [(1, 5, 11), (3, WEIGHT_MAX, WEIGHT_MAX + 6), (4, 7, 13)]);
        assert!(FrequentItems::<i64>::read(&sketch.write()).unwrap() == sketch);
    }

    #[test]
    fn damaged_images_do_no_harm() {
        for image in [golden::LONGS_EMPTY, golden::LONGS_EXACT, golden::LONGS_PURGED] {
            let refused = damage::survived(image, FrequentItems::<i64>::read);
            assert_eq!(refused.len(), image.len().div_ceil(damage::STEP), "every byte is needed");
        }
        let refused = damage::survived(golden::STRINGS, FrequentItems::<String>::read);
        assert_eq!(refused.len(), golden::STRINGS.len().div_ceil(damage::STEP));
    }

    #[test]
    fn errors_say_what_and_where() {
        let with = |at: usize, bytes: &[u8]| {
            let mut image = golden::STRINGS.to_vec();
            image[at..at + bytes.len()].copy_from_slice(bytes);
            format!("{}", FrequentItems::<String>::read(&image).unwrap_err())
        };
        assert_eq!(with(8, &[255; 4]), "byte 32: 34359738360 bytes of the weights expected, but only 307 are left");
        assert_eq!(with(32, &[0; 8]), "byte 32: a weight is 0, but must be from 0 (an item's: 1) to 2^63 - 1");
        assert_eq!(with(5, &[1]), "byte 0: the preamble's length is 4, but must be 1 if it is empty, otherwise 4");
        assert_eq!(with(130, &[255]), "byte 130: a byte of an item is 255, but must be valid UTF-8");
    }
}
