//! The live screen of weir, `weir top`: who uses the link, and how far the numbers can be trusted.
//!
//! ```text
//! Source ── seconds: exact rates of each interface ──► Screen ──► draw ──► terminal
//!        └─ reports: lists with bounds, distinct, alerts ──► ▲
//!                                     keys ────────────────┘
//! ```
//!
//! A [`Source`] is a running weir or a capture that is replayed; the screen does not know which. A report may be that
//! of the open window: the screen says how old it is, and whether more is to come.

#![forbid(unsafe_code)]

mod draw;
mod filter;
mod history;
mod key;
mod list;
mod names;
mod ptr;
mod screen;
mod source;
mod terminal;
mod text;

pub use self::{
    source::{Known, Reported, Source, Update},
    terminal::{TopError, is_terminal, run},
};
