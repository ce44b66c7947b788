//! The capture, and the truth about it: in bytes of frames, as weir counts, and in bytes of IP packets.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io::BufWriter,
    net::IpAddr,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use weir_tests::{
    pcap::{Schedule, Writer},
    traffic::{HEADERS_MAX, Mix, Plan, Traffic},
};

use super::Question;

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
/// Twenty hosts that scan, each by IPv4 and by IPv6: forty sources.
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
/// So many ordinary packets, then one of the scan.
const ORDINARY_PER_SCAN: usize = 9;
/// Twenty seconds, within a minute and not at its end: a window of a minute holds them all.
const SCHEDULE: Schedule = Schedule { start: Duration::from_secs(1_700_000_000), packets_per_second: 100_000 };

/// What the rows of each question have to be.
type Rows = HashMap<String, f64>;

/// The truth about a capture.
#[derive(Default)]
pub struct Truth {
    packets: u64,
    frames: Bytes,
    ip: Bytes,
    reached: HashMap<IpAddr, HashSet<IpAddr>>,
}

/// Sums of bytes.
#[derive(Default)]
struct Bytes {
    pairs: HashMap<(IpAddr, IpAddr), u64>,
    protocols: HashMap<u8, u64>,
    sizes: BTreeMap<u64, u64>,
}

impl Truth {
    /// Writes the capture.
    ///
    /// # Errors
    ///
    /// It cannot be written.
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
            for (bytes, count) in [(&mut truth.frames, packet.truth.bytes), (&mut truth.ip, ip_bytes(&packet.frame)?)] {
                *bytes.pairs.entry((flow.src, flow.dst)).or_default() += count;
                *bytes.protocols.entry(flow.proto).or_default() += count;
                *bytes.sizes.entry(count).or_default() += 1;
            }
            if flow.proto == 6 && matches!(flow.dst_port, 22 | 80 | 443 | 5432 | 6379) {
                truth.reached.entry(flow.src).or_default().insert(flow.dst);
            }
        }
        writer.finish().with_context(cannot)?;
        Ok(truth)
    }

    /// How many packets there are.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The rows, where bytes are those of frames.
    pub fn frames(&self, question: Question) -> Rows {
        self.rows(question, &self.frames)
    }

    /// The rows, where bytes are those of IP packets.
    pub fn packets_of_ip(&self, question: Question) -> Rows {
        self.rows(question, &self.ip)
    }

    /// How many of the largest rows are sought.
    pub fn sought(&self, question: Question) -> usize {
        match question {
            Question::TopTalkers => 100,
            Question::SuspectedScanners => SCANNERS,
            Question::ProtocolBytes => self.frames.protocols.len(),
            Question::PacketSize => 1,
        }
    }

    fn rows(&self, question: Question, bytes: &Bytes) -> Rows {
        match question {
            Question::TopTalkers => {
                bytes.pairs.iter().map(|((src, dst), bytes)| (format!("{src} {dst}"), *bytes as f64)).collect()
            }
            Question::SuspectedScanners => {
                self.reached.iter().map(|(src, reached)| (src.to_string(), reached.len() as f64)).collect()
            }
            Question::ProtocolBytes => {
                bytes.protocols.iter().map(|(proto, bytes)| (proto.to_string(), *bytes as f64)).collect()
            }
            Question::PacketSize => [(String::new(), bytes.size_at(0.99, self.packets) as f64)].into(),
        }
    }
}

impl Bytes {
    /// The smallest size that this share of packets does not exceed.
    fn size_at(&self, share: f64, packets: u64) -> u64 {
        let mut left = (share * packets as f64).ceil() as u64;
        let found = self.sizes.iter().find(|(_, count)| {
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
