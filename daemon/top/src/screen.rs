//! The state of the screen: what the source has told, and which part of it is shown.

mod keys;

use std::{collections::VecDeque, net::IpAddr};

use jiff::Timestamp;
use weir_config::view::Standard;
use weir_schema::{KeyHistory, Live, Report, Second, lists::name_of};

use crate::{
    filter::Filter,
    fleet::Fleet,
    history::{History, SECONDS_MAX},
    key::Key,
    list::{By, Entry, List, lists, of_union, with_open},
    names::Names,
    past::{self, Look, Past},
    source::{KeyDetails, Request, Update},
    words::beginning,
};

/// The lists of the last report are shown until the open window is this old, in seconds.
const OPEN_SECONDS: f64 = 1.0;

/// The effect of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Draw the screen again.
    Draw,
    /// End the program.
    Quit,
}

/// The part of the screen that has the keyboard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The list of keys.
    #[default]
    List,
    /// What is being typed, the text so far, and its error.
    Typed(Input, String, Option<String>),
    /// The detail view of a row, and how far it is scrolled.
    Detail(Key, usize),
    /// Which span is shown, and where the choice leads back to.
    Span(Box<Focus>),
    /// The help, and how far it is scrolled.
    Help(usize),
}

/// What a user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The filter of the rows.
    Filter,
    /// The time to show.
    Time,
}

impl Focus {
    /// Returns the focus that is drawn above the menu of spans.
    pub fn behind(&self) -> &Self {
        match self {
            Self::Span(before) => before,
            focus => focus,
        }
    }
}

/// A row as it is shown.
#[derive(Clone, Debug)]
pub struct Row {
    /// The row of the report.
    pub entry: Entry,
    /// The key as text: one text, or two for a source and a destination.
    pub shown: Vec<String>,
}

/// The state of the screen.
#[derive(Default)]
pub struct Screen {
    /// The kind of source.
    pub kind: String,
    /// The time that the numbers are about.
    pub now: Timestamp,
    /// The rates of the last seconds.
    pub history: History,
    /// The last second that the source has sent.
    pub second: Option<Second>,
    /// The last report that the source has sent.
    pub report: Option<Report>,
    /// The open window so far, if it has been open for a while.
    pub live: Option<Live>,
    /// The newest window of a fleet, if the source is one.
    pub fleet: Option<Fleet>,
    /// True if the user wants the lists of the last report instead.
    pub wants_report: bool,
    /// The order of the lists.
    pub by: By,
    /// The name of the list that is shown. If there is no such list, the first one is shown.
    pub list: String,
    /// The index of the selected row.
    pub selected: usize,
    /// True if the user chose that row. Otherwise the first row is selected, whichever key it has.
    pub is_chosen: bool,
    /// The filter of the rows.
    pub filter: Filter,
    /// The filter as it was typed.
    pub filter_text: String,
    /// The part that has the keyboard.
    pub focus: Focus,
    /// The source's answer about the key of [`Focus::Detail`].
    pub known: Option<KeyDetails>,
    /// The history's answer about that key in an hour, or the reason why it has none.
    pub past_of_key: Option<Result<Box<KeyHistory>, String>>,
    /// True if the source can be asked about keys.
    pub can_ask: bool,
    /// The time that is shown instead of now, and how it was asked for.
    pub past: Option<(Look, Box<Past>)>,
    /// The time that was asked for and has not come yet.
    pub awaited: Option<Look>,
    /// The requests that the source has not received yet.
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
            Update::Names(names) => self.names.know(names),
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
                if matches!(self.focus.behind(), Focus::Detail(key, _) if key.question() == known.key) {
                    self.known = Some(known);
                }
            }
            Update::Past(look, past) => self.show_past(look, past),
            Update::PastOfKey(key, past) => {
                if matches!(self.focus.behind(), Focus::Detail(of, _) if of.question() == key) {
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

    /// The open window, if the list that is shown is one of its lists.
    pub fn open_of_list(&self) -> Option<&Live> {
        let (lists, nth) = self.lists();
        self.open().filter(|_| lists.get(nth).is_some_and(|list| list.is_open))
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
                // A span that follows now is still the same list.
                let is_same = self.past.as_ref().is_some_and(|(shown, _)| *shown == look);
                let selected = self.selected_key().filter(|_| is_same);
                if past.union.addresses.is_some() {
                    self.names.stop();
                }
                self.past = Some((look, past));
                if is_same {
                    return self.select(selected.as_ref());
                }
                self.select_first();
                self.ask_about_row();
            }
            Err(why) => {
                let began = self.past().and_then(|past| past.history.reaches_back_to.windows);
                let is_back = matches!(look, Look::WindowBefore(_) | Look::SpanBefore { .. });
                let told = began.filter(|_| is_back).map(|began| format!("the {}", beginning(began, self.now)));
                self.told = Some(told.unwrap_or(why));
            }
        }
    }

    /// Goes back to the present.
    fn leave_past(&mut self) {
        self.awaited = None;
        if self.past.take().is_some() {
            self.select_first();
            self.ask_about_row();
        }
    }

    fn step_back(&mut self) {
        let shown = self.past().map(|past| &past.union);
        // The report of the last window is shown already.
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

    /// The index of the list that is shown: the one that the user has chosen, or else the first. If there are no own
    /// addresses, a list of hosts that nobody has chosen is passed over.
    fn chosen(&self, all: &[List]) -> usize {
        let named = all.iter().position(|list| list.name == self.list);
        let is_of_use = |list: &List| list.name != name_of(Standard::Hosts).name || !list.entries.is_empty();
        named.or_else(|| all.iter().position(is_of_use)).unwrap_or(0)
    }

    /// All lists, and the index of the one that is shown.
    pub fn lists(&self) -> (Vec<List>, usize) {
        if let Some(past) = self.past() {
            let all = of_union(&past.union, self.by);
            let nth = self.chosen(&all);
            return (all, nth);
        }
        let all = self.report.as_ref().map(|report| lists(report, self.by)).unwrap_or_default();
        let all = match (&self.fleet, self.open()) {
            (Some(fleet), _) => fleet.lists(self.by).to_vec(),
            (None, Some(live)) => with_open(all, live, self.by),
            (None, None) => all,
        };
        let nth = self.chosen(&all);
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

    /// The text of a key, with the names of its addresses if they are known.
    pub fn named(&mut self, key: &Key) -> Vec<String> {
        let known: Vec<(IpAddr, String)> =
            key.hosts().filter_map(|address| Some((address, self.names.of(address)?.to_owned()))).collect();
        let is_alone = key.host().is_some();
        key.show(&|address| match known.iter().find(|(of, _)| *of == address) {
            Some((_, name)) if is_alone => format!("{name}  {address}"),
            Some((_, name)) => name.clone(),
            None => address.to_string(),
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

    /// Selects the first row.
    fn select_first(&mut self) {
        (self.selected, self.is_chosen) = (0, false);
    }

    /// Selects the row with this key, if the user chose it. If there is none, selects the row in the same place, or the
    /// last one.
    fn select(&mut self, key: Option<&Key>) {
        if !self.is_chosen {
            return self.select_first();
        }
        let rows = self.shown_rows();
        let nth = key.and_then(|key| rows.iter().position(|row| row.entry.key == *key));
        self.selected = nth.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
    }
}

#[cfg(test)]
pub mod tests;
