//! The object that is kept in the repository, and whether it was made from the sources that are there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{PACKAGE_DIR, read};

/// The folder of what is kept.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../object");

/// The file that says from which sources the object was made.
pub const FINGERPRINT: &str = "sources";

/// What the object is made of, seen from the package's folder.
const SOURCES: [&str; 4] = ["src", "Cargo.toml", "../common/src", "../common/Cargo.toml"];

/// The path of the object, packed by gzip.
pub fn object() -> PathBuf {
    Path::new(FOLDER).join("weir-ebpf.o.gz")
}

/// Whether the object was made from these sources.
pub fn is_current() -> Result<bool, String> {
    let kept = fs::read_to_string(Path::new(FOLDER).join(FINGERPRINT)).unwrap_or_default();
    Ok(kept.trim_end() == fingerprint()?)
}

/// A sum over all sources: FNV-1a of 64 bits. It tells whether somebody has changed them, no more.
///
/// # Errors
///
/// A source cannot be read.
pub fn fingerprint() -> Result<String, String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&Path::new(PACKAGE_DIR).join(source), source, &mut files)?;
    }
    files.sort_unstable();
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for (name, path) in files {
        for byte in name.bytes().chain([0]).chain(read(&path)?) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{sum:016x}"))
}

/// Adds a file, or all files of a folder, with their names.
fn collect(path: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) -> Result<(), String> {
    if !path.is_dir() {
        files.push((name.to_owned(), path.to_owned()));
        return Ok(());
    }
    let entries = fs::read_dir(path).map_err(|error| format!("cannot list {}: {error}", path.display()))?;
    for entry in entries.filter_map(Result::ok) {
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        collect(&entry.path(), &name, files)?;
    }
    Ok(())
}
