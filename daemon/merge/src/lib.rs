//! `weir merge`: the reports of many routers become one answer, on one machine and in fixed memory.
//!
//! ```text
//! input (files, standard input, a collector's database) -> line (parsed by all CPUs) -> merger
//!     arrivals: duplicates, gaps, tombstones, late reports
//!     group:    a window of a site: sums, unions, lists
//! -> answer -> tables, JSON
//! ```
//!
//! The live screen, `weir top --merge`, has another input and another end:
//!
//! ```text
//! follow (the same files as they grow) -> line -> board (the merger with the newest windows, and each router)
//! -> lists -> live (a source of weir-top's screen)
//! ```
//!
//! `weir merge --history` reads folders instead: `history` prints what the histories of several routers have of a time,
//! which [`weir_history::Several`] adds up.
//!
//! Nothing is joined that does not belong together: other keys, other sizes and other geometries are named, and what
//! they say is given apart.

#![forbid(unsafe_code)]

pub mod answer;
mod arrivals;
mod board;
pub mod cli;
mod follow;
mod group;
mod history;
mod input;
mod line;
mod lists;
mod live;
mod merger;
mod progress;
mod routers;
mod sample;
mod tables;

pub use self::{
    answer::{Answer, What},
    history::write_history,
    input::{InputError, Inputs},
    live::Live,
    merger::{By, Merger, Settings, TooMany},
    sample::{SampleError, window},
    tables::write_tables,
};

use std::path::PathBuf;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// There are too many windows.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

/// Merges all reports of these files.
///
/// # Errors
///
/// A file cannot be read, or there are too many windows.
pub fn merge(files: &[PathBuf], settings: Settings, is_shown: bool) -> Result<Answer, MergeError> {
    /// Lines that are parsed together.
    const TOGETHER: usize = 512;
    let mut inputs = Inputs::new(files.to_vec());
    let mut progress = is_shown.then(|| progress::Progress::new(inputs.size()));
    let mut merger = Merger::new(settings);
    let mut lines = Vec::with_capacity(TOGETHER);
    loop {
        let has_more = inputs.read(&mut lines, TOGETHER)?;
        for parsed in line::parse_all(&lines) {
            merger.add(parsed)?;
        }
        lines.clear();
        if let Some(progress) = &mut progress {
            progress.update(inputs.bytes_read(), merger.reports());
        }
        if !has_more {
            for error in inputs.incomplete() {
                merger.note_unreadable(error.to_string());
            }
            return Ok(merger.finish());
        }
    }
}
