//! `weir top` and `weir run` on a real terminal: the numbers are those of the reports, and the terminal is as it was
//! after any end of the program, or of the weir that it asks.

use std::{fs, io::Write, os::unix::net::UnixStream, path::Path};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};
use weir_system::numbers::scaled;
use weir_tests::{
    account::{Loss, tally},
    clock,
    daemon::{Signal, weir_binary},
    netns::{self, Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    tmux::{self, Terminal},
    traffic::Plan,
};

use crate::watch::{INTERVAL, ROOMY_RINGS, TIMEOUT, Watch, list, native, number};

tests![
    numbers_on_the_screen_are_those_of_the_reports,
    the_first_line_says_what_is_shown_and_whether_it_is_held,
    a_replay_steps_back_and_what_is_no_capture_is_refused,
    whatever_ends_it_the_terminal_is_as_it_was,
    it_ends_with_its_terminal,
    weir_run_prints_tables_on_a_terminal_and_json_elsewhere,
];

/// Checks for everything that these tests need.
///
/// # Errors
///
/// What is missing.
pub fn requirements() -> Result<(), String> {
    netns::requirements()?;
    tmux::requirements()
}

const SIZES: [(u16, u16); 3] = [(80, 24), (100, 30), (160, 50)];

fn watch(socket: &Path) -> Result<Watch> {
    Watch::start(&format!("{INTERVAL}{ROOMY_RINGS}control: {{socket: {}}}\n", socket.display()))
}

/// The answer to a command of the control socket.
fn asked(socket: &Path, mut request: Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    request["version"] = json!(1);
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut told: Value = serde_json::from_reader(stream)?;
    ensure!(told.get("answer").is_some(), "{request}: {told}");
    Ok(told["answer"].take())
}

/// The list that the screen begins with: hosts if there are any.
const LISTS: [&str; 2] = ["[1 hosts]", "[2 sources]"];

/// Starts `weir top` in a terminal.
fn top(terminal: &Terminal, socket: &Path) -> Result<()> {
    let weir = weir_binary()?.canonicalize()?;
    terminal.run(&format!("{} top --socket {}", weir.display(), socket.display()))?;
    let is_there = |shown: &str| shown.starts_with("weir top") && LISTS.iter().any(|list| shown.contains(list));
    terminal.wait_for("the screen", TIMEOUT, is_there).map(drop)
}

fn numbers_on_the_screen_are_those_of_the_reports() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let mut watch = watch(&socket)?;
    let plan = Plan { seed: 91, packets: 20_000, flows: 12, ..Plan::default() };
    let sent = watch.send(plan, &mut Oracle::new())?;
    watch.daemon.wait_for_reports(1, TIMEOUT)?;
    clock::wait_for("a history of all packets", TIMEOUT, || {
        let union = asked(&socket, json!({"command": "span"}))?;
        Ok((tally(&union["totals"])? == sent).then_some(()))
    })?;
    for (columns, lines) in SIZES {
        let terminal = Terminal::new(columns, lines)?;
        top(&terminal, &socket)?;
        an_hour_is_the_union(&terminal, &socket, columns)?;
        a_window_is_its_report(&terminal, &mut watch)?;
        terminal.press("q")?;
        terminal.expect_clean(TIMEOUT)?;
    }
    watch.stop(Loss::None).map(drop)
}

