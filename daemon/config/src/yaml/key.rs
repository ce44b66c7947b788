//! The hash key: random, in the configuration, or in a file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::civil::{Date, date};
use serde::{Serialize, Serializer};
use weir_sketch::hash::Key;
use weir_system::plain_file::open_regular;

use super::secret::{Exposed, is_credential_of_service};

/// The number of hex digits of a key, which has 128 bits.
pub const KEY_DIGITS: usize = 32;

/// Maximum bytes of a key file: some eighty keys.
const KEY_FILE_MAX: u64 = 4096;

/// A key with fewer different digits is guessable.
const DIGITS_MIN: u32 = 5;

/// Replaces a secret wherever the configuration is shown.
const SET: &str = "<set>";

/// The hash key, or where to get it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HashKey {
    /// A new key from the operating system at every start.
    #[default]
    Random,
    /// The key in the configuration, shared by a fleet.
    Given(Key),
    /// The key in this file, as 32 hex digits.
    File(PathBuf),
}

/// A secret, and those that take its place on later days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    first: Key,
    /// With the UTC day, counted from 1970, from which each is used; in this order.
    later: Vec<(i64, Key)>,
}

impl From<Key> for Secret {
    fn from(first: Key) -> Self {
        Self { first, later: Vec::new() }
    }
}

impl Secret {
    /// Returns the secret that is in force at first.
    pub const fn first(&self) -> Key {
        self.first
    }

    /// The secret on this UTC day, counted from 1970.
    pub fn on(&self, day: i64) -> Key {
        self.later.iter().rev().find(|(from, _)| *from <= day).map_or(self.first, |(_, key)| *key)
    }

    /// The days on which another secret takes over, counted from 1970.
    pub fn turns(&self) -> impl Iterator<Item = i64> + '_ {
        self.later.iter().map(|(day, _)| *day)
    }

    /// The secrets in the text of a file: the first one alone on its line, each later one after its day.
    fn parse(text: &str) -> Result<Self, NoKey> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut secret = Self::from(parse_key(lines.next().ok_or(NoKey::Malformed)?)?);
        for line in lines {
            let (day, key) = line.split_once(char::is_whitespace).ok_or(NoKey::Malformed)?;
            let day = day.parse().ok().and_then(day_of).ok_or(NoKey::Malformed)?;
            if secret.later.last().is_some_and(|(before, _)| *before >= day) {
                return Err(NoKey::Malformed);
            }
            secret.later.push((day, parse_key(key.trim())?));
        }
        Ok(secret)
    }
}

/// A date as a day counted from 1970.
fn day_of(day: Date) -> Option<i64> {
    Some(day.since(date(1970, 1, 1)).ok()?.get_days().into())
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// It has another form.
    Malformed,
    /// Anybody would guess it.
    Guessable,
}

/// The reason why a key is refused that anybody can guess, and the way out.
pub(super) const GUESSABLE: &str = "digits that anybody can guess, not a secret: they repeat, count, or are only a few different ones. `weir key new` \
     prints a random key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The operating system provides no random bytes.
    #[error("the operating system gives no random bytes for the hash key: {0}")]
    Random(getrandom::Error),
    /// The key file cannot be read.
    #[error("cannot read the hash key from {}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Every user may read the key file.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The key file has other content.
    #[error(
        "{} does not hold a hash key: write 32 hex digits there, as `weir key new` prints. Each later key has its own \
         line, after the day of its first use: `2026-12-01 KEY`. The file has at most {KEY_FILE_MAX} bytes",
        path.display()
    )]
    Malformed {
        /// The path of the file.
        path: PathBuf,
    },
    /// The key file has a key that anybody can guess.
    #[error("{} has {GUESSABLE}", path.display())]
    Guessable {
        /// The path of the file.
        path: PathBuf,
    },
}

impl HashKey {
    /// Generates, copies or reads the key.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which never shows any part of a key.
    pub fn key(&self) -> Result<Key, KeyError> {
        self.secret().map(|secret| secret.first())
    }

