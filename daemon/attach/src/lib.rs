//! Attaches programs to interfaces, and follows interfaces that appear, vanish, return or are renamed.
//!
//! [`Attachments`] is the coordinator's side: one slot for each direction of each measured interface (`slots`), and its
//! state (`attachment`, `present`; `departures` has the interfaces that vanished from it, and `arrivals` those that
//! come, with what they carry before weir is attached). Besides these it has the present interfaces (`inventory`), the
//! requests of users (`requests`), refusals and unanswered requests (`health`), and the state of the log (`log`).
//! [`Attacher`] is a thread. It owns everything that is attached, and makes the system calls for which the kernel takes
//! its configuration lock, which other processes may hold for seconds. `tasks` are the messages between the two; the
//! coordinator never waits for more than a moment.
//!
//! Whenever the kernel reports a change ([`netlink`]), the configuration and the present interfaces determine which
//! interfaces to measure (`plan`). weir then detaches from interfaces that are no longer wanted, attaches to missing
//! ones in the best way of the `methods`, and leaves the others alone (`settle`). If very many interfaces appear at
//! once, `pace` limits how much of the kernel's time they take. How interfaces are stacked (`stack`) decides on which
//! one a packet feeds totals and lists (`feeds`). Filters at the classic tc hook would outlive the daemon: `hook`
//! removes them, and `leftovers` removes those of an earlier weir. `commands` handles `weir detach` and `weir attach`.
//!
//! Once a second and at the edge of each window, weir checks whether its programs are still attached, and still first.
//! It restores those that are not (`answers`); until then weir was blind (`watch`). Other weirs are recognized by their
//! signs (`sign`). At each edge, weir compares the counts of its programs with those of the interfaces (`windows`,
//! `readings`, `coverage`). `nat` finds out whether the machine translates addresses, and `generic` on which interfaces
//! XDP in generic mode runs before the tc hook.

#![forbid(unsafe_code)]

mod answers;
mod arrivals;
mod attacher;
mod attachment;
mod attachments;
mod commands;
mod coverage;
mod departures;
mod error;
mod feeds;
mod generic;
mod health;
mod hook;
mod inventory;
mod leftovers;
mod log;
mod methods;
mod nat;
pub mod netlink;
mod obtained;
mod pace;
mod plan;
mod present;
mod readings;
mod requests;
mod sessions;
mod settle;
mod shared_slot;
mod sign;
mod slots;
mod stack;
mod tasks;
#[cfg(test)]
mod testing;
mod watch;
mod windows;

pub use self::{
    attacher::Attacher,
    attachments::Attachments,
    departures::Departure,
    error::{AttachError, NO_DEFAULT_ROUTE, NONE_FITS},
    feeds::{Decision, Feeding, Survey},
    generic::GenericXdp,
    hook::{FoundFilters, Leftover, leftovers},
    methods::{AttachResources, HookOrder, Programs, attach_methods, link_layer},
    nat::{Nat, Unknown},
    obtained::Obtained,
    plan::{covers, list},
    requests::Reattached,
    tasks::{Channels, TaskResult},
    windows::InterfaceNow,
};
