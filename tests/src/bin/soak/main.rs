//! Soak tests: they repeat the same check for so long that rare cases occur, too.

use std::{process::ExitCode, time::SystemTime};

use anyhow::Result;
use clap::Parser;

mod kills;
mod mutate;
mod parser;
mod small;
mod starved;

/// Check something very often.
#[derive(Parser)]
enum Soak {
    /// Mutated frames through the kernel's parser and through the same parser in userspace (needs root)
    Parser {
        /// How many frames
        #[arg(default_value_t = 100_000_000)]
        frames: u64,
        /// What makes these frames differ from others; by default the time
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Kill weir again and again on a router that forwards numbered packets (needs root)
    Kills {
        /// How often
        #[arg(default_value_t = 100)]
        kills: u32,
    },
    /// A small router: 40 MiB of memory and a fifth of a CPU, with reloads and restarts (needs root)
    Small {
        /// For how many minutes
        #[arg(default_value_t = 10)]
        minutes: u64,
        /// Packets a second, on two interfaces together
        #[arg(long, default_value_t = 100_000)]
        rate: u32,
    },
    /// Bounds while the daemon gets hardly any CPU time and samples packets (needs root)
    Starved {
        /// How many floods, each measured by another daemon
        #[arg(default_value_t = 100)]
        floods: u64,
        /// What makes these floods differ from others; by default the time
        #[arg(long)]
        seed: Option<u64>,
    },
}

fn main() -> Result<ExitCode> {
    let clock = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let clean = match Soak::parse() {
        Soak::Parser { frames, seed } => parser::soak(frames, seed.unwrap_or(clock))?,
        Soak::Kills { kills } => kills::soak(kills)?,
        Soak::Small { minutes, rate } => small::soak(minutes, rate)?,
        Soak::Starved { floods, seed } => starved::soak(floods, seed.unwrap_or(clock))?,
    };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
