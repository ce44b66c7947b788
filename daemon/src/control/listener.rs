//! The socket in the file system. No other user can open it at any moment, and it is removed at the end.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use thiserror::Error;
use weir_system::plain_file;

/// Owner and group may talk to weir.
const MODE: u32 = 0o660;

/// Why there is no socket.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Another weir listens there.
    #[error("another weir uses it: name another file with `control: {{socket: PATH}}`, or `socket: none`")]
    InUse,
    /// The file is not a socket.
    #[error(
        "there is already a file that is not a socket: remove it, or name another with `control: {{socket: PATH}}`"
    )]
    NoSocket,
    /// The system refuses it.
    #[error(
        "{0}: name a file in a directory that weir may write to, with `control: {{socket: PATH}}`, or `socket: none`"
    )]
    System(#[from] io::Error),
}

/// The directory of a socket, if it was created for it. It is removed on drop.
#[derive(Debug)]
pub struct Directory(Option<PathBuf>);

impl Directory {
    /// Creates the directory for a socket if it is missing. If that fails, opening the socket reports it.
    pub fn provide(socket: Option<&Path>) -> Self {
        let directory = socket.and_then(Path::parent).filter(|directory| !directory.as_os_str().is_empty());
        Self(directory.filter(|directory| fs::create_dir(directory).is_ok()).map(Path::to_owned))
    }

    /// The directory, if it was created.
    pub fn made(&self) -> Option<&Path> {
        self.0.as_deref()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Fails if the directory is not empty.
        if let Some(directory) = &self.0 {
            drop(fs::remove_dir(directory));
        }
    }
}

/// The listening socket; removes its file on drop.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    inode: u64,
}

impl Listener {
    /// Creates the socket. Replaces a socket that a killed weir left.
    ///
    /// # Errors
    ///
    /// Another weir listens there, or it cannot be created.
    pub fn open(path: &Path) -> Result<Self, ListenError> {
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => return Err(ListenError::NoSocket),
            Ok(_) if UnixStream::connect(path).is_ok() => return Err(ListenError::InUse),
            _ => {}
        }
        // The socket has a temporary name until its mode is set.
        let mut made = path.as_os_str().to_owned();
        made.push(format!(".{}", std::process::id()));
        let made = PathBuf::from(made);
        let _ = fs::remove_file(&made);
        let socket = UnixListener::bind(&made)?;
        let finish = || {
            let inode = plain_file::permit_socket(&made, MODE)?;
            socket.set_nonblocking(true)?;
            fs::rename(&made, path).map(|()| inode)
        };
        match finish() {
            Ok(inode) => Ok(Self { socket, path: path.to_owned(), inode }),
            Err(error) => {
                let _ = fs::remove_file(&made);
                Err(error.into())
            }
        }
    }

    /// Returns the socket, which does not block.
    pub const fn socket(&self) -> &UnixListener {
        &self.socket
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another weir may have replaced this one.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_for_owner_and_group_and_is_removed_at_the_end() {
        let directory = std::env::temp_dir().join(format!("weir-listener-{}", std::process::id()));
        let path = directory.join("control.sock");
        let made = Directory::provide(Some(&path));
        assert_eq!(made.made(), Some(directory.as_path()));
        drop((Listener::open(&path).unwrap(), made));
        assert!(!directory.exists(), "the directory that was created for it is removed");
        fs::create_dir(&directory).unwrap();
        assert_eq!(Directory::provide(Some(&path)).made(), None, "an existing directory stays");
        let listener = Listener::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert!(UnixStream::connect(&path).is_ok());
        assert!(matches!(Listener::open(&path), Err(ListenError::InUse)), "a second weir does not replace it");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "and leaves no other file");
        drop(listener);
        assert!(!path.exists());

        // Only the socket of a killed weir is replaced.
        drop(UnixListener::bind(&path).unwrap());
        let second = Listener::open(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::open(&path), Err(ListenError::NoSocket)));
        drop(second);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "a foreign file stays");
        let missing = directory.join("no/such/control.sock");
        assert_eq!(
            Directory::provide(Some(&missing)).made(),
            None,
            "only the last directory is created, not its parents"
        );
        assert!(matches!(Listener::open(&missing), Err(ListenError::System(_))));
        fs::remove_dir_all(&directory).unwrap();
    }
}
