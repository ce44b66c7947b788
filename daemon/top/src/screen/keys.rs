//! The effect of each key.

use std::collections::VecDeque;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use jiff::SignedDuration;
use weir_config::TypedTime;

use super::{Effect, Focus, Input, Screen};
use crate::{
    filter::Filter,
    list::{By, List},
    past::{Look, SPANS},
    source::Request,
};

/// The longest text that can be typed, in characters.
const TYPED_MAX: usize = 200;
/// How many rows a page key moves.
const PAGE: usize = 10;

/// Scrolls with the keys for that. Returns whether this is one of them.
fn scroll(scrolled: &mut usize, code: KeyCode) -> bool {
    *scrolled = match code {
        KeyCode::Up | KeyCode::Char('k') => scrolled.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => *scrolled + 1,
        KeyCode::PageUp => scrolled.saturating_sub(PAGE),
        KeyCode::PageDown => *scrolled + PAGE,
        _ => return false,
    };
    true
}

impl Screen {
    /// Reacts to a key of the keyboard.
    pub fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::Draw;
        }
        self.told = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // In raw mode these keys cause no signal.
            let ends = matches!(key.code, KeyCode::Char('c' | 'd' | '\\'));
            return if ends { Effect::Quit } else { Effect::Draw };
        }
        match &mut self.focus {
            Focus::Typed(input, text, _) => {
                let (input, text) = (*input, std::mem::take(text));
                self.type_text(input, text, key.code);
                Effect::Draw
            }
            Focus::Span(before) => {
                let before = std::mem::take(&mut **before);
                self.choose_span(before, key.code)
            }
            Focus::Help(scrolled) => {
                if !scroll(scrolled, key.code) {
                    self.focus = Focus::List;
                }
                if key.code == KeyCode::Char('q') { Effect::Quit } else { Effect::Draw }
            }
            Focus::Detail(_, scrolled) => {
                match key.code {
                    code if scroll(scrolled, code) => {}
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left => self.focus = Focus::List,
                    code => return self.press_anywhere(code),
                }
                Effect::Draw
            }
            Focus::List => self.press_in_list(key.code),
        }
    }

    fn press_in_list(&mut self, code: KeyCode) -> Effect {
        match code {
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(-1),
            KeyCode::Char(digit @ '0'..='9') => self.show_list(digit),
            KeyCode::Up | KeyCode::Char('k') => self.go_to(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go_to(self.selected.saturating_add(1)),
            KeyCode::PageUp => self.go_to(self.selected.saturating_sub(PAGE)),
            KeyCode::PageDown => self.go_to(self.selected.saturating_add(PAGE)),
            KeyCode::Char('g') => self.select_first(),
            KeyCode::Char('G') => self.go_to(usize::MAX),
            KeyCode::Char('/') => self.focus = Focus::Typed(Input::Filter, self.filter_text.clone(), None),
            KeyCode::Esc if self.filter.is_empty() => self.leave_past(),
            KeyCode::Esc => self.set_filter(String::new(), Filter::default()),
            KeyCode::Enter => self.open_detail(),
            code => return self.press_anywhere(code),
        }
        Effect::Draw
    }

    fn press_anywhere(&mut self, code: KeyCode) -> Effect {
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?' | 'h') => self.focus = Focus::Help(0),
            KeyCode::Char('<' | ',') => self.step_back(),
            KeyCode::Char('>' | '.') => self.step_forth(),
            KeyCode::Home => self.look(Look::Oldest(self.length())),
            KeyCode::End => self.leave_past(),
            KeyCode::Char('t') => {
                let before = std::mem::take(&mut self.focus);
                self.focus = Focus::Span(Box::new(before));
            }
            KeyCode::Char('@') if self.fleet.is_some() => {
                self.told = Some("a fleet has no past here: only its newest window".to_owned());
            }
            KeyCode::Char('@') => self.focus = Focus::Typed(Input::Time, String::new(), None),
            KeyCode::Char('b') => self.order(By::Bytes),
            KeyCode::Char('p') => self.order(By::Packets),
            KeyCode::Char('d') => self.switch_names(),
            KeyCode::Char('w') => self.switch_window(),
            KeyCode::Char(' ') => self.hold(),
            KeyCode::Char(other) => self.told = Some(format!("{other} does nothing here: ? shows all keys")),
            _ => {}
        }
        Effect::Draw
    }

    /// The digits are the spans, and 0 is now. After any other key, the choice remains.
    fn choose_span(&mut self, before: Focus, code: KeyCode) -> Effect {
        self.focus = before.clone();
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('0') => self.leave_past(),
            KeyCode::Char(digit @ '1'..='9') => {
                let nth = digit.to_digit(10).unwrap_or(0) as usize;
                match SPANS.get(nth - 1) {
                    Some((seconds, _)) => self.look(Look::Last(*seconds)),
                    None => self.focus = Focus::Span(Box::new(before)),
                }
            }
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left | KeyCode::Char('t') => {}
            _ => self.focus = Focus::Span(Box::new(before)),
        }
        Effect::Draw
    }

    fn turn(&mut self, by: isize) {
        let (lists, nth) = self.lists();
        let next = (nth as isize + by).rem_euclid(lists.len().max(1) as isize);
        self.show_nth(&lists, next as usize);
    }

    /// Shows a list: 1 to 9 are the first nine lists, and 0 is the tenth.
    fn show_list(&mut self, digit: char) {
        let digit = digit.to_digit(10).unwrap_or(0) as usize;
        let (lists, _) = self.lists();
        self.show_nth(&lists, (digit + 9) % 10);
    }

    fn show_nth(&mut self, lists: &[List], nth: usize) {
        if let Some(list) = lists.get(nth) {
            self.list.clone_from(&list.name);
            self.select_first();
        }
    }

    /// Chooses a row, or the last one. Moving to the first row selects the position, not the key.
    fn go_to(&mut self, row: usize) {
        self.selected = row.min(self.shown_rows().len().saturating_sub(1));
        self.is_chosen = self.selected > 0;
    }

    fn order(&mut self, by: By) {
        if self.by != by {
            self.by = by;
            self.select_first();
        }
    }

    fn type_text(&mut self, input: Input, mut text: String, code: KeyCode) {
        match code {
            KeyCode::Esc => return self.focus = Focus::List,
            KeyCode::Enter => {
                let accepted = match input {
                    Input::Filter => Filter::parse(&text).map(|filter| self.set_filter(text.clone(), filter)),
                    Input::Time => TypedTime::parse(text.trim()).map(|time| self.look_at(time)),
                };
                return self.focus = accepted.map_or_else(|why| Focus::Typed(input, text, Some(why)), |()| Focus::List);
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(character) if text.chars().count() < TYPED_MAX => text.push(character),
            _ => {}
        }
        self.focus = Focus::Typed(input, text, None);
    }

    /// Shows the window or the span that begins at this time. Without a date, that is the last such time of day.
    fn look_at(&mut self, time: TypedTime) {
        let today = time.today(self.now);
        let yesterday = || self.now.checked_sub(SignedDuration::from_hours(24)).map_or(today, |day| time.today(day));
        let from = if today > self.now { yesterday() } else { today };
        self.look(self.length().map_or(Look::WindowAfter(from), |seconds| Look::SpanAfter { from, seconds }));
    }

    fn set_filter(&mut self, text: String, filter: Filter) {
        let selected = self.selected_key();
        (self.filter_text, self.filter) = (text, filter);
        self.select(selected.as_ref());
    }

    fn open_detail(&mut self) {
        let Some(row) = self.selected_key() else { return };
        self.focus = Focus::Detail(row, 0);
        self.ask_about_row();
    }

    /// Asks about the row of the detail view, at the time that is shown.
    pub(super) fn ask_about_row(&mut self) {
        let (lists, nth) = self.lists();
        let (Focus::Detail(row, _), Some(list)) = (self.focus.behind(), lists.get(nth)) else { return };
        let (key, to) = (row.question(), self.past().map(|past| past.union.window.end));
        if self.can_ask && to.is_none() {
            self.requests.push(Request::Key { key: key.clone(), is_open: list.is_open });
        }
        self.requests.push(Request::PastOfKey { key, view: list.view.clone(), to });
        (self.known, self.past_of_key) = (None, None);
    }

    fn switch_names(&mut self) {
        if self.names.is_on() {
            self.names.stop();
            self.told = Some("names off".to_owned());
        } else if self.is_masked() {
            self.told = Some("these addresses are masked: they have no names".to_owned());
        } else {
            self.names.start();
            self.told = Some("names on: an address that your resolver has no name for stays as it is".to_owned());
        }
    }

    /// Returns true if the addresses are masked.
    fn is_masked(&self) -> bool {
        let past = self.past().map(|past| &past.union.addresses);
        let known = past.or(self.report.as_ref().map(|report| &report.addresses));
        known.or(self.live.as_ref().map(|live| &live.addresses)).is_some_and(Option::is_some)
    }

    fn switch_window(&mut self) {
        if self.fleet.is_some() {
            return self.told =
                Some("a fleet has no open window: routers report a window when it has ended".to_owned());
        }
        self.wants_report = self.past.is_some() || !self.wants_report;
        self.leave_past();
        self.select_first();
    }

    fn hold(&mut self) {
        match self.held.take() {
            Some(waiting) => {
                for update in waiting {
                    self.apply(update);
                }
            }
            None => self.held = Some(VecDeque::new()),
        }
    }
}
