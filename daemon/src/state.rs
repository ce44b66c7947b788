//! Keeps the number and the id of the last report across restarts, in the state directory.
//!
//! A number is written before its report is sent. So a crash in between loses a report, which `previous` of the next
//! report names, but no number is used twice. No fault of the directory stops the daemon: it logs the fault and
//! continues.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::{info, warn};
use weir_report::observer::Last;
use weir_schema::limits::SEQ_MAX;
use weir_system::{
    lock::{Lock, LockError},
    plain_file, privileges,
};

/// The format of the file.
const SCHEMA: &str = "weir.state/1";
/// The file, its name while it is written, and the file that a running daemon has locked.
const KEPT: &str = "last-report.json";
const UNFINISHED: &str = "last-report.json.new";
const LOCK: &str = "last-report.lock";
/// All names of files in the state directory.
pub const FILES: [&str; 3] = [KEPT, UNFINISHED, LOCK];
/// The largest size of the file, in bytes; it has some 100.
const BYTES_MAX: u64 = 4096;
/// How long a report waits for a slow disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the file cannot be used.
#[derive(Debug, PartialEq, Eq, Error)]
enum Unusable {
    #[error("it is not whole, or not written by weir")]
    Torn,
    #[error("it is of format {0}, not {SCHEMA}")]
    Format(String),
    #[error("its report {0} is of another machine or does not have its number")]
    Foreign(String),
}

/// The contents of the file.
#[derive(Deserialize, Serialize)]
struct StateFile {
    schema: String,
    id: String,
    seq: u64,
}

/// Writes the last report to a directory, which belongs to this daemon while it runs.
#[derive(Debug)]
pub struct LastReportFile {
    orders: Sender<Last>,
    /// The other end of the same channel, to take a queued order back.
    waiting: Receiver<Last>,
    written: Receiver<(u64, io::Result<()>)>,
    /// True if the disk has not answered for too long.
    hangs: bool,
    /// True if the last log message was about a failed write.
    failing: bool,
}

impl LastReportFile {
    /// Locks the directory, and reads the last report of the observer with this identity. Logs any fault.
    ///
    /// # Errors
    ///
    /// Another weir uses this directory: both would use the same numbers.
    pub fn open(directory: &Path, observer: &str) -> Result<(Option<Self>, Option<Last>), LockError> {
        match Self::take(directory, observer) {
            Ok((state, last)) => Ok((Some(state), last)),
            Err(taken @ LockError::Taken { .. }) => Err(taken),
            Err(error) => {
                warn!("{error}. Reports are numbered from 1 again, and the first one does not name its predecessor");
                Ok((None, None))
            }
        }
    }

