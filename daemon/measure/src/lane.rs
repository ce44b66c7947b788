//! Reads one CPU's records into a shard, and closes its windows.
//!
//! A CPU may be late, because a packet stays half counted there. It does not delay the others. Its part of the window
//! is then only the records that have arrived, and only their packets are reported as seen. Later records, and the
//! exact counters minus the packets that were already reported, belong to the window in which they come.

use weir_common::{
    control::{Flush, FlushOrder},
    ledger::{Counters, Tally},
    record::Record,
};
use weir_datapath::{
    edge::{Edge, EdgeReader},
    error::KernelError,
    programs::FlushProgram,
    ring::{Drained, Ring},
};
use weir_sketch::Seen;

use super::batch::RecordBatch;

/// Reads a CPU's records and ends its windows.
pub trait Source {
    /// Returns the number of the CPU.
    fn cpu(&self) -> u32;

    /// Hands over all records in the ring, in order.
    fn drain(&mut self, take: impl FnMut(&[Record])) -> Drained;

    /// Does the next part of closing the window, and hands over the records that it took out of the cache.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    fn flush(&mut self, take: impl FnMut(&[Record])) -> Result<Flush, KernelError>;

    /// Puts the counters of the window that [`Source::flush`] has just closed into `edge`.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    fn edge(&mut self, edge: &mut Edge) -> Result<(), KernelError>;

    /// Reads the counters of this many interfaces from now on. The number never decreases.
    fn provide(&mut self, interfaces: usize);
}

/// A CPU's ring, and the kernel's `flush` program.
pub struct KernelSource<'a> {
    ring: Ring,
    flush: FlushProgram<'a>,
    edges: EdgeReader,
    epoch: u32,
    /// True if the cache of this CPU was claimed while it was offline, so that its packets do not touch it.
    is_claimed: bool,
}

impl<'a> KernelSource<'a> {
    /// The source of the CPU that writes to `ring`.
    pub fn new(ring: Ring, flush: FlushProgram<'a>, interfaces: usize) -> Self {
        Self { ring, flush, edges: EdgeReader::new(interfaces), epoch: 0, is_claimed: false }
    }
}

impl Source for KernelSource<'_> {
    fn cpu(&self) -> u32 {
        self.ring.cpu()
    }

    fn drain(&mut self, take: impl FnMut(&[Record])) -> Drained {
        self.ring.drain(take)
    }

    fn flush(&mut self, take: impl FnMut(&[Record])) -> Result<Flush, KernelError> {
        let cpu = self.ring.cpu();
        let flushed = match self.flush.close(cpu)? {
            Some(flushed) => {
                self.is_claimed &= flushed.state == Flush::Busy;
                flushed
            }
            None if !self.is_claimed => {
                self.is_claimed = true;
                self.flush.elsewhere(cpu, FlushOrder::Claim)?
            }
            // The CPU is still, or again, offline after the claim. So no packet is half counted there, and the next
            // packet will see the claim.
            None => self.flush.elsewhere(cpu, FlushOrder::CloseOffline)?,
        };
        self.flush.blocks().take(cpu, flushed, take)?;
        if flushed.state == Flush::Done && self.is_claimed {
            self.flush.elsewhere(cpu, FlushOrder::Release)?;
            self.is_claimed = false;
        }
        Ok(flushed.state)
    }

    fn edge(&mut self, edge: &mut Edge) -> Result<(), KernelError> {
        let Self { ring, flush, edges, epoch, .. } = self;
        flush.blocks().read(ring.cpu(), |cpu| edges.read(*epoch, cpu, edge))?;
        *epoch = epoch.wrapping_add(1);
        Ok(())
    }

    fn provide(&mut self, interfaces: usize) {
        self.edges.provide(interfaces);
    }
}

/// The batches that get the records of a lane.
pub struct Batches<'a> {
    /// The batch of the window that is open or being closed.
    pub open: &'a mut RecordBatch,
    /// Takes the records of the next window.
    pub next: Next<'a>,
    /// The filter of seen flows.
    pub seen: &'a Seen,
}

/// The place for records of the next window.
pub enum Next<'a> {
    /// There are none: the window is not being closed.
    Nowhere,
    /// Into the batch of that window.
    Absorbed(&'a mut RecordBatch),
    /// This is the last window. They are kept for the next weir.
    Kept(&'a mut Vec<Record>),
}

/// The exact counters of a window that is being closed on some lanes.
pub struct Sum {
    /// The sum of all lanes.
    pub edge: Edge,
    /// The counters of the lane that was read last.
    last: Edge,
    /// True if that lane is the first one.
    is_first: bool,
}

impl Sum {
    /// Makes a sum without lanes.
    pub fn new(interfaces: usize) -> Self {
        Self { edge: Edge::empty(interfaces), last: Edge::empty(interfaces), is_first: true }
    }

    /// The number of interfaces.
    pub const fn interfaces(&self) -> usize {
        self.edge.counters.len()
    }

    /// Makes room for this many interfaces. The number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        self.edge.provide(interfaces);
        self.last.provide(interfaces);
    }

    /// Returns the counters of all lanes, and begins the next window.
    pub fn take(&mut self) -> Edge {
        let empty = Edge::empty(self.interfaces());
        self.is_first = true;
        std::mem::replace(&mut self.edge, empty)
    }

    fn add_last(&mut self) {
        self.edge.add(&self.last);
        if std::mem::take(&mut self.is_first) {
            // The sum has no lane yet, and an empty edge also has a rate.
            self.edge.sampling = self.last.sampling;
        }
    }
}

