//! Runs the real `nats-server`, and speaks its protocol
//! (<https://docs.nats.io/reference/reference-protocols/nats-protocol>) without weir's client, so that different code
//! reads and writes a stream.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use weir_config::Config;

use crate::{clock, netns::Namespace};

/// How long anything may take.
pub const TIMEOUT: Duration = Duration::from_secs(20);
/// The stream of the tests.
pub const STREAM: &str = "WEIR";

/// The requirements of tests with a server: the server, and a weir that was built with NATS.
///
/// # Errors
///
/// What is missing.
pub fn requirements() -> Result<(), String> {
    let found = Command::new("nats-server").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        return Err("there is no nats-server (apt: nats-server)".to_owned());
    }
    let config = Config::parse("sinks: [{type: nats, url: 'nats://127.0.0.1'}]", "weir.yaml");
    config.map(drop).map_err(|mistakes| mistakes.list().first().map(|one| one.message.clone()).unwrap_or_default())
}

/// A server on loopback, with JetStream, whose streams outlive it; killed on drop.
#[derive(Debug)]
pub struct Server {
    child: Option<Child>,
    folder: PathBuf,
    address: SocketAddr,
    /// How it is started: in a namespace or not.
    namespace: Option<String>,
}

impl Server {
    /// A server with this address and its files in `folder`, not started yet.
    pub fn new(folder: &Path, address: SocketAddr, namespace: Option<&Namespace>) -> Self {
        let namespace = namespace.map(|namespace| namespace.name().to_owned());
        Self { child: None, folder: folder.to_owned(), address, namespace }
    }

    /// Starts a server with these additional settings on a free port.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(folder: &Path, settings: &str) -> Result<Self> {
        let mut server = Self::new(folder, free_address()?, None);
        server.begin(settings)?;
        server.wait()?;
        Ok(server)
    }

    /// Starts it with these additional settings.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn begin(&mut self, settings: &str) -> Result<()> {
        let Self { folder, address, .. } = self;
        let config = folder.join("nats.conf");
        let store = folder.join("jetstream");
        fs::write(
            &config,
            format!(
                "listen: {address}\njetstream {{store_dir: \"{}\", max_file_store: 256MB}}\n{settings}\n",
                store.display()
            ),
        )?;
        let log = File::options().create(true).append(true).open(folder.join("nats.log"))?;
        let mut command = match &self.namespace {
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, "nats-server"]);
                command
            }
            None => Command::new("nats-server"),
        };
        command.arg("--config").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().context("cannot start nats-server")?);
        Ok(())
    }

    /// Waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// It does not, or has ended; the error has its log.
    pub fn wait(&mut self) -> Result<()> {
        let waited = clock::wait_for("nats-server to listen", TIMEOUT, || {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                bail!("nats-server has ended: {status}");
            }
            let Ok(mut stream) = TcpStream::connect(self.address) else { return Ok(None) };
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut byte = [0];
            Ok((stream.read(&mut byte).unwrap_or_default() == 1).then_some(()))
        });
        waited.with_context(|| fs::read_to_string(self.folder.join("nats.log")).unwrap_or_default())
    }

    /// Ends it by SIGKILL.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("nats-server does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Returns the address that it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to it without credentials.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn talk(&self) -> Result<Talk> {
        Talk::begin(self.address, &json!({}))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failure cannot be reported any more.
        let _ = self.kill();
    }
}

/// An address of loopback on which no process listens, another one in each call. Its port is not one of those that
/// Linux gives to connections, so no other test takes it before a server listens there.
///
/// # Errors
///
/// There is none.
pub fn free_address() -> Result<SocketAddr> {
    const FIRST: u16 = 20_000;
    const PORTS: u16 = 12_000;
    static CALLS: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time begin at different ports.
    let begin = (std::process::id() % u32::from(PORTS)) as u16;
    for _ in 0..PORTS {
        let nth = CALLS.fetch_add(1, Ordering::Relaxed) % PORTS;
        let address = (Ipv4Addr::LOCALHOST, FIRST + (begin + nth) % PORTS);
        if let Ok(listener) = TcpListener::bind(address) {
            return Ok(listener.local_addr()?);
        }
    }
    bail!("no port from {FIRST} on is free")
}

/// A conversation with a server.
#[derive(Debug)]
pub struct Talk {
    reader: BufReader<TcpStream>,
    asked: u32,
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The headers, each with its value.
    pub headers: Vec<(String, String)>,
    /// The payload, which is a report.
    pub payload: Vec<u8>,
}

impl Message {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The value of `Nats-Msg-Id`.
    pub fn id(&self) -> &str {
        self.header("Nats-Msg-Id").unwrap_or_default()
    }
}