/// Chooses the last hour, in which all of weir's life is, and compares all lists with the union of the same windows.
fn an_hour_is_the_union(terminal: &Terminal, socket: &Path, columns: u16) -> Result<()> {
    terminal.press("t")?;
    terminal.wait_for("the spans", TIMEOUT, |shown| shown.contains("the last:") && shown.contains("4 = 1h"))?;
    terminal.press("4")?;
    let shown = terminal.wait_for("the last hour", TIMEOUT, |shown| {
        let title = first_line(shown);
        title.contains(" of 1 h to ") && title.contains("NOT LIVE")
    })?;
    ensure!(shown.contains("history begins ") && !shown.contains("NOT KNOWN"), "weir is younger than an hour: {shown}");
    let union = asked(socket, json!({"command": "span", "to": end_of(&shown)?}))?;
    for (key, name) in [("3", "destinations"), ("4", "pairs"), ("6", "services"), ("2", "sources")] {
        terminal.press(key)?;
        let tab = format!("[{key} {name}]");
        let shown = terminal.wait_for(&tab, TIMEOUT, |shown| shown.contains(&tab))?;
        ensure!(shown.lines().all(|line| line.chars().count() <= columns.into()), "{shown}");
        rows_are_in(&shown, &union, name)?;
        interface_is_in(&shown, &union)?;
    }
    // Everything about a source, with its hour.
    terminal.press("Enter")?;
    let shown = terminal.wait_for("its hour", TIMEOUT, |shown| shown.contains("by the windows of this list"))?;
    ensure!(shown.contains("peers, of those") || columns < 100, "{shown}");
    let first = &union["top"]["sources"][0]["src_ip"];
    ensure!(first.as_str().is_some_and(|first| shown.contains(first)), "{first}: {shown}");
    leave_detail(terminal)
}

/// Goes back to the list. A key right after Escape would be read as one together with it.
fn leave_detail(terminal: &Terminal) -> Result<()> {
    terminal.press("Escape")?;
    terminal.wait_for("the list", TIMEOUT, |shown| LISTS.iter().any(|list| shown.contains(list))).map(drop)
}

/// Goes to the oldest window, and on to the one that has packets: it is as its report says.
fn a_window_is_its_report(terminal: &Terminal, watch: &mut Watch) -> Result<()> {
    let reports = watch.daemon.reports()?;
    let has_packets = |report: &&Value| number(&report["totals"]["packets"]).is_ok_and(|packets| packets > 0);
    let report = reports.iter().find(has_packets).context("no report has packets")?;
    let window = &report["window"];
    let part = |name: &str| Ok::<_, anyhow::Error>(window[name].as_str().context("a time")?[11..19].to_owned());
    let title = format!("{} – {} UTC", part("start")?, part("end")?);
    // Windows instead of spans.
    for key in ["End", "Home"] {
        terminal.press(key)?;
        let is_past = key == "Home";
        terminal.wait_for(key, TIMEOUT, |shown| shown.contains("NOT LIVE") == is_past)?;
    }
    let mut shown = terminal.shown()?;
    for _ in 0..reports.len() {
        if shown.contains(&title) {
            break;
        }
        let before = first_line(&shown).to_owned();
        let window_of = |shown: &str| shown.split("  ").nth(2).map(str::to_owned);
        terminal.press(".")?;
        shown = terminal.wait_for("the next window", TIMEOUT, |shown| window_of(shown) != window_of(&before))?;
    }
    ensure!(shown.contains(&title), "{title} is not in\n{shown}");
    rows_are_in(&shown, report, "sources")?;
    interface_is_in(&shown, report)
}

fn first_line(shown: &str) -> &str {
    shown.lines().next().unwrap_or_default()
}

