//! The section `networks`: names for addresses, and their prefix files.

use std::{
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serializer;
use weir_system::{plain_file::open_regular, text::short};

use super::{
    limits::*,
    section::{Field, Section},
    units::show_bytes,
};
use crate::names::{Network, Prefix, PrefixFile};

/// For `#[serde(serialize_with)]`: a map by name.
pub(super) fn write_networks<S: Serializer>(networks: &[Network], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(networks.iter().map(|network| (&network.name, network)))
}

/// A prefix and where it was found, while the networks are being read.
struct PrefixEntry {
    prefix: Prefix,
    /// The index of its network.
    network: usize,
    whence: NetworkSource,
}

#[derive(Clone, Copy)]
enum NetworkSource {
    /// The item with this index in `prefixes`.
    Item(usize),
    /// The line with this number in the file.
    Line(usize),
}

/// The fields of a network, for reporting mistakes.
#[derive(Default)]
struct Fields<'t> {
    prefixes: Vec<Field<'t>>,
    file: Option<(Field<'t>, PathBuf)>,
}

/// The networks while they are being read.
#[derive(Default)]
struct Reading<'t> {
    networks: Vec<Network>,
    /// One entry per network.
    fields: Vec<Fields<'t>>,
    found: Vec<PrefixEntry>,
}

/// Reads the names for addresses, and their prefix files.
pub(super) fn networks(field: &Field<'_>) -> Option<Vec<Network>> {
    let mut reading = Reading::default();
    for (name, field) in field.map(NETWORKS_MAX, "{customers: {prefixes: [192.0.2.0/24]}}")? {
        let is_taken = reading.networks.iter().any(|earlier| earlier.name == name);
        if is_taken {
            field.refuse_key("given twice: keep one of them");
            continue;
        }
        if let Some(mistake) = mistake_in_name(name) {
            field.refuse_key(mistake);
        }
        field.section("{prefixes: [192.0.2.0/24]}", |s| reading.network(name, s));
    }
    reading.refuse_shared();
    Some(reading.networks)
}

fn items<'t>(field: &Field<'t>) -> Option<Vec<Field<'t>>> {
    field.list(PREFIXES_MAX, "[192.0.2.0/24, \"2001:db8::/32\"]")
}

fn mistake_in_name(name: &str) -> Option<String> {
    if !NETWORK_NAME_BYTES.contains(&name.len()) {
        let (min, max) = NETWORK_NAME_BYTES.into_inner();
        return Some(format!("{:?} has {} bytes, but the name of a network {min} to {max}", short(name), name.len()));
    }
    let wrong = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"_-.".contains(*c))?;
    Some(format!("the name {name:?} has {wrong:?}: use letters from a to z, digits, `_`, `-` and `.`"))
}

impl<'t> Reading<'t> {
    fn network(&mut self, name: &str, s: &mut Section<'t>) {
        let (prefixes, file) = (s.field("prefixes"), s.field("file"));
        let own = s.get("own", false, |f| f.flag());
        if prefixes.is_none() && file.is_none() && !s.has_misspelt("file") {
            s.refuse_missing("prefixes", "a list such as [192.0.2.0/24], or `file` with one prefix a line");
        }

        let nth = self.networks.len();
        let mut fields = Fields::default();
        let mut listed = Vec::new();
        for item in prefixes.as_ref().and_then(items).unwrap_or_default() {
            let Some(prefix) = item.prefix() else { continue };
            self.found.push(PrefixEntry { prefix, network: nth, whence: NetworkSource::Item(fields.prefixes.len()) });
            fields.prefixes.push(item);
            listed.push(prefix);
        }
        if let (Some(field), None) = (prefixes.filter(Field::is_empty), &file) {
            field.refuse("the list is empty and there is no `file`, but a network has one prefix or more");
        }
        let file = file.and_then(|field| {
            let path = field.file_path()?;
            let prefixes = self.file(nth, &field, &path);
            fields.file = Some((field, path.clone()));
            Some(PrefixFile { path, prefixes })
        });
        self.networks.push(Network { name: name.to_owned(), prefixes: listed, file, own });
        self.fields.push(fields);
    }

    /// Reads the prefixes of a file. Its mistakes are noted at the field.
    fn file(&mut self, network: usize, field: &Field<'_>, path: &Path) -> Arc<[Prefix]> {
        let before = self.found.len();
        let mut mistakes = Listed::new(field);
        let read = read_file(path, |line, text| match text {
            Ok(_) if self.found.len() >= PREFIXES_MAX => {
                let message = format!("this is one prefix more than the {PREFIXES_MAX} that all networks may have");
                Err(at_line(path, line, &message))
            }
            Ok(text) => {
                match text.parse() {
                    Ok(prefix) => self.found.push(PrefixEntry { prefix, network, whence: NetworkSource::Line(line) }),
                    Err(error) => mistakes.note(|| at_line(path, line, &error)),
                }
                Ok(())
            }
            Err(byte) => {
                mistakes.note(|| at_line(path, line, &format!("the byte {byte:#04x} is not UTF-8 text")));
                Ok(())
            }
        });
        mistakes.end(&format!("more lines of {} are wrong", path.display()));
        if let Err(message) = read {
            field.refuse(message);
        }
        self.found[before..].iter().map(|found| found.prefix).collect()
    }

