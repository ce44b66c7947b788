//! Opens files in folders where other users may write. The owner of a folder can replace each file in it by a link or a
//! pipe at any time. weir, which may be root, must not read or write through such links and pipes.
//!
//! Only the file itself, or the opened folder, is checked. A user who can replace a parent folder can still choose its
//! place.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, ErrorKind},
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, open as open_by, openat, readlinkat},
    io::Errno,
    process::geteuid,
};

/// These flags prevent following a link and blocking on a pipe.
const PLAIN: i32 = OFlags::NONBLOCK.union(OFlags::NOFOLLOW).bits() as i32;
/// The most links in a chain, as in Linux.
const LINKS_MAX: usize = 40;

/// Opens a file for reading.
///
/// # Errors
///
/// It is a link or not a regular file, or the system refused.
pub fn open(path: &Path) -> io::Result<File> {
    regular(OpenOptions::new().read(true).custom_flags(PLAIN).open(path)?)
}

/// Opens a file for writing, and creates it if it is missing.
///
/// # Errors
///
/// See [`open`].
pub fn open_or_create(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false).mode(mode).custom_flags(PLAIN);
    regular(options.open(path)?)
}

/// Opens a file for appending, and creates it if it is missing.
///
/// # Errors
///
/// See [`open`].
pub fn append(path: &Path, mode: u32) -> io::Result<File> {
    regular(OpenOptions::new().create(true).append(true).mode(mode).custom_flags(PLAIN).open(path)?)
}

/// Creates a file that does not exist yet.
///
/// # Errors
///
/// The name is taken, or the system refused.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    // With `create_new` the kernel does not follow a link.
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)
}

/// Creates a new file in place of any file with the same name, whether weir or another user created that file.
///
/// # Errors
///
/// The system refused, or a file of this name was created at the same moment.
pub fn replace(path: &Path, mode: u32) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => create(path, mode),
    }
}

/// Opens a file and follows links if root or this user created each of them. `options` are for the file itself.
///
/// # Errors
///
/// A link belongs to another user, or the system refused.
pub fn open_by_own_links(path: &Path, options: &OpenOptions, flags: OFlags) -> io::Result<File> {
    let mut options = options.clone();
    options.custom_flags((flags | OFlags::NOFOLLOW).bits() as i32);
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match options.open(&path) {
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => path = follow(&path)?,
            opened => return opened,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Opens a file for reading. Refuses a pipe, because weir would wait for its writer. Does not follow another user's
/// link: messages about mistakes in the file would reveal content that this user may not read.
///
/// # Errors
///
/// Those of [`open_by_own_links`], or it is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a pipe must not block.
    regular(open_by_own_links(path, OpenOptions::new().read(true), OFlags::NONBLOCK)?)
}

/// Opens a folder, to read it and to open files in it. Follows links like [`open_by_own_links`].
///
/// # Errors
///
/// A link belongs to another user, it is not a folder, or the system refused.
pub fn open_folder(path: &Path) -> io::Result<File> {
    // With O_DIRECTORY the error would not distinguish a link from a file.
    folder(open_by_own_links(path, OpenOptions::new().read(true), OFlags::NONBLOCK)?)
}

/// Opens a folder in another one, without following links.
///
/// # Errors
///
/// It is a link, it is not a folder, or the system refused.
pub fn open_folder_in(above: &File, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(above, name, flags, Mode::empty()) {
        Err(Errno::LOOP) => Err(io::Error::new(ErrorKind::PermissionDenied, "it is a link: weir does not follow it")),
        opened => folder(opened?.into()),
    }
}

fn folder(file: File) -> io::Result<File> {
    if file.metadata()?.is_dir() { Ok(file) } else { Err(ErrorKind::NotADirectory.into()) }
}

/// Returns true if this is a link that another user created. weir does not follow such a link.
pub fn is_foreign_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink() && !is_own(found.uid()))
}