/// Bytes that a lane keeps for each interface in case its CPU is late.
pub const LATE_BYTES: usize = 3 * size_of::<Reported>();

/// The records and counters of one CPU.
pub struct Lane<S> {
    source: S,
    /// The oldest epoch that is not closed.
    epoch: u8,
    /// True if `flush` has ended that epoch, but has not finished closing it.
    is_half_closed: bool,
    /// How many epochs have to be closed with the open window.
    to_close: u8,
    came: Received,
    /// Packets that earlier windows reported as seen, but that the counters do not include yet.
    ahead: Vec<Reported>,
    ring_peak: f64,
}

/// Packets reported as seen, and how many of them another interface feeds.
#[derive(Clone, Copy, Default)]
struct Reported {
    seen: Tally,
    repeated: Tally,
}

/// Packets received from a lane, by interface slot.
struct Received {
    /// Packets in the open window that the exact counters of the sum do not include yet.
    open: Vec<Reported>,
    /// Packets in the next window.
    next: Vec<Reported>,
}

impl<S: Source> Lane<S> {
    /// The lane of a CPU before its first window is closed.
    pub fn new(source: S, interfaces: usize) -> Self {
        let none = vec![Reported::default(); interfaces];
        Self {
            source,
            epoch: 0,
            is_half_closed: false,
            to_close: 0,
            came: Received { open: none.clone(), next: none.clone() },
            ahead: none,
            ring_peak: 0.0,
        }
    }

    /// Returns the number of the CPU.
    pub fn cpu(&self) -> u32 {
        self.source.cpu()
    }

    /// Makes room for this many interfaces. The number never decreases.
    pub fn provide(&mut self, interfaces: usize) {
        self.source.provide(interfaces);
        if interfaces > self.ahead.len() {
            for told in [&mut self.came.open, &mut self.came.next, &mut self.ahead] {
                told.resize(interfaces, Reported::default());
            }
        }
    }

    /// The source of its records.
    #[cfg(test)]
    pub(super) const fn source(&mut self) -> &mut S {
        &mut self.source
    }

    /// Reads all records in the ring.
    pub fn drain(&mut self, batches: &mut Batches<'_>) -> Drained {
        let Self { source, epoch, is_half_closed, to_close, came, ring_peak, .. } = self;
        let after = Later::of(*is_half_closed, *to_close);
        let drained = source.drain(|records| came.sort(records, *epoch, after, batches));
        *ring_peak = ring_peak.max(drained.fill);
        drained
    }

