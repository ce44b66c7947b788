//! The state of the screen, and the effect of each key.

use std::{collections::VecDeque, net::IpAddr};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use jiff::Timestamp;
use weir_report::{KeyHistory, Live, Report, Second};

use crate::{
    filter::Filter,
    fleet::Fleet,
    history::{History, SECONDS_MAX},
    key::Key,
    list::{By, Entry, List, lists, of_union, with_open},
    names::Names,
    past::{self, Look, Past, SPANS},
    source::{KeyDetails, Request, Update},
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
    /// Which span is shown.
    Span,
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
    /// The newest window of a fleet, if the source is one.
    pub fleet: Option<Fleet>,
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
    pub known: Option<KeyDetails>,
    /// What the history has of that key in an hour, or why it has nothing.
    pub past_of_key: Option<Result<Box<KeyHistory>, String>>,
    /// Whether the source can be asked about keys.
    pub can_ask: bool,
    /// The time that is shown instead of now, and how it was asked for.
    pub past: Option<(Look, Box<Past>)>,
    /// The time that was asked for and has not come yet.
    pub awaited: Option<Look>,
    /// What the source has to be asked for.
    pub requests: Vec<Request>,
    /// Why the last key did nothing.
    pub told: Option<String>,
    /// The updates that have arrived since the screen is held; `None` if it is not held.
    pub held: Option<VecDeque<Update>>,
    /// The names of addresses.
    pub names: Names,
    /// Why the source says nothing.
    pub notice: Option<String>,
    /// Why the source has ended.
    pub ended: Option<String>,
}

impl Screen {
    /// Takes an update of the source. While the screen is held, updates wait, except answers: the user has asked for
    /// them.
    pub fn take(&mut self, update: Update) {
        let is_answer = matches!(update, Update::KeyDetails(_) | Update::Past(..) | Update::PastOfKey(..));
        let Some(waiting) = self.held.as_mut().filter(|_| !is_answer) else { return self.apply(update) };
        // Only the last report is needed, and seconds before it would no longer be visible.
        if matches!(update, Update::Report(_)) {
            waiting.retain(|other| !matches!(other, Update::Report(_) | Update::Live(_)));
        }
        if matches!(update, Update::Live(_)) {
            waiting.retain(|other| !matches!(other, Update::Live(_)));
        }
        let is_short_lived = |other: &Update| matches!(other, Update::Second(_) | Update::Trouble(_));
        if matches!(update, Update::Fleet(_)) {
            waiting.retain(|other| !matches!(other, Update::Fleet(_)));
        }
        if waiting.len() >= SECONDS_MAX
            && let Some(oldest) = waiting.iter().position(is_short_lived)
        {
            waiting.remove(oldest);
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
                self.follow();
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
            Update::KeyDetails(known) => {
                if matches!(&self.focus, Focus::Detail(key, _) if key.question() == known.key) {
                    self.known = Some(known);
                }
            }
            Update::Past(look, past) => self.show_past(look, past),
            Update::PastOfKey(key, past) => {
                if matches!(&self.focus, Focus::Detail(of, _) if of.question() == key) {
                    self.past_of_key = Some(past);
                }
            }
            Update::Fleet(fleet) => {
                let selected = self.selected_key();
                (self.fleet, self.notice) = (Some(*fleet), None);
                self.select(selected.as_ref());
            }
            Update::Trouble(trouble) => self.notice = Some(trouble),
            Update::Ended(why) => self.ended = Some(why),
        }
    }

    /// The open window, if its lists are shown.
    pub fn open(&self) -> Option<&Live> {
        self.live.as_ref().filter(|_| self.past.is_none() && (!self.wants_report || self.report.is_none()))
    }

    /// The time that has passed, if that is shown.
    pub fn past(&self) -> Option<&Past> {
        self.past.as_ref().map(|(_, past)| past.as_ref())
    }

    /// A span that ends now goes on with each window, unless another time is awaited.
    fn follow(&mut self) {
        let (Some((look @ Look::Last(_), past)), Some(report)) = (&self.past, &self.report) else { return };
        if self.awaited.is_none() && past::is_old(&past.union, report.window.end) {
            self.look(*look);
        }
    }

    /// The length of the spans that are stepped over, in seconds; `None` for windows.
    fn length(&self) -> Option<u64> {
        let shown = self.past.as_ref().map(|(look, _)| *look);
        self.awaited.or(shown).and_then(Look::length)
    }

