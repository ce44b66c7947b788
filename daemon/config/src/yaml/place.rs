//! Resolves paths, so that a file is recognised by any of its names.

use std::{
    fs,
    path::{Component, Path, PathBuf, absolute},
};

/// The file that a path leads to, which need not exist. Links are resolved in directories that exist.
pub(super) fn of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| of_name(path))
}

/// The place of the name itself, which may be a link.
pub(super) fn of_name(path: &Path) -> PathBuf {
    in_directory(path).unwrap_or_else(|| by_name(path))
}

/// The place of a name, which need not exist, in an existing directory.
fn in_directory(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    let directory = match path.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        there => there,
    };
    Some(fs::canonicalize(directory).ok()?.join(name))
}

/// Resolves the path by its text alone.
fn by_name(path: &Path) -> PathBuf {
    let mut place = PathBuf::new();
    for part in absolute(path).unwrap_or_else(|_| path.to_owned()).components() {
        match part {
            Component::ParentDir => {
                place.pop();
            }
            part => place.push(part),
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_recognised_by_each_of_its_names() {
        let directory =
            fs::canonicalize(std::env::temp_dir()).unwrap().join(format!("weir-place-{}", std::process::id()));
        fs::create_dir_all(directory.join("a")).unwrap();
        symlink(directory.join("a"), directory.join("link")).unwrap();
        let places = ["r", "a/../r", "./r", "a/r", "link/r", "link/../a/r"].map(|name| of(&directory.join(name)));
        fs::remove_dir_all(&directory).unwrap();
        let [r, inner] = ["r", "a/r"].map(|name| directory.join(name));
        assert_eq!(places, [r.clone(), r.clone(), r, inner.clone(), inner.clone(), inner]);
        assert_eq!(of(Path::new("/nowhere/a/../r")), Path::new("/nowhere/r"));
        assert_eq!(of(Path::new("no-such-directory/../r")), of(Path::new("r")));
    }
}