    /// Lets the CPU hand over its cache and its counters for the open window. The window stays open and gets one more
    /// epoch. Does not wait for a busy CPU: the rest comes with the next call, or when the window is closed.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn collect(&mut self, batches: &mut Batches<'_>, sum: &mut Sum) -> Result<(), KernelError> {
        loop {
            let Self { source, epoch, came, .. } = self;
            match source.flush(|records| came.sort(records, *epoch, Later::Same, batches))? {
                Flush::Again => {
                    self.is_half_closed = true;
                    self.drain(batches);
                }
                Flush::Busy => return Ok(()),
                Flush::NoBlock => return Err(KernelError::Missing("CPUS")),
                Flush::Done => {
                    self.end_epoch(batches, sum)?;
                    self.drain(batches);
                    return Ok(());
                }
            }
        }
    }

    /// Ends the epoch that `flush` has closed: the rest of its records is in the ring, and its counters no longer
    /// change.
    fn end_epoch(&mut self, batches: &mut Batches<'_>, sum: &mut Sum) -> Result<(), KernelError> {
        self.is_half_closed = true;
        self.drain(batches);
        self.source.edge(&mut sum.last)?;
        sum.add_last();
        for (came, counters) in self.came.open.iter_mut().zip(&sum.last.counters) {
            came.take(counters);
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.is_half_closed = false;
        Ok(())
    }

    /// Adds the records of the open window that its exact counters do not include yet, as [`Lane::end`] does for a late
    /// CPU. Returns whether there are any.
    pub fn add_arrived(&self, counters: &mut [Counters]) -> bool {
        let mut have_arrived = false;
        for (counters, arrived) in counters.iter_mut().zip(&self.came.open) {
            counters.seen.add(arrived.seen);
            counters.repeated.add(arrived.repeated);
            have_arrived |= !arrived.seen.is_zero();
        }
        have_arrived
    }

    /// Begins to close the window.
    pub const fn begin_close(&mut self) {
        self.to_close = 1 + self.is_half_closed as u8;
    }

    /// Does the next part of closing the window. Returns `Done` when the lane has finished.
    ///
    /// # Errors
    ///
    /// The kernel refused.
    pub fn close(&mut self, batches: &mut Batches<'_>, sum: &mut Sum) -> Result<Flush, KernelError> {
        let Self { source, epoch, is_half_closed, to_close, came, .. } = self;
        let after = Later::of(*is_half_closed, *to_close);
        let state = source.flush(|records| came.sort(records, *epoch, after, batches))?;
        match state {
            Flush::Again => self.is_half_closed = true,
            Flush::Busy => {}
            Flush::NoBlock => return Err(KernelError::Missing("CPUS")),
            Flush::Done => {
                self.end_epoch(batches, sum)?;
                self.to_close -= 1;
                return Ok(if self.to_close == 0 { Flush::Done } else { Flush::Again });
            }
        }
        self.drain(batches);
        Ok(state)
    }

    /// Returns true if this lane's part of the window is closed already.
    pub const fn is_ended(&self) -> bool {
        self.to_close == 0
    }

    /// Ends the window, closed or not. Some packets were reported as seen in an earlier window than that of the exact
    /// counters, or will be in a later one. Corrects the sum for them.
    pub fn end(&mut self, sum: &mut Sum) -> ClosedLane {
        let is_whole = std::mem::take(&mut self.to_close) == 0;
        let lanes = self.came.open.iter().zip(&mut self.ahead);
        for (counters, (early, ahead)) in sum.edge.counters.iter_mut().zip(lanes) {
            let correction = if is_whole {
                Reported::default().since(std::mem::take(ahead))
            } else {
                ahead.add(*early);
                *early
            };
            counters.seen.add(correction.seen);
            counters.repeated.add(correction.repeated);
        }
        let Received { open, next } = &mut self.came;
        std::mem::swap(open, next);
        next.fill(Reported::default());
        ClosedLane { is_whole, ring_peak: std::mem::take(&mut self.ring_peak) }
    }
}

impl Reported {
    /// Subtracts the packets that are in records according to the exact counters: all except those sampled out, skipped
    /// or lost.
    fn take(&mut self, counters: &Counters) {
        let others = counters.skipped.iter().chain(&counters.lost).chain([&counters.sampled_out]).copied().sum();
        let in_records = counters.seen.since(others);
        *self = self.since(Self { seen: in_records, repeated: counters.repeated });
    }

    fn add(&mut self, other: Self) {
        self.seen.add(other.seen);
        self.repeated.add(other.repeated);
    }

    /// This minus the other, which may be larger. All counts wrap.
    fn since(self, other: Self) -> Self {
        Self { seen: self.seen.since(other.seen), repeated: self.repeated.since(other.repeated) }
    }
}

/// The result of ending a lane's window.
pub struct ClosedLane {
    /// True if the counters cover the whole window.
    pub is_whole: bool,
    /// The highest fill of the ring, 0 to 1.
    pub ring_peak: f64,
}

/// Which window the records of the epoch after the oldest one belong to.
#[derive(Clone, Copy)]
enum Later {
    /// There is no window: such a record cannot exist.
    None,
    /// The window of the oldest epoch, which is late.
    Same,
    /// The window after the open one.
    Next,
}

impl Later {
    const fn of(is_half_closed: bool, to_close: u8) -> Self {
        match (to_close, is_half_closed) {
            (1, _) => Self::Next,
            (0, false) => Self::None,
            _ => Self::Same,
        }
    }
}

impl Received {
    fn sort(&mut self, records: &[Record], epoch: u8, later: Later, batches: &mut Batches<'_>) {
        let Batches { open, next, seen } = batches;
        for record in records {
            // A record of neither window is left out. The ledger then does not balance.
            let (batch, came) = match (record.key.epoch().wrapping_sub(epoch), later, &mut *next) {
                (0, ..) | (1, Later::Same, _) => (&mut **open, &mut self.open),
                (1, Later::Next, Next::Absorbed(next)) => (&mut **next, &mut self.next),
                (1, Later::Next, Next::Kept(kept)) => {
                    kept.push(*record);
                    continue;
                }
                _ => continue,
            };
            batch.push(record, seen);
            if let Some(came) = came.get_mut(usize::from(record.key.interface())) {
                came.seen.add(record.tally());
                if record.key.scope().is_repeated() {
                    came.repeated.add(record.tally());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_aggregator::tests::Script;

    #[test]
    fn a_lane_keeps_as_much_as_is_planned() {
        let Lane { came: Received { open, next }, ahead, .. } = Lane::new(Script::default(), 5);
        let kept: usize = [open, next, ahead].iter().map(|told| size_of_val(&told[..])).sum();
        assert_eq!(kept, 5 * LATE_BYTES);
    }
}
