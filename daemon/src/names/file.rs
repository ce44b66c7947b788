//! How files with names are opened.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Opens a file to read it. A pipe is refused, for weir would wait for whoever writes to it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let refused = || Err(io::Error::other("it is not a regular file"));
    if !fs::metadata(path)?.is_file() {
        return refused();
    }
    // Even if it has become a pipe meanwhile, nothing waits.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { refused() }
}
