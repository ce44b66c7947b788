//! `weir spool`: shows and changes the reports that wait on disk. This does not disturb a running weir.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use thiserror::Error;
use weir_schema::Tombstone;
use weir_system::{numbers::grouped, text::escaped};

use super::{
    ANSWER, REPORT_BYTES_MAX,
    delivery::{encoded, unpack},
    files::{Files, Folder},
    name::{Content, Name},
    remove_refused, remove_report,
    root::folders,
};

/// Why the command fails.
#[derive(Debug, Error)]
pub enum SpoolError {
    /// The system refuses an operation.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// Nothing has this name.
    #[error("nothing in {} is called {name:?}: `weir spool ls` lists what is there", path.display())]
    NotThere {
        /// The name that was given.
        name: String,
        /// The folder of the spools.
        path: PathBuf,
    },
    /// A report cannot be read.
    #[error("{}: {error}", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// The mistake in the file.
        error: io::Error,
    },
}

/// A report or tombstone on disk.
#[derive(Clone, Debug)]
pub struct Item {
    /// The folder of its sink.
    pub sink: String,
    /// When its window ended.
    pub time: Option<Timestamp>,
    /// The id of the report or tombstone.
    pub id: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// The state: `waits`, `refused`, or the reason of a tombstone.
    pub state: String,
    folder: Folder,
    name: Name,
}

/// The spools in a folder.
#[derive(Debug)]
pub struct Spools {
    path: PathBuf,
}

impl Spools {
    /// The spools in this folder.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Everything in the spools, one sink after the other, in the order of delivery; or only the entries with these
    /// names: the folder of a sink, or the id of a report.
    ///
    /// # Errors
    ///
    /// A folder cannot be read, or nothing has one of these names.
    pub fn list(&self, names: &[String]) -> Result<Vec<Item>, SpoolError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| SpoolError::System { what: "read", path, error }
        };
        let mut items = Vec::new();
        for (sink, _) in folders(&self.path).map_err(failed(&self.path))? {
            let folder = Folder::within(&self.path, &sink);
            let listed = folder.list().map_err(failed(folder.path()))?;
            let mut names: Vec<_> = listed.iter().filter_map(|text| Name::read(text)).collect();
            names.sort_by_key(|name| name.number);
            items.extend(names.into_iter().map(|name| Item::new(&sink, &folder, name)));
        }
        let is = |item: &Item, name: &String| item.sink == *name || item.id == *name;
        if let Some(missing) = names.iter().find(|name| !items.iter().any(|item| is(item, name))) {
            return Err(SpoolError::NotThere { name: missing.clone(), path: self.path.clone() });
        }
        items.retain(|item| names.is_empty() || names.iter().any(|name| is(item, name)));
        Ok(items)
    }

    /// Removes a report, so that it is not delivered any more; a tombstone is delivered in its place. A refused report
    /// or a tombstone is removed without a new tombstone.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub fn remove(&self, item: &Item) -> Result<(), SpoolError> {
        let Item { folder, name, .. } = item;
        let path = folder.path().join(name.to_string());
        let failed = |error| SpoolError::System { what: "remove", path, error };
        match name.content {
            Content::Report(_) => remove_report(folder, name).map_err(failed),
            Content::Refused(_) | Content::Retry(_) => {
                remove_refused(folder, name);
                Ok(())
            }
            Content::Tombstone(_) => folder.remove(&name.to_string()).map_err(failed),
        }
    }

    /// Marks a refused report to be tried again, at the end of the line: by a running weir with its next report,
    /// otherwise at the next start. Returns false if the report was not refused.
    ///
    /// # Errors
    ///
    /// The system does not allow it.
    pub fn retry(&self, item: &Item) -> Result<bool, SpoolError> {
        let Item { folder, name, .. } = item;
        let Content::Refused(stored) = name.content else { return Ok(false) };
        let wanted = Name { content: Content::Retry(stored), ..*name };
        let path = folder.path().join(name.to_string());
        let failed = |error| SpoolError::System { what: "rename", path, error };
        folder.rename(&name.to_string(), &wanted.to_string()).map_err(failed)?;
        let _ = folder.remove(&format!("{name}{ANSWER}"));
        Ok(true)
    }
}

/// Writes the contents of the spools as a table, one sink after the other.
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_list(items: &[Item], out: &mut impl Write) -> io::Result<()> {
    for of_sink in items.chunk_by(|one, next| one.sink == next.sink) {
        let Some(first) = of_sink.first() else { continue };
        let waiting =
            of_sink.iter().filter(|item| matches!(item.name.content, Content::Report(_) | Content::Retry(_))).count();
        writeln!(out, "{}: {} reports wait", escaped(&first.sink), grouped(waiting as u64))?;
        let id_width = of_sink.iter().map(|item| item.id.len()).max().unwrap_or_default();
        for Item { time, id, bytes, state, .. } in of_sink {
            let time = time.map_or_else(String::new, |time| time.to_string());
            writeln!(out, "  {id:<id_width$}  {time:<20}  {:>10} B  {state}", grouped(*bytes))?;
        }
    }
    if items.is_empty() {
        writeln!(out, "nothing waits")?;
    }
    Ok(())
}

/// Writes the contents of the spools as lines of JSON.
///
/// # Errors
///
/// `out` cannot be written.
pub fn write_json(items: &[Item], out: &mut impl Write) -> io::Result<()> {
    for Item { sink, time, id, bytes, state, .. } in items {
        let line = serde_json::json!({"sink": sink, "id": id, "time": time, "bytes": bytes, "state": state});
        writeln!(out, "{line}")?;
    }
    Ok(())
}

impl Item {
    fn new(sink: &str, folder: &Folder, name: Name) -> Self {
        let (bytes, state) = match name.content {
            Content::Report(stored) => (stored.bytes, "waits".to_owned()),
            Content::Refused(stored) => {
                let answer = folder.read(&format!("{name}{ANSWER}"), REPORT_BYTES_MAX).unwrap_or_default();
                (stored.bytes, format!("refused: {}", escaped(&String::from_utf8_lossy(&answer))))
            }
            Content::Retry(stored) => (stored.bytes, "waits: it was refused, and is tried again".to_owned()),
            Content::Tombstone(reason) => (0, format!("lost: {}", reason.name())),
        };
        Self {
            sink: sink.to_owned(),
            time: i64::try_from(name.time).ok().and_then(|time| Timestamp::from_second(time).ok()),
            id: name.ids.to_string(),
            bytes,
            state,
            folder: folder.clone(),
            name,
        }
    }

    /// The report or tombstone as one line of JSON.
    ///
    /// # Errors
    ///
    /// The file is damaged or gone.
    pub fn line(&self) -> Result<Vec<u8>, SpoolError> {
        match self.name.content {
            Content::Tombstone(reason) => Ok(encoded(&Tombstone::new(&self.name.ids, reason)).line.to_vec()),
            Content::Report(stored) | Content::Refused(stored) | Content::Retry(stored) => {
                let name = self.name.to_string();
                let damaged = |error| SpoolError::Damaged { path: self.folder.path().join(&name), error };
                let bytes = self.folder.read(&name, stored.bytes.min(REPORT_BYTES_MAX)).map_err(damaged)?;
                unpack(&bytes, stored).map_err(damaged)
            }
        }
    }
}
