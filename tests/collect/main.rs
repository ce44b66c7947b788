//! The reference collector: the real `weir collect` on loopback. Each report that it has acknowledged is in its
//! database once, whatever its senders and its disk do.

mod clickhouse;
mod grafana;
mod histories;
mod program;
mod recipes;
mod top;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use weir_tests::{
    clock,
    collecting::{Collecting, NDJSON, Signal, TIMEOUT, database, post, query, query_by, report, reports, say},
    daemon::weir_binary,
    scratch::Scratch,
    tmux,
    trial::{needed, optional, root, run, trial},
};

use self::histories::Histories;

fn main() -> ExitCode {
    let anywhere = Ok(());
    let free = |name, test| trial(name, test, &[&anywhere]);
    let on_a_terminal = |name, test| trial(name, test, &[&needed(tmux::requirements())]);
    let trials = vec![
        free("weir_runs_the_collector", program::weir_runs_the_collector),
        free(
            "without_the_collector_weir_says_what_to_install",
            program::without_the_collector_weir_says_what_to_install,
        ),
        free("a_program_takes_the_place_of_weir", program::a_program_takes_the_place_of_weir),
        on_a_terminal(
            "the_live_screen_shows_what_the_collector_stores",
            top::the_live_screen_shows_what_the_collector_stores,
        ),
        on_a_terminal(
            "the_live_screen_follows_a_file_from_its_first_report_on",
            top::the_live_screen_follows_a_file_from_its_first_report_on,
        ),
        on_a_terminal("mistakes_of_the_live_screen_are_named", top::mistakes_of_the_live_screen_are_named),
        free("a_repeated_report_is_stored_once", a_repeated_report_is_stored_once),
        free("a_line_that_is_wrong_keeps_no_other_out", a_line_that_is_wrong_keeps_no_other_out),
        free("a_body_that_is_damaged_or_huge_is_refused_whole", a_body_that_is_damaged_or_huge_is_refused_whole),
        free("acknowledged_reports_survive_a_kill", acknowledged_reports_survive_a_kill),
        free("gaps_are_found_and_explained", gaps_are_found_and_explained),
        trial(
            "every_reader_finds_the_same_reports_missing",
            every_reader_finds_the_same_reports_missing,
            &[&needed(grafana::sqlite_is_there())],
        ),
        free("only_clients_with_the_token_can_store", only_clients_with_the_token_can_store),
        free("other_machines_are_not_let_in_by_accident", other_machines_are_not_let_in_by_accident),
        free("a_database_that_is_gone_is_answered_later", a_database_that_is_gone_is_answered_later),
        free("clients_that_hang_do_not_delay_others", clients_that_hang_do_not_delay_others),
        free("much_work_of_some_clients_delays_no_others", much_work_of_some_clients_delays_no_others),
        free("a_request_that_has_begun_is_answered_at_the_end", a_request_that_has_begun_is_answered_at_the_end),
        trial("a_full_disk_is_answered_later", a_full_disk_is_answered_later, &[&root()]),
        trial("the_dashboard_has_data", grafana::the_dashboard_has_data, &[&needed(grafana::sqlite_is_there())]),
        trial("reports_go_into_clickhouse", clickhouse::recipe, &[&needed(clickhouse::is_there())]),
        trial("reports_go_into_postgresql", recipes::postgresql, &[&optional(recipes::postgresql_is_there())]),
    ];
    run(trials)
}

fn gzip(text: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text)?;
    Ok(encoder.finish()?)
}

/// The ids of rows, repetitions included.
fn ids(rows: &[Value]) -> Result<Vec<String>> {
    rows.iter().map(|row| row["id"].as_str().map(str::to_owned).context("a row has an id")).collect()
}

/// Checks that exactly these ids are in the database, each once.
fn check_ids(folder: &Path, expected: &[String]) -> Result<()> {
    check_rows(&query(folder, &["windows"])?, expected)
}

