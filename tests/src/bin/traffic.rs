//! Seeded traffic for the demo and for experiments: written to a capture, or sent live.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, Parser, ValueEnum};
use serde_json::json;
use weir_common::ledger::Tally;
use weir_tests::{
    inject::{self, Pace},
    oracle::Oracle,
    pcap::{SNAPLEN_MAX, Schedule, Writer},
    story,
    traffic::{Mix, Packet, Plan, Traffic},
};

/// The length of the top lists of an expectation.
const EXPECTED_TOP: usize = 50;

/// Make traffic with known content; the same seed makes the same packets.
#[derive(Parser)]
enum Arguments {
    /// Write a capture.
    Pcap {
        /// The capture (pcap, Ethernet, nanoseconds).
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Time of the first packet, in seconds since the epoch.
        #[arg(long, value_name = "SECONDS", default_value_t = 1_700_000_000)]
        start: u32,
        /// Packets a second.
        #[arg(long, value_name = "PPS", default_value_t = 1_000)]
        rate: u32,
        /// Keep this many bytes of each packet; from 256 up, that is all its headers.
        #[arg(long, value_name = "BYTES", default_value_t = SNAPLEN_MAX)]
        snaplen: u32,
        #[command(flatten)]
        traffic: TrafficArguments,
    },
    /// Write the capture that is bundled as tests/corpus/demo.pcap: always the same.
    Story {
        /// The capture.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Send live on an interface of the current network namespace (needs root).
    Send {
        /// The interface.
        #[arg(long, value_name = "IF")]
        interface: String,
        /// Packets a second; without it, as fast as the kernel takes them.
        #[arg(long, value_name = "PPS")]
        rate: Option<u32>,
        #[command(flatten)]
        traffic: TrafficArguments,
    },
}

#[derive(Args)]
struct TrafficArguments {
    /// How many packets.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    packets: u64,
    /// Out of how many flows.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    flows: u32,
    /// The exponent of Zipf's law, by which flows are chosen.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    zipf: f64,
    /// What makes this traffic differ from other traffic.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many flows share a source.
    #[arg(long, value_name = "N", default_value_t = 4)]
    flows_per_source: u32,
    /// What the packets consist of.
    #[arg(long, value_enum, default_value_t = MixArgument::Router)]
    mix: MixArgument,
    /// Write the truth about it as JSON, in the shape of a report.
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum MixArgument {
    /// What a router sees.
    Router,
    /// TCP and UDP only.
    Plain,
    /// As many rarities as there is room for.
    Odd,
}

impl TrafficArguments {
    fn plan(&self) -> Plan {
        let Self { packets, flows, zipf, seed, flows_per_source, mix, expect: _ } = *self;
        let mix = match mix {
            MixArgument::Router => Mix::default(),
            MixArgument::Plain => Mix::plain(),
            MixArgument::Odd => Mix::odd(),
        };
        Plan { seed, packets, flows, zipf, flows_per_source, mix, ..Plan::default() }
    }

    fn write_expectation(&self, oracle: &Oracle) -> Result<()> {
        let Some(path) = &self.expect else { return Ok(()) };
        let text = format!("{:#}\n", oracle.to_json(EXPECTED_TOP));
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn main() -> Result<()> {
    let mut oracle = Oracle::new();
    let (done, arguments) = match Arguments::parse() {
        Arguments::Story { out } => {
            let packets = story::packets()?;
            oracle.extend(packets.iter().map(|packet| &packet.truth));
            let cannot = || format!("cannot write {}", out.display());
            let file = BufWriter::new(File::create(&out).with_context(cannot)?);
            story::write_capture(&packets, file).with_context(cannot)?;
            (oracle.sent(), None)
        }
        Arguments::Pcap { out, start, rate, snaplen, traffic } => {
            let schedule = Schedule { start: Duration::from_secs(start.into()), packets_per_second: rate };
            let packets = Traffic::new(traffic.plan())?.inspect(|packet| oracle.add(&packet.truth));
            let cannot = || format!("cannot write {}", out.display());
            let file = BufWriter::new(File::create(&out).with_context(cannot)?);
            Writer::new(file, snaplen)
                .and_then(|writer| write_capture(writer, schedule, packets))
                .with_context(cannot)?;
            (oracle.sent(), Some(traffic))
        }
        Arguments::Send { interface, rate, traffic } => {
            let packets = Traffic::new(traffic.plan())?.inspect(|packet| oracle.add(&packet.truth));
            let pace = rate.map_or(Pace::Unlimited, Pace::PacketsPerSecond);
            (inject::send(&interface, packets, pace)?, Some(traffic))
        }
    };
    if let Some(arguments) = arguments {
        arguments.write_expectation(&oracle)?;
    }
    let Tally { packets, bytes } = done;
    writeln!(io::stdout(), "{}", json!({"packets": packets, "bytes": bytes}))?;
    Ok(())
}

fn write_capture<W: Write>(
    mut writer: Writer<W>,
    schedule: Schedule,
    packets: impl Iterator<Item = Packet>,
) -> io::Result<()> {
    for (nth, packet) in (0..).zip(packets) {
        writer.write(schedule.at(nth), &packet.frame)?;
    }
    writer.finish().map(drop)
}
