//! The configuration as a tree of plain values, before they are interpreted.
//!
//! weir does not use `serde_yaml::Value`, which stops at the first duplicate key, and expands aliases so far that a
//! small file can fill the memory. This tree keeps duplicate keys, so that `read` can report each at its place, and its
//! size is limited.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{self, DeserializeSeed, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde_yaml::Deserializer;
use weir_system::text::short;

use super::limits::{DEPTH_MAX, EXPANDED_MAX};
use super::locate::{self, KeyOrValue};
use super::mistake::{Mistake, Position};

/// Any YAML value. Maps keep the file's order and duplicate keys.
#[derive(Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    /// A value with a custom tag (`!name ...`). No setting has such a tag.
    Tagged(String),
}

impl Node {
    /// Describes the value, for messages with "found ...".
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

    /// Describes only the kind of the value, for secrets.
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

/// How many opening brackets each part has more than the one before, see [`parse`].
const BRACKETS: usize = 1024;

/// Reads the only document of a file. An empty file is [`Node::Null`].
///
/// The parser's time grows with the square of the nesting depth of brackets, and it reports the depth only at the end.
/// So a text with many brackets is first read in growing parts, each with only a few more brackets than the one before.
/// Nesting that is too deep is then found in the first part that contains it.
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    // The parser would refuse these characters, too, but without a place.
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && !"\t\r\n\u{85}".contains(*c)) {
        let place = Some(Position::after(&text.as_bytes()[..at]));
        return Err(Mistake {
            place,
            path: String::new(),
            message: format!("the control character {c:?} is not allowed"),
        });
    }
    let brackets = text.match_indices(['[', '{']).map(|(at, bracket)| at + bracket.len());
    for end in brackets.skip(BRACKETS - 1).step_by(BRACKETS) {
        // A part may have other mistakes that the whole text does not have.
        if let Err(Fault { is_of_part: true, mistake }) = read(&text[..end], EXPANDED_MAX) {
            return Err(mistake);
        }
    }
    read(text, EXPANDED_MAX).map_err(|fault| fault.mistake)
}

/// A mistake in a text.
struct Fault {
    mistake: Mistake,
    /// True if every text with this beginning has the same mistake.
    is_of_part: bool,
}

/// Reads a text that has at most `expanded_max` values and bytes of text after aliases are expanded.
fn read(text: &str, expanded_max: usize) -> Result<Node, Fault> {
    let mut documents = Deserializer::from_str(text);
    let account = TreeSize { expanded_max, spent: Cell::new(0), refused: RefCell::new(None) };
    let node = match documents.next() {
        Some(document) => {
            let seed = Seed { account: &account, depth: 0 };
            seed.deserialize(document).map_err(|error| fault(text, &account, &error))?
        }
        None => Node::Null,
    };
    match documents.next() {
        Some(second) => Err(Fault {
            mistake: Mistake {
                place: locate::in_document(second, &[], KeyOrValue::Value),
                path: String::new(),
                message: "a second YAML document starts here, but a configuration is only one: remove the `---` \
                          before it"
                    .to_owned(),
            },
            is_of_part: true,
        }),
        None => Ok(node),
    }
}

fn fault(text: &str, account: &TreeSize, error: &serde_yaml::Error) -> Fault {
    if let Some(message) = account.refused.take() {
        return Fault {
            mistake: Mistake { place: place_of(text, error), path: String::new(), message },
            is_of_part: true,
        };
    }
    // The parser counts aliases, too, but does not report where it stopped. This is how many values it read before
    // that.
    let stopped_at = account.spent.get();
    if error.to_string().contains("repetition limit exceeded")
        && let Some(less) = stopped_at.checked_sub(1)
        && let Err(Fault { mistake, is_of_part: true }) = read(text, less)
    {
        return Fault { mistake, is_of_part: true };
    }
    Fault { mistake: syntax(text, error), is_of_part: false }
}

/// The parser's own message, without the position in it, because messages begin with the position.
fn syntax(text: &str, error: &serde_yaml::Error) -> Mistake {
    let mut message = error.to_string().replace("repetition limit exceeded", ALIASES);
    let place = located(error);
    if let Some(Position { line, column }) = place {
        message = message.replacen(&format!(" at line {line} column {column}"), "", 1);
        let before = text.lines().nth(line - 1).unwrap_or_default().chars().take(column);
        if before.into_iter().any(|c| c == '\t') {
            message.push_str(" (there is a tab before it: YAML indents with spaces)");
        }
    }
    if message.contains("while scanning an alias") {
        message.push_str(" (text that begins with * has to be in quotes: \"*\")");
    }
    let at = |Position { line, column }: Position| text.lines().nth(line - 1)?.chars().nth(column.checked_sub(1)?);
    if place.and_then(at) == Some(':') && text.contains("::") {
        message.push_str(" (an IPv6 address that begins or ends with `:` has to be in quotes: \"2001:db8::\")");
    }
    Mistake { place: place_of(text, error), path: String::new(), message }
}

fn located(error: &serde_yaml::Error) -> Option<Position> {
    error.location().map(|at| Position { line: at.line(), column: at.column() })
}

/// The place of an error. The parser adds a missing newline at the end of a text, and may report an error after that
/// newline.
fn place_of(text: &str, error: &serde_yaml::Error) -> Option<Position> {
    located(error).map(|place| if place.line > lines(text) { Position::after(text.as_bytes()) } else { place })
}

/// The number of lines, by YAML's line breaks.
fn lines(text: &str) -> usize {
    1 + text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() - text.matches("\r\n").count()
}

/// The message about aliases that expand a small file too much.
const ALIASES: &str = "the aliases (*name) before this place repeat too much: write fewer or smaller ones";

/// The size of a tree: aliases can make it larger than its file.
struct TreeSize {
    expanded_max: usize,
    spent: Cell<usize>,
    /// The message about the limit that was exceeded.
    refused: RefCell<Option<String>>,
}

/// Builds a node at a given depth.
#[derive(Clone, Copy)]
struct Seed<'a> {
    account: &'a TreeSize,
    depth: usize,
}

impl Seed<'_> {
    fn spend<E: de::Error>(self, text_bytes: usize) -> Result<(), E> {
        let spent = self.account.spent.get() + 1 + text_bytes;
        self.account.spent.set(spent);
        if spent <= self.account.expanded_max { Ok(()) } else { Err(self.refuse(ALIASES)) }
    }

    /// The seed for the content of a list or a map.
    fn within<E: de::Error>(self) -> Result<Self, E> {
        self.spend(0)?;
        if self.depth < DEPTH_MAX {
            return Ok(Self { depth: self.depth + 1, ..self });
        }
        let why =
            format!("nested too deeply: {DEPTH_MAX} lists and maps around this one are the most that are allowed");
        Err(self.refuse(why))
    }

    fn refuse<E: de::Error>(self, why: impl fmt::Display) -> E {
        self.account.refused.replace(Some(why.to_string()));
        E::custom(why)
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
        let seed = self.within()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(seed)? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let seed = self.within()?;
        let mut map = Vec::new();
        while let Some(key) = entries.next_key_seed(seed)? {
            map.push((key.into_key(), entries.next_value_seed(seed)?));
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Node, A::Error> {
        let (tag, content) = tagged.variant::<String>()?;
        self.spend(tag.len())?;
        content.newtype_variant_seed(self)?;
        Ok(Node::Tagged(tag))
    }
}
