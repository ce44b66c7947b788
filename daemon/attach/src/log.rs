//! Remembers what the log already says, so that it says each thing once and not at every change.

use std::{collections::BTreeSet, time::Duration};

use tracing::{info, warn};
use weir_system::log::Lasting;

/// The text of the warning if another process blocks the kernel.
pub const HELD_UP: &str = "the kernel does not answer: another process holds its configuration lock (rtnl). Until that ends, \
                           weir follows no changes of interfaces; it goes on counting";

/// The facts about interfaces that are already in the log.
pub struct AttachLog {
    /// Faults of following the interfaces.
    pub following: Lasting,
    /// Faults of reading the interfaces' own counts.
    pub counting: Lasting,
    /// Interfaces on which XDP in generic mode runs before their tc hook.
    behind_generic: BTreeSet<u32>,
    /// True if the log says that there are many interfaces. They may come and go in hundreds.
    has_many: bool,
    /// Since when some interfaces have been waiting, and whether it says so.
    wait_since: Option<Duration>,
    waits: bool,
    is_held_up: bool,
}

impl Default for AttachLog {
    fn default() -> Self {
        Self {
            following: Lasting::new("follow the interfaces"),
            counting: Lasting::new("read the interfaces' own counts"),
            behind_generic: BTreeSet::new(),
            has_many: false,
            wait_since: None,
            waits: false,
            is_held_up: false,
        }
    }
}

impl AttachLog {
    /// Returns true if the log says that interfaces wait.
    pub const fn says_waiting(&self) -> bool {
        self.waits
    }

    /// Says once that interfaces have waited for this long, and once that none waits any more.
    pub fn note_waiting(&mut self, waiting: usize, long: Duration, now: Duration) {
        self.wait_since = (waiting > 0).then(|| self.wait_since.unwrap_or(now));
        let is_long = self.wait_since.is_some_and(|since| now.saturating_sub(since) >= long);
        if is_long && !self.waits {
            warn!(
                directions = waiting,
                "so many interfaces came at once that some are not measured yet: weir continues to attach"
            );
        } else if waiting == 0 && self.waits {
            info!("all interfaces that can be measured are measured");
        }
        self.waits = waiting > 0 && (is_long || self.waits);
    }

    /// Says once that another process blocks the kernel, and once that the kernel answers again.
    pub fn note_held_up(&mut self, is_held_up: bool) {
        match (std::mem::replace(&mut self.is_held_up, is_held_up), is_held_up) {
            (false, true) => warn!("{HELD_UP}"),
            (true, false) => info!("the kernel answers again: weir follows changes of interfaces"),
            _ => {}
        }
    }

    /// Says once that weir avoids TCX.
    pub fn note_many(&mut self) {
        if !std::mem::replace(&mut self.has_many, true) {
            info!(
                "many interfaces: weir prefers the classic tc hook to TCX, which would keep other processes from configuring the network"
            );
        }
    }

    /// These are all interfaces on which XDP in generic mode runs before the tc hook. Returns those that are new.
    pub fn note_behind_generic(&mut self, behind: BTreeSet<u32>) -> BTreeSet<u32> {
        let new = behind.difference(&self.behind_generic).copied().collect();
        self.behind_generic = behind;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_wait_only_if_it_takes_long_and_then_until_none_waits() {
        let ms = Duration::from_millis;
        let mut log = AttachLog::default();
        let mut says = |waiting, now| {
            log.note_waiting(waiting, ms(500), ms(now));
            log.says_waiting()
        };
        assert_eq!([says(3, 1_000), says(2, 1_499), says(0, 1_500)], [false; 3]);
        assert_eq!([says(3, 2_000), says(3, 2_500), says(1, 2_600), says(0, 2_700)], [false, true, true, false]);
        assert!(!says(1, 2_800), "the time begins again");
    }

    #[test]
    fn an_interface_behind_generic_xdp_is_new_until_it_was_none() {
        let mut log = AttachLog::default();
        let mut new =
            |behind: &[u32]| log.note_behind_generic(behind.iter().copied().collect()).into_iter().collect::<Vec<_>>();
        assert_eq!([new(&[1, 2]), new(&[2, 3]), new(&[]), new(&[3])], [vec![1, 2], vec![3], vec![], vec![3]]);
    }
}
