//! A real Prometheus that scrapes weir.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{netns::Namespace, scratch::Scratch};

const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// A server in a namespace, which scrapes each second; it ends on drop.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    scratch: Scratch,
}

impl Prometheus {
    /// Starts a server that scrapes this address.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(namespace: &Namespace, scraped: SocketAddr) -> Result<Self> {
        let scratch = Scratch::new()?;
        let config = scratch.file("prometheus.yml");
        fs::write(
            &config,
            format!(
                "scrape_configs:\n  - job_name: weir\n    scrape_interval: 1s\n    scrape_timeout: 1s\n    static_configs: [{{targets: [\"{scraped}\"]}}]\n"
            ),
        )?;
        let mut command = namespace.command("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", scratch.file("data").display()))
            .arg(format!("--web.listen-address={API}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(scratch.file("log"))?);
        let child = command.spawn().context("cannot start prometheus")?;
        Ok(Self { child, scratch })
    }

    /// Returns the log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.file("log")
    }

    /// Returns the answer to a request for this path under `/api/v1/`; `None` if it does not answer yet.
    ///
    /// # Errors
    ///
    /// Its namespace cannot be entered.
    pub fn api(&self, namespace: &Namespace, path: &str) -> Result<Option<Value>> {
        let answer = namespace.enter(|| -> Result<String> {
            let mut stream = TcpStream::connect(API)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let request = format!("GET /api/v1/{path} HTTP/1.0\r\nHost: {API}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })?;
        // It takes a moment to start.
        let body = answer.ok().and_then(|answer| Some(answer.split_once("\r\n\r\n")?.1.to_owned()));
        Ok(body.and_then(|body| serde_json::from_str(&body).ok()))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
