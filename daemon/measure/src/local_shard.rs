//! One worker's sketches with the local key, for the open window. They are a part of its shard.

use std::{net::IpAddr, sync::Arc};

use weir_sketch::{
    HyperLogLog, MergeError,
    hash::{Key, KeyedHash},
};

use crate::{
    columns::{Item, TOGETHER, Transposed},
    configured::configured,
    hosts::HostNetworks,
    known_hosts::KnownHosts,
    unique::Unique,
};

/// The most new hosts of a window that are listed.
pub const LISTED_MAX: usize = 64;

/// Registers of each count as a power of two: a standard error of 1.6 %.
const PRECISION: u32 = 12;
/// The memory of three counts, in bytes.
pub const UNIQUE_BYTES: usize = 3 * (1 << PRECISION);

/// Empty counts for keys with this fingerprint.
pub fn unique(key_id: u64) -> Unique {
    Unique::of(|| configured(HyperLogLog::with_precision(PRECISION, key_id)))
}

/// What those of all workers have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The local key.
    pub key: Key,
    /// True if there are horizons.
    pub has_horizons: bool,
    /// The filter of known hosts, if new ones are looked for.
    pub known_hosts: Option<Arc<KnownHosts>>,
}

/// The sketches of one window.
#[derive(Clone)]
pub struct LocalShard {
    hash: KeyedHash,
    /// Distinct counts for the horizons, if there are any.
    pub unique: Option<Unique>,
    known_hosts: Option<Arc<KnownHosts>>,
    /// How many hosts were new.
    pub new_hosts: u64,
    /// The first of them.
    pub listed: Vec<IpAddr>,
}

impl LocalShard {
    /// Empty sketches. All their memory is allocated and resident from the start.
    pub fn new(common: &Common) -> Self {
        let Common { key, has_horizons, known_hosts } = common;
        let listed = if known_hosts.is_some() { LISTED_MAX } else { 0 };
        let mut shard = Self {
            hash: KeyedHash::new(*key),
            unique: has_horizons.then(|| unique(key.id())),
            known_hosts: known_hosts.clone(),
            new_hosts: 0,
            listed: Vec::with_capacity(listed),
        };
        shard.clear();
        shard
    }

    /// The memory of new ones, in bytes.
    pub const fn bytes_for(has_horizons: bool, has_hosts: bool) -> usize {
        let unique = if has_horizons { UNIQUE_BYTES } else { 0 };
        let listed = if has_hosts { LISTED_MAX * size_of::<IpAddr>() } else { 0 };
        if has_horizons || has_hosts { size_of::<Self>() + unique + listed } else { 0 }
    }

    /// The memory that they take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let unique = self.unique.as_ref().map_or(0, Unique::memory_bytes);
        size_of::<Self>() + unique + self.listed.capacity() * size_of::<IpAddr>()
    }

    /// Adds records of flows that did not come moments ago, at most [`TOGETHER`].
    #[inline(never)]
    pub fn absorb(&mut self, items: &[Item<'_>], hosts: &HostNetworks) {
        let Some(first) = items.first() else { return };
        let mut own = [*first; TOGETHER];
        for (own, item) in own.iter_mut().zip(items) {
            *own = Item::new(&self.hash, item.record);
        }
        let own = &own[..items.len()];
        if let Some(unique) = &mut self.unique {
            unique.insert_batch(Transposed::default().columns(own));
        }
        let Some(known_hosts) = &self.known_hosts else { return };
        for item in own {
            let key = &item.record.key;
            if hosts.has(key.src, key.is_v6()) && known_hosts.insert(item.hashes.source) {
                self.new_hosts += 1;
                if self.listed.len() < LISTED_MAX {
                    self.listed.push(key.src_ip());
                }
            }
        }
    }

    /// Empties them for the next window.
    pub fn clear(&mut self) {
        let Self { hash: _, unique, known_hosts: _, new_hosts, listed } = self;
        if let Some(unique) = unique {
            unique.clear();
        }
        *new_hosts = 0;
        listed.clear();
    }

    /// Adds those of another worker.
    ///
    /// # Errors
    ///
    /// They were built differently.
    pub fn merge(&mut self, other: &Self) -> Result<(), MergeError> {
        if let (Some(ours), Some(theirs)) = (&mut self.unique, &other.unique) {
            ours.merge(theirs)?;
        }
        self.new_hosts += other.new_hosts;
        let room = LISTED_MAX - self.listed.len().min(LISTED_MAX);
        self.listed.extend(other.listed.iter().take(room));
        Ok(())
    }
}
