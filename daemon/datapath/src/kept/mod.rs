//! What outlives the process: descriptors that systemd keeps for the next weir ([`store`], by [`name`]), among them the
//! programs on interfaces ([`link`]).

pub mod link;
pub mod name;
mod slot;
pub mod store;

use std::{fs, os::unix::fs::MetadataExt as _};

pub use self::slot::{SlotState, words};

/// The inode of this process's network namespace; 0 if `/proc` does not tell.
pub fn network() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino())
}
