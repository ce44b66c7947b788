//! The token that a browser or a sender of reports has to send.
//!
//! A browser sends it as the password of HTTP's basic authentication (RFC 7617). A browser does that by itself for each
//! request, and keeps the password out of URLs. Programs may send it as a bearer token (RFC 6750).

use std::{
    fmt,
    io::{self, Read},
    path::Path,
    sync::{Mutex, PoisonError},
};

use axum::http::HeaderValue;
use base64::{Engine, prelude::BASE64_STANDARD};
use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio::time::sleep;
use tracing::warn;
use weir_config::Exposed;
use weir_http::ClientSlot;
use weir_system::{clock, plain_file::open_regular};

use crate::guesses::Guesses;

/// The length of a token in bytes. A shorter one can be guessed.
const BYTES_MIN: usize = 16;
const BYTES_MAX: usize = 4096;

/// A secret that a client has to know.
pub struct Token(String);

/// Why a token cannot be read from its file. The error never shows the content.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read {file}, which has the token: {error}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The cause.
        error: io::Error,
    },
    /// Every user may read it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The content is not a valid token.
    #[error(
        "{0} should have a token of {BYTES_MIN} to {BYTES_MAX} visible ASCII characters (`openssl rand -hex 16` prints \
         some), and nothing else"
    )]
    NoToken(String),
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Lets only requests with the token pass.
#[derive(Debug)]
pub struct Lock {
    token: Token,
    guesses: Mutex<Guesses>,
}

impl Lock {
    /// A lock that this token opens.
    pub fn new(token: Token) -> Self {
        Self { token, guesses: Mutex::default() }
    }

    /// Returns true if the header `Authorization` of a client has the token. If it has a wrong one, the answer takes
    /// longer with each.
    pub async fn opens(&self, header: Option<&HeaderValue>, client: &ClientSlot) -> bool {
        let Some(header) = header else { return false };
        if self.token.is_in(header) {
            return true;
        }
        let guesses = self.guesses.lock();
        let delay = guesses.unwrap_or_else(PoisonError::into_inner).delay(client.address(), clock::now().monotonic);
        if !delay.is_zero() {
            warn!(client = %client.address(), "a client sends wrong tokens: its refusals are delayed");
            sleep(delay).await;
        }
        false
    }
}

impl Token {
    /// Reads the token from its file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, every user may read it, or it has no token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let file = path.display().to_string();
        let unreadable = |error| TokenError::Unreadable { file: file.clone(), error };
        let open = open_regular(path).map_err(unreadable)?;
        Exposed::check(path, &open.metadata().map_err(unreadable)?)?;
        let mut text = String::new();
        open.take(2 * BYTES_MAX as u64).read_to_string(&mut text).map_err(unreadable)?;
        let token = text.trim();
        if (BYTES_MIN..=BYTES_MAX).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(token.to_owned()));
        }
        Err(TokenError::NoToken(file))
    }

    /// Returns true if the header `Authorization` has the token. The time that this takes does not reveal how much of
    /// the token is right.
    pub fn is_in(&self, header: &HeaderValue) -> bool {
        let Some((scheme, value)) = header.to_str().ok().and_then(|text| text.split_once(' ')) else { return false };
        let value = value.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(value.as_bytes());
        }
        let Ok(decoded) = BASE64_STANDARD.decode(value) else { return false };
        // Any user name is accepted. It cannot contain a colon.
        let password = decoded.iter().position(|byte| *byte == b':').map(|colon| &decoded[colon + 1..]);
        scheme.eq_ignore_ascii_case("basic") && password.is_some_and(|password| self.is(password))
    }

    fn is(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    #[test]
    fn an_exposed_or_invalid_file_is_refused_and_its_content_not_shown() {
        let path = std::env::temp_dir().join(format!("weir-web-token-{}", std::process::id()));
        let read = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(&path).map(|token| token.0).map_err(|error| error.to_string())
        };
        let token = "0123456789abcdef";
        assert_eq!(read(&format!("{token}\n"), 0o640).unwrap(), token);
        let exposed = read(token, 0o644).unwrap_err();
        assert!(exposed.contains("chmod o=") && !exposed.contains(token), "{exposed}");
        for short in ["secret", "", "secret with blanks in it", "sécret-sécret-sécret"] {
            let error = read(short, 0o600).unwrap_err();
            assert!(error.contains("openssl rand") && !error.contains("secret"), "{error}");
        }
        fs::remove_file(&path).unwrap();
        assert!(Token::read(&path).map(drop).unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn the_token_is_a_password_or_a_bearer_token() {
        let token = Token("0123456789abcdef".to_owned());
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        let right = ["Bearer 0123456789abcdef".to_owned(), "bearer  0123456789abcdef".to_owned()];
        for header in right.into_iter().chain([basic("weir:0123456789abcdef"), basic(":0123456789abcdef")]) {
            assert!(token.is_in(&header.parse().unwrap()), "{header}");
        }
        let wrong = ["", "Bearer", "Bearer 0123456789abcde", "Bearer 0123456789abcdeg", "Basic !!", "0123456789abcdef"];
        let others = [basic("0123456789abcdef"), basic("x:y:0123456789abcdef"), basic("0123456789abcdef:x")];
        for header in wrong.into_iter().map(str::to_owned).chain(others) {
            assert!(!token.is_in(&header.parse().unwrap()), "{header}");
        }
    }
}
