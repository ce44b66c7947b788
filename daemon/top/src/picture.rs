//! The screen as text, for tests of sources: without a terminal and without colours.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    draw::{Paint, draw},
    screen::{Effect, Screen},
    source::Update,
};

/// Draws a screen of so many columns and lines at this time, after these updates and keys.
pub fn picture(
    updates: impl IntoIterator<Item = Update>,
    keys: &str,
    now: Timestamp,
    (columns, lines): (u16, u16),
) -> String {
    let mut screen = Screen { now, kind: "live".to_owned(), can_ask: true, ..Screen::default() };
    for update in updates {
        screen.take(update);
    }
    press(&mut screen, keys);
    let area = Rect::new(0, 0, columns, lines);
    let mut buffer = Buffer::empty(area);
    draw(&mut screen, &mut buffer, area, Paint::new(false));
    text(&buffer)
}

/// Presses keys, which are named by a character each.
pub fn press(screen: &mut Screen, keys: &str) -> Effect {
    let mut effect = Effect::Draw;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '⇱' => KeyCode::Home,
            '⇲' => KeyCode::End,
            other => KeyCode::Char(other),
        };
        effect = screen.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

/// Lines without the blanks at their ends.
pub fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y| {
        let cells = (0..area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..area.height).map(line).collect()
}
