//! Writes cells into lines of a limited width.

use std::fmt;

use super::{Cell, TEXT_MIN};

/// The text of a line, and its width in columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    text: String,
    width: usize,
}

impl Line {
    /// Returns the width in columns.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Appends blanks, and another line.
    pub fn append(&mut self, blanks: usize, other: &Self) {
        if other.width > 0 {
            self.text.extend(std::iter::repeat_n(' ', blanks));
            self.text += &other.text;
            self.width += blanks + other.width;
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Writes one cell after the other.
#[derive(Debug)]
pub struct Pen {
    width: usize,
    color: bool,
    done: Vec<Line>,
    line: Line,
}

impl Pen {
    /// A pen for lines of at most `width` columns.
    pub const fn new(width: usize, color: bool) -> Self {
        Self { width, color, done: Vec::new(), line: Line { text: String::new(), width: 0 } }
    }

    /// The width of the line so far.
    pub const fn width(&self) -> usize {
        self.line.width
    }

    /// Puts a cell into the line, after this many blanks.
    pub fn put(&mut self, blanks: usize, cell: &Cell) {
        self.line.append(blanks, &Line { text: cell.painted(self.color), width: cell.width() });
    }

    /// Puts a cell into the line if it fits, otherwise into the next lines, indented by `indent`.
    pub fn wrap(&mut self, blanks: usize, cell: &Cell, indent: usize) {
        let fits = |at: usize, cell: &Cell| at.saturating_add(cell.width()) <= self.width;
        if fits(self.line.width + blanks, cell) {
            return self.put(blanks, cell);
        }
        let indent = indent.min(self.width.saturating_sub(TEXT_MIN));
        let starts_at = self.line.width + blanks;
        if starts_at != indent && fits(indent, cell) {
            self.next_line();
            return self.put(indent, cell);
        }
        let mut blanks = if starts_at > indent && self.line.width > 0 {
            self.next_line();
            indent
        } else {
            blanks
        };
        for word in cell.words() {
            if self.line.width > indent && self.line.width + blanks + word.width() > self.width {
                self.next_line();
                blanks = indent;
            }
            self.put(blanks, &word);
            blanks = 1;
        }
    }

    /// Ends the line, which may be empty.
    pub fn end_line(&mut self) {
        self.done.push(std::mem::take(&mut self.line));
    }

    /// Ends the line if it is not empty.
    fn next_line(&mut self) {
        if self.line.width > 0 {
            self.end_line();
        }
    }

    /// All lines that have ended.
    pub fn into_lines(self) -> Vec<Line> {
        self.done
    }
}