    /// Refuses prefixes that are in two networks, because an address has only one name. A prefix may be repeated within
    /// one network, which changes nothing.
    fn refuse_shared(&mut self) {
        // The sort is stable: of two equal prefixes, the one written first stays first.
        self.found.sort_by_key(|found| found.prefix);
        let equal = self.found.chunk_by(|one, other| one.prefix == other.prefix);
        let mut shared: Vec<(&PrefixEntry, &PrefixEntry)> = equal
            .flat_map(|equal| {
                let first = &equal[0];
                equal[1..].iter().filter(move |other| other.network != first.network).map(move |other| (first, other))
            })
            .collect();
        shared.sort_by_key(|(_, other)| (other.network, other.whence.order()));
        for of_one in shared.chunk_by(|(_, one), (_, other)| one.network == other.network) {
            self.refuse_of_one(of_one);
        }
    }

    /// Refuses prefixes of one network. Each is paired with the same prefix of another network.
    fn refuse_of_one(&self, shared: &[(&PrefixEntry, &PrefixEntry)]) {
        let mut of_file = None;
        for (first, PrefixEntry { prefix, network, whence }) in shared {
            let (name, place) = (short(&self.networks[first.network].name), self.place(first));
            let message = || format!("{prefix} is in the network {name} already ({place}): remove one of them");
            let Fields { prefixes, file } = &self.fields[*network];
            match (whence, file) {
                (NetworkSource::Item(index), _) => prefixes[*index].refuse(message()),
                (NetworkSource::Line(line), Some((field, path))) => {
                    of_file.get_or_insert_with(|| Listed::new(field)).note(|| at_line(path, *line, &message()));
                }
                (NetworkSource::Line(_), None) => {}
            }
        }
        if let Some(listed) = of_file {
            listed.end("more prefixes of this file are in other networks");
        }
    }

    fn place(&self, found: &PrefixEntry) -> String {
        let Fields { prefixes, file } = &self.fields[found.network];
        match (found.whence, file) {
            (NetworkSource::Item(index), _) => prefixes[index].path().to_owned(),
            (NetworkSource::Line(line), Some((_, path))) => format!("{}:{line}", path.display()),
            (NetworkSource::Line(line), None) => format!("line {line}"),
        }
    }
}

impl NetworkSource {
    fn order(self) -> (bool, usize) {
        match self {
            Self::Item(index) => (false, index),
            Self::Line(line) => (true, line),
        }
    }
}

/// Lists the first mistakes in a file, and counts the others.
struct Listed<'f, 't> {
    field: &'f Field<'t>,
    count: usize,
}

impl<'f, 't> Listed<'f, 't> {
    fn new(field: &'f Field<'t>) -> Self {
        Self { field, count: 0 }
    }

    fn note(&mut self, message: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= PREFIX_MISTAKES_MAX {
            self.field.refuse(message());
        }
    }

    fn end(self, what: &str) {
        if let Some(more @ 1..) = self.count.checked_sub(PREFIX_MISTAKES_MAX) {
            self.field.refuse(format!("{more} {what}"));
        }
    }
}

fn at_line(path: &Path, line: usize, message: &dyn std::fmt::Display) -> String {
    format!("{}:{line}: {message}", path.display())
}

/// Calls `take` for each line that has more than a comment, with its number, and without comments and white space; or
/// with the first byte that is not UTF-8. Stops if `take` returns an error, or if the file cannot be read further.
fn read_file(path: &Path, mut take: impl FnMut(usize, Result<&str, u8>) -> Result<(), String>) -> Result<(), String> {
    let unreadable = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let mut reader = BufReader::new(open_regular(path).map_err(unreadable)?.take(PREFIX_FILE_MAX + 1));
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        reader.by_ref().take(PREFIX_LINE_MAX as u64 + 1).read_until(b'\n', &mut line).map_err(unreadable)?;
        if line.len() > PREFIX_LINE_MAX {
            let message = format!("longer than {PREFIX_LINE_MAX} bytes: write one prefix a line");
            return Err(at_line(path, number, &message));
        }
        if line.is_empty() {
            break;
        }
        let bare = if number == 1 { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line) } else { &line };
        let text = bare.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
        if !text.is_empty() {
            take(number, str::from_utf8(text).map_err(|error| text[error.valid_up_to()]))?;
        }
    }
    if reader.get_ref().limit() == 0 {
        return Err(format!(
            "{} is longer than {}, the limit for a file of prefixes",
            path.display(),
            show_bytes(PREFIX_FILE_MAX)
        ));
    }
    Ok(())
}
