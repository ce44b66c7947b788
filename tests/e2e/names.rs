//! Names from outside reach no terminal: interfaces, files, settings, observers, spools and answers may have names with
//! control characters, which a terminal would obey. Every command gets such names here.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use anyhow::{Result, ensure};
use clap::Command;
use jiff::Timestamp;
use serde_json::{Value, json};
use weir_config::Estimates;
use weir_deliver::{board::Board, status::Identity};
use weir_measure::question::Views;
use weir_schema::{Encoded, Report};
use weir_system::text::is_obeyed;
use weir_tests::{
    clock,
    daemon::{Daemon, weir_binary},
    netns::{Lab, QuietPair},
    scratch::Scratch,
};

use crate::watch::{Ended, INTERVAL, TIMEOUT};

tests![
    no_command_prints_a_name_that_a_terminal_obeys,
    reports_on_standard_output_have_no_character_that_a_terminal_obeys
];

/// A title and a colour for the terminal, text from right to left, an 8-bit control sequence, and characters without
/// width.
const HOSTILE: &str = "x\x1b]0;t\x07\x1b[31m\u{202e}\u{9b}2J\u{2066}\u{200f}\u{61c}\u{200b}\u{2028}\u{85}\u{feff}\ry";
/// The same as the name of an interface, which has at most 15 bytes.
const INTERFACE: &str = "\x1b[31m\u{202e}\u{9b}0";

/// Everything that has hostile names.
struct World {
    scratch: Scratch,
    /// A folder with a hostile name, for everything else.
    folder: PathBuf,
    configs: Vec<PathBuf>,
}

impl World {
    fn new() -> Result<Self> {
        let scratch = Scratch::new()?;
        let folder = scratch.path().join(HOSTILE);
        fs::create_dir(&folder)?;
        let mut world = Self { scratch, folder, configs: Vec::new() };
        world.write_configs()?;
        let report = hostile_report()?;
        fs::write(world.file("reports"), format!("{report}\n{HOSTILE}\n{{\"schema\":{HOSTILE:?}}}\n"))?;
        fs::write(world.file("capture"), HOSTILE)?;
        let sink = world.file("spool").join(HOSTILE);
        fs::create_dir_all(&sink)?;
        fs::write(sink.join("17.1763800000.7f3c9a52.b41d0c11.40-42.spool_full.tombstone"), "")?;
        let refused = "18.1763800000.7f3c9a52.b41d0c11.43.9.89abcdef.json.gz.refused";
        fs::write(sink.join(refused), "not gzip.")?;
        fs::write(sink.join(format!("{refused}.answer")), HOSTILE)?;
        fs::write(sink.join(HOSTILE), "")?;
        Ok(world)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{HOSTILE}{name}"))
    }

    /// A short path: a socket's may have a hundred bytes.
    fn socket(&self) -> PathBuf {
        self.scratch.path().join("\x1b\u{202e}")
    }

    /// Each with a hostile name in another setting. Most are mistakes.
    fn write_configs(&mut self) -> Result<()> {
        let text = json!(HOSTILE).to_string();
        let (interface, path) = (json!(INTERFACE).to_string(), json!(self.file("none")).to_string());
        let settings = [
            String::new(),
            format!("interfaces: [{interface}]"),
            format!("interfaces: [{{name: {interface}, mode: {text}}}]"),
            format!("{text}: {text}"),
            format!("observer: {{name: {text}}}"),
            format!("observer: {{site: {text}}}"),
            format!("hash_key: {{file: {path}}}"),
            format!("hash_key: {text}"),
            format!("views: [{{name: {text}, by: [dst_ip]}}]"),
            format!("views: [{{name: a, by: [{text}]}}]"),
            format!("networks: {{{text}: [10.0.0.0/8]}}"),
            format!("networks: {{a: {{file: {path}}}}}"),
            format!("geo: {{asn: {path}}}"),
            format!("alerts: {{rules: [{{name: {text}, when: totals.packets > 1}}]}}"),
            format!("alerts: {{rules: [{{name: a, when: {text}}}]}}"),
            format!("sinks: [{{type: file, path: {path}}}]"),
            format!("sinks: [{{type: http, url: 'http://[::1]:9', token_file: {path}}}]"),
            format!("sinks: [{{type: http, url: {text}}}]"),
            format!("sinks: [{{type: http, url: 'http://[::1]:9', headers: {{{text}: {text}}}}}]"),
            format!("sinks: [{{type: {text}}}]"),
            format!("spool: {{path: {path}}}"),
            format!("control: {{socket: {path}}}"),
            format!("web: {{listen: '127.0.0.1:0', token_file: {path}}}"),
            format!("web: {{listen: {text}}}"),
            format!("memory: {text}"),
            format!("interfaces: [lo\n{HOSTILE}"),
        ];
        for (nth, text) in settings.iter().enumerate() {
            let path = self.file(&format!("{nth}.yaml"));
            fs::write(&path, text)?;
            self.configs.push(path);
        }
        Ok(())
    }

