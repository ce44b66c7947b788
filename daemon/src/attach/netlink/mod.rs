//! Asks the kernel about its interfaces and receives their changes, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! `message` has the format of messages. `socket` asks, and receives the answers. `routing` describes interfaces,
//! `routes` says which of them carry a default route, `generic` what their drivers can do, `losses` what they lost,
//! `nftables` which rules translate addresses, and `traffic` attaches filters at the classic tc hook. All integers are
//! in the byte order of the machine. To read needs no privilege; to attach, and to read
//! rules, needs `CAP_NET_ADMIN`.
//!
//! Own code, because the `netlink-packet-*` crates would replace only the format of messages (some ninety lines) and
//! the numbers of some thirty attributes. The sockets, the repeated reading of interrupted lists and the handling of
//! changes would remain.

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
