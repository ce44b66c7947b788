//! The parameters from which a datapath is built, in the kernel or in userspace.

use std::ops::RangeInclusive;

use weir_common::packet::{TunnelPorts, Tunnels};
use weir_config::{self as config, Config, HashKey, KeyError, Packets, slots};
use weir_sketch::hash::Key;

use super::cpu::Cpus;

/// The size of all rings together with `datapath.ring: auto`, in bytes.
const RINGS_BYTES: u64 = 64 << 20;
/// The slots of all flow caches together with `datapath.cache_flows: auto`: 32 MiB of records.
const CACHES_FLOWS: u64 = 1 << 19;
/// The bounds of a CPU's share: the upper one applies on small machines, and the lower one on large machines.
const RING_BYTES: RangeInclusive<u64> = (64 << 10)..=(1 << 20);
const CACHE_FLOWS: RangeInclusive<u64> = (1 << 10)..=(1 << 14);

/// The share of each CPU: the configured size, or an equal share of a fixed total, so that memory does not grow with
/// the number of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Slots of its flow cache: a power of two.
    pub cache_flows: u32,
    /// Bytes of its ring: a power of two and a multiple of the page size.
    pub ring: u64,
}

impl Shares {
    /// The share of each of these CPUs.
    pub fn new(datapath: &config::Datapath, cpus: &Cpus) -> Self {
        let cpus = cpus.online.len().max(cpus.present.len()).max(1) as u64;
        let share = |total: u64, range: RangeInclusive<u64>| {
            (1 << (total / cpus).max(1).ilog2()).clamp(*range.start(), *range.end())
        };
        Self {
            cache_flows: datapath.cache_flows.unwrap_or_else(|| share(CACHES_FLOWS, CACHE_FLOWS) as u32),
            ring: datapath.ring.unwrap_or_else(|| share(RINGS_BYTES, RING_BYTES)),
        }
    }
}

/// The parameters of the kernel side.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The key that places flows in the flow cache.
    pub slot_key: Key,
    /// Flow-cache slots per CPU: a power of two.
    pub cache_flows: u32,
    /// Ring size per CPU in bytes: a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// The rates at which packets may be sampled.
    pub sampling: Packets,
    /// Interface slots in use, at most `weir_common::control::SLOTS_MAX`.
    pub interfaces: u32,
    /// The flow of a tunnelled packet: the outer or the inner one.
    pub tunnels: Tunnels,
    /// The UDP ports that identify tunnels.
    pub tunnel_ports: TunnelPorts,
}

impl Plan {
    /// The datapath that a configuration describes on these CPUs, with a random flow cache key for this start. No other
    /// weir has the key, and the next start uses another one. It is not derived from any stored secret, so it is
    /// worthless to an attacker who learns it later.
    ///
    /// # Errors
    ///
    /// The operating system has no random numbers.
    pub fn drawn(config: &Config, cpus: &Cpus) -> Result<Self, KeyError> {
        Ok(Self::new(config, HashKey::Random.key()?, cpus))
    }

    /// Plans the kernel side with a given key of the flow cache.
    pub fn new(config: &Config, slot_key: Key, cpus: &Cpus) -> Self {
        let Shares { cache_flows, ring } = Shares::new(&config.datapath, cpus);
        Self {
            slot_key,
            cache_flows,
            ring_bytes: ring as u32,
            sampling: config.sampling.packets,
            interfaces: slots(&config.interfaces) as u32,
            tunnels: config.datapath.tunnels.into(),
            tunnel_ports: config.datapath.tunnel_ports,
        }
    }

    /// Returns the plan of packet socket reader number `nth`, whose flow cache has its own key.
    #[must_use]
    pub fn of_reader(&self, nth: usize) -> Self {
        Self { slot_key: self.slot_key.derive(&format!("reader {nth}")), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_a_large_machine_share_a_fixed_total() {
        let auto = config::Datapath::default();
        let shares = |cpus| {
            let Shares { cache_flows, ring } = Shares::new(&auto, &Cpus::of(cpus));
            (cache_flows, ring >> 10)
        };
        assert_eq!([1, 2, 32].map(shares), [(16_384, 1_024); 3]);
        assert_eq!([33, 64].map(shares), [(8_192, 1_024); 2]);
        assert_eq!([65, 96, 128].map(shares), [(4_096, 512); 3]);
        assert_eq!([1_024, 4_096].map(shares), [(1_024, 64); 2]);
        let told = config::Datapath { cache_flows: Some(256), ring: Some(4 << 20), ..auto };
        assert_eq!(Shares::new(&told, &Cpus::of(128)), Shares { cache_flows: 256, ring: 4 << 20 });
        // Offline CPUs have a share, too, for when they come online.
        let half = Cpus { online: vec![0], ..Cpus::of(128) };
        assert_eq!(Shares::new(&auto, &half), Shares::new(&auto, &Cpus::of(128)));
    }

    #[test]
    fn each_start_has_another_flow_cache_key_even_with_a_configured_key() {
        let config = Config { hash_key: HashKey::Given(Key([1, 2])), ..Config::default() };
        let [one, other] = [(); 2].map(|()| Plan::drawn(&config, &Cpus::of(2)).unwrap().slot_key);
        assert_ne!(one, other);
        assert_ne!(one, Key([1, 2]).derive("flow cache"));
    }

    #[test]
    fn each_reader_has_its_own_flow_cache_key() {
        let plan = Plan::new(&Config::default(), Key([1, 2]), &Cpus::of(2));
        let keys = [plan.slot_key, plan.of_reader(0).slot_key, plan.of_reader(1).slot_key].map(|key| key.0);
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "{keys:?}");
        assert_eq!(plan.of_reader(1).cache_flows, plan.cache_flows);
    }
}