    /// How to call a command with hostile names: each argument is one, or leads to one. A new command needs a row.
    fn calls(&self, command: &str) -> Result<Vec<Vec<OsString>>> {
        let call = |words: &[&str], more: &[&dyn AsRef<std::ffi::OsStr>]| -> Vec<OsString> {
            let words = words.iter().map(|word| OsString::from(*word));
            words.chain(more.iter().map(|one| one.as_ref().to_owned())).collect()
        };
        let (none, reports, capture) = (self.file("none"), self.file("reports"), self.file("capture"));
        let (socket, spool) = (self.socket(), self.file("spool"));
        let with_configs = |words: &[&str]| -> Vec<Vec<OsString>> {
            self.configs.iter().map(|config| call(words, &[&"--config", config])).collect()
        };
        let asks = |words: &[&str], more: &[&str]| -> Vec<Vec<OsString>> {
            let of = |extra: &[&str]| {
                let words: Vec<_> = words.iter().chain(more).chain(extra).copied().collect();
                call(&words, &[&"--socket", &socket])
            };
            let mut calls = vec![of(&[]), call(words, &[&"--socket", &none]), call(words, &[&HOSTILE])];
            if !["detach", "attach"].contains(&words[0]) {
                calls.push(of(&["--json"]));
            }
            calls
        };
        let mut calls = match command {
            // It must not begin to measure: the interface is missing, or the configuration has a mistake. What it
            // prints then has a test of its own below.
            "run" => [
                vec![call(&["run", "--strict", "--interface"], &[&INTERFACE])],
                with_configs(&["run", "--strict"])[1..].to_vec(),
            ]
            .concat(),
            "replay" => vec![
                call(&["replay"], &[&none]),
                call(&["replay"], &[&capture]),
                call(&["replay", "--view"], &[&HOSTILE, &capture]),
                call(&["replay", "--ask"], &[&HOSTILE, &capture]),
            ],
            "check" => [with_configs(&["check"]), vec![call(&["check"], &[&none])]].concat(),
            "doctor" => [
                with_configs(&["doctor"]),
                vec![
                    call(&["doctor"], &[&INTERFACE]),
                    call(&["doctor", "--json"], &[&INTERFACE]),
                    call(&["doctor", "--bundle"], &[&none.join("none")]),
                ],
            ]
            .concat(),
            "status" => asks(&["status"], &[]),
            "report" => [
                asks(&["report"], &[]),
                asks(&["report", "--full"], &[]),
                asks(&["report", "--last", "2"], &[]),
                asks(&["report", "--since", "1h"], &[]),
            ]
            .concat(),
            "ask" => [
                asks(&["ask", "192.0.2.7"], &[]),
                asks(&["ask"], &[HOSTILE]),
                asks(&["ask", "192.0.2.7", "--live"], &[]),
            ]
            .concat(),
            "names" => asks(&["names"], &[]),
            "usage" => [asks(&["usage"], &[]), asks(&["usage"], &["--by", "day"])].concat(),
            "history top" => [
                asks(&["history", "top", "sources"], &["--since", "1h"]),
                vec![
                    call(&["history", "top"], &[&HOSTILE]),
                    call(&["history", "top", "sources", "--path"], &[&none]),
                    call(&["history", "top", "sources", "--from"], &[&HOSTILE]),
                ],
            ]
            .concat(),
            "history find" => [
                asks(&["history", "find", "192.0.2.7"], &[]),
                asks(&["history", "find", "192.0.2.0/24", ":443"], &["--since", "1h"]),
                vec![
                    call(&["history", "find"], &[&HOSTILE]),
                    call(&["history", "find", "192.0.2.7", "--path"], &[&none]),
                ],
            ]
            .concat(),
            "history changes" => [
                asks(&["history", "changes", "sources"], &["--since", "1h"]),
                vec![
                    call(&["history", "changes"], &[&HOSTILE]),
                    call(&["history", "changes", "sources", "--since", "1h", "--against"], &[&HOSTILE]),
                    call(&["history", "changes", "sources", "--since", "1h", "--path"], &[&none]),
                ],
            ]
            .concat(),
            "reload" => asks(&["reload"], &[]),
            "detach" | "attach" => [asks(&[command], &[INTERFACE]), asks(&[command, "--all"], &[])].concat(),
            // The screen has a test of its own: `daemon/top/src/draw/tests.rs`.
            "top" => vec![
                call(&["top", "--replay"], &[&none]),
                call(&["top", "--merge"], &[&none]),
                call(&["top"], &[&HOSTILE]),
            ],
            "spool ls" => vec![
                call(&["spool", "ls", "--path"], &[&spool]),
                call(&["spool", "ls", "--json", "--path"], &[&spool]),
                call(&["spool", "ls", "--path"], &[&none]),
                call(&["spool", "ls"], &[&HOSTILE, &"--path", &spool]),
            ],
            "spool cat" => vec![call(&["spool", "cat", "--path"], &[&spool])],
            "spool retry" => vec![
                call(&["spool", "retry", "--path"], &[&spool]),
                call(&["spool", "retry"], &[&HOSTILE, &"--path", &spool]),
            ],
            "spool rm" => vec![
                call(&["spool", "rm"], &[&"none", &"--path", &spool]),
                call(&["spool", "rm"], &[&HOSTILE, &"--path", &spool]),
            ],
            "collect" => vec![
                call(&["collect", "query", "windows", "--database"], &[&none]),
                call(&["collect", "query", "windows", "--database"], &[&capture]),
                call(&["collect", "--listen", "127.0.0.1:0", "--token-file"], &[&none, &"--database", &none]),
                call(&["collect"], &[&HOSTILE]),
            ],
            "merge" => vec![
                call(&["merge"], &[&reports]),
                call(&["merge", "--json"], &[&reports]),
                call(&["merge"], &[&none]),
                call(&["merge", "--by"], &[&HOSTILE, &reports]),
                call(&["merge", "--history"], &[&none]),
                call(&["merge", "--history"], &[&HOSTILE]),
                call(&["merge", "--list"], &[&HOSTILE, &"--history", &none]),
            ],
            "key new" => vec![call(&["key", "new"], &[&none.join("none")])],
            "key id" => {
                [with_configs(&["key", "id"]), vec![call(&["key", "id"], &[&none]), call(&["key", "id"], &[&capture])]]
                    .concat()
            }
            "schema report" | "schema second" | "schema live" | "schema tombstone" => Vec::new(),
            other => {
                anyhow::bail!("`weir {other}` has no row here: how does a name from outside get into what it prints?")
            }
        };
        // clap prints what it does not understand.
        let words: Vec<_> = command.split(' ').collect();
        calls.push(call(&words, &[&format!("--{HOSTILE}")]));
        Ok(calls)
    }
}

