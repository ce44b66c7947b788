//! The benchmarks behind `scripts/bench`: each checks the answer as well as the time, and prints a Markdown table.

use anyhow::Result;
use clap::Parser;

mod datapath;
mod frames;
mod pipeline;
mod reader;
mod replay;
mod table;
mod tax;

/// Measure what weir costs.
#[derive(Parser)]
enum Bench {
    /// Nanoseconds a packet in the kernel, by test-run on one CPU (needs root)
    Datapath,
    /// Nanoseconds a record in a worker's sketches, whole and part by part
    Pipeline,
    /// Packets a second of CPU time in `weir replay`
    Replay,
    /// What weir costs a router that forwards, beside other tools (needs root)
    Tax {
        /// Instead, flood it with ten million spoofed flows, without weir and with it
        #[arg(long)]
        flood: bool,
        /// Instead, offer it less than it can carry: a share of that
        #[arg(long, conflicts_with = "flood")]
        paced: bool,
    },
}

fn main() -> Result<()> {
    match Bench::parse() {
        Bench::Datapath => datapath::bench(),
        Bench::Pipeline => pipeline::bench(),
        Bench::Replay => replay::bench(),
        Bench::Tax { flood: true, .. } => tax::flood(),
        Bench::Tax { paced: true, .. } => tax::paced(),
        Bench::Tax { .. } => tax::bench(),
    }
}
