//! How accurate reports are, behind `scripts/accuracy`: much traffic of which everything is known, through the
//! measurement and into bounds, which must hold as often as they say.

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::Parser;
use weir::{clock, datapath::online_cpus};

mod distinct;
mod judge;
mod plot;
mod print;
mod run;
mod scenario;
mod tally;

use tally::Tallies;

/// Measures generated traffic again and again, and judges whether bounds hold as often as they say
#[derive(Parser)]
struct Options {
    /// How long it may take; every cell gets as many seeds as fit, at most 10,000
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Three minutes
    #[arg(long, conflicts_with = "minutes")]
    quick: bool,
    /// Other traffic and other keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write pictures of errors and widths into this folder
    #[arg(long)]
    plots: Option<PathBuf>,
}

/// The most seeds a cell: where one bound in a thousand may fail, so many tell it from two in a thousand.
const SEEDS: u64 = 10_000;

fn main() -> Result<ExitCode> {
    let Options { minutes, quick, seed, plots } = Options::parse();
    // The last tasks end after the time is over, and pictures and tables follow.
    let time = Duration::from_secs(if quick { 165 } else { 60 * minutes - 15 });
    let tallies = measure(seed, time)?;
    print::tables(&tallies)?;
    if let Some(folder) = plots {
        for (name, picture) in plot::all(&tallies) {
            fs::write(folder.join(name), picture)?;
        }
    }
    let alarms = tallies.alarms();
    print::verdict(&tallies, &alarms)?;
    Ok(if alarms.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All tasks of one seed after those of the one before, on all CPUs, until the time is over.
fn measure(seed: u64, time: Duration) -> Result<Tallies> {
    let tasks = (scenario::ALL.len() + distinct::FAMILIES.len()) as u64;
    let end = clock::now().monotonic + time;
    let (next, all) = (AtomicU64::new(0), Mutex::new(Tallies::default()));
    let work = || -> Result<()> {
        loop {
            let task = next.fetch_add(1, Relaxed);
            let (round, nth) = (task / tasks, (task % tasks) as usize);
            if round == SEEDS || clock::now().monotonic >= end {
                return Ok(());
            }
            // A run's traffic, and its keys, are those of no other run.
            let seed = seed.wrapping_mul(SEEDS) + round;
            let mut found = Tallies::default();
            match scenario::ALL.get(nth) {
                Some(scenario) => run::all(scenario, seed, &mut found)?,
                None => distinct::sweep(&distinct::FAMILIES[nth - scenario::ALL.len()], seed, &mut found),
            }
            all.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(found);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = online_cpus()?.iter().map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let ended = worker.join();
            ensure!(ended.is_ok(), "a worker panicked");
            ended.unwrap_or(Ok(()))?;
        }
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}
