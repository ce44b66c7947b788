//! Asks the kernel about its interfaces and receives their changes, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! `message` has the message format. `socket` sends requests and receives the answers. `routing` describes interfaces,
//! `routes` finds those that carry a default route, `generic` what their drivers support, `losses` what they lost,
//! `nftables` which rules translate addresses, and `traffic` attaches filters at the classic tc hook. All integers are
//! in the byte order of the machine. Reading needs no privilege; attaching, and reading rules, needs `CAP_NET_ADMIN`.
//!
//! Constants come from `libc` where it has them. The message format is our own sixty lines, because the crates for it
//! were tried and cost more. `netlink-packet-core` borrows an attribute's value from its iterator's item, so that each
//! value would have to be copied, and its errors are allocated strings. `netlink-packet-route` adds 410 kB to the
//! program, and refuses a whole interface if one attribute, of which weir needs nothing, is not as expected.
//! The sockets, repeating interrupted dumps, and handling changes would remain with either.

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
