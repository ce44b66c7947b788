//! The file in which horizons and known hosts outlive a restart, with the local key that they are made with.
//!
//! It is `local` in the folder of the history, and only weir's user may read it. A thread replaces it every quarter of
//! an hour and at the end, so that no other thread waits for the disk and flash wears out slowly. After a crash it is
//! what it was a quarter of an hour ago.
//!
//! ```text
//!  0  8  "weirloc1"
//!  8  8  the observer
//! 16  8  when it was written, in milliseconds since 1970
//! 24  8  length of the content
//! 32  4  CRC-32 (IEEE) of everything else
//! 36     content: that of `weir_measure::local`
//! ```

use std::{
    fs,
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, bounded};
use jiff::Timestamp;
use thiserror::Error;
use tracing::warn;
use weir_system::{clock, plain_file, privileges, sandbox};

use crate::{block, disk, writes::Writes};

const NAME: &str = "local";
/// The name of the file while it is written.
const UNFINISHED: &str = "local-unfinished";
const MAGIC: [u8; 8] = *b"weirloc1";
const HEAD: usize = 36;
/// The largest size of the file, in bytes: four horizons and the largest filter take less.
const FILE_MAX: u64 = 64 << 20;
/// How often it is written.
const WRITTEN_EVERY: Duration = Duration::from_secs(15 * 60);
/// How long a stopping weir waits for the disk.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why the content of a file is not used.
#[derive(Debug, Error)]
enum Unusable {
    #[error("{0}")]
    System(#[from] io::Error),
    #[error("it is not a file of this kind, or of a later version of weir")]
    Kind,
    #[error("it is of another weir")]
    Observer,
    #[error("it is damaged")]
    Damaged,
}

/// The file.
#[derive(Clone, Debug)]
pub struct LocalFile {
    folder: PathBuf,
    observer: String,
}

/// What an earlier weir has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// When it was written.
    pub time: Timestamp,
    /// What was written.
    pub content: Vec<u8>,
}

impl LocalFile {
    /// The file in this folder of a history, for this observer.
    pub fn new(folder: &Path, observer: &str) -> Self {
        Self { folder: folder.to_owned(), observer: observer.to_owned() }
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// What an earlier weir has written. `None` if there is nothing, or nothing that can be used, which is logged.
    pub fn read(&self) -> Option<Written> {
        match self.read_checked() {
            Ok(written) => Some(written),
            Err(Unusable::System(error)) if error.kind() == ErrorKind::NotFound => None,
            Err(why) => {
                self.refuse(&why);
                None
            }
        }
    }

    /// Logs that what it has is not used, for this reason. It is replaced later.
    pub fn refuse(&self, why: &dyn std::error::Error) {
        warn!("{}: {why}: horizons and known hosts begin anew, with a new local key", self.path().display());
    }

    fn read_checked(&self) -> Result<Written, Unusable> {
        let mut bytes = Vec::new();
        plain_file::open(&self.path())?.take(FILE_MAX).read_to_end(&mut bytes)?;
        let Some((head, content)) = bytes.split_at_checked(HEAD) else { return Err(Unusable::Damaged) };
        let word = |at: usize| head[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        if head[..8] != MAGIC {
            return Err(Unusable::Kind);
        }
        if word(24) != content.len() as u64 || head[32..] != checksum(head, content).to_le_bytes() {
            return Err(Unusable::Damaged);
        }
        if head[8..16] != block::name(&self.observer) {
            return Err(Unusable::Observer);
        }
        let time = Timestamp::from_millisecond(word(16).cast_signed()).map_err(|_| Unusable::Damaged)?;
        Ok(Written { time, content: content.to_vec() })
    }

    /// Replaces the file. After a crash it is either the old one or the new one.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn write(&self, time: Timestamp, content: &[u8]) -> io::Result<()> {
        let mut head = Vec::with_capacity(HEAD);
        head.extend(MAGIC);
        head.extend(block::name(&self.observer));
        head.extend(time.as_millisecond().to_le_bytes());
        head.extend((content.len() as u64).to_le_bytes());
        head.extend(checksum(&head, content).to_le_bytes());
        disk::create(&self.folder)?;
        let unfinished = self.folder.join(UNFINISHED);
        let mut file = plain_file::replace(&unfinished, 0o600)?;
        file.write_all(&head)?;
        file.write_all(content)?;
        // Otherwise a power cut may leave an empty file under the new name.
        file.sync_all()?;
        fs::rename(unfinished, self.path())
    }
}

/// The checksum of the head up to itself, and of the content.
fn checksum(head: &[u8], content: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&head[..HEAD - 4]);
    sum.update(content);
    sum.finalize()
}

