use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::{Value, json};
use weir_config::Estimates;
use weir_deliver::status::Identity;
use weir_measure::question::{KeyQuery, Views};
use weir_schema::{InterfaceSecond, Report, SECOND_SCHEMA, Second};

use super::*;
use crate::{
    control::{
        Directory,
        client::{AskError, ask, subscribe},
        protocol::{Attached, Detached, KeyAnswers},
    },
    reload::Reloaded,
};

/// Ends the server on drop.
struct StopOnDrop(Waker);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A server with the golden report, and a coordinator that knows no key.
fn with_server(name: &str, has_report: bool, test: impl FnOnce(&Path)) {
    // The reloader refuses the first time, accepts the second time, and has ended after that.
    let accepted = Reloaded {
        applies_at: Timestamp::UNIX_EPOCH,
        changed: vec!["views".to_owned()],
        smaller: Some("estimates.top_error: 0.001".to_owned()),
        kept: None,
        detached: vec![],
    };
    let mut outcomes = [Err("line 3: no".to_owned()), Ok(accepted)].into_iter();
    let reload = move |Request { reply, waker }| {
        let outcome = outcomes.next().unwrap();
        reply.send(outcome).unwrap();
        waker.wake();
        outcomes.len() > 0
    };
    with_reloader(name, has_report, PATIENCE, reload, test);
}

/// The same with a reloader that runs until it returns false.
fn with_reloader(
    name: &str,
    has_report: bool,
    patience: Duration,
    reloader: impl FnMut(Request) -> bool + Send + 'static,
    test: impl FnOnce(&Path),
) {
    with_all(name, has_report, patience, reloader, |_| {}, |path, _| test(path));
}

/// Knows the interface eth0 only.
struct Obedient;

impl Orders for Obedient {
    fn detach(&self, interfaces: Vec<String>) -> Response {
        match &interfaces[..] {
            [] => answered(&Detached { pid: 7, from: vec!["eth0 (ingress)".to_owned()] }),
            [name, ..] => Response::Refused(format!("{name}: no")),
        }
    }

    fn attach(&self, interfaces: Vec<String>) -> Response {
        answered(&Attached { pid: 7, to: interfaces, missing: vec![] })
    }
}

/// Runs a test with a board to publish on.
fn with_board(name: &str, test: impl FnOnce(&Path, &Board)) {
    with_all(name, true, PATIENCE, |_| true, |_| {}, test);
}

fn with_all(
    name: &str,
    has_report: bool,
    patience: Duration,
    mut reloader: impl FnMut(Request) -> bool + Send + 'static,
    before: impl FnOnce(&Path),
    test: impl FnOnce(&Path, &Board),
) {
    let directory: PathBuf = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
    let path = directory.join("control.sock");
    let made = Directory::provide(Some(&path));
    let listener = Listener::open(&path).unwrap();
    let started = clock::now().wall;
    let identity =
        Identity { version: "0.1.0".to_owned(), pid: 7, started, interval_seconds: 10, memory_bytes: 1 << 20 };
    let board = Arc::new(Board::new(identity));
    let report: Report = serde_json::from_str(include_str!("../../../schema/tests/golden/report.json")).unwrap();
    let (id, window) = (report.id.clone(), report.window);
    let views = Views::built_in(&Estimates::default(), 10);
    if has_report {
        board.publish(&report, &Encoded::new(&report), &views);
    }
    let coordinator = Box::new(move |of: Arc<Views>, asks: Vec<KeyQuery>| {
        assert!(!asks.is_empty() && Arc::ptr_eq(&of, &views));
        Ok(KeyAnswers { report_id: id.clone(), window, answers: vec![] })
    });
    let (reload, requests) = bounded::<Request>(1);
    thread::spawn(move || while requests.recv().is_ok_and(&mut reloader) {});
    let (live, questions) = LiveAsker::new(64);
    thread::spawn(move || {
        let mut unanswered = Vec::new();
        for request in questions {
            match &request.query {
                LiveQuery::Lists { only: None } => request.answer(Ok((*b"{\"lists\":7}").into())),
                LiveQuery::Lists { only: Some(_) } => {
                    request.answer(Err(Unanswered::Refused("no such list".to_owned())));
                }
                // The coordinator does not answer in time.
                LiveQuery::Keys(_) => unanswered.push(request),
            }
        }
    });
    let end = Waker::new().unwrap();
    let names = Names::start(weir_config::Names::default(), weir_config::Addresses::Full).unwrap();
    let orders = Box::new(Obedient);
    let sources = AnswerSources { coordinator, orders, live, reload, history: None, usage: None, names };
    let mut server = Server::new(listener, end.clone(), board.clone(), sources).unwrap();
    server.patience = patience;
    before(&path);
    thread::scope(|scope| {
        let server = scope.spawn(|| server.run());
        // End the server even if the test fails, because the scope waits for its threads.
        let ending = StopOnDrop(end);
        test(&path, &board);
        drop(ending);
        server.join().unwrap();
    });
    assert!(!path.exists(), "the server removes its socket");
    drop(made);
    assert!(!directory.exists());
}

