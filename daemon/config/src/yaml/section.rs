//! Reads a tree of nodes key by key, and collects every mistake instead of stopping at the first one.
//!
//! A [`Field`] is a value with its place. Its methods return the value; if the value is wrong, they note the mistake
//! and return `None`. A [`Section`] is a map whose keys are read one by one. A key that was never read is unknown.
//! After a mistake the caller continues with a default, so that the rest of the file is checked, too.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use weir_system::text::short;

use super::NONE;
use super::limits::{LOCATED_MAX, MISTAKES_MAX};
use super::locate::{KeyOrValue, locate};
use super::mistake::{Mistake, Mistakes};
use super::node::Node;
use super::suggest::nearest;
use super::units::{parse_bytes, parse_duration, show_bytes, show_duration};
use crate::names::{Prefix, PrefixError};

/// The mistakes found so far.
#[derive(Default)]
pub(super) struct Log {
    found: RefCell<Vec<FoundKey>>,
}

struct FoundKey {
    steps: Vec<usize>,
    aim: KeyOrValue,
    path: String,
    message: String,
}

impl Log {
    fn note(&self, at: &At, aim: KeyOrValue, message: String) {
        self.found.borrow_mut().push(FoundKey { steps: at.steps.clone(), aim, path: at.path.clone(), message });
    }

    /// Succeeds if there were no mistakes. Otherwise returns all of them with their places in `text`.
    pub(super) fn into_result(self, file: &str, text: &str) -> Result<(), Mistakes> {
        let found = self.found.into_inner();
        if found.is_empty() {
            return Ok(());
        }
        let listed = (LOCATED_MAX / text.len().max(1)).min(MISTAKES_MAX);
        let unlisted = found.len().saturating_sub(listed);
        let list = found.into_iter().take(listed).map(|FoundKey { steps, aim, path, message }| Mistake {
            place: locate(text, &steps, aim),
            path,
            message,
        });
        Err(Mistakes::in_content(file, list.collect(), unlisted))
    }
}

/// The position of a field: the index of the entry or item on each level, and the readable path.
#[derive(Clone, Default)]
struct At {
    steps: Vec<usize>,
    path: String,
}

impl At {
    fn entry(&self, index: usize, key: &str) -> Self {
        let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let key = if plain { short(key) } else { format!("{:?}", short(key)) };
        let path = if self.path.is_empty() { key } else { format!("{}.{key}", self.path) };
        Self { steps: self.below(index), path }
    }

    fn item(&self, index: usize) -> Self {
        Self { steps: self.below(index), path: format!("{}[{index}]", self.path) }
    }

    fn below(&self, index: usize) -> Vec<usize> {
        self.steps.iter().copied().chain([index]).collect()
    }
}

/// A value and its place.
#[derive(Clone)]
pub(super) struct Field<'t> {
    node: &'t Node,
    at: At,
    log: &'t Log,
    secret: bool,
}

impl<'t> Field<'t> {
    pub(super) fn root(node: &'t Node, log: &'t Log) -> Self {
        Self { node, at: At::default(), log, secret: false }
    }

    /// Makes the field secret: no message quotes it, or anything below it.
    pub(super) fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    /// The readable path, such as `sinks[0].url`.
    pub(super) fn path(&self) -> &str {
        &self.at.path
    }

    /// Notes a mistake at this value.
    pub(super) fn refuse(&self, message: impl Into<String>) {
        self.log.note(&self.at, KeyOrValue::Value, message.into());
    }

    /// Notes a mistake at this value's key.
    pub(super) fn refuse_key(&self, message: impl Into<String>) {
        self.log.note(&self.at, KeyOrValue::Key, message.into());
    }

    fn entries<'s>(&'s self, entries: &'t [(String, Node)]) -> impl Iterator<Item = (&'t str, Field<'t>)> + 's {
        entries.iter().enumerate().map(|(index, (key, node))| {
            (key.as_str(), Field { node, at: self.at.entry(index, key), log: self.log, secret: self.secret })
        })
    }

    fn expected(&self, what: &str, way_out: &str) {
        let found = if self.secret { self.node.describe_kind().to_owned() } else { self.node.describe() };
        self.refuse(format!("expected {what}, found {found}{way_out}"));
    }

    /// How many mistakes have been found so far in the whole file.
    pub(super) fn mistakes(&self) -> usize {
        self.log.found.borrow().len()
    }

