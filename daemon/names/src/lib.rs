//! The names of hosts: from a file of the operator's, from `/etc/hosts`, and from the leases of DHCP servers.
//!
//! `hosts` and `leases` read the formats, `table` keeps the best name of each address, within a fixed number of them,
//! and this module has the thread that reads the files again when they change. Names are text that others chose: a
//! client tells the DHCP server what it wants to be called. So they are cleaned when they come in ([`table::Name`]),
//! say nothing about who a host is, and are in no key.

mod follower;
mod hosts;
mod leases;
pub mod table;

pub use self::follower::{Names, memory};
