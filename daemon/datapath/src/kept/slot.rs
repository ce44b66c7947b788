//! The state of a slot that the next weir needs.

use serde::{Deserialize, Serialize};
use weir_common::ledger::{Counters, Tally};
use weir_config::interface::Way;

use crate::tap::LinkAddress;

/// The number of words in the counters of an interface.
const WORDS: usize = size_of::<Counters>() / 8;

/// The state of a slot of the datapath, for the next weir.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct SlotState {
    /// The number of the slot.
    pub slot: usize,
    /// The name of the interface.
    pub name: String,
    /// The measured direction.
    pub way: Way,
    /// The interface's index, while it is attached.
    pub ifindex: Option<u32>,
    /// The link address, while the interface is attached, if it has one.
    #[serde(default)]
    pub address: Option<LinkAddress>,
    /// The interface's own count of this direction when it was last read, shortly before the end of the last window.
    pub own: Option<u64>,
    /// The bytes of these packets.
    #[serde(default)]
    pub own_bytes: Option<u64>,
    /// The counts of weir's program before and after that: packets, their bytes, and packets that were merged into an
    /// earlier one. Unknown for a packet socket, which ends with its weir.
    #[serde(default)]
    pub seen: Option<[[u64; 3]; 2]>,
    /// Packets and bytes that weir has missed in the window that is open, and how many more there may be. They are not
    /// declared yet.
    #[serde(default)]
    pub missed: [[u64; 2]; 2],
    /// The interfaces that it measured and that have vanished, the latest last.
    #[serde(default)]
    pub away: Vec<Away>,
    /// The counters in all reports so far, as [`words`].
    pub reported: Vec<u64>,
}

/// An interface that has vanished and may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Away {
    /// The index of the interface.
    pub ifindex: u32,
    /// The link address, if it has one.
    pub address: Option<LinkAddress>,
    /// True if it is known to have moved to another network namespace. Otherwise it may have been deleted.
    pub has_moved: bool,
    /// The interface's own packets and bytes when both counts were last compared, at least and at most.
    pub own: [[u64; 2]; 2],
    /// The packets of it that weir has counted after that, at least and at most, as in [`SlotState::seen`].
    pub later: [[u64; 3]; 2],
    /// The packets and bytes before that which weir has not seen, and how many more there may be. They are not declared
    /// yet.
    pub unseen: [[u64; 2]; 2],
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

    /// Returns the counters in all reports so far; `None` if they have another number of words.
    pub fn reported(&self) -> Option<Counters> {
        let words: [u64; WORDS] = self.reported.as_slice().try_into().ok()?;
        Some(zerocopy::transmute!(words))
    }
}
