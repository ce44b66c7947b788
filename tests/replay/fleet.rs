//! The key of a fleet at midnight, through the whole program: captures of routers with one file of secrets, whose
//! clocks differ, become reports, and `weir merge` joins these.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use weir::replay::{Options, Windows, replay, write_json};
use weir_config::Config;
use weir_merge::{Answer, By, Settings, What, merge};
use weir_sketch::hash::mix;
use weir_tests::scratch::Scratch;

use crate::frames::{self, Udp};

/// 2026-11-21T00:00:00Z.
const MIDNIGHT: i64 = 1_795_219_200;
/// Captures begin this many seconds before midnight, and end as many after it.
const AROUND: i64 = 240;
const PACKETS_PER_SECOND: i64 = 12;
const OLD: &str = "8f3c1a7be02d4965b1fe7730c4a9d258\n";
const NEW: &str = "2026-11-21 2b90ee4d7713fa06c85d39a1064fb7ce\n";
/// Routers, and how many seconds their clocks are ahead.
const ROUTERS: [(&str, i64); 5] = [("edge-0", 0), ("edge-1", 45), ("edge-2", -45), ("edge-3", 45), ("stale", 45)];
/// This router has only the old secret.
const STALE: &str = "stale";

/// The packets, and the sources of the routers that have the new secret, by the hour from midnight on their clocks.
#[derive(Default)]
struct Truth {
    packets: BTreeMap<i64, u64>,
    sources: BTreeMap<i64, BTreeSet<IpAddr>>,
}

/// Captures of all routers become one file of reports.
fn reports(scratch: &Scratch) -> Result<(PathBuf, Truth)> {
    let (mut truth, mut lines) = (Truth::default(), Vec::new());
    for (nth, (name, ahead)) in (0..).zip(ROUTERS) {
        let secret = scratch.file(&format!("{name}.key"));
        fs::write(&secret, if name == STALE { OLD.to_owned() } else { [OLD, NEW].concat() })?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        let capture = scratch.file(&format!("{name}.pcap"));
        let mut packets = Vec::new();
        for packet in -AROUND * PACKETS_PER_SECOND..AROUND * PACKETS_PER_SECOND {
            let second = packet.div_euclid(PACKETS_PER_SECOND) + ahead;
            // Routers see many of the same sources, which change from minute to minute.
            let number = mix(nth << 32 ^ packet.unsigned_abs()) % 1_500 + packet.div_euclid(720).unsigned_abs() * 40;
            let source: IpAddr = [10, 0, (number >> 8) as u8, number as u8].into();
            let hour = second.div_euclid(3_600);
            *truth.packets.entry(hour).or_default() += 1;
            if name != STALE || hour < 0 {
                truth.sources.entry(hour).or_default().insert(source);
            }
            let flow = Udp { source, destination: [198, 51, 100, 7].into(), ports: (40_000, 53) };
            let nanos = packet.rem_euclid(PACKETS_PER_SECOND) * 1_000_000_000 / PACKETS_PER_SECOND;
            let time = Duration::new((MIDNIGHT + second).unsigned_abs(), nanos as u32);
            packets.push((time, flow.frame(100)));
        }
        frames::write(&capture, packets)?;
        let text = format!(
            "observer: {{name: {name}}}\nhash_key: {{file: {}}}\nexport: {{views: all, every: 1m}}\n\
             estimates: {{unique_error: 0.016, top_error: 0.005}}",
            secret.display()
        );
        let config = Config::parse(&text, "a test").map_err(|mistakes| anyhow!("{mistakes}"))?;
        let options = Options {
            files: vec![capture],
            windows: Windows::Every(Duration::from_secs(10)),
            kernel: false,
            seed: None,
            asks: Vec::new(),
            progress: false,
        };
        replay(&config, &options, &mut |report| write_json(report, &mut lines))?;
    }
    let file = scratch.file("reports.ndjson");
    fs::write(&file, lines)?;
    Ok((file, truth))
}

/// Distinct sources, with how many keys, and the packets of each window.
fn windows(answer: &Answer) -> Result<Vec<(u64, [u64; 2], usize)>> {
    let window = |window: &weir_merge::answer::WindowAnswer| {
        let count = window.distinct.iter().find(|count| count.name == "unique.src_ip" && count.is_fleet);
        let count = count.context("no joint count")?;
        Ok((window.totals.packets, [count.lower, count.upper], count.keys))
    };
    answer.windows.iter().map(window).collect()
}

pub fn the_key_of_a_fleet_turns_at_midnight_on_all_routers() -> Result<()> {
    let scratch = Scratch::new()?;
    let (file, truth) = reports(&scratch)?;
    let merged = |window: Option<u64>| -> Result<Answer> {
        let settings = Settings { window: window.map(Duration::from_secs), by: By::All, top: 20 };
        let answer = merge(std::slice::from_ref(&file), settings, false)?;
        // Until midnight it has the same key as all others. From then on it is the only one, in four minutes and those
        // by which its clock is ahead.
        let [stale] = &answer.defects[..] else { return Err(anyhow!("{:?}", answer.defects)) };
        ensure!((stale.what, &*stale.name, stale.reports) == (What::ForeignKey, STALE, 5), "{stale:?}");
        Ok(answer)
    };
    let holds = |[lower, upper]: [u64; 2], sources: usize| (lower..=upper).contains(&(sources as u64));
    // Before midnight, and after it.
    for window in [3_600, 86_400] {
        let found = windows(&merged(Some(window))?)?;
        ensure!(found.len() == 2, "{found:?}");
        for ((packets, bounds, keys), hour) in found.into_iter().zip([-1, 0]) {
            ensure!(packets == truth.packets[&hour] && keys == 1, "hour {hour}: {packets} packets, {keys} keys");
            let sources = truth.sources[&hour].len();
            ensure!(holds(bounds, sources), "hour {hour}: {sources} sources are not within {bounds:?}");
            // A sum of the routers' counts would be far too large.
            ensure!(bounds[1] < sources as u64 * 11 / 10, "hour {hour}: {bounds:?} for {sources} sources");
        }
    }
    // Midnight is within this window.
    let [(packets, bounds, keys)] = windows(&merged(None)?)?[..] else { return Err(anyhow!("several windows")) };
    ensure!(packets == truth.packets.values().sum::<u64>() && keys == 2, "{packets} packets, {keys} keys");
    let days: Vec<usize> = truth.sources.values().map(BTreeSet::len).collect();
    let all = truth.sources.values().flatten().collect::<BTreeSet<_>>().len();
    ensure!(holds(bounds, all), "{all} sources are not within {bounds:?}");
    ensure!(bounds[1] as usize <= days.iter().sum::<usize>() * 11 / 10, "{bounds:?} for days of {days:?}");
    Ok(())
}
