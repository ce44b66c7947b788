//! Tests of the state of the screen, and of its keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use weir_schema::Length;

use super::*;
use crate::{history::tests::second, past::tests::past, picture::press};

/// The golden report, which has masked addresses.
pub fn golden() -> Report {
    serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap()
}

pub fn screen() -> Screen {
    let report = golden();
    let (now, kind, list) = (report.window.end, "live".to_owned(), "sources".to_owned());
    let mut screen = Screen { now, kind, list, ..Screen::default() };
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
    for (keys, name) in [("4", "pairs"), ("\t", "flows"), ("9", "floods"), ("0", "scans"), ("1", "hosts")] {
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
    press(&mut screen, "5↓↓");
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

/// The report with its rows of sources in the other order.
fn reordered() -> Report {
    let mut report = golden();
    report.top.sources.reverse();
    report
}

#[test]
fn a_cursor_that_nobody_moved_stays_on_the_first_row() {
    let mut screen = screen();
    let before = selected(&mut screen);
    screen.take(Update::Report(Box::new(reordered())));
    assert_eq!(screen.selected, 0);
    assert_ne!(selected(&mut screen), before);
    press(&mut screen, "↓↑");
    screen.take(Update::Report(Box::new(golden())));
    assert_eq!((screen.selected, selected(&mut screen)), (0, before), "up to the first row is the first row");
}

#[test]
fn another_time_list_or_order_begins_at_the_first_row() {
    for keys in ["t1", "<", "p", "3", "\t", "w"] {
        let mut screen = screen();
        press(&mut screen, "↓");
        assert_eq!(screen.selected, 1);
        press(&mut screen, keys);
        if screen.awaited.is_some() {
            let mut past = past();
            past.union.top.sources.reverse();
            answer(&mut screen, Ok(past));
        }
        assert_eq!((screen.selected, screen.is_chosen), (0, false), "{keys}");
    }
    // The same span, read again, is followed.
    let mut screen = screen();
    press(&mut screen, "t1");
    answer(&mut screen, Ok(past()));
    press(&mut screen, "↓");
    let key = selected(&mut screen);
    screen.take(Update::Report(Box::new(golden())));
    let mut later = past();
    later.union.top.sources.reverse();
    answer(&mut screen, Ok(later));
    assert_eq!((screen.selected, selected(&mut screen)), (0, key));
    press(&mut screen, "⇲");
    assert!(!screen.is_chosen);
}

#[test]
fn a_filter_is_typed_corrected_and_cleared() {
    let mut screen = screen();
    press(&mut screen, "5/proto:tpc\n");
    assert_eq!(screen.shown_rows().len(), 0);
    press(&mut screen, "/\x08\x08cp\n");
    assert_eq!((screen.shown_rows().len(), screen.filter_text.as_str()), (1, "proto:tcp"));
    press(&mut screen, "/ port:99999\n");
    let Focus::Typed(Input::Filter, text, Some(why)) = &screen.focus else { panic!("{:?}", screen.focus) };
    assert_eq!(text, "proto:tcp port:99999");
    assert!(why.starts_with("\"99999\" is not a port"), "{why}");
    press(&mut screen, "\x1b");
    assert_eq!((screen.shown_rows().len(), screen.focus.clone()), (1, Focus::List), "it was not accepted");
    press(&mut screen, "\x1b");
    assert_eq!(screen.shown_rows().len(), 4);
}

#[test]
fn a_typed_time_is_shown_and_a_wrong_one_corrected() {
    let mut screen = screen();
    screen.now = "2026-11-20T08:00:00Z".parse().unwrap();
    let at = |text: &str| text.parse().unwrap();
    press(&mut screen, "@07:15\n");
    assert_eq!(asked(&mut screen), Some(Look::WindowAfter(at("2026-11-20T07:15:00Z"))));
    press(&mut screen, "@23:15\n");
    assert_eq!(asked(&mut screen), Some(Look::WindowAfter(at("2026-11-19T23:15:00Z"))), "the last one was yesterday");
    press(&mut screen, "@2026-11-13 8\n");
    let Focus::Typed(Input::Time, text, Some(why)) = &screen.focus else { panic!("{:?}", screen.focus) };
    assert!(text == "2026-11-13 8" && why.contains("such as 14:30"), "{why}");
    press(&mut screen, "\x0808:00\n");
    assert_eq!(screen.focus, Focus::List);
    assert_eq!(asked(&mut screen), Some(Look::WindowAfter(at("2026-11-13T08:00:00Z"))));
    press(&mut screen, "t4");
    asked(&mut screen);
    press(&mut screen, "@07:00\n");
    let from = at("2026-11-20T07:00:00Z");
    assert_eq!(asked(&mut screen), Some(Look::SpanAfter { from, seconds: 3600 }), "spans stay as long as they were");
}

#[test]
fn enter_asks_for_everything_about_the_row() {
    let mut screen = screen();
    let question = "proto=udp,port=443".to_owned();
    press(&mut screen, "6↓\n");
    let past = Request::PastOfKey { key: question.clone(), view: None, to: None };
    assert_eq!(screen.requests, std::slice::from_ref(&past), "a replay knows only what it reported");
    screen.can_ask = true;
    screen.requests.clear();
    press(&mut screen, "\x1b\n");
    assert_eq!(screen.requests, [Request::Key { key: question.clone(), is_open: false }, past]);
    let known =
        |key: &str| KeyDetails { key: key.to_owned(), rows: Err("none".to_owned()), seconds: Length::new(10.0) };
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
    answer(&mut screen, Err("there is no data for this time"));
    assert!(screen.past().is_some() && screen.told.is_some(), "what was shown stays");
    press(&mut screen, "t4");
    assert_eq!(asked(&mut screen), Some(Look::Last(3600)));
    answer(&mut screen, Err("there is no data for this time"));
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
    assert_eq!(
        (asked(&mut screen), screen.focus.clone()),
        (None, Focus::Span(Box::new(Focus::List))),
        "there is no such span"
    );
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
    press(&mut screen, "4\n");
    let key = screen.past().unwrap().union.top.pairs[0];
    let key = format!("src_ip={},dst_ip={}", key.src_ip, key.dst_ip);
    let to = Some(past().union.window.end);
    assert_eq!(screen.requests, [Request::PastOfKey { key, view: None, to }]);
}

#[test]
fn another_time_of_a_row_is_chosen_beside_it() {
    let mut screen = Screen { can_ask: true, ..screen() };
    press(&mut screen, "\n");
    let Focus::Detail(row, _) = screen.focus.clone() else { panic!("{:?}", screen.focus) };
    screen.requests.clear();
    let past_of_key = |to| Request::PastOfKey { key: row.question(), view: None, to };
    for keys in ["t3", "<"] {
        press(&mut screen, keys);
        assert!(asked(&mut screen).is_some(), "{keys}");
        answer(&mut screen, Ok(past()));
        assert_eq!(screen.requests, [past_of_key(Some(past().union.window.end))], "{keys}");
        assert_eq!(screen.focus, Focus::Detail(row.clone(), 0), "{keys}");
        screen.requests.clear();
    }
    press(&mut screen, "⇲");
    let of_now = Request::Key { key: row.question(), is_open: false };
    assert_eq!((screen.requests.clone(), screen.past().is_none()), (vec![of_now, past_of_key(None)], true));
    // An answer that comes while the menu of spans is open is taken.
    press(&mut screen, "t");
    screen.take(Update::PastOfKey(row.question(), Err("none".to_owned())));
    assert!(screen.past_of_key.is_some());
    press(&mut screen, "\x1b");
    assert_eq!(screen.focus, Focus::Detail(row, 0));
}

#[test]
fn where_the_history_begins_is_told_in_the_time_format_of_the_screen() {
    let mut screen = screen();
    press(&mut screen, "<");
    let mut first = past();
    first.history.reaches_back_to.windows = Some(first.union.window.start);
    answer(&mut screen, Ok(first));
    press(&mut screen, "<");
    answer(&mut screen, Err("there is no data for this time: the history has windows from 2026-11-20T07:50:00Z"));
    assert_eq!(screen.told.as_deref(), Some("the history begins 07:50:00 UTC"));
}

#[test]
fn a_key_that_does_nothing_and_a_switch_say_so() {
    for (key, told) in
        [("x", "x does nothing here: ? shows all keys"), ("\nx", "x does nothing here: ? shows all keys")]
    {
        let mut screen = screen();
        press(&mut screen, key);
        assert_eq!(screen.told.as_deref(), Some(told));
    }
    let mut screen = Screen::default();
    for told in ["names on", "names off"] {
        press(&mut screen, "d");
        assert!(screen.told.as_ref().is_some_and(|text| text.starts_with(told)), "{:?}", screen.told);
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
    assert_eq!((screen.history.lines().len(), screen.report.as_ref().unwrap().id.as_str()), (0, "7f3c9a52/b41d/42"));
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
        seconds: Length::new(10.0),
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
    for focus in [Focus::List, Focus::Typed(Input::Filter, String::new(), None), Focus::Help(0)] {
        let mut screen = Screen { focus, ..screen() };
        assert_eq!(screen.press(control), Effect::Quit);
    }
    assert_eq!(press(&mut screen(), "/q"), Effect::Draw, "here q is a letter of the filter");
}
