//! Aligned columns for a terminal.
//!
//! weir uses no crate for this, because its tables have no borders and no trailing spaces. The rest is padding, and
//! wrapping long texts: `pen::Pen`.

mod pen;

use std::io::{self, Write};

use weir_system::text::escaped;

pub use self::pen::Line;
use self::pen::Pen;

/// The space between two columns.
const GAP: &str = "  ";
/// The minimum width of a wrapped text.
const TEXT_MIN: usize = 16;

/// The emphasis of a text if colour is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Text without emphasis.
    #[default]
    Plain,
    /// Bold text, for headings.
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
    /// A cell with this text; control characters are escaped.
    pub fn new(text: impl AsRef<str>, tone: Tone) -> Self {
        Self { text: escaped(text.as_ref()), tone }
    }

    /// Returns the width in terminal columns. Wide characters (East Asian) count as narrow ones.
    fn width(&self) -> usize {
        self.text.chars().count()
    }

    /// The text, in its tone if `color` is on.
    fn painted(&self, color: bool) -> String {
        match self.tone.sgr().filter(|_| color && !self.text.is_empty()) {
            Some(sgr) => format!("\x1b[{sgr}m{}\x1b[0m", self.text),
            None => self.text.clone(),
        }
    }

    /// Splits the text into words, each in the tone of the cell.
    fn words(&self) -> impl Iterator<Item = Self> + '_ {
        self.text.split_whitespace().map(|word| Self { text: word.to_owned(), tone: self.tone })
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
    /// Flush left, for words.
    Left,
    /// Flush right, for numbers.
    Right,
}

/// Rows whose cells are aligned in columns.
#[derive(Clone, Debug)]
pub struct Grid {
    columns: Vec<Align>,
    rows: Vec<Row>,
    /// How many of the last columns may be left out if there is no room.
    optional: usize,
}

#[derive(Clone, Debug)]
enum Row {
    /// One cell per column; missing columns stay blank.
    Cells(Vec<Cell>),
    /// Text across all columns, which does not widen them.
    Across(Vec<Cell>),
}

/// The layout of a grid in a given width.
struct Shape {
    /// The width of each drawn column.
    widths: Vec<usize>,
    /// The blanks before each column.
    gap: usize,
}

impl Grid {
    /// A grid without rows.
    pub fn new(columns: impl IntoIterator<Item = Align>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new(), optional: 0 }
    }

    /// The same grid. If there is no room, up to this many of the last columns are left out, one by one.
    #[must_use]
    pub const fn with_optional(mut self, columns: usize) -> Self {
        self.optional = columns;
        self
    }

    /// Adds a row with one cell per column; missing columns stay blank.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row::Cells(cells.into_iter().collect()));
    }

    /// Adds text across all columns, which does not widen them.
    pub fn across(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row::Across(cells.into_iter().collect()));
    }

    /// Returns true if there are no rows.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
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

    /// The width of the aligned rows, without the columns that may be left out.
    pub fn least_width(&self) -> usize {
        let mut widths = self.widths();
        widths.truncate(widths.len().saturating_sub(self.optional));
        self.needed(&widths)
    }

    /// The width that these columns need. A text in the last column can be wrapped.
    fn needed(&self, widths: &[usize]) -> usize {
        let is_text = |nth: usize| nth + 1 == widths.len() && self.columns[nth] == Align::Left && nth > 0;
        let needed = |(nth, width): (usize, &usize)| if is_text(nth) { (*width).min(TEXT_MIN) } else { *width };
        widths.iter().enumerate().map(|column| needed(column) + GAP.len()).sum()
    }

    /// The layout for `width`: first the optional columns are left out, then the blanks become narrower.
    fn shape(&self, width: usize) -> Shape {
        let mut widths = self.widths();
        let least = widths.len().saturating_sub(self.optional);
        while widths.len() > least && self.needed(&widths) > width {
            widths.pop();
        }
        let gap = if self.needed(&widths) > width { 1 } else { GAP.len() };
        Shape { widths, gap }
    }

    /// All rows as lines of at most `width` columns, indented by one gap, without trailing spaces. Long texts are
    /// wrapped, numbers never.
    pub fn lines(&self, width: usize, color: bool) -> Vec<Line> {
        let shape = self.shape(width);
        let mut pen = Pen::new(width, color);
        for row in &self.rows {
            match row {
                Row::Cells(cells) => self.draw_cells(cells, &shape, &mut pen),
                Row::Across(cells) => {
                    for cell in cells {
                        pen.wrap(GAP.len(), cell, 2 * GAP.len());
                    }
                }
            }
            pen.end_line();
        }
        pen.into_lines()
    }

    /// Writes all rows in any width.
    ///
    /// # Errors
    ///
    /// `out` cannot be written to.
    pub fn write(&self, color: bool, out: &mut impl Write) -> io::Result<()> {
        self.write_within(usize::MAX, color, out)
    }

    /// Writes all rows in at most `width` columns.
    ///
    /// # Errors
    ///
    /// `out` cannot be written to.
    pub fn write_within(&self, width: usize, color: bool, out: &mut impl Write) -> io::Result<()> {
        for line in self.lines(width, color) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn draw_cells(&self, cells: &[Cell], shape: &Shape, pen: &mut Pen) {
        // Write spaces only when something follows them.
        let mut owed = 0;
        let last = shape.widths.len().saturating_sub(1);
        for (nth, ((cell, width), align)) in cells.iter().zip(&shape.widths).zip(&self.columns).enumerate() {
            let blanks = width - cell.width();
            let (before, after) = if *align == Align::Right { (blanks, 0) } else { (0, blanks) };
            owed += shape.gap + before;
            let inked = Cell { text: cell.text.trim_end().to_owned(), tone: cell.tone };
            let inked_width = inked.width();
            if inked_width > 0 {
                match nth == last && *align == Align::Left {
                    true => pen.wrap(owed, &inked, pen.width() + owed),
                    false => pen.put(owed, &inked),
                }
                owed = 0;
            }
            owed += cell.width() - inked_width + after;
        }
    }
}

