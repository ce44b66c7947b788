//! A Debian with a real systemd as process 1, in its own namespaces. It boots in seconds, and ends when it is dropped.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, ensure};
use weir_tests::{clock, scratch::Scratch};

use crate::watch::{Ended, TIMEOUT};

/// The Debian that machines are booted from: created once, and only read afterwards.
const KEPT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/debian");
const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/systemd/boot.sh");
const SWEEP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/systemd/sweep.sh");
const MAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/systemd/debian.sh");
/// The programs that are needed, with their packages.
const PROGRAMS: [(&str, &str); 4] =
    [("debootstrap", "debootstrap"), ("unshare", "util-linux"), ("nsenter", "util-linux"), ("setpriv", "util-linux")];

/// Why no machine can be booted here.
pub fn requirements() -> Result<(), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let there = |program: &str| env::split_paths(&path).any(|folder| folder.join(program).is_file());
    match PROGRAMS.iter().find(|(program, _)| !there(program)) {
        Some((program, package)) => Err(format!("there is no {program} (Debian: apt-get install {package})")),
        None => Ok(()),
    }
}

/// A running machine; ended on drop, with all its processes.
pub struct Machine {
    process: Child,
    init: u32,
    folder: Scratch,
}

/// A file that is installed before the machine boots.
pub struct Installed<'a> {
    /// The path of the file, without the first slash.
    pub path: &'a str,
    /// The content of the file.
    pub content: &'a [u8],
    /// The mode of the file.
    pub mode: u32,
}

impl Machine {
    /// Boots a machine with these files, and returns when systemd reports that it is running.
    pub fn boot(files: &[Installed<'_>]) -> Result<Self> {
        let debian = debian()?;
        let folder = Scratch::new()?;
        for Installed { path, content, mode } in files {
            let path = folder.path().join("files").join(path);
            let parent = path.parent().context("a file is in a folder")?;
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
        }
        let log = fs::File::create(folder.file("log"))?;
        // If this process is killed, the machine is killed, too.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "sh", BOOT]);
        command.arg(debian).arg(folder.path()).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().context("cannot start setpriv")?;
        let mut machine = Self { process, init: 0, folder };
        machine.wait_until_it_runs(0).with_context(|| machine.log())?;
        Ok(machine)
    }

    /// Shuts it down as an operator does, and boots it again. Its disk stays. Its network is new, so links into the old
    /// one must be created again.
    pub fn reboot(&mut self) -> Result<()> {
        let before = self.init;
        // The machine may end before the command does.
        self.run("systemctl reboot")?;
        self.wait_until_it_runs(before).with_context(|| self.log())
    }

    /// Waits until the machine is up, with another process 1 than `before`.
    fn wait_until_it_runs(&mut self, before: u32) -> Result<()> {
        self.init = clock::wait_for("process 1 of the machine", TIMEOUT, || {
            ensure!(self.process.try_wait()?.is_none(), "it ended");
            // The script's child creates the namespaces, and its child is process 1.
            let init = only_child(self.process.id()).and_then(only_child).filter(|init| *init != before);
            // Before that, the script is still mounting file systems.
            let name =
                |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "systemd\n");
            Ok(init.filter(name))
        })?;
        clock::wait_for("systemd to be up", TIMEOUT, || {
            let state = self.run("systemctl is-system-running")?.out;
            ensure!(state != "degraded\n", "units have failed:\n{}", self.run("systemctl --failed")?.out);
            Ok((state == "running\n").then_some(()))
        })
    }

    /// The process number of its process 1, as seen from outside.
    pub const fn init(&self) -> u32 {
        self.init
    }

    /// Runs a command line in the machine; its words are separated by single spaces.
    pub fn run(&self, line: &str) -> Result<Ended> {
        let init = self.init.to_string();
        Ended::of(Command::new("nsenter").args(["--target", &init, "--all"]).args(line.split(' ')))
    }

    /// Runs a command that has to succeed, and returns its output.
    pub fn done(&self, line: &str) -> Result<String> {
        let Ended { code, out, err } = self.run(line)?;
        ensure!(code == Some(0), "{line}: {code:?}\n{err}{out}\n{}", self.log());
        Ok(out)
    }

    /// A path of the machine, from outside.
    pub fn path(&self, inside: &str) -> PathBuf {
        Path::new("/proc").join(self.init.to_string()).join("root").join(inside)
    }

    /// The boot messages, and the end of the journal.
    pub fn log(&self) -> String {
        let boot = fs::read_to_string(self.folder.file("log")).unwrap_or_default();
        let journal = match self.init {
            0 => String::new(),
            _ => self.run("journalctl --no-pager --lines=60").map(|ended| ended.out).unwrap_or_default(),
        };
        format!("the machine said:\n{boot}{journal}")
    }
}

fn only_child(process: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    children.trim().parse().ok()
}

impl Drop for Machine {
    #[expect(clippy::print_stderr, reason = "a drop has no other way to say that it left something behind")]
    fn drop(&mut self) {
        // Process 1 of the machine ends with its parent, and ends all others. Both calls fail only for a process that
        // has ended and was waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let ended = clock::wait_for("the end of the machine", TIMEOUT, || {
            let status = fs::read_to_string(format!("/proc/{}/stat", self.init)).unwrap_or_default();
            Ok((status.is_empty() || status.contains(") Z ")).then_some(()))
        });
        let mut sweep = Command::new("unshare");
        sweep.args(["--mount", "--propagation", "private", "sh", SWEEP]).arg(self.folder.path());
        let swept = ended.and_then(|()| Ended::of(&mut sweep)).and_then(|ended| ended.check(0, &[]));
        if let Err(error) = swept {
            eprintln!("{error:#}");
        }
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// The Debian that machines are booted from. It is created when it is first needed, which takes a minute.
fn debian() -> Result<&'static Path> {
    // Several tests may need it at the same time.
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = Path::new(KEPT);
    if !kept.is_dir() {
        let made = Ended::of(Command::new("sh").arg(MAKE).arg(kept))?;
        made.check(0, &[]).context("cannot make a Debian to boot")?;
    }
    Ok(kept)
}
