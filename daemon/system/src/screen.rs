//! The standard output of commands. Names in it may come from anywhere, and a terminal would obey control characters in
//! them. So no character that a terminal obeys gets through.
//!
//! A line break in a name would only begin a line of its own. Where that matters, [`escaped`](crate::text::escaped)
//! makes it visible, too.

use std::{
    io::{self, StdoutLock, Write},
    process,
};

use clap::Parser;

use crate::{
    exit::Exit,
    log::say_lines,
    text::{escape_json, escape_lines, is_obeyed},
};

/// Writes to standard output, or to any other writer, line by line.
#[derive(Debug)]
pub struct Screen<W: Write> {
    out: W,
    form: Form,
    /// The line that is not complete yet.
    line: Vec<u8>,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text. Special characters are written as in Rust, `\u{1b}`.
    Text,
    /// Text whose names are clean already, with weir's own colours.
    Colored,
    /// JSON. Special characters are written as JSON does, `\u001b`.
    Json,
}

impl Screen<StdoutLock<'static>> {
    /// Prints on standard output.
    pub fn stdout(form: Form) -> Self {
        Self::new(io::stdout().lock(), form)
    }
}

impl<W: Write> Screen<W> {
    /// Prints on `out`.
    pub const fn new(out: W, form: Form) -> Self {
        Self { out, form, line: Vec::new() }
    }

    /// Writes the first bytes that are waiting.
    fn show(&mut self, bytes: usize) -> io::Result<()> {
        let shown = shown(&self.line[..bytes], self.form);
        self.line.drain(..bytes);
        self.out.write_all(shown.as_bytes())
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            self.show(end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.show(self.line.len())?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        // A caller that wants to know the error flushes before.
        let _ = self.flush();
    }
}

/// Whole lines without characters that a terminal obeys.
fn shown(lines: &[u8], form: Form) -> String {
    let text = String::from_utf8_lossy(lines);
    match form {
        Form::Text => escape_lines(&text),
        Form::Json => escape_json(&text),
        Form::Colored => {
            let mut shown = String::with_capacity(text.len());
            let mut parts = text.split('\x1b');
            shown += &escape_lines(parts.next().unwrap_or_default());
            for part in parts {
                shown += if is_color(part) { "\x1b" } else { "\\u{1b}" };
                shown += &escape_lines(part);
            }
            shown
        }
    }
}

/// Returns true if this goes on with a colour or an emphasis after an escape character (SGR, ECMA-48 section 8.3.117).
fn is_color(rest: &str) -> bool {
    let digits = rest.strip_prefix('[').map(|rest| rest.trim_start_matches(|digit: char| digit.is_ascii_digit()));
    digits.is_some_and(|end| end.starts_with('m'))
}

/// Parses the command line, or ends the program with clap's message. Arguments may be names from outside, such as files
/// that a shell found.
pub fn command_line<T: Parser>() -> T {
    T::try_parse().unwrap_or_else(|error| {
        let text = error.render().to_string();
        if !text.contains(|character| is_obeyed(character) && character != '\n') {
            error.exit();
        }
        say_lines(text.trim_end());
        process::exit(Exit::Usage as i32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(form: Form, parts: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, form);
        for part in parts {
            screen.write_all(part).unwrap();
        }
        drop(screen);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_character_that_a_terminal_obeys_is_printed() {
        let name = "wan\x1b[31m0\u{202e}\u{9b}2J\u{200b}\r\t\u{feff}";
        let text = "wan\\u{1b}[31m0\\u{202e}\\u{9b}2J\\u{200b}\\r\\t\\u{feff}\n";
        assert_eq!(printed(Form::Text, &[name.as_bytes(), b"\n"]), text);
        let json = printed(Form::Json, &[format!("{{\"name\":{}}}\n", serde_json::json!(name)).as_bytes()]);
        assert!(!json.contains(|one| is_obeyed(one) && one != '\n'), "{json:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["name"], name);
    }

    #[test]
    fn characters_and_colours_may_be_written_in_parts() {
        assert_eq!(printed(Form::Text, &["Z\u{fc}rich".as_bytes().split_at(2).0, &[0xbc], b"rich\n"]), "Z\u{fc}rich\n");
        assert_eq!(printed(Form::Text, &[b"\xff\xfe no newline"]), "\u{fffd}\u{fffd} no newline");
        assert_eq!(printed(Form::Colored, &[b"\x1b[", b"1mbold\x1b[0m\n"]), "\x1b[1mbold\x1b[0m\n");
        assert_eq!(printed(Form::Colored, &[b"\x1b[2J\x1b]0;title\x07\x1b"]), "\\u{1b}[2J\\u{1b}]0;title\\u{7}\\u{1b}");
        assert_eq!(printed(Form::Text, &[b"\x1b[1m"]), "\\u{1b}[1m");
    }
}
