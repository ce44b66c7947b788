//! Attaching programs to interfaces, and following interfaces that appear, vanish, come back, or change their names.
//!
//! [`Attachments`] holds one slot for each direction of each measured interface. Whenever the kernel tells of a change
//! ([`netlink`]), the interfaces there are and the configuration give what should be measured (`plan`). What should no
//! longer be is detached, what should is attached by the best of the `ladder`, and the rest is left alone (`slots`).
//! Where very many come at once, `pace` keeps the daemon and the kernel from being busy with them alone.
//! How the interfaces lie on one another (`stack`) decides where a packet feeds totals and lists (`feeds`). What is
//! attached at the classic tc hook would outlive the daemon, and is removed by `hook`. At each window's edge what the
//! programs saw is compared with what the interfaces counted (`coverage`). `nat` finds out whether the machine
//! translates addresses.

mod attachments;
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
mod slots;
mod stack;

pub use self::{
    attachments::Attachments,
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::{Decision, Feeding, Survey},
    hook::{Leftover, leftovers},
    ladder::{Ladder, Programs},
    nat::{Nat, Unknown},
    obtained::Obtained,
};
pub(crate) use self::{
    ladder::{link_layer, rungs},
    plan::{covers, list},
};
