//! Reads the ring as a worker does, but only adds up: the benchmark measures the datapath, not the sketches.

use anyhow::{Context, Result, bail};
use weir_common::{
    control::Flush,
    ledger::{Ledger, Tally},
    record::Record,
};
use weir_datapath::{Edge, EdgeReader, FlushProgram, Ring};

/// A ring's reader and the account of the open window.
pub struct Reader {
    ring: Ring,
    edges: EdgeReader,
    epoch: u32,
    attributed: Tally,
}

impl Reader {
    /// A reader of one interface's records.
    pub fn new(ring: Ring) -> Self {
        Self { ring, edges: EdgeReader::new(1), epoch: 0, attributed: Tally::default() }
    }

    /// Reads all that is in the ring.
    pub fn drain(&mut self) {
        let Self { ring, attributed, .. } = self;
        ring.drain(|records| add(attributed, records));
    }

    /// Closes the window.
    ///
    /// # Errors
    ///
    /// The kernel refused to run the program that does it.
    pub fn close(&mut self, flush: FlushProgram<'_>) -> Result<Ledger> {
        let cpu = self.ring.cpu();
        loop {
            let flushed = flush.close(cpu)?.context("this CPU is offline")?;
            flush.blocks().take(cpu, flushed, |records| add(&mut self.attributed, records))?;
            match flushed.state {
                Flush::Again => {}
                Flush::Done => break,
                Flush::Busy | Flush::NoBlock => bail!("flush said {:?}", flushed.state),
            }
        }
        self.drain();
        let Self { edges, epoch, attributed, .. } = self;
        let mut edge = Edge::empty(1);
        flush.blocks().read(cpu, |block| edges.read(*epoch, block, &mut edge))?;
        *epoch += 1;
        Ok(Ledger { counters: edge.counters[0], attributed: std::mem::take(attributed) })
    }
}

fn add(sum: &mut Tally, records: &[Record]) {
    for record in records.iter() {
        sum.add(record.tally());
    }
}
