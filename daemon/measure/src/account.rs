//! The exact numbers of a window, and how much is missing: the ledgers, the sizes, and the sums of all parts.

use weir_common::{
    control::OTHERS,
    ledger::{Ledger, PacketSizes, Tally},
    size::COARSE_EDGES,
    sketch::Metric,
};
use weir_datapath::edge::Edge;
use weir_sketch::Estimate;

use super::{
    new_flows::{self, FilterState, NewFlows},
    sampling_error::Sampling,
    sizes::Sizes,
    uncertainty::{BUFFER, Uncertainty, largest},
    whole::{Counted, Whole},
};

/// The exact numbers of one worker.
#[derive(Clone, Copy)]
pub struct WorkerAccount<'a> {
    /// The exact counters of the window.
    pub edge: &'a Edge,
    /// The sum of the records of each interface slot.
    pub attributed: &'a [Tally],
    /// The sum of all records that feed, scaled by their sampling rates.
    pub total: Tally,
    /// The lowest and the highest sampling rate that was in force, if it left anything out.
    pub sampling: Option<(u32, u32)>,
    /// The sampling rate in force now.
    pub rate: u32,
    /// True if the counters of a CPU are still to come.
    pub is_late: bool,
}

/// The exact numbers of all workers.
pub struct Account {
    /// The ledger of each interface slot.
    pub ledgers: Vec<Ledger>,
    /// Packets by their size in bytes.
    pub sizes: Sizes,
    /// The highest sampling rate in force: one packet in this many is taken; 1 is every packet.
    pub sampling: u32,
    /// True if all packets were taken at the same rate.
    pub is_steady: bool,
    /// The highest rate at which something was left out; 1 if nothing was.
    pub highest: u32,
    /// The sum of all records that feed, scaled by their sampling rates.
    pub scaled: Tally,
    /// The whole of numbers that are fed once.
    pub once: Whole,
    /// Unknown packets: each may belong to one more address or flow.
    pub unknown: u64,
    /// Packets and bytes that buffers may have beyond their counts. They have the keys of their buffers.
    in_buffers: Tally,
    has_merged: bool,
}

