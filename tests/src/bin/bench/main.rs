//! The benchmarks behind `scripts/bench`: each checks the answer as well as the time, and prints a Markdown table.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use weir_tests::table;

mod acknowledged;
mod closing;
mod datapath;
mod delivery;
mod export;
mod heavy_hitters;
mod history;
mod idle;
mod interfaces;
mod machine;
mod networks;
mod peers;
mod pipeline;
mod reader;
mod readers;
mod replay;
mod tax;

/// Measures what weir costs.
#[derive(Parser)]
enum Bench {
    /// Nanoseconds and instructions per packet in the kernel, by test-run on one CPU (needs root)
    Datapath {
        /// Another build of the benchmark's eBPF object, to be measured in turn with this one
        #[arg(long, value_name = "OBJECT")]
        with: Option<PathBuf>,
    },
    /// Nanoseconds per record in a worker's sketches, whole and part by part, and what the end of a window takes
    Pipeline,
    /// How close a list's bounds are, and which of the largest keys it finds, beside candidates alone
    HeavyHitters,
    /// What a month of history takes on disk, and how fast it answers
    History {
        /// How many days
        #[arg(long, default_value_t = 30)]
        days: u64,
    },
    /// Nanoseconds to find the network of an address
    Networks,
    /// How long the delivery of a report takes, and how fast waiting reports are delivered
    Delivery,
    /// CPU time and memory of the daemon while there is no traffic (needs root)
    Idle,
    /// Very many interfaces at once: how long windows become, and how long other programs wait when they query the
    /// kernel's configuration (needs root)
    Interfaces {
        /// How many, each in both directions
        #[arg(long, default_value_t = 1_000)]
        links: usize,
        /// How weir attaches
        #[arg(long, default_value = "auto")]
        mode: String,
    },
    /// CPU time of the daemon while `weir top` or the page in a browser is open (needs root)
    Readers,
    /// Packets per second of CPU time in `weir replay`
    Replay,
    /// weir and flowsketch on the same capture, with the same questions: time, memory, and how true the answers are
    Peers {
        /// A checkout of flowsketch, which is built there; without one, flowsketch is skipped
        #[arg(long, value_name = "DIR")]
        flowsketch: Option<PathBuf>,
    },
    /// Forwarding cost and daemon CPU per packet on a router, with weir and with other tools (needs root)
    Tax {
        /// Flood the router with ten million spoofed flows instead, without weir and with it
        #[arg(long)]
        flood: bool,
        /// Offer the router less than it can carry instead: 70 to 90 % of that
        #[arg(long, conflicts_with = "flood")]
        paced: bool,
        /// Another build of weir, to be measured in turn with this one
        #[arg(long, value_name = "PROGRAM", conflicts_with = "flood")]
        with: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Bench::parse() {
        Bench::Datapath { with } => datapath::bench(with.as_deref()),
        Bench::Pipeline => {
            pipeline::bench()?;
            closing::bench()?;
            export::bench()?;
            machine::bench()
        }
        Bench::HeavyHitters => heavy_hitters::bench(),
        Bench::History { days } => history::bench(days),
        Bench::Networks => networks::bench(),
        Bench::Delivery => delivery::bench(),
        Bench::Idle => idle::bench(),
        Bench::Interfaces { links, mode } => interfaces::bench(links, &mode),
        Bench::Readers => readers::bench(),
        Bench::Replay => replay::bench(),
        Bench::Peers { flowsketch } => peers::bench(flowsketch.as_deref()),
        Bench::Tax { flood: true, .. } => tax::flood(),
        Bench::Tax { paced: true, with, .. } => tax::paced(with.as_deref()),
        Bench::Tax { with, .. } => tax::bench(with.as_deref()),
    }
}
