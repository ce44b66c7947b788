//! The folders and files that weir needs once its configuration is read.
//!
//! Rights are for folders, not for files: if another program replaces a file by a new version, that is a different file
//! for Linux. So all of `/etc` stays readable, because the name servers in it change.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::plain_file::is_foreign_link;

/// Paths that the system's libraries and weir itself may read at any time: names and addresses, certificates, time
/// zones, and the kernel's own files.
const OF_THE_SYSTEM: [&str; 8] = ["/etc", "/usr", "/lib", "/lib64", "/proc", "/sys", "/dev/urandom", "/dev/random"];
/// Name servers and certificates that may be links to other places. Their targets are readable, too.
const BY_LINKS: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"];
/// Variables with paths that these libraries read. Each has files, or a list of folders.
const BY_VARIABLES: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "CREDENTIALS_DIRECTORY"];
const NULL: &str = "/dev/null";
/// In these folders only single files are granted, never the whole folder.
const OF_DEVICES: [&str; 3] = ["/dev", "/proc", "/sys"];
/// The most links in a chain, as in Linux.
const LINKS_MAX: usize = 40;

/// The files that a configuration names, by their use. Each has its setting, such as `sinks[1].path`. The files need
/// not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Files to read. Some are read repeatedly.
    pub read: Vec<(String, PathBuf)>,
    /// Files to write, rename and remove.
    pub written: Vec<(String, PathBuf)>,
    /// The directory of the spools, if there is one.
    pub spool: Option<PathBuf>,
    /// The directory of the history, if there is one.
    pub history: Option<PathBuf>,
    /// The path of the control socket.
    pub socket: Option<PathBuf>,
}

impl Files {
    /// Adds files to read that this setting names.
    pub fn reads<'f>(&mut self, setting: &str, files: impl IntoIterator<Item = &'f PathBuf>) {
        self.read.extend(files.into_iter().map(|file| (setting.to_owned(), file.clone())));
    }
}

/// The folders and files that weir needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Places to read, with everything below them.
    pub read: BTreeSet<PathBuf>,
    /// Places to read and write, with everything below them.
    pub write: BTreeSet<PathBuf>,
    /// Folders from which an empty folder may be removed.
    pub emptied: BTreeSet<PathBuf>,
}

/// How weir was started.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The path of the configuration.
    pub config: &'a Path,
    /// The folder for the service's state, if there is one.
    pub state_directory: Option<&'a Path>,
    /// The folder that was created for the control socket, and is removed with it.
    pub made: Option<&'a Path>,
}

/// A file is in the root folder. A right for that folder would include all files.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("{} is in the root folder: put it into a folder of its own", .0.display())]
pub struct InRoot(PathBuf);

impl Places {
    /// The places that weir needs if its configuration names these files.
    ///
    /// # Errors
    ///
    /// One of the files is in the root folder, or in a folder that would have to be created there.
    pub fn of(files: &Files, origin: Origin<'_>) -> Result<Self, InRoot> {
        let mut places = Self::default();
        places.read.extend(OF_THE_SYSTEM.iter().filter_map(|path| fs::canonicalize(path).ok()));
        places.read.extend(BY_LINKS.iter().flat_map(|path| around(Path::new(path))).filter(|path| !is_root(path)));
        for variable in BY_VARIABLES {
            for path in env::var_os(variable).iter().flat_map(env::split_paths) {
                let folder = fs::canonicalize(&path).ok().filter(|path| path.is_dir());
                places.read.extend(around(&path).into_iter().chain(folder).filter(|path| !is_root(path)));
            }
        }
        places.write.insert(NULL.into());
        let read = files.read.iter().map(|(_, path)| path.as_path());
        for path in read.chain([origin.config]) {
            places.read.extend(narrow(path)?);
        }
        let written = files.written.iter().map(|(_, path)| path);
        for path in written.chain(&files.socket) {
            places.write.extend(narrow(path)?);
        }
        for folder in origin.state_directory.into_iter().chain(files.spool.as_deref()).chain(files.history.as_deref()) {
            if is_foreign_link(folder) {
                // weir does not follow this link, so it needs no right for the target.
                continue;
            }
            let there = there(folder).filter(|there| !is_root(there));
            places.write.insert(there.ok_or_else(|| InRoot(folder.to_owned()))?);
        }
        places.emptied.extend(origin.made.and_then(Path::parent).and_then(|parent| fs::canonicalize(parent).ok()));
        Ok(places)
    }

    /// The first of these files that is outside of these places: its setting, its path, and whether it is written.
    pub fn lacks<'f>(&self, files: &'f Files) -> Option<(&'f str, &'f Path, bool)> {
        let read = files.read.iter().map(|file| (file, false));
        let mut all = read.chain(files.written.iter().map(|file| (file, true)));
        all.find_map(|((setting, path), to_write)| {
            let is_reached =
                |folder: &PathBuf| is_within(&self.write, folder) || !to_write && is_within(&self.read, folder);
            (!around(path).iter().all(is_reached)).then_some((setting.as_str(), path.as_path(), to_write))
        })
    }
}

fn is_within(places: &BTreeSet<PathBuf>, path: &Path) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

