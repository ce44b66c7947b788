//! Prints what a command answers.

use std::{
    fmt,
    io::{self, Write as _},
};

use thiserror::Error;
use weir_system::{
    exit::Exit,
    screen::{Form, Screen},
    text::escaped,
};

use super::failure::Failure;

/// Standard output cannot be written.
#[derive(Debug, Error)]
#[error("cannot write to standard output")]
pub(super) struct OutputError(#[from] pub(super) io::Error);

pub(super) fn print(text: impl fmt::Display) -> Result<Exit, Failure> {
    print_as(Form::Text, text)
}

/// Prints one line. A name in it cannot begin another line.
pub(super) fn print_line(text: impl fmt::Display) -> Result<Exit, Failure> {
    print(escaped(&text.to_string()))
}

pub(super) fn print_json(json: impl fmt::Display) -> Result<Exit, Failure> {
    print_as(Form::Json, json)
}

fn print_as(form: Form, text: impl fmt::Display) -> Result<Exit, Failure> {
    writeln!(Screen::stdout(form), "{text}").map_err(OutputError::from)?;
    Ok(Exit::Done)
}
