//! The state of a slot that the next weir needs.

use serde::{Deserialize, Serialize};
use weir_common::ledger::{Counters, Tally};
use weir_config::interface::Way;

/// The number of words in the counters of an interface.
const WORDS: usize = size_of::<Counters>() / 8;

/// One slot of the datapath.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SlotState {
    /// Its number.
    pub slot: usize,
    /// The interface's name.
    pub name: String,
    /// The direction.
    pub way: Way,
    /// The interface's index, while it is attached.
    pub ifindex: Option<u32>,
    /// The interface's own count of this direction when it was last read, shortly before the end of the last window.
    pub own: Option<u64>,
    /// The same count in bytes.
    #[serde(default)]
    pub own_bytes: Option<u64>,
    /// What weir's program had counted before and after that: packets, their bytes, and packets that were merged into
    /// an earlier one. Unknown for a packet socket, which ends with its weir.
    #[serde(default)]
    pub seen: Option<[[u64; 3]; 2]>,
    /// The largest index of any interface at that time: an interface with a larger index was created later.
    #[serde(default)]
    pub newest: Option<u32>,
    /// Its counters in all reports so far, as [`words`].
    pub reported: Vec<u64>,
}

/// Converts counters to words.
pub fn words(counters: &Counters) -> Vec<u64> {
    let words: [u64; WORDS] = zerocopy::transmute!(*counters);
    words.to_vec()
}

impl SlotState {
    /// The interface's own count of this direction, if both packets and bytes are known.
    pub fn own(&self) -> Option<Tally> {
        Some(Tally::new(self.own?, self.own_bytes?))
    }

    /// Its counters in all reports so far; `None` if they have another number of words.
    pub fn reported(&self) -> Option<Counters> {
        let words: [u64; WORDS] = self.reported.as_slice().try_into().ok()?;
        Some(zerocopy::transmute!(words))
    }
}
