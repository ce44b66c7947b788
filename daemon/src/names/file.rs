//! How files with names are opened.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use rustix::fs::OFlags;

use crate::plain_file::{open_by_own_links, regular};

/// Opens a file to read it. A pipe is refused, for weir would wait for whoever writes to it, and a link of another user
/// is not followed: what weir says of mistakes in a file would show what is in the one that he may not read.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Nothing waits for a pipe.
    regular(open_by_own_links(path, OpenOptions::new().read(true), OFlags::NONBLOCK)?)
}