fn check_rows(rows: &[Value], expected: &[String]) -> Result<()> {
    let (mut found, mut expected) = (ids(rows)?, expected.to_vec());
    found.sort();
    expected.sort();
    ensure!(found == expected, "in the database: {found:?}\nexpected: {expected:?}");
    Ok(())
}

fn a_repeated_report_is_stored_once() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut collector = Collecting::start(scratch.path(), &[])?;
    let (first, one) = reports(1..=3);
    let (second, other) = reports(3..=6);
    let answer = collector.post(NDJSON, &first)?;
    ensure!((answer.status, answer.stored()) == (200, one.clone()), "{answer:?}");
    let packed = [gzip(&second[..40])?, gzip(&second[40..])?].concat();
    for _ in 0..2 {
        let answer = collector.post(&format!("{NDJSON}Content-Encoding: gzip\r\n"), &packed)?;
        ensure!((answer.status, answer.stored()) == (200, other.clone()), "with earlier reports: {answer:?}");
    }
    let all: Vec<_> = reports(1..=6).1;
    check_ids(scratch.path(), &all)?;
    ensure!(collector.end(Signal::TERM)?.success(), "{}", collector.log()?);
    check_ids(scratch.path(), &all)?;

    // Another process with another connection sends the same ids.
    let collector = Collecting::start(scratch.path(), &[])?;
    let answer = collector.post(NDJSON, &[first, second].concat())?;
    ensure!((answer.status, answer.stored()) == (200, all.clone()), "each once: {answer:?}");
    check_ids(scratch.path(), &all)
}

fn a_line_that_is_wrong_keeps_no_other_out() -> Result<()> {
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let body = [&report(1), "{\"schema\":\"weir.report/1\"", "", &report(2), "\u{1f4a5}"].join("\n");
    let answer = collector.post(NDJSON, body.as_bytes())?;
    let (_, good) = reports(1..=2);
    ensure!((answer.status, answer.stored()) == (400, good.clone()), "{answer:?}");
    let mistakes = answer.body["mistakes"].as_array().context("it names them")?;
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake["line"].clone()).collect();
    ensure!(lines == [2, 5], "{answer:?}");
    ensure!(answer.body["error"].as_str().is_some_and(|error| error.starts_with("line 2: EOF")), "{answer:?}");
    check_ids(scratch.path(), &good)?;
    for (headers, body, status) in [
        ("", &b"{}"[..], 415),
        ("Content-Type: text/plain\r\n", b"{}", 415),
        (&format!("{NDJSON}Content-Encoding: br\r\n"), b"{}", 415),
        (NDJSON, b"\xff\x00\x80", 400),
        (NDJSON, b"", 200),
    ] {
        let answer = collector.post(headers, body)?;
        ensure!(answer.status == status && answer.stored().is_empty(), "{headers:?}: {answer:?}");
    }
    let answer = say(collector.address(), b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"")?;
    ensure!(answer.status == 405, "{answer:?}");
    check_ids(scratch.path(), &good)
}

fn a_body_that_is_damaged_or_huge_is_refused_whole() -> Result<()> {
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let (body, _) = reports(1..=200);
    let packed = gzip(&body)?;
    let headers = format!("{NDJSON}Content-Encoding: gzip\r\n");
    let answer = collector.post(&headers, &packed[..packed.len() - 5])?;
    ensure!((answer.status, answer.stored().len()) == (400, 0), "{answer:?}");
    ensure!(answer.body["error"].as_str().is_some_and(|error| error.contains("cannot be unpacked")), "{answer:?}");

    // Valid lines, followed by more than the limit: compressed to a small body, or not compressed.
    let mut bomb = body;
    bomb.resize(129 << 20, b' ');
    for (headers, body) in [(&*headers, gzip(&bomb)?), (NDJSON, bomb)] {
        let answer = collector.post(headers, &body)?;
        ensure!((answer.status, answer.stored().len()) == (413, 0), "{answer:?}");
        ensure!(answer.body["error"].as_str().is_some_and(|error| error.contains("send fewer")), "{answer:?}");
    }
    // This body does not state its length.
    let chunk = [format!("{:x}\r\n", 17 << 20).into_bytes(), vec![b' '; 17 << 20], b"\r\n0\r\n\r\n".to_vec()].concat();
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{NDJSON}\r\n");
    ensure!(say(collector.address(), head.as_bytes(), &chunk)?.status == 413, "chunks have a limit, too");
    check_ids(scratch.path(), &[])
}

