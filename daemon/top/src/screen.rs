//! The state of the screen, and the effect of each key.

use std::{collections::VecDeque, net::IpAddr};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use jiff::Timestamp;
use weir_report::{Live, Report, Second};

use crate::{
    filter::Filter,
    history::{History, SECONDS_MAX},
    key::Key,
    list::{By, Entry, List, lists, with_open},
    names::Names,
    source::{Known, Update},
};

/// The longest filter, in characters.
const FILTER_MAX: usize = 200;
/// The lists of the last report are shown until the open window is this old, in seconds.
const OPEN_SECONDS: f64 = 1.0;
/// How many rows a page key moves.
const PAGE: usize = 10;

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Only draw.
    Draw,
    /// End.
    Quit,
    /// Ask the source about this key, in the open window so far or in the last one.
    Ask(String, bool),
}

/// The part of the screen that has the keyboard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The list.
    #[default]
    List,
    /// The filter that is being typed, and its error.
    Filter(String, Option<String>),
    /// The detail view of a row, and how far it is scrolled.
    Detail(Key, usize),
    /// The help.
    Help,
}

/// A row as it is shown.
#[derive(Clone, Debug)]
pub struct Row {
    /// The entry.
    pub entry: Entry,
    /// Its key: one text, or two for a source and a destination.
    pub shown: Vec<String>,
}

/// The state of the screen.
#[derive(Default)]
pub struct Screen {
    /// The kind of source.
    pub kind: String,
    /// The time that the numbers are about.
    pub now: Timestamp,
    /// The last seconds.
    pub history: History,
    /// The last second.
    pub second: Option<Second>,
    /// The last report.
    pub report: Option<Report>,
    /// The open window so far, if it has been open for a while.
    pub live: Option<Live>,
    /// Whether the user wants the lists of the last report instead.
    pub wants_report: bool,
    /// The order of the lists.
    pub by: By,
    /// The name of the list that is shown. If there is no such list, the first one is shown.
    pub list: String,
    /// Which of the shown rows is selected.
    pub selected: usize,
    /// The filter of the rows.
    pub filter: Filter,
    /// The filter as it was typed.
    pub filter_text: String,
    /// The part that has the keyboard.
    pub focus: Focus,
    /// The source's answer about the key of [`Focus::Detail`].
    pub known: Option<Known>,
    /// Whether the source can be asked about keys.
    pub can_ask: bool,
    /// The updates that have arrived since the screen is held; `None` if it is not held.
    pub held: Option<VecDeque<Update>>,
    /// The names of addresses.
    pub names: Names,
    /// A message for the user: a problem with the source, or why a key had no effect.
    pub notice: Option<String>,
    /// Why the source has ended.
    pub ended: Option<String>,
}

impl Screen {
    /// Takes an update of the source. While the screen is held, updates wait.
    pub fn take(&mut self, update: Update) {
        let Some(waiting) = &mut self.held else { return self.apply(update) };
        // Only the last report is needed, and seconds before it would no longer be visible.
        if matches!(update, Update::Report(_)) {
            waiting.retain(|other| !matches!(other, Update::Report(_) | Update::Live(_)));
        }
        if matches!(update, Update::Live(_)) {
            waiting.retain(|other| !matches!(other, Update::Live(_)));
        }
        if waiting.len() >= SECONDS_MAX {
            waiting.pop_front();
        }
        waiting.push_back(update);
    }

