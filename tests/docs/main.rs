//! The documentation tells the truth: what it names exists, its commands are understood, and it explains every field
//! of a report.

mod commands;
mod fields;
mod modules;
mod page;
mod paths;
mod readme;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