/// Two clients send small bodies that unpack to millions of lines, as fast as they can. One report has lists nested so
/// deeply that readers of the database would fail on it.
fn much_work_of_some_clients_delays_no_others() -> Result<()> {
    const CLIENTS: usize = 2;
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let headers = format!("{NDJSON}Content-Encoding: gzip\r\n");
    let bomb = gzip(&b"{\n".repeat(5 << 20))?;
    let is_over = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    let (body, expected) = reports(1..=20);
    thread::scope(|scope| -> Result<()> {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = collector.post(&headers, &bomb);
                    refused.fetch_add(u64::from(answer.is_ok_and(|answer| answer.status == 413)), Ordering::Relaxed);
                }
            });
        }
        let good =
            clock::wait_for("refused bombs", TIMEOUT, || Ok((refused.load(Ordering::Relaxed) > 5).then_some(())))
                .and_then(|()| collector.post(NDJSON, &body));
        is_over.store(true, Ordering::Relaxed);
        let good = good?;
        ensure!(good.status == 200, "{good:?}");
        Ok(())
    })?;
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let line = String::from_utf8(reports(21..=21).0)?.trim_end().strip_suffix('}').context("an object")?.to_owned();
    let answer = collector.post(NDJSON, format!("{line},\"later\":{deep}}}\n").as_bytes())?;
    ensure!((answer.status, answer.stored().len()) == (400, 0), "{answer:?}");
    ensure!(answer.body["error"].as_str().is_some_and(|error| error.contains("64 levels")), "{answer:?}");
    check_ids(scratch.path(), &expected)
}

fn acknowledged_reports_survive_a_kill() -> Result<()> {
    const ROUNDS: u64 = 4;
    const BATCH: u64 = 20;
    let scratch = Scratch::new()?;
    let mut answered = BTreeSet::new();
    for round in 0..ROUNDS {
        let mut collector = Collecting::start(scratch.path(), &[])?;
        let (address, killed, answers) = (collector.address(), AtomicBool::new(false), AtomicU64::new(0));
        let senders: Vec<BTreeSet<String>> = thread::scope(|scope| {
            let senders: Vec<_> = (0..3)
                .map(|sender| {
                    let (killed, answers) = (&killed, &answers);
                    scope.spawn(move || {
                        let mut answered = BTreeSet::new();
                        for batch in 0.. {
                            // Some reports are sent again, also those of other senders.
                            let first = 1 + round * 1_000_000 + sender * BATCH / 2 + batch * BATCH;
                            let Ok(answer) = post(address, NDJSON, &reports(first..first + BATCH).0) else { break };
                            answered.extend(answer.stored());
                            answers.fetch_add(1, Ordering::Relaxed);
                            if killed.load(Ordering::Relaxed) {
                                break;
                            }
                        }
                        answered
                    })
                })
                .collect();
            // The kill comes while reports are being sent.
            let is_answered = || Ok((answers.load(Ordering::Relaxed) > 0).then_some(()));
            let looked = clock::wait_for("an answer", TIMEOUT, is_answered);
            thread::sleep(Duration::from_millis(50 + 70 * round));
            let ended = collector.end(Signal::KILL);
            killed.store(true, Ordering::Relaxed);
            let senders = senders.into_iter().map(|sender| sender.join().expect("a sender does not panic")).collect();
            looked.and(ended).map(|_| senders)
        })?;
        let before = answered.len();
        for ids in senders {
            answered.extend(ids);
        }
        ensure!(answered.len() > before, "round {round}: nothing was answered before the kill");
    }
    let found = ids(&query(scratch.path(), &["windows"])?)?;
    let once: BTreeSet<_> = found.iter().cloned().collect();
    ensure!(once.len() == found.len(), "{} of {} are there twice", found.len() - once.len(), found.len());
    let lost: Vec<_> = answered.difference(&once).collect();
    ensure!(lost.is_empty(), "answered, and not there: {lost:?}");
    Ok(())
}

