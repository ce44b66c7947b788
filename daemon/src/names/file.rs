//! How files with names are opened.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Opens a file to read it. A pipe is refused, for weir would wait for whoever writes to it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}
