//! The thread that reads the files, and reads them again when they change.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read as _},
    net::IpAddr,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crossbeam::channel::{Receiver, Sender, bounded};
use jiff::Timestamp;
use tracing::{info, warn};
use weir_config::{Addresses, Names as Settings};
use weir_schema::{NameSource, NamesAnswer};
use weir_system::{clock, memory::Part, plain_file, privileges, sandbox};

use crate::{
    hosts, leases,
    table::{MEMORY_BYTES, NAMES_MAX, Name, Table},
};

/// The file of names that every system has.
const HOSTS: &str = "/etc/hosts";
/// How much of a file is read, in bytes.
const FILE_MAX: usize = 64 << 10;
/// How often files are looked at.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(5);
/// How often they are read even if they have not changed, because leases end.
const READ_EVERY: Duration = Duration::from_secs(60);

/// The memory of the names of hosts, if there are sources of them. A file is in memory twice while it is read.
pub fn memory(settings: &Settings) -> Part {
    let bytes = MEMORY_BYTES + 2 * FILE_MAX;
    Part::new("names of hosts", if settings.is_on() { bytes as u64 } else { 0 }, "from files and leases").if_any()
}

/// The names of hosts, as long as this or a clone of it is there.
#[derive(Clone, Debug)]
pub struct Names {
    shared: Arc<Shared>,
    /// Has the thread read everything now. It ends when all clones are dropped.
    wake: Sender<()>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Arc<Table>>,
    settings: Mutex<(Settings, Addresses)>,
}

/// Identifies the content of a file: its device and inode, size and time.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl Names {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(settings: Settings, addresses: Addresses) -> io::Result<Self> {
        let shared = Arc::new(Shared { table: Mutex::default(), settings: Mutex::new((settings, addresses)) });
        let (wake, woken) = bounded(1);
        let follower = Follower { shared: shared.clone(), stamps: Vec::new(), read: None, troubles: BTreeMap::new() };
        thread::Builder::new().name("weir-names".to_owned()).spawn(move || {
            privileges::give_up_all();
            sandbox::pass();
            follower.run(&woken);
        })?;
        Ok(Self { shared, wake })
    }

    /// From now on, these files have the names, and this much of addresses may be shown.
    pub fn change(&self, settings: Settings, addresses: Addresses) {
        let new = (settings, addresses);
        let old = std::mem::replace(&mut *lock(&self.shared.settings), new.clone());
        if old != new {
            // If it is awake already, it has not read the settings yet.
            let _ = self.wake.try_send(());
        }
    }

    /// The names as they are now.
    pub fn table(&self) -> Arc<Table> {
        lock(&self.shared.table).clone()
    }

    /// All names.
    ///
    /// # Errors
    ///
    /// The configuration masks addresses. Their names would tell who they are.
    pub fn answer(&self) -> Result<NamesAnswer, String> {
        let addresses = lock(&self.shared.settings).1;
        if addresses != Addresses::Full {
            return Err(format!("the configuration has `addresses: {}`, so weir shows no names", addresses.name()));
        }
        Ok(self.table().answer())
    }
}

/// Locks a value. It is always consistent, so it does no harm if a thread panicked while it held the lock.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Follower {
    shared: Arc<Shared>,
    stamps: Vec<Stamp>,
    /// When the files were read last, on the monotonic clock.
    read: Option<Duration>,
    /// What the log says about a file.
    troubles: BTreeMap<PathBuf, String>,
}

impl Follower {
    fn run(mut self, woken: &Receiver<()>) {
        loop {
            self.look(clock::now().monotonic, clock::now().wall);
            match woken.recv_timeout(LOOKED_AT_EVERY) {
                Ok(()) => self.read = None,
                Err(error) if error.is_disconnected() => return,
                Err(_) => {}
            }
        }
    }

    /// Reads the files if one has changed, or if it is time.
    fn look(&mut self, now: Duration, wall: Timestamp) {
        let (settings, _) = lock(&self.shared.settings).clone();
        let files = files(&settings);
        let stamps: Vec<_> = files.iter().map(|(_, path)| stamp(path)).collect();
        let is_due = self.read.is_none_or(|read| now.saturating_sub(read) >= READ_EVERY);
        if !is_due && stamps == self.stamps {
            return;
        }
        self.read = Some(now);
        self.stamps = stamps;
        let mut table = Table::default();
        self.troubles.retain(|path, _| files.iter().any(|(_, file)| file == path));
        for (source, path) in files {
            let trouble = read(&path, source, wall, &mut table).err();
            self.tell(path, trouble);
        }
        let full = (table.left_out() > 0).then(|| {
            format!("there is room for {NAMES_MAX} names, and {} addresses have none because of that", table.left_out())
        });
        self.tell(PathBuf::from("names"), full);
        let mut shown = lock(&self.shared.table);
        if **shown != table {
            *shown = Arc::new(table);
        }
    }

    /// Logs what is wrong with a file, once, and when that is over.
    fn tell(&mut self, path: PathBuf, trouble: Option<String>) {
        match trouble {
            Some(trouble) if self.troubles.get(&path) != Some(&trouble) => {
                warn!("{}: {trouble}", path.display());
                self.troubles.insert(path, trouble);
            }
            Some(_) => {}
            None if self.troubles.remove(&path).is_some() => info!("{}: its names are known again", path.display()),
            None => {}
        }
    }
}

