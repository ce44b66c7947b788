//! Headers whose values are in files: a token that is renewed is read anew with each request.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue};

use crate::config::Exposed;

/// Bytes that a token may have: servers take no longer headers.
const BYTES_MAX: u64 = 16 << 10;

/// A header with a secret.
#[derive(Clone, Debug)]
pub struct SecretHeader {
    /// Its name.
    pub name: HeaderName,
    /// What comes before the secret, such as `Bearer `.
    pub before: &'static str,
    /// The file with the secret, and nothing else but blanks around it.
    pub file: PathBuf,
}

/// Why there is no secret in a file. It never repeats what is there.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The system refuses it.
    #[error("cannot read {file}, which has the header `{name}`: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// The header.
        name: HeaderName,
        /// Why not.
        error: io::Error,
    },
    /// Every user may read it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// There is something else in it.
    #[error("{file} should have the header `{name}` in one line of at most {BYTES_MAX} characters")]
    NoValue {
        /// The file.
        file: String,
        /// The header.
        name: HeaderName,
    },
}

impl SecretHeader {
    /// The header's value, as the file has it now.
    ///
    /// # Errors
    ///
    /// The file has no such value, or everybody may read it.
    pub fn value(&self) -> Result<HeaderValue, SecretError> {
        let Self { name, before, file: path } = self;
        let (file, name) = (path.display().to_string(), name.clone());
        let unreadable = |error| SecretError::Unreadable { file: file.clone(), name: name.clone(), error };
        // A pipe would have the sink wait for whoever writes to it.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
        let metadata = open.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(unreadable(io::Error::other("it is not a regular file")));
        }
        Exposed::check(path, &metadata)?;
        let mut text = String::new();
        open.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
        let secret = text.trim();
        let value = HeaderValue::try_from(format!("{before}{secret}"));
        match value {
            Ok(mut value) if !secret.is_empty() && text.len() as u64 <= BYTES_MAX => {
                value.set_sensitive(true);
                Ok(value)
            }
            _ => Err(SecretError::NoValue { file, name }),
        }
    }
}