/// The golden report, with hostile names.
fn hostile_report() -> Result<Value> {
    let mut report: Value = serde_json::from_str(include_str!("../../daemon/schema/tests/golden/report.json"))?;
    spoil(&mut report);
    Ok(report)
}

/// Makes every name in a report hostile.
fn spoil(value: &mut Value) {
    const NAMES: [&str; 13] = [
        "name",
        "site",
        "alias",
        "vrf",
        "version",
        "trouble",
        "troubles",
        "network",
        "src_network",
        "dst_network",
        "rule",
        "interface",
        "measured_by",
    ];
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if NAMES.contains(&name.as_str()) => *text = HOSTILE.to_owned(),
                    Value::Array(list) if name == "troubles" => *list = vec![json!(HOSTILE)],
                    other => spoil(other),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(spoil),
        _ => {}
    }
}

/// A status and a report with hostile names, as a running weir would send them.
fn answers() -> Result<(Value, Value)> {
    let report: Report = serde_json::from_value(hostile_report()?)?;
    let started = Timestamp::UNIX_EPOCH;
    let identity =
        Identity { version: HOSTILE.to_owned(), pid: 7, started, interval_seconds: 10, memory_bytes: 1 << 20 };
    let board = Arc::new(Board::new(identity));
    board.publish(&report, &Encoded::new(&report), &Views::built_in(&Estimates::default(), 10));
    let mut status = serde_json::to_value(board.status())?;
    spoil(&mut status);
    Ok((status, serde_json::to_value(&report)?))
}

