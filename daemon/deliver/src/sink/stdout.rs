//! Reports to standard output, one line each.

use std::{
    fs,
    io::{self, IsTerminal},
    os::fd::{AsFd, OwnedFd},
};

use super::{DeliveryError, Sink, write_line};
use crate::spool::Item;

/// Standard output without a buffer: a delivered report has been written.
#[derive(Debug)]
pub struct Stdout {
    out: fs::File,
    torn: bool,
    /// A closed terminal gives an error of its own.
    is_terminal: bool,
}

impl Stdout {
    /// The process's standard output.
    ///
    /// # Errors
    /// The process was started without one, or has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        io::stdout().as_fd().try_clone_to_owned().map(Self::from)
    }
}

impl From<OwnedFd> for Stdout {
    fn from(out: OwnedFd) -> Self {
        let out = fs::File::from(out);
        Self { is_terminal: out.is_terminal(), out, torn: false }
    }
}

impl Stdout {
    /// Whether the output can never be read: the reader of the pipe is gone, or the terminal is.
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
        let mut lines = batch.iter().map(|parcel| &parcel.encoded.line);
        lines.try_for_each(|line| write_line(&mut self.out, &mut self.torn, line)).map_err(|error| {
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
    fn a_closed_pipe_closes_the_sink() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let error = Stdout::from(OwnedFd::from(writer)).deliver(&parcels([1])).unwrap_err();
        assert!(matches!(&error, DeliveryError::Closed(message) if message.contains("standard output")), "{error:?}");
    }
}
