//! Sketches that reports carry, and how those of several windows and routers are merged.
//!
//! weir-report reads them from each window and gathers those of a minute. A [`ListUnion`] adds up lists.
//! docs/FLEET.md explains the fields, and how other programs merge them.

mod list;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_sketch::datasketches::PublicHash;

pub use self::list::{KeySums, ListUnion, Mismatch};

/// The distinct counts of a report.
pub const UNIQUE: [&str; 3] = ["unique.src_ip", "unique.dst_ip", "unique.flows"];

/// Cells of a list: each key that is not listed is in one.
pub const WIDTH: usize = 1 << WIDTH_LG;
const WIDTH_LG: u32 = 8;
/// The seed of the hash that chooses the cell: that of all sketches of `DataSketches`.
pub const SEED: u32 = 9001;

/// Sketches that can be merged with those of other windows and routers. docs/FLEET.md says how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sketches {
    /// When the first of their windows began, RFC 3339 in UTC.
    #[serde(serialize_with = "crate::instant::fixed")]
    pub start: Timestamp,
    /// When the last of their windows ended.
    #[serde(serialize_with = "crate::instant::fixed")]
    pub end: Timestamp,
    /// The number of their windows: that of this report and those immediately before it.
    pub windows: u32,
    /// The sketches of distinct counts.
    pub distinct: Vec<DistinctSketch>,
    /// The largest keys of lists, and bounds of all other keys.
    pub lists: Vec<ListSketch>,
    /// Distinct counts by key: floods and scans.
    pub spread: Vec<SpreadSketch>,
}

/// The sketch of a distinct count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DistinctSketch {
    /// The count that it belongs to: `unique.src_ip`, `unique.dst_ip`, `unique.flows`, or the name of a view.
    pub name: String,
    /// The fingerprint of the question, as in the report's views: sketches with different ones never belong together.
    /// Absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub question: Option<String>,
    /// The fingerprint of the key of its hashes. Only sketches with the same one can be merged.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub key_id: String,
    /// The number of its registers, as a power of two. Only sketches with the same one can be merged.
    #[schemars(range(min = 4, max = 16))]
    pub lg_k: u32,
    /// Packets that were lost or left out. Each may belong to one more distinct value.
    pub missing_packets: u64,
    /// The registers as an image of Apache `DataSketches`, `HLL_8`, in base64: one byte each from byte 40 on.
    pub hll: String,
}

/// The largest keys of a list, and an upper bound of every other key. All arrays are in the same order of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListSketch {
    /// The name of the list or view.
    pub name: String,
    /// The fingerprint of the question, as in the report's views: sketches with different ones never belong together.
    /// Absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub question: Option<String>,
    /// The fields of a key.
    pub by: Vec<String>,
    /// The probability that all its bounds hold, 0 to 1; 1 if they always do.
    #[schemars(range(min = 0, max = 1))]
    pub confidence: f64,
    /// How many cells there are. Only lists with the same number can be merged.
    pub width: u32,
    /// How many cells a key has: 1.
    pub depth: u32,
    /// The seed of the hash that chooses a key's cell: `MurmurHash3_x64_128` of the key in UTF-8, its first word modulo
    /// `width`.
    pub seed: u32,
    /// The listed keys: the values of their fields, separated by spaces.
    pub keys: Vec<String>,
    /// The cell of each key.
    pub cells: Vec<u32>,
    /// Each key has at least this many packets.
    pub packets_lower: Vec<u64>,
    /// Each key has at most this many packets.
    pub packets_upper: Vec<u64>,
    /// Each key has at least this many bytes.
    pub bytes_lower: Vec<u64>,
    /// Each key has at most this many bytes.
    pub bytes_upper: Vec<u64>,
    /// By cell: each of its keys that is not listed has at most this many packets.
    pub rest_packets: Vec<u64>,
    /// By cell: each of its keys that is not listed has at most this many bytes.
    pub rest_bytes: Vec<u64>,
}

/// Distinct counts by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpreadSketch {
    /// The name of the list or view.
    pub name: String,
    /// The fingerprint of the question, as in the report's views: sketches with different ones never belong together.
    /// Absent in reports of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub question: Option<String>,
    /// The fields of a key.
    pub by: Vec<String>,
    /// The fingerprint of the key of its hashes. Only sketches with the same one can be merged.
    #[schemars(regex(pattern = "^[0-9a-f]{16}$"))]
    pub key_id: String,
    /// Packets that were lost or left out. Each may belong to one more distinct value.
    pub missing_packets: u64,
    /// A spread sketch as an image of weir-sketch, in base64. Its keys are 40 bytes.
    pub image: String,
}

/// The cell of a key.
pub fn cell(key: &str) -> u32 {
    (PublicHash::of_bytes(key.as_bytes()).for_precision(WIDTH_LG) >> (u64::BITS - WIDTH_LG)) as u32
}

/// Encodes the image of a sketch as text.
pub fn encode(image: &[u8]) -> String {
    STANDARD.encode(image)
}

/// The bytes of a text that `encode` made, or `None`.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// A fingerprint in a report.
pub fn key_id(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cell_of_a_key_is_its_hash_in_datasketches() {
        // The register of each in an `hll_sketch(8)`; an independent MurmurHash3 gives the same.
        assert_eq!(["192.0.2.1", "tcp 443", "*"].map(cell), CELLS);
    }

    const CELLS: [u32; 3] = [156, 223, 217];
}
