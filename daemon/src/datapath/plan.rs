//! What a datapath is built from, whether it runs in the kernel or in userspace.

use weir_common::packet::Tunnels;
use weir_sketch::hash::Key;

use crate::config::{Config, Packets, slots};

/// What the kernel side is built from.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Keys the flow cache's slots.
    pub slot_key: Key,
    /// Flow-cache slots per CPU: a power of two.
    pub cache_flows: u32,
    /// Ring size per CPU in bytes: a power of two and a multiple of the page size.
    pub ring_bytes: u32,
    /// How many packets are taken.
    pub sampling: Packets,
    /// Interface slots in use, at most [`weir_common::control::INTERFACES_MAX`].
    pub interfaces: u32,
    /// Whose packet a tunnelled packet is.
    pub tunnels: Tunnels,
}

impl Plan {
    /// The datapath that a configuration asks for; `key` is the one that all keys of this run derive from.
    pub fn new(config: &Config, key: Key) -> Self {
        Self {
            slot_key: key.derive("flow cache"),
            cache_flows: config.datapath.cache_flows,
            ring_bytes: config.datapath.ring as u32,
            sampling: config.sampling.packets,
            interfaces: slots(&config.interfaces) as u32,
            tunnels: config.datapath.tunnels.into(),
        }
    }

    /// The same for the `nth` reader of packet sockets, whose flow cache has a key of its own.
    #[must_use]
    pub fn of_reader(&self, nth: usize) -> Self {
        Self { slot_key: self.slot_key.derive(&format!("reader {nth}")), ..*self }
    }
}
