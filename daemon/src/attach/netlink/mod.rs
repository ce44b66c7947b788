//! Questions to the kernel about its interfaces, and news of them, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! `message` is the form of messages, `socket` asks and takes the answers, `routing` describes interfaces, and
//! `generic` what their drivers can do. All integers are in the byte order of the machine. Nothing is changed, and no
//! privilege is needed.
//!
//! Own code, because the `netlink-packet-*` crates would only replace the form of messages, some ninety lines here, and
//! the numbers of some thirty attributes: the sockets, the interrupted lists and the news would remain.

mod generic;
mod message;
mod routing;
mod socket;

pub use self::{
    generic::{XDP_BASIC, XDP_FRAGMENTS, offloads, xdp_features},
    routing::{Device, Devices, Ender, Events, News, XdpProgram},
};
