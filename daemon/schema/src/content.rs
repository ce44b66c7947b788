//! The content of a line: a report or a tombstone. Two lines with the same content are copies, however they are
//! written: programs between a sender and a reader may write other spaces, or fields in another order.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::LazyLock,
};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use weir_sketch::hash::mix;

use crate::limits::{DEPTH_MAX, NAME_BYTES_MAX, TEXT_BYTES_MAX};

/// Fields whose texts are images of sketches.
const IMAGES: [&str; 2] = ["hll", "image"];

/// A sender must not be able to choose two contents with the same fingerprint.
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A fingerprint of a content. It is only valid in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content(u64);

impl Content {
    /// Reads a line of JSON.
    ///
    /// # Errors
    ///
    /// The line is not JSON, or exceeds a limit of [`crate::limits`].
    pub fn read(line: &str) -> Result<Self, String> {
        let mut json = serde_json::Deserializer::from_str(line);
        let content = Value { field: "", depth: 0 }.deserialize(&mut json).and_then(|content| {
            json.end()?;
            Ok(Self(content))
        });
        content.map_err(|error| error.to_string())
    }
}

/// The value of a field.
#[derive(Clone, Copy)]
struct Value<'f> {
    field: &'f str,
    /// How many lists and objects are around it.
    depth: usize,
}

/// The name of a field.
struct Name;

impl Value<'_> {
    fn inside<E: Error>(self) -> Result<usize, E> {
        if self.depth < DEPTH_MAX {
            Ok(self.depth + 1)
        } else {
            Err(E::custom(format_args!("lists and objects are nested more than {DEPTH_MAX} levels deep")))
        }
    }
}

/// The fingerprint of a number. Numbers of the same value have the same one.
fn number(kind: u64, bits: u64) -> u64 {
    mix(KEY.hash_one(kind) ^ bits)
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(number(0, 0))
    }

    fn visit_bool<E>(self, value: bool) -> Result<u64, E> {
        Ok(number(1, value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
        Ok(number(2, value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<u64, E> {
        Ok(number(if value < 0 { 3 } else { 2 }, value.cast_unsigned()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<u64, E> {
        let whole = value as u64;
        Ok(if whole as f64 == value && whole < 1 << 53 { number(2, whole) } else { number(4, value.to_bits()) })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        if text.len() > TEXT_BYTES_MAX && !IMAGES.contains(&self.field) {
            let field = self.field;
            return Err(E::custom(format_args!("the text of `{field}` is longer than {TEXT_BYTES_MAX} bytes")));
        }
        Ok(KEY.hash_one(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<u64, A::Error> {
        let one = Value { field: self.field, depth: self.inside()? };
        let mut content = number(5, 0);
        while let Some(value) = all.next_element_seed(one)? {
            content = mix(content.rotate_left(1) ^ value);
        }
        Ok(content)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<u64, A::Error> {
        let depth = self.inside()?;
        // A sum, so that the order of the fields does not matter.
        let mut content = number(6, 0);
        while let Some(name) = all.next_key_seed(Name)? {
            let value = all.next_value_seed(Value { field: &name, depth })?;
            content = content.wrapping_add(mix(KEY.hash_one(&*name).rotate_left(1) ^ value));
        }
        Ok(content)
    }
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Box<str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Box<str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Box<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Box<str>, E> {
        if name.len() > NAME_BYTES_MAX {
            return Err(E::custom(format_args!("the name of a field is longer than {NAME_BYTES_MAX} bytes")));
        }
        Ok(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = include_str!("../tests/golden/report.json");

    #[test]
    fn copies_have_the_same_content_however_they_are_written() {
        let content = |line: &str| Content::read(line).unwrap();
        let value: serde_json::Value = serde_json::from_str(REPORT).unwrap();
        // The copy has its fields in alphabetical order, and no spaces.
        assert_eq!(content(REPORT), content(&value.to_string()));
        assert_eq!(content(r#"{"a":[1,2.0,"\u0041"],"b":null}"#), content(r#" {"b" : null, "a":[1.0,2,"A"]}"#));
        let all = [
            "1",
            "2",
            "-1",
            "1.5",
            "true",
            "null",
            "\"1\"",
            "[]",
            "{}",
            "[1]",
            "[1,2]",
            "[2,1]",
            r#"{"a":1}"#,
            r#"{"b":1}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":2,"b":1}"#,
            r#"{"a":{"b":1}}"#,
            r#"[["a"]]"#,
            r#"["a"]"#,
        ];
        for (nth, one) in all.iter().enumerate() {
            for other in &all[..nth] {
                assert_ne!(content(one), content(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn what_exceeds_a_limit_is_refused() {
        let says = |line: &str, part: &str| {
            let why = Content::read(line).unwrap_err();
            assert!(why.contains(part), "{why:?} does not say {part:?}");
        };
        let text = |bytes: usize| "x".repeat(bytes);
        let named = |field: &str, bytes: usize| format!(r#"{{"a":[{{"{field}":"{}"}}]}}"#, text(bytes));
        assert!(Content::read(&named("key", TEXT_BYTES_MAX)).is_ok());
        says(&named("key", TEXT_BYTES_MAX + 1), "the text of `key` is longer than 65536 bytes");
        says(&named("key", 10 << 20), "the text of `key`");
        assert!(Content::read(&named("hll", 1 << 20)).is_ok(), "an image");
        assert!(Content::read(&named(&text(NAME_BYTES_MAX), 1)).is_ok());
        says(&named(&text(10 << 20), 1), "the name of a field is longer than 255 bytes");
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(Content::read(&nested(DEPTH_MAX)).is_ok());
        for depth in [DEPTH_MAX + 1, 200_000] {
            says(&nested(depth), "nested more than 64 levels deep");
        }
        says("{\"a\":1", "EOF");
        says("{} {}", "trailing characters");
    }
}
