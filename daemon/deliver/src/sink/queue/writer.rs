//! Moves reports to the disk, one after the other.

use std::{io, mem::take, sync::PoisonError};

use tracing::{info, warn};
use weir_schema::{Encoded, Ids, Reason};
use weir_system::clock;

use super::Queue;
use crate::spool::Spool;

/// The reports that are written next.
struct Next {
    /// Reports that were dropped before this one.
    dropped: Vec<Ids>,
    report: Option<Encoded>,
}

impl Queue {
    /// Writes incoming reports to the spool until the last one has come.
    pub fn write_to(&self, spool: &Spool) {
        let mut is_failing = false;
        // From here on the account includes the reports of an earlier weir.
        self.note(spool, |_| {});
        self.announce();
        while let Some(Next { dropped, report }) = self.next_to_write() {
            let now = u64::try_from(clock::now().wall.as_second()).unwrap_or_default();
            spool.note_lost(&dropped, Reason::QueueFull, now);
            let count: u64 = dropped.iter().map(Ids::count).sum();
            let has_report = u64::from(report.is_some());
            let kept = report.map_or(Ok(()), |report| spool.keep(report, now));
            self.note(spool, |counters| {
                counters.lost_incoming -= count.min(counters.lost_incoming);
                counters.incoming -= has_report;
            });
            self.log(kept, &mut is_failing);
            self.announce();
        }
        // Checks that the files of reports that wait for the next start still exist.
        spool.miss();
        self.note(spool, |_| {});
    }

    /// Waits for the next report; `None` after the last one.
    fn next_to_write(&self) -> Option<Next> {
        let is_idle = |state: &mut super::State| state.incoming.is_empty() && state.deadline.is_none();
        let mut state = self.changed.wait_while(self.state(), is_idle).unwrap_or_else(PoisonError::into_inner);
        let (dropped, report) = (take(&mut state.dropped), state.incoming.pop_front());
        (report.is_some() || !dropped.is_empty()).then_some(Next { dropped, report })
    }

    /// Logs whether the spool takes reports, when that has changed.
    fn log(&self, kept: io::Result<()>, is_failing: &mut bool) {
        let sink = &self.name;
        match kept {
            Ok(()) if take(is_failing) => info!(sink, "the spool takes reports again"),
            Err(error) if !std::mem::replace(is_failing, true) => warn!(
                sink,
                %error,
                "the spool takes no reports: they wait in memory, where there is room for a few, and a restart loses them"
            ),
            _ => {}
        }
    }
}
