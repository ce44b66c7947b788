//! What the past has of a key: the answer to `find` on the control socket.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Estimate, Gap, KeyWindow, Tally, instant};

/// The schema that [`Found`] serialises to.
pub const FOUND_SCHEMA: &str = "weir.found/1";

/// What the windows of a time have of some keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The schema's name and version.
    pub schema: String,
    /// The earliest start of the windows that were asked, RFC 3339 in UTC.
    #[serde(serialize_with = "instant::fixed")]
    pub from: Timestamp,
    /// Their latest end.
    #[serde(serialize_with = "instant::fixed")]
    pub to: Timestamp,
    /// How many windows these are.
    pub windows: u64,
    /// From when on weir remembers. Absent if it remembers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaches_back_to: Option<Timestamp>,
    /// The blocks of windows on disk.
    pub blocks: Blocks,
    /// Requested times without windows. Absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Gap>,
    /// Each key in each list that may have it.
    pub keys: Vec<FoundKey>,
}

/// How many blocks on disk an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocks {
    /// Blocks that were opened.
    pub opened: u64,
    /// Blocks whose filter says that they have none of the keys.
    pub skipped: u64,
    /// Blocks that could not be read. The log names them. Absent if there are none.
    #[serde(default, skip_serializing_if = "crate::alert::is_zero")]
    pub damaged: u64,
}

/// What the lists had of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundKey {
    /// The key: `src_ip=192.0.2.7`.
    pub key: String,
    /// How many windows have the key in their list. Windows that are kept several together have it all, or none.
    pub listed: u64,
    /// The start of the first window that lists it. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// The end of the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
    /// Its packets. The value is the sum of the windows that list the key, and the bounds are those of all windows.
    /// Absent if none lists it. A network, a port and other parts of the traffic have the sum of all rows that belong
    /// to them, and where sampled flow records know more, the value and the bounds of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Estimate>,
    /// Its bytes on the wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Estimate>,
    /// It had no more than this, listed or not.
    pub at_most: Tally,
    /// The probability that the bounds of all windows hold, 0 to 1.
    pub confidence: f64,
}

impl FoundKey {
    /// Nothing yet of this key.
    pub fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            listed: 0,
            first: None,
            last: None,
            packets: None,
            bytes: None,
            at_most: Tally::default(),
            confidence: 1.0,
        }
    }

    /// Adds a window, or several together.
    pub fn add(&mut self, window: &KeyWindow) {
        let seconds = crate::Length::default();
        let (start, end) = (window.start, window.end);
        let Self { listed, packets, bytes, at_most, .. } = *self;
        let mut sum = KeyWindow { start, end, seconds, windows: 0, listed, packets, bytes, at_most };
        sum.add(window);
        (self.listed, self.packets, self.bytes, self.at_most) = (sum.listed, sum.packets, sum.bytes, sum.at_most);
        if window.listed > 0 {
            self.first = self.first.into_iter().chain([start]).min();
            self.last = self.last.into_iter().chain([end]).max();
        }
    }

    /// Takes closer bounds of packets and bytes, and the most likely numbers, which hold with this probability: a lower
    /// bound, and an estimate whose upper bound holds. If both exclude each other, one of them has failed, and the
    /// former ones stay.
    pub fn narrow(&mut self, [packets, bytes]: [(u64, Estimate); 2], confidence: f64) {
        let known = [(self.packets, self.at_most.packets), (self.bytes, self.at_most.bytes)];
        let closer = known.into_iter().zip([packets, bytes]).map(|((known, at_most), (least, of))| {
            let lower = known.map_or(0, |known| known.lower).max(least);
            let upper = at_most.min(of.upper);
            (lower <= upper).then(|| Estimate { value: of.value.clamp(lower, upper), lower, upper, sampled: None })
        });
        let [Some(packets), Some(bytes)] = closer.collect::<Vec<_>>()[..] else { return };
        (self.packets, self.bytes) = (Some(packets), Some(bytes));
        self.at_most = Tally { packets: packets.upper, bytes: bytes.upper };
        self.confidence = f64::max(self.confidence - (1.0 - confidence), 0.0);
    }

    /// Adds windows that do not list it, in which it had at most this.
    pub fn add_unlisted(&mut self, most: Tally) {
        for estimate in [(&mut self.packets, most.packets), (&mut self.bytes, most.bytes)] {
            if let (Some(of), more) = estimate {
                of.upper = of.upper.saturating_add(more);
            }
        }
        self.at_most.packets = self.at_most.packets.saturating_add(most.packets);
        self.at_most.bytes = self.at_most.bytes.saturating_add(most.bytes);
    }
}
