//! An area of the screen that is drawn line by line.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use crate::text::width;

/// Blanks between two words of a line.
pub const GAP: usize = 2;

/// A text in a style.
pub struct Piece {
    pub text: String,
    pub style: Style,
}

impl Piece {
    /// A text in a style.
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

/// Lines from the top to the bottom of an area.
pub struct Sheet<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    next: u16,
}

impl<'b> Sheet<'b> {
    /// Makes an empty sheet.
    pub fn new(buffer: &'b mut Buffer, area: Rect) -> Self {
        Self { buffer, area, next: 0 }
    }

    /// The number of columns.
    pub const fn columns(&self) -> usize {
        self.area.width as usize
    }

    /// The number of lines that are left.
    pub const fn left(&self) -> usize {
        self.area.height.saturating_sub(self.next) as usize
    }

    /// Writes the next line. One that does not fit is cut off, and ends with `…`.
    pub fn line(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        if self.left() == 0 {
            return;
        }
        let (mut x, y, end) = (self.area.x, self.area.y + self.next, self.area.right());
        let pieces: Vec<Piece> = pieces.into_iter().collect();
        let text: String = pieces.iter().map(|piece| &*piece.text).collect();
        let is_cut = width(text.trim_end()) > self.columns();
        for Piece { text, style } in pieces {
            let room = end.saturating_sub(x) as usize;
            (x, _) = self.buffer.set_stringn(x, y, &text, room, style);
        }
        if is_cut && end > self.area.x {
            self.buffer.set_stringn(end - 1, y, "…", 1, Style::new());
        }
        self.next += 1;
    }

    /// Gives the whole last line this style.
    pub fn restyle(&mut self, style: Style) {
        if self.next > 0 {
            self.buffer.set_style(Rect { y: self.area.y + self.next - 1, height: 1, ..self.area }, style);
        }
    }

    /// Writes all of these pieces, two blanks apart, in as many lines as they need.
    pub fn wrap(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        let (mut line, mut used) = (Vec::new(), 0);
        for piece in pieces {
            let more = width(&piece.text) + GAP;
            // The last piece of a line needs no blanks after it.
            if used + more > self.columns() + GAP && used > 0 {
                self.line(std::mem::take(&mut line));
                used = 0;
            }
            used += more;
            line.extend([piece, Piece::new(" ".repeat(GAP), Style::new())]);
        }
        self.line(line);
    }

    /// Writes as many of these pieces as fit in a line, two blanks apart. A piece that does not fit is left out.
    pub fn words(&mut self, pieces: impl IntoIterator<Item = Piece>) {
        let (mut used, mut fitting) = (0, Vec::new());
        for piece in pieces {
            let more = width(&piece.text) + if used > 0 { GAP } else { 0 };
            if used + more > self.columns() && used > 0 {
                continue;
            }
            if used > 0 {
                fitting.push(Piece::new(" ".repeat(GAP), Style::new()));
            }
            used += more;
            fitting.push(piece);
        }
        self.line(fitting);
    }
}
