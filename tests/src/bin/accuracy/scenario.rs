//! The traffic, the sampling rates and the sizes of sketches that are measured.

use anyhow::Result;
use weir_config::{Config, Packets};
use weir_tests::{
    table::thousands,
    traffic::{Mix, Packet, Plan, Traffic},
};

use crate::views;

/// Traffic of one kind.
pub struct Scenario {
    /// The name in tables.
    pub name: &'static str,
    /// The number of flows, and the exponent of Zipf's law by which packets belong to them.
    flows: u32,
    zipf: f64,
    /// How many flows share a source.
    per_source: u32,
    /// How many packets of separate flows follow each of these packets.
    flood: u64,
    /// How many of those flows share a destination, on average.
    per_victim: u32,
}

/// Packets of a run, before those of a flood.
const PACKETS: u64 = 20_000;
/// So many flows that hardly any two packets share one.
const ONE_EACH: u32 = 1_000_000;

/// Every kind of traffic.
pub const ALL: [Scenario; 8] = [
    Scenario { name: "Zipf 0.8, 5,000 flows", flows: 5_000, zipf: 0.8, ..PLAIN },
    Scenario { name: "Zipf 1.1, 5,000 flows", flows: 5_000, zipf: 1.1, ..PLAIN },
    Scenario { name: "Zipf 1.6, 5,000 flows", flows: 5_000, zipf: 1.6, ..PLAIN },
    Scenario { name: "5,000 even flows", flows: 5_000, zipf: 0.0, ..PLAIN },
    Scenario { name: "one packet a flow", flows: ONE_EACH, zipf: 0.0, ..PLAIN },
    Scenario { name: "thirty flows", flows: 30, zipf: 1.0, ..PLAIN },
    Scenario { name: "flood over 20 flows", flows: 20, zipf: 1.0, flood: 3, ..PLAIN },
    // Four sources scan, and five destinations get packets from very many sources.
    Scenario {
        name: "scans and floods",
        flows: 20_000,
        zipf: 0.0,
        per_source: 5_000,
        flood: 1,
        per_victim: ONE_EACH / 5,
    },
];

/// Traffic with neither scans nor a flood.
const PLAIN: Scenario = Scenario { name: "", flows: 1, zipf: 0.0, per_source: 4, flood: 0, per_victim: 8 };

impl Scenario {
    /// The packets of a seed.
    pub fn packets(&self, seed: u64) -> Result<Vec<Packet>> {
        let Self { name: _, flows, zipf, per_source, flood, per_victim } = *self;
        let plan = |seed, packets| Plan { seed, packets, mix: Mix::plain(), ..Plan::default() };
        let wanted = plan(2 * seed, PACKETS / (1 + flood));
        let wanted = Traffic::new(Plan { flows, zipf, flows_per_source: per_source, ..wanted })?;
        let others = plan(2 * seed + 1, if flood > 0 { PACKETS } else { 0 });
        let mut others =
            Traffic::new(Plan { flows: ONE_EACH, zipf: 0.0, flows_per_destination: per_victim, ..others })?;
        let mut packets = Vec::with_capacity(PACKETS as usize);
        for packet in wanted {
            packets.push(packet);
            packets.extend(others.by_ref().take(flood as usize));
        }
        Ok(packets)
    }
}

/// How packets are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rate {
    /// One packet in this many.
    OneIn(u32),
    /// Every packet at first, then fewer and fewer, as `auto` does if a reader gets too little CPU time; then more
    /// again.
    Auto,
}

/// Every sampling rate.
pub const RATES: [Rate; 5] = [Rate::OneIn(1), Rate::OneIn(10), Rate::OneIn(100), Rate::OneIn(1_000), Rate::Auto];

impl Rate {
    /// Returns true if no packet is left out.
    pub fn is_every_packet(self) -> bool {
        self == Self::OneIn(1)
    }

    /// Returns the name in tables: one packet in how many.
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

    /// The rate from the `nth` of `packets` packets on, if it changes there: it doubles nine times, and is halved as
    /// often. With each seed the changes begin at a different packet.
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
    /// weir's default.
    Default,
    /// The smallest that can be configured.
    Smallest,
}

impl Geometry {
    /// Both geometries.
    pub const ALL: [Self; 2] = [Self::Default, Self::Smallest];

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Smallest => "smallest",
        }
    }

    /// A configuration that begins to sample at this rate, and asks all questions.
    pub fn config(self, rate: Rate) -> Result<Config> {
        let mut config = Config::default();
        if self == Self::Smallest {
            config.estimates.unique_error = 0.05;
            config.estimates.top_error = 0.01;
            config.estimates.top_candidates = 64;
            config.seen_flows.capacity = 1_000;
            config.datapath.cache_flows = Some(256);
        }
        config.sampling.packets = Packets::OneIn(rate.first());
        config.networks = views::networks()?;
        config.views = views::own(&config)?;
        Ok(config)
    }
}