    /// Asks for a time.
    fn look(&mut self, look: Look) {
        if self.awaited != Some(look) {
            self.awaited = Some(look);
            self.requests.push(Request::Past(look));
        }
    }

    fn show_past(&mut self, look: Look, past: Result<Box<Past>, String>) {
        // Another key was pressed since then.
        if self.awaited != Some(look) {
            return;
        }
        self.awaited = None;
        match past {
            Ok(past) => {
                let selected = self.selected_key();
                if past.union.addresses.is_some() {
                    self.names.stop();
                }
                self.past = Some((look, past));
                self.select(selected.as_ref());
            }
            Err(why) => self.told = Some(why),
        }
    }

    /// Shows now again.
    fn leave_past(&mut self) {
        let selected = self.selected_key();
        (self.past, self.awaited) = (None, None);
        self.select(selected.as_ref());
    }

    fn step_back(&mut self) {
        let shown = self.past().map(|past| &past.union);
        // Of the last window, the report is shown already.
        let is_report = self.open().is_none() && self.length().is_none();
        let last = self.report.as_ref().filter(|_| is_report).map(|report| report.window.start);
        self.look(past::back(shown, self.length(), last.unwrap_or(self.now)));
    }

    fn step_forth(&mut self) {
        let newest = self.report.as_ref().map(|report| report.window.end);
        let Some(past) = self.past() else { return self.told = Some("this is now".to_owned()) };
        match past::forth(&past.union, self.length(), newest) {
            Some(look) => self.look(look),
            None if self.length().is_some() => self.told = Some("this ends now".to_owned()),
            None => self.leave_past(),
        }
    }