fn the_first_line_says_what_is_shown_and_whether_it_is_held() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let mut watch = watch(&socket)?;
    watch.send(Plan { seed: 95, packets: 5_000, flows: 12, ..Plan::default() }, &mut Oracle::new())?;
    watch.daemon.wait_for_reports(3, TIMEOUT)?;
    let terminal = Terminal::new(80, 24)?;
    top(&terminal, &socket)?;
    let title = |what: &str, is_it: &dyn Fn(&str) -> bool| {
        let shown = terminal.wait_for(what, TIMEOUT, |shown| is_it(first_line(shown)))?;
        Ok::<_, anyhow::Error>(first_line(&shown).trim_end().to_owned())
    };
    let span_of_a_minute = |title: &str| title.contains("1 min to ") && title.contains(" UTC  ");
    terminal.press("Space")?;
    let held = title("a held screen", &|title| title.ends_with("  HELD"))?;
    let reports = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(reports + 2, TIMEOUT)?;
    ensure!(first_line(&terminal.shown()?).trim_end() == held, "it goes on: {held}");
    // The request is answered all the same.
    terminal.press("t")?;
    terminal.press("1")?;
    let span = title("a span on a held screen", &|title| span_of_a_minute(title) && title.ends_with("NOT LIVE  HELD"))?;
    terminal.press("<")?;
    let why = terminal.wait_for("the end of the history", TIMEOUT, |shown| shown.contains("the history begins "))?;
    ensure!(why.contains(" UTC") && first_line(&why).trim_end() == span, "{why}");
    terminal.press("Home")?;
    title("the oldest minute", &|title| span_of_a_minute(title) && title.ends_with("HELD"))?;
    terminal.press("Enter")?;
    terminal.wait_for("the hour of a row", TIMEOUT, |shown| shown.contains("by the windows of this list"))?;
    leave_detail(&terminal)?;
    terminal.press("End")?;
    title("the held screen again", &|title| title == held)?;
    terminal.press("Space")?;
    title("the live screen", &|title| title.ends_with("  live"))?;
    // Windows are named by their start and end, and stepped over one by one, also a span that followed now.
    terminal.press("<")?;
    let window = title("a window", &|title| title.contains(" – ") && title.contains("NOT LIVE"))?;
    terminal.press("<")?;
    let of = |title: &str| title.split("  ").find(|part| part.contains(" – ")).map(str::to_owned);
    let before = title("the window before", &|title| of(title).is_some() && of(title) != of(&window))?;
    let [start, end] = [of(&window), of(&before)].map(Option::unwrap_or_default);
    let (start, end) = (start.split(' ').next().unwrap_or_default(), end.split(' ').nth(2).unwrap_or_default());
    ensure!(start == end, "{before} is not the window before {window}");
    terminal.press("q")?;
    terminal.expect_clean(TIMEOUT)?;
    watch.stop(Loss::None).map(drop)
}

fn a_replay_steps_back_and_what_is_no_capture_is_refused() -> Result<()> {
    let (scratch, terminal) = (Scratch::new()?, Terminal::new(100, 30)?);
    let weir = weir_binary()?.canonicalize()?;
    let text = scratch.file("notes.pcap");
    fs::write(&text, "# not a capture\n")?;
    fs::write(scratch.file("empty.pcap"), "")?;
    let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/demo.pcap");
    let cases = [
        (text.display().to_string(), "not a capture: expected pcap or pcapng, but it begins with"),
        (format!("{capture} {}", text.display()), "not a capture: expected pcap or pcapng"),
        (scratch.file("empty.pcap").display().to_string(), "the file is empty"),
        (scratch.file("missing.pcap").display().to_string(), "No such file or directory"),
        ("/proc/self".to_owned(), "Is a directory"),
    ];
    for (nth, (file, why)) in cases.into_iter().enumerate() {
        // The first line is still there: no screen was opened.
        terminal.run(&format!("clear; echo before {nth}; {} top --replay {file}; echo exit $?", weir.display()))?;
        let has_ended = |shown: &str| {
            shown.starts_with(&format!("before {nth}\n")) && shown.lines().any(|line| line.starts_with("exit "))
        };
        let shown = terminal.wait_for("the refusal", TIMEOUT, has_ended)?;
        ensure!(shown.replace('\n', "").contains(why) && !shown.contains("exit 0"), "{file}: {shown}");
    }
    terminal.run(&format!("clear; {} top --replay {capture} --speed 1000 --window 1s", weir.display()))?;
    terminal.wait_for("the end of the capture", TIMEOUT, |shown| first_line(shown).contains("capture ended"))?;
    terminal.press("Space")?;
    terminal.wait_for("that it is held", TIMEOUT, |shown| first_line(shown).contains("  HELD  capture ended"))?;
    terminal.press("Home")?;
    terminal.wait_for("the first window", TIMEOUT, |shown| first_line(shown).contains("NOT LIVE  HELD"))?;
    terminal.press("Enter")?;
    terminal.wait_for("the hour of a row", TIMEOUT, |shown| shown.contains("by the windows of this list"))?;
    terminal.press("q")?;
    terminal.expect_clean(TIMEOUT)
}

