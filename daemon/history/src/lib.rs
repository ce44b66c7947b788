//! The history of a running weir: an hour of seconds, and windows, in fixed memory and on disk.
//!
//! ```text
//! coordinator: each second the counters, each window the report     (never waits)
//! this thread: packs windows, writes both to the state directory, and answers
//! ```
//!
//! `seconds` has the exact counters of each interface. `windows` has the windows: `packed` compresses them, `block`
//! is the format of several windows in memory and on disk, `ring` drops the oldest blocks to make room for new ones,
//! and `reach` estimates how far back they go. `confidence` makes the bounds of a window hold for many windows
//! together. `distinct` counts distinct addresses over many windows. `samples` has flow records for
//! questions that no view asked, which `asked_flows` answers. `archive` has the blocks on disk, each with a
//! `filter` of its addresses, and `disk` the rest. [`usage`] has what interfaces carried in thirteen months, and a
//! thread of its own. [`local`] is the file of horizons and known hosts. `answer`, `of_key` and `find` compose the
//! answers for clients, `query` chooses one, `recorder` is the thread, `stored` reads a folder without a running weir,
//! and `several` adds up those of several routers.

#![forbid(unsafe_code)]

pub mod answer;
mod archive;
mod asked_flows;
mod block;
mod confidence;
mod disk;
mod distinct;
mod filter;
mod find;
pub mod local;
mod of_key;
mod packed;
mod query;
mod reach;
mod recorder;
mod ring;
mod samples;
mod seconds;
mod several;
mod stored;
#[cfg(test)]
mod testing;
mod time;
pub mod usage;
mod windows;
mod writes;

use std::path::Path;

use weir_system::memory::Part;

pub use archive::Limits;
pub use of_key::OfKey;
pub use query::{Answer, Compared, Query};
pub use reach::Reach;
pub use recorder::{Asker, Changeable, History, Settings};
pub use seconds::{Carried, Counts, TRACKS_MAX};
pub use several::{OneOfSeveral, Several};
pub use stored::{Stored, observer_of};
pub use time::Time;

/// Working memory of the thread: an open block, an unpacked block, and some windows that are joined.
const WORKING_BYTES: u64 = 7 << 20;

/// Creates the folder of a history. If that is not possible, the history says so when it is written.
pub fn provide(folder: &Path) {
    let _ = disk::create(folder);
}

/// The memory of a history, if there is one, for this many interfaces and directions. `report` has the bytes of a
/// report with as many rows as the history keeps.
pub fn memory(history: Option<&weir_config::History>, slots: usize, report: u64) -> Part {
    let tracks = slots.min(TRACKS_MAX) as u64;
    let seconds = seconds::ROWS_BYTES as u64 + tracks * seconds::TRACK_BYTES as u64;
    let besides = seconds + WORKING_BYTES + recorder::REPORTS_MAX as u64 * report;
    let bytes = history.map_or(0, |history| {
        // Samples that are being united are in their share of the memory, if they fit.
        let share = windows::share_of_samples(history.memory, history.sample);
        history.memory + samples::pending_bytes(history.sample, recorder::REPORTS_MAX).saturating_sub(share) + besides
    });
    Part::new("history", bytes, "an hour of seconds, windows, and room to pack and join them").if_any()
}