    fn apply(&mut self, update: Update) {
        match update {
            Update::Second(second) => {
                self.history.add(&second);
                self.second = Some(second);
                self.notice = None;
            }
            Update::Report(report) => {
                let selected = self.selected_key();
                if report.addresses.is_some() {
                    self.names.stop();
                }
                // This is the report of the window that was open until now.
                (self.report, self.live) = (Some(*report), None);
                self.select(selected.as_ref());
            }
            Update::Live(live) => {
                let selected = self.selected_key();
                if live.addresses.is_some() {
                    self.names.stop();
                }
                // A window that has just begun has nothing to show yet.
                self.live = (live.window.seconds >= OPEN_SECONDS || self.report.is_none()).then_some(*live);
                self.select(selected.as_ref());
            }
            Update::Known(known) => {
                if matches!(&self.focus, Focus::Detail(key, _) if key.question() == known.key) {
                    self.known = Some(known);
                }
            }
            Update::Trouble(trouble) => self.notice = Some(trouble),
            Update::Ended(why) => self.ended = Some(why),
        }
    }

    /// The open window, if its lists are shown.
    pub fn open(&self) -> Option<&Live> {
        self.live.as_ref().filter(|_| !self.wants_report || self.report.is_none())
    }

    /// All lists, and the index of the one that is shown.
    pub fn lists(&self) -> (Vec<List>, usize) {
        let all = self.report.as_ref().map(|report| lists(report, self.by)).unwrap_or_default();
        let all = match self.open() {
            Some(live) => with_open(all, live, self.by),
            None => all,
        };
        let nth = all.iter().position(|list| list.name == self.list).unwrap_or(0);
        (all, nth)
    }

    /// The rows of a list that pass the filter.
    pub fn rows(&mut self, list: &List) -> Vec<Row> {
        let mut rows = Vec::new();
        for entry in &list.entries {
            let plain = entry.key.show(&|address| address.to_string());
            let shown = self.named(&entry.key);
            let text = format!("{} {}", plain.join(" "), shown.join(" "));
            if self.filter.passes(&entry.key, &text) {
                rows.push(Row { entry: entry.clone(), shown });
            }
        }
        rows
    }

    /// The text of a key, with the names of its addresses if the user wants them and they are known.
    pub fn named(&mut self, key: &Key) -> Vec<String> {
        let known: Vec<(IpAddr, String)> =
            key.hosts().filter_map(|address| Some((address, self.names.of(address)?.to_owned()))).collect();
        key.show(&|address| {
            let name = known.iter().find(|(of, _)| *of == address).map(|(_, name)| name.clone());
            name.unwrap_or_else(|| address.to_string())
        })
    }

    fn shown_rows(&mut self) -> Vec<Row> {
        let (lists, nth) = self.lists();
        lists.get(nth).map(|list| self.rows(list)).unwrap_or_default()
    }

    fn selected_key(&mut self) -> Option<Key> {
        let selected = self.selected;
        self.shown_rows().into_iter().nth(selected).map(|row| row.entry.key)
    }

    /// Selects the row with this key. If there is none, selects the row in the same place, or the last one.
    fn select(&mut self, key: Option<&Key>) {
        let rows = self.shown_rows();
        let nth = key.and_then(|key| rows.iter().position(|row| row.entry.key == *key));
        self.selected = nth.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // In raw mode these keys cause no signal.
            let ends = matches!(key.code, KeyCode::Char('c' | 'd' | '\\'));
            return if ends { Effect::Quit } else { Effect::Draw };
        }
        match &mut self.focus {
            Focus::Filter(text, _) => {
                let text = std::mem::take(text);
                self.type_filter(text, key.code);
                Effect::Draw
            }
            Focus::Help => {
                self.focus = Focus::List;
                if key.code == KeyCode::Char('q') { Effect::Quit } else { Effect::Draw }
            }
            Focus::Detail(_, scrolled) => {
                match key.code {
                    KeyCode::Up | KeyCode::Char('k') => *scrolled = scrolled.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => *scrolled += 1,
                    KeyCode::PageUp => *scrolled = scrolled.saturating_sub(PAGE),
                    KeyCode::PageDown => *scrolled += PAGE,
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
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.go_down(1),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::PageDown => self.go_down(PAGE),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.go_down(usize::MAX),
            KeyCode::Char('/') => self.focus = Focus::Filter(self.filter_text.clone(), None),
            KeyCode::Esc => self.set_filter(String::new(), Filter::default()),
            KeyCode::Enter => return self.open_detail(),
            code => return self.press_anywhere(code),
        }
        Effect::Draw
    }

    fn press_anywhere(&mut self, code: KeyCode) -> Effect {
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?' | 'h') => self.focus = Focus::Help,
            KeyCode::Char('b') => self.order(By::Bytes),
            KeyCode::Char('p') => self.order(By::Packets),
            KeyCode::Char('d') => self.switch_names(),
            KeyCode::Char('w') => self.switch_window(),
            KeyCode::Char(' ') => self.hold(),
            _ => {}
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
            self.selected = 0;
        }
    }