    fn take(directory: &Path, observer: &str) -> Result<(Self, Option<Last>), LockError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |error| LockError::System { what, path, error }
        };
        let lock = Lock::take(directory, LOCK)?;
        let path = directory.join(KEPT);
        let last = match read(&path).map_err(failed("read", &path))? {
            None => None,
            Some(text) => parse(&text, observer).map_or_else(
                |error| {
                    warn!(
                        "{}: {error}. weir replaces it: reports are numbered from 1 again, and the first one does not \
                         name the one before",
                        path.display()
                    );
                    None
                },
                Some,
            ),
        };
        Ok((Self::start(directory.to_owned(), lock).map_err(failed("start a thread for", directory))?, last))
    }

    fn start(directory: PathBuf, lock: Lock) -> io::Result<Self> {
        let (orders, waiting) = bounded::<Last>(1);
        let (written_in, written) = bounded(1);
        let taken = waiting.clone();
        let work = move || {
            privileges::give_up_all_but_files();
            let _lock = lock;
            for last in taken {
                if written_in.send((last.seq, write(&directory, &last))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("weir-state".to_owned()).spawn(work)?;
        Ok(Self { orders, waiting, written, hangs: false, failing: false })
    }

    /// Stores this report as the last one. Returns when it is on disk, or when that takes too long: reports do not wait
    /// for a disk that hangs.
    pub fn keep(&mut self, last: Last) {
        let seq = last.seq;
        if self.written.try_recv().is_ok() {
            self.hangs = false;
        }
        let mut unsent = self.orders.try_send(last);
        // The thread is still writing an older one, and another one is queued: replace the queued one.
        while let Err(TrySendError::Full(last)) = unsent {
            let _ = self.waiting.try_recv();
            unsent = self.orders.try_send(last);
        }
        // If the disk hung the last time, do not wait for it again until it has answered.
        while !self.hangs {
            match self.written.recv_timeout(PATIENCE) {
                Ok((written, result)) if written == seq => return self.note(result),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.hangs = true;
                    self.note(Err(io::Error::new(io::ErrorKind::TimedOut, "the disk does not answer")));
                }
                Err(RecvTimeoutError::Disconnected) => return self.note(Err(io::Error::other("its thread ended"))),
            }
        }
    }

    /// Logs when writing begins to fail, and when it works again.
    fn note(&mut self, result: io::Result<()>) {
        match result {
            Ok(()) if std::mem::take(&mut self.failing) => info!("the number of the last report is written again"),
            Err(error) if !std::mem::replace(&mut self.failing, true) => warn!(
                "cannot write the number of the last report to the state directory: {error}. Reports go on; if weir \
                 restarts now, it uses some numbers again, with other ids"
            ),
            _ => {}
        }
    }
}

/// The contents of the file, if it exists.
fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match plain_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // For example, the path is a directory, so weir did not write it.
        Err(error) if matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput) => {
            return Ok(Some(String::new()));
        }
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn parse(text: &str, observer: &str) -> Result<Last, Unusable> {
    let StateFile { schema, id, seq } = serde_json::from_str(text).map_err(|_| Unusable::Torn)?;
    if schema != SCHEMA {
        return Err(Unusable::Format(schema));
    }
    let number =
        id.strip_prefix(observer).and_then(|rest| rest.strip_prefix('/')).and_then(|rest| rest.split_once('/'));
    match number {
        Some((_, number)) if number == seq.to_string() && (1..SEQ_MAX).contains(&seq) => Ok(Last { seq, id }),
        _ => Err(Unusable::Foreign(id)),
    }
}

