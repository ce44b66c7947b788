//! The crates of the workspace, as cargo sees them: `ARCHITECTURE.md` has each of them, above all that it depends on.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    page::{Page, spans},
    root,
};

/// A package of the workspace.
pub struct Package {
    pub name: String,
    /// The folder of the package, from the root of the repository.
    pub folder: PathBuf,
    /// The source file of its library, from the root of the repository, if it has one.
    pub library: Option<PathBuf>,
    /// The names of its programs, tests and examples, with their kinds.
    pub targets: Vec<(String, String)>,
    /// The packages that it depends on, except for tests and build scripts.
    needs: Vec<String>,
}

/// All packages of the workspace.
///
/// # Errors
///
/// cargo does not list them.
pub fn packages() -> Result<Vec<Package>> {
    let root = root().canonicalize()?;
    let listed = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(&root)
        .output()?;
    ensure!(listed.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&listed.stderr));
    let listed: Value = serde_json::from_slice(&listed.stdout)?;
    let packages = listed["packages"].as_array().context("cargo lists no packages")?;
    packages.iter().map(|package| Package::read(package, &root).context("an unknown form")).collect()
}

impl Package {
    fn read(package: &Value, root: &Path) -> Option<Self> {
        let file = |path: &Value| Some(Path::new(path.as_str()?).strip_prefix(root).ok()?.to_owned());
        let is_library = |target: &&Value| target["kind"][0] == "lib";
        let library = package["targets"].as_array()?.iter().find(is_library);
        let target =
            |target: &Value| Some((target["kind"][0].as_str()?.to_owned(), target["name"].as_str()?.to_owned()));
        let is_needed = |one: &&Value| one["kind"].is_null();
        let needs = package["dependencies"].as_array()?.iter().filter(is_needed);
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            folder: file(&package["manifest_path"])?.parent()?.to_owned(),
            library: library.and_then(|target| file(&target["src_path"])),
            targets: package["targets"].as_array()?.iter().filter_map(target).collect(),
            needs: needs.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect(),
        })
    }
}

#[test]
fn the_table_of_crates_has_each_one_above_those_that_it_needs() -> Result<()> {
    let page = Page::read("ARCHITECTURE.md")?;
    let rows = page.lines().into_iter().filter(|line| line.heading == "The crates" && line.text.starts_with('|'));
    let mut places = BTreeMap::new();
    for (place, row) in rows.enumerate() {
        let cells = row.cells();
        for (folder, name) in spans(cells[0]).into_iter().zip(spans(cells[1])) {
            places.insert(name.to_owned(), (place, folder.trim_end_matches('/').to_owned()));
        }
    }
    for Package { name, folder, needs, .. } in packages()?.iter().filter(|package| package.name != "weir-ebpf-build") {
        let (place, said) = places.get(name).with_context(|| format!("the table has no {name}"))?;
        ensure!(folder == Path::new(said), "{name} is in {}, not in {said}", folder.display());
        // The kernel's programs and the tests stand below, beside the stack.
        let is_of_stack = folder.starts_with("daemon") || folder.starts_with("common");
        for (needed, below) in needs.iter().filter(|_| is_of_stack).filter_map(|one| Some((one, places.get(one)?.0))) {
            ensure!(*place <= below, "{name} needs {needed}, which is above it in the table");
        }
    }
    Ok(())
}

#[test]
fn every_crate_with_a_library_is_found() -> Result<()> {
    let packages = packages()?;
    let with_file = |package: &&Package| root().join(&package.folder).join("src/lib.rs").exists();
    let libraries = packages.iter().filter(|package| package.library.is_some());
    ensure!(packages.iter().filter(with_file).count() == libraries.count(), "a library is not found");
    ensure!(packages.len() > 15, "only {} packages are found", packages.len());
    Ok(())
}
