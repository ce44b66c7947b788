//! The documentation is true: the things that it names exist, its commands are valid, and it explains every field of a
//! report. Comments fit a screen, there are no import cycles, and what scripts name exists.

mod commands;
mod comments;
mod fields;
mod limits;
mod modules;
mod notices;
mod numbers;
mod page;
mod paths;
mod readme;
mod scripts;
mod unsafe_code;
mod views;
mod workspace;

use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
