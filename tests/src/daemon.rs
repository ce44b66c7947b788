//! Runs the real weir as a child process.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::{clock, netns::Namespace, scratch::Scratch};

/// The variable that names the binary to run.
pub const BINARY_VARIABLE: &str = "WEIR_BIN";
const CONFIG: &str = "weir.yaml";
const REPORTS: &str = "reports.ndjson";
const OUT: &str = "stdout";
const LOG: &str = "stderr";

/// The `weir` binary: `WEIR_BIN`, or the one that cargo built into the target directory of this executable.
///
/// # Errors
///
/// There is no binary; the error names the place.
pub fn weir_binary() -> Result<PathBuf> {
    if let Some(path) = env::var_os(BINARY_VARIABLE) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "{BINARY_VARIABLE}: there is no file {}", path.display());
        return Ok(path);
    }
    let own = env::current_exe().context("cannot find this executable")?;
    // The test is at target/debug/deps/lab-0123456789abcdef, or at target/debug/traffic.
    let candidates = own.ancestors().skip(1).take(2).map(|directory| directory.join("weir"));
    candidates.into_iter().find(|path| path.is_file()).with_context(|| {
        format!("no weir beside {}: build it (cargo build -p weir) or name it in {BINARY_VARIABLE}", own.display())
    })
}

/// A running `weir run`; killed on drop.
///
/// It has its own directory for its config, its reports and its output. If a test panics, the daemon's standard error
/// is printed.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    scratch: Scratch,
}

impl Daemon {
    /// Starts weir, in a namespace or where the caller is.
    ///
    /// `config` is given the path that the config should have its reports written to as NDJSON (see
    /// [`Daemon::reports`]) and returns the config's text.
    ///
    /// # Errors
    ///
    /// There is no binary, or it cannot be started.
    pub fn start(namespace: Option<&Namespace>, config: impl FnOnce(&Path) -> String) -> Result<Self> {
        Self::start_program(&weir_binary()?, namespace, config)
    }

    /// As [`Daemon::start`], with another program that is given the same arguments.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start_program(
        program: &Path,
        namespace: Option<&Namespace>,
        config: impl FnOnce(&Path) -> String,
    ) -> Result<Self> {
        let scratch = Scratch::new()?;
        let path = scratch.file(CONFIG);
        let mut config = config(&scratch.file(REPORTS));
        if !config.contains("control:") {
            // Many daemons run at the same time, so none of them may use the default socket.
            config += "\ncontrol: {socket: none}\n";
        }
        fs::write(&path, config).with_context(|| format!("cannot write {}", path.display()))?;
        let create = |name| {
            let path = scratch.file(name);
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        let (out, log) = (create(OUT)?, create(LOG)?);
        let mut command = namespace.map_or_else(|| Command::new(program), |namespace| namespace.command(program));
        command.args([OsStr::new("run"), OsStr::new("--config"), path.as_os_str()]);
        command.current_dir(scratch.path()).stdin(Stdio::null()).stdout(out).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, scratch })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the directory of the daemon's files.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Everything that it wrote to its standard error so far.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn log(&self) -> Result<String> {
        self.text(LOG)
    }

    /// Everything that it wrote to its standard output so far.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn output(&self) -> Result<String> {
        self.text(OUT)
    }

    /// Waits for a line of its standard error that contains `part`, and returns the line.
    ///
    /// # Errors
    ///
    /// The line did not come within `timeout`, or the daemon ended before. The error has its standard error.
    pub fn wait_for_line(&mut self, part: &str, timeout: Duration) -> Result<String> {
        let what = format!("a line with \"{part}\"");
        let found = clock::wait_for(&what, timeout, || {
            // The order matters: once it has ended, everything that it wrote is there.
            let ended = self.child.try_wait()?;
            let log = self.log()?;
            // A line without a line break may be incomplete.
            let complete = log.rsplit_once('\n').map_or("", |(complete, _)| complete);
            if let Some(line) = complete.lines().find(|line| line.contains(part)) {
                return Ok(Some(line.to_owned()));
            }
            match ended {
                Some(status) => bail!("weir ended ({status}) without {what}"),
                None => Ok(None),
            }
        });
        found.with_context(|| self.last_words())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("weir has ended ({status}) before it was sent {signal:?}\n{}", self.last_words());
        }
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).with_context(|| format!("cannot send {signal:?} to process {}", self.child.id()))
    }

    /// Waits for it to end.
    ///
    /// # Errors
    ///
    /// It did not end within `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let ended = clock::wait_for("the end of weir", timeout, || Ok(self.child.try_wait()?));
        ended.with_context(|| self.last_words())
    }

    /// Asks it to end as systemd does, and waits for it.
    ///
    /// # Errors
    ///
    /// It had already ended, or did not end within `timeout`.
    pub fn stop(&mut self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(timeout)
    }

    /// The reports that it wrote so far; none if there is no file yet.
    ///
    /// An incomplete last line is left out while the daemon runs, and is an error afterwards.
    ///
    /// # Errors
    ///
    /// A line is not JSON; the error has the line.
    pub fn reports(&mut self) -> Result<Vec<Value>> {
        let ended = self.child.try_wait()?.is_some();
        let path = self.scratch.file(REPORTS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let (complete, rest) = text.rsplit_once('\n').unwrap_or(("", &text));
        ensure!(rest.is_empty() || !ended, "{}: the last line has no end: {rest}", path.display());
        let lines = complete.lines().enumerate();
        let parse = |(nth, line)| {
            serde_json::from_str(line).with_context(|| format!("{}:{}: no JSON", path.display(), nth + 1))
        };
        lines.map(parse).collect()
    }

    /// Waits until it wrote at least `count` reports, and returns all.
    ///
    /// # Errors
    ///
    /// There are fewer after `timeout`, or the daemon ended with fewer.
    pub fn wait_for_reports(&mut self, count: usize, timeout: Duration) -> Result<Vec<Value>> {
        let found = clock::wait_for(&format!("{count} reports"), timeout, || {
            let ended = self.child.try_wait()?;
            let reports = self.reports()?;
            match ended {
                _ if reports.len() >= count => Ok(Some(reports)),
                Some(status) => bail!("weir ended ({status}) after {} reports", reports.len()),
                None => Ok(None),
            }
        });
        found.with_context(|| self.last_words())
    }

    fn text(&self, name: &str) -> Result<String> {
        let path = self.scratch.file(name);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the text on its standard error, for an error message.
    fn last_words(&self) -> String {
        /// The maximum length in bytes; of a longer log, only the end is shown.
        const WORDS_MAX: usize = 8 << 10;
        let log = self.log().unwrap_or_default();
        let from = (log.len().saturating_sub(WORDS_MAX)..=log.len()).find(|at| log.is_char_boundary(*at));
        format!("weir wrote to its standard error:\n{}", &log[from.unwrap_or_default()..])
    }
}

impl Drop for Daemon {
    #[expect(clippy::print_stderr, reason = "a test that fails has to show what the daemon said")]
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("{}", self.last_words());
        }
    }
}
