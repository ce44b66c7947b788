//! The thread of a sink that moves reports into the spool, one after the other.

use std::{convert::Infallible, io, sync::Arc};

use crossbeam::channel::Sender;
use tracing::{info, warn};
use weir_config::Addresses;
use weir_report::{Ids, Reason};
use weir_system::clock;

use super::{
    account::Account,
    inbox::{Inbox, Next},
    privacy,
};
use crate::spool::Spool;

/// The thread.
pub(super) struct Keeper {
    pub account: Arc<Account>,
    /// How much of each address the sink may see.
    pub addresses: Addresses,
    pub inbox: Arc<Inbox>,
    pub spool: Arc<Spool>,
    /// Wakes the delivery thread when something is waiting; dropped when nothing more will come.
    pub bell: Sender<()>,
    pub _here: Sender<Infallible>,
}

impl Keeper {
    pub fn run(self) {
        let mut is_failing = false;
        // From here on the account includes what an earlier weir has left.
        self.account.note(&self.spool, |_| {});
        self.ring();
        while let Some(Next { lost, report }) = self.inbox.next() {
            let now = u64::try_from(clock::now().wall.as_second()).unwrap_or_default();
            self.spool.note_lost(&lost, Reason::QueueFull, now);
            let unsaid: u64 = lost.iter().map(Ids::count).sum();
            let has_report = u64::from(report.is_some());
            let kept = report.map_or(Ok(()), |report| {
                let report = privacy::applied(self.addresses, report);
                self.spool.keep(report, now)
            });
            self.account.note(&self.spool, |tally| {
                tally.unsaid -= unsaid.min(tally.unsaid);
                tally.incoming -= has_report;
            });
            self.say(kept, &mut is_failing);
            self.ring();
        }
        // Checks that the files that are to wait for the next start are still there.
        self.spool.miss();
        self.account.note(&self.spool, |_| {});
    }

    /// One wake-up of the delivery thread is enough.
    fn ring(&self) {
        let _ = self.bell.try_send(());
    }

    fn say(&self, kept: io::Result<()>, is_failing: &mut bool) {
        let sink = &self.account.name;
        match kept {
            Ok(()) if std::mem::take(is_failing) => info!(sink, "the spool takes reports again"),
            Err(error) if !std::mem::replace(is_failing, true) => warn!(
                sink,
                %error,
                "the spool takes no reports: they wait in memory, where there is room for a few, and a restart loses them"
            ),
            _ => {}
        }
    }
}