    /// All lists, and the index of the one that is shown.
    pub fn lists(&self) -> (Vec<List>, usize) {
        if let Some(past) = self.past() {
            let all = of_union(&past.union, self.by);
            let nth = all.iter().position(|list| list.name == self.list).unwrap_or(0);
            return (all, nth);
        }
        let all = self.report.as_ref().map(|report| lists(report, self.by)).unwrap_or_default();
        let all = match (&self.fleet, self.open()) {
            (Some(fleet), _) => fleet.lists(self.by).to_vec(),
            (None, Some(live)) => with_open(all, live, self.by),
            (None, None) => all,
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
        self.told = None;
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
            Focus::Span => self.choose_span(key.code),
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
                    KeyCode::Char('<' | ',' | '>' | '.' | 't') | KeyCode::Home | KeyCode::End => {
                        self.told = Some("another time is chosen in the list: Esc goes back to it".to_owned());
                    }
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
            KeyCode::Char('g') => self.selected = 0,
            KeyCode::Char('G') => self.go_down(usize::MAX),
            KeyCode::Char('<' | ',') => self.step_back(),
            KeyCode::Char('>' | '.') => self.step_forth(),
            KeyCode::Home => self.look(Look::Oldest(self.length())),
            KeyCode::End => self.leave_past(),
            KeyCode::Char('t') => self.focus = Focus::Span,
            KeyCode::Char('/') => self.focus = Focus::Filter(self.filter_text.clone(), None),
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

    /// The digits are the spans, and 0 is now. After any other key, the choice remains.
    fn choose_span(&mut self, code: KeyCode) -> Effect {
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('0') => self.leave_past(),
            KeyCode::Char(digit @ '1'..='9') => {
                let nth = digit.to_digit(10).unwrap_or(0) as usize;
                let Some((seconds, _)) = SPANS.get(nth - 1) else { return Effect::Draw };
                self.look(Look::Last(*seconds));
            }
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Left | KeyCode::Char('t') => {}
            _ => return Effect::Draw,
        }
        self.focus = Focus::List;
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

    fn open_detail(&mut self) {
        let Some(row) = self.selected_key() else { return };
        let (lists, nth) = self.lists();
        let Some(list) = lists.get(nth) else { return };
        let (key, to) = (row.question(), self.past().map(|past| past.union.window.end));
        if self.can_ask && to.is_none() {
            self.requests.push(Request::Key { key: key.clone(), is_open: list.is_open });
        }
        self.requests.push(Request::PastOfKey { key, view: list.view.clone(), to });
        (self.focus, self.known, self.past_of_key) = (Focus::Detail(row, 0), None, None);
    }

    fn switch_names(&mut self) {
        if self.names.is_on() {
            self.names.stop();
        } else if self.is_masked() {
            self.told = Some("these addresses are masked: they have no names".to_owned());
        } else {
            self.names.start();
        }
    }

    /// Whether the addresses are masked.
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
        let selected = self.selected_key();
        self.wants_report = self.past.is_some() || !self.wants_report;
        (self.past, self.awaited) = (None, None);
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
    use crate::{history::tests::second, past::tests::past, picture::press};

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
        assert_eq!(text, "proto:tcp port:web");
        assert!(why.starts_with("\"web\" is no port"), "{why}");
        press(&mut screen, "\x1b");
        assert_eq!((screen.shown_rows().len(), screen.focus.clone()), (1, Focus::List), "it was not accepted");
        press(&mut screen, "\x1b");
        assert_eq!(screen.shown_rows().len(), 4);
    }

    #[test]
    fn enter_asks_for_everything_about_the_row() {
        let mut screen = screen();
        let question = "proto=udp,port=443".to_owned();
        press(&mut screen, "5↓\n");
        let past = Request::PastOfKey { key: question.clone(), view: None, to: None };
        assert_eq!(screen.requests, std::slice::from_ref(&past), "a replay knows only what it reported");
        screen.can_ask = true;
        screen.requests.clear();
        press(&mut screen, "\x1b\n");
        assert_eq!(screen.requests, [Request::Key { key: question.clone(), is_open: false }, past]);
        let known = |key: &str| KeyDetails { key: key.to_owned(), rows: Err("none".to_owned()), seconds: 10.0 };
        screen.take(Update::KeyDetails(known("proto=tcp,port=1")));
        assert!(screen.known.is_none(), "this answer is about an earlier question");
        screen.take(Update::KeyDetails(known(&question)));
        assert!(screen.known.is_some());
        assert_eq!(press(&mut screen, "\x1b"), Effect::Draw);
        assert_eq!(screen.focus, Focus::List);
    }

    fn asked(screen: &mut Screen) -> Option<Look> {
        let requests = std::mem::take(&mut screen.requests);
        assert!(requests.len() < 2, "{requests:?}");
        requests.into_iter().next().map(|request| match request {
            Request::Past(look) => look,
            other => panic!("{other:?}"),
        })
    }

    /// Answers the last request.
    fn answer(screen: &mut Screen, past: Result<Past, &str>) {
        let look = screen.awaited.unwrap();
        screen.take(Update::Past(look, past.map(Box::new).map_err(str::to_owned)));
    }

    #[test]
    fn keys_step_over_windows_and_spans_and_back_to_now() {
        let mut screen = screen();
        press(&mut screen, ".");
        assert!(screen.told.is_some() && screen.requests.is_empty());
        press(&mut screen, "<<");
        let last = golden().window;
        assert_eq!(asked(&mut screen), Some(Look::WindowBefore(last.start)), "its report is shown already; asked once");
        answer(&mut screen, Ok(past()));
        assert_eq!(screen.past().unwrap().union, past().union);
        let (start, end) = (past().union.window.start, past().union.window.end);
        press(&mut screen, ",");
        assert_eq!(asked(&mut screen), Some(Look::WindowBefore(start)));
        answer(&mut screen, Err("no window of this time is known"));
        assert!(screen.past().is_some() && screen.told.is_some(), "what was shown stays");
        press(&mut screen, "t4");
        assert_eq!(asked(&mut screen), Some(Look::Last(3600)));
        answer(&mut screen, Err("no window of this time is known"));
        assert_eq!(screen.length(), None, "windows are shown, so they are stepped over");
        press(&mut screen, ".");
        assert_eq!((asked(&mut screen), screen.told.clone()), (Some(Look::WindowAfter(end)), None));
        press(&mut screen, "⇲");
        answer_late(&mut screen, Look::WindowAfter(end));
        assert!(screen.past().is_none(), "now was chosen meanwhile");
        press(&mut screen, "⇱");
        assert_eq!(asked(&mut screen), Some(Look::Oldest(None)));
        press(&mut screen, "t3");
        assert_eq!((asked(&mut screen), screen.length()), (Some(Look::Last(1200)), Some(1200)));
        answer(&mut screen, Ok(past()));
        press(&mut screen, "<");
        assert_eq!(asked(&mut screen), Some(Look::SpanBefore { to: start, seconds: 1200 }));
        press(&mut screen, ">");
        assert_eq!(asked(&mut screen), Some(Look::Last(1200)));
        press(&mut screen, "⇱");
        assert_eq!(asked(&mut screen), Some(Look::Oldest(Some(1200))));
        answer(&mut screen, Ok(past()));
        press(&mut screen, "w");
        assert!(screen.past().is_none() && screen.length().is_none() && screen.wants_report);
        press(&mut screen, "t0\x1bt\x1b");
        assert_eq!((asked(&mut screen), screen.focus.clone()), (None, Focus::List));
        press(&mut screen, "t6x");
        assert_eq!((asked(&mut screen), screen.focus.clone()), (None, Focus::Span), "there is no such span");
    }

    fn answer_late(screen: &mut Screen, look: Look) {
        screen.take(Update::Past(look, Ok(Box::new(past()))));
    }

    #[test]
    fn a_span_that_ends_now_goes_on_with_each_window_and_others_stay() {
        let mut screen = screen();
        press(&mut screen, "t2");
        asked(&mut screen);
        answer(&mut screen, Ok(past()));
        screen.take(Update::Report(Box::new(golden())));
        assert_eq!(asked(&mut screen), Some(Look::Last(300)));
        answer(&mut screen, Ok(past()));
        press(&mut screen, "<");
        asked(&mut screen);
        answer(&mut screen, Ok(past()));
        screen.take(Update::Report(Box::new(golden())));
        assert_eq!(asked(&mut screen), None);
    }

    #[test]
    fn a_new_window_does_not_replace_the_time_that_the_user_has_asked_for() {
        let mut screen = screen();
        press(&mut screen, "t2");
        asked(&mut screen);
        answer(&mut screen, Ok(past()));
        press(&mut screen, "<");
        let before = asked(&mut screen);
        screen.take(Update::Report(Box::new(golden())));
        assert_eq!((asked(&mut screen), screen.awaited), (None, before));
        answer(&mut screen, Ok(past()));
        assert_eq!(screen.past.map(|(look, _)| look), before);
    }

    #[test]
    fn a_row_of_a_time_that_has_passed_is_asked_of_that_time() {
        let mut screen = Screen { can_ask: true, ..screen() };
        press(&mut screen, "<");
        asked(&mut screen);
        answer(&mut screen, Ok(past()));
        press(&mut screen, "3\n");
        let key = screen.past().unwrap().union.top.pairs[0];
        let key = format!("src_ip={},dst_ip={}", key.src_ip, key.dst_ip);
        let to = Some(past().union.window.end);
        assert_eq!(screen.requests, [Request::PastOfKey { key, view: None, to }]);
    }

    #[test]
    fn a_time_is_chosen_in_the_list_and_not_beside_a_row() {
        let mut screen = screen();
        for key in ["<", ">", ",", ".", "t", "⇱", "⇲"] {
            press(&mut screen, "\n");
            screen.requests.clear();
            press(&mut screen, key);
            assert!(screen.told.as_ref().is_some_and(|told| told.contains("Esc")), "{key}");
            assert!(matches!(screen.focus, Focus::Detail(..)) && screen.requests.is_empty(), "{key}");
            press(&mut screen, "\x1b");
        }
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
    fn a_held_screen_takes_the_answers_that_the_user_asks_for() {
        let mut screen = Screen { can_ask: true, ..screen() };
        press(&mut screen, " <");
        answer(&mut screen, Ok(past()));
        assert!(screen.past().is_some() && screen.held.is_some());
        press(&mut screen, "⇲\n");
        let Focus::Detail(key, _) = screen.focus.clone() else { panic!("{:?}", screen.focus) };
        screen.take(Update::PastOfKey(key.question(), Err("none".to_owned())));
        screen.take(Update::KeyDetails(KeyDetails {
            key: key.question(),
            rows: Err("none".to_owned()),
            seconds: 10.0,
        }));
        assert!(screen.known.is_some() && screen.past_of_key.is_some());
    }

    #[test]
    fn a_screen_that_is_held_for_long_keeps_the_last_report() {
        let mut screen = screen();
        press(&mut screen, " ");
        screen.take(Update::Report(Box::new(Report { id: "later".to_owned(), ..golden() })));
        for nth in 0..SECONDS_MAX as i64 + 10 {
            screen.take(Update::Second(second(nth, &[("eth0", 1, 1)])));
        }
        assert_eq!(screen.held.as_ref().map(VecDeque::len), Some(SECONDS_MAX));
        press(&mut screen, " ");
        assert_eq!(screen.report.as_ref().map(|report| report.id.as_str()), Some("later"));
    }

    #[test]
    fn the_name_of_a_masked_address_is_never_looked_up() {
        let mut screen = screen();
        press(&mut screen, "d");
        assert!(!screen.names.is_on());
        assert!(screen.told.as_ref().unwrap().contains("masked"), "{:?}", screen.told);
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
