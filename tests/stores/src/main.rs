//! Measures what a damaged file costs in weir's spool and in embedded databases. Each of them keeps the same reports,
//! each report synced. Then one place of one file is damaged, the store is opened and read, and so on for every kind of
//! damage and many places.

mod damage;
mod store;

use std::{
    env, fs,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    damage::{Damage, Kind},
    store::{Fjall, Redb, Reports, Sqlite, Store, Weir},
};

/// Reports in a store.
const REPORTS: u64 = 24;
/// Bytes of a report.
const REPORT_BYTES: usize = 2_000;
/// The exit code of a reader whose store did not open, or could not be read to its end.
const REFUSED: i32 = 3;

/// The outcomes of one kind of damage to a store.
#[derive(Default)]
struct Outcome {
    tried: u64,
    /// The store returned an error when it was opened or read.
    refused: u64,
    /// The program crashed: it panicked, or ran out of memory.
    crashed: u64,
    /// The number of cases in which more than one report was missing.
    lost_several: u64,
    /// The most reports that were missing in a store that could be read.
    lost_most: u64,
    /// A report had other content than was stored.
    wrong: u64,
}

/// Without arguments it tries all stores. With the name of a store and a folder, it reads that one, and prints how many
/// reports are missing and how many are wrong. It runs itself in this way, because some damage crashes the process.
fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    match &arguments[..] {
        [] => {
            let folder = env::temp_dir().join(format!("weir-stores-{}", std::process::id()));
            let done = try_stores(&folder);
            let cleared = fs::remove_dir_all(&folder);
            done.and(cleared.context("cannot remove the files")).map(|()| ExitCode::SUCCESS)
        }
        [store, folder] => {
            let read = match store.as_str() {
                Weir::NAME => Weir::read,
                Sqlite::NAME => Sqlite::read,
                Redb::NAME => Redb::read,
                Fjall::NAME => Fjall::read,
                _ => bail!("there is no store {store}"),
            };
            let Ok(read) = read(Path::new(folder)) else { return Ok(ExitCode::from(REFUSED as u8)) };
            let reports = reports();
            let missing = reports.keys().filter(|number| !read.contains_key(number)).count();
            let wrong = read.iter().filter(|(number, report)| reports.get(number) != Some(report)).count();
            println!("{missing} {wrong}");
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("it takes no arguments, or a store and a folder"),
    }
}

fn try_stores(folder: &Path) -> Result<()> {
    println!(
        "| store | damage | tried | does not open or read | ends the program | loses several | at most | wrong content |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    try_store::<Weir>(folder)?;
    try_store::<Sqlite>(folder)?;
    try_store::<Redb>(folder)?;
    try_store::<Fjall>(folder)
}

fn try_store<S: Store>(folder: &Path) -> Result<()> {
    let [filled, whole, damaged] = ["filled", "whole", "damaged"].map(|name| folder.join(S::NAME).join(name));
    S::fill(&filled, &reports(), &whole)?;
    // A store that cannot be read without damage would fail for another reason.
    damage::copy(&whole, &damaged)?;
    let mut none = Outcome::default();
    none.read::<S>(&damaged)?;
    ensure!(
        none.refused + none.crashed + none.lost_most + none.wrong == 0,
        "{} does not return the reports that it was given",
        S::NAME
    );
    for kind in Kind::ALL {
        let mut outcome = Outcome::default();
        for damage in Damage::all(&whole, kind)? {
            fs::remove_dir_all(&damaged)?;
            damage::copy(&whole, &damaged)?;
            damage.apply(&damaged)?;
            outcome.read::<S>(&damaged)?;
        }
        let Outcome { tried, refused, crashed, lost_several, lost_most, wrong } = outcome;
        let (name, kind) = (S::NAME, kind.name());
        println!("| {name} | {kind} | {tried} | {refused} | {crashed} | {lost_several} | {lost_most} | {wrong} |");
    }
    Ok(())
}

impl Outcome {
    /// Reads a store in a separate process, and counts the outcome.
    fn read<S: Store>(&mut self, folder: &Path) -> Result<()> {
        let mut reader = Command::new(env::current_exe()?);
        let ended = reader.arg(S::NAME).arg(folder).stderr(Stdio::null()).output()?;
        self.tried += 1;
        match ended.status.code() {
            Some(0) => {}
            Some(REFUSED) => {
                self.refused += 1;
                return Ok(());
            }
            _ => {
                self.crashed += 1;
                return Ok(());
            }
        }
        let text = String::from_utf8(ended.stdout)?;
        let (missing, wrong) = text.trim().split_once(' ').context("two numbers")?;
        let (missing, wrong): (u64, u64) = (missing.parse()?, wrong.parse()?);
        self.lost_several += u64::from(missing > 1);
        self.lost_most = self.lost_most.max(missing);
        self.wrong += u64::from(wrong > 0);
        Ok(())
    }
}

/// Reports of random letters, so that no two parts are alike.
fn reports() -> Reports {
    let mut state = 7_u64;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'a' + (state >> 33) as u8 % 26
    };
    (1..=REPORTS).map(|number| (number, (0..REPORT_BYTES).map(|_| letter()).collect())).collect()
}
