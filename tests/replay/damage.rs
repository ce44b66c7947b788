//! Captures with seeded damage: every replay ends, and accounts for everything that it has read.

use std::{fs, panic, path::PathBuf, time::Duration};

use anyhow::{Context, Error, Result, ensure};
use weir::replay::Windows;
use weir_tests::{
    captures, clock,
    scratch::Scratch,
    traffic::{Mix, Plan, random::Random},
};

use crate::{
    command::capture,
    library::{run, small},
};

const FILES: u64 = 2_000;
/// Larger files are cut to this size, so that each is read quickly to its end.
const BYTES_MAX: usize = 64 << 10;
/// Reading a file of this size may take no longer.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Damages generated captures.
pub fn no_damage_stops_a_replay() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut files = Vec::new();
    for (name, mix) in [("plain.pcap", Mix::plain()), ("odd.pcap", Mix::odd())] {
        files.push(scratch.file(name));
        capture(&files[files.len() - 1], Plan { packets: 50, mix, ..Plan::default() })?;
    }
    replays_end(&files)
}

/// Damages captures of real networks, and those that were made to be broken.
pub fn no_damage_of_real_captures_stops_a_replay() -> Result<()> {
    replays_end(&captures::all().map_err(Error::msg)?)
}

/// Damages these files again and again, and replays the results.
fn replays_end(originals: &[PathBuf]) -> Result<()> {
    let scratch = Scratch::new()?;
    let whole = beginnings(originals)?;
    let file = scratch.file("damaged");
    let (mut packets, mut broken) = (0, 0);
    for seed in 0..FILES {
        let mut random = Random::new(seed);
        fs::write(&file, damaged(&mut random, &whole))?;
        let windows =
            random.pick(&[Windows::All, Windows::Every(Duration::from_secs(60)), Windows::Every(Duration::MAX)]);
        let start = clock::now();
        let replayed = panic::catch_unwind(|| run(&small(), std::slice::from_ref(&file), windows, false));
        let took = start.elapsed();
        let replayed = replayed.ok().with_context(|| format!("seed {seed}: panicked"))?;
        let replayed = replayed.with_context(|| format!("seed {seed}"))?;
        ensure!(took < TIME_MAX, "seed {seed}: took {took:?}");
        packets += replayed.reports.iter().filter_map(|report| report["totals"]["packets"].as_u64()).sum::<u64>();
        broken += replayed.broken.len();
    }
    // Some files must be broken, and some packets must be read.
    ensure!(packets > FILES * 5 && broken as u64 > FILES / 10, "{packets} packets, {broken} broken");
    Ok(())
}

/// The first bytes of each file; files without a whole header are left out.
fn beginnings(files: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let read = |path: &PathBuf| -> Result<Vec<u8>> {
        let mut bytes = fs::read(path)?;
        bytes.truncate(BYTES_MAX);
        Ok(bytes)
    };
    let mut originals = files.iter().map(read).collect::<Result<Vec<_>>>()?;
    originals.retain(|bytes| bytes.len() > 24);
    Ok(originals)
}

fn damaged(random: &mut Random, whole: &[Vec<u8>]) -> Vec<u8> {
    let [first, second] = [(); 2].map(|()| random.between(0, whole.len() - 1));
    let mut bytes = whole[first].clone();
    for _ in 0..random.between(1, 4) {
        let Some(last) = bytes.len().checked_sub(1) else { break };
        let at = random.between(0, last);
        match random.between(0, 5) {
            // Damage in the headers of the file and of the first packets matters most.
            0 => flip(random, &mut bytes, 64),
            1 => flip(random, &mut bytes, usize::MAX),
            2 => bytes.truncate(at.max(1)),
            3 => drop(bytes.drain(at..(at + random.between(1, 40)).min(bytes.len()))),
            4 => {
                // Puts an extreme number at a random place.
                let number = random.pick(&[0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, 0x0001_0000, 12]);
                let at = at / 4 * 4;
                let end = (at + 4).min(bytes.len());
                bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
            }
            _ => {
                let other = &whole[second];
                bytes.truncate(at.max(1));
                bytes.extend_from_slice(&other[random.between(0, other.len() - 1)..]);
            }
        }
    }
    bytes
}

fn flip(random: &mut Random, bytes: &mut [u8], within: usize) {
    for _ in 0..random.between(1, 6) {
        let bit = random.between(0, bytes.len().min(within) * 8 - 1);
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}