/// The end of the span that the first line names.
fn end_of(shown: &str) -> Result<String> {
    let title = first_line(shown);
    let (before, _) = title.split_once(" UTC").with_context(|| format!("no time in {title}"))?;
    let time = before.split(' ').next_back().unwrap_or_default();
    let now = jiff::Timestamp::from_second(i64::try_from(clock::since_epoch().as_secs())?)?;
    let mut end: jiff::Timestamp = format!("{}T{time}Z", now.strftime("%Y-%m-%d")).parse()?;
    if end > now {
        // It was before midnight.
        end -= jiff::SignedDuration::from_hours(24);
    }
    Ok(end.to_string())
}

fn rate(sums: &Value, seconds: &Value) -> Result<String> {
    let seconds = seconds.as_f64().context("seconds")?;
    Ok(scaled(number(sums)? as f64 * 8.0 / seconds, "bit/s"))
}

/// All rows that there is room for are those of a report or union, with its numbers.
fn rows_are_in(shown: &str, told: &Value, name: &str) -> Result<()> {
    let lines: Vec<&str> = shown.lines().skip_while(|line| !line.contains(&format!(" {name}]"))).skip(2).collect();
    let (mut found, rows) = (0, list(&told["top"][name])?);
    for row in rows {
        let key = match name {
            "services" => &row["proto"],
            "destinations" => &row["dst_ip"],
            _ => &row["src_ip"],
        };
        let start = format!("{} {}", row["rank"], key.as_str().context("a key")?);
        let Some(line) = lines.iter().find(|line| line.trim_start_matches(['>', ' ']).starts_with(&start)) else {
            break;
        };
        let rate = rate(&row["bytes"]["value"], &told["window"]["seconds"])?;
        ensure!(line.contains(&rate), "{name}: {rate} is not in {line:?}");
        found += 1;
    }
    ensure!(found >= rows.len().min(4), "{found} of {} rows of {name} are in\n{shown}", rows.len());
    Ok(())
}

/// The line of the interface has its mean rates.
fn interface_is_in(shown: &str, told: &Value) -> Result<()> {
    let seen = tally(&told["interfaces"][0]["ledger"]["seen"])?;
    let seconds = told["window"]["seconds"].as_f64().context("seconds")?;
    let line = shown.lines().find(|line| line.contains(QuietPair::OBSERVER_INTERFACE)).context("no interface")?;
    for rate in [scaled(seen.bytes as f64 * 8.0 / seconds, "bit/s"), scaled(seen.packets as f64 / seconds, "pkt/s")] {
        ensure!(line.contains(&rate), "{rate} is not in {line:?}");
    }
    Ok(())
}

