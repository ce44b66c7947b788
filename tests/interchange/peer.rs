//! Runs the official Python package through `peer.py`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::scratch::Scratch;

/// The Python with the package, if `scripts/setup` has installed it. The list of packages beside it shows that the
/// installation is complete.
///
/// # Errors
///
/// It is missing, or was installed from another list.
pub fn python() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("datasketches");
    let python = folder.join("bin/python");
    let list = std::fs::read(folder.join("requirements.txt"));
    if list.is_ok_and(|list| list == include_bytes!("requirements.txt")) && python.exists() {
        Ok(python)
    } else {
        Err(format!("no Python with datasketches in {}: run scripts/setup", folder.display()))
    }
}

/// Returns the files that the package wrote, by name.
pub fn written() -> Result<BTreeMap<String, Vec<u8>>> {
    let scratch = Scratch::new()?;
    peer("write", scratch.path())?;
    files(scratch.path())
}

/// The package's answers about images, by file name; each name begins with the kind.
pub fn said(images: &BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, Value>> {
    let scratch = Scratch::new()?;
    for (name, image) in images {
        std::fs::write(scratch.file(name), image)?;
    }
    let output = peer("read", scratch.path())?;
    let said = output.lines().map(|line| {
        let said: Value = serde_json::from_str(line)?;
        Ok((said["file"].as_str().context("a line without a file")?.to_owned(), said))
    });
    let said: BTreeMap<_, _> = said.collect::<Result<_>>()?;
    ensure!(said.keys().eq(images.keys()), "the package read only {:?}", said.keys());
    Ok(said)
}

/// The registers of the package's unions of these images, in each order, as hex digits.
pub fn united(images: &[Vec<u8>]) -> Result<Vec<String>> {
    let scratch = Scratch::new()?;
    for (nth, image) in images.iter().enumerate() {
        std::fs::write(scratch.file(&format!("hll-{nth}.sk")), image)?;
    }
    let registers = |line: &str| -> Result<String> {
        let said: Value = serde_json::from_str(line)?;
        Ok(said["registers"].as_str().context("a union without registers")?.to_owned())
    };
    peer("unite", scratch.path())?.lines().map(registers).collect()
}

/// The content of all files of a folder but its notes, by name.
pub fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sk") {
            let name = path.file_name().context("a file without a name")?.to_string_lossy().into_owned();
            files.insert(name, std::fs::read(&path)?);
        }
    }
    Ok(files)
}

fn peer(command: &str, folder: &Path) -> Result<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("interchange/peer.py");
    run(Command::new(python().map_err(anyhow::Error::msg)?).arg(script).arg(command).arg(folder))
}

/// Runs a command to its end; returns what it wrote.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{} does not start", command.get_program().display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{} failed: {last}", command.get_program().display());
    Ok(String::from_utf8(output.stdout)?)
}