/// The files with names, the best first.
fn files(Settings { file, hosts, leases }: &Settings) -> Vec<(NameSource, PathBuf)> {
    let file = file.iter().map(|file| (NameSource::File, file.clone()));
    let hosts = hosts.then(|| (NameSource::Hosts, HOSTS.into()));
    file.chain(hosts).chain(leases.iter().map(|file| (NameSource::Lease, file.clone()))).collect()
}

fn stamp(path: &Path) -> Stamp {
    let of = path.metadata().ok()?;
    Some((of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec()))
}

/// Adds the names of a file.
///
/// # Errors
///
/// What is wrong with the file, for the log.
fn read(path: &Path, source: NameSource, now: Timestamp, table: &mut Table) -> Result<(), String> {
    let mut bytes = Vec::new();
    let opened = plain_file::open_regular(path).and_then(|file| file.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes));
    match opened {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound && source == NameSource::Hosts => return Ok(()),
        Err(error) => return Err(format!("cannot be read: {error}. Its addresses have no names")),
    }
    let is_cut = bytes.len() > FILE_MAX;
    bytes.truncate(FILE_MAX);
    let text = String::from_utf8_lossy(&bytes);
    let mut add = |address: IpAddr, name: Name| table.add(address, source, name);
    let wrong = match source {
        NameSource::File | NameSource::Hosts => hosts::read(&text, add),
        NameSource::Lease => {
            let (all, wrong) = leases::read(&text, now);
            // In order, so that it does not change which ones have a place.
            let all: BTreeMap<IpAddr, Name> = all.into_iter().collect();
            all.into_iter().for_each(|(address, name)| add(address, name));
            wrong
        }
    };
    match (is_cut, wrong) {
        (true, _) => Err(format!("only its first {FILE_MAX} bytes are read")),
        (false, 0) => Ok(()),
        (false, 1) => Err("one line is not understood, and left out".to_owned()),
        (false, wrong) => Err(format!("{wrong} lines are not understood, and left out")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ADDRESS: &str = "192.0.2.7";

    fn of(names: &Names) -> Option<(NameSource, String)> {
        names.table().of(ADDRESS.parse().unwrap()).map(|(source, name)| (source, name.to_owned()))
    }

    fn wait(mut is_so: impl FnMut() -> bool) {
        let mut tries = 0..2000;
        while !is_so() {
            assert!(tries.next().is_some(), "nothing came in twenty seconds");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn files_are_read_again_when_they_change() {
        let folder = std::env::temp_dir().join(format!("weir-names-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [file, lease] = ["names", "leases"].map(|name| folder.join(name));
        fs::write(&lease, format!("0 02:00:00:00:00:01 {ADDRESS} of-a-lease *\n")).unwrap();
        let settings = Settings { file: None, hosts: false, leases: vec![lease.clone()] };
        let names = Names::start(settings.clone(), Addresses::Full).unwrap();
        wait(|| of(&names) == Some((NameSource::Lease, "of-a-lease".to_owned())));
        // As dnsmasq does: another file takes its place.
        fs::write(folder.join("new"), format!("0 02:00:00:00:00:01 {ADDRESS} renamed *\n")).unwrap();
        fs::rename(folder.join("new"), &lease).unwrap();
        wait(|| of(&names) == Some((NameSource::Lease, "renamed".to_owned())));
        fs::write(&file, format!("{ADDRESS} by-hand\n")).unwrap();
        names.change(Settings { file: Some(file.clone()), ..settings.clone() }, Addresses::Full);
        wait(|| of(&names) == Some((NameSource::File, "by-hand".to_owned())));
        assert_eq!(names.answer().unwrap().names.len(), 1);
        names.change(settings, Addresses::Prefix);
        wait(|| of(&names).is_some_and(|(source, _)| source == NameSource::Lease));
        assert!(names.answer().unwrap_err().contains("addresses: prefix"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_with_problems_gives_what_it_can() {
        let folder = std::env::temp_dir().join(format!("weir-names-trouble-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("names");
        let read_as = |source| {
            let mut table = Table::default();
            let trouble = read(&path, source, Timestamp::UNIX_EPOCH, &mut table).err();
            (table.len(), trouble.unwrap_or_default())
        };
        assert!(read_as(NameSource::Lease).1.contains("cannot be read"));
        assert_eq!(read_as(NameSource::Hosts), (0, String::new()), "some systems have no hosts file");
        fs::write(&path, b"192.0.2.7 a\n\xff\xfe b\n192.0.2.8 c\n").unwrap();
        assert_eq!(read_as(NameSource::File), (2, "one line is not understood, and left out".to_owned()));
        fs::write(&path, "192.0.2.7 a\n".repeat(100_000)).unwrap();
        let (count, trouble) = read_as(NameSource::File);
        assert!(count == 1 && trouble.contains("65536 bytes"), "{trouble}");
        fs::remove_dir_all(folder).unwrap();
    }
}
