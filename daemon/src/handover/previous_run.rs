//! Reads what an earlier weir left in the kernel: counters, and records in caches and rings. It uses that weir's
//! program `flush` and that weir's maps.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    os::fd::OwnedFd,
    thread,
    time::Duration,
};

use rustix::{
    fd::AsFd as _,
    fs::{MemfdFlags, memfd_create},
};
use weir_common::{
    control::{Flush, FlushOrder, Flushed},
    flow::Scope,
    ledger::{Counters, Ledger, Loss, Tally},
    record::Record,
    size::SIZE_CLASSES,
};
use weir_datapath::{Blocks, Edge, FlushProgram, KernelError, Ring, kept::SlotState};
use weir_measure::batch::RecordBatch;
use weir_sketch::Seen;
use weir_system::{bounded, clock};
use zerocopy::IntoBytes as _;

use super::state::HandoverState;

/// How many windows may be open on a CPU: the last one, and one that the earlier weir was closing when it died.
const OPEN_MAX: u32 = 2;
/// How long to wait until a packet is counted. Counting takes a millionth of that.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_micros(20);
/// The most bytes of records that an earlier weir hands over: more than all rings and caches of a machine hold.
const RECORDS_BYTES_MAX: u64 = 1 << 30;

/// The datapath of an earlier weir. It no longer counts packets.
pub struct PreviousRun {
    /// The state that it wrote.
    pub state: HandoverState,
    /// Records that it had read but not reported, and has handed over.
    pub records: Vec<Record>,
    /// The counters in the kernel.
    pub blocks: Blocks,
    /// The program `flush`, which empties the flow caches.
    pub flush: OwnedFd,
    /// The rings of all CPUs.
    pub rings: Vec<Ring>,
}

/// The packets that were taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Packets that were in no report yet. The next report has them.
    pub packets: Tally,
    /// Of these, packets that the earlier weir had read and lost when it was killed.
    pub lost: Tally,
    /// Packets of interfaces that are no longer measured. No report has them.
    pub left_out: Tally,
}

impl PreviousRun {
    /// Puts its records into `batch`, and its counts since its last report into `edge`. `place` returns the slot that
    /// an interface has now.
    ///
    /// # Errors
    ///
    /// The kernel refused to run `flush`, or to give access to the maps.
    pub fn settle(
        mut self,
        mut place: impl FnMut(&SlotState) -> Option<usize>,
        batch: &mut RecordBatch,
        seen: &Seen,
        edge: &mut Edge,
    ) -> Result<Inherited, KernelError> {
        // Read it first: closing a window resets it.
        let largest = self.largest();
        let places = Places::new(&self.state.slot_states, &mut place);
        let mut attributed = vec![Tally::default(); places.0.len()];
        self.read_records(|records| {
            for record in records {
                let Some(slot) = places.of(record.key.interface()) else { continue };
                attributed[usize::from(record.key.interface())].add(record.tally());
                batch.push(&moved(record, slot), seen);
            }
        })?;
        batch.release_drawn(seen);
        let mut counted = Edge::empty(edge.counters.len());
        let mut inherited = Inherited::default();
        let (totals, sizes) = self.read_counters(&mut counted)?;
        for slot_state in &self.state.slot_states {
            let (Some(total), Some(reported)) = (totals.get(slot_state.slot), slot_state.reported()) else { continue };
            let mut rest = total.since(&reported);
            let Some(counters) =
                places.of(slot_state.slot as u8).and_then(|slot| counted.counters.get_mut(usize::from(slot)))
            else {
                inherited.left_out.add(rest.seen);
                continue;
            };
            let lost = lost_with(&rest, attributed[slot_state.slot]);
            rest.lost[Loss::Restart as usize].add(lost);
            inherited.packets.add(rest.seen);
            inherited.lost.add(lost);
            add(counters, rest);
        }
        // Sizes are counted for all interfaces together. If one interface is no longer reported, its part is unknown.
        if inherited.left_out.is_zero() {
            for (class, (now, reported)) in sizes.iter().zip(&self.state.sizes).enumerate() {
                counted.sizes[class] = now.wrapping_sub(*reported);
            }
            counted.largest = largest;
        }
        edge.add(&counted);
        Ok(inherited)
    }