    /// Generates, copies or reads the key, and reads those that take its place later.
    ///
    /// # Errors
    ///
    /// [`KeyError`], which never shows any part of a key.
    pub fn secret(&self) -> Result<Secret, KeyError> {
        match self {
            Self::Random => {
                let mut bytes = [0; 16];
                getrandom::fill(&mut bytes).map_err(KeyError::Random)?;
                let word = u128::from_ne_bytes(bytes);
                Ok(Key([(word >> 64) as u64, word as u64]).into())
            }
            Self::Given(key) => Ok((*key).into()),
            Self::File(path) => read_key(path),
        }
    }

    /// Checks what [`HashKey::secret`] would give. A service that does not run may get the file only when it starts.
    ///
    /// # Errors
    ///
    /// Those of [`HashKey::secret`].
    pub fn check(&self) -> Result<(), KeyError> {
        match self {
            Self::File(path) if is_credential_of_service(path) => Ok(()),
            _ => self.secret().map(drop),
        }
    }
}

impl Serialize for HashKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Random => serializer.serialize_none(),
            Self::Given(_) => serializer.serialize_str(SET),
            Self::File(path) => serializer.collect_map([("file", path)]),
        }
    }
}

/// Parses a key of exactly [`KEY_DIGITS`] hex digits. The first half is the first word.
pub(super) fn parse_key(text: &str) -> Result<Key, NoKey> {
    let digits: Vec<_> = text.chars().map_while(|digit| digit.to_digit(16)).collect();
    if text.len() != KEY_DIGITS || digits.len() != KEY_DIGITS {
        return Err(NoKey::Malformed);
    }
    if is_guessable(&digits) {
        return Err(NoKey::Guessable);
    }
    let word = u128::from_str_radix(text, 16).map_err(|_| NoKey::Malformed)?;
    Ok(Key([(word >> 64) as u64, word as u64]))
}

/// Returns true if anybody would guess these digits: they repeat, count up or down, or are only a few different ones. A
/// random key is like that once in 10^15 times.
fn is_guessable(digits: &[u32]) -> bool {
    let different = digits.iter().fold(0_u32, |seen, digit| seen | 1 << digit).count_ones();
    let repeats =
        (1..=KEY_DIGITS / 2).any(|period| digits[period..].iter().zip(digits).all(|(one, other)| one == other));
    let counts = digits.windows(2).all(|pair| matches!((pair[1] + 16 - pair[0]) % 16, 0 | 1 | 15));
    different < DIGITS_MIN || repeats || counts
}

