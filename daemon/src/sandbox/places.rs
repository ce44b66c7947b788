//! Which folders and files weir needs, once its configuration is read.
//!
//! A right is for a folder, not for a file, wherever that may be: a file that another program replaces by its new version is
//! another one for Linux. So `/etc` as a whole stays readable, because name servers change there.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use crate::config::Files;

/// What the system's libraries, and weir itself, read at any time: names and addresses, certificates, time zones, the
/// kernel's own files.
const OF_THE_SYSTEM: [&str; 8] = ["/etc", "/usr", "/lib", "/lib64", "/proc", "/sys", "/dev/urandom", "/dev/random"];
/// Name servers and certificates that may be elsewhere: what these lead to.
const BY_LINKS: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"];
/// Variables with paths that these libraries read: files, or lists of folders.
const BY_VARIABLES: [&str; 3] = ["SSL_CERT_FILE", "SSL_CERT_DIR", "CREDENTIALS_DIRECTORY"];
const NULL: &str = "/dev/null";
/// Nobody is given one of these whole: then only the file itself.
const TOO_WIDE: [&str; 4] = ["/", "/dev", "/proc", "/sys"];

/// The folders and files that weir needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Read, with everything below.
    pub read: BTreeSet<PathBuf>,
    /// Read and written, with everything below.
    pub write: BTreeSet<PathBuf>,
    /// Folders in which an empty one may be removed.
    pub emptied: BTreeSet<PathBuf>,
}

/// Where weir was started from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The configuration.
    pub config: &'a Path,
    /// Where the service keeps its state, if it does.
    pub state_directory: Option<&'a Path>,
    /// The folder that was made for the control socket, and goes with it.
    pub made: Option<&'a Path>,
}

impl Places {
    /// What a weir needs whose configuration names these files.
    pub fn of(files: &Files, origin: Origin<'_>) -> Self {
        let mut places = Self::default();
        places.read.extend(OF_THE_SYSTEM.iter().filter_map(|path| fs::canonicalize(path).ok()));
        BY_LINKS.iter().for_each(|path| places.read_at(Path::new(path)));
        for variable in BY_VARIABLES {
            for path in env::var_os(variable).iter().flat_map(env::split_paths) {
                places.read_at(&path);
                places.read.extend(fs::canonicalize(path).ok().filter(|path| path.is_dir()));
            }
        }
        places.write.insert(NULL.into());
        places.read_at(origin.config);
        files.read.iter().for_each(|(_, path)| places.read_at(path));
        files.written.iter().for_each(|(_, path)| places.write_at(path));
        files.socket.iter().for_each(|path| places.write_at(path));
        for folder in origin.state_directory.into_iter().chain(files.spool.as_deref()) {
            places.write.extend(there(folder).filter(|folder| !is_too_wide(folder)));
        }
        places.emptied.extend(origin.made.and_then(Path::parent).and_then(|parent| fs::canonicalize(parent).ok()));
        places
    }

