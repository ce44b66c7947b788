//! The traffic, the sampling rates and the sizes of sketches that are measured.

use anyhow::Result;
use weir::config::{Config, Packets};
use weir_tests::traffic::{Mix, Packet, Plan, Traffic};

/// Traffic of one kind.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its flows, and the exponent of Zipf's law by which packets choose among them.
    flows: u32,
    zipf: f64,
    /// How many packets of flows of their own come behind each of these packets.
    flood: u64,
}

/// Packets of a run, before those of a flood.
const PACKETS: u64 = 20_000;
/// So many flows that hardly two packets share one.
const ONE_EACH: u32 = 1_000_000;

/// Every kind.
pub const ALL: [Scenario; 7] = [
    Scenario { name: "Zipf 0.8, 5,000 flows", flows: 5_000, zipf: 0.8, flood: 0 },
    Scenario { name: "Zipf 1.1, 5,000 flows", flows: 5_000, zipf: 1.1, flood: 0 },
    Scenario { name: "Zipf 1.6, 5,000 flows", flows: 5_000, zipf: 1.6, flood: 0 },
    Scenario { name: "5,000 even flows", flows: 5_000, zipf: 0.0, flood: 0 },
    Scenario { name: "one packet a flow", flows: ONE_EACH, zipf: 0.0, flood: 0 },
    Scenario { name: "thirty flows", flows: 30, zipf: 1.0, flood: 0 },
    Scenario { name: "flood over 20 flows", flows: 20, zipf: 1.0, flood: 3 },
];

impl Scenario {
    /// The packets of a seed.
    pub fn packets(&self, seed: u64) -> Result<Vec<Packet>> {
        let plan =
            |seed, flows, zipf, packets| Plan { seed, packets, flows, zipf, mix: Mix::plain(), ..Plan::default() };
        let wanted = Traffic::new(plan(2 * seed, self.flows, self.zipf, PACKETS / (1 + self.flood)))?;
        let mut flood = Traffic::new(plan(2 * seed + 1, ONE_EACH, 0.0, if self.flood > 0 { PACKETS } else { 0 }))?;
        let mut packets = Vec::with_capacity(PACKETS as usize);
        for packet in wanted {
            packets.push(packet);
            packets.extend(flood.by_ref().take(self.flood as usize));
        }
        Ok(packets)
    }
}

/// One packet in so many is taken.
pub const RATES: [u32; 4] = [1, 10, 100, 1_000];

/// A size of sketches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Geometry {
    /// The one that weir has unless told.
    Default,
    /// The least that can be configured.
    Smallest,
}

impl Geometry {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Default, Self::Smallest];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Smallest => "smallest",
        }
    }

    /// A configuration that samples at this rate.
    pub fn config(self, rate: u32) -> Config {
        let mut config = Config::default();
        if self == Self::Smallest {
            config.estimates.unique_error = 0.05;
            config.estimates.top_error = 0.01;
            config.estimates.top_candidates = 64;
            config.seen_flows.capacity = 1_000;
            config.datapath.cache_flows = 256;
        }
        config.sampling.packets = Packets::OneIn(rate);
        config
    }
}
