//! The folder of all spools, with a folder for each sink. Only one weir at a time uses it.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tracing::{info, warn};
use weir_system::{
    confined, folder,
    lock::{Lock, LockError},
    plain_file,
};

use super::{Limits, Spool, files::Folder, name::Name};

/// The file that a running weir keeps locked.
pub(super) const LOCK: &str = "lock";
/// How many characters of a folder's name come from the sink's name.
const NAME_CHARS: usize = 64;

/// The folder of all spools.
#[derive(Clone, Debug)]
pub struct SpoolRoot {
    path: PathBuf,
    limits: Limits,
    used: Arc<Used>,
    _lock: Arc<Lock>,
}

/// Spools in use: while one sink ends, the next one for the same target shares its spool.
type Used = Mutex<HashMap<String, Weak<Spool>>>;

impl SpoolRoot {
    /// Creates the folder and its parents. If that fails, [`SpoolRoot::take`] reports it.
    pub fn provide(path: &Path) {
        let _ = Folder::of_all(path).create();
    }

    /// Checks whether this folder can hold spools, as far as weir can tell without creating it.
    ///
    /// # Errors
    ///
    /// Why not, and what to do about it.
    pub fn check(path: &Path) -> Result<(), String> {
        if plain_file::is_foreign_link(path) {
            return Err(format!("{} is a link that another user has made: weir does not follow it", path.display()));
        }
        folder::check_to_be_made(path)
    }

    /// Locks a folder, and creates it if needed. `limits` apply to each sink, except for the number of reports in
    /// memory, which each sink's `queue` limits.
    ///
    /// # Errors
    ///
    /// Another weir uses the folder, or the system refuses an operation.
    pub fn take(path: &Path, limits: Limits) -> Result<Self, LockError> {
        let failed = |error| LockError::System { what: "create", path: path.to_owned(), error };
        Self::check(path).map_err(|why| failed(io::Error::other(why)))?;
        Folder::of_all(path).create().map_err(failed)?;
        let failed = |error| LockError::System { what: "open", path: path.to_owned(), error };
        plain_file::open_folder(path).map_err(failed)?;
        let lock = Lock::take(path, LOCK)?;
        Ok(Self { path: path.to_owned(), limits, used: Arc::default(), _lock: Arc::new(lock) })
    }

    /// The spool of the sink with this name and target: the one that is already in use for it, or the one in its
    /// folder. If the disk cannot be read, this is logged, and reports wait in memory.
    pub fn open(&self, sink: &str, target: &str, memory: usize) -> Arc<Spool> {
        let name = folder_name(sink, target);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spool) = used.get(&name).and_then(Weak::upgrade) {
            return spool;
        }
        let spool = Arc::new(self.open_folder(sink, &name, memory));
        used.retain(|_, spool| spool.strong_count() > 0);
        used.insert(name, Arc::downgrade(&spool));
        spool
    }

    fn open_folder(&self, sink: &str, name: &str, memory: usize) -> Spool {
        let limits = Limits { memory, ..self.limits };
        let folder = Folder::within(&self.path, name);
        let path = folder.path().display().to_string();
        match folder.create().and_then(|()| Spool::open(Box::new(folder), limits)) {
            Ok((spool, found)) => {
                if found.reports + found.tombstones > 0 {
                    info!(sink, reports = found.reports, "reports of an earlier weir wait in the spool {path}");
                }
                if found.unfinished {
                    warn!(
                        sink,
                        "a crash has left a report half written in {path}: it is lost. With a state directory, the next report \
                         names it as `previous`"
                    );
                }
                if found.foreign > 0 {
                    warn!(
                        sink,
                        files = found.foreign,
                        "there are files in {path} that are not weir's: they stay as they are"
                    );
                }
                spool
            }
            Err(error) => {
                let why = confined::explained(&error);
                warn!(
                    sink,
                    "{path} cannot be used: {why}. Reports wait in memory, and a restart loses those that wait"
                );
                Spool::in_memory(limits)
            }
        }
    }

    /// Logs which folders belong to no sink: their reports are never delivered.
    pub fn tell_unused(&self, targets: &[String]) {
        let known: Vec<_> = targets.iter().map(|target| checksum(target)).collect();
        for (name, files) in folders(&self.path).unwrap_or_default() {
            if !known.iter().any(|known| name.ends_with(known)) && files > 0 {
                warn!(
                    "reports wait in {}, but no sink has this spool: remove it, or configure its sink again",
                    self.path.join(name).display()
                );
            }
        }
    }
}

/// The folders of sinks, with the number of weir's files in each. Unrelated folders may be among them.
pub(super) fn folders(path: &Path) -> io::Result<Vec<(String, usize)>> {
    let mut folders = Vec::new();
    // It may be another user's link.
    plain_file::open_folder(path)?;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if let (true, Ok(name)) = (entry.file_type()?.is_dir(), entry.file_name().into_string()) {
            let files = std::fs::read_dir(entry.path()).map_or(0, |files| {
                files
                    .filter_map(|file| file.ok()?.file_name().into_string().ok())
                    .filter(|file| Name::read(file).is_some())
                    .count()
            });
            folders.push((name, files));
        }
    }
    folders.sort();
    Ok(folders)
}

/// The folder of a sink: its readable name, and a checksum of its full target, which may contain secrets.
fn folder_name(sink: &str, target: &str) -> String {
    let name: String =
        sink.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).take(NAME_CHARS).collect();
    let name = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    format!("{}{}", name.trim_start_matches('.'), checksum(target))
}