    /// The first of these files that a weir with these places cannot reach, as the section that names it and the folder.
    pub fn lacks(&self, files: &Files) -> Option<(&'static str, PathBuf)> {
        let is_within = |places: &BTreeSet<PathBuf>, path: &Path| places.iter().any(|place| path.starts_with(place));
        let is_written = |path: &Path| is_within(&self.write, path);
        let is_read = |path: &Path| is_within(&self.read, path) || is_written(path);
        let first = |files: &[(&'static str, PathBuf)], is_there: &dyn Fn(&Path) -> bool| {
            let mut lacking = files.iter().flat_map(|(section, path)| around(path).map(|folder| (*section, folder)));
            lacking.find(|(_, folder)| !is_there(folder))
        };
        first(&files.read, &is_read).or_else(|| first(&files.written, &is_written))
    }

    fn read_at(&mut self, path: &Path) {
        self.read.extend(around(path));
    }

    fn write_at(&mut self, path: &Path) {
        self.write.extend(around(path));
    }
}

/// The folders that a file is in: by its name, and where a link leads to. The file itself where those have too much.
fn around(path: &Path) -> impl Iterator<Item = PathBuf> {
    let target = fs::canonicalize(path).ok();
    let named = path.file_name().and_then(|name| Some(there(folder_of(path))?.join(name)));
    [named, target].into_iter().flatten().filter_map(|file| {
        let folder = file.parent()?;
        if is_too_wide(folder) { file.exists().then_some(file) } else { Some(folder.to_owned()) }
    })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The folder, or the nearest above it that is there.
fn there(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    folder.ancestors().find_map(|folder| fs::canonicalize(folder).ok())
}

fn is_too_wide(folder: &Path) -> bool {
    TOO_WIDE.iter().any(|wide| folder == Path::new(wide))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder that is removed when the test ends.
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

    #[test]
    fn a_file_gives_its_folder_by_its_name_and_by_where_it_leads() {
        let Folder(root) = &Folder::new("links");
        for name in ["etc", "data", "out"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        fs::write(root.join("data/weir.yaml"), "").unwrap();
        symlink(root.join("data/weir.yaml"), root.join("etc/weir.yaml")).unwrap();
        let files = Files { written: vec![("sinks", root.join("out/reports"))], ..Files::default() };
        let config = root.join("etc/weir.yaml");
        let Places { read, write, emptied } = Places::of(&files, started(&config));
        assert!(read.contains(&root.join("etc")) && read.contains(&root.join("data")), "{read:?}");
        assert!(!read.contains(&root.join("out")));
        assert_eq!(write, [root.join("out"), NULL.into()].into_iter().rev().collect());
        assert!(emptied.is_empty());
    }

    #[test]
    fn folders_with_too_much_are_never_given_whole() {
        let files = Files {
            read: vec![("sinks", "/weir.yaml".into()), ("sinks", "/no-such-folder/key".into())],
            written: vec![("sinks", "/dev/stdout".into()), ("sinks", "/dev/full".into())],
            spool: Some("/no-such-spool".into()),
            socket: Some("/no-such-folder/control.sock".into()),
        };
        let places =
            Places::of(&files, Origin { state_directory: Some(Path::new("/")), ..started(Path::new("/weir.yaml")) });
        for path in places.write.iter().filter(|path| path.is_dir()) {
            assert!(path.starts_with(env::current_dir().unwrap()) || !is_too_wide(path), "{path:?}");
        }
        assert!(!places.read.contains(Path::new("/")) && !places.read.contains(Path::new("/dev")), "{places:?}");
        assert!(places.write.contains(Path::new("/dev/full")));
    }

    #[test]
    fn a_folder_that_is_not_there_yet_gives_the_nearest_above() {
        let Folder(root) = &Folder::new("nearest");
        let files = Files { written: vec![("sinks", root.join("later/today/reports"))], ..Files::default() };
        assert!(Places::of(&files, started(&root.join("weir.yaml"))).write.contains(root));
        let made = root.join("made");
        let places = Places::of(&Files::default(), Origin { made: Some(&made), ..started(&root.join("weir.yaml")) });
        assert_eq!(places.emptied, [root.clone()].into());
    }

    #[test]
    fn a_configuration_that_names_other_folders_is_told() {
        let (Folder(here), Folder(there)) = (&Folder::new("here"), &Folder::new("there"));
        let files = |read: &Path, written: &Path| Files {
            read: vec![("geo", read.join("key"))],
            written: vec![("sinks", written.join("reports"))],
            ..Files::default()
        };
        let places = Places::of(&files(here, here), started(&here.join("weir.yaml")));
        assert_eq!(places.lacks(&files(here, here)), None);
        assert_eq!(places.lacks(&files(Path::new("/etc/weir"), &here.join("below"))), None);
        assert_eq!(places.lacks(&files(there, here)), Some(("geo", there.clone())));
        assert_eq!(places.lacks(&files(here, there)), Some(("sinks", there.clone())));
        assert_eq!(
            places.lacks(&files(here, Path::new("/etc"))),
            Some(("sinks", "/etc".into())),
            "what may be read is not written"
        );
    }
}
