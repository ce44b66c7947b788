//! Attaching programs to interfaces, and following interfaces that appear, vanish, come back, or change their names.
//!
//! [`Attachments`] holds one slot for each direction of each measured interface. Whenever the kernel tells of a change
//! ([`netlink`]), the interfaces there are and the configuration give what should be measured (`plan`). What should no
//! longer be is detached, what should is attached by the best of the `ladder`, and the rest is left alone (`slots`).
//! Where very many come at once, `pace` keeps the daemon and the kernel from being busy with them alone.
//! How the interfaces lie on one another (`stack`) decides where a packet feeds totals and lists (`feeds`). What is
//! attached at the classic tc hook would outlive the daemon, and is removed by `hook`.
//!
//! Once a second and at each window's edge weir looks whether what is attached is still there, and first (`check`):
//! what is not is put back, and until then weir was blind (`watch`). Other weirs are known by their signs (`sign`). At
//! each edge what the programs saw is compared with what the interfaces counted (`readings`, `coverage`). `nat` finds
//! out whether the machine translates addresses.

mod attachments;
mod check;
mod coverage;
mod error;
mod feeds;
mod hook;
mod ladder;
mod nat;
pub mod netlink;
mod obtained;
mod others;
mod pace;
mod plan;
mod readings;
mod sign;
mod slots;
mod stack;
mod watch;

pub use self::{
    attachments::Attachments,
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::{Decision, Feeding, Survey},
    hook::{Found, Leftover, leftovers},
    ladder::{Ladder, Programs, Standing},
    nat::{Nat, Unknown},
    obtained::Obtained,
};
pub(crate) use self::{
    ladder::{link_layer, rungs},
    plan::{covers, list},
};
