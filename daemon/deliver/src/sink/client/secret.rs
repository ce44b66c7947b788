//! Secrets in files, which are read for each connection.

use std::{
    io::{self, Read},
    path::Path,
};

use thiserror::Error;
use weir_config::Exposed;
use weir_system::plain_file::open_regular;

/// Maximum size of a file with a secret in bytes: credentials have some 2 KiB.
const BYTES_MAX: u64 = 16 << 10;

/// Why a file gives no secret. The error never repeats the content.
#[derive(Debug, Error)]
pub(in crate::sink) enum SecretError {
    /// The file cannot be read.
    #[error("cannot read {file}, which has the {what}: {error}")]
    Unreadable { file: String, what: &'static str, error: io::Error },
    /// Every user may read it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The content is not a valid secret.
    #[error("{file} should have the {what} in one line of at most {BYTES_MAX} characters")]
    NoSecret { file: String, what: &'static str },
}

/// Reads a secret of one line from a file that has nothing else but whitespace around it.
pub(in crate::sink) fn line(file: &Path, what: &'static str) -> Result<String, SecretError> {
    let text = read(file, what)?;
    let secret = text.trim();
    if secret.is_empty() || secret.contains(char::is_control) {
        return Err(SecretError::NoSecret { file: file.display().to_string(), what });
    }
    Ok(secret.to_owned())
}

/// Reads a secret of any number of lines.
pub(in crate::sink) fn read(path: &Path, what: &'static str) -> Result<String, SecretError> {
    let file = || path.display().to_string();
    let unreadable = |error| SecretError::Unreadable { file: file(), what, error };
    let open = open_regular(path).map_err(unreadable)?;
    Exposed::check(path, &open.metadata().map_err(unreadable)?)?;
    let mut text = String::new();
    open.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(SecretError::NoSecret { file: file(), what });
    }
    Ok(text)
}