fn gaps_are_found_and_explained() -> Result<()> {
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let tombstone = json!({
        "schema": "weir.tombstone/1", "id": "7f3c9a52/b41d/4-6", "observer": {"id": "7f3c9a52", "boot_id": "b41d"},
        "first_seq": 4, "last_seq": 6, "reports": 3, "reason": "of_another_age",
    });
    let (body, _) = reports([1, 2, 3, 9]);
    let answer = collector.post(NDJSON, &[body, tombstone.to_string().into_bytes()].concat())?;
    ensure!(answer.status == 200 && answer.stored().contains(&"7f3c9a52/b41d/4-6".to_owned()), "{answer:?}");
    let gaps = query(scratch.path(), &["gaps"])?;
    let run = json!({"observer": "7f3c9a52", "boot_id": "b41d"});
    let expected = [
        json!({"first_seq": 4, "last_seq": 6, "reports": 3, "status": "dropped", "reason": "of_another_age"}),
        json!({"first_seq": 7, "last_seq": 8, "reports": 2, "status": "unexplained"}),
    ];
    for (found, expected) in gaps.iter().zip(&expected) {
        let fields = [&run, expected].into_iter().filter_map(Value::as_object).flatten();
        ensure!(fields.into_iter().all(|(name, value)| found[name] == *value), "{found} is not {expected}");
    }
    ensure!(gaps.len() == expected.len(), "{gaps:?}");
    // A late report closes a gap.
    collector.post(NDJSON, &reports([7, 8]).0)?;
    ensure!(query(scratch.path(), &["gaps"])?.len() == 1, "only the tombstone is left");
    let observers = query(scratch.path(), &["observers"])?;
    let [observer] = &observers[..] else { anyhow::bail!("there is one: {observers:?}") };
    ensure!(observer["reports"] == 6 && observer["dropped"] == 3 && observer["unexplained"] == 0, "{observer}");
    ensure!(query(scratch.path(), &["tombstones"])?[0]["reason"] == "of_another_age", "a reason is kept as it is");
    Ok(())
}

/// The recipes for ClickHouse and `PostgreSQL` are tested with the same histories.
fn every_reader_finds_the_same_reports_missing() -> Result<()> {
    let (scratch, histories) = (Scratch::new()?, Histories::new());
    let collector = Collecting::start(scratch.path(), &[])?;
    for lines in histories.lines.chunks(500) {
        let answer = collector.post(NDJSON, lines.join("\n").as_bytes())?;
        ensure!(answer.status == 200, "{answer:?}");
    }
    histories.check("weir collect", &query(scratch.path(), &["gaps"])?)?;
    histories.check_contested("weir collect", ids(&query(scratch.path(), &["contested"])?)?)?;
    histories.check("the view of dashboards", &grafana::rows(scratch.path(), "SELECT * FROM missing")?)?;
    let file = scratch.file("reports.ndjson");
    fs::write(&file, histories.text())?;
    let merged = Command::new(weir_binary()?).args(["merge", "--json"]).arg(&file).output()?;
    let answer: Value = serde_json::from_slice(&merged.stdout)?;
    for (observer, missing) in &histories.missing {
        let defects = answer["defects"].as_array().into_iter().flatten();
        let sum = |what: &str| {
            let chosen = defects.clone().filter(|one| one["observer"] == **observer && one["what"] == what);
            chosen.filter_map(|one| one["reports"].as_u64()).sum::<u64>()
        };
        let found = (sum("gap"), sum("tombstone"));
        let is_same = found == (missing.unexplained(), missing.dropped);
        ensure!(is_same, "{observer}: {found:?} instead of {missing:?}");
        let contested = histories.contested_numbers.get(observer).copied().unwrap_or_default();
        ensure!(sum("contested") == contested, "{observer}: {} instead of {contested}", sum("contested"));
        let cloned = histories.clones[observer].len() as u64;
        ensure!(sum("cloned") == cloned, "{observer}: {} instead of {cloned}", sum("cloned"));
    }
    let clones = query(scratch.path(), &["clones"])?;
    for (observer, expected) in &histories.clones {
        let rows = clones.iter().filter(|row| row["observer"] == **observer);
        let found: BTreeSet<String> = rows.filter_map(|row| Some(row["boot_id"].as_str()?.to_owned())).collect();
        ensure!(found == *expected, "{observer}: {found:?} instead of {expected:?}");
    }
    ensure!(clones.len() > 5, "this tests little: {clones:?}");
    Ok(())
}

