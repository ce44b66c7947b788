//! The capture, and the truth about it: in bytes of frames, as weir counts, and in bytes of IP packets.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io::BufWriter,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use weir_tests::{
    pcap::{Schedule, Writer},
    traffic::{HEADERS_MAX, Mix, Plan, Traffic},
    truth::Key,
};

use super::questions::{Amount, Measure, Question};

/// Ordinary traffic: every packet is TCP or UDP, in frames without tags, so that both tools can read all of it.
const ORDINARY: Plan = Plan {
    seed: 7,
    packets: 1_800_000,
    flows: 100_000,
    zipf: 1.1,
    flows_per_source: 4,
    flows_per_destination: 8,
    mix: Mix::PLAIN,
};
/// Twenty hosts that scan over IPv4 and IPv6, which makes forty sources.
const SCAN: Plan = Plan {
    seed: 8,
    packets: 200_000,
    flows: 100_000,
    zipf: 0.0,
    flows_per_source: 5_000,
    flows_per_destination: 2,
    mix: Mix { tcp: 1.0, udp: 0.0, ..Mix::PLAIN },
};
const SCANNERS: usize = 40;
/// How many ordinary packets come before each packet of the scan.
const ORDINARY_PER_SCAN: usize = 9;
/// Twenty seconds in the middle of a minute, so that a window of a minute holds all packets.
const SCHEDULE: Schedule = Schedule { start: Duration::from_secs(1_700_000_000), packets_per_second: 100_000 };

/// The true rows of a question.
type Rows = HashMap<String, f64>;

/// The truth about a capture.
#[derive(Default)]
pub struct Truth {
    packets: u64,
    flows: HashMap<Key, Sum>,
    /// Sizes of frames and of IP packets.
    sizes: [BTreeMap<u64, u64>; 2],
}

#[derive(Clone, Copy, Default)]
struct Sum {
    packets: u64,
    /// Bytes of frames and of IP packets.
    bytes: [u64; 2],
}

/// The part of a packet that is counted as its bytes.
#[derive(Clone, Copy)]
pub enum Bytes {
    OfFrames,
    OfIp,
}

impl Truth {
    /// Writes the capture.
    ///
    /// # Errors
    ///
    /// The capture cannot be written.
    pub fn write(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        let file = BufWriter::new(File::create(path).with_context(cannot)?);
        let mut writer = Writer::new(file, HEADERS_MAX as u32).with_context(cannot)?;
        let mut truth = Self::default();
        let (mut ordinary, mut scan) = (Traffic::new(ORDINARY)?, Traffic::new(SCAN)?);
        let mixed = std::iter::from_fn(|| {
            let turn: Vec<_> = ordinary.by_ref().take(ORDINARY_PER_SCAN).chain(scan.next()).collect();
            (!turn.is_empty()).then_some(turn)
        });
        for (nth, packet) in (0..).zip(mixed.flatten()) {
            writer.write(SCHEDULE.at(nth), &packet.frame).with_context(cannot)?;
            let flow = packet.truth.flow.map_err(|reason| anyhow::anyhow!("a packet without a flow: {reason}"))?;
            truth.packets += 1;
            let sum = truth.flows.entry(flow).or_default();
            sum.packets += 1;
            for (of, bytes) in [packet.truth.bytes, ip_bytes(&packet.frame)?].into_iter().enumerate() {
                sum.bytes[of] += bytes;
                *truth.sizes[of].entry(bytes).or_default() += 1;
            }
        }
        writer.finish().with_context(cannot)?;
        Ok(truth)
    }

    /// How many packets there are.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// How many of the largest rows are asked for.
    pub fn sought(question: &Question, rows: &Rows) -> usize {
        match question.measure {
            Measure::Largest(_) => question.rows,
            Measure::Distinct(_) => SCANNERS,
            Measure::Sum(_) | Measure::Size => rows.len(),
        }
    }

    /// The rows of a question.
    pub fn rows(&self, question: &Question, counted: Bytes) -> Rows {
        let flows = || self.flows.iter().filter(|(flow, _)| question.asks_for(flow));
        match question.measure {
            Measure::Largest(amount) | Measure::Sum(amount) => {
                let mut rows = Rows::new();
                for (flow, sum) in flows() {
                    let count = match amount {
                        Amount::Bytes => sum.bytes[counted as usize],
                        Amount::Packets => sum.packets,
                    };
                    *rows.entry(question.key(flow)).or_default() += count as f64;
                }
                rows
            }
            Measure::Distinct(of) => {
                let mut values: HashMap<String, HashSet<String>> = HashMap::new();
                for (flow, _) in flows() {
                    _ = values.entry(question.key(flow)).or_default().insert(of.of(flow));
                }
                values.into_iter().map(|(key, values)| (key, values.len() as f64)).collect()
            }
            Measure::Size => [(String::new(), self.size_at(0.99, counted) as f64)].into(),
        }
    }

    /// The smallest size that this share of packets does not exceed.
    fn size_at(&self, share: f64, counted: Bytes) -> u64 {
        let mut left = (share * self.packets as f64).ceil() as u64;
        let found = self.sizes[counted as usize].iter().find(|(_, count)| {
            left = left.saturating_sub(**count);
            left == 0
        });
        found.map_or(0, |(size, _)| *size)
    }
}

/// The length that the IP header of an untagged frame states.
fn ip_bytes(frame: &[u8]) -> Result<u64> {
    let field = |at: usize| u64::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    Ok(match field(12) {
        0x0800 => field(16),
        0x86dd => 40 + field(18),
        other => bail!("the Ethernet type {other:#06x} is not IP"),
    })
}
