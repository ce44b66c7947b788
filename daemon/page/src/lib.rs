//! The common parts of weir's two pages in a browser: that of a running weir, and that of the collector.
//!
//! [`assets`] are the files, which no build step makes; `ARCHITECTURE.md` has their folders. A [`Guard`] decides who
//! may ask, and tells the browser what it may do with an answer. A client that guesses tokens has to wait (`guesses`).
//! [`query`] reads the parameters of an address. [`Answers`] is a thread that answers one question after the other, and
//! [`body`] sends a few answers at a time.

#![forbid(unsafe_code)]

mod answers;
pub mod assets;
pub mod body;
mod guard;
mod guesses;
pub mod query;
mod token;

pub use self::{
    answers::{Answerer, Answers, Refusal},
    guard::{Advice, Guard},
    token::{Lock, Token, TokenError},
};