impl Talk {
    /// Connects; `login` has additional fields for `CONNECT`.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn begin(address: SocketAddr, login: &Value) -> Result<Self> {
        Self::answering(address, |_| Ok(login.clone()))
    }

    /// Connects; `login` returns additional fields for `CONNECT`, given the server's `INFO`.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn answering(address: SocketAddr, login: impl FnOnce(&Value) -> Result<Value>) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut talk = Self { reader: BufReader::new(stream), asked: 0 };
        let info = talk.line()?;
        let info = info.strip_prefix("INFO ").with_context(|| format!("no INFO: {info}"))?;
        let login = login(&serde_json::from_str(info)?)?;
        let mut connect = json!({"verbose": false, "headers": true, "no_responders": true});
        for (key, value) in login.as_object().into_iter().flatten() {
            connect[key] = value.clone();
        }
        talk.say(format!("CONNECT {connect}\r\nPING\r\nSUB inbox.* 1\r\n").as_bytes())?;
        while talk.line()? != "PONG" {}
        Ok(talk)
    }

    fn say(&mut self, text: &[u8]) -> Result<()> {
        Ok(self.reader.get_mut().write_all(text)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.reader.read_line(&mut line)? > 0, "the server has closed the connection");
        let line = line.trim_end().to_owned();
        ensure!(!line.starts_with("-ERR"), "{line}");
        Ok(line)
    }

    /// Sends a request, and returns the answer.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn ask(&mut self, subject: &str, payload: &[u8]) -> Result<Message> {
        self.asked += 1;
        let inbox = format!("inbox.{}", self.asked);
        let head = format!("PUB {subject} {inbox} {}\r\n", payload.len());
        self.say(&[head.as_bytes(), payload, b"\r\n"].concat())?;
        loop {
            let line = self.line()?;
            // An empty reply leaves two blanks.
            let words: Vec<&str> = line.split_whitespace().collect();
            let (headers, all) = match &words[..] {
                ["PING"] => {
                    self.say(b"PONG\r\n")?;
                    continue;
                }
                ["MSG", _, _, all] => (0, all.parse::<usize>()?),
                ["HMSG", _, _, headers, all] => (headers.parse()?, all.parse::<usize>()?),
                _ => continue,
            };
            let mut body = vec![0; all + 2];
            self.reader.read_exact(&mut body)?;
            if words[1] != inbox {
                continue;
            }
            let text = String::from_utf8_lossy(&body[..headers]).into_owned();
            ensure!(!text.starts_with("NATS/1.0 "), "{subject}: {}", text.trim());
            let pairs = text.lines().filter_map(|line| line.split_once(": "));
            let headers_read = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            return Ok(Message { headers: headers_read, payload: body[headers..all].to_vec() });
        }
    }

    /// Sends a request to the JetStream API, and returns its answer.
    ///
    /// # Errors
    ///
    /// It refuses.
    pub fn jetstream(&mut self, what: &str, request: &Value) -> Result<Value> {
        let answer = self.ask(&format!("$JS.API.{what}"), request.to_string().as_bytes())?;
        let answer: Value = serde_json::from_slice(&answer.payload)?;
        ensure!(answer["error"].is_null(), "{what}: {answer}");
        Ok(answer)
    }

    /// Creates or changes the stream of the tests, with this subject and these additional settings.
    ///
    /// # Errors
    ///
    /// The server refuses.
    pub fn stream(&mut self, how: &str, subject: &str, settings: &Value) -> Result<()> {
        let mut config = json!({"name": STREAM, "subjects": [subject], "storage": "file", "allow_direct": true,
            "retention": "limits", "discard": "new", "num_replicas": 1, "duplicate_window": 3_600_000_000_000_u64});
        for (key, value) in settings.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        self.jetstream(&format!("STREAM.{how}.{STREAM}"), &config).map(drop)
    }

    /// How many messages the stream has.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub fn count(&mut self) -> Result<u64> {
        let info = self.jetstream(&format!("STREAM.INFO.{STREAM}"), &json!({}))?;
        info["state"]["messages"].as_u64().with_context(|| info.to_string())
    }

    /// All messages of the stream, in order.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub fn messages(&mut self) -> Result<Vec<Message>> {
        let info = self.jetstream(&format!("STREAM.INFO.{STREAM}"), &json!({}))?;
        let seq = |name: &str| info["state"][name].as_u64().with_context(|| info.to_string());
        let (first, last) = (seq("first_seq")?, seq("last_seq")?);
        let get = format!("$JS.API.DIRECT.GET.{STREAM}");
        (first.max(1)..=last).map(|seq| self.ask(&get, json!({"seq": seq}).to_string().as_bytes())).collect()
    }
}
