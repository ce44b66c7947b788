//! A directory that lasts as long as its owner.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

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
    /// The directory cannot be made, or exists: then another process made it, and it must not be trusted.
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

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Copies a program into it with this mode: with `0o700`, only its owner may run it.
    ///
    /// A separate process writes the copy. Otherwise a process that another thread starts at the same time would
    /// inherit the open file, and a program that is open for writing cannot be run ("Text file busy").
    ///
    /// # Errors
    ///
    /// It cannot be copied; the error has the output of `install`.
    pub fn program(&self, from: &Path, name: &str, mode: u32) -> Result<PathBuf> {
        let path = self.file(name);
        let mut command = Command::new("install");
        let output =
            command.arg(format!("--mode={mode:o}")).arg(from).arg(&path).output().context("cannot run install")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
        Ok(path)
    }

    /// The same with a script of this text.
    ///
    /// # Errors
    ///
    /// It cannot be written or copied.
    pub fn script(&self, text: &str, name: &str, mode: u32) -> Result<PathBuf> {
        let source = self.file(&format!("{name}.source"));
        fs::write(&source, text).with_context(|| format!("cannot write {}", source.display()))?;
        self.program(&source, name, mode)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Other processes of a program that was killed, such as a browser's, may still write for a moment.
        for _ in 0..100 {
            match fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => thread::sleep(Duration::from_millis(50)),
                _ => return,
            }
        }
        // A failure cannot be reported any more, and what remains is in the system's temporary directory.
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

    #[test]
    fn a_script_can_be_run_at_once() {
        let scratch = Scratch::new().unwrap();
        let script = scratch.script("#!/bin/sh\nexit 7\n", "seven", 0o700).unwrap();
        assert_eq!(Command::new(script).status().unwrap().code(), Some(7));
        assert!(scratch.program(&scratch.file("absent"), "copy", 0o700).unwrap_err().to_string().contains("absent"));
    }
}
