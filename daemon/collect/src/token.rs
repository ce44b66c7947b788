//! The token that senders must present.

use std::{
    fmt,
    io::{self, Read},
    path::{Path, PathBuf},
};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use subtle::ConstantTimeEq;
use weir_config::Exposed;
use weir_system::plain_file::open_regular;

/// A shorter token could be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// How many bytes of the file are read.
const FILE_BYTES_MAX: u64 = 4096;

/// A secret that each request carries as `Authorization: Bearer TOKEN`. It is never printed or logged.
pub struct Token(String);

/// Why the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token from {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// Every user may read it.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The content is not a token.
    #[error(
        "{} does not hold a token: write one line of at least {TOKEN_BYTES_MIN} letters and digits there, as \
         `openssl rand -hex 32` prints",
        .0.display()
    )]
    Malformed(PathBuf),
}

impl Token {
    /// Reads the token from a file, which may end with line breaks.
    ///
    /// # Errors
    ///
    /// The file cannot be read, every user may read it, or its content is not a token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |cause| TokenError::Unreadable { path: path.to_owned(), cause };
        let file = open_regular(path).map_err(unreadable)?;
        Exposed::check(path, &file.metadata().map_err(unreadable)?)?;
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(unreadable)?;
        let token = text.trim_ascii();
        if token.len() < TOKEN_BYTES_MIN || !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Malformed(path.to_owned()));
        }
        Ok(Self(String::from_utf8_lossy(token).into_owned()))
    }

    /// Whether a request carries the token. The comparison takes constant time.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        let Some(value) = headers.get(AUTHORIZATION) else { return false };
        let Some((scheme, token)) = value.as_bytes().split_at_checked("bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(self.0.as_bytes().ct_eq(token.trim_ascii()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn read(text: &str, mode: u32) -> Result<Token, TokenError> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-token-{}-{number}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let token = Token::read(&path);
        fs::remove_file(&path).unwrap();
        token
    }

    #[test]
    fn only_the_whole_token_is_right() {
        let token = read("0123456789abcdef\n", 0o600).unwrap();
        let is_in = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().unwrap());
            token.is_in(&headers)
        };
        assert!(is_in("Bearer 0123456789abcdef") && is_in("bearer 0123456789abcdef"));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef"]
        {
            assert!(!is_in(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn a_file_without_a_usable_secret_is_refused() {
        for text in ["", "short\n", "0123456789abcdef 0123456789abcdef", "0123456789\u{e9}bcdef"] {
            assert!(matches!(read(text, 0o600), Err(TokenError::Malformed(_))), "{text:?}");
        }
        assert!(matches!(read("0123456789abcdef", 0o644), Err(TokenError::Exposed(_))));
        assert!(matches!(Token::read(Path::new("/no/such/file")), Err(TokenError::Unreadable { .. })));
    }
}