    /// Returns true if the value is one of these words.
    pub(super) fn is_word_of(&self, words: &[&str]) -> bool {
        matches!(self.node, Node::Text(text) if words.contains(&text.as_str()))
    }

    /// The value as written, if it is a single one: text, a number, or a boolean.
    pub(super) fn plain(&self) -> Option<String> {
        match self.node {
            Node::Text(text) => Some(text.clone()),
            Node::Integer(number) => Some(number.to_string()),
            Node::Bool(flag) => Some(flag.to_string()),
            _ => {
                self.expected("a single value", "");
                None
            }
        }
    }

    /// The items of a list, or the value itself if it is not a list.
    pub(super) fn items(&self, max: usize, example: &str) -> Option<Vec<Field<'t>>> {
        if matches!(self.node, Node::List(_)) { self.list(max, example) } else { Some(vec![self.clone()]) }
    }

    /// Returns true if the value is text.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.node, Node::Text(_))
    }

    /// Returns true if the value is text that does not start like a number.
    pub(super) fn is_word(&self) -> bool {
        matches!(self.node, Node::Text(text) if text.starts_with(char::is_alphabetic))
    }

    fn is_number(&self) -> bool {
        matches!(self.node, Node::Integer(_) | Node::Float(_))
    }

    fn within<T: PartialOrd>(&self, value: T, range: RangeInclusive<T>, show: impl Fn(&T) -> String) -> Option<T> {
        let (min, max) = range.into_inner();
        if value < min {
            self.refuse(format!("{} is below the minimum of {}", show(&value), show(&min)));
        } else if value > max {
            self.refuse(format!("{} is above the maximum of {}", show(&value), show(&max)));
        } else {
            return Some(value);
        }
        None
    }

    /// Reads a duration with its unit.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let duration = match self.node {
            Node::Text(text) => parse_duration(text),
            _ => None,
        };
        let Some(duration) = duration else {
            let unit = if self.is_number() { ": add its unit (ms, s, m, h, d)" } else { "" };
            self.expected("a duration such as 10s", unit);
            return None;
        };
        self.within(duration, range, show_duration)
    }

    /// Reads a size in bytes. A number without a unit is in bytes.
    pub(super) fn bytes(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let bytes = match self.node {
            Node::Text(text) => parse_bytes(text),
            Node::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        };
        let Some(bytes) = bytes else {
            self.expected("a size such as 1MiB", " (units: B, KiB, MiB, GiB)");
            return None;
        };
        self.within(bytes, range, |bytes| show_bytes(*bytes))
    }

    /// Reads an integer.
    pub(super) fn count(&self, range: RangeInclusive<u64>) -> Option<u64> {
        match self.node {
            Node::Integer(number) => {
                let range = i128::from(*range.start())..=i128::from(*range.end());
                self.within(*number, range, i128::to_string).and_then(|number| u64::try_from(number).ok())
            }
            _ => {
                self.expected("a whole number", "");
                None
            }
        }
    }

    /// Reads a number of things in memory. All such limits are far below 2^32.
    pub(super) fn size(&self, range: RangeInclusive<u64>) -> Option<usize> {
        self.count(range).and_then(|count| usize::try_from(count).ok())
    }

    /// Reads the path of a file.
    pub(super) fn file_path(&self) -> Option<PathBuf> {
        let path = self.text()?;
        if path.is_empty() || path.contains('\0') {
            self.refuse("not a path: it is empty or contains a NUL byte");
            return None;
        }
        Some(PathBuf::from(path))
    }

    /// Reads an address to listen at, with a port, or `none`.
    pub(super) fn listen_address(&self) -> Option<Option<SocketAddr>> {
        if self.is_word_of(&[NONE]) {
            return Some(None);
        }
        let text = self.text()?;
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => return Some(Some(address)),
            Ok(_) => self.refuse("port 0 means any free port, which clients could not find: name one, such as 9469"),
            Err(_) => self.refuse(format!(
                "{:?} is not an address with a port, such as 127.0.0.1:9469 or [::1]:9469, or none",
                short(text)
            )),
        }
        None
    }

    /// Reads a prefix or an address. YAML reads some unquoted IPv6 addresses as something else.
    pub(super) fn prefix(&self) -> Option<Prefix> {
        let Node::Text(text) = self.node else {
            let quotes = if self.is_map() { ": an IPv6 address that ends with `:` has to be in quotes" } else { "" };
            self.expected("a prefix such as 192.0.2.0/24", quotes);
            return None;
        };
        text.parse().map_err(|error: PrefixError| self.refuse(error.to_string())).ok()
    }

    /// Reads a boolean.
    pub(super) fn flag(&self) -> Option<bool> {
        let Node::Bool(flag) = self.node else {
            self.expected("true or false", "");
            return None;
        };
        Some(*flag)
    }

    /// Checks the range of an integer that is a part of this value.
    pub(super) fn count_of(&self, number: u64, range: RangeInclusive<u64>) -> Option<u64> {
        self.within(number, range, u64::to_string)
    }

    /// Reads a number, or a text that starts with one, as written.
    pub(super) fn number_as_written(&self, what: &str) -> Option<String> {
        match self.node {
            Node::Text(text) => Some(text.clone()),
            Node::Integer(number) => Some(number.to_string()),
            Node::Float(number) => Some(number.to_string()),
            _ => {
                self.expected(what, "");
                None
            }
        }
    }

    /// Reads a number with a fraction.
    pub(super) fn ratio(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let number = match self.node {
            Node::Float(number) if !number.is_nan() => *number,
            Node::Integer(number) => *number as f64,
            _ => {
                self.expected(&format!("a number such as {}", range.start()), "");
                return None;
            }
        };
        self.within(number, range, |number| short(&number.to_string()))
    }

    /// Reads text. Text that YAML would read as something else must be quoted.
    pub(super) fn text(&self) -> Option<&'t str> {
        match self.node {
            Node::Text(text) => return Some(text),
            Node::Bool(_) | Node::Integer(_) | Node::Float(_) => self.expected("text", ": put it in quotes"),
            _ => self.expected("text", ""),
        }
        None
    }

    /// Reads one of a few names.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Option<T> {
        let names = choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        self.choice_of(&format!("one of {names}"), choices)
    }

    /// Like [`Field::choice`], where `what` also describes values other than names.
    pub(super) fn choice_of<T: Copy>(&self, what: &str, choices: &[(&'static str, T)]) -> Option<T> {
        let Node::Text(text) = self.node else {
            self.expected(what, "");
            return None;
        };
        let chosen = choices.iter().find(|(name, _)| name == text);
        if chosen.is_none() {
            let names = choices.iter().map(|(name, _)| *name);
            let meant = nearest(text, names).map(|name| format!(", did you mean {name}?")).unwrap_or_default();
            self.expected(what, &meant);
        }
        chosen.map(|(_, choice)| *choice)
    }

    /// Reads a list of at most `max` items, such as `example`. A longer list is refused, and read up to the limit.
    pub(super) fn list(&self, max: usize, example: &str) -> Option<Vec<Field<'t>>> {
        let Node::List(items) = self.node else {
            self.expected(&format!("a list such as {example}"), "");
            return None;
        };
        if items.len() > max {
            self.refuse(format!("{} items are more than the {max} allowed", items.len()));
        }
        let field = |(index, node)| Field { node, at: self.at.item(index), log: self.log, secret: self.secret };
        Some(items.iter().take(max).enumerate().map(field).collect())
    }

    /// Reads a map with names chosen by the user and at most `max` entries, such as `example`.
    pub(super) fn map(&self, max: usize, example: &str) -> Option<Vec<(&'t str, Field<'t>)>> {
        let Node::Map(entries) = self.node else {
            self.expected(&format!("a map such as {example}"), "");
            return None;
        };
        if entries.len() > max {
            self.refuse(format!("{} entries are more than the {max} allowed", entries.len()));
        }
        Some(self.entries(entries).take(max).collect())
    }

    /// Reads a map with known keys, such as `example`. `read` reads each of them.
    pub(super) fn section<T>(&self, example: &str, read: impl FnOnce(&mut Section<'t>) -> T) -> Option<T> {
        let Node::Map(entries) = self.node else {
            self.expected(&format!("a map such as {example}"), "");
            return None;
        };
        let mut section = Section { whole: self.clone(), fields: self.entries(entries).collect(), known: Vec::new() };
        let value = read(&mut section);
        section.refuse_unknown();
        Some(value)
    }

    /// The field at this path of keys, if it exists and is not null.
    pub(super) fn below(&self, keys: &[&str]) -> Option<Field<'t>> {
        let [first, rest @ ..] = keys else {
            return (!self.is_null()).then(|| self.clone());
        };
        let Node::Map(entries) = self.node else { return None };
        self.entries(entries).find(|(key, _)| key == first)?.1.below(rest)
    }

    /// Returns true if the setting at `path`, or a section around it, has a mistake, so that its value has no meaning.
    pub(super) fn blames(&self, path: &str) -> bool {
        self.log.found.borrow().iter().any(|found| path.starts_with(&found.path))
    }

    /// Returns true if anything at `path` or below it has a mistake.
    pub(super) fn has_mistakes_below(&self, path: &str) -> bool {
        self.log.found.borrow().iter().any(|found| found.path.starts_with(path))
    }

    /// Returns true if the value is missing or null.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.node, Node::Null)
    }

    /// Returns true for a list without items.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.node, Node::List(items) if items.is_empty())
    }

    /// Returns true if the value is a map. Some settings may be either a map or a plain value.
    pub(super) fn is_map(&self) -> bool {
        matches!(self.node, Node::Map(_))
    }
}

