//! Writes lines to the log if there is room for them.
//!
//! A full pipe must not delay the end of a window. So a line that does not fit is dropped and counted, and the next
//! line that fits is preceded by that count.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, PoisonError},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::Level;

use super::format::Style;

/// A pipe that is ready for writing has room for at least this many bytes: a page (pipe(7), `PIPE_BUF`).
const ROOM: usize = 4096;

/// Writes whole lines to a file, and never blocks.
#[derive(Debug)]
pub struct Log<F>(Mutex<Lines<F>>);

#[derive(Debug)]
struct Lines<F> {
    file: F,
    style: Style,
    dropped: u64,
}

impl<F: AsFd> Log<F> {
    /// Creates a log that writes to `file`. Its own messages use this style.
    pub const fn new(file: F, style: Style) -> Self {
        Self(Mutex::new(Lines { file, style, dropped: 0 }))
    }

    /// Writes one or more complete lines, if there is room.
    pub fn line(&self, line: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(line.as_bytes());
    }
}

impl<F: AsFd> Lines<F> {
    fn write(&mut self, line: &[u8]) {
        if self.dropped > 0 {
            let notice = format!("weir: {} lines of the log were dropped: standard error was full", self.dropped);
            let notice = self.style.told(Level::WARN, &notice);
            if !write_where_it_fits(self.file.as_fd(), notice.as_bytes()) {
                self.dropped += 1;
                return;
            }
            self.dropped = 0;
        }
        if !write_where_it_fits(self.file.as_fd(), line) {
            self.dropped += 1;
        }
    }
}

/// Writes a line if there is room. Returns whether all of it was written, or can never be read.
fn write_where_it_fits(file: BorrowedFd<'_>, line: &[u8]) -> bool {
    line.chunks(ROOM).all(|part| {
        let mut fds = [PollFd::new(&file, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(0) => false,
            // Writing to a file that is always ready, or that cannot be polled, does not block.
            _ => rustix::io::write(file, part).map_or(true, |written| written == part.len()),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read};

    use super::*;

    #[test]
    fn a_full_pipe_does_not_block_and_dropped_lines_are_counted() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let log = Log::new(writer, Style::default());
        let line = format!("{}\n", "x".repeat(99));
        // This is ten times the default size of a pipe.
        let lines = 10 * (64 << 10) / line.len();
        for _ in 0..lines {
            log.line(&line);
        }
        let dropped = log.0.lock().unwrap().dropped;
        assert!(dropped > lines as u64 / 2, "{dropped} of {lines}");
        let mut reader = File::from(reader);
        let mut held = vec![0; 1 << 20];
        let read = reader.read(&mut held).unwrap();
        assert_eq!(read, (lines - dropped as usize) * line.len(), "only whole lines were written");
        log.line("the next\n");
        drop(log);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let notice = format!("weir: {dropped} lines of the log were dropped: standard error was full\nthe next\n");
        assert_eq!(rest, notice);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        let log = Log::new(writer, Style::default());
        for _ in 0..3 {
            log.line("nobody is there\n");
        }
        assert_eq!(log.0.lock().unwrap().dropped, 0);
    }
}