/// Writes the file of a running weir.
#[derive(Debug)]
pub struct LocalWriter {
    contents: Option<Sender<(Timestamp, Vec<u8>)>>,
    ended: Receiver<()>,
    /// When to write next, on the monotonic clock.
    due: Duration,
}

impl LocalWriter {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(file: LocalFile) -> io::Result<Self> {
        let (contents, to_write) = bounded::<(Timestamp, Vec<u8>)>(1);
        let (end, ended) = bounded(1);
        thread::Builder::new().name("weir-local".to_owned()).spawn(move || {
            privileges::give_up_all_but_files();
            sandbox::pass();
            let meaning = "A restart loses what is not written";
            let mut writes = Writes::new("file of horizons and known hosts", &file.folder, meaning);
            for (time, content) in to_write {
                writes.note(file.write(time, &content));
            }
            let _ = end.send(());
        })?;
        Ok(Self { contents: Some(contents), ended, due: clock::now().monotonic + WRITTEN_EVERY })
    }

    /// Has the content written if that is due. It does not wait: if the disk has not finished with the last content, it
    /// tries again in the next window.
    pub fn offer(&mut self, content: impl FnOnce() -> Vec<u8>) {
        let now = clock::now();
        let Some(contents) = self.contents.as_ref().filter(|contents| now.monotonic >= self.due && !contents.is_full())
        else {
            return;
        };
        if contents.try_send((now.wall, content())).is_ok() {
            self.due = now.monotonic + WRITTEN_EVERY;
        }
    }

    /// Has the last content written, and waits a while for that.
    pub fn end(mut self, content: Vec<u8>) {
        if let Some(contents) = self.contents.take() {
            let is_taken = contents.send_timeout((clock::now().wall, content), PATIENCE).is_ok();
            drop(contents);
            if !is_taken || self.ended.recv_timeout(PATIENCE).is_err() {
                warn!("the disk does not answer: horizons and known hosts of the last minutes are lost");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-local-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_written_is_read_again_by_the_same_observer_alone() {
        let folder = Folder::new("file");
        let file = LocalFile::new(&folder.0, "7f3c9a52");
        assert_eq!(file.read(), None);
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        for content in [&b"one"[..], b"", &[7; 100_000]] {
            file.write(time, content).unwrap();
            assert_eq!(file.read(), Some(Written { time, content: content.to_vec() }));
        }
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(LocalFile::new(&folder.0, "00000000").read(), None);
    }

    #[test]
    fn any_damage_is_noticed() {
        let folder = Folder::new("damage");
        let file = LocalFile::new(&folder.0, "7f3c9a52");
        file.write(Timestamp::UNIX_EPOCH, b"the content").unwrap();
        let bytes = fs::read(file.path()).unwrap();
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 16;
            fs::write(file.path(), damaged).unwrap();
            assert_eq!(file.read(), None, "{place}");
            fs::write(file.path(), &bytes[..place]).unwrap();
            assert_eq!(file.read(), None, "torn after {place}");
        }
        fs::write(file.path(), [&bytes[..], b"x"].concat()).unwrap();
        assert_eq!(file.read(), None);
        fs::write(file.path(), bytes).unwrap();
        assert!(file.read().is_some());
    }
}
