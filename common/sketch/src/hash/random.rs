//! Random keys from the operating system.

use core::fmt;

use super::Key;

impl Key {
    /// A new secret key from the operating system. To load a sketch again, the same key is needed: store it.
    ///
    /// # Errors
    ///
    /// The operating system provides no random numbers.
    pub fn random() -> Result<Self, NoRandom> {
        let mut halves = [[0; 8]; 2];
        for half in &mut halves {
            getrandom::fill(half).map_err(NoRandom)?;
        }
        Ok(Self(halves.map(u64::from_le_bytes)))
    }
}

/// The operating system provides no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandom(getrandom::Error);

impl fmt::Display for NoRandom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no random key from the operating system: {}", self.0)
    }
}

impl core::error::Error for NoRandom {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_keys_are_equal() {
        let keys = [(); 3].map(|()| Key::random().unwrap());
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert!(keys.iter().all(|Key([one, other])| one != other && *one != 0));
        let error = std::format!("{}", NoRandom(getrandom::Error::UNSUPPORTED));
        assert!(error.starts_with("no random key from the operating system: "), "{error}");
    }
}
