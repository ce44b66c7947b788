//! Prints the text of the demo: explanations, and JSON that fits a terminal.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
};

use anyhow::Result;
use serde::Serialize;
pub use weir_system::numbers::grouped as thousands;

/// The widest line of JSON, in columns.
const WIDTH: usize = 96;

/// Returns true if standard output shows colours.
pub fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn styled(code: &str, text: &str) -> String {
    if color() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A line of narration: its topic and its text.
///
/// # Errors
///
/// The errors of standard output, as for all functions here.
pub fn step(what: &str, text: impl Display) -> Result<()> {
    write(&format!("  {} {text}", styled("1", &format!("{what:<8}"))))
}

/// A heading with a rule.
pub fn heading(text: &str) -> Result<()> {
    let rule = "─".repeat(WIDTH.saturating_sub(text.chars().count() + 4));
    write(&format!("\n{} {} {}\n", styled("2", "──"), styled("1", text), styled("2", &rule)))
}

/// Writes a line unchanged.
pub fn write(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// The first lines of a report's JSON, and how to see a whole one.
pub fn beginning(json: &str, lines: usize) -> String {
    let left = json.lines().count().saturating_sub(lines);
    let shown: Vec<_> = json.lines().take(lines).collect();
    let shown = shown.join("\n");
    if left == 0 {
        return shown;
    }
    format!(
        "{shown}\n\n  ... and {left} more lines. A whole report:\n  \
         target/quick/weir replay --json tests/corpus/demo.pcap"
    )
}

/// Formats JSON so that each value that fits a line is on one line; fields keep their order.
///
/// # Errors
///
/// The errors of serialising `value`.
pub fn json(value: &impl Serialize) -> Result<String> {
    let pretty = serde_json::to_string_pretty(value)?;
    let lines: Vec<_> = pretty.lines().collect();
    let mut folded = Vec::new();
    fold(&lines, &mut folded);
    Ok(folded.join("\n"))
}

/// Each value in `lines` (at the indent of the first one) becomes one line, if it fits. Neighbours that fit together
/// share a line, except for the objects of a list.
fn fold(lines: &[&str], folded: &mut Vec<String>) {
    let mut rest = lines;
    let mut shared = false;
    while !rest.is_empty() {
        let (value, others) = rest.split_at(value_lines(rest));
        rest = others;
        let line = join(value);
        let sharing = !line.trim_start().starts_with('{');
        match folded.last_mut() {
            Some(last) if shared && sharing && width(last) + 1 + width(line.trim_start()) <= WIDTH => {
                last.push(' ');
                last.push_str(line.trim_start());
                continue;
            }
            _ if width(&line) <= WIDTH => {
                shared = sharing;
                folded.push(line);
            }
            _ => {
                shared = false;
                fold_long(value, folded);
            }
        }
    }
}

/// Formats a value that takes several lines. The objects of a list have no separate lines for their braces.
fn fold_long(value: &[&str], folded: &mut Vec<String>) {
    let [open, inner @ .., close] = value else {
        folded.extend(value.iter().map(|line| (*line).to_owned()));
        return;
    };
    let from = folded.len() + 1;
    folded.push((*open).to_owned());
    fold(inner, folded);
    if open.starts_with(' ') && open.trim_start() == "{" && folded.len() > from {
        let first = folded.remove(from);
        folded[from - 1].push_str(first.trim_start());
        if let Some(last) = folded.last_mut() {
            last.push_str(close.trim_start());
        }
    } else {
        folded.push((*close).to_owned());
    }
}

/// How many lines the first value has.
fn value_lines(lines: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    match lines {
        [first, rest @ ..] if first.ends_with(['{', '[']) => {
            let end = rest.iter().position(|line| indent(line) == indent(first));
            end.map_or(lines.len(), |end| end + 2)
        }
        _ => 1,
    }
}

fn join(lines: &[&str]) -> String {
    let Some((first, rest)) = lines.split_first() else { return String::new() };
    let mut line = (*first).to_owned();
    for part in rest {
        if line.ends_with(',') {
            line.push(' ');
        }
        line.push_str(part.trim_start());
    }
    line
}

fn width(line: &str) -> usize {
    line.chars().count()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn json_keeps_its_meaning_and_the_width() {
        let numbers: Vec<_> = (0..100).map(|n| [n, n * n]).collect();
        let value = serde_json::json!({"short": {"a": 1}, "numbers": numbers, "list": [{"name": "x".repeat(60)}, {"name": "y".repeat(60)}]});
        let text = json(&value).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        // A closing brace may follow.
        assert!(text.lines().all(|line| width(line) <= WIDTH + 2), "{text}");
        assert!(text.lines().count() < 30, "{text}");
        assert_eq!(beginning(&text, 30), text);
        assert!(beginning(&text, 2).starts_with(&text.lines().take(2).collect::<Vec<_>>().join("\n")));
    }
}
