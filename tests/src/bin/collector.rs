//! A collector for the demo: receives reports by HTTP and appends them to a file.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use weir_tests::collector::Collector;

/// Receive weir's reports by HTTP and append them to a file, one JSON object a line.
#[derive(Parser)]
struct Arguments {
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// File to append reports to.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn main() -> Result<()> {
    /// How long to wait for a report. The collector runs until it is stopped from outside.
    const WAIT: Duration = Duration::from_secs(3600);
    let Arguments { listen, out } = Arguments::parse();
    let cannot = || format!("cannot write {}", out.display());
    let mut file = OpenOptions::new().append(true).create(true).open(&out).with_context(cannot)?;
    let collector = Collector::listen(listen)?;
    writeln!(io::stdout(), "listening on {}", collector.url())?;
    loop {
        if let Some(received) = collector.next(WAIT) {
            // One write for each line, so that a concurrent reader never sees half a line.
            file.write_all(format!("{}\n", received.report).as_bytes()).with_context(cannot)?;
        }
    }
}
