//! Authentication to a NATS server: the secrets are in files, which are read for each connection.

use std::{
    io::{self, Read},
    path::Path,
};

use async_nats::ConnectOptions;
use thiserror::Error;
use weir_config::{Exposed, Nats};
use weir_system::plain_file::open_regular;

/// Maximum size of a file with a secret in bytes: credentials have some 2 KiB.
const BYTES_MAX: u64 = 16 << 10;

/// Why a file gives no secret. The error never repeats the content.
#[derive(Debug, Error)]
pub(super) enum LoginError {
    /// The file cannot be read.
    #[error("cannot read {file}, which has the {what}: {error}")]
    Unreadable { file: String, what: &'static str, error: io::Error },
    /// Every user may read it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The content is not a valid secret.
    #[error("{file} should have the {what} in one line of at most {BYTES_MAX} characters")]
    NoSecret { file: String, what: &'static str },
    /// It is not a credentials file.
    #[error("{0} should have a user's JWT and NKEY seed, as `nsc generate creds` writes them")]
    NoCredentials(String),
}

/// Adds the credentials.
///
/// # Errors
///
/// A file has no valid secret, or every user may read it.
pub(super) fn login(options: ConnectOptions, settings: &Nats) -> Result<ConnectOptions, LoginError> {
    if let Some(file) = &settings.credentials_file {
        let text = read(file, "credentials")?;
        return options.credentials(&text).map_err(|_| LoginError::NoCredentials(file.display().to_string()));
    }
    if let Some(file) = &settings.token_file {
        return Ok(options.token(line(file, "token")?));
    }
    match (&settings.user, &settings.password_file) {
        (Some(user), Some(file)) => Ok(options.user_and_password(user.clone(), line(file, "password")?)),
        _ => Ok(options),
    }
}

/// Reads a secret of one line from a file that has nothing else but whitespace around it.
fn line(file: &Path, what: &'static str) -> Result<String, LoginError> {
    let text = read(file, what)?;
    let secret = text.trim();
    if secret.is_empty() || secret.contains(char::is_control) {
        return Err(LoginError::NoSecret { file: file.display().to_string(), what });
    }
    Ok(secret.to_owned())
}

fn read(path: &Path, what: &'static str) -> Result<String, LoginError> {
    let file = || path.display().to_string();
    let unreadable = |error| LoginError::Unreadable { file: file(), what, error };
    let open = open_regular(path).map_err(unreadable)?;
    Exposed::check(path, &open.metadata().map_err(unreadable)?)?;
    let mut text = String::new();
    open.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(LoginError::NoSecret { file: file(), what });
    }
    Ok(text)
}
