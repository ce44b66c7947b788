//! Reports to standard output: one line of JSON each or, for people at a terminal, one screen.

use std::{
    fs,
    io::{self, IsTerminal},
    os::fd::{AsFd, OwnedFd},
};

use weir_schema::{FromJson, Report, Style, write_overview};

use weir_system::text::escape_json;

use super::{DeliveryError, Sink, write_line};
use crate::spool::Item;

/// A hint on how to see more than fits one screen.
const MORE: &str = "live: weir top   all of it: weir report --full";

/// Standard output without a buffer: a delivered report has been written.
#[derive(Debug)]
pub struct Stdout {
    out: fs::File,
    torn: bool,
    /// True for a terminal: a closed terminal gives a different error than a closed pipe.
    is_terminal: bool,
    /// True if reports are shown as tables.
    has_tables: bool,
}

impl Stdout {
    /// The process's standard output, with tables or JSON.
    ///
    /// # Errors
    /// The process was started without one, or has no file descriptor left.
    pub fn new(has_tables: bool) -> io::Result<Self> {
        let out = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self { has_tables, ..Self::from(out) })
    }
}

impl From<OwnedFd> for Stdout {
    fn from(out: OwnedFd) -> Self {
        let out = fs::File::from(out);
        Self { is_terminal: out.is_terminal(), out, torn: false, has_tables: false }
    }
}

impl Stdout {
    /// A report as one screen.
    fn screen(&self, line: &[u8]) -> io::Result<Vec<u8>> {
        let report = Report::from_json(line)?;
        let style = Style::of_terminal(&self.out, self.is_terminal);
        let mut screen = Vec::new();
        write_overview(&report, style, MORE, &mut screen)?;
        screen.push(b'\n');
        Ok(screen)
    }

    /// The bytes that are written for a report or tombstone.
    fn shown(&self, item: &Item) -> Vec<u8> {
        let line = &item.encoded.line;
        let screen = (self.has_tables && item.is_report).then(|| self.screen(line).ok()).flatten();
        match screen {
            Some(screen) => screen,
            // A terminal would obey characters in names, also one that is the last program of a pipe.
            None => escape_json(&String::from_utf8_lossy(line)).into_bytes(),
        }
    }

    /// Returns true if nothing can read the output any more, because the reader of the pipe or the terminal is gone.
    fn is_gone(&self, error: &io::Error) -> bool {
        let hung_up = rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::IO);
        error.kind() == io::ErrorKind::BrokenPipe || self.is_terminal && hung_up
    }
}

impl Sink for Stdout {
    fn name(&self) -> String {
        "stdout".to_owned()
    }

    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError> {
        let mut write = |item: &Item| {
            let shown = self.shown(item);
            write_line(&mut self.out, &mut self.torn, &shown)
        };
        batch.iter().try_for_each(&mut write).map_err(|error| {
            let message = format!("cannot write to standard output: {error}");
            match self.is_gone(&error) {
                true => DeliveryError::Closed(message),
                false => DeliveryError::unavailable(message),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::{super::tests::parcels, *};

    #[test]
    fn a_report_is_out_when_it_is_delivered() {
        let (reader, writer) = io::pipe().unwrap();
        let mut stdout = Stdout::from(OwnedFd::from(writer));
        let mut lines = BufReader::new(reader).lines();
        for seq in [1, 2] {
            // The golden report is smaller than a pipe's buffer, so this cannot block.
            let report = parcels([seq]);
            stdout.deliver(&report).unwrap();
            assert_eq!(lines.next().unwrap().unwrap().as_bytes(), report[0].encoded.line.trim_ascii_end());
        }
    }

    #[test]
    fn a_pipe_gets_no_character_that_a_terminal_obeys() {
        let (reader, writer) = io::pipe().unwrap();
        let mut items = parcels([1]);
        let line = "{\"name\":\"\u{9b}\u{202e}\u{7f}Z\u{fc}rich\"}\n";
        items[0].encoded.line = line.as_bytes().into();
        Stdout::from(OwnedFd::from(writer)).deliver(&items).unwrap();
        let text = io::read_to_string(reader).unwrap();
        assert_eq!(text, "{\"name\":\"\\u009b\\u202e\\u007fZ\u{fc}rich\"}\n");
        let [before, after] = [line, &text].map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn people_get_a_screen_and_tombstones_stay_as_they_are() {
        let (reader, writer) = io::pipe().unwrap();
        let mut stdout = Stdout { has_tables: true, ..Stdout::from(OwnedFd::from(writer)) };
        let mut items = parcels([1, 2]);
        items[1].is_report = false;
        stdout.deliver(&items).unwrap();
        drop(stdout);
        let text = io::read_to_string(reader).unwrap();
        let (screen, line) = text.trim_end().rsplit_once('\n').unwrap();
        assert!(screen.contains("TRAFFIC   729.9 Mbit/s") && screen.contains("weir top"), "{screen}");
        assert_eq!(line.as_bytes(), items[1].encoded.line.trim_ascii_end());
    }

    #[test]
    fn a_closed_pipe_closes_the_sink() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let error = Stdout::from(OwnedFd::from(writer)).deliver(&parcels([1])).unwrap_err();
        assert!(matches!(&error, DeliveryError::Closed(message) if message.contains("standard output")), "{error:?}");
    }
}
