//! The live screen of weir, `weir top`: who uses the link, and how reliable the numbers are.
//!
//! ```text
//! Source ── seconds: exact rates of each interface ──► Screen ──► draw ──► terminal
//!        ├─ reports: lists with bounds, distinct, alerts ──► ▲
//!        ├─ the open window: the same lists so far ─────────►│
//!        ├─ the history: windows and spans that have passed ►│
//!        └─ a fleet: the newest window of many routers ─────►│
//!                                     keys ────────────────┘
//! ```
//!
//! A [`Source`] is a running weir, a replayed capture, or a fleet. The screen does not know which. It shows the lists
//! of the open window if they are available, otherwise those of the last report, or those of a time that has passed
//! (`past`), and says which.

#![forbid(unsafe_code)]

mod draw;
mod filter;
mod fleet;
mod history;
mod key;
mod list;
mod names;
mod past;
mod picture;
mod screen;
mod source;
mod terminal;
mod text;
mod words;

pub use self::{
    fleet::Fleet,
    history::{Line, Rate, SECONDS_MAX},
    key::Key,
    list::{Amount, By, Entry, List},
    past::{Look, POINTS, Past, earlier, later},
    picture::picture,
    source::{KeyDetails, Request, Source, Update},
    terminal::{TopError, is_terminal, run},
};
