//! weir's sketches beside the best ones in the Rust registry, in one run: `scripts/bench sketches`.
//!
//! All contenders of a row get the same keys and about the same memory, take turns, and pay for hashing: weir's
//! sketches with its keyed hash, peers with the hash that they come with or also with weir's if they take ready hashes.
//! Columns named "ready hash" leave hashing out on both sides. Every answer is checked; a wrong one fails the run.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people at a terminal")]

mod bench;
mod clock;
mod contender;
mod item;
mod markdown;
mod ours;
mod peers;
mod plot;
mod report;
mod rows;
mod settings;
mod stream;

use std::process::ExitCode;

use weir_sketch::simd;

use bench::Bench;
use settings::Settings;

fn main() -> ExitCode {
    let settings = match Settings::from_arguments(std::env::args().skip(1)) {
        Ok(settings) => settings,
        Err(complaint) => {
            eprintln!("scripts/bench sketches: {complaint}");
            return ExitCode::from(2);
        }
    };
    println!("{}\n", legend(&settings));
    let mut bench = Bench::new(settings);
    rows::run(&mut bench);
    let Bench { settings, groups, wrong } = bench;
    if let (true, Some(only)) = (groups.is_empty(), &settings.only) {
        eprintln!("scripts/bench sketches: no structure's name has {only:?} in it (try bloom, count-min, top)");
        return ExitCode::from(2);
    }
    if let Some(path) = settings.plot
        && let Err(error) = std::fs::write(&path, plot::svg(&groups))
    {
        eprintln!("scripts/bench sketches: cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    for complaint in wrong.iter() {
        eprintln!("wrong: {complaint}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explains the tables of this machine.
fn legend(settings: &Settings) -> String {
    let Settings { near_bytes, far_bytes, .. } = *settings;
    let (near, far) = (near_bytes >> 10, far_bytes >> 20);
    format!(
        "Nanoseconds an operation, medians of pieces of at least five rounds. Structures inside L2 have about {near} KiB, those far \
         beyond it {far} MiB; a load that waits for the one before costs {:.1} and {:.0} ns there. weir's vector instructions: {:?}. \
         Pages: {}.",
        clock::dependent_load_nanoseconds(near_bytes),
        clock::dependent_load_nanoseconds(far_bytes),
        simd::level(),
        std::env::var("GLIBC_TUNABLES").unwrap_or_else(|_| "as the system has them".to_owned()),
    )
}
