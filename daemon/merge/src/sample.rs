//! Checks the inputs before a screen hides their problems.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use weir_system::magic::is_capture;

use crate::{
    cli,
    input::{InputError, Inputs, STDIN, unpacked},
    line::{Parsed, parse_all},
};

/// How many lines of each input are looked at.
const LINES: usize = 64;
/// The shortest window, unless another one is asked for.
const WINDOW: u64 = 60;

/// Why inputs cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// Standard input is the keyboard.
    #[error("the keyboard is standard input: name a file of reports, or the database of weir-collect, to follow")]
    Keyboard,
    /// The path does not lead to a regular file, and only such files can be followed.
    #[error("{} is not a regular file: only files of reports and databases of weir-collect can be followed", .0.display())]
    NoFile(PathBuf),
    /// It cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It has packets instead of reports.
    #[error("{} is a capture, not a file of reports: `weir top --replay {}` shows it", .0.display(), .0.display())]
    Capture(PathBuf),
    /// It has something else instead of reports.
    #[error("{} is not a file of reports: none of its first {lines} lines is one, and of the first one {why}", path.display())]
    NoReports {
        /// The path of the file.
        path: PathBuf,
        /// How many lines were looked at.
        lines: usize,
        /// Why the first one is not a report.
        why: String,
    },
    /// Reports are longer than a window.
    #[error("a window of {} is shorter than the reports of {router}: choose --window {} or longer", shown(*window), shown(*needed))]
    Short {
        /// The length of the windows.
        window: Duration,
        /// A router whose reports are longer.
        router: String,
        /// The shortest window that is long enough.
        needed: Duration,
    },
}

fn shown(window: Duration) -> String {
    cli::shown(window.as_secs())
}

/// Checks that these are reports, and returns the length of a window: the one that is asked for, or one that has room
/// for the longest report.
///
/// # Errors
///
/// What is wrong.
pub fn window(files: &[PathBuf], asked: Option<Duration>) -> Result<Duration, SampleError> {
    let mut needed = (Duration::ZERO, String::new());
    for file in files {
        needed = look_at(file)?.map_or(needed.clone(), |one| needed.max(one));
    }
    let (seconds, router) = (needed.0.as_secs_f64().ceil() as u64, needed.1);
    let Some(window) = asked else { return Ok(cli::window_of_at_least(seconds.max(WINDOW))) };
    let needed = cli::window_of_at_least(seconds);
    if window < needed { Err(SampleError::Short { window, router, needed }) } else { Ok(window) }
}

/// The longest report or sketches of a file, and the name of their router.
fn look_at(path: &Path) -> Result<Option<(Duration, String)>, SampleError> {
    if path == Path::new(STDIN) {
        return Err(SampleError::Keyboard);
    }
    let file = fs::metadata(path).map_err(|cause| InputError::Read { path: path.to_owned(), cause })?;
    if !file.is_file() {
        return Err(SampleError::NoFile(path.to_owned()));
    }
    let mut lines = Vec::new();
    let read = Inputs::new(vec![path.to_owned()]).read(&mut lines, LINES);
    let is_capture = || first_bytes(path).is_ok_and(|first| is_capture(&first));
    if !matches!(read, Err(InputError::Database { .. })) && lines.is_empty() && file.len() > 0 && is_capture() {
        return Err(SampleError::Capture(path.to_owned()));
    }
    read?;
    let (mut longest, mut why, count) = (None, None, lines.len());
    for parsed in parse_all(&lines) {
        match parsed {
            Parsed::Report(report) => longest = longest.max(Some((report.longest(), report.sender.name))),
            Parsed::Tombstone(_) => longest = longest.max(Some(<_>::default())),
            Parsed::Unreadable(reason) => why = why.or(Some(reason)),
        }
    }
    match why {
        Some(_) if longest.is_none() && is_capture() => Err(SampleError::Capture(path.to_owned())),
        Some(why) if longest.is_none() => Err(SampleError::NoReports { path: path.to_owned(), lines: count, why }),
        _ => Ok(longest),
    }
}

/// The first bytes of a file that may be compressed.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut first = Vec::new();
    unpacked(BufReader::new(File::open(path)?))?.take(4).read_to_end(&mut first)?;
    Ok(first)
}
