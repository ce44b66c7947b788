//! Logs the packets of a window that were not measured.

use tracing::{error, warn};
use weir_common::ledger::{Ledger, Loss};

/// Warns about packets that are missing in a window, and proposes a remedy.
pub fn warn_of(interface: &str, ledger: &Ledger) {
    if !ledger.balances() {
        error!(interface, ?ledger, "the ledger does not balance: this is a bug in weir, please report it");
    }
    let Missing { dropped, died, missed, lost } = Missing::of(ledger);
    if missed > 0 {
        warn!(
            interface,
            packets = missed,
            "weir was blind when the interface counted these packets: they are lost, and the bounds in the report are wider"
        );
    }
    if dropped > 0 {
        warn!(
            interface,
            packets = dropped,
            "the packet socket dropped packets, and the bounds in the report are wider: try a larger \
             datapath.packet_ring, or eBPF (CAP_BPF)"
        );
    }
    if died > 0 {
        warn!(
            interface,
            packets = died,
            "an earlier weir was killed after it had read these packets and before it reported them: they are lost, \
             and the bounds in the report are wider"
        );
    }
    if lost > 0 {
        warn!(
            interface,
            packets = lost,
            "the rings were full, and these packets are lost. The bounds in the report are wider: try a larger \
             datapath.ring"
        );
    }
}

/// Packets of a window that were not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    /// Dropped by packet sockets.
    dropped: u64,
    /// Read by an earlier weir that was killed before it reported them.
    died: u64,
    /// Not seen, because another program had removed weir's program or ran in front of it.
    missed: u64,
    /// Lost between the kernel programs and the workers.
    lost: u64,
}

impl Missing {
    fn of(ledger: &Ledger) -> Self {
        let mut all = Self { dropped: 0, died: 0, missed: 0, lost: 0 };
        for reason in Loss::ALL {
            let place = match reason {
                Loss::SocketDrop => &mut all.dropped,
                Loss::Restart => &mut all.died,
                Loss::Blind => &mut all.missed,
                Loss::RingFull | Loss::NoRing => &mut all.lost,
            };
            *place += ledger.counters.lost[*reason as usize].packets;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use weir_common::ledger::Tally;

    use super::*;

    #[test]
    fn each_reason_for_a_loss_is_counted_separately() {
        let mut ledger = Ledger::default();
        assert_eq!(Missing::of(&ledger), Missing { dropped: 0, died: 0, missed: 0, lost: 0 });
        ledger.counters.lost[Loss::SocketDrop as usize] = Tally::new(3, 300);
        ledger.counters.lost[Loss::RingFull as usize] = Tally::new(4, 400);
        ledger.counters.lost[Loss::Restart as usize] = Tally::new(5, 500);
        ledger.counters.lost[Loss::Blind as usize] = Tally::new(6, 600);
        assert_eq!(Missing::of(&ledger), Missing { dropped: 3, died: 5, missed: 6, lost: 4 });
    }
}
