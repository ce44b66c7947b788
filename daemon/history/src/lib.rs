//! What a running weir remembers, in fixed memory: an hour of seconds, and a day of windows.
//!
//! ```text
//! coordinator: each second the counters, each window the report     (never waits)
//! this thread: packs windows, writes both to the state directory, and answers
//! ```
//!
//! `seconds` has the exact counters of each interface. `windows` has the windows: `packed` says how they become
//! small, `block` what a few of them look like in memory and on disk, `ring` how the oldest make room, and
//! `reach` how far back that is. `confidence` keeps the bounds of many windows together meaningful. `disk` keeps
//! both across restarts. `answer` is what clients get, and `recorder` the thread.

#![forbid(unsafe_code)]

pub mod answer;
mod block;
mod confidence;
mod disk;
mod packed;
mod reach;
mod recorder;
mod ring;
mod seconds;
#[cfg(test)]
mod testing;
mod windows;

pub use reach::Reach;
pub use recorder::{Answer, Asker, History, Query, Settings};
pub use seconds::{Carried, Counts, TRACKS_MAX};
pub use windows::Time;

/// What the thread needs besides: an open block, one that is unpacked, and some windows that are joined.
const WORKING_BYTES: u64 = 4 << 20;

/// The memory of a history in bytes, at most: with this much for windows, and this many interfaces and directions.
pub fn memory_bytes(windows: u64, slots: usize) -> u64 {
    let tracks = slots.min(TRACKS_MAX) as u64;
    windows + seconds::ROWS_BYTES as u64 + tracks * seconds::TRACK_BYTES as u64 + WORKING_BYTES
}
