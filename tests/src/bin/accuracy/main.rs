//! How accurate reports are (`scripts/accuracy`): known traffic is measured again and again, and the bounds must hold
//! as often as stated.

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
use clap::{Parser, ValueEnum};
use weir_datapath::online_cpus;
use weir_system::clock;

mod distinct;
mod judge;
mod plot;
mod print;
mod recall;
mod run;
mod scenario;
mod spans;
mod tally;
mod views;

use distinct::Family;
use scenario::Scenario;
use spans::Traffic;
use tally::Tallies;

/// Measures generated traffic again and again, and judges whether bounds hold as often as they say
#[derive(Parser)]
struct Options {
    /// How long it may take; every cell gets as many seeds as fit, at most 10,000
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Two minutes
    #[arg(long, conflicts_with = "minutes")]
    quick: bool,
    /// Leave the others out
    #[arg(long, value_enum)]
    only: Option<Section>,
    /// Other traffic and other keys
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write pictures of errors and widths into this folder
    #[arg(long)]
    plots: Option<PathBuf>,
}

/// Maximum number of seeds for each cell: enough to tell one failure in a thousand from two.
const SEEDS: u64 = 10_000;

fn main() -> Result<ExitCode> {
    let Options { minutes, quick, only, seed, plots } = Options::parse();
    // Some time is kept for the last tasks, and for pictures and tables.
    let time = Duration::from_secs(if quick { 105 } else { 60 * minutes - 15 });
    let tallies = measure(seed, time, &tasks(quick, only))?;
    print::tables(&tallies)?;
    if let Some(folder) = plots {
        for (name, picture) in plot::all(&tallies, only) {
            fs::write(folder.join(name), picture)?;
        }
    }
    let alarms = tallies.alarms();
    print::verdict(&tallies, &alarms)?;
    Ok(if alarms.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The parts of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Bounds of lists, counts and views, by traffic and sampling rate
    Bounds,
    /// Distinct keys, up to ten million
    Distinct,
    /// Whether lists show the ten largest of a million flows
    Largest,
    /// Whether lists of floods and scans show the ten that touch most among a million keys
    Spread,
    /// Lists of twenty minutes, an hour and a day that the history keeps
    Spans,
}

/// A part of the work for a seed.
#[derive(Clone, Copy)]
enum Task {
    Cells(&'static Scenario),
    Distinct(&'static Family),
    Largest,
    Spread,
    Spans(&'static Traffic),
}

impl Task {
    const fn part(self) -> Section {
        match self {
            Self::Cells(_) => Section::Bounds,
            Self::Distinct(_) => Section::Distinct,
            Self::Largest => Section::Largest,
            Self::Spread => Section::Spread,
            Self::Spans(_) => Section::Spans,
        }
    }
}

/// The tasks for each seed. Two minutes are too short for lists of a million, and for days of windows.
fn tasks(is_quick: bool, only: Option<Section>) -> Vec<Task> {
    let is_wanted = |part| {
        only.map_or(!is_quick || !matches!(part, Section::Largest | Section::Spread | Section::Spans), |only| {
            only == part
        })
    };
    let cells = scenario::ALL.iter().map(Task::Cells);
    let all = cells.chain(distinct::FAMILIES.iter().map(Task::Distinct)).chain([Task::Largest, Task::Spread]);
    let all = all.chain(spans::ALL.iter().map(Task::Spans));
    all.filter(|task| is_wanted(task.part())).collect()
}

/// Runs all tasks of one seed after the other, on all CPUs, until the time is over.
fn measure(seed: u64, time: Duration, tasks: &[Task]) -> Result<Tallies> {
    let end = clock::now().monotonic + time;
    let (next, all) = (AtomicU64::new(0), Mutex::new(Tallies::default()));
    let work = || -> Result<()> {
        loop {
            let nth = next.fetch_add(1, Relaxed);
            let (round, task) = (nth / tasks.len() as u64, tasks[nth as usize % tasks.len()]);
            if round == SEEDS || clock::now().monotonic >= end {
                return Ok(());
            }
            // Each run has different traffic and keys.
            let seed = seed.wrapping_mul(SEEDS) + round;
            let mut found = Tallies::default();
            match task {
                Task::Cells(scenario) => run::all(scenario, seed, &mut found)?,
                Task::Distinct(family) => distinct::sweep(family, seed, &mut found),
                Task::Largest => recall::largest(seed, &mut found)?,
                Task::Spread => recall::spread(seed, &mut found)?,
                Task::Spans(traffic) => spans::measure(traffic, seed, &mut found)?,
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