impl Account {
    /// Adds up all parts.
    pub fn new(parts: &[WorkerAccount<'_>], interfaces: usize) -> Self {
        let ledgers = ledgers(parts, interfaces);
        let rates = parts.iter().filter_map(|part| part.sampling);
        let (least, highest) = rates.reduce(|(a, b), (c, d)| (a.min(c), b.max(d))).unwrap_or((1, 1));
        // A late CPU has not reported the sizes of its packets yet.
        let is_late = parts.iter().any(|part| part.is_late);
        let scaled: Tally = parts.iter().map(|part| part.total).sum();
        let [lost, sampled_out] = [lost(&ledgers), sampled_out(&ledgers)];
        let missed_beyond: Tally = parts.iter().map(|part| part.edge.missed_beyond).sum();
        Self {
            sizes: Sizes::of(parts.iter().map(|part| part.edge)),
            // The rate counts even if no packet came.
            sampling: parts.iter().map(|part| part.rate).fold(highest, u32::max),
            is_steady: least == highest,
            highest,
            scaled,
            once: Whole::new(&ledgers, Counted::Once, Some(scaled).filter(|_| highest > 1)),
            // Each lost or unsampled packet may belong to one more source, destination or flow.
            unknown: lost.packets.saturating_add(sampled_out.packets).saturating_add(missed_beyond.packets),
            in_buffers: beyond(&ledgers).since(missed_beyond),
            has_merged: is_late || ledgers.iter().any(|ledger| ledger.counters.merged > 0),
            ledgers,
        }
    }

    /// The number of new flows, of which this many workers counted `new`. Because new flows are flows, the estimate of
    /// all `flows` becomes at least their number.
    pub fn new_flows(
        &self,
        (new, workers): (u64, usize),
        flows: &mut Estimate,
        filter: FilterState<'_>,
        confidence: f64,
    ) -> NewFlows {
        flows.value = flows.value.max(new.min(flows.upper));
        let counted = new_flows::Counted { new, workers: workers as u64, unknown: self.unknown, flows: *flows };
        let mut new_flows = NewFlows::new(counted, filter, confidence);
        new_flows.count.upper = new_flows.count.upper.min(self.most_keys().max(new));
        new_flows
    }

    /// The most packets that may each have another key, if every packet counts once.
    pub const fn most_keys(&self) -> u64 {
        self.once.most.packets.saturating_sub(self.in_buffers.packets)
    }

    /// Packets that were seen but are not in the ledgers yet: their records wait in the open window until it is known
    /// whether sampling left anything out.
    pub fn uncounted(&self) -> Tally {
        let of = |ledger: &Ledger| {
            let Ledger { counters, attributed } = ledger;
            let counted: Tally = [*attributed, ledger.skipped(), ledger.lost(), counters.sampled_out].into_iter().sum();
            Metric::each(|metric| metric.of(counters.seen).saturating_sub(metric.of(counted)))
        };
        self.ledgers.iter().map(of).sum()
    }

    /// The uncertainty about the packets. At most `missed_flows` new flows were not counted. All bounds of a view hold
    /// with the probability `confidence`.
    pub fn uncertainty(&self, missed_flows: u64, confidence: f64) -> Uncertainty {
        let Self { ledgers, sizes, highest, is_steady, .. } = self;
        let dropped: Tally = ledgers.iter().map(Ledger::unread).sum();
        let drawn = lost(ledgers).since(dropped);
        Uncertainty {
            missed_flows,
            lost: [dropped, beyond(ledgers).since(self.in_buffers)].into_iter().sum(),
            in_buffers: self.in_buffers,
            drawn,
            unknown: self.unknown,
            sampling: (*highest > 1).then(|| Sampling {
                rate: *highest,
                is_steady: *is_steady,
                largest: largest(largest_drawn(sizes, ledgers), self.has_merged),
                total: [taken(ledgers), sampled_out(ledgers), drawn].into_iter().sum(),
            }),
            once: self.once,
            everywhere: self.everywhere(ledgers),
            slots: ledgers.iter().map(|ledger| self.everywhere(std::slice::from_ref(ledger))).collect(),
            confidence,
        }
    }

    /// The whole of some interfaces, including packets that other interfaces feed. Its scaled sum is known only if the
    /// rate was steady.
    fn everywhere(&self, ledgers: &[Ledger]) -> Whole {
        let taken = taken(ledgers);
        let scaled = Metric::each(|metric| metric.of(taken).saturating_mul(self.highest.into()));
        let is_known = self.is_steady && self.highest > 1;
        Whole::new(ledgers, Counted::Everywhere, is_known.then_some(scaled))
    }
}

fn lost(ledgers: &[Ledger]) -> Tally {
    ledgers.iter().map(Ledger::lost).sum()
}

fn sampled_out(ledgers: &[Ledger]) -> Tally {
    ledgers.iter().map(|ledger| ledger.counters.sampled_out).sum()
}

fn beyond(ledgers: &[Ledger]) -> Tally {
    ledgers.iter().map(|ledger| ledger.counters.uncertain.beyond()).sum()
}

fn taken(ledgers: &[Ledger]) -> Tally {
    ledgers.iter().map(|ledger| ledger.attributed).sum()
}

pub(super) fn ledgers(parts: &[WorkerAccount<'_>], interfaces: usize) -> Vec<Ledger> {
    let mut ledgers = vec![Ledger::default(); interfaces];
    for WorkerAccount { edge, attributed, .. } in parts {
        for ((ledger, counters), attributed) in ledgers.iter_mut().zip(&edge.counters).zip(*attributed) {
            ledger.add(&Ledger { counters: *counters, attributed: *attributed });
        }
    }
    add_others(parts, &mut ledgers);
    ledgers
}

/// Makes a ledger of the packets for which no slot was found, if there are any.
fn add_others(parts: &[WorkerAccount<'_>], ledgers: &mut Vec<Ledger>) {
    const SLOT: usize = OTHERS as usize;
    let mut others = Ledger::default();
    if ledgers.len() <= SLOT {
        for WorkerAccount { edge, attributed, .. } in parts {
            others.add(&Ledger { counters: edge.others, attributed: attributed[SLOT] });
        }
    }
    if others != Ledger::default() {
        ledgers.resize(SLOT, Ledger::default());
        ledgers.push(others);
    }
}

/// An upper bound of the size of a drawn packet. The exact sizes leave out packets that another interface feeds, where
/// they may have been smaller. For those packets only the size class is known.
fn largest_drawn(sizes: &Sizes, ledgers: &[Ledger]) -> u64 {
    let repeated = ledgers.iter().filter(|ledger| !ledger.counters.repeated.is_zero());
    let ends = repeated.filter_map(|ledger| {
        let PacketSizes(classes) = ledger.counters.sizes;
        let class = classes.iter().rposition(|packets| *packets > 0)?;
        Some(COARSE_EDGES.get(class).copied().unwrap_or(BUFFER.bytes))
    });
    ends.fold(sizes.largest(), u64::max)
}
