//! Attaching programs to interfaces, and following interfaces that appear, vanish, come back, or change their names.
//!
//! [`Attachments`] is the coordinator's side: one slot for each direction of each measured interface (`slots`), and
//! what becomes of it. [`Attacher`] is a thread of its own. It has what is attached, and makes the calls for which the
//! kernel takes its configuration lock, which others may hold for seconds. `tasks` is what the two tell each other; the
//! coordinator never waits for more than a moment.
//!
//! Whenever the kernel tells of a change ([`netlink`]), the interfaces there are and the configuration give what should
//! be measured (`plan`). What should no longer be is detached, what should is attached by the best of the `ladder`, and
//! the rest is left alone (`settle`). Where very many come at once, `pace` keeps the kernel from being busy with them
//! alone. How the interfaces lie on one another (`stack`) decides where a packet feeds totals and lists (`feeds`). What
//! is attached at the classic tc hook would outlive the daemon, and is removed by `hook`; what an earlier weir has left
//! there, by `leftovers`. `released` is what somebody has told weir to leave alone.
//!
//! Once a second and at each window's edge weir looks whether what is attached is still there, and first: what is not
//! is put back (`answers`), and until then weir was blind (`watch`). Other weirs are known by their signs (`sign`). At
//! each edge what the programs saw is compared with what the interfaces counted (`windows`, `readings`, `coverage`).
//! `nat` finds out whether the machine translates addresses, and `generic` where XDP in generic mode runs before the tc
//! hook.

mod answers;
mod attacher;
mod attachments;
mod coverage;
mod error;
mod feeds;
mod generic;
mod hook;
mod ladder;
mod leftovers;
mod nat;
pub mod netlink;
mod obtained;
mod others;
mod pace;
mod plan;
mod readings;
mod released;
mod settle;
mod sign;
mod slots;
mod stack;
mod tasks;
mod watch;
mod windows;

pub use self::{
    attacher::Attacher,
    attachments::Attachments,
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::{Decision, Feeding, Survey},
    generic::GenericXdp,
    hook::{Found, Leftover, leftovers},
    ladder::{Ladder, Programs, Standing},
    nat::{Nat, Unknown},
    obtained::Obtained,
    tasks::Done,
};
pub(crate) use self::{
    ladder::{link_layer, rungs},
    plan::{covers, list},
};