/// Puts texts one after the other, in lines of at most `width` columns.
pub fn heading(cells: &[Cell], width: usize, color: bool) -> Vec<Line> {
    const BETWEEN: usize = 3;
    let mut pen = Pen::new(width, color);
    for cell in cells {
        let blanks = if pen.width() > 0 { BETWEEN } else { 0 };
        pen.wrap(blanks, cell, GAP.len());
    }
    pen.end_line();
    pen.into_lines()
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
        assert_eq!(grid.least_width(), 18);
    }

    #[test]
    fn colour_does_not_change_the_layout() {
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
        assert_eq!(text(&grid, true), "  eth0\\u{1b}]0;title\\u{7}\\n\n");
    }

    fn within(grid: &Grid, width: usize) -> Vec<String> {
        grid.lines(width, false).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_without_room_are_left_out_from_the_right() {
        let mut grid = Grid::new([Align::Left, Align::Right, Align::Right, Align::Right]).with_optional(2);
        grid.row(["192.0.2.1", "12 MB", "9.6 Mbit/s", "8.1 k"].map(Cell::from));
        assert_eq!(within(&grid, 80), ["  192.0.2.1  12 MB  9.6 Mbit/s  8.1 k"]);
        assert_eq!(within(&grid, 36), ["  192.0.2.1  12 MB  9.6 Mbit/s"]);
        assert_eq!(within(&grid, 18), ["  192.0.2.1  12 MB"]);
        // The remaining columns are drawn with less space between them.
        assert_eq!((within(&grid, 17), grid.least_width()), (vec![" 192.0.2.1 12 MB".to_owned()], 18));
    }

    #[test]
    fn a_long_text_continues_below_its_column() {
        let mut grid = Grid::new([Align::Right, Align::Left]);
        grid.row(["spool".into(), "three reports that wait for a collector".into()]);
        grid.across([Cell::new("eth0", Tone::Strong), "(uplink)".into(), "TROUBLE: a program runs before it".into()]);
        grid.row(["".into(), "averylongwordthatcannotbebrokenanywhere".into()]);
        let expected = [
            "  spool  three reports that",
            "         wait for a",
            "         collector",
            "  eth0  (uplink)",
            "    TROUBLE: a program runs",
            "    before it",
            "         averylongwordthatcannotbebrokenanywhere",
        ];
        assert_eq!(within(&grid, 27), expected);
    }
}
