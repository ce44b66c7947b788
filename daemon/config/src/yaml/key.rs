//! The hash key: random, in the configuration, or in a file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::civil::{Date, date};
use serde::{Serialize, Serializer};
use weir_sketch::hash::Key;
use weir_system::plain_file::open_regular;

use super::secret::Exposed;

/// The number of hex digits of a key, which has 128 bits.
pub const KEY_DIGITS: usize = 32;

/// The most bytes that are read from a key file: some keys, with white space around them.
const KEY_FILE_MAX: u64 = 512;

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
    /// The present secret.
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
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut secret = Self::from(parse_key(lines.next()?)?);
        for line in lines {
            let (day, key) = line.split_once(char::is_whitespace)?;
            let day = day_of(day.parse().ok()?)?;
            if secret.later.last().is_some_and(|(before, _)| *before >= day) {
                return None;
            }
            secret.later.push((day, parse_key(key.trim())?));
        }
        Some(secret)
    }
}

/// A date as a day counted from 1970.
fn day_of(day: Date) -> Option<i64> {
    Some(day.since(date(1970, 1, 1)).ok()?.get_days().into())
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The operating system provides no random bytes.
    #[error("the operating system gives no random bytes for the hash key: {0}")]
    Random(getrandom::Error),
    /// The key file cannot be read.
    #[error("cannot read the hash key from {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Every user may read the key file.
    #[error(transparent)]
    Exposed(#[from] Exposed),
    /// The key file has other content.
    #[error(
        "{} does not hold a hash key: write 32 hex digits there, as `weir key new` prints. Each later key has its own \
         line, after the day of its first use: `2026-12-01 KEY`",
        path.display()
    )]
    Malformed {
        /// The file.
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

    /// Checks that other users cannot read the key file, if it exists. A service may get the file only when it starts.
    ///
    /// # Errors
    ///
    /// Every user may read the file.
    pub fn check_kept(&self) -> Result<(), KeyError> {
        match self {
            Self::Random | Self::Given(_) => Ok(()),
            Self::File(path) => Ok(Exposed::check_path(path)?),
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
pub(super) fn parse_key(text: &str) -> Option<Key> {
    if text.len() != KEY_DIGITS || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let word = u128::from_str_radix(text, 16).ok()?;
    Some(Key([(word >> 64) as u64, word as u64]))
}

fn read_key(path: &Path) -> Result<Secret, KeyError> {
    let mut bytes = Vec::new();
    let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
    let file = open_regular(path).map_err(unreadable)?;
    Exposed::check(path, &file.metadata().map_err(unreadable)?)?;
    file.take(KEY_FILE_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = std::str::from_utf8(&bytes).ok();
    text.and_then(Secret::parse).ok_or_else(|| KeyError::Malformed { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use weir_system::text::with_causes;

    use super::*;

    #[test]
    fn parses_digits() {
        assert_eq!(
            parse_key("00112233445566778899aabbCCDDEEFF"),
            Some(Key([0x0011_2233_4455_6677, 0x8899_aabb_ccdd_eeff]))
        );
        for text in [
            "",
            "0011",
            "00112233445566778899aabbccddeef",
            "+0112233445566778899aabbccddeeff",
            "é0112233445566778899aabbccddeef",
        ] {
            assert_eq!(parse_key(text), None, "{text}");
        }
    }

    #[test]
    fn later_keys_have_the_day_of_their_first_use() {
        let [one, other] = ["00000000000000010000000000000002", "00000000000000030000000000000004"];
        let secret = Secret::parse(&format!("{one}\n\n1970-01-11 {other}\n1970-01-21\t{one}\n")).unwrap();
        let [one_key, other_key] = [Key([1, 2]), Key([3, 4])];
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
            assert_eq!(Secret::parse(&wrong), None, "{wrong}");
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
        std::fs::write(&path, "00000000000000010000000000000002\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o604);
        let exposed = [file.key().map(drop), file.check_kept()];
        mode(0o640);
        let read = file.key();
        assert!(file.check_kept().is_ok());
        std::fs::write(&path, "a secret that is no key").unwrap();
        let malformed = file.key().unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        for refused in exposed {
            let message = refused.unwrap_err().to_string();
            let way_out = format!("(mode 0604): run `chmod o= {}`", path.display());
            assert!(message.ends_with(&way_out) && !message.contains("00002"), "{message}");
        }
        assert_eq!(read.unwrap(), Key([1, 2]));
        assert!(file.check_kept().is_ok(), "the file does not exist yet");
        assert!(malformed.contains("32 hex digits") && !malformed.contains("secret"), "{malformed}");
        let missing = with_causes(&file.key().unwrap_err());
        assert!(
            missing.contains(&path.display().to_string()) && missing.matches("No such file").count() == 1,
            "{missing}"
        );
    }
}
