//! Opens files with names.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use rustix::fs::OFlags;

use crate::plain_file::{open_by_own_links, regular};

/// Opens a file for reading. Refuses a pipe, because weir would wait for its writer. Does not follow another user's
/// link: messages about mistakes in the file would reveal content that this user may not read.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a pipe must not block.
    regular(open_by_own_links(path, OpenOptions::new().read(true), OFlags::NONBLOCK)?)
}
