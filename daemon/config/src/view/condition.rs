//! The conditions of a view, as the configuration states them. They select its records.

use super::Field;
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
