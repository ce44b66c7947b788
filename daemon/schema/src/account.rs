//! Converts the measured ledger to the ledger of a report, and does its sums. A reader of the report can verify that
//! all packets are accounted for.

use weir_common::ledger as measured;

use super::{Bounds, Ledger, Tally, Uncertain};

impl From<measured::Tally> for Tally {
    fn from(measured::Tally { packets, bytes }: measured::Tally) -> Self {
        Self { packets, bytes }
    }
}

impl From<&measured::Ledger> for Ledger {
    fn from(measured::Ledger { counters, attributed }: &measured::Ledger) -> Self {
        let measured::Counters {
            seen,
            merged: _,
            sizes: _,
            sampled_out,
            repeated: _,
            tcp: _,
            skipped,
            lost,
            uncertain,
        } = counters;
        // The many reasons to skip are listed only if they occurred. Each kind of loss is listed, even if it is zero.
        let skipped = measured::Skip::ALL.iter().zip(skipped).filter(|(_, tally)| !tally.is_zero());
        let lost = measured::Loss::ALL.iter().zip(lost);
        Self {
            seen: (*seen).into(),
            attributed: (*attributed).into(),
            sampled_out: (*sampled_out).into(),
            skipped: skipped.map(|(reason, tally)| (reason.name().to_owned(), (*tally).into())).collect(),
            lost: lost.map(|(reason, tally)| (reason.name().to_owned(), (*tally).into())).collect(),
            uncertain: (!uncertain.most.is_zero()).then(|| uncertain.into()),
        }
    }
}

impl From<&measured::Uncertain> for Uncertain {
    fn from(measured::Uncertain { least, most }: &measured::Uncertain) -> Self {
        Self {
            packets: Bounds { lower: least.packets, upper: most.packets },
            bytes: Bounds { lower: least.bytes, upper: most.bytes },
        }
    }
}

impl Uncertain {
    /// Adds another tally.
    pub fn add(&mut self, Self { packets, bytes }: Self) {
        for (sum, more) in [(&mut self.packets, packets), (&mut self.bytes, bytes)] {
            sum.lower = sum.lower.saturating_add(more.lower);
            sum.upper = sum.upper.saturating_add(more.upper);
        }
    }
}

impl Ledger {
    /// Returns true if every packet and byte seen is accounted for. Also false if the sum exceeds 64 bits.
    pub fn balances(&self) -> bool {
        let Self { seen, attributed, sampled_out, skipped, lost, uncertain: _ } = self;
        let parts = [attributed, sampled_out].into_iter().chain(skipped.values()).chain(lost.values());
        let sum = parts.copied().try_fold(Tally::default(), Tally::checked_add);
        sum == Some(*seen)
    }

    /// By how much the true number of packets and bytes may exceed `seen`, which is a lower bound.
    pub fn beyond(&self) -> Tally {
        let width = |Bounds { lower, upper }: Bounds| upper.saturating_sub(lower);
        self.uncertain.map_or_else(Tally::default, |Uncertain { packets, bytes }| Tally {
            packets: width(packets),
            bytes: width(bytes),
        })
    }

    /// The share of the seen packets that were not lost, 0 to 1; 1 if none was seen.
    pub fn kept(&self) -> f64 {
        let lost = self.lost.values().fold(0_u64, |sum, tally| sum.saturating_add(tally.packets));
        match self.seen.packets {
            0 => 1.0,
            seen => (1.0 - lost as f64 / seen as f64).max(0.0),
        }
    }
}

impl Tally {
    fn checked_add(self, other: Self) -> Option<Self> {
        let packets = self.packets.checked_add(other.packets)?;
        Some(Self { packets, bytes: self.bytes.checked_add(other.bytes)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_ledger_keeps_every_number_and_its_balance() {
        let mut measured = measured::Ledger { attributed: measured::Tally::new(5, 500), ..Default::default() };
        measured.counters.seen = measured::Tally::new(10, 1_000);
        measured.counters.sampled_out = measured::Tally::new(2, 200);
        measured.counters.skipped[measured::Skip::Arp as usize] = measured::Tally::new(1, 100);
        measured.counters.lost[measured::Loss::RingFull as usize] = measured::Tally::new(2, 200);

        let mut ledger = Ledger::from(&measured);
        assert!(measured.balances() && ledger.balances());
        assert_eq!(ledger.skipped, [("arp".to_owned(), Tally { packets: 1, bytes: 100 })].into());
        assert_eq!(ledger.lost.len(), measured::Loss::COUNT, "reasons without packets are listed, too");
        assert_eq!(ledger.kept(), 0.8);
        assert_eq!(ledger.uncertain, None);
        let (least, most) = (measured::Tally::new(3, 300), measured::Tally::new(4, 410));
        measured.counters.uncertain = measured::Uncertain { least, most };
        let packets = Bounds { lower: 3, upper: 4 };
        let bytes = Bounds { lower: 300, upper: 410 };
        let uncertain = Ledger::from(&measured);
        assert_eq!(uncertain.uncertain, Some(Uncertain { packets, bytes }));
        assert_eq!(uncertain.beyond(), Tally { packets: 1, bytes: 110 });
        assert_eq!(ledger.beyond(), Tally::default());

        ledger.sampled_out.bytes -= 1;
        assert!(!ledger.balances(), "a byte is missing");
        ledger.sampled_out.bytes = u64::MAX;
        assert!(!ledger.balances(), "wraps, but does not balance");
    }

    #[test]
    fn an_empty_ledger_has_lost_nothing() {
        let ledger = Ledger::from(&measured::Ledger::default());
        assert!(ledger.balances());
        assert_eq!(ledger.kept(), 1.0);
    }
}