/// A map while its keys are being read.
pub(super) struct Section<'t> {
    whole: Field<'t>,
    fields: Vec<(&'t str, Field<'t>)>,
    known: Vec<&'t str>,
}

impl<'t> Section<'t> {
    /// The field of a key, unless it is missing or null.
    pub(super) fn field(&mut self, key: &'static str) -> Option<Field<'t>> {
        self.known.push(key);
        let (_, field) = self.fields.iter().find(|(name, _)| *name == key)?;
        (!field.is_null()).then(|| field.clone())
    }

    /// The value of a key as `read` parses it, or `default` if it is missing or wrong.
    pub(super) fn get<T>(&mut self, key: &'static str, default: T, read: impl FnOnce(Field<'t>) -> Option<T>) -> T {
        self.field(key).and_then(read).unwrap_or(default)
    }

    /// The section of a key as `read` parses it, or the default if it is missing or not a map.
    pub(super) fn section<T: Default>(
        &mut self,
        key: &'static str,
        example: &str,
        read: impl FnOnce(&mut Section<'t>) -> T,
    ) -> T {
        self.get(key, T::default(), |field| field.section(example, read))
    }

    /// The value of a key that has no default. `meaning` describes what to write there.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        meaning: &str,
        read: impl FnOnce(Field<'t>) -> Option<T>,
    ) -> Option<T> {
        let field = self.field(key);
        if field.is_none() {
            self.refuse_missing(key, meaning);
        }
        field.and_then(read)
    }

    /// Accepts all other keys, without checking them.
    pub(super) fn pass_others(&mut self) {
        self.known.extend(self.fields.iter().map(|(key, _)| *key));
    }

    /// Returns true if one of the keys looks like a misspelling of this one.
    pub(super) fn has_misspelt(&self, key: &'static str) -> bool {
        self.misspelt(key).is_some()
    }

    fn misspelt(&self, key: &'static str) -> Option<&(&'t str, Field<'t>)> {
        self.fields.iter().find(|(name, _)| *name != key && nearest(name, [key]).is_some())
    }

    /// Notes that a key is missing. If it is only misspelt, that counts as one mistake, not two.
    pub(super) fn refuse_missing(&mut self, key: &'static str, meaning: &str) {
        if let Some((name, field)) = self.misspelt(key) {
            let name = *name;
            field.refuse_key(format!("unknown key, did you mean {key}?"));
            self.known.push(name);
        } else {
            let Field { at, log, .. } = &self.whole;
            let at = At { path: at.entry(0, key).path, steps: at.steps.clone() };
            log.note(&at, KeyOrValue::Value, format!("is missing: {meaning}"));
        }
    }

    fn refuse_unknown(&self) {
        for (index, (key, field)) in self.fields.iter().enumerate() {
            if !self.known.contains(key) {
                field.refuse_key(match nearest(key, self.known.iter().copied()) {
                    Some(meant) => format!("unknown key, did you mean {meant}?"),
                    None => format!("unknown key (known here: {})", self.known.join(", ")),
                });
            } else if self.fields[..index].iter().any(|(earlier, _)| earlier == key) {
                field.refuse_key("given twice: keep one of them");
            }
        }
    }
}