    /// Closes all open windows and reads all remaining records.
    fn read_records(&mut self, mut take: impl FnMut(&[Record])) -> Result<(), KernelError> {
        let Self { records, blocks, flush, rings, .. } = self;
        take(records);
        let flush = FlushProgram::new(flush.as_fd(), blocks);
        let start = clock::now().monotonic;
        for cpu in 0..blocks.len() {
            for _ in 0..OPEN_MAX {
                let mut is_claimed = false;
                loop {
                    let flushed = flush_on(flush, cpu, &mut is_claimed)?;
                    blocks.take(cpu, flushed, &mut take)?;
                    match flushed.state {
                        Flush::Again => {}
                        // A packet that is still not counted after this time counts as lost.
                        Flush::Busy if clock::now().monotonic.saturating_sub(start) > PATIENCE => break,
                        Flush::Busy => thread::sleep(PAUSE),
                        Flush::Done | Flush::NoBlock => break,
                    }
                }
                if is_claimed {
                    flush.elsewhere(cpu, FlushOrder::Release)?;
                }
            }
        }
        for ring in rings {
            while ring.drain(&mut take).more {}
        }
        Ok(())
    }

    /// The largest packet of the last windows, in bytes. One of these windows may have been reported already.
    fn largest(&self) -> u64 {
        let mut largest = 0;
        for cpu in 0..self.blocks.len() {
            // If a block cannot be read now, reading its counters later fails, too, and reports the error.
            let _ = self.blocks.read(cpu, |block| largest = block.largest.into_iter().fold(largest, u32::max));
        }
        largest.into()
    }

    /// All packets ever counted in each slot, and by size.
    fn read_counters(&self, edge: &mut Edge) -> Result<(Vec<Counters>, [u64; SIZE_CLASSES]), KernelError> {
        let slots = self.state.slot_states.iter().map(|slot_state| slot_state.slot + 1).max().unwrap_or_default();
        let mut totals = vec![Counters::default(); slots];
        let mut sizes = [0_u64; SIZE_CLASSES];
        for cpu in 0..self.blocks.len() {
            self.blocks.read(cpu, |block| {
                for parity in 0..block.counter_sets.len() {
                    for (slot, total) in totals.iter_mut().enumerate() {
                        add(total, block.counters(parity, slot));
                    }
                    for (sum, packets) in sizes.iter_mut().zip(block.sizes(parity)) {
                        *sum = sum.wrapping_add(packets);
                    }
                }
                let rate = block.closed_rate.max(1);
                edge.sampling = (edge.sampling.0.min(rate), edge.sampling.1.max(rate));
            })?;
        }
        Ok((totals, sizes))
    }
}

/// Writes records to a memory file that outlives this process.
///
/// # Errors
///
/// Out of memory.
pub fn write_records(records: &[Record]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("weir-records", MemfdFlags::CLOEXEC)?);
    file.write_all(records.as_bytes())?;
    Ok(file.into())
}

/// Reads the records back.
///
/// # Errors
///
/// A record is incomplete.
pub fn read_records(descriptor: OwnedFd) -> io::Result<Vec<Record>> {
    let mut file = File::from(descriptor);
    let mut record = [0; size_of::<Record>()];
    file.rewind()?;
    let bytes = bounded::all(file, RECORDS_BYTES_MAX)?;
    let whole = bytes.chunks_exact(record.len());
    if !whole.remainder().is_empty() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let read = |bytes: &[u8]| {
        record.copy_from_slice(bytes);
        zerocopy::transmute!(record)
    };
    Ok(whole.map(read).collect())
}