/// Answers like a running weir whose names are hostile: every second time it refuses.
fn serve(socket: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket)?;
    let (status, report) = answers()?;
    // It ends with the test's process.
    thread::spawn(move || {
        for (nth, client) in listener.incoming().flatten().enumerate() {
            // The client says what is wrong.
            let _ = answer(client, nth, &status, &report);
        }
    });
    Ok(())
}

fn answer(mut client: UnixStream, nth: usize, status: &Value, report: &Value) -> Result<()> {
    let mut line = String::new();
    BufReader::new(client.try_clone()?).read_line(&mut line)?;
    let request: Value = serde_json::from_str(&line)?;
    let (window, row) = (&report["window"], json!([]));
    let answer = match request["command"].as_str().unwrap_or_default() {
        "status" => status.clone(),
        "report" if request["last"].is_null() => report.clone(),
        "report" => json!([report, report]),
        "ask" => json!({"report_id": HOSTILE, "window": window, "answers": row}),
        "names" => {
            let name = json!({"address": "192.0.2.7", "name": HOSTILE, "source": "lease"});
            json!({"schema": HOSTILE, "names": [name]})
        }
        "reload" => {
            json!({"applies_at": "2026-11-20T08:00:00Z", "changed": [HOSTILE], "smaller": HOSTILE, "kept": HOSTILE, "detached": [HOSTILE]})
        }
        "detach" => json!({"pid": 7, "from": [HOSTILE]}),
        "attach" => json!({"pid": 7, "to": [HOSTILE], "missing": [HOSTILE]}),
        _ => json!({"unknown": HOSTILE}),
    };
    let response = match nth % 3 {
        0 | 1 => json!({"answer": answer}),
        _ => json!({["refused", "unavailable"][nth % 2]: HOSTILE}),
    };
    writeln!(client, "{response}")?;
    Ok(())
}

/// The names of all commands without subcommands, such as `spool ls`.
fn leaves(command: &Command, above: &str, all: &mut BTreeSet<String>) {
    for below in command.get_subcommands().filter(|one| one.get_name() != "help") {
        let name = format!("{above} {}", below.get_name()).trim().to_owned();
        match below.has_subcommands() {
            true => leaves(below, &name, all),
            false => drop(all.insert(name)),
        }
    }
}

fn no_command_prints_a_name_that_a_terminal_obeys() -> Result<()> {
    let world = World::new()?;
    serve(&world.socket())?;
    let pair = Lab::quiet_pair()?;
    let weir = weir_binary()?;
    let mut commands = BTreeSet::new();
    leaves(&weir::cli::Cli::known_commands(), "", &mut commands);
    ensure!(commands.len() > 15, "{commands:?}");
    for command in &commands {
        for arguments in world.calls(command)? {
            // Each request gets an answer, and each gets a refusal.
            for _ in 0..3 {
                let mut call = pair.observer.command(&weir);
                let ended = Ended::of(call.args(&arguments).env_remove("PAGER"))?;
                for text in [&ended.out, &ended.err] {
                    let obeyed = text.chars().find(|one| *one != '\n' && is_obeyed(*one));
                    ensure!(obeyed.is_none(), "{arguments:?} prints {obeyed:?}:\n{text:?}");
                }
                if !arguments.iter().any(|argument| *argument == *world.socket()) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// A run prints its reports into a pipe, whose last program may be a terminal.
fn reports_on_standard_output_have_no_character_that_a_terminal_obeys() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    for words in ["down", &format!("name {INTERFACE}")] {
        pair.observer.ip(&format!("link set {} {words}", QuietPair::OBSERVER_INTERFACE))?;
    }
    pair.observer.ip(&format!("link set {INTERFACE} up"))?;
    // A pattern, because YAML does not allow such characters.
    let settings = format!("interfaces: [\"*0\"]\n{INTERVAL}sinks: [{{type: stdout}}]\n");
    let mut daemon = Daemon::start(Some(&pair.observer), |_| settings)?;
    clock::wait_for("a report", TIMEOUT, || Ok(daemon.output()?.contains('\n').then_some(())))?;
    daemon.stop(TIMEOUT)?;
    let text = daemon.output()?;
    let obeyed = text.chars().find(|one| *one != '\n' && is_obeyed(*one));
    ensure!(obeyed.is_none(), "{obeyed:?}: {text:?}");
    let report: Value = serde_json::from_str(text.lines().next().unwrap_or_default())?;
    ensure!(report["interfaces"][0]["name"] == INTERFACE, "{report}");
    Ok(())
}
