//! Asks the kernel about its interfaces and receives their changes, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! `message` has the format of messages. `socket` asks, and receives the answers. `routing` describes interfaces, and
//! `generic` says what their drivers can do. All integers are in the byte order of the machine. weir only reads here,
//! and needs no privilege for it.
//!
//! Own code, because the `netlink-packet-*` crates would replace only the format of messages (some ninety lines) and
//! the numbers of some thirty attributes. The sockets, the repeated reading of interrupted lists and the handling of
//! changes would remain.

mod generic;
mod message;
mod routing;
mod socket;

pub use self::{
    generic::{XDP_BASIC, XDP_FRAGMENTS, offloads, xdp_features},
    routing::{Device, Devices, Ender, Events, News, XdpProgram},
};
