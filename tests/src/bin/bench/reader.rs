//! Reads the ring as a worker does, but only adds up: the benchmark measures the datapath, not the sketches.

use anyhow::{Result, bail};
use weir::datapath::{EdgeReader, FlushProgram, Ring};
use weir_common::{
    control::Flush,
    ledger::{Ledger, Tally},
    record::Entry,
};

/// A ring's reader and the account of the open window.
pub struct Reader {
    ring: Ring,
    edges: EdgeReader,
    attributed: Tally,
}

impl Reader {
    /// A reader of one interface's records.
    pub fn new(ring: Ring) -> Self {
        Self { ring, edges: EdgeReader::new(1), attributed: Tally::default() }
    }

    /// Reads all that is in the ring; returns the window's ledger if its edge was there.
    pub fn drain(&mut self) -> Option<Ledger> {
        let Self { ring, edges, attributed } = self;
        let mut closed = None;
        ring.drain(|entry| match entry {
            Entry::Records(records) => records.iter().for_each(|record| attributed.add(record.tally())),
            Entry::Interface(edge) => edges.interface(edge),
            Entry::Sizes(edge) => {
                let counters = edges.sizes(edge).counters[0];
                closed = Some(Ledger { counters, attributed: std::mem::take(attributed) });
            }
        });
        closed
    }

    /// Closes the window; the calling thread must be on the ring's CPU.
    ///
    /// # Errors
    ///
    /// The kernel refused to run the program that does it.
    pub fn close(&mut self, flush: FlushProgram<'_>) -> Result<Ledger> {
        self.drain();
        loop {
            match flush.run()? {
                Flush::Again | Flush::RingFull => {
                    self.drain();
                }
                Flush::Done => break,
                Flush::NoRing => bail!("this CPU has no ring"),
            }
        }
        match self.drain() {
            Some(ledger) => Ok(ledger),
            None => bail!("the window was closed, and its edge is not in the ring"),
        }
    }
}
