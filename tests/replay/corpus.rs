//! Captures of real networks: nothing in them stops a replay, and every packet is counted exactly.

use std::{collections::BTreeMap, path::PathBuf, process::Command, sync::Mutex, time::Duration};

use anyhow::{Context, Result, ensure};
use weir::replay::Windows;
use weir_common::ledger::Tally;
use weir_config::Config;
use weir_datapath::capture::{Capture, Packet, buffers::Buffers};
use weir_tests::{account::tally, captures};

use crate::{
    command::weir_replay,
    equality::{is_valid, validator},
    library::{Replayed, run, same_but_self, small},
};

/// Captures that are replayed through the kernel together: loading the programs takes longer than most captures.
const TOGETHER: usize = 32;
/// tshark also reads one in this many of the real captures; each needs a process.
const TSHARK_STEP: usize = 5;

fn files() -> Result<Vec<PathBuf>> {
    captures::all().map_err(anyhow::Error::msg)
}

/// Replays each capture separately, in userspace.
pub fn each_makes_a_report() -> Result<()> {
    let validator = validator()?;
    let (mut whole, mut broken_ones) = (0, 0);
    for file in files()? {
        let named = || file.display().to_string();
        let Replayed { reports, broken } =
            run(&small(), std::slice::from_ref(&file), Windows::All, false).with_context(named)?;
        let mut read = Tally::default();
        for report in &reports {
            is_valid(&validator, report).with_context(named)?;
            read.add(tally(&report["totals"])?);
        }
        // The packets of the reader, counted without weir's datapath.
        let (mut handed_over, mut frames, mut buffers) = (Tally::default(), 0, Buffers::default());
        if let Ok(mut capture) = Capture::open(&file) {
            while let Ok(Some(packet)) = capture.next_packet() {
                handed_over.add(Packet { split: buffers.look(&packet), ..packet }.tally());
                frames += 1;
            }
        }
        ensure!(read == handed_over, "{}: {read:?} of {handed_over:?}", named());
        ensure!(broken.len() <= 1 && (reports.len() == 1 || handed_over.is_zero()), "{}: {broken:?}", named());
        if let Some(broken) = broken.first() {
            let said = broken.to_string();
            ensure!(said.starts_with(&named()), "{said}");
            ensure!(broken.packets == frames, "{said}: {frames} frames");
        }
        *if broken.is_empty() { &mut whole } else { &mut broken_ones } += 1;
    }
    ensure!(whole > broken_ones && broken_ones > 0, "{whole} whole and {broken_ones} broken");
    Ok(())
}

/// Replays all captures in one process, as a user would.
pub fn all_in_one_command() -> Result<()> {
    let files = files()?;
    let ended = weir_replay([&["--json".into(), "--window=1h".into()][..], &files].concat())?;
    let reports = ended.reports(1)?;
    ensure!(reports.len() > 1, "{} reports", reports.len());
    let (mut broken, mut cut) = (0, 0);
    for file in &files {
        // All captures are read once more, to find those that must be named.
        let end = Capture::open(file).and_then(|mut capture| {
            while capture.next_packet()?.is_some() {}
            Ok(())
        });
        if let Err(expected) = end {
            let expected = format!("weir: {expected}");
            ensure!(ended.log.lines().any(|line| line == expected), "not said: {expected}\n{}", ended.log);
            broken += 1;
            cut += u32::from(expected.contains("at byte"));
        }
    }
    ensure!(ended.log.lines().count() == broken && cut > 0, "{broken} are broken: {}", ended.log);
    Ok(())
}

/// The kernel and userspace make the same reports: for groups of captures as one window, and for all captures cut into
/// windows.
pub fn the_kernel_makes_the_same_reports() -> Result<()> {
    let files = files()?;
    let mut config = small();
    same_through_the_kernel(&config, &files, Windows::Every(Duration::from_secs(10)))?;
    for (nth, together) in files.chunks(TOGETHER).enumerate() {
        config.datapath.cache_flows = Some([256, 4096][nth % 2]);
        same_through_the_kernel(&config, together, Windows::All)?;
    }
    Ok(())
}

fn same_through_the_kernel(config: &Config, files: &[PathBuf], windows: Windows) -> Result<()> {
    let [userspace, kernel] = [false, true].map(|kernel| run(config, files, windows, kernel));
    let (userspace, kernel) = (userspace?, kernel?);
    let said = |replayed: &Replayed| replayed.broken.iter().map(ToString::to_string).collect::<Vec<_>>();
    ensure!(said(&userspace) == said(&kernel), "{:?} and {:?}", said(&userspace), said(&kernel));
    same_but_self(&userspace.reports, &kernel.reports)
        .with_context(|| format!("{windows:?}, userspace and kernel, over {files:?}"))
}

/// tshark counts the same packets and bytes in each capture. A buffer that was several packets is one for tshark.
pub fn tshark_counts_the_same() -> Result<()> {
    let files: Vec<_> = captures::real().map_err(anyhow::Error::msg)?.into_iter().step_by(TSHARK_STEP).collect();
    let compared = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let half = files.len().div_ceil(2);
        let workers = files.chunks(half).map(|files| {
            let compared = &compared;
            scope.spawn(move || -> Result<()> {
                for file in files {
                    let Some(theirs) = tshark(file)? else { continue };
                    let ours = run(&small(), std::slice::from_ref(file), Windows::All, false)?.reports;
                    let mut ours_all = Tally::default();
                    for report in &ours {
                        ours_all.add(tally(&report["totals"])?);
                    }
                    let is_certain = ours.iter().all(|report| report["interfaces"][0]["ledger"]["uncertain"].is_null());
                    let ours = if is_certain || ours_all.packets < theirs.packets { ours_all } else { theirs };
                    compared
                        .lock()
                        .expect("no thread panics while it has the lock")
                        .insert(file.clone(), (ours, theirs));
                }
                Ok(())
            })
        });
        let workers: Vec<_> = workers.collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    let compared = compared.into_inner().expect("no thread panics while it has the lock");
    ensure!(compared.len() * 10 >= files.len() * 9, "tshark read only {} of {}", compared.len(), files.len());
    let other: Vec<_> = compared.iter().filter(|(_, (ours, theirs))| ours != theirs).collect();
    ensure!(other.is_empty(), "weir's count, then tshark's: {other:#?}");
    Ok(())
}

/// The packets and bytes that tshark counts in a file; `None` if it refuses the file, or if a packet claims an
/// impossible length.
fn tshark(file: &PathBuf) -> Result<Option<Tally>> {
    let output = Command::new("tshark").args(["-n", "-T", "fields", "-e", "frame.len", "-r"]).arg(file).output()?;
    if !output.status.success() {
        return Ok(None);
    }
    let lengths = String::from_utf8(output.stdout)?;
    let lengths: Vec<i64> = lengths.lines().map(str::parse).collect::<Result<_, _>>()?;
    if lengths.iter().any(|length| *length < 0) {
        return Ok(None);
    }
    Ok(Some(lengths.iter().map(|length| Tally::new(1, *length as u64)).sum()))
}
