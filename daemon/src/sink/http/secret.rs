//! Headers whose values are in files: a token that is renewed is read anew with each request.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue};

use crate::{config::Exposed, names::open_regular};

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
        let open = open_regular(path).map_err(unreadable)?;
        Exposed::check(path, &open.metadata().map_err(unreadable)?)?;
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