/// Writes the file atomically: after a crash at any instant it is the old one or the new one, never a part of one.
fn write(directory: &Path, Last { seq, id }: &Last) -> io::Result<()> {
    let kept = StateFile { schema: SCHEMA.to_owned(), id: id.clone(), seq: *seq };
    let mut line = serde_json::to_vec(&kept)?;
    line.push(b'\n');
    let unfinished = directory.join(UNFINISHED);
    let mut file = plain_file::replace(&unfinished, 0o600)?;
    file.write_all(&line)?;
    file.sync_all()?;
    fs::rename(&unfinished, directory.join(KEPT))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    const OBSERVER: &str = "7f3c9a52";

    fn last(seq: u64) -> Last {
        Last { seq, id: format!("{OBSERVER}/b41d/{seq}") }
    }

    /// A new directory, removed on drop.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-state-{}-{name}", process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// The lock ends with the thread, which ends soon after its state.
    fn when_free(directory: &Directory) -> (LastReportFile, Option<Last>) {
        loop {
            match LastReportFile::open(&directory.0, OBSERVER) {
                Ok((Some(state), last)) => return (state, last),
                _ => thread::yield_now(),
            }
        }
    }

    #[test]
    fn the_last_report_is_known_after_a_restart() {
        let directory = Directory::new("restart");
        let (mut state, known) = when_free(&directory);
        assert_eq!(known, None, "nothing was kept yet");
        for seq in 1..=3 {
            state.keep(last(seq));
            // It is written at once, not when the daemon ends, which may be killed.
            assert_eq!(parse(&read(&directory.0.join(KEPT)).unwrap().unwrap(), OBSERVER), Ok(last(seq)));
        }
        assert!(!state.failing && !directory.0.join(UNFINISHED).exists());
        drop(state);
        assert_eq!(when_free(&directory).1, Some(last(3)));
    }

    #[test]
    fn two_daemons_do_not_share_a_directory() {
        let directory = Directory::new("two");
        let (mut state, _) = when_free(&directory);
        state.keep(last(7));
        let why = LastReportFile::open(&directory.0, OBSERVER).unwrap_err();
        assert!(why.to_string().contains(&format!("the weir with process id {}", process::id())), "{why}");
    }

    #[test]
    fn a_torn_or_foreign_file_is_replaced() {
        let whole = serde_json::to_string(&StateFile { schema: SCHEMA.into(), id: last(42).id, seq: 42 }).unwrap();
        assert_eq!(parse(&whole, OBSERVER), Ok(last(42)));
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length], OBSERVER), Err(Unusable::Torn), "{length} of {} bytes", whole.len());
        }
        let kept = |schema: &str, id: &str, seq| {
            let kept = StateFile { schema: schema.into(), id: id.into(), seq };
            parse(&serde_json::to_string(&kept).unwrap(), OBSERVER)
        };
        assert_eq!(kept("weir.state/2", "7f3c9a52/b41d/42", 42), Err(Unusable::Format("weir.state/2".into())));
        let foreign = [
            ("11111111/b41d/42", 42),
            ("7f3c9a52/b41d/41", 42),
            ("7f3c9a52/42", 42),
            ("7f3c9a52/b41d/0", 0),
            ("7f3c9a52/b41d/9007199254740992", SEQ_MAX),
        ];
        for (id, seq) in foreign {
            assert_eq!(kept(SCHEMA, id, seq), Err(Unusable::Foreign(id.into())));
        }
        let directory = Directory::new("torn");
        for content in [&b""[..], b"\0\0\0\0", b"{\"schema\"", b"\xff\xfe", &[b'x'; 3 * BYTES_MAX as usize]] {
            fs::write(directory.0.join(KEPT), content).unwrap();
            let (mut state, known) = when_free(&directory);
            assert_eq!(known, None);
            state.keep(last(1));
            drop(state);
            assert_eq!(when_free(&directory).1, Some(last(1)), "after {} bytes of something else", content.len());
        }
    }

    #[test]
    fn weir_goes_on_if_the_directory_cannot_be_used() {
        let directory = Directory::new("unusable");
        assert!(matches!(
            LastReportFile::take(&directory.0.join("missing"), OBSERVER),
            Err(LockError::System { what: "open", .. })
        ));
        fs::create_dir(directory.0.join(KEPT)).unwrap();
        let (mut state, known) = when_free(&directory);
        assert_eq!(known, None);
        state.keep(last(1));
        assert!(state.failing, "a directory is in the place of the file");
        fs::remove_dir(directory.0.join(KEPT)).unwrap();
        state.keep(last(2));
        assert!(!state.failing, "the disk has room again");
        drop(state);
        assert_eq!(when_free(&directory).1, Some(last(2)));
    }

    #[test]
    fn a_hanging_disk_delays_one_report_and_later_gets_the_newest() {
        let (orders, waiting) = bounded(1);
        let (answers, written) = bounded(1);
        let mut state = LastReportFile { orders, waiting: waiting.clone(), written, hangs: false, failing: false };
        for seq in 1..=100 {
            state.keep(last(seq));
            assert!(state.hangs && state.failing, "report {seq}");
        }
        assert_eq!(waiting.try_recv(), Ok(last(100)));
        answers.send((100, Ok(()))).unwrap();
        let disk = thread::spawn(move || {
            let last: Last = waiting.recv().unwrap();
            answers.send((last.seq, Ok(()))).unwrap();
            last
        });
        state.keep(last(101));
        assert!(!state.hangs && !state.failing, "it answers again");
        assert_eq!(disk.join().unwrap(), last(101));
    }
}