fn whatever_ends_it_the_terminal_is_as_it_was() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let mut watch = watch(&socket)?;
    watch.send(Plan { seed: 92, packets: 5_000, flows: 12, ..Plan::default() }, &mut Oracle::new())?;
    watch.daemon.wait_for_reports(1, TIMEOUT)?;
    let terminal = Terminal::new(80, 24)?;
    top(&terminal, &socket)?;
    kill_process(Pid::from_raw(i32::try_from(terminal.child()?)?).context("a process")?, Signal::TERM)?;
    terminal.expect_clean(TIMEOUT).context("after SIGTERM")?;

    top(&terminal, &socket)?;
    for nth in 0..60_u16 {
        terminal.resize(20 + nth * 37 % 180, 3 + nth * 13 % 60)?;
    }
    for (columns, lines) in SIZES {
        terminal.resize(columns, lines)?;
        let fits = |shown: &str| {
            let lines_shown: Vec<&str> = shown.lines().collect();
            let has_foot = lines_shown.get(usize::from(lines) - 1).is_some_and(|line| line.ends_with("q quit"));
            has_foot && shown.matches("weir top").count() == 1 && shown.starts_with("weir top")
        };
        terminal.wait_for(&format!("{columns}x{lines}"), TIMEOUT, fits)?;
    }
    terminal.press("q")?;
    terminal.expect_clean(TIMEOUT).context("after a storm of sizes")?;

    terminal.resize(80, 24)?;
    top(&terminal, &socket)?;
    watch.daemon.signal(Signal::KILL)?;
    terminal.wait_for("what has happened", TIMEOUT, |shown| {
        shown.contains("weir is not running") && first_line(shown).ends_with("NO ANSWER")
    })?;
    terminal.press("q")?;
    terminal.expect_clean(TIMEOUT).context("after weir was killed")?;

    let panics = weir_binary()?.canonicalize()?.with_file_name("examples").join("panics");
    ensure!(panics.exists(), "{} is missing: cargo build -p weir-top --examples", panics.display());
    terminal.run(&panics.display().to_string())?;
    terminal.wait_for("the screen", TIMEOUT, |shown| shown.contains("panics when a key steps back"))?;
    terminal.press("<")?;
    terminal.wait_for("its message", TIMEOUT, |shown| shown.contains("the source has failed"))?;
    terminal.expect_clean(TIMEOUT).context("after a panic")
}

/// A connection that ends takes the terminal away. Nothing must stay behind on the router.
fn it_ends_with_its_terminal() -> Result<()> {
    let scratch = Scratch::new()?;
    let socket = scratch.file("control.sock");
    let mut watch = watch(&socket)?;
    watch.send(Plan { seed: 94, packets: 5_000, flows: 12, ..Plan::default() }, &mut Oracle::new())?;
    watch.daemon.wait_for_reports(1, TIMEOUT)?;
    let terminal = Terminal::new(80, 24)?;
    top(&terminal, &socket)?;
    let process = format!("/proc/{}", terminal.child()?);
    ensure!(Path::new(&process).exists(), "{process} is missing");
    drop(terminal);
    clock::wait_for("the end of weir top", TIMEOUT, || Ok((!Path::new(&process).exists()).then_some(())))
}

fn weir_run_prints_tables_on_a_terminal_and_json_elsewhere() -> Result<()> {
    let (scratch, pair) = (Scratch::new()?, Lab::quiet_pair()?);
    let config = scratch.file("weir.yaml");
    let interfaces = format!("interfaces: [{}]\n", native(QuietPair::OBSERVER_INTERFACE));
    fs::write(&config, format!("{interfaces}{INTERVAL}control: {{socket: none}}\n"))?;
    let run = format!(
        "ip netns exec {} {} run --config {}",
        pair.observer.name(),
        weir_binary()?.canonicalize()?.display(),
        config.display()
    );
    let terminal = Terminal::new(100, 30)?;
    let ends = |terminal: &Terminal| {
        terminal.press("C-c")?;
        terminal.expect_clean(TIMEOUT)
    };
    terminal.run(&run)?;
    let shown = terminal.wait_for("tables", TIMEOUT, |shown| shown.contains("live: weir top"))?;
    ensure!(
        shown.contains("TRUST") && shown.contains(QuietPair::OBSERVER_INTERFACE) && !shown.contains("{\"schema\""),
        "{shown}"
    );
    ends(&terminal)?;
    let is_json = |shown: &str| shown.contains("{\"schema\":\"weir.report/1\"");
    terminal.run(&format!("{run} --json"))?;
    terminal.wait_for("JSON that was asked for", TIMEOUT, is_json)?;
    ends(&terminal)?;
    terminal.run(&format!("{run} 2>/dev/null | cut -c 1-60"))?;
    terminal.wait_for("JSON in a pipe", TIMEOUT, is_json)?;
    ends(&terminal)
}
