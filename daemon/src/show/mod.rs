//! Prints the results of commands for people: a report, several windows together, the reports of a replay, and the
//! status of a running weir.
//!
//! [`past`] prints what the history has of keys and lists, [`pager`] shows text that is longer than the screen, and
//! [`resolve`] finds the addresses of names.

pub mod pager;
pub mod past;
pub mod replayed;
pub mod report;
pub mod resolve;
pub mod status;

use std::io::{self, IsTerminal, StdoutLock};

use serde_json::value::RawValue;
use thiserror::Error;
use weir_schema::{FromJson, Style};
use weir_system::screen::{self, Screen};

use crate::control::client::AskError;

/// Why there is nothing to show.
#[derive(Debug, Error)]
pub enum ShowError {
    /// The running weir gives no answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The answer cannot be parsed: the running weir may be older or newer.
    #[error("the version of the running weir differs from this one: {0}")]
    Foreign(#[from] serde_json::Error),
    /// The output cannot be written.
    #[error("cannot write")]
    Write(#[from] io::Error),
}

/// How a report is shown.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// True for JSON.
    pub json: bool,
    /// The whole report, not only one screen.
    pub full: bool,
}

/// The style of standard output.
pub fn style() -> Style {
    let out = io::stdout();
    let is_terminal = out.is_terminal();
    Style::of_terminal(&out, is_terminal)
}

/// Standard output for tables, whose cells are clean and may have colours.
pub fn tables() -> Screen<StdoutLock<'static>> {
    Screen::stdout(if style().color { screen::Form::Colored } else { screen::Form::Text })
}

/// Parses an answer of the running weir.
///
/// # Errors
///
/// The running weir has another version.
pub fn understood<T: FromJson>(answer: &RawValue) -> Result<T, ShowError> {
    Ok(T::from_json(answer.get().as_bytes())?)
}
