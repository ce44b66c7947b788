//! Sinks: where reports go. Each runs on its own threads behind a spool, so that no collector, disk or pipe can delay
//! the measurement.

mod check;
#[cfg(any(feature = "kafka", feature = "nats"))]
mod client;
mod error;
mod file;
mod http;
mod ipfix;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
mod open;
#[cfg(feature = "otlp")]
mod otlp;
mod outbox;
mod privacy;
mod queue;
mod stdout;
mod vrf;

use std::{
    borrow::Cow,
    io::{self, Write},
    time::{Duration, Instant},
};

#[cfg(feature = "kafka")]
pub use self::kafka::Kafka;
#[cfg(feature = "nats")]
pub use self::nats::Nats;
#[cfg(feature = "otlp")]
pub use self::otlp::Otlp;
pub use self::{
    check::check,
    error::OpenError,
    file::{File, Rotation},
    http::{Http, HttpError, SecretError},
    ipfix::Ipfix,
    open::{open, open_webhook},
    outbox::{Outbox, SinkHealth, farewell, finish},
    privacy::Copies,
    stdout::Stdout,
};
use crate::spool::Item;

/// The most that a list entry takes as OTLP messages, in bytes: each number is a point with all attributes. IPFIX
/// records take less.
pub const ENTRY_MESSAGES_BYTES: u64 = 8 << 10;

/// The largest answer of a Kafka broker that is read, in bytes. An answer lists all topics that weir's user may see:
/// this is enough for some 20,000 partitions.
pub const KAFKA_ANSWER_BYTES: u64 = 1 << 20;

/// A destination of reports.
pub trait Sink: Send {
    /// The sink's name in logs and reports, without secrets.
    fn name(&self) -> String;

    /// The words for what the sink carries: singular and plural.
    fn carries(&self) -> [&'static str; 2] {
        ["a report", "reports"]
    }

    /// Maximum number of reports per call.
    fn batch(&self) -> usize {
        1
    }

    /// Maximum bytes of JSON per call, beyond the first report.
    fn batch_bytes(&self) -> usize {
        1 << 20
    }

    /// Checks the files that the sink needs, before the first report. A mistake does not prevent its start, because
    /// they are read again for each delivery. Those of a service are there only while it runs
    /// ([`weir_config::is_credential_of_service`]).
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    /// Delivers reports and tombstones, all or none. It may block for as long as the sink's own timeout; after an
    /// error, it is called again with the same reports: [`DeliveryError::Unavailable`].
    fn deliver(&mut self, batch: &[Item]) -> Result<(), DeliveryError>;
}

/// Why a report was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// It may work later: the reports are kept and tried again.
    #[error("{message}")]
    Unavailable {
        /// The problem, in words.
        message: String,
        /// How long the sink asks weir to wait.
        after: Option<Duration>,
    },
    /// The sink refused this batch. A report that is refused alone is given up once another one is
    /// accepted. If the sink refuses every report, the fault is elsewhere, and all of them wait.
    #[error("{0}")]
    Refused(String),
    /// The sink will never accept a report again: it stops, and every later report is dropped.
    #[error("{0}")]
    Closed(String),
}

impl DeliveryError {
    /// An error after which a retry may work.
    pub const fn unavailable(message: String) -> Self {
        Self::Unavailable { message, after: None }
    }
}

/// Writes a line to `out`, in one call if the system accepts it whole.
///
/// `torn` is set if a crash or a full disk has left the last line without its newline. That line is then ended first,
/// so that it does not spoil the next report. `torn` is kept up to date, also after an error.
fn write_line(out: &mut impl Write, torn: &mut bool, line: &[u8]) -> io::Result<()> {
    let line = if *torn { Cow::Owned([b"\n", line].concat()) } else { Cow::Borrowed(line) };
    let mut rest = &line[..];
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                rest = &rest[written..];
                *torn = !rest.is_empty();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "deadlines of I/O, which the measurement never sees")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use weir_schema::{Encoded, Report};

    use super::*;

    /// Reports of one run with these numbers.
    pub(super) fn parcels<const N: usize>(seqs: [u64; N]) -> [Item; N] {
        seqs.map(|seq| Item::report(encoded(&id(seq))))
    }

    /// The id of a report with this number.
    pub(super) fn id(seq: u64) -> String {
        format!("7f3c9a52/0000b41d/{seq}")
    }

    /// The golden report, encoded under another id.
    pub(super) fn encoded(id: &str) -> Encoded {
        let mut report: Report =
            serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
        id.clone_into(&mut report.id);
        Encoded::new(&report)
    }

    #[test]
    fn a_report_is_one_line() {
        let report = encoded("a/b/1");
        assert_eq!(report.line.iter().position(|&byte| byte == b'\n'), Some(report.line.len() - 1));
        let read: Report = serde_json::from_slice(&report.line).unwrap();
        assert_eq!(read.id, report.id);
    }

    /// A disk with room for a limited number of bytes.
    struct Disk {
        room: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.written.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_cut_is_ended_before_the_next() {
        let mut disk = Disk { room: 6, written: Vec::new() };
        let mut torn = false;
        assert!(write_line(&mut disk, &mut torn, b"1234\n").is_ok() && !torn);
        assert!(write_line(&mut disk, &mut torn, b"5678\n").is_err() && torn);
        assert!(write_line(&mut disk, &mut torn, b"5678\n").is_err() && torn, "still no room");
        disk.room = 100;
        assert!(write_line(&mut disk, &mut torn, b"5678\n").is_ok() && !torn);
        assert_eq!(disk.written, b"1234\n5\n5678\n");
    }
}
