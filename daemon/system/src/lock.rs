//! Folders that only one weir may use at a time.

use std::{
    fs::{File, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process,
};

use thiserror::Error;

use crate::plain_file;

/// A process id has fewer digits than this.
const PID_DIGITS: u64 = 20;

/// Why a folder cannot be locked.
#[derive(Debug, Error)]
pub enum LockError {
    /// Another process uses it.
    #[error(
        "{} is in use by {}: two of them cannot share it. Stop that one, or give this one another folder",
        .path.display(), holder(*.pid)
    )]
    Taken {
        /// The folder that is in use.
        path: PathBuf,
        /// The other process, if it has written its id.
        pid: Option<u32>,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another weir".to_owned(), |pid| format!("the weir with process id {pid}"))
}

/// A lock on a folder for the life of this process. The kernel releases it when the process ends for any reason.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock ends when the file is closed")] File);

impl Lock {
    /// Locks a folder by locking the file `name` in it, and writes the process id there.
    ///
    /// # Errors
    ///
    /// Another process uses it, or a system call failed.
    pub fn take(folder: &Path, name: &str) -> Result<Self, LockError> {
        let path = folder.join(name);
        let failed = |what| {
            let path = path.clone();
            move |error| LockError::System { what, path, error }
        };
        let mut writer = plain_file::open_or_create(&path, 0o600).map_err(failed("open"))?;
        // The descriptor that stays open is read-only, because the disk may later be remounted read-only.
        let mut file = plain_file::open(&path).map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Taken { path: folder.to_owned(), pid: read_pid(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        // The process id is only a hint, so an error here does not matter.
        let _ = writer.set_len(0).and_then(|()| writeln!(writer, "{}", process::id()));
        Ok(Self(file))
    }

    /// Returns true if a process uses this folder now.
    pub fn is_taken(folder: &Path, name: &str) -> bool {
        plain_file::open(&folder.join(name))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(PID_DIGITS).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_learns_which_one_has_the_folder() {
        let folder = std::env::temp_dir().join(format!("weir-lock-{}", process::id()));
        std::fs::create_dir(&folder).unwrap();
        assert!(!Lock::is_taken(&folder, "lock"));
        let first = Lock::take(&folder, "lock").unwrap();
        assert!(Lock::is_taken(&folder, "lock"));
        let why = Lock::take(&folder, "lock").unwrap_err().to_string();
        assert!(why.contains(&format!("the weir with process id {}", process::id())), "{why}");
        drop(first);
        let next = Lock::take(&folder, "lock");
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(next.is_ok(), "{next:?}");
    }
}