/// Runs `flush` once for a CPU, on that CPU if possible.
fn flush_on(flush: FlushProgram<'_>, cpu: u32, is_claimed: &mut bool) -> Result<Flushed, KernelError> {
    if !*is_claimed && let Some(flushed) = flush.close(cpu)? {
        return Ok(flushed);
    }
    if !std::mem::replace(is_claimed, true) {
        return flush.elsewhere(cpu, FlushOrder::Claim);
    }
    flush.elsewhere(cpu, FlushOrder::CloseOffline)
}

fn add(sum: &mut Counters, counters: Counters) {
    let mut ledger = Ledger { counters: *sum, attributed: Tally::default() };
    ledger.add(&Ledger { counters, attributed: Tally::default() });
    *sum = ledger.counters;
}

/// Which of these packets the earlier weir had read but not reported: all that are in no record and not accounted for
/// otherwise.
fn lost_with(rest: &Counters, attributed: Tally) -> Tally {
    let elsewhere = rest.skipped.iter().chain(&rest.lost).chain([&rest.sampled_out, &attributed]).copied().sum();
    let elsewhere: Tally = elsewhere;
    // This is negative only if the maps do not belong to this state. Then the ledger does not balance.
    let Tally { packets, bytes } = rest.seen;
    Tally::new(packets.saturating_sub(elsewhere.packets), bytes.saturating_sub(elsewhere.bytes))
}

/// Moves a record to another slot, without a window.
fn moved(record: &Record, slot: u8) -> Record {
    let scope = Scope::new(slot, 0);
    let scope = if record.key.scope().is_repeated() { scope.repeated() } else { scope };
    Record { key: record.key.without_scope().with_scope(scope), ..*record }
}

/// For each old slot, the slot that its interface has now.
struct Places(Vec<Option<u8>>);

impl Places {
    fn new(slot_states: &[SlotState], mut place: impl FnMut(&SlotState) -> Option<usize>) -> Self {
        let slots = slot_states.iter().map(|slot_state| slot_state.slot + 1).max().unwrap_or_default();
        let mut places = vec![None; slots];
        for slot_state in slot_states {
            places[slot_state.slot] = place(slot_state).and_then(|slot| u8::try_from(slot).ok());
        }
        Self(places)
    }

    fn of(&self, slot: u8) -> Option<u8> {
        *self.0.get(usize::from(slot))?
    }
}

#[cfg(test)]
mod tests {
    use weir_common::flow::{Address, FlowKey};

    use super::*;

    #[test]
    fn packets_in_no_record_and_without_another_reason_were_lost_with_the_earlier_weir() {
        let mut rest = Counters { seen: Tally::new(100, 10_000), ..Counters::default() };
        rest.sampled_out = Tally::new(10, 1_000);
        rest.skipped[0] = Tally::new(5, 300);
        rest.lost[Loss::RingFull as usize] = Tally::new(3, 200);
        assert_eq!(lost_with(&rest, Tally::new(82, 8_500)), Tally::default());
        assert_eq!(lost_with(&rest, Tally::new(80, 8_000)), Tally::new(2, 500));
    }

    #[test]
    fn records_survive_writing_and_reading() {
        let records: Vec<_> = (0..1_000).map(|nth| Record { bytes: nth, packets: 3, ..Record::default() }).collect();
        for some in [&records[..], &[]] {
            assert_eq!(read_records(write_records(some).unwrap()).unwrap(), some);
        }
        let torn = File::from(write_records(&records).unwrap());
        torn.set_len(100).unwrap();
        assert!(read_records(torn.into()).is_err());
    }

    #[test]
    fn a_moved_record_changes_only_its_slot_and_window() {
        let key = FlowKey::new(Address::from_v4_word(1), Address::from_v4_word(2), 6, 0).with_ports(3, 4);
        let there = Record { key: key.with_scope(Scope::new(9, 200)), packets: 7, bytes: 8, ..Record::default() };
        assert_eq!(moved(&there, 2), Record { key: key.with_scope(Scope::new(2, 0)), ..there });
        let there = Record { key: key.with_scope(Scope::new(9, 200).repeated()), ..there };
        assert_eq!(moved(&there, 2).key, key.with_scope(Scope::new(2, 0).repeated()));
    }
}
