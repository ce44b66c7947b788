//! The section `history`: how much a running weir remembers.

use serde::{Serialize, Serializer};

use super::{
    limits::HISTORY,
    section::{Field, Section},
    units,
};

/// The word that turns it off.
pub(super) const OFF: &str = "off";

/// How much a running weir remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct History {
    /// Bytes for windows.
    #[serde(serialize_with = "units::write_bytes")]
    pub memory: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { memory: 4 << 20 }
    }
}

/// For `#[serde(serialize_with)]`.
pub(super) fn write<S: Serializer>(history: &Option<History>, serializer: S) -> Result<S::Ok, S::Error> {
    match history {
        Some(history) => history.serialize(serializer),
        None => OFF.serialize(serializer),
    }
}

/// Reads the section, or `off`.
pub(super) fn history(field: &Field<'_>) -> Option<Option<History>> {
    if field.is_word_of(&[OFF]) {
        return Some(None);
    }
    field
        .section("{memory: 4MiB}, or off", |s: &mut Section<'_>| History {
            memory: s.get("memory", History::default().memory, |f| f.bytes(HISTORY)),
        })
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn it_is_on_unless_it_is_turned_off() {
        let read = |text: &str| Config::parse(text, "weir.yaml").map(|config| config.history);
        assert_eq!(read("").unwrap(), Some(History { memory: 4 << 20 }));
        assert_eq!(read("history: {}").unwrap(), read("").unwrap());
        assert_eq!(read("history: off").unwrap(), None);
        for (text, part) in [
            ("history: none", "a map such as {memory: 4MiB}, or off"),
            ("history: {memory: 1KiB}", "256KiB"),
            ("history: {size: 1MiB}", "size"),
        ] {
            let mistake = read(text).unwrap_err().to_string();
            assert!(mistake.contains(part), "{mistake}");
        }
        let off = Config { history: None, ..Config::default() };
        assert_eq!(Config::parse(&off.to_yaml(), "weir.yaml").unwrap().history, None);
    }
}
