//! Formats texts and errors for messages.

use std::{error::Error, iter::successors};

/// How many characters of a foreign text a message quotes.
const QUOTED_MAX: usize = 60;

/// The beginning of a text, long enough to recognise the text.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns true if a terminal would obey this character instead of showing it: control characters, line breaks, and
/// characters that change the direction of the text around them (Unicode's bidirectional controls) or have no width, so
/// that two names look the same. A text from outside may have them, so every text is printed with [`escaped`] or one of
/// those below.
pub fn is_obeyed(character: char) -> bool {
    let is_invisible = matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    is_invisible || character.is_control()
}

/// Makes a text safe to print on a terminal, in one line: special characters are written as in Rust, `\u{1b}`.
pub fn escaped(text: &str) -> String {
    escaped_but(text, None)
}

/// Makes a text of several lines safe to print on a terminal, as [`escaped`] does.
pub fn escape_lines(text: &str) -> String {
    escaped_but(text, Some('\n'))
}

fn escaped_but(text: &str, kept: Option<char>) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if !is_obeyed(character) || Some(character) == kept {
            line.push(character);
        } else if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.extend(character.escape_unicode());
        }
    }
    line
}

/// Makes JSON safe to print on a terminal: special characters are written as `\u202e`, which means the same. Keeps line
/// breaks, which are between values: JSON itself escapes those in texts.
pub fn escape_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        if is_obeyed(character) && character != '\n' {
            for unit in character.encode_utf16(&mut [0; 2]) {
                safe += &format!("\\u{unit:04x}");
            }
        } else {
            safe.push(character);
        }
    }
    safe
}

/// An error, followed by its cause, the cause of that, and so on.
pub fn causes<'e>(error: &'e (dyn Error + 'e)) -> impl Iterator<Item = &'e (dyn Error + 'e)> {
    successors(Some(error), |&error| error.source())
}

/// An error and all its causes in one line.
pub fn with_causes(error: &dyn Error) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("up\x1b[31m\u{202e}7\n\t\u{9b}"), "up\\u{1b}[31m\\u{202e}7\\n\\t\\u{9b}");
        for plain in ["Zürich – Köln", "上行", "עברית", "C:\\path \"quoted\""] {
            assert_eq!(escaped(plain), plain);
        }
        assert_eq!(escape_lines("a\r\nb\u{200b}\n"), "a\\r\nb\\u{200b}\n");
        assert_eq!(escape_json("\"\u{7f}\u{202e}\u{e0041}\"\n"), "\"\\u007f\\u202e\\udb40\\udc41\"\n");
    }

    #[test]
    fn an_error_is_shown_with_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct TestError(&'static str, #[source] Option<io::Error>);
        let cause = TestError("cannot open the ring", Some(io::Error::other("too many open files")));
        assert_eq!(with_causes(&cause), "cannot open the ring: too many open files");
        assert_eq!(with_causes(&TestError("alone", None)), "alone");
    }
}
