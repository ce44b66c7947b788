//! Checks whether weir could create a file in a folder, without creating one: the user who runs the check may not be
//! the user that weir runs as. And how much room there is.

use std::{fs, io::ErrorKind, path::Path};

use rustix::fs::{StatVfsMountFlags, statfs, statvfs};

/// File systems for the kernel's own files (`linux/magic.h`), in which no other file can be created.
const OF_THE_KERNEL: [u64; 4] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
];

/// Checks that files can be created in an existing folder.
///
/// # Errors
///
/// Why not, and what to do about it.
pub fn check(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => takes_files(folder),
        Ok(_) => Err(format!("{shown} is not a folder: name another one")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("the folder {shown} is missing: make it (`mkdir -p {shown}`)"))
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            Err(format!("{shown} is below a file: name another folder"))
        }
        // The user that weir runs as may have permission.
        Err(_) => Ok(()),
    }
}

/// Checks that a folder can be created, or that it exists and files can be created in it.
///
/// # Errors
///
/// Why not, and what to do about it.
pub fn check_to_be_made(folder: &Path) -> Result<(), String> {
    let nearest = folder.ancestors().find(|folder| !is_missing(folder) && !folder.as_os_str().is_empty());
    nearest.map_or(Ok(()), check)
}

fn is_missing(folder: &Path) -> bool {
    fs::metadata(folder).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

fn takes_files(folder: &Path) -> Result<(), String> {
    let shown = folder.display();
    if statfs(folder).is_ok_and(|found| OF_THE_KERNEL.contains(&(found.f_type as u64))) {
        return Err(format!("{shown} is for the kernel's own files: name another folder"));
    }
    if statvfs(folder).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY)) {
        return Err(format!("{shown} is on a file system that is mounted read-only: name another folder"));
    }
    Ok(())
}

/// How many bytes the file system of a folder has left for this user, if it says so.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_folders_are_explained_with_the_way_out() {
        let here = std::env::temp_dir().join(format!("weir-folder-{}", std::process::id()));
        fs::create_dir(&here).unwrap();
        fs::write(here.join("file"), "").unwrap();
        let why = |path: &str| check(&here.join(path)).unwrap_err();
        let missing = why("missing");
        assert!(missing.contains("is missing: make it (`mkdir -p ") && missing.ends_with("missing`)"), "{missing}");
        assert!(why("file").ends_with("file is not a folder: name another one"));
        assert!(why("file/below").contains("is below a file"));
        assert_eq!(check(&here), Ok(()));
        assert_eq!(check_to_be_made(&here.join("a/b")), Ok(()));
        assert!(check_to_be_made(&here.join("file")).unwrap_err().contains("is not a folder"));
        assert!(check_to_be_made(&here.join("file/a/b")).is_err());
        for kernel in ["/proc/x", "/sys/x"] {
            assert!(check_to_be_made(Path::new(kernel)).unwrap_err().contains("the kernel's own files"), "{kernel}");
        }
        fs::remove_dir_all(&here).unwrap();
    }
}
