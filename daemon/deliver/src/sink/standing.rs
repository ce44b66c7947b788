//! Which sinks still take reports.

use tracing::info;

use super::Outbox;

/// How many sinks are known to be closed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standing {
    closed: usize,
}

impl Standing {
    /// Checks whether sinks have closed since the last call, and logs where reports still go.
    ///
    /// # Errors
    ///
    /// All are closed: which, and why. Without any sink nothing can be closed.
    pub fn look(&mut self, outboxes: &[Outbox]) -> Result<(), String> {
        let (closed, open): (Vec<_>, Vec<_>) = outboxes.iter().partition(|outbox| outbox.is_closed());
        if std::mem::replace(&mut self.closed, closed.len()) == closed.len() {
            return Ok(());
        }
        if open.is_empty() {
            let why = |outbox: &&Outbox| {
                let metrics = outbox.metrics();
                format!("{}: {}", metrics.name, metrics.last_error.unwrap_or_default())
            };
            return Err(closed.iter().map(why).collect::<Vec<_>>().join("; "));
        }
        let open: Vec<_> = open.iter().map(|outbox| outbox.metrics().name).collect();
        info!(sinks = open.join(", "), "weir goes on: reports still go to the other sinks");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{io, os::fd::OwnedFd, thread};

    use super::{
        super::{Stdout, tests::encoded},
        *,
    };
    use weir_config::Addresses;

    /// A sink that has been offered a report, and whose reader is present or gone.
    fn sink(reader_stays: bool) -> (Outbox, Option<io::PipeReader>) {
        let (reader, writer) = io::pipe().unwrap();
        let reader = reader_stays.then_some(reader);
        let outbox = Outbox::start(Box::new(Stdout::from(OwnedFd::from(writer))), 4, Addresses::Full, None).unwrap();
        outbox.offer(encoded("a/b/1"));
        let settled = || outbox.metrics().queued == 0 && outbox.is_closed() != reader_stays;
        while !settled() {
            thread::yield_now();
        }
        (outbox, reader)
    }

    #[test]
    fn only_the_last_open_sink_that_closes_is_an_error() {
        let (closed, _) = sink(false);
        let (open, _reader) = sink(true);
        let outboxes = [closed, open];
        let mut standing = Standing::default();
        assert_eq!(standing.look(&outboxes), Ok(()));
        assert_eq!(standing.look(&outboxes), Ok(()));
        let [closed, _open] = outboxes;
        let why = Standing::default().look(&[closed]).unwrap_err();
        assert!(why.starts_with("stdout: cannot write to standard output: "), "{why}");
    }

    #[test]
    fn without_sinks_none_closes() {
        assert_eq!(Standing::default().look(&[]), Ok(()));
    }
}
