//! The layout of a view's key: where each field is in its five words.
//!
//! Each of two addresses takes two words. All other fields share the last word, one after the other from the lowest bit
//! on; its highest bit is the IP version if there is an address. So the keys of all views have the same type, and all
//! fields can be read back from a key. A flow is packed as in [`FlowKey`](weir_common::flow::FlowKey).

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use weir_common::flow::Address;

use super::{
    FLOW,
    field::{Field, Side, Width},
    key::{BITS_MAX, SHARED, ViewKey, WORDS},
    lengths::{Lengths, push_number, show_address, write_address},
};
use crate::names::Facts;

/// The most addresses in a key.
const ADDRESSES_MAX: usize = 2;
/// The most bits of a key for which a table of all keys is used, with one cell per key. Such a table takes at most 1
/// MiB.
const EXACT_BITS: u32 = 16;
/// The bit of [`FlowKey::tail`](weir_common::flow::FlowKey::tail) that holds the IP version.
const FLOW_VERSION: u32 = 40;

/// The layout of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLayout {
    fields: Vec<Field>,
    /// The fields that are addresses, in order.
    addresses: Vec<(Side, Lengths)>,
    /// The fields other than addresses.
    packed: Vec<Packed>,
    /// The position of the bit with the IP version.
    version: u32,
}

/// A field's place in the shared word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The field whose bits these are.
    pub field: Field,
    /// The place of its lowest bit in the key.
    pub shift: u32,
    /// The number of its bits.
    pub bits: u32,
}

impl Packed {
    const fn of(self, key: &ViewKey) -> u64 {
        key.0[SHARED] >> self.shift & ((1 << self.bits) - 1)
    }
}

/// Why fields do not fit into a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unpackable {
    /// There are more addresses than the two that a key can hold.
    Addresses,
    /// The fields need this many bits, which is more than a key has.
    Bits(u32),
}

impl KeyLayout {
    /// The layout of a key with these fields. `interfaces` is the number of slots in use.
    ///
    /// # Errors
    ///
    /// The fields do not fit into a key.
    pub fn new(fields: &[Field], interfaces: usize) -> Result<Self, Unpackable> {
        let (mut addresses, mut packed, mut shift) = (Vec::new(), Vec::new(), 0);
        for &field in fields {
            if let Field::Ip(side, lengths) = field {
                addresses.push((side, lengths));
                continue;
            }
            let bits = match field.row().width {
                Width::Bits(bits) => bits,
                Width::Slots => interfaces.next_power_of_two().trailing_zeros(),
                Width::Address | Width::None => 0,
            };
            packed.push(Packed { field, shift, bits });
            shift += bits;
        }
        if addresses.len() > ADDRESSES_MAX {
            return Err(Unpackable::Addresses);
        }
        if shift > BITS_MAX {
            return Err(Unpackable::Bits(shift));
        }
        let mut version = BITS_MAX;
        if fields == FLOW {
            let place = |field, shift, bits| Packed { field, shift, bits };
            packed = vec![place(Field::SrcPort, 16, 16), place(Field::DstPort, 0, 16), place(Field::Proto, 32, 8)];
            version = FLOW_VERSION;
        }
        Ok(Self { fields: fields.to_vec(), addresses, packed, version })
    }

    /// The fields, in the order in which they were requested.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The fields that are addresses, in order. The first one is in the first two words, the second in the next two.
    pub fn addresses(&self) -> &[(Side, Lengths)] {
        &self.addresses
    }

    /// The fields in the shared word.
    pub fn packed(&self) -> &[Packed] {
        &self.packed
    }

    /// The position of the bit with the IP version of the addresses, in the shared word.
    pub const fn version_bit(&self) -> u32 {
        self.version
    }

    /// Returns true if a record has two keys: one for each of its addresses.
    pub fn has_host(&self) -> bool {
        self.addresses.iter().any(|(side, _)| *side == Side::Host)
    }

    /// The number of possible keys, if it is small enough for a table with a cell for each.
    pub fn domain(&self) -> Option<usize> {
        let bits: u32 = self.packed.iter().map(|packed| packed.bits).sum();
        (self.addresses.is_empty() && bits <= EXACT_BITS).then_some(1 << bits)
    }

    /// The slot of the interface, if it is a part of the key.
    pub fn slot(&self, key: &ViewKey) -> Option<usize> {
        let interface = self.packed.iter().find(|packed| packed.field == Field::Interface)?;
        Some(interface.of(key) as usize)
    }

