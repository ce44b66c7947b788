//! Authentication to a NATS server: the secrets are in files, which are read for each connection.

use async_nats::ConnectOptions;
use thiserror::Error;
use weir_config::Nats;

use crate::sink::client::secret::{SecretError, line, read};

/// Why the credentials cannot be used. The error never repeats the content of a file.
#[derive(Debug, Error)]
pub(super) enum LoginError {
    /// A file gives no secret.
    #[error(transparent)]
    Secret(#[from] SecretError),
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
