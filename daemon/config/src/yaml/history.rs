//! The section `history`: how much a running weir remembers.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Serialize, Serializer};

use super::{
    NONE,
    limits::{HISTORY, HISTORY_AGE, HISTORY_ROWS, HISTORY_SAMPLE, HISTORY_SIZE},
    location::Location,
    section::{Field, Section},
    units,
};

/// The word that turns it off.
pub(super) const OFF: &str = "off";
/// The folder in the state directory.
const FOLDER: &str = "history";

/// How much weir remembers, in memory and on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct History {
    /// Bytes of memory for windows.
    #[serde(serialize_with = "units::write_bytes")]
    pub memory: u64,
    /// How many rows it keeps of each list of a window, in each order.
    pub rows: usize,
    /// How many flow records it keeps of each minute, for questions that no view asks; 0 keeps none.
    pub sample: usize,
    /// Where it is on disk.
    pub path: Location,
    /// How long it is kept on disk. `None` (`none`): as long as there is room.
    #[serde(serialize_with = "units::write_duration_or_none")]
    pub max_age: Option<Duration>,
    /// The most bytes on disk.
    #[serde(serialize_with = "units::write_bytes")]
    pub max_size: u64,
}

impl Default for History {
    fn default() -> Self {
        let max_age = Some(Duration::from_secs(720 * 60 * 60));
        Self { memory: 4 << 20, rows: 64, sample: 1000, path: Location::default(), max_age, max_size: 2 << 30 }
    }
}

impl History {
    /// How many records the sample of a window of this length has at most. Several windows of a minute have more
    /// together than its sample keeps, so each needs room for half of it only.
    pub fn sample_of_window(&self, interval: Duration) -> usize {
        let is_short = interval.saturating_mul(4) <= Duration::from_secs(60);
        if is_short { self.sample.div_ceil(2) } else { self.sample }
    }

    /// Its folder, given the service's state directory. `None` if it is only in memory.
    pub fn folder(&self, state_directory: Option<&Path>) -> Option<PathBuf> {
        self.path.folder(state_directory, FOLDER)
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
        .section("{memory: 4MiB}, or off", |s: &mut Section<'_>| {
            let default = History::default();
            History {
                memory: s.get("memory", default.memory, |f| f.bytes(HISTORY)),
                rows: s.get("rows", default.rows, |f| f.count(HISTORY_ROWS).map(|rows| rows as usize)),
                sample: s.get("sample", default.sample, |f| f.count(HISTORY_SAMPLE).map(|records| records as usize)),
                path: s.get("path", default.path, |f| Location::read(&f)),
                max_age: s.get("max_age", default.max_age, |f| {
                    if f.is_word_of(&[NONE]) { Some(None) } else { f.duration(HISTORY_AGE).map(Some) }
                }),
                max_size: s.get("max_size", default.max_size, |f| f.bytes(HISTORY_SIZE)),
            }
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
        assert_eq!(read("").unwrap(), Some(History::default()));
        assert_eq!(read("history: {}").unwrap(), read("").unwrap());
        assert_eq!(read("history: off").unwrap(), None);
        for (text, part) in [
            ("history: none", "a map such as {memory: 4MiB}, or off"),
            ("history: {memory: 1KiB}", "256KiB"),
            ("history: {size: 1MiB}", "size"),
            ("history: {rows: 0}", "history.rows: 0 is below the minimum of 1"),
            ("history: {rows: 257}", "history.rows: 257 is above the maximum of 256"),
            ("history: {sample: 10001}", "history.sample: 10001 is above the maximum of 10000"),
            ("history: {max_age: 30}", "add its unit (ms, s, m, h, d)"),
            ("history: {max_age: 30m}", "is below the minimum of 1h"),
            ("history: {max_size: 1KiB}", "is below the minimum of 1MiB"),
        ] {
            let mistake = read(text).unwrap_err().to_string();
            assert!(mistake.contains(part), "{mistake}");
        }
        let path = Location::Folder("/srv/history".into());
        let all = History {
            memory: 1 << 20,
            rows: 20,
            sample: 0,
            path,
            max_age: Some(Duration::from_secs(2_592_000)),
            max_size: 1 << 30,
        };
        let text = "history: {memory: 1MiB, rows: 20, sample: 0, path: /srv/history, max_age: 30d, max_size: 1GiB}";
        assert_eq!(read(text).unwrap(), Some(all.clone()));
        assert_eq!(read(&Config::parse(text, "weir.yaml").unwrap().to_yaml()).unwrap(), Some(all.clone()));
        let state = Path::new("/var/lib/weir");
        assert_eq!(all.folder(Some(state)), Some("/srv/history".into()));
        assert_eq!(History::default().folder(Some(state)), Some(state.join("history")));
        let none = read("history: {path: none, max_age: none}").unwrap().unwrap();
        assert_eq!((none.folder(Some(state)), none.max_age), (None, None));
        let off = Config { history: None, ..Config::default() };
        assert_eq!(Config::parse(&off.to_yaml(), "weir.yaml").unwrap().history, None);
    }
}