    /// How many interface slots its keys can distinguish, if the interface is a part of the key.
    pub fn slots(&self) -> Option<usize> {
        let interface = self.packed.iter().find(|packed| packed.field == Field::Interface)?;
        Some(1 << interface.bits)
    }

    /// The index of a key in a table of all keys; see [`domain`](Self::domain).
    #[inline]
    pub const fn index(key: &ViewKey) -> usize {
        key.0[SHARED] as usize
    }

    /// The key at this index of the table of all keys.
    pub const fn at(index: usize) -> ViewKey {
        let mut key = [0; WORDS];
        key[SHARED] = index as u64;
        ViewKey(key)
    }

    /// The value of a field that is not an address, if the field is a part of the key.
    pub fn number(&self, key: &ViewKey, field: Field) -> Option<u64> {
        self.packed.iter().find(|packed| packed.field == field).map(|packed| packed.of(key))
    }

    /// Sets a field that is not an address. The field must still be 0.
    pub fn set(&self, key: &mut ViewKey, field: Field, number: u64) {
        if let Some(packed) = self.packed.iter().find(|packed| packed.field == field) {
            key.0[SHARED] |= number << packed.shift;
        }
    }

    /// Sets the IP version of the addresses, if there are any.
    pub fn set_version(&self, key: &mut ViewKey, is_v6: bool) {
        if !self.addresses.is_empty() {
            key.0[SHARED] |= u64::from(is_v6) << self.version;
        }
    }

    /// Returns true if the addresses of a key are IPv6.
    pub const fn is_v6(&self, key: &ViewKey) -> bool {
        key.0[SHARED] >> self.version & 1 == 1
    }

    /// The fields of a key with their names, as reports show them. Unknown fields are left out. `interface` shows a
    /// slot.
    pub fn show(
        &self,
        key: &ViewKey,
        facts: Facts<'_>,
        interface: impl Fn(usize, &mut Map<String, Value>),
    ) -> Map<String, Value> {
        let mut shown = Map::new();
        let is_v6 = self.is_v6(key);
        let mut addresses = self.addresses.iter().zip(key.0.chunks_exact(2));
        for field in &self.fields {
            match field {
                Field::Ip(..) => {
                    let Some(((_, lengths), words)) = addresses.next() else { continue };
                    let address = Address([words[0], words[1]]);
                    shown.insert(field.name().to_owned(), json!(show_address(address, is_v6, *lengths)));
                }
                Field::Interface => interface(self.slot(key).unwrap_or(0), &mut shown),
                field => {
                    let value = field.row().show(self.number(key, *field).unwrap_or(0), facts);
                    if !value.is_null() {
                        shown.insert(field.name().to_owned(), value);
                    }
                }
            }
        }
        shown
    }

    /// Writes the values of a key's fields, separated by spaces: `-` for an absent one, and `*` if the key has no
    /// fields. No value has a space. `interface` writes a slot.
    pub fn write(&self, key: &ViewKey, facts: Facts<'_>, interface: impl Fn(usize, &mut String), out: &mut String) {
        let is_v6 = self.is_v6(key);
        let mut addresses = self.addresses.iter().zip(key.0.chunks_exact(2));
        if self.fields.is_empty() {
            out.push('*');
        }
        for (nth, field) in self.fields.iter().enumerate() {
            if nth > 0 {
                out.push(' ');
            }
            let start = out.len();
            match field {
                Field::Ip(..) => {
                    if let Some(((_, lengths), words)) = addresses.next() {
                        write_address(Address([words[0], words[1]]), is_v6, *lengths, out);
                    }
                }
                Field::Interface => interface(self.slot(key).unwrap_or(0), out),
                field => match field.row().show(self.number(key, *field).unwrap_or(0), facts) {
                    Value::Null => {}
                    Value::String(text) => push_word(&text, out),
                    Value::Number(number) if number.is_u64() => push_number(number.as_u64().unwrap_or(0), out),
                    // Writing into a text does not fail.
                    other => _ = write!(out, "{other}"),
                },
            }
            if out.len() == start {
                out.push('-');
            }
        }
    }
}

/// Appends a text, with `_` for each white space.
pub fn push_word(text: &str, out: &mut String) {
    out.extend(text.chars().map(|char| if char.is_whitespace() { '_' } else { char }));
}