/// The answer to this command.
fn told(path: &Path, command: Command) -> Value {
    serde_json::from_str(ask(path, command).unwrap().get()).unwrap()
}

/// The answer to these bytes.
fn say(path: &Path, bytes: &[u8]) -> Value {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.find('\n'), Some(answer.len() - 1), "one line: {answer}");
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn each_command_gets_its_answer() {
    with_server("answers", true, |path| {
        let golden = include_str!("../../../schema/tests/golden/report.json");
        let report: Report = serde_json::from_str(golden).unwrap();
        let golden: Value = serde_json::from_str(golden).unwrap();
        let line = Encoded::new(&report).line;
        let as_sent = ask(path, Command::Report { last: None }).unwrap();
        assert_eq!(as_sent.get().as_bytes(), line.strip_suffix(b"\n").unwrap(), "the same bytes as for sinks");
        assert_eq!(told(path, Command::Report { last: Some(5) }), json!([golden]), "there is only one report");
        let status = told(path, Command::Status);
        assert_eq!((&status["pid"], &status["last_report"]["id"]), (&json!(7), &golden["id"]));
        let keys = vec!["src_ip=192.0.2.0/24".to_owned(), "proto=udp,port=53".to_owned()];
        assert_eq!(told(path, Command::Ask { keys, live: false })["report_id"], golden["id"]);
        for (keys, part) in [
            (vec![], "0 keys"),
            (vec!["src_ip=1.2.3.4".to_owned(); 65], "65 keys"),
            (vec!["src_ip=192.0.2.0/24".to_owned(), "src_ip=x".to_owned()], "src_ip=x: \"x\" is not an address"),
            (vec!["size=3".to_owned()], "there is no field"),
        ] {
            let error = ask(path, Command::Ask { keys, live: false }).unwrap_err();
            assert!(matches!(&error, AskError::Refused(why) if why.contains(part)), "{error}");
        }
    });
}

#[test]
fn before_the_first_report_only_the_status_is_answered() {
    with_server("early", false, |path| {
        let status = told(path, Command::Status);
        assert!(status["last_report"].is_null() && status["interval_seconds"] == 10);
        let keys = vec!["src_ip=192.0.2.0/24".to_owned()];
        for command in
            [Command::Report { last: None }, Command::Report { last: Some(5) }, Command::Ask { keys, live: false }]
        {
            assert!(matches!(ask(path, command), Err(AskError::Unavailable(_))));
        }
    });
}

#[test]
fn a_query_about_the_open_window_is_answered_later_and_delays_no_other_client() {
    let patience = Duration::from_millis(200);
    with_reloader(
        "live",
        false,
        patience,
        |_| true,
        |path| {
            assert_eq!(told(path, Command::Live { list: None }), json!({"lists": 7}));
            let refused = ask(path, Command::Live { list: Some("flow".to_owned()) });
            assert!(matches!(refused, Err(AskError::Refused(why)) if why == "no such list"));
            let none = ask(path, Command::Ask { keys: vec![], live: true });
            assert!(matches!(none, Err(AskError::Refused(why)) if why.contains("0 keys")));
            let keys = || vec!["src_ip=192.0.2.0/24".to_owned()];
            thread::scope(|scope| {
                let waits = scope.spawn(|| ask(path, Command::Ask { keys: keys(), live: true }));
                assert_eq!(told(path, Command::Status)["pid"], 7);
                let late = waits.join().unwrap();
                assert!(matches!(late, Err(AskError::Unavailable(why)) if why.contains("ask again")));
            });
        },
    );
}

#[test]
fn a_reload_is_answered_when_it_is_done() {
    with_server("reloads", true, |path| {
        assert!(matches!(ask(path, Command::Reload), Err(AskError::Refused(why)) if why == "line 3: no"));
        let accepted = json!({
            "applies_at": "1970-01-01T00:00:00Z",
            "changed": ["views"],
            "smaller": "estimates.top_error: 0.001",
        });
        assert_eq!(told(path, Command::Reload), accepted);
        assert!(ask(path, Command::Reload).is_err(), "the reloader has ended");
        let detach = |names: &[&str]| Command::Detach { interfaces: names.iter().map(|&name| name.into()).collect() };
        assert_eq!(told(path, detach(&[])), json!({"pid": 7, "from": ["eth0 (ingress)"]}));
        let attach = Command::Attach { interfaces: vec!["eth0".to_owned()] };
        assert_eq!(told(path, attach), json!({"pid": 7, "to": ["eth0"], "missing": []}));
        assert!(matches!(ask(path, detach(&["x"])), Err(AskError::Refused(why)) if why == "x: no"));
        assert_eq!(told(path, Command::Status)["pid"], 7);
    });
}

#[test]
fn a_change_that_nobody_waits_for_any_more_is_not_made() {
    let (reloads, made) = bounded(1);
    let reload = move |_| reloads.send(()).is_ok();
    // The client gives up before the server reads its request.
    let gives_up = |path: &Path| {
        let mut client = UnixStream::connect(path).unwrap();
        client.write_all(b"{\"version\":1,\"command\":\"reload\"}\n").unwrap();
    };
    with_all("gone", true, PATIENCE, reload, gives_up, |path, _| {
        // Clients are served in the order in which they connect.
        assert_eq!(told(path, Command::Status)["pid"], 7);
        assert!(made.try_recv().is_err(), "weir reloads although the client was told that it does not answer");
    });
}

