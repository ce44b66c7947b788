//! Asks the kernel about its interfaces and receives their changes, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! `message` has the message format. `socket` sends requests and receives the answers. `routing` describes interfaces,
//! `routes` finds those that carry a default route, `generic` what their drivers support, `losses` what they lost,
//! `nftables` which rules translate addresses, and `traffic` attaches filters at the classic tc hook. All integers are
//! in the byte order of the machine. Reading needs no privilege; attaching, and reading rules, needs `CAP_NET_ADMIN`.
//!
//! This is own code, because the `netlink-packet-*` crates would replace only the message format (some ninety lines)
//! and the numbers of some thirty attributes. The sockets, repeating interrupted dumps, and handling changes would
//! remain.

mod generic;
mod losses;
mod message;
mod nftables;
mod routes;
mod routing;
mod socket;
mod traffic;

pub use self::{
    generic::{XDP_BASIC, XDP_FRAGMENTS, offloads, xdp_features},
    losses::losses,
    nftables::nat_chains,
    routing::{Device, Devices, Ender, Events, News, XdpProgram},
    socket::open as open_socket,
    traffic::{Discipline, Filter, Traffic},
};
