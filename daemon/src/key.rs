//! `weir key`: makes the secret of a fleet, and prints fingerprints by which two routers can be compared.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use jiff::{Timestamp, ToSpan, civil::date, tz::TimeZone};
use weir_config::{HashKey, KeyError, Secret};
use weir_measure::keys::id_of_day;
use weir_sketch::hash::Key;

/// Why there is no secret, or no fingerprint.
#[derive(Debug, thiserror::Error)]
pub enum KeyCommandError {
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Each start has another key.
    #[error(
        "the configuration has no `hash_key`, so weir makes a new secret at each start: name a file (`weir key new FILE` makes one)"
    )]
    Random,
    /// The file cannot be created.
    #[error("cannot create {}: {cause}", path.display())]
    Create {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
}

/// A new secret, as 32 hex digits.
///
/// # Errors
///
/// The system has no random numbers.
pub fn new_secret() -> Result<String, KeyCommandError> {
    let Key([high, low]) = HashKey::Random.key()?;
    Ok(format!("{high:016x}{low:016x}"))
}

/// Writes a new secret into a new file, which only its owner may read.
///
/// # Errors
///
/// The file exists, or cannot be written.
pub fn create(path: &Path) -> Result<(), KeyCommandError> {
    let failed = |cause| KeyCommandError::Create { path: path.to_owned(), cause };
    let secret = new_secret()?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    writeln!(file, "{secret}").and_then(|()| file.sync_all()).map_err(failed)
}

/// The day and the fingerprint of today's key, and of each day on which another secret takes over.
///
/// # Errors
///
/// There is no secret, or it cannot be read.
pub fn fingerprints(hash_key: &HashKey, now: Timestamp) -> Result<String, KeyCommandError> {
    if *hash_key == HashKey::Random {
        return Err(KeyCommandError::Random);
    }
    Ok(lines(&hash_key.secret()?, now))
}

fn lines(secret: &Secret, now: Timestamp) -> String {
    let epoch = date(1970, 1, 1);
    let today = now.to_zoned(TimeZone::UTC).date().since(epoch).map_or(0, |since| since.get_days().into());
    let mut lines = String::new();
    for day in std::iter::once(today).chain(secret.turns().filter(|day| *day > today)) {
        // Every day that a file names is a date.
        let shown = epoch.saturating_add((day as i32).days());
        let _ = writeln!(lines, "{shown} {:016x}", id_of_day(secret, day));
    }
    lines.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_new_secret_is_for_its_owner_and_never_replaces_another() {
        let path = std::env::temp_dir().join(format!("weir-key-new-{}", std::process::id()));
        create(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let [first, again] = [HashKey::File(path.clone()), HashKey::File(path.clone())].map(|key| key.key().unwrap());
        let now = "2026-11-26T23:59:59Z".parse().unwrap();
        let id = fingerprints(&HashKey::File(path.clone()), now).unwrap();
        let refused = create(&path).unwrap_err().to_string();
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str(&format!("2026-12-01 {}\n", new_secret().unwrap()));
        fs::write(&path, text).unwrap();
        let turning = fingerprints(&HashKey::File(path.clone()), now).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!((mode, first), (0o600, again));
        assert!(refused.contains("File exists"), "{refused}");
        assert!(id.starts_with("2026-11-26 ") && id.len() == 27, "{id}");
        let [today, later] = turning.lines().collect::<Vec<_>>()[..] else { panic!("{turning}") };
        assert!(today == id && later.starts_with("2026-12-01 ") && later[11..] != id[11..], "{turning}");
        assert_ne!(new_secret().unwrap(), new_secret().unwrap());
        let none = fingerprints(&HashKey::Random, now).unwrap_err().to_string();
        assert!(none.contains("weir key new"), "{none}");
    }
}
