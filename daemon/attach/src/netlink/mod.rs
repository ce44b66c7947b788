//! Asks the kernel about its interfaces and receives their changes, by netlink (RFC 3549;
//! `Documentation/userspace-api/netlink` of Linux).
//!
//! `message` has the message format. `socket` sends requests and receives the answers. `routing` describes interfaces,
//! `routes` finds those that carry a default route, `generic` reads what their drivers support, `losses` reads what
//! they lost, `nftables` finds rules that translate addresses and flowtables, and `traffic` attaches filters at the
//! classic tc hook. All integers are in the byte order of the machine. Reading needs no privilege; attaching and
//! reading rules need `CAP_NET_ADMIN`.
//!
//! Constants come from `libc` where it has them. The message format is sixty lines of our own, because the crates for
//! it were tried and cost more. `netlink-packet-core` borrows an attribute's value from its iterator's item, so each
//! value would have to be copied, and its errors are allocated strings. `netlink-packet-route` adds 410 kB to the
//! program, and rejects a whole interface if a single attribute, even one that weir does not need, has an unexpected
//! format. The sockets, repeating interrupted dumps, and handling changes would remain with either.

mod generic;
mod losses;
mod message;
pub mod name;
mod nftables;
mod routes;
mod routing;
mod socket;
mod traffic;

pub use self::{
    generic::{XDP_BASIC, XDP_FRAGMENTS, offloads, xdp_features},
    losses::losses,
    nftables::{Flowtable, flowtables, nat_chains},
    routing::{Device, Devices, Ender, Events, News, XdpProgram},
    socket::open as open_socket,
    traffic::{Discipline, Filter, Traffic},
};