/// The folders [`around`] a file that the configuration names.
fn narrow(path: &Path) -> Result<Vec<PathBuf>, InRoot> {
    let around = around(path);
    if around.iter().any(|path| is_root(path)) { Err(InRoot(path.to_owned())) } else { Ok(around) }
}

/// The folders of a file: that of its name, and that of its link's target. A device itself takes the place of its
/// folder.
fn around(path: &Path) -> Vec<PathBuf> {
    let named = path.file_name().and_then(|name| Some(there(folder_of(path))?.join(name)));
    let folder = |file: PathBuf| {
        let folder = file.parent()?;
        if OF_DEVICES.iter().any(|devices| folder == Path::new(devices)) {
            file.exists().then_some(file)
        } else {
            Some(folder.to_owned())
        }
    };
    [named, leads_to(path)].into_iter().flatten().filter_map(folder).collect()
}

/// The final target of a chain of links, which need not exist.
fn leads_to(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Ok(target) = fs::canonicalize(&path) {
            return Some(target);
        }
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => return Some(there(folder_of(&path))?.join(path.file_name()?)),
        }
    }
    None
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The folder, or its nearest parent that exists.
fn there(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    folder.ancestors().find_map(|folder| fs::canonicalize(folder).ok())
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A temporary folder.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("weir-places-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(fs::canonicalize(path).unwrap())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn started(config: &Path) -> Origin<'_> {
        Origin { config, state_directory: None, made: None }
    }

    fn reports(path: impl Into<PathBuf>) -> Files {
        Files { written: vec![("sinks[0].path".to_owned(), path.into())], ..Files::default() }
    }

    #[test]
    fn a_file_grants_the_folders_of_its_name_and_its_target() {
        let Folder(root) = &Folder::new("links");
        for name in ["etc", "data", "out", "far"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join("data/weir.yaml"), "").unwrap();
        symlink(root.join("data/weir.yaml"), root.join("etc/weir.yaml")).unwrap();
        // Reach a file that does not exist yet through another link.
        symlink("second", root.join("out/reports")).unwrap();
        symlink("../far/reports", root.join("out/second")).unwrap();
        let config = root.join("etc/weir.yaml");
        let Places { read, write, emptied } = Places::of(&reports(root.join("out/reports")), started(&config)).unwrap();
        assert!(read.contains(&root.join("etc")) && read.contains(&root.join("data")), "{read:?}");
        assert!(!read.contains(&root.join("out")));
        assert_eq!(write, [NULL.into(), root.join("far"), root.join("out")].into());
        assert!(emptied.is_empty());
    }

    #[test]
    fn a_file_in_the_root_folder_leaves_all_files_open() {
        let Folder(root) = &Folder::new("root");
        let config = root.join("weir.yaml");
        let in_root = |path: &str| Err(InRoot(path.into()));
        assert_eq!(Places::of(&reports("/reports"), started(&config)), in_root("/reports"));
        assert_eq!(
            Places::of(&reports("/no-such-folder/reports"), started(&config)),
            in_root("/no-such-folder/reports")
        );
        assert_eq!(Places::of(&Files::default(), started(Path::new("/weir.yaml"))), in_root("/weir.yaml"));
        let spool = Files { spool: Some("/no-such-spool".into()), ..Files::default() };
        assert_eq!(Places::of(&spool, started(&config)), in_root("/no-such-spool"));
    }

    #[test]
    fn devices_are_granted_without_their_folder() {
        let Folder(root) = &Folder::new("devices");
        let places = Places::of(&reports("/dev/full"), started(&root.join("weir.yaml"))).unwrap();
        assert_eq!(places.write, ["/dev/full", NULL].map(PathBuf::from).into());
        assert!(!places.read.contains(Path::new("/dev")), "{places:?}");
    }

    #[test]
    fn a_missing_folder_grants_its_nearest_parent() {
        let Folder(root) = &Folder::new("nearest");
        let config = root.join("weir.yaml");
        assert!(Places::of(&reports(root.join("later/today/reports")), started(&config)).unwrap().write.contains(root));
        let made = root.join("made");
        let places = Places::of(&Files::default(), Origin { made: Some(&made), ..started(&config) }).unwrap();
        assert_eq!(places.emptied, [root.clone()].into());
    }

    #[test]
    fn files_outside_of_the_granted_places_are_found() {
        let (Folder(here), Folder(there)) = (&Folder::new("here"), &Folder::new("there"));
        let files = |read: &Path, written: &Path| Files {
            read: vec![("geo.asn".to_owned(), read.join("asn"))],
            ..reports(written.join("reports"))
        };
        let places = Places::of(&files(here, here), started(&here.join("weir.yaml"))).unwrap();
        assert_eq!(places.lacks(&files(here, here)), None);
        assert_eq!(places.lacks(&files(Path::new("/etc/weir"), &here.join("below"))), None);
        assert_eq!(places.lacks(&files(there, here)), Some(("geo.asn", there.join("asn").as_path(), false)));
        assert_eq!(places.lacks(&files(here, there)), Some(("sinks[0].path", there.join("reports").as_path(), true)));
        // A place for reading is not a place for writing.
        assert_eq!(places.lacks(&reports("/etc/reports")), Some(("sinks[0].path", Path::new("/etc/reports"), true)));
    }
}