fn read_key(path: &Path) -> Result<Secret, KeyError> {
    let mut bytes = Vec::new();
    let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
    let file = open_regular(path).map_err(unreadable)?;
    Exposed::check(path, &file.metadata().map_err(unreadable)?)?;
    file.take(KEY_FILE_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    // A part of the file might name fewer keys than the whole.
    if bytes.len() as u64 > KEY_FILE_MAX {
        return Err(KeyError::Malformed { path: path.to_owned() });
    }
    std::str::from_utf8(&bytes).map_err(|_| NoKey::Malformed).and_then(Secret::parse).map_err(|why| {
        let path = path.to_owned();
        match why {
            NoKey::Malformed => KeyError::Malformed { path },
            NoKey::Guessable => KeyError::Guessable { path },
        }
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use weir_system::text::with_causes;

    use super::*;

    const KEY: &str = "8f3c1a7be02d4965b1fe7730c4a9d258";
    const OTHER: &str = "2b90ee4d7713fa06c85d39a1064fb7ce";

    #[test]
    fn parses_digits() {
        assert_eq!(
            parse_key("8f3c1a7be02d4965B1FE7730C4A9D258"),
            Ok(Key([0x8f3c_1a7b_e02d_4965, 0xb1fe_7730_c4a9_d258]))
        );
        for text in [
            "",
            "0011",
            "00112233445566778899aabbccddeef",
            "+0112233445566778899aabbccddeeff",
            "é0112233445566778899aabbccddeef",
        ] {
            assert_eq!(parse_key(text), Err(NoKey::Malformed), "{text}");
        }
    }

    #[test]
    fn a_key_that_anybody_can_guess_is_no_secret() {
        for text in [
            "00000000000000000000000000000000",
            "ffffffffffffffffffffffffffffffff",
            "deadbeefdeadbeefdeadbeefdeadbeef",
            "0123456789abcdef0123456789abcdef",
            "0123456789ABCDEF0123456789abcdef",
            "fedcba9876543210fedcba9876543210",
            "00112233445566778899aabbccddeeff",
            "12345678901234567890123456789012",
            "00000000000000010000000000000002",
            "abcabcabcabcabcabcabcabcabcabcab",
        ] {
            assert_eq!(parse_key(text), Err(NoKey::Guessable), "{text}");
        }
        let path = std::env::temp_dir().join(format!("weir-key-zeros-{}", std::process::id()));
        std::fs::write(&path, format!("{KEY}\n2026-12-01 {}\n", "0".repeat(KEY_DIGITS))).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let why = HashKey::File(path.clone()).check().unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(why.contains("anybody can guess") && why.contains("weir key new"), "{why}");
    }

    #[test]
    fn later_keys_have_the_day_of_their_first_use() {
        let [one, other] = [KEY, OTHER];
        let secret = Secret::parse(&format!("{one}\n\n1970-01-11 {other}\n1970-01-21\t{one}\n")).unwrap();
        let [one_key, other_key] = [one, other].map(|key| parse_key(key).unwrap());
        assert_eq!(
            [-1, 0, 9, 10, 19, 20, 99].map(|day| secret.on(day)),
            [one_key, one_key, one_key, other_key, other_key, one_key, one_key]
        );
        assert_eq!((secret.first(), secret.turns().collect::<Vec<_>>()), (one_key, vec![10, 20]));
        for wrong in [
            String::new(),
            format!("1970-01-11 {one}"),
            format!("{one}\n{other}"),
            format!("{one}\n1970-01-32 {other}"),
            format!("{one}\n1970-01-11 {other}\n1970-01-11 {one}"),
            format!("{one}\n1970-01-11 {other}0"),
        ] {
            assert_eq!(Secret::parse(&wrong), Err(NoKey::Malformed), "{wrong}");
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_a_writer() {
        let path = std::env::temp_dir().join(format!("weir-key-pipe-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let error = with_causes(&HashKey::File(path.clone()).key().unwrap_err());
        std::fs::remove_file(&path).unwrap();
        assert!(error.ends_with("it is not a regular file") && error.contains("weir-key-pipe"), "{error}");
    }

    #[test]
    fn draws_copies_and_reads() {
        assert_ne!(HashKey::Random.key().unwrap(), HashKey::Random.key().unwrap());
        assert_eq!(HashKey::Given(Key([1, 2])).key().unwrap(), Key([1, 2]));

        let path = std::env::temp_dir().join(format!("weir-key-{}", std::process::id()));
        let file = HashKey::File(path.clone());
        std::fs::write(&path, format!("{KEY}\n")).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o604);
        let exposed = [file.key().map(drop), file.check()];
        mode(0o640);
        let read = file.key();
        assert!(file.check().is_ok());
        std::fs::write(&path, "a secret that is no key").unwrap();
        let malformed = file.key().unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        let of_service = HashKey::File("/run/credentials/weir-none.service/hash.key".into());
        for refused in exposed {
            let message = refused.unwrap_err().to_string();
            let way_out = format!("(mode 0604): run `chmod o= {}`", path.display());
            assert!(message.ends_with(&way_out) && !message.contains(KEY), "{message}");
        }
        assert_eq!(read.unwrap(), parse_key(KEY).unwrap());
        assert!(of_service.check().is_ok(), "the service will have it");
        assert!(malformed.contains("32 hex digits") && !malformed.contains("secret"), "{malformed}");
        let missing = with_causes(&file.check().unwrap_err());
        assert!(
            missing.contains(&path.display().to_string()) && missing.matches("No such file").count() == 1,
            "{missing}"
        );
    }
}
