//! Runs the real collector by `weir collect`, and speaks HTTP with it. Both programs have to be built.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

use crate::{clock, daemon::weir_binary};

/// How long the collector may take for anything.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// The headers of a request with reports.
pub const NDJSON: &str = "Content-Type: application/x-ndjson\r\n";

/// A running `weir collect` on loopback; killed on drop.
#[derive(Debug)]
pub struct Collecting {
    child: Child,
    log: PathBuf,
    address: SocketAddr,
}

/// An answer of the collector.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The body, which is JSON.
    pub body: Value,
}

impl Answer {
    /// The ids that the collector has acknowledged.
    pub fn stored(&self) -> Vec<String> {
        let ids = self.body["stored"].as_array().into_iter().flatten();
        ids.filter_map(Value::as_str).map(str::to_owned).collect()
    }
}

impl Collecting {
    /// Starts it with a database in `folder`, on a free port, and waits until it listens.
    ///
    /// # Errors
    ///
    /// It cannot be started, or it ends; the error has its log.
    pub fn start(folder: &Path, arguments: &[&str]) -> Result<Self> {
        Self::start_in(Command::new(weir_binary()?), folder, folder, arguments)
    }

    /// As [`Collecting::start`], by a command that runs weir with the arguments that are added, and with the database
    /// in another folder than the log: one that only the command may see.
    ///
    /// # Errors
    ///
    /// It cannot be started, or it ends; the error has its log.
    pub fn start_in(mut command: Command, folder: &Path, inside: &Path, arguments: &[&str]) -> Result<Self> {
        let log = folder.join("collect.log");
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.args(["collect", "--listen", "127.0.0.1:0", "--log-format", "plain", "--database"]);
        command.arg(database(inside)).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut child = command.spawn().context("cannot start weir collect")?;
        let address = clock::wait_for("the collector", TIMEOUT, || {
            let ended = child.try_wait()?;
            let text = fs::read_to_string(&log)?;
            let said = text.split_once("collecting at http://").and_then(|(_, rest)| rest.split_once('/'));
            match (said, ended) {
                (Some((address, _)), None) => Ok(Some(address.parse()?)),
                (_, Some(status)) => bail!("it ended ({status}): {text}"),
                (None, None) => Ok(None),
            }
        });
        match address {
            Ok(address) => Ok(Self { child, log, address }),
            Err(error) => {
                // It may have ended.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Returns the address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the log so far.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// Posts a body with these headers, each with its line break.
    ///
    /// # Errors
    ///
    /// There is no answer.
    pub fn post(&self, headers: &str, body: &[u8]) -> Result<Answer> {
        post(self.address, headers, body)
    }

    /// Sends it a signal, and waits for its end.
    ///
    /// # Errors
    ///
    /// It had already ended, or did not end in time.
    pub fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        kill_process(Pid::from_child(&self.child), signal).context("the collector has ended before")?;
        clock::wait_for("the end of the collector", TIMEOUT, || Ok(self.child.try_wait()?))
    }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The database of a collector whose folder this is.
pub fn database(folder: &Path) -> PathBuf {
    folder.join("reports.db")
}

/// Posts a body.
///
/// # Errors
///
/// There is no answer.
pub fn post(address: SocketAddr, headers: &str, body: &[u8]) -> Result<Answer> {
    let head = format!(
        "POST /weir HTTP/1.1\r\nHost: collector\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    say(address, head.as_bytes(), body)
}

/// Sends a head and a body, and reads the answer.
///
/// # Errors
///
/// There is no answer.
pub fn say(address: SocketAddr, head: &[u8], body: &[u8]) -> Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(head)?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8(answer)?;
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no answer: {text:?}"))?;
    let status = head.split(' ').nth(1).context("no status")?.parse()?;
    Ok(Answer { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() })
}

/// Runs `weir collect query` on the database of a folder, with these arguments, and returns the rows of its JSON.
///
/// # Errors
///
/// The command fails; the error has its output.
pub fn query(folder: &Path, arguments: &[&str]) -> Result<Vec<Value>> {
    query_by(Command::new(weir_binary()?), folder, arguments)
}

/// As [`query`], by a command that runs weir with the arguments that are added.
///
/// # Errors
///
/// The command fails; the error has its output.
pub fn query_by(mut command: Command, folder: &Path, arguments: &[&str]) -> Result<Vec<Value>> {
    command.args(["collect", "query", "--json", "--database"]).arg(database(folder)).args(arguments);
    let Output { status, stdout, stderr } = command.output()?;
    ensure!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    let lines = String::from_utf8(stdout)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The smallest report with this number.
pub fn report(seq: u64) -> String {
    let previous = if seq > 1 { format!(r#""previous":"7f3c9a52/b41d/{}","#, seq - 1) } else { String::new() };
    let second = seq % 60;
    format!(
        r#"{{"schema":"weir.report/1","id":"7f3c9a52/b41d/{seq}",{previous}"window":{{"start":"2026-11-20T08:00:{second:02}Z","end":"2026-11-20T08:01:{second:02}Z"}},"observer":{{"name":"edge-1","id":"7f3c9a52","boot_id":"b41d","seq":{seq},"version":"0.1.0"}},"totals":{{"packets":{seq},"bytes":{}}}}}"#,
        seq * 100
    )
}

/// Reports of these numbers as a body, and their ids.
pub fn reports(numbers: impl IntoIterator<Item = u64>) -> (Vec<u8>, Vec<String>) {
    let (mut body, mut ids) = (Vec::new(), Vec::new());
    for seq in numbers {
        body.extend(report(seq).into_bytes());
        body.push(b'\n');
        ids.push(format!("7f3c9a52/b41d/{seq}"));
    }
    (body, ids)
}
