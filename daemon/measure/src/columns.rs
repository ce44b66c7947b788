//! Records on their way through the sketches, a group at a time, as rows and as columns.

use weir_common::{hash::FlowHashes, ledger::Tally, record::Record};
use weir_sketch::{candidate_buckets::Packed, hash::KeyedHash};

use crate::by::Kind;

/// Records that are taken through the sketches together.
pub const TOGETHER: usize = 32;
// A word has a bit for each of them that says whether its flow is new.
const _: () = assert!(TOGETHER <= u32::BITS as usize);

/// A record on its way through the sketches.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// The hashes of the flow and its parts.
    pub hashes: FlowHashes,
    /// The record. It is not copied, because copying took a tenth of a record's time.
    pub record: &'a Record,
    /// The packets and bytes, scaled by the record's sampling rate.
    pub tally: Tally,
}

impl<'a> Item<'a> {
    /// A record with its hashes and its scaled tally.
    #[inline(always)]
    pub fn new(hash: &KeyedHash, record: &'a Record) -> Self {
        Self::with_hashes(FlowHashes::new(hash, &record.key), record)
    }

    /// Makes the item of a record whose hashes are known.
    #[inline(always)]
    pub fn with_hashes(hashes: FlowHashes, record: &'a Record) -> Self {
        // Taken packets also stand for packets that were left out.
        let (counted, rate) = (record.tally(), u64::from(record.sampling));
        Self { hashes, record, tally: Tally::new(counted.packets * rate, counted.bytes * rate) }
    }
}

/// A group of records in columns, the form that many sketches read.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// The records of the batch.
    pub items: &'a [Item<'a>],
    /// The tally of each record.
    pub tallies: &'a [Tally],
    /// The same items in the packed form that candidate buckets take.
    pub packed: &'a [Packed<Tally>],
    /// The sum of all tallies.
    pub total: Tally,
    hashes: &'a Hashes,
}

/// By [`Kind`]: the hashes of the kinds that share them.
type Hashes = [[u64; TOGETHER]; 5];

/// Room for the columns of [`TOGETHER`] records.
#[derive(Default)]
pub struct Transposed {
    tallies: [Tally; TOGETHER],
    packed: [Packed<Tally>; TOGETHER],
    hashes: Hashes,
}

impl Transposed {
    /// The columns of at most [`TOGETHER`] records.
    #[inline]
    pub fn columns<'a>(&'a mut self, items: &'a [Item<'a>]) -> Columns<'a> {
        for (nth, item) in items.iter().enumerate().take(TOGETHER) {
            let FlowHashes { source, destination, pair, flow, service } = item.hashes;
            self.tallies[nth] = item.tally;
            self.packed[nth] = item.tally.into();
            for (column, hash) in self.hashes.iter_mut().zip([flow, source, destination, pair, service]) {
                column[nth] = hash;
            }
        }
        let Self { tallies, packed, hashes } = self;
        let (tallies, packed) = (&tallies[..items.len()], &packed[..items.len()]);
        Columns { items, tallies, packed, total: tallies.iter().copied().sum(), hashes }
    }
}

impl<'a> Columns<'a> {
    /// The hashes that views of this kind share, if they do.
    #[inline]
    pub fn hashes(&self, kind: Kind) -> Option<&'a [u64]> {
        let column = match kind {
            Kind::Flow => 0,
            Kind::Source => 1,
            Kind::Destination => 2,
            Kind::Pair => 3,
            Kind::Service => 4,
            Kind::PairOfInterface | Kind::Network | Kind::Other => return None,
        };
        Some(&self.hashes[column][..self.items.len()])
    }
}
