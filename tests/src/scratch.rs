//! A directory that lasts as long as its owner.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};

/// A new directory under the system's temporary one, readable by its owner only; removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty directory.
    ///
    /// # Errors
    ///
    /// The directory cannot be made, or exists: then somebody else made it, and it is not to be trusted.
    pub fn new() -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("weir-{}-{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make the directory {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure, and what stays is in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_gone_with_its_owner() {
        let scratch = Scratch::new().unwrap();
        fs::write(scratch.file("note"), "x").unwrap();
        let path = scratch.path().to_owned();
        assert!(path.join("note").is_file());
        drop(scratch);
        assert!(!path.exists());
    }
}
