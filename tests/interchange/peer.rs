//! The official Python package, and `peer.py`, which speaks for it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::scratch::Scratch;

const PACKAGE: &str = "datasketches";
const VERSION: &str = "5.2.0";

/// A Python that has the package: the system's, or one of its own in the target folder, made now if need be.
///
/// # Errors
///
/// What is missing.
pub fn python() -> Result<&'static Path, String> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PYTHON.get_or_init(find).as_deref().map_err(Clone::clone)
}

fn find() -> Result<PathBuf, String> {
    let system = PathBuf::from("python3");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{PACKAGE}-{VERSION}"));
    let own = folder.join("bin/python");
    if let Some(python) = [&system, &own].into_iter().find(|python| has_package(python)) {
        return Ok(python.clone());
    }
    run(Command::new(&system).args(["-m", "venv", "--clear"]).arg(&folder))
        .and_then(|_| {
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"];
            let patience = ["--timeout=10", "--retries=1"];
            run(Command::new(&own).args(pip).args(patience).arg(format!("{PACKAGE}=={VERSION}")))
        })
        .map_err(|error| format!("no Python with {PACKAGE} {VERSION}: {error:#}"))?;
    Ok(own)
}

fn has_package(python: &Path) -> bool {
    let version = format!("import {PACKAGE}, importlib.metadata as m; print(m.version('{PACKAGE}'))");
    run(Command::new(python).args(["-c", &version])).is_ok_and(|version| version.trim() == VERSION)
}

/// What the package wrote, by file name.
pub fn written() -> Result<BTreeMap<String, Vec<u8>>> {
    let scratch = Scratch::new()?;
    peer("write", scratch.path())?;
    files(scratch.path())
}

/// What the package says of images, by file name; the names begin with the kind.
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

/// Runs a command to its end; gives what it wrote.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{} does not start", command.get_program().display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or_default();
    ensure!(output.status.success(), "{} failed: {last}", command.get_program().display());
    Ok(String::from_utf8(output.stdout)?)
}
