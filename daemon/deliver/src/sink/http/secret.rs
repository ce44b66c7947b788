//! Headers whose values are in files. They are read again for each request, so that a renewed token takes effect.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue, header};
use weir_config::{self as config, Exposed};
use weir_system::plain_file::open_regular;

/// Maximum size of a token in bytes: servers accept no longer headers.
const BYTES_MAX: u64 = 16 << 10;

/// A header with a secret.
#[derive(Clone, Debug)]
pub(super) struct SecretHeader {
    /// The name of the header.
    pub name: HeaderName,
    /// The prefix of the secret, such as `Bearer `.
    before: &'static str,
    /// The file with the secret, with nothing else but whitespace around it.
    pub file: PathBuf,
}

/// Why a secret cannot be read from its file. The error never shows the content.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("cannot read {file}, which has the header `{name}`: {error}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The header that the file is for.
        name: HeaderName,
        /// The cause.
        error: io::Error,
    },
    /// Every user may read it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The content is not a valid value.
    #[error("{file} should have the header `{name}` in one line of at most {BYTES_MAX} characters")]
    NoValue {
        /// The path of the file.
        file: String,
        /// The header that the file is for.
        name: HeaderName,
    },
}

impl SecretHeader {
    /// The headers whose values these settings expect in files.
    pub fn of(settings: &config::Http) -> Vec<Self> {
        let token = settings.token_file.iter().map(|file| (&header::AUTHORIZATION, "Bearer ", file));
        let others = settings.header_files.iter().map(|(name, file)| (name, "", file));
        let all = token.chain(others);
        all.map(|(name, before, file)| Self { name: name.clone(), before, file: file.clone() }).collect()
    }

    /// Reads the header's value from the file.
    ///
    /// # Errors
    ///
    /// The file has no such value, or every user may read it.
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
