//! The configuration as a tree of plain values, before anything is known about their meaning.
//!
//! Why not `serde_yaml::Value`: it stops at the first duplicate key. It also expands aliases so far that a small file
//! can fill the memory. This tree keeps duplicate keys, so that `read` can report each at its place, and its size has a
//! limit.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_yaml::Deserializer;

use super::limits::EXPANDED_MAX;
use super::locate::{self, Aim};
use super::mistake::{Mistake, Place};
use crate::text::short;

/// Any YAML value. Maps keep the order of the file and keys given twice.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    /// A value with a tag of its own (`!name ...`), which no setting has.
    Tagged(String),
}

impl Node {
    /// What this is, in a sentence that begins with "found".
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Integer(number) => format!("the number {number}"),
            Self::Float(number) => format!("the number {number:?}"),
            Self::Text(text) => format!("the text {:?}", short(text)),
            Self::List(items) if items.is_empty() => "the empty list []".to_owned(),
            Self::List(_) => "the list [..]".to_owned(),
            Self::Map(entries) if entries.is_empty() => "the empty map {}".to_owned(),
            Self::Map(_) => "the map {..}".to_owned(),
            Self::Tagged(tag) => format!("a value tagged {:?}", short(tag)),
        }
    }

    /// The same without the value, for what must stay secret.
    pub(super) fn describe_kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Tagged(_) => "a tagged value",
        }
    }

    fn into_key(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Null => "null".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::List(_) => "[..]".to_owned(),
            Self::Map(_) => "{..}".to_owned(),
            Self::Tagged(tag) => tag,
        }
    }
}

/// Reads the one document of a file; an empty file is [`Node::Null`].
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    // The parser would refuse these, too, but without their place.
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && !"\t\r\n\u{85}".contains(*c)) {
        let place = Some(Place::after(&text.as_bytes()[..at]));
        return Err(Mistake {
            place,
            path: String::new(),
            message: format!("the control character {c:?} is not allowed"),
        });
    }
    let mut documents = Deserializer::from_str(text);
    let spent = Cell::new(0);
    let node = match documents.next() {
        Some(document) => Seed { spent: &spent }.deserialize(document).map_err(|error| syntax(text, &error))?,
        None => Node::Null,
    };
    match documents.next() {
        Some(second) => Err(Mistake {
            place: locate::in_document(second, &[], Aim::Value),
            path: String::new(),
            message: "a second YAML document starts here, but a configuration is only one: remove the `---` before it"
                .to_owned(),
        }),
        None => Ok(node),
    }
}

/// The parser's own words, with the position moved to the front of the line where it belongs.
fn syntax(text: &str, error: &serde_yaml::Error) -> Mistake {
    let mut message = error.to_string().replace("recursion limit exceeded", "nested too deeply");
    let place = error.location().map(|at| Place { line: at.line(), column: at.column() });
    if let Some(Place { line, column }) = place {
        message = message.replacen(&format!(" at line {line} column {column}"), "", 1);
        let before = text.lines().nth(line - 1).unwrap_or_default().chars().take(column);
        if before.into_iter().any(|c| c == '\t') {
            message.push_str(" (there is a tab before it: YAML indents with spaces)");
        }
    }
    if message.contains("while scanning an alias") {
        message.push_str(" (text that begins with * has to be in quotes: \"*\")");
    }
    let at = |Place { line, column }: Place| text.lines().nth(line - 1)?.chars().nth(column.checked_sub(1)?);
    if place.and_then(at) == Some(':') && text.contains("::") {
        message.push_str(" (an IPv6 address that begins or ends with `:` has to be in quotes: \"2001:db8::\")");
    }
    let end = Place::after(text.as_bytes());
    // The parser adds the end of a line that a text lacks, and may then find fault with what follows it.
    let place = place.map(|place| if place.line > lines(text) { end } else { place });
    Mistake { place, path: String::new(), message }
}

/// How many lines there are by YAML's line breaks.
fn lines(text: &str) -> usize {
    1 + text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() - text.matches("\r\n").count()
}

/// Builds a node and counts what it costs: aliases make a tree that is larger than its file.
#[derive(Clone, Copy)]
struct Seed<'b> {
    spent: &'b Cell<usize>,
}

impl Seed<'_> {
    fn spend<E: de::Error>(self, text_bytes: usize) -> Result<(), E> {
        self.spent.set(self.spent.get() + 1 + text_bytes);
        if self.spent.get() <= EXPANDED_MAX {
            return Ok(());
        }
        Err(E::custom("the aliases (*name) before this place repeat too much: write fewer or smaller ones"))
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;

    fn deserialize<D: de::Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Null)
    }

    fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Bool(flag))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Node, E> {
        self.visit_i128(number.into())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Node, E> {
        self.visit_i128(number.into())
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Integer(number))
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<Node, E> {
        match i128::try_from(number) {
            Ok(number) => self.visit_i128(number),
            Err(_) => self.visit_f64(number as f64),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Node, E> {
        self.spend(0).map(|()| Node::Float(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Node, E> {
        self.spend(text.len()).map(|()| Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        self.spend(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        self.spend(0)?;
        let mut map = Vec::new();
        while let Some(key) = entries.next_key_seed(self)? {
            map.push((key.into_key(), entries.next_value_seed(self)?));
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Node, A::Error> {
        let (tag, content) = tagged.variant::<String>()?;
        self.spend(tag.len())?;
        content.newtype_variant::<IgnoredAny>()?;
        Ok(Node::Tagged(tag))
    }
}
