//! The thread that owns the database. It stores the lines of a body in one transaction. A body is unpacked and parsed
//! before it is handed over, so no client delays the database.

use std::{collections::HashSet, convert::Infallible, io, str, sync::Arc, thread};

use axum::body::Bytes;
use crossbeam::channel::{Receiver, bounded};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tracing::{info, warn};
use weir_schema::limits::OBSERVERS_MAX;
use weir_system::privileges;
use weir_system::{clock, numbers::grouped, text::with_causes};

use super::{
    body::{BodyError, Lines, Packing},
    counters::Counters,
    line::Line,
    store::{Before, Store, StoreError},
};

/// How many bodies may wait for the database.
const QUEUE: usize = 2;
/// How many invalid lines an answer lists.
const MISTAKES_MAX: usize = 16;

/// An invalid line of a body.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// The number of the line in the body, from 1.
    pub line: u64,
    /// The mistake in the line.
    pub error: String,
}

/// The result of storing a body.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StoreResult {
    /// The ids of all its lines that are in the database now, each once.
    pub stored: Vec<String>,
    /// The lines that are not.
    pub refused: RefusedLines,
}

/// The lines of a body that are invalid, or for which there is no room.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RefusedLines {
    /// The first of these lines.
    pub mistakes: Vec<Mistake>,
    /// The number of all of them.
    pub count: u64,
}

impl RefusedLines {
    fn add(&mut self, mistake: Mistake) {
        self.count += 1;
        if self.mistakes.len() < MISTAKES_MAX {
            self.mistakes.push(mistake);
        }
    }
}

/// Why nothing of a body was stored.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The body is too large, or cannot be unpacked.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The database cannot store it now.
    #[error("the database cannot be written")]
    Store(#[from] StoreError),
    /// The thread has ended.
    #[error("the collector is shutting down")]
    Ending,
}

type Answer = Result<StoreResult, Refused>;

struct Job {
    body: Checked,
    answer: oneshot::Sender<Answer>,
}

/// Hands bodies to the thread, which ends when the last of these handles is dropped.
#[derive(Clone, Debug)]
pub struct StoreHandle(mpsc::Sender<Job>);

impl StoreHandle {
    /// Starts the thread. The receiver is disconnected when the thread has ended.
    ///
    /// # Errors
    ///
    /// The system cannot start a thread.
    pub fn start(mut store: Store, counters: Arc<Counters>) -> io::Result<(Self, Receiver<Infallible>)> {
        let (give, mut jobs) = mpsc::channel::<Job>(QUEUE);
        let (open, ended) = bounded(0);
        thread::Builder::new().name("weir-database".to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            let _open = open;
            let mut health = Health::default();
            while let Some(Job { body, answer }) = jobs.blocking_recv() {
                let kept = keep(&mut store, body, &counters);
                health.look(&kept);
                // A client that has hung up sends the body again; its lines are then already stored.
                let _ = answer.send(kept);
            }
        })?;
        Ok((Self(give), ended))
    }

    /// Stores the lines of a body. On return they are on disk.
    ///
    /// # Errors
    ///
    /// Nothing of the body was stored.
    pub async fn keep(&self, body: Checked) -> Answer {
        let (answer, kept) = oneshot::channel();
        self.0.send(Job { body, answer }).await.map_err(|_| Refused::Ending)?;
        kept.await.map_err(|_| Refused::Ending)?
    }
}

/// The content of a body, unpacked and parsed. This does not need the database thread.
#[derive(Debug, Default)]
pub struct Checked {
    /// The valid lines, each with its number in the body.
    lines: Vec<(u64, String)>,
    /// The lines that are refused because they are invalid.
    refused: RefusedLines,
}

impl Checked {
    /// Unpacks a body and parses its lines.
    ///
    /// # Errors
    ///
    /// The body is too large, or cannot be unpacked.
    pub fn read(body: &Bytes, packing: Packing) -> Result<Self, BodyError> {
        let mut lines = Lines::new(body, packing)?;
        let mut checked = Self::default();
        let mut number = 0;
        while let Some(line) = lines.next()? {
            number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let read = str::from_utf8(line).map_err(|error| error.to_string());
            match read.and_then(|text| Line::read(text).map(|_| text)) {
                Ok(text) => checked.lines.push((number, text.to_owned())),
                Err(error) => checked.refused.add(Mistake { line: number, error }),
            }
        }
        Ok(checked)
    }
}

