//! The traffic, the sampling rates and the sizes of sketches that are measured.

use anyhow::Result;
use weir::config::{Config, Packets};
use weir_tests::{
    table::thousands,
    traffic::{Mix, Packet, Plan, Traffic},
};

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

/// Which packets are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rate {
    /// One packet in so many.
    OneIn(u32),
    /// Every packet at first; then ever fewer, as `auto` does for a reader that starves; then more again.
    Auto,
}

/// Every rate.
pub const RATES: [Rate; 5] = [Rate::OneIn(1), Rate::OneIn(10), Rate::OneIn(100), Rate::OneIn(1_000), Rate::Auto];

impl Rate {
    /// Whether no packet is left out.
    pub fn is_every_packet(self) -> bool {
        self == Self::OneIn(1)
    }

    /// Its name in tables: one packet in how many.
    pub fn name(self) -> String {
        match self {
            Self::OneIn(rate) => thousands(rate.into()),
            Self::Auto => "auto".to_owned(),
        }
    }

    /// The rate at the beginning.
    pub const fn first(self) -> u32 {
        match self {
            Self::OneIn(rate) => rate,
            Self::Auto => 1,
        }
    }

    /// The rate from the `nth` of `packets` packets on, if it changes there: it doubles nine times, and is halved as often.
    /// The changes begin in another place with each seed.
    pub fn change(self, nth: usize, packets: usize, seed: u64) -> Option<u32> {
        const STEPS: usize = 18;
        let each = packets / (STEPS + 4);
        let since = nth.checked_sub(each * (1 + (seed % 3) as usize))?;
        let step = since / each.max(1);
        let changes = self == Self::Auto && since.is_multiple_of(each.max(1)) && step < STEPS;
        changes.then(|| 1 << if step < STEPS / 2 { step + 1 } else { STEPS - 1 - step })
    }
}

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

    /// A configuration that begins to sample at this rate.
    pub fn config(self, rate: Rate) -> Config {
        let mut config = Config::default();
        if self == Self::Smallest {
            config.estimates.unique_error = 0.05;
            config.estimates.top_error = 0.01;
            config.estimates.top_candidates = 64;
            config.seen_flows.capacity = 1_000;
            config.datapath.cache_flows = Some(256);
        }
        config.sampling.packets = Packets::OneIn(rate.first());
        config
    }
}
