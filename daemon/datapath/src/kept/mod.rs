//! The descriptors that outlive the process: systemd keeps them for the next weir ([`store`], by [`name`]). They
//! include the programs on interfaces ([`link`]).

pub mod link;
pub mod name;
mod slot;
pub mod store;

use std::{fs, os::unix::fs::MetadataExt as _};

pub use self::slot::{Away, SlotState, words};

/// The inode of this process's network namespace; 0 if `/proc` is not readable.
pub fn network() -> u64 {
    fs::metadata("/proc/self/ns/net").map_or(0, |namespace| namespace.ino())
}
