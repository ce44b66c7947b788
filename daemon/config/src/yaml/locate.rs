//! Finds the line and the column of a value or a key in the text.
//!
//! `serde_yaml` reports a position only in an error: the position of the innermost element that it was reading. So
//! `locate` reads the text again for each mistake, skips to the element with the mistake, and fails there on purpose.
//! The position in that error is the answer.
//!
//! YAML crates that keep positions were tried on `config/weir.yaml` and some wrong texts (2026-11). `saphyr` reports
//! only one duplicate key and drops the other values, and 128 KiB of `- ` overflow its stack. `serde-saphyr` seems able
//! to list all mistakes with their positions, and it limits depth, but it adds 620 kB and eight crates to the program.
//! This file has ninety lines.

use std::fmt;

use serde::de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_yaml::Deserializer;

use super::mistake::Position;

/// Which half of a map entry to locate. A list item has only a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyOrValue {
    Key,
    Value,
}

/// The place of an element. `steps` has the index of the entry or item on each level, from the root on. If the element
/// does not exist, returns the place of its nearest parent.
pub(super) fn locate(text: &str, steps: &[usize], aim: KeyOrValue) -> Option<Position> {
    let document = || Deserializer::from_str(text).next();
    in_document(document()?, steps, aim).or_else(|| {
        (0..steps.len()).rev().find_map(|depth| in_document(document()?, &steps[..depth], KeyOrValue::Value))
    })
}

/// The same in one document of a file, but without the nearest parent.
pub(super) fn in_document(document: Deserializer<'_>, steps: &[usize], aim: KeyOrValue) -> Option<Position> {
    let found = Probe { steps, aim }.deserialize(document).err()?.location()?;
    Some(Position { line: found.line(), column: found.column() })
}

/// Descends to an element and fails there.
struct Probe<'s> {
    steps: &'s [usize],
    aim: KeyOrValue,
}

impl<'de> DeserializeSeed<'de> for Probe<'_> {
    type Value = ();

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.steps {
            [] => deserializer.deserialize_any(Here),
            [step, rest @ ..] => deserializer.deserialize_any(Path { step: *step, rest, aim: self.aim }),
        }
    }
}

struct Path<'s> {
    step: usize,
    rest: &'s [usize],
    aim: KeyOrValue,
}

impl<'de> Visitor<'de> for Path<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or a map")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for _ in 0..self.step {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Probe { steps: self.rest, aim: self.aim })?;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        for _ in 0..self.step {
            entries.next_entry::<IgnoredAny, IgnoredAny>()?;
        }
        if self.rest.is_empty() && self.aim == KeyOrValue::Key {
            entries.next_key_seed(Probe { steps: &[], aim: KeyOrValue::Key })?;
        } else if entries.next_key::<IgnoredAny>()?.is_some() {
            entries.next_value_seed(Probe { steps: self.rest, aim: self.aim })?;
        }
        Ok(())
    }
}

/// Accepts nothing, so that any value here is an error.
struct Here;

impl Visitor<'_> for Here {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing here")
    }
}
