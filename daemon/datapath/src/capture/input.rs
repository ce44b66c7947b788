//! Sources of captures: files and standard input.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    rc::Rc,
};

/// The path that means standard input.
const STDIN: &str = "-";

/// The raw bytes of a capture file, counted to show the progress.
pub struct Input {
    reader: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Input {
    /// Opens a file, or standard input. The bytes read from it are added to `read`.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub(super) fn open(path: &Path, read: &Rc<Cell<u64>>) -> io::Result<Self> {
        let reader: Box<dyn Read> =
            if is_stdin(path) { Box::new(io::stdin().lock()) } else { Box::new(File::open(path)?) };
        Ok(Self { reader, read: read.clone() })
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(into)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// Returns true if this path means standard input.
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// The name of this input in messages and reports.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The total number of bytes to read; `None` if unknown.
pub fn size(files: &[PathBuf]) -> Option<u64> {
    files.iter().map(|file| size_of_file(file)).sum()
}

/// Returns true if a file can be reopened with the same content.
pub(super) fn can_be_read_again(path: &Path) -> bool {
    size_of_file(path).is_some()
}

fn size_of_file(path: &Path) -> Option<u64> {
    let is_file = |metadata: &std::fs::Metadata| !is_stdin(path) && metadata.is_file();
    path.metadata().ok().filter(is_file).map(|metadata| metadata.len())
}
