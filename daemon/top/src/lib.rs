//! The live screen of weir, `weir top`: who uses the link, and how far the numbers can be trusted.
//!
//! ```text
//! Source ── seconds: exact rates of each interface ──► Screen ──► draw ──► terminal
//!        ├─ reports: lists with bounds, distinct, alerts ──► ▲
//!        └─ the open window: the same lists so far ─────────►│
//!                                     keys ────────────────┘
//! ```
//!
//! A [`Source`] is a running weir or a capture that is replayed; the screen does not know which. The lists are
//! those of the open window where they are known, and those of the last report elsewhere: the screen says which.

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
    source::{Known, Source, Update},
    terminal::{TopError, is_terminal, run},
};