    fn go_down(&mut self, rows: usize) {
        let last = self.shown_rows().len().saturating_sub(1);
        self.selected = self.selected.saturating_add(rows).min(last);
    }

    fn order(&mut self, by: By) {
        let selected = self.selected_key();
        self.by = by;
        self.select(selected.as_ref());
    }

    fn type_filter(&mut self, mut text: String, code: KeyCode) {
        match code {
            KeyCode::Esc => return self.focus = Focus::List,
            KeyCode::Enter => match Filter::parse(&text) {
                Ok(filter) => {
                    self.focus = Focus::List;
                    return self.set_filter(text, filter);
                }
                Err(why) => return self.focus = Focus::Filter(text, Some(why)),
            },
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(character) if text.chars().count() < FILTER_MAX => text.push(character),
            _ => {}
        }
        self.focus = Focus::Filter(text, None);
    }

    fn set_filter(&mut self, text: String, filter: Filter) {
        let selected = self.selected_key();
        (self.filter_text, self.filter) = (text, filter);
        self.select(selected.as_ref());
    }

    fn open_detail(&mut self) -> Effect {
        let Some(key) = self.selected_key() else { return Effect::Draw };
        let question = key.question();
        (self.focus, self.known) = (Focus::Detail(key, 0), None);
        let (lists, nth) = self.lists();
        Effect::Ask(question, lists.get(nth).is_some_and(|list| list.is_open))
    }

    fn switch_names(&mut self) {
        if self.names.is_on() {
            self.names.stop();
        } else if self.is_masked() {
            self.notice = Some("these addresses are masked: they have no names".to_owned());
        } else {
            self.names.start();
        }
    }

    /// Whether the addresses are masked.
    fn is_masked(&self) -> bool {
        let known = self.report.as_ref().map(|report| &report.addresses);
        known.or(self.live.as_ref().map(|live| &live.addresses)).is_some_and(Option::is_some)
    }

