//! Sketches and keys in serde's formats.
//!
//! A sketch is serialised as its image: as bytes, or as hexadecimal digits in a human-readable format. It is read if it
//! takes at most [`MEMORY_MAX`]. A [`Keyed`] is its key together with the image of its sketch, so that it can be read
//! without anything else: **anyone who reads it has the key**. [`Keyed::to_image`] does not include the key.

use alloc::vec::Vec;
use core::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

use super::{
    BlockedBloom, BlockedCountMin, Bloom, CandidateBuckets, CompactHyperLogLog, CountMin, CountingBloom, Cuckoo,
    HeavyLight, HyperLogLog, Image, Keyed, Quotient, SampleAndHold, ScalableBloom, Seen, SharedBloom, Spread, TopK,
    UltraLogLog, Weight,
    count_min::Update,
    hash::Key,
    image::{ImageKey, MEMORY_MAX, PlainKey},
};

macro_rules! by_image {
    ($($type:ty $(where [$($parameters:tt)*])?),+) => {
        $(
            impl<$($($parameters)*)?> Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serialize(self, serializer)
                }
            }
            impl<'de, $($($parameters)*)?> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserialize(deserializer)
                }
            }
        )+
    };
}

by_image! {
    Bloom, BlockedBloom, SharedBloom, CountingBloom, ScalableBloom, Seen, Cuckoo, Quotient,
    CountMin<W, U> where [W: Weight, U: Update], BlockedCountMin<W, U> where [W: Weight, U: Update],
    HeavyLight<W> where [W: Weight], TopK<K, W> where [K: ImageKey + Eq + Default, W: Weight],
    CandidateBuckets<K, W> where [K: PlainKey + Default, W: Weight],
    HyperLogLog, CompactHyperLogLog, UltraLogLog,
    Spread<K> where [K: PlainKey], SampleAndHold<K> where [K: PlainKey]
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Deserialize::deserialize(deserializer).map(Self)
    }
}

impl<I: Image> Serialize for Keyed<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sketch: &I = self;
        (self.key(), AsImage(sketch)).serialize(serializer)
    }
}

impl<'de, I: Image> Deserialize<'de> for Keyed<I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (key, AsImage(sketch)) = Deserialize::deserialize(deserializer)?;
        Self::new(key, sketch).map_err(Error::custom)
    }
}

/// A sketch, or a reference to one, that is serialised as its image.
struct AsImage<I>(I);

impl<I: Image> Serialize for AsImage<&I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self.0, serializer)
    }
}

impl<'de, I: Image> Deserialize<'de> for AsImage<I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}

fn serialize<I: Image, S: Serializer>(sketch: &I, serializer: S) -> Result<S::Ok, S::Error> {
    let image = sketch.to_image();
    if serializer.is_human_readable() {
        serializer.collect_str(&Digits(&image))
    } else {
        serializer.serialize_bytes(&image)
    }
}

fn deserialize<'de, I: Image, D: Deserializer<'de>>(deserializer: D) -> Result<I, D::Error> {
    if deserializer.is_human_readable() {
        deserializer.deserialize_str(ImageVisitor(PhantomData))
    } else {
        deserializer.deserialize_byte_buf(ImageVisitor(PhantomData))
    }
}

/// Displays bytes in hexadecimal.
struct Digits<'a>(&'a [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

struct ImageVisitor<I>(PhantomData<I>);

impl<'de, I: Image> Visitor<'de> for ImageVisitor<I> {
    type Value = I;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the image of a sketch, as bytes or in hexadecimal")
    }

    fn visit_bytes<E: Error>(self, image: &[u8]) -> Result<I, E> {
        I::from_image(image, MEMORY_MAX).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, digits: &str) -> Result<I, E> {
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
        let image: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let image = image.filter(|_| rest.is_empty()).ok_or_else(|| E::custom("the image is not in hexadecimal"))?;
        self.visit_bytes(&image)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<I, A::Error> {
        let mut image = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            image.push(byte);
        }
        self.visit_bytes(&image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::hash;
    use serde::de::{
        DeserializeOwned,
        value::{BytesDeserializer, SeqDeserializer},
    };
    use std::{format, string::String};

    const KEY: Key = Key([u64::MAX, 2]);

    fn assert_comes_back<S: Serialize + DeserializeOwned + fmt::Debug>(sketch: &S) {
        let text = serde_json::to_string(sketch).unwrap();
        let read: S = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read:?}"), format!("{sketch:?}"));
    }

    #[test]
    fn sketches_come_back_with_their_key() {
        let mut filter = BlockedBloom::with_key(KEY, 100, 0.01).unwrap();
        filter.insert("alice");
        assert_comes_back(&filter);
        assert_comes_back(&*filter);
        let text = serde_json::to_string(&filter).unwrap();
        let read: Keyed<BlockedBloom> = serde_json::from_str(&text).unwrap();
        assert!(read.contains("alice") && read.key() == KEY);
        let error = serde_json::from_str::<Keyed<BlockedBloom>>(&text.replacen(",2]", ",3]", 1)).unwrap_err();
        assert!(format!("{error}").contains("use the key that it was made with"), "{error}");
        let mut words = TopK::<String>::with_key(KEY, 8).unwrap();
        words.add("rose", 3);
        assert_comes_back(&words);
        let mut counts = CountMin::<u32>::with_key(KEY, 0.1, 0.1).unwrap();
        counts.add(&7, 3);
        assert_comes_back(&counts);
    }

    #[test]
    fn images_are_bytes_in_binary_formats() {
        let mut count = HyperLogLog::with_precision(4, 7).unwrap();
        (0..9).for_each(|item| count.insert(hash(1, item)));
        let bytes = BytesDeserializer::<serde::de::value::Error>::new(&[]);
        assert!(ImageVisitor::<HyperLogLog>(PhantomData).visit_bytes::<serde_json::Error>(&count.to_image()).is_ok());
        let error = HyperLogLog::deserialize(bytes).unwrap_err();
        assert!(format!("{error}").contains("byte 0"), "{error}");
    }

    #[test]
    fn data_other_than_an_image_is_refused() {
        for (text, reason) in [
            ("\"7765\"", "byte 0: 4 bytes of the beginning expected"),
            ("\"776\"", "not in hexadecimal"),
            ("\"77+5\"", "not in hexadecimal"),
            ("7", "the image of a sketch, as bytes or in hexadecimal"),
        ] {
            let error = serde_json::from_str::<Cuckoo>(text).unwrap_err();
            assert!(format!("{error}").contains(reason), "{error}");
        }
        let bytes = HyperLogLog::with_precision(4, 7).unwrap().to_image().into_iter();
        let sequence = SeqDeserializer::<_, serde::de::value::Error>::new(bytes);
        assert_eq!(HyperLogLog::deserialize(sequence), Ok(HyperLogLog::with_precision(4, 7).unwrap()));
    }
}
