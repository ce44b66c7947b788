//! The recipe of `docs/collectors/clickhouse.md`, with ClickHouse as a library (chdb) behind the HTTP interface that
//! sinks use.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_config::Config;
use weir_deliver::sink::{Outbox, open};
use weir_schema::Encoded;
use weir_tests::{collecting::TIMEOUT, scratch::Scratch};

use crate::histories::Histories;

const RECIPE: &str = include_str!("../../docs/collectors/clickhouse.md");
/// The address of the server in the recipe.
const SERVER: &str = "clickhouse.example.net:8123";
const REPORT: &str = include_str!("../../daemon/schema/tests/golden/report.json");
const TOMBSTONE: &str = r#"{"schema":"weir.tombstone/1","id":"7f3c9a52/b41d/40-41","observer":{"id":"7f3c9a52","boot_id":"b41d"},"first_seq":40,"last_seq":41,"reports":2,"reason":"spool_full"}"#;

/// Checks that the recipe can be run here.
///
/// # Errors
///
/// What is missing.
pub fn is_there() -> Result<(), String> {
    let found = python().is_some_and(|python| python.is_file());
    if found { Ok(()) } else { Err("there is no chdb (scripts/setup brings it)".to_owned()) }
}

/// The Python that scripts/setup installs, below the folder of this executable.
fn python() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let target = own.ancestors().find(|folder| folder.join("tmp").is_dir())?;
    Some(target.join("tmp/chdb/bin/python"))
}

/// The server; killed on drop.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("collect/clickhouse/server.py");
        let mut child = Command::new(python().context("it was there")?)
            .arg(script)
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut port = String::new();
        BufReader::new(child.stdout.take().context("it is piped")?).read_line(&mut port)?;
        Ok(Self { child, address: format!("127.0.0.1:{}", port.trim()) })
    }

    /// Runs a statement, and returns its rows.
    fn sql(&self, statement: &str) -> Result<Vec<Value>> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let length = statement.len();
        write!(stream, "POST /sql HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{statement}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.contains(" 200 "), "{statement}: {body}");
        body.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

/// The recipe's first code block in this language below a heading, or at the start of the page.
fn block(heading: &str, kind: &str) -> Result<&'static str> {
    let (_, rest) = RECIPE.split_once(heading).with_context(|| format!("no heading {heading}"))?;
    let (_, rest) = rest.split_once(&format!("```{kind}\n")).with_context(|| format!("no block of {kind}"))?;
    Ok(rest.split_once("```").context("the block has an end")?.0)
}

/// The recipe's sink sends a report and a tombstone twice; the recipe's table has each once.
pub fn recipe() -> Result<()> {
    let scratch = Scratch::new()?;
    let folder = scratch.file("clickhouse");
    fs::create_dir(&folder)?;
    let server = Server::start(&folder)?;
    for statement in block("# ClickHouse", "sql")?.split(';').filter(|statement| !statement.trim().is_empty()) {
        server.sql(statement)?;
    }
    let yaml = block("# ClickHouse", "yaml")?;
    ensure!(yaml.contains(SERVER), "{yaml}");
    let config = Config::parse(&yaml.replace(SERVER, &server.address), "clickhouse.md")?;
    let report: Value = serde_json::from_str(REPORT)?;
    for _ in 0..2 {
        let sinks = open(&config.sinks, None, false)?;
        for line in [report.to_string(), TOMBSTONE.to_owned()] {
            let id = serde_json::from_str::<Value>(&line)?["id"].as_str().context("id")?.to_owned();
            for sink in &sinks {
                sink.offer(Encoded { id: id.clone(), line: format!("{line}\n").into_bytes().into() });
            }
        }
        let ended = Outbox::finish_all(sinks, TIMEOUT);
        ensure!(ended.iter().all(|sink| sink.queued == 0 && sink.dropped == 0), "{ended:?}");
    }
    let rows = server.sql("SELECT * FROM weir.reports FINAL ORDER BY schema")?;
    let [stored, tombstone] = &rows[..] else { anyhow::bail!("each once: {rows:#?}") };
    for pointer in
        ["/id", "/observer/seq", "/observer/name", "/totals/packets", "/totals/bytes", "/unique/src_ip/upper"]
    {
        ensure!(stored.pointer(pointer) == report.pointer(pointer), "{pointer}: {stored:#}");
    }
    let interfaces: Value = serde_json::from_str(stored["interfaces"].as_str().context("text")?)?;
    ensure!(interfaces == report["interfaces"], "{interfaces:#}");
    let expected: Value = serde_json::from_str(TOMBSTONE)?;
    for field in ["id", "first_seq", "last_seq", "reason"] {
        ensure!(tombstone[field] == expected[field], "{field}: {tombstone:#}");
    }
    for statement in
        block("## Two reports with one id", "sql")?.split(';').filter(|statement| !statement.trim().is_empty())
    {
        server.sql(statement)?;
    }
    let histories = Histories::new();
    let settings = "date_time_input_format = 'best_effort', input_format_skip_unknown_fields = 1";
    server.sql(&format!("INSERT INTO weir.reports SETTINGS {settings} FORMAT JSONEachRow\n{}", histories.text()))?;
    server.sql(block("## What is missing", "sql")?.trim_end().trim_end_matches(';'))?;
    histories.check("ClickHouse", &server.sql("SELECT * FROM weir.missing")?)?;
    server.sql("OPTIMIZE TABLE weir.reports FINAL")?;
    let contested = server.sql("SELECT id FROM weir.contested")?;
    histories.check_contested("ClickHouse", crate::ids(&contested)?)?;
    let cloned = server.sql("SELECT previous FROM weir.cloned")?;
    let text = |row: &Value| Some(row["previous"].as_str()?.to_owned());
    histories.check_named_twice("ClickHouse", cloned.iter().filter_map(text))
}