    fn switch_window(&mut self) {
        let selected = self.selected_key();
        self.wants_report = !self.wants_report;
        self.select(selected.as_ref());
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::history::tests::second;

    /// The golden report, which has masked addresses.
    pub fn golden() -> Report {
        serde_json::from_str(include_str!("../../report/tests/golden/report.json")).unwrap()
    }

    pub fn screen() -> Screen {
        let report = golden();
        let mut screen = Screen { now: report.window.end, kind: "live".to_owned(), ..Screen::default() };
        screen.take(Update::Report(Box::new(report)));
        screen
    }

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
                other => KeyCode::Char(other),
            };
            effect = screen.press(KeyEvent::new(code, KeyModifiers::NONE));
        }
        effect
    }

    fn selected(screen: &mut Screen) -> String {
        let key = screen.selected_key().unwrap();
        key.show(&|address| address.to_string()).join(" ")
    }

    #[test]
    fn numbers_and_tab_choose_the_list() {
        let mut screen = screen();
        for (keys, name) in [("3", "pairs"), ("\t", "flows"), ("9", "scans"), ("0", "ports"), ("1", "sources")] {
            press(&mut screen, keys);
            assert_eq!(screen.list, name);
        }
        let (lists, _) = screen.lists();
        screen.press(KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT));
        assert_eq!(screen.list, lists.last().unwrap().name, "from the first list to the last");
    }

    #[test]
    fn a_row_stays_selected_when_the_next_report_has_it_elsewhere() {
        let mut screen = screen();
        press(&mut screen, "4↓↓");
        let key = selected(&mut screen);
        let mut report = golden();
        report.top.flows.remove(0);
        screen.take(Update::Report(Box::new(report)));
        assert_eq!((selected(&mut screen), screen.selected), (key, 1));
        press(&mut screen, "↓↓↓↓↓");
        assert_eq!(screen.selected, 2, "the last one");
        press(&mut screen, "↑p");
        assert_eq!(screen.by, By::Packets);
    }

    #[test]
    fn a_filter_is_typed_corrected_and_cleared() {
        let mut screen = screen();
        press(&mut screen, "4/proto:tpc\n");
        assert_eq!(screen.shown_rows().len(), 0);
        press(&mut screen, "/\x08\x08cp\n");
        assert_eq!((screen.shown_rows().len(), screen.filter_text.as_str()), (1, "proto:tcp"));
        press(&mut screen, "/ port:web\n");
        let Focus::Filter(text, Some(why)) = &screen.focus else { panic!("{:?}", screen.focus) };
        assert_eq!((text.as_str(), why.as_str()), ("proto:tcp port:web", "\"web\" is no port"));
        press(&mut screen, "\x1b");
        assert_eq!((screen.shown_rows().len(), screen.focus.clone()), (1, Focus::List), "it was not accepted");
        press(&mut screen, "\x1b");
        assert_eq!(screen.shown_rows().len(), 4);
    }

    #[test]
    fn enter_asks_for_everything_about_the_row() {
        let mut screen = screen();
        let Effect::Ask(question, false) = press(&mut screen, "5↓\n") else { panic!() };
        assert_eq!(question, "proto=udp,port=443");
        let known = |key: &str| Known { key: key.to_owned(), rows: Err("none".to_owned()), seconds: 10.0 };
        screen.take(Update::Known(known("proto=tcp,port=1")));
        assert!(screen.known.is_none(), "this answer is about an earlier question");
        screen.take(Update::Known(known(&question)));
        assert!(screen.known.is_some());
        assert_eq!(press(&mut screen, "\x1b"), Effect::Draw);
        assert_eq!(screen.focus, Focus::List);
    }

    #[test]
    fn a_held_screen_does_not_change_and_misses_nothing() {
        let mut screen = screen();
        press(&mut screen, " ");
        for nth in 0..5 {
            screen.take(Update::Second(second(nth, &[("eth0", 1, 1)])));
        }
        let (before, mut later) = (golden(), golden());
        later.id = "later".to_owned();
        for report in [before, later] {
            screen.take(Update::Report(Box::new(report)));
        }
        assert_eq!(
            (screen.history.lines().len(), screen.report.as_ref().unwrap().id.as_str()),
            (0, "7f3c9a52/b41d/42")
        );
        press(&mut screen, " ");
        assert_eq!((screen.history.lines()[0].rates.len(), screen.report.as_ref().unwrap().id.as_str()), (5, "later"));
    }

    #[test]
    fn the_name_of_a_masked_address_is_never_looked_up() {
        let mut screen = screen();
        press(&mut screen, "d");
        assert!(!screen.names.is_on());
        assert!(screen.notice.as_ref().unwrap().contains("masked"), "{:?}", screen.notice);
    }

    #[test]
    fn all_usual_keys_end_the_program() {
        for keys in ["q", "?q", "4\nq"] {
            assert_eq!(press(&mut screen(), keys), Effect::Quit, "{keys:?}");
        }
        let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for focus in [Focus::List, Focus::Filter(String::new(), None), Focus::Help] {
            let mut screen = Screen { focus, ..screen() };
            assert_eq!(screen.press(control), Effect::Quit);
        }
        assert_eq!(press(&mut screen(), "/q"), Effect::Draw, "here q is a letter of the filter");
    }
}
