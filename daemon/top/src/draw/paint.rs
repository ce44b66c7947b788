//! Colours. The text alone always has the same meaning.

use std::env;

use ratatui::style::{Color, Modifier, Style};

/// The styles of the screen.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    color: bool,
}

impl Paint {
    /// With colours, unless the environment has `NO_COLOR` (<https://no-color.org>).
    pub fn from_env() -> Self {
        Self::new(env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    /// With or without colours.
    pub const fn new(color: bool) -> Self {
        Self { color }
    }

    fn colored(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// The style of plain text.
    pub const fn plain(self) -> Style {
        Style::new()
    }

    /// The most important text.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of captions and units.
    pub fn faint(self) -> Style {
        self.colored(Color::DarkGray)
    }

    /// The style of bars and sparklines.
    pub fn bar(self) -> Style {
        self.colored(Color::Cyan)
    }

    /// The style of normal values.
    pub fn good(self) -> Style {
        self.colored(Color::Green)
    }

    /// The style of warnings.
    pub fn warning(self) -> Style {
        self.colored(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// The style of problems.
    pub fn alarm(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// The style of the selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}