fn only_clients_with_the_token_can_store() -> Result<()> {
    const TOKEN: &str = "a-token-of-enough-letters";
    let scratch = Scratch::new()?;
    let file = scratch.file("token");
    fs::write(&file, format!("{TOKEN}\n"))?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    let file = file.to_str().context("it is text")?;
    let collector = Collecting::start(scratch.path(), &["--token-file", file])?;
    let (body, stored) = reports(1..=2);
    for headers in ["", "Authorization: Bearer wrong\r\n", "Authorization: Basic YTph\r\n"] {
        let answer = collector.post(&format!("{NDJSON}{headers}"), &body)?;
        ensure!(answer.status == 401 && answer.stored().is_empty(), "{headers:?}: {answer:?}");
        ensure!(answer.head.to_lowercase().contains("www-authenticate: bearer"), "{answer:?}");
    }
    check_ids(scratch.path(), &[])?;
    let answer = collector.post(&format!("{NDJSON}Authorization: Bearer {TOKEN}\r\n"), &body)?;
    ensure!((answer.status, answer.stored()) == (200, stored), "{answer:?}");
    let log = collector.log()?;
    ensure!(!log.contains(TOKEN), "the token is in the log: {log}");
    Ok(())
}

fn other_machines_are_not_let_in_by_accident() -> Result<()> {
    let scratch = Scratch::new()?;
    let output = Command::new(weir_binary()?)
        .args(["collect", "--listen", "0.0.0.0:0", "--database"])
        .arg(database(scratch.path()))
        .output()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "{:?}: {said}", output.status);
    ensure!(["--token-file", "--no-token", "127.0.0.1"].iter().all(|way| said.contains(way)), "{said}");
    ensure!(!database(scratch.path()).exists(), "nothing is made");
    Ok(())
}

fn a_database_that_is_gone_is_answered_later() -> Result<()> {
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let (body, stored) = reports(1..=2);
    let (here, aside) = (database(scratch.path()), scratch.file("aside.db"));
    fs::rename(&here, &aside)?;
    for _ in 0..3 {
        let answer = collector.post(NDJSON, &body)?;
        ensure!(answer.status == 503 && answer.stored().is_empty(), "{answer:?}");
        ensure!(answer.head.to_lowercase().contains("retry-after"), "{answer:?}");
    }
    fs::rename(&aside, &here)?;
    let answer = collector.post(NDJSON, &body)?;
    ensure!((answer.status, answer.stored()) == (200, stored.clone()), "{answer:?}");
    let log = collector.log()?;
    ensure!(log.matches("reports cannot be stored").count() == 1, "it is said once: {log}");
    ensure!(log.matches("reports are stored again").count() == 1, "{log}");
    check_ids(scratch.path(), &stored)
}

