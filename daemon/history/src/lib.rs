//! The history of a running weir, in fixed memory: an hour of seconds, and a day of windows.
//!
//! ```text
//! coordinator: each second the counters, each window the report     (never waits)
//! this thread: packs windows, writes both to the state directory, and answers
//! ```
//!
//! `seconds` has the exact counters of each interface. `windows` has the windows: `packed` compresses them, `block` is
//! the format of several windows in memory and on disk, `ring` drops the oldest blocks to make room for new ones, and
//! `reach` estimates how far back they go. `confidence` makes the bounds of a window hold for many windows together.
//! `disk` keeps seconds and windows across restarts. `answer` and `of_key` compose the answers for clients, and
//! `recorder` is the thread.

#![forbid(unsafe_code)]

pub mod answer;
mod block;
mod confidence;
mod disk;
mod of_key;
mod packed;
mod reach;
mod recorder;
mod ring;
mod seconds;
#[cfg(test)]
mod testing;
mod windows;

pub use of_key::OfKey;
pub use reach::Reach;
pub use recorder::{Answer, Asker, History, Query, Settings};
pub use seconds::{Carried, Counts, TRACKS_MAX};
pub use windows::Time;

/// Working memory of the thread: an open block, an unpacked block, and some windows that are joined.
const WORKING_BYTES: u64 = 4 << 20;

/// The maximum memory of a history in bytes, with this much for windows, and for this many interfaces and directions.
pub fn memory_bytes(windows: u64, slots: usize) -> u64 {
    let tracks = slots.min(TRACKS_MAX) as u64;
    windows + seconds::ROWS_BYTES as u64 + tracks * seconds::TRACK_BYTES as u64 + WORKING_BYTES
}