/// The end of the name of a sink's folder.
fn checksum(target: &str) -> String {
    format!("-{:08x}", crc32fast::hash(target.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use weir_schema::{Encoded, Reason};

    use super::*;

    #[test]
    fn each_target_has_a_folder_of_its_own() {
        let name = folder_name("http://[::1]:8080/weir", "http://[::1]:8080/weir?key=1");
        assert_eq!(name, format!("http-1-8080-weir-{:08x}", crc32fast::hash(b"http://[::1]:8080/weir?key=1")));
        assert_ne!(name, folder_name("http://[::1]:8080/weir", "http://[::1]:8080/weir?key=2"));
        assert!(folder_name("file:/a/../../b", "").starts_with("file-a-..-..-b-"), "a plain name");
        assert!(!folder_name("../..", "x").contains('/'));
        assert!(folder_name(&"x".repeat(500), "").len() < 100);
    }

    #[test]
    fn links_of_others_in_the_place_of_folders_are_not_followed() {
        use std::os::unix::fs::{lchown, symlink};
        let here = std::env::temp_dir().join(format!("weir-place-links-{}", std::process::id()));
        fs::create_dir_all(here.join("secret")).unwrap();
        let limits = Limits { bytes: 1 << 20, age: None, memory: 4, sync: true };
        let sees_nothing = || assert_eq!(fs::read_dir(here.join("secret")).unwrap().count(), 0);
        let report = |seq| Encoded { id: format!("7f3c9a52/0000b41d/{seq}"), line: b"{}\n".as_slice().into() };

        // weir follows no link in place of a sink's folder, neither at the start nor while it runs.
        let name = folder_name("file:/reports", "/reports");
        let sink = here.join("spool").join(&name);
        fs::create_dir(here.join("spool")).unwrap();
        symlink(here.join("secret"), &sink).unwrap();
        let root = SpoolRoot::take(&here.join("spool"), limits).unwrap();
        root.open("file:/reports", "/reports", 4).keep(report(1), 1000).unwrap();
        sees_nothing();
        fs::remove_file(&sink).unwrap();
        let spool = root.open("file:/reports", "/reports", 4);
        spool.keep(report(2), 1000).unwrap();
        fs::remove_dir_all(&sink).unwrap();
        symlink(here.join("secret"), &sink).unwrap();
        let why = spool.keep(report(3), 1000).unwrap_err().to_string();
        assert!(why.contains("it is a link"), "{why}");
        sees_nothing();
        fs::remove_file(&sink).unwrap();
        spool.keep(report(4), 1000).unwrap();
        assert_eq!(spool.holding().in_memory, 0, "it goes on when the link is gone");

        // weir does not follow another user's link in place of the parent folder. Only root can give a link away.
        fs::rename(here.join("spool"), here.join("moved")).unwrap();
        symlink(here.join("secret"), here.join("spool")).unwrap();
        if lchown(here.join("spool"), Some(12_345), None).is_ok() {
            let why = spool.keep(report(5), 1000).unwrap_err().to_string();
            assert!(why.contains("a link that another user has made (user id 12345)"), "{why}");
            let why = SpoolRoot::take(&here.join("spool"), limits).unwrap_err().to_string();
            assert!(why.contains("a link that another user has made"), "{why}");
            assert!(folders(&here.join("spool")).is_err());
            sees_nothing();
            fs::remove_file(here.join("spool")).unwrap();
            symlink(here.join("moved"), here.join("spool")).unwrap();
            spool.keep(report(6), 1000).unwrap();
        }
        drop((spool, root));
        fs::remove_dir_all(&here).unwrap();
    }

    #[test]
    fn a_folder_in_the_place_of_a_report_costs_that_report() {
        let path = std::env::temp_dir().join(format!("weir-place-{}", std::process::id()));
        let limits = Limits { bytes: 1 << 20, age: None, memory: 4, sync: false };
        let root = SpoolRoot::take(&path, limits).unwrap();
        let spool = root.open("file:/reports", "/reports", 4);
        let id = |seq| format!("7f3c9a52/0000b41d/{seq}");
        for seq in 1..=3 {
            spool.keep(Encoded { id: id(seq), line: b"{}\n".as_slice().into() }, 1000).unwrap();
        }
        let folder = path.join(folder_name("file:/reports", "/reports"));
        fs::create_dir(folder.join("not-of-weir")).unwrap();
        let files = |path: &Path| folders(path).unwrap().into_iter().map(|(_, files)| files).collect::<Vec<_>>();
        assert_eq!(files(&path), [3]);
        let second = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        let second =
            second.into_iter().find(|file| file.file_name().unwrap().as_encoded_bytes().starts_with(b"1.")).unwrap();
        fs::remove_file(&second).unwrap();
        fs::create_dir(&second).unwrap();
        let batch = spool.batch(10, 1 << 20, &BTreeSet::new());
        fs::remove_dir_all(&path).unwrap();
        let ids: Vec<String> = batch.unwrap().parcels.into_iter().map(|parcel| parcel.encoded.id).collect();
        assert_eq!(ids, [id(1), format!("{}-2", id(2)), id(3)], "a tombstone stands in its place");
        assert_eq!(spool.holding().lost, [(Reason::Damaged, 1)].into());
    }
}
