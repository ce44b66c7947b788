//! Questions to the kernel about its interfaces, and news of them, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! A handful of requests and attributes are all that is needed, so this speaks the protocol itself: `message` is its
//! form, `socket` asks and takes the answers, `routing` describes interfaces and `generic` what their drivers can do.
//! All integers are in the byte order of the machine. Nothing is changed, and no privilege is needed.

mod generic;
mod message;
mod routing;
mod socket;

pub use self::{
    generic::{XDP_BASIC, XDP_FRAGMENTS, offloads, xdp_features},
    routing::{Device, Devices, Ender, Events, News, XdpProgram},
};