#[test]
fn a_reload_that_takes_too_long_is_answered_with_the_reason() {
    // Each request is accepted and never answered.
    let mut kept = Vec::new();
    let reload = move |request| {
        kept.push(request);
        true
    };
    with_reloader("slow", true, Duration::from_millis(300), reload, |path| {
        let error = ask(path, Command::Reload).unwrap_err();
        assert!(matches!(&error, AskError::Unavailable(why) if why.contains("still reading")), "{error}");
        assert_eq!(told(path, Command::Status)["pid"], 7);
    });
}

#[test]
fn an_invalid_request_is_refused_with_the_reason() {
    with_server("nonsense", true, |path| {
        let long = [vec![b'x'; REQUEST_MAX + 1], b"\n".to_vec()].concat();
        for (bytes, part) in [
            (&b"\n"[..], "not JSON"),
            (b"GET / HTTP/1.1\r\n\r\n", "not JSON"),
            (b"\xff\xfe\n", "not JSON"),
            (br#"{"version":3,"command":"status"}"#, ""),
            (&long, "at most 16384 bytes"),
        ] {
            let bytes = if part.is_empty() { [bytes, b"\nand more"].concat() } else { bytes.to_vec() };
            let refused = say(path, &bytes);
            let why = refused["refused"].as_str().unwrap_or_default();
            assert!(why.contains(if part.is_empty() { "version 3" } else { part }), "{refused}");
        }
    });
}

/// A second that takes this many bytes.
fn second(bytes: usize) -> Second {
    Second {
        schema: SECOND_SCHEMA.to_owned(),
        time: Timestamp::UNIX_EPOCH,
        seconds: 1.0,
        skipped: 0,
        window_start: Timestamp::UNIX_EPOCH,
        last_report: None,
        interfaces: vec![InterfaceSecond {
            name: "x".repeat(bytes),
            direction: None,
            mode: "tcx".to_owned(),
            counted: None,
            total: None,
            lost: None,
            trouble: None,
        }],
        troubles: Vec::new(),
    }
}

#[test]
fn a_slow_subscriber_skips_seconds_and_is_told_how_many() {
    const SECONDS: u64 = 100;
    with_board("seconds", |path, board| {
        assert!(!board.is_subscribed());
        let mut slow = UnixStream::connect(path).unwrap();
        slow.write_all(b"{\"version\":1,\"command\":\"subscribe\"}\n").unwrap();
        let (heard, seconds) = bounded(SECONDS as usize);
        let quick = path.to_owned();
        thread::spawn(move || subscribe(&quick, &mut |second| heard.send(second.skipped).is_ok()));
        while board.subscribers() < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        // More than the sockets' buffers hold.
        for _ in 0..SECONDS {
            board.publish_second(second(1 << 16));
            assert_eq!(seconds.recv_timeout(PATIENCE).unwrap(), 0, "a client that reads misses none");
        }
        let (mut lines, mut got, mut skipped) = (BufReader::new(slow), 0, 0);
        while got + skipped < SECONDS {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            let told: Value = serde_json::from_str(&line).unwrap();
            got += 1;
            skipped += told["answer"]["skipped"].as_u64().unwrap_or(0);
        }
        assert!(got + skipped == SECONDS && skipped > 0, "{got} and {skipped}");
        drop(lines);
        drop(seconds);
        board.publish_second(second(1));
        while board.is_subscribed() {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn subscribers_leave_room_for_other_clients() {
    with_board("places", |path, board| {
        let line = b"{\"version\":1,\"command\":\"subscribe\"}\n";
        let mut subscribers = Vec::new();
        for nth in 1..=SUBSCRIBERS_MAX {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(line).unwrap();
            subscribers.push(stream);
            while board.subscribers() < nth {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let refused = say(path, line);
        assert!(refused["unavailable"].as_str().unwrap().contains("32 clients"), "{refused}");
        assert_eq!(told(path, Command::Status)["pid"], 7);
    });
}

#[test]
fn clients_that_hang_do_not_delay_others() {
    with_server("hangs", true, |path| {
        // Some send nothing, some half a request, and some do not read their answer.
        let mut hanging = Vec::new();
        for nth in 0..4 * CLIENTS_MAX {
            let mut stream = UnixStream::connect(path).unwrap();
            let bytes: &[u8] = [&b""[..], b"{\"version\":1,", b"{\"version\":1,\"command\":\"report\"}\n"][nth % 3];
            // It may have been disconnected already.
            let _ = stream.write_all(bytes);
            hanging.push(stream);
            if nth % 16 == 0 {
                assert_eq!(told(path, Command::Status)["pid"], 7);
            }
        }
        assert_eq!(told(path, Command::Status)["pid"], 7);
        drop(hanging);
        assert_eq!(told(path, Command::Status)["pid"], 7);
    });
}