fn is_own(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// Returns the file if it has no other name. With another name, weir might read or write another user's file.
///
/// # Errors
///
/// The file has hard links.
pub fn with_one_name(file: File) -> io::Result<File> {
    let links = file.metadata()?.nlink();
    if links > 1 {
        let why = format!(
            "it has {links} names (hard links), so it may be another user's file: remove it, or the other names \
             (`find -samefile`)"
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    Ok(file)
}

/// Opens a reference to the file at this path, which may be a link or a socket, without opening the file itself.
///
/// This does not use `OpenOptions`, because with musl they ignore the flag `O_PATH`.
fn place(path: &Path) -> io::Result<File> {
    Ok(open_by(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// The target of a link.
fn follow(link: &Path) -> io::Result<PathBuf> {
    let place = place(link)?;
    let owner = place.metadata()?.uid();
    if !is_own(owner) {
        let why = format!("it is a link that another user has made (user id {owner}): weir does not follow it");
        return Err(io::Error::new(ErrorKind::PermissionDenied, why));
    }
    // An empty path means the descriptor itself.
    let target = readlinkat(&place, "", Vec::new())?;
    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
    Ok(link.parent().unwrap_or(Path::new("")).join(target))
}

/// Sets the mode of a socket in the file system, and returns its inode number.
///
/// # Errors
///
/// It is not a socket, or the system refused.
pub fn permit_socket(path: &Path, mode: u32) -> io::Result<u64> {
    let place = place(path)?;
    let metadata = place.metadata()?;
    if !metadata.file_type().is_socket() {
        return Err(io::Error::other("it is not a socket any more"));
    }
    // Use the descriptor's own path, because the original path may have been replaced by a link.
    fs::set_permissions(format!("/proc/self/fd/{}", place.as_raw_fd()), Permissions::from_mode(mode))?;
    Ok(metadata.ino())
}

/// Returns the file if it is a regular one.
///
/// # Errors
///
/// It is something else: a pipe, a folder, a device.
pub fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    let other = if kind.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidInput };
    if kind.is_file() { Ok(file) } else { Err(io::Error::new(other, "it is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        io::{Read, Write},
        os::unix::{fs::symlink, net::UnixListener},
        process,
    };

    use super::*;

    /// A temporary folder with a file `secret`, and a link and a pipe in place of other files.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = env::temp_dir().join(format!("weir-plain-file-{name}-{}", process::id()));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("secret"), "secret").unwrap();
            symlink("secret", folder.join("link")).unwrap();
            rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe"), Mode::RWXU).unwrap();
            Self(folder)
        }

        fn secret(&self) -> String {
            fs::read_to_string(self.0.join("secret")).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn links_and_pipes_are_neither_read_nor_written() {
        let folder = Folder::new("open");
        for name in ["link", "pipe"] {
            let path = folder.0.join(name);
            assert!(open(&path).is_err() && open_or_create(&path, 0o600).is_err() && create(&path, 0o600).is_err());
        }
        let mut text = String::new();
        open(&folder.0.join("secret")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), folder.secret().as_str()), ("secret", "secret"));
    }

    #[test]
    fn a_new_file_replaces_a_link_and_not_its_target() {
        let folder = Folder::new("replace");
        for name in ["link", "pipe", "new"] {
            let path = folder.0.join(name);
            replace(&path, 0o600).unwrap().write_all(b"mine").unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read_to_string(path).unwrap(), "mine");
        }
        assert_eq!(folder.secret(), "secret");
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let folder = Folder::new("own");
        let append = |name: &str| {
            let mut options = OpenOptions::new();
            open_by_own_links(&folder.0.join(name), options.append(true).create(true), OFlags::empty())
        };
        append("link").unwrap().write_all(b", and more").unwrap();
        assert_eq!(folder.secret(), "secret, and more");
        symlink("link", folder.0.join("second")).unwrap();
        append("second").unwrap().write_all(b", twice").unwrap();
        symlink("later", folder.0.join("to-nothing-yet")).unwrap();
        append("to-nothing-yet").unwrap();
        assert!(folder.0.join("later").is_file());
        symlink("round", folder.0.join("round")).unwrap();
        assert_eq!(append("round").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        // Only root can create a link of another user.
        if std::os::unix::fs::lchown(folder.0.join("second"), Some(12_345), None).is_ok() {
            let refused = append("second").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("user id 12345"), "{refused}");
        }
        assert_eq!(folder.secret(), "secret, and more, twice");
    }

    #[test]
    fn only_a_socket_is_made_accessible() {
        let folder = Folder::new("socket");
        let mode = |name: &str| fs::metadata(folder.0.join(name)).unwrap().mode() & 0o7777;
        let before = mode("secret");
        let _listener = UnixListener::bind(folder.0.join("socket")).unwrap();
        permit_socket(&folder.0.join("socket"), 0o620).unwrap();
        assert_eq!(mode("socket"), 0o620);
        for name in ["link", "secret"] {
            assert!(permit_socket(&folder.0.join(name), 0o777).is_err());
        }
        assert_eq!(mode("secret"), before);
    }
}
