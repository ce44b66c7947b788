//! Fits texts into columns.

use ratatui::text::Span;

/// The width of a text in columns.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The text in at most this many columns; a longer one ends with `…`.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut short = String::new();
    for character in text.chars() {
        if width(&short) + width(character.encode_utf8(&mut [0; 4])) + 1 > columns {
            break;
        }
        short.push(character);
    }
    if columns > 0 { short + "…" } else { short }
}

/// The text in lines of at most this many columns. A longer word has a line of its own.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| width(line) + 1 + width(word) <= columns) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The text in exactly this many columns, aligned left.
pub fn left(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let blanks = columns.saturating_sub(width(&text));
    text + &" ".repeat(blanks)
}

/// The text in exactly this many columns, aligned right.
pub fn right(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    " ".repeat(columns.saturating_sub(width(&text))) + &text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_exactly_the_given_columns() {
        assert_eq!((left("eth0", 6), right("eth0", 6)), ("eth0  ".to_owned(), "  eth0".to_owned()));
        assert_eq!((fit("interface", 5), fit("eth0", 4), fit("eth0", 0)), ("inte…".into(), "eth0".into(), "".into()));
        // A character of two columns that does not fit in one.
        assert_eq!((fit("上行上行", 4), left("上行上行", 4)), ("上…".to_owned(), "上… ".to_owned()));
    }

    #[test]
    fn a_long_text_is_wrapped_between_words() {
        assert_eq!(wrapped("no window of this time", 11), ["no window", "of this", "time"]);
        assert_eq!((wrapped("window", 2), wrapped("a b", 80)), (vec!["window".to_owned()], vec!["a b".to_owned()]));
    }
}
