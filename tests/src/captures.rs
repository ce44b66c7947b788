//! Captures of real networks, if they are present. They are not part of the project.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// The variable that names the directory; without it, `../shared/captures` beside the project's.
pub const VARIABLE: &str = "WEIR_CAPTURES";
const BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/captures");

/// The captures of real networks (`real/`), sorted by name.
///
/// # Errors
///
/// There are no captures; the error names the expected directory.
pub fn real() -> Result<Vec<PathBuf>, String> {
    list(&["real"])
}

/// The captures of real networks, and those that were made to be broken (`malformed/`).
///
/// # Errors
///
/// As [`real`].
pub fn all() -> Result<Vec<PathBuf>, String> {
    list(&["real", "malformed"])
}

fn list(folders: &[&str]) -> Result<Vec<PathBuf>, String> {
    let root = env::var_os(VARIABLE).map_or_else(|| Path::new(BESIDE).to_owned(), PathBuf::from);
    let mut files = Vec::new();
    for folder in folders {
        let folder = root.join(folder);
        let entries = fs::read_dir(&folder).map_err(|error| {
            format!("no captures in {}: {error} ({VARIABLE} names another directory)", folder.display())
        })?;
        files.extend(entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_file()));
    }
    files.sort();
    Ok(files)
}