/// Stores the valid lines in one transaction.
fn keep(store: &mut Store, body: Checked, counters: &Counters) -> Answer {
    let now = clock::now().wall;
    let mut batch = store.begin()?;
    let Checked { lines, refused } = body;
    let mut kept = StoreResult { refused, ..StoreResult::default() };
    let (mut known, mut contested, mut befores) = (HashSet::new(), None, Vec::new());
    for (number, text) in &lines {
        // The line was parsed successfully before.
        let Ok(line) = Line::read(text) else { continue };
        let before = batch.put(&line, text, now)?;
        befores.push(before);
        match before {
            Before::NoRoom => {
                let error = format!(
                    "there is no room for another observer: the database has {}. Delete the reports of old ones, or use \
                     another database",
                    grouped(OBSERVERS_MAX as u64)
                );
                kept.refused.add(Mistake { line: *number, error });
                continue;
            }
            Before::Other => contested = Some(line.id().to_owned()),
            Before::Absent | Before::Same => {}
        }
        if !known.contains(line.id()) {
            known.insert(line.id().to_owned());
            kept.stored.push(line.id().to_owned());
        }
    }
    batch.commit()?;
    for before in befores {
        counters.count(before);
    }
    counters.refuse(kept.refused.count);
    if let Some(id) = contested {
        warn!(
            "{id:?} came again with another content, and the first one is kept: two senders have the same identity, or a \
             report is forged (`weir collect query contested` lists all)"
        );
    }
    if let Some(Mistake { line, error }) = kept.refused.mistakes.first() {
        warn!(
            refused = kept.refused.count,
            stored = kept.stored.len(),
            "lines of a sender are refused, such as line {line}: {error}"
        );
    }
    Ok(kept)
}

/// Logs once when the database stops accepting anything, and once when it accepts again.
#[derive(Debug, Default)]
struct Health {
    is_ill: bool,
}

impl Health {
    fn look(&mut self, kept: &Answer) {
        match kept {
            Err(Refused::Store(error)) if !self.is_ill => {
                self.is_ill = true;
                warn!("reports cannot be stored, and senders have to keep them: {}", with_causes(error));
            }
            Ok(_) if self.is_ill => {
                self.is_ill = false;
                info!("reports are stored again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::store::tests::{Folder, report, tombstone},
        *,
    };

    fn take(store: &mut Store, body: &Bytes, packing: Packing) -> Answer {
        keep(store, Checked::read(body, packing)?, &Counters::default())
    }

    fn kept(store: &mut Store, lines: &[&str]) -> StoreResult {
        take(store, &Bytes::from(lines.join("\n")), Packing::None).unwrap()
    }

    #[test]
    fn invalid_lines_do_not_keep_valid_ones_out() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let (one, two, gone) = (report("a", 1, None), report("a", 2, None), tombstone("a", 3, 9, "damaged"));
        let StoreResult { stored, refused: RefusedLines { mistakes, count } } =
            kept(&mut store, &["", &one, "garbage", &two, "{}", " ", &gone, &one]);
        assert_eq!(stored, ["7f/a/1", "7f/a/2", "7f/a/3-9"], "each once");
        assert_eq!((count, mistakes[0].line, mistakes[1].line), (2, 3, 5));
        assert_eq!(mistakes[1].error, "`schema` is missing");
        let again = kept(&mut store, &[&two]);
        assert_eq!(again, StoreResult { stored: vec!["7f/a/2".to_owned()], ..StoreResult::default() }, "it is there");
        assert_eq!(kept(&mut store, &[]), StoreResult::default());
        let not_text = Bytes::from_static(b"\xff\xfe\n");
        assert_eq!(take(&mut store, &not_text, Packing::None).unwrap().refused.count, 1);
        let many = vec!["x"; 100];
        let RefusedLines { mistakes, count } = kept(&mut store, &many).refused;
        assert_eq!((mistakes.len(), count), (MISTAKES_MAX, 100));
    }

    #[test]
    fn an_observer_without_room_is_refused_and_counted() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        store.limit_observers(1);
        let (one, other, counters) =
            (report("a", 1, None), report("a", 1, None).replace("7f", "80"), Counters::default());
        let body = Bytes::from([&*one, &*other, "{}"].join("\n"));
        let kept = keep(&mut store, Checked::read(&body, Packing::None).unwrap(), &counters).unwrap();
        assert_eq!((kept.stored, kept.refused.count), (vec!["7f/a/1".to_owned()], 2));
        let [_, no_room] = &kept.refused.mistakes[..] else { panic!() };
        assert!(no_room.line == 2 && no_room.error.starts_with("there is no room for another observer"));
        let counted = serde_json::to_value(counters.read()).unwrap();
        assert_eq!(counted, serde_json::json!({"again": 0, "different": 0, "refused": 2}));
    }

    #[test]
    fn nothing_of_a_damaged_body_is_stored() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let lines: String = (1..200).map(|seq| report("a", seq, None) + "\n").collect();
        let packed = zstd::encode_all(lines.as_bytes(), 3).unwrap();
        let cut = Bytes::copy_from_slice(&packed[..packed.len() - 3]);
        assert!(matches!(take(&mut store, &cut, Packing::Zstd), Err(Refused::Body(BodyError::Damaged(_)))));
        assert_eq!(store.counts().unwrap().reports, 0);
        assert_eq!(take(&mut store, &Bytes::from(packed), Packing::Zstd).unwrap().stored.len(), 199);
    }

    #[test]
    fn a_locked_database_refuses_and_accepts_again_later() {
        let folder = Folder::new();
        let mut store = Store::open(&folder.database()).unwrap();
        let other = rusqlite::Connection::open(folder.database()).unwrap();
        store.wait_for_locks(std::time::Duration::from_millis(1));
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let body = Bytes::from(report("a", 1, None));
        assert!(matches!(take(&mut store, &body, Packing::None), Err(Refused::Store(_))));
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(take(&mut store, &body, Packing::None).unwrap().stored, ["7f/a/1"]);
    }
}