fn clients_that_hang_do_not_delay_others() -> Result<()> {
    const CLIENTS: usize = 200;
    let scratch = Scratch::new()?;
    let collector = Collecting::start(scratch.path(), &[])?;
    let heads = [
        "",
        "POST / HTTP/1.1\r\nX-Slow: ",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n{",
    ];
    let mut hanging = Vec::new();
    for nth in 0..CLIENTS {
        let mut stream = TcpStream::connect(collector.address())?;
        stream.write_all(heads[nth % heads.len()].as_bytes())?;
        hanging.push(stream);
    }
    let (body, stored) = reports(1..=5);
    let answer = collector.post(NDJSON, &body)?;
    ensure!((answer.status, answer.stored()) == (200, stored), "{answer:?}");
    let open = fs::read_dir(format!("/proc/{}/fd", collector.pid()))?.count();
    ensure!(open < CLIENTS, "{open} descriptors: not each client keeps its connection");
    Ok(())
}

fn a_request_that_has_begun_is_answered_at_the_end() -> Result<()> {
    let scratch = Scratch::new()?;
    let mut collector = Collecting::start(scratch.path(), &[])?;
    let (body, stored) = reports(1..=50);
    let mut stream = TcpStream::connect(collector.address())?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // The answer `100 Continue` shows that the request has begun.
    let head =
        format!("POST / HTTP/1.1\r\nHost: x\r\n{NDJSON}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes())?;
    let mut going_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut going_on)?;
    ensure!(going_on.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&going_on));
    let ended = thread::scope(|scope| -> Result<_> {
        let ending = scope.spawn(|| collector.end(Signal::TERM));
        stream.write_all(&body)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        ending.join().expect("it does not panic")
    })?;
    ensure!(ended.success(), "{ended}: {}", collector.log()?);
    check_ids(scratch.path(), &stored)
}

/// The database is on a small file system, in a mount namespace of the collector.
fn a_full_disk_is_answered_later() -> Result<()> {
    let scratch = Scratch::new()?;
    let disk = scratch.file("disk");
    fs::create_dir(&disk)?;
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=1m weir-test \"$1\" && shift && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&disk).arg(weir_binary()?);
    let mut collector = Collecting::start_in(command, scratch.path(), &disk, &[])?;
    let mut stored = Vec::new();
    let mut first = 1;
    let full = loop {
        ensure!(first < 100_000, "a disk of 1 MiB has not filled up");
        let (body, ids) = reports(first..first + 100);
        let answer = collector.post(NDJSON, &body)?;
        match answer.status {
            200 => {
                ensure!(answer.stored() == ids, "{answer:?}");
                stored.extend(ids);
                first += 100;
            }
            _ => break answer,
        }
    };
    ensure!(full.status == 503 && full.stored().is_empty(), "{full:?}");
    ensure!(!stored.is_empty(), "nothing fitted at all");
    ensure!(collector.post(NDJSON, &reports(first..first + 100).0)?.status == 503, "it is still full");
    let log = collector.log()?;
    ensure!(log.matches("reports cannot be stored").count() == 1, "it is said once: {log}");
    // The disk has room again.
    let pid = collector.pid().to_string();
    let inside = || {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &pid]);
        command
    };
    let remount = inside().args(["mount", "-o", "remount,size=16m"]).arg(&disk).status()?;
    ensure!(remount.success(), "cannot make the disk larger: {remount}");
    let (body, ids) = reports(first..first + 100);
    let answer = collector.post(NDJSON, &body)?;
    ensure!((answer.status, answer.stored()) == (200, ids.clone()), "{answer:?}");
    stored.extend(ids);
    let mut command = inside();
    command.arg(weir_binary()?);
    check_rows(&query_by(command, &disk, &["windows"])?, &stored)?;
    ensure!(collector.end(Signal::TERM)?.success(), "{}", collector.log()?);
    Ok(())
}
