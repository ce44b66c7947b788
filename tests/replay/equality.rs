//! The kernel's datapath and the userspace datapath make the same reports, and these are true.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use jsonschema::Validator;
use serde_json::Value;
use weir_schema::schema;
use weir_tests::{
    oracle::Oracle,
    pcap::{Schedule, Writer},
    scratch::Scratch,
    traffic::{HEADERS_MAX, Mix, Plan, Traffic},
};

use crate::{
    command::weir_replay,
    library::{SEED, same_but_self},
};

/// Three windows of a second.
const PACKETS: u64 = 90_000;
const PACKETS_PER_SECOND: u32 = 30_000;
const FLOWS: u32 = 100_000;

pub fn zipf_1_0() -> Result<()> {
    equal_and_true(&Plan { zipf: 1.0, ..plan() })
}

pub fn zipf_1_3() -> Result<()> {
    equal_and_true(&Plan { zipf: 1.3, ..plan() })
}

pub fn odd_packets() -> Result<()> {
    equal_and_true(&Plan { zipf: 1.0, mix: Mix::odd(), ..plan() })
}

fn plan() -> Plan {
    Plan { seed: 17, packets: PACKETS, flows: FLOWS, ..Plan::default() }
}

fn equal_and_true(plan: &Plan) -> Result<()> {
    let scratch = Scratch::new()?;
    let [file, tiny] = ["traffic.pcap", "tiny.yaml"].map(|name| scratch.file(name));
    fs::write(&tiny, "datapath:\n  cache_flows: 256\n")?;
    let truths = write(&file, plan)?;
    let validator = validator()?;
    let paths = [&file, &tiny].map(|path| path.to_str().expect("the scratch directory's path is text"));
    let [file, tiny] = paths;
    for cache in [&[][..], &["--config", tiny]] {
        for window in ["all", "1s"] {
            let seed = SEED.to_string();
            let arguments = [&["--json", "--seed", &seed, "--window", window, file], cache].concat();
            let userspace = weir_replay(&arguments)?.reports(0)?;
            let kernel = weir_replay([&arguments[..], &["--kernel"]].concat())?.reports(0)?;
            same_but_self(&userspace, &kernel).with_context(|| format!("{arguments:?}, userspace and kernel"))?;
            let again = weir_replay(&arguments)?.reports(0)?;
            same_but_self(&userspace, &again).with_context(|| format!("{arguments:?}, the same once more"))?;
            for report in userspace.iter().chain(&kernel) {
                is_valid(&validator, report)?;
            }
            is_true(&truths, &userspace).with_context(|| format!("{arguments:?}"))?;
        }
    }
    Ok(())
}

/// Writes the traffic's headers, and returns the truth about each second.
fn write(path: &Path, plan: &Plan) -> Result<Vec<Vec<weir_tests::truth::Truth>>> {
    let schedule = Schedule { start: Duration::from_secs(1_700_000_000), packets_per_second: PACKETS_PER_SECOND };
    let mut writer = Writer::new(BufWriter::new(File::create(path)?), HEADERS_MAX as u32)?;
    let mut seconds = vec![Vec::new(); plan.packets.div_ceil(PACKETS_PER_SECOND.into()) as usize];
    for (nth, packet) in (0..).zip(Traffic::new(*plan)?) {
        writer.write(schedule.at(nth), &packet.frame)?;
        seconds[(nth / u64::from(PACKETS_PER_SECOND)) as usize].push(packet.truth);
    }
    writer.finish()?;
    Ok(seconds)
}

/// Judges one report of everything, or one report for each second.
fn is_true(seconds: &[Vec<weir_tests::truth::Truth>], reports: &[Value]) -> Result<()> {
    ensure!([1, seconds.len()].contains(&reports.len()), "{} reports", reports.len());
    let each = seconds.len() / reports.len();
    let mut oracle = Oracle::new();
    for (nth, (report, truths)) in reports.iter().zip(seconds.chunks(each)).enumerate() {
        oracle.next_window();
        for truths in truths.iter() {
            oracle.extend(truths);
        }
        if let Err(deviations) = oracle.check_report(report) {
            bail!("report {nth}:\n{}", deviations.join("\n"));
        }
    }
    Ok(())
}

/// The schema that weir prints.
pub fn validator() -> Result<Validator> {
    let schema = serde_json::from_str(schema::REPORT)?;
    jsonschema::validator_for(&schema).map_err(|error| anyhow::anyhow!("the schema: {error}"))
}

/// Checks a report against the schema.
pub fn is_valid(validator: &Validator, report: &Value) -> Result<()> {
    let errors: Vec<_> =
        validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    ensure!(errors.is_empty(), "not by the schema:\n{}", errors.join("\n"));
    Ok(())
}
