//! Aligned columns for a terminal.
//!
//! No crate, because these tables have no borders, no wrapping and no trailing spaces. What is left is padding, which
//! takes some thirty lines here.

use std::io::{self, Write};

use weir_system::text::visible;

/// The space between two columns.
const GAP: &str = "  ";

/// The emphasis of a text where colour is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// No emphasis.
    #[default]
    Plain,
    /// Bold: a heading.
    Strong,
    /// Faint: captions and bounds.
    Faint,
    /// Red: something is wrong.
    Alarm,
}

impl Tone {
    /// The SGR parameter (ECMA-48 section 8.3.117), if any.
    const fn sgr(self) -> Option<u8> {
        match self {
            Self::Plain => None,
            Self::Strong => Some(1),
            Self::Faint => Some(2),
            Self::Alarm => Some(31),
        }
    }
}

/// A text with its tone, without control characters.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell with this text; control characters are replaced.
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: text.as_ref().chars().map(visible).collect(), tone }
    }

    /// Its width in terminal columns. Wide characters (East Asian) count as narrow ones.
    fn width(&self) -> usize {
        self.text.chars().count()
    }

    /// Writes the text, in its tone if `color` is on.
    ///
    /// # Errors
    ///
    /// `out` returns one.
    pub fn write(&self, color: bool, out: &mut impl Write) -> io::Result<()> {
        match self.tone.sgr().filter(|_| color && !self.text.is_empty()) {
            Some(sgr) => write!(out, "\x1b[{sgr}m{}\x1b[0m", self.text),
            None => write!(out, "{}", self.text),
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// The side to which a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Rows whose cells are aligned in columns.
#[derive(Clone, Debug)]
pub struct Grid {
    columns: Vec<Align>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
enum Row {
    /// One cell per column; missing columns stay blank.
    Cells(Vec<Cell>),
    /// Text across all columns, which does not widen them.
    Across(Vec<Cell>),
}

impl Grid {
    /// A grid without rows.
    pub fn new(columns: impl IntoIterator<Item = Align>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row with one cell per column; missing columns stay blank.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row::Cells(cells.into_iter().collect()));
    }

    /// Adds text across all columns, which does not widen them.
    pub fn across(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row::Across(cells.into_iter().collect()));
    }

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.columns.len()];
        for row in &self.rows {
            let Row::Cells(cells) = row else { continue };
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = (*width).max(cell.width());
            }
        }
        widths
    }

    /// The width of the aligned rows.
    pub fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP.len() * widths.len()
    }

    /// Writes all rows, indented by one gap, without trailing spaces.
    ///
    /// # Errors
    ///
    /// `out` returns one.
    pub fn write(&self, color: bool, out: &mut impl Write) -> io::Result<()> {
        let widths = self.widths();
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.write_cells(cells, &widths, color, out)?,
                Row::Across(cells) => {
                    for cell in cells.iter().filter(|cell| !cell.text.is_empty()) {
                        out.write_all(GAP.as_bytes())?;
                        cell.write(color, out)?;
                    }
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_cells(&self, cells: &[Cell], widths: &[usize], color: bool, out: &mut impl Write) -> io::Result<()> {
        // Spaces are written only when something follows them.
        let mut owed = 0;
        for ((cell, width), align) in cells.iter().zip(widths).zip(&self.columns) {
            let blanks = width - cell.width();
            let (before, after) = if *align == Align::Right { (blanks, 0) } else { (0, blanks) };
            owed += GAP.len() + before;
            let inked = Cell { text: cell.text.trim_end().to_owned(), tone: cell.tone };
            if !inked.text.is_empty() {
                write!(out, "{:owed$}", "")?;
                inked.write(color, out)?;
                owed = 0;
            }
            owed += cell.width() - inked.width() + after;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(grid: &Grid, color: bool) -> String {
        let mut out = Vec::new();
        grid.write(color, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let mut grid = Grid::new([Align::Left, Align::Right, Align::Left]);
        grid.across(["a line that is wider than all columns".into()]);
        grid.row(["µs".into(), "1".into(), "".into()]);
        grid.row(["second".into(), "1,000".into(), "x".into()]);
        grid.row(["".into(), "20  ".into(), "y".into()]);
        grid.row(["".into(), "3  ".into(), "".into()]);
        let expected = "  a line that is wider than all columns\n  µs          1\n  second  1,000  x\n           20    y\n            3\n";
        assert_eq!(text(&grid, false), expected);
        assert_eq!(grid.width(), 18);
    }

    #[test]
    fn colour_moves_nothing() {
        let mut grid = Grid::new([Align::Left, Align::Right, Align::Left]);
        for tone in [Tone::Plain, Tone::Strong, Tone::Faint, Tone::Alarm] {
            grid.row([Cell::new(format!("{tone:?}"), tone), Cell::new("1", tone), Cell::new("", tone)]);
        }
        let mut colored = text(&grid, true);
        for sgr in ["\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"] {
            assert!(colored.contains(sgr), "{sgr:?}");
            colored = colored.replace(sgr, "");
        }
        assert_eq!(colored, text(&grid, false));
        assert!(!text(&grid, false).contains('\x1b'));
    }

    #[test]
    fn a_terminal_gets_no_control_characters_from_a_report() {
        let mut grid = Grid::new([Align::Left]);
        grid.row(["eth0\x1b]0;title\x07\n".into()]);
        assert_eq!(text(&grid, true), "  eth0\u{fffd}]0;title\u{fffd}\u{fffd}\n");
    }
}
