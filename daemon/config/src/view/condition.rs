//! The conditions of a view, as the configuration states them. They select its records.

use super::Field;
use weir_system::text::short;

use crate::{interface::Way, names::Prefix};

/// A condition of a view: one key of `match`, or of `not` in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The field that it is about, whose name is the key.
    pub field: Field,
    /// True if the condition is in `not`.
    pub is_negated: bool,
    /// The values as they were written.
    pub texts: Vec<String>,
    /// The meaning of the values.
    pub values: Values,
}

/// The meaning of a condition's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Addresses in these prefixes.
    Prefixes(Vec<Prefix>),
    /// Numbers in these ranges.
    Ranges(Vec<(u32, u32)>),
    /// Numbers.
    Numbers(Vec<u8>),
    /// Numbers with one of these bits. A bit is given by its number.
    Flags(Vec<u8>),
    /// Interfaces by name or pattern.
    Interfaces(Vec<String>),
    /// One direction of an interface.
    Direction(Way),
    /// Networks, by name.
    Networks(Vec<String>),
}

/// Reads a number up to `most`, or a range of numbers, parsed by `read`.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn range(text: &str, most: u32, what: &str, read: fn(&str) -> Option<u32>) -> Result<(u32, u32), String> {
    let range = match text.split_once('-') {
        Some((first, last)) => read(first.trim()).zip(read(last.trim())),
        None => read(text).map(|number| (number, number)),
    };
    match range {
        Some((first, last)) if first > last => {
            Err(format!("the range {text} is reversed: did you mean {last}-{first}?"))
        }
        Some((_, last)) if last > most => Err(format!("{last} is not a valid {what}: the largest is {most}")),
        Some(range) => Ok(range),
        None => Err(format!("{:?} is not a valid {what}: expected 0 to {most}, or a range such as 80-90", short(text))),
    }
}

/// Reads a small number or its name, parsed by `read`.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn small(text: &str, what: &str, read: fn(&str) -> Option<u8>) -> Result<u8, String> {
    read(text).ok_or_else(|| format!("{:?} is not a valid {what}", short(text)))
}
