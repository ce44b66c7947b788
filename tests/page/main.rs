//! The page in a browser: real Chromium, a real weir in a network namespace, real packets. The page shows the same
//! numbers as the report.

mod access;
mod expected;
mod fleet;
mod http;
mod trust;

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use weir_tests::{
    chromium::{self, Browser, Screen},
    clock, colours,
    daemon::{Daemon, weir_binary},
    inject::{self, Pace},
    netns::{self, Lab, QuietPair},
    quiet::TIMEOUT,
    scratch::Scratch,
    tmux,
    traffic::{Mix, Plan, Traffic},
    trial::{needed, run, trial},
};

fn main() -> ExitCode {
    let lab = needed(netns::requirements());
    let browser = needed(chromium::requirements());
    let terminal = needed(tmux::requirements());
    let in_browser = |name, test| trial(name, test, &[&lab, &browser]);
    let over_http = |name, test| trial(name, test, &[&lab]);
    run(vec![
        in_browser("the_page_shows_the_numbers_of_the_report", the_page_shows_the_numbers_of_the_report),
        in_browser("rates_are_those_of_the_stream", rates_are_those_of_the_stream),
        in_browser("a_time_shows_what_weir_remembers", a_time_shows_what_weir_remembers),
        in_browser(
            "a_time_beside_an_earlier_one_shows_what_has_changed",
            a_time_beside_an_earlier_one_shows_what_has_changed,
        ),
        in_browser("usage_is_what_the_command_prints", usage_is_what_the_command_prints),
        in_browser("hosts_have_their_names", hosts_have_their_names),
        in_browser("the_open_window_is_shown_before_its_end", the_open_window_is_shown_before_its_end),
        in_browser("the_keyboard_alone_suffices", the_keyboard_alone_suffices),
        in_browser("a_row_tells_everything_about_itself", a_row_tells_everything_about_itself),
        in_browser("before_the_first_report_it_says_so", before_the_first_report_it_says_so),
        in_browser("a_broken_connection_is_shown", a_broken_connection_is_shown),
        in_browser("messages_that_a_proxy_holds_back_are_late", messages_that_a_proxy_holds_back_are_late),
        in_browser("the_page_trusts_what_the_terminal_trusts", trust::the_page_trusts_what_the_terminal_trusts),
        in_browser("a_detached_interface_is_not_measured", trust::a_detached_interface_is_not_measured),
        in_browser("every_text_has_enough_contrast", access::every_text_has_enough_contrast),
        in_browser("tab_reaches_everything", access::tab_reaches_everything),
        in_browser("long_lists_are_drawn_by_parts", access::long_lists_are_drawn_by_parts),
        in_browser("a_view_begins_with_the_busiest_interface", access::a_view_begins_with_the_busiest_interface),
        trial("a_picture_shows_the_page", a_picture_shows_the_page, &[&lab, &browser, &terminal]),
        in_browser("the_fleet_is_what_the_database_has", fleet::the_fleet_is_what_the_database_has),
        over_http("the_fleet_has_the_guards_of_the_page", fleet::the_fleet_has_the_guards_of_the_page),
        over_http("its_thread_has_no_right", http::its_thread_has_no_right),
        over_http("beyond_loopback_it_needs_a_token", http::beyond_loopback_it_needs_a_token),
        over_http("browsers_that_stall_cost_no_packet", http::browsers_that_stall_cost_no_packet),
        over_http("addresses_are_masked_as_in_the_report", http::addresses_are_masked_as_in_the_report),
    ])
}

/// The address of the page inside the namespace.
const PAGE: &str = "http://127.0.0.1:9470/";
const SETTINGS: &str = "web: {listen: 127.0.0.1:9470}\n";
const OBSERVED: &str = QuietPair::OBSERVER_INTERFACE;
/// All widths that the page is designed for, light and dark.
const SCREENS: [Screen; 6] = [
    Screen { width: 390, height: 844, is_dark: false },
    Screen { width: 390, height: 844, is_dark: true },
    Screen { width: 1280, height: 900, is_dark: false },
    Screen { width: 1280, height: 900, is_dark: true },
    Screen { width: 1920, height: 1080, is_dark: false },
    Screen { width: 1920, height: 1080, is_dark: true },
];
/// A JavaScript expression for the content of the page.
const SHOWN: &str = include_str!("shown.js");

/// weir with a page, on a quiet link.
struct Watched {
    pair: QuietPair,
    daemon: Daemon,
}

impl Watched {
    fn start(settings: &str) -> Result<Self> {
        Self::on(Lab::quiet_pair()?, &format!("{settings}sinks: [SINK]\n"))
    }

    /// `SINK` in the settings becomes the one that the test reads.
    fn on(pair: QuietPair, settings: &str) -> Result<Self> {
        let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
            let sink = format!("{{type: file, path: {}}}", reports.display());
            format!("interfaces: [{OBSERVED}]\n{SETTINGS}{}", settings.replace("SINK", &sink))
        })?;
        daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
        Ok(Self { pair, daemon })
    }

    /// Sends packets while `test` runs.
    fn with_traffic(&mut self, test: impl FnOnce(&QuietPair, &mut Daemon) -> Result<()>) -> Result<()> {
        let Self { pair, daemon } = self;
        let plan = Plan { seed: 90, packets: 10_000_000, mix: Mix::odd(), ..Plan::default() };
        let is_over = AtomicBool::new(false);
        let packets = Traffic::new(plan)?.take_while(|_| !is_over.load(Ordering::Relaxed));
        thread::scope(|scope| {
            let send = || inject::send(QuietPair::GENERATOR_INTERFACE, packets, Pace::PacketsPerSecond(1_500));
            let sender = scope.spawn(|| pair.generator.enter(send));
            let tested = test(pair, daemon);
            is_over.store(true, Ordering::Relaxed);
            let sent = sender.join().map_err(|_| anyhow!("the sender panicked"))?;
            tested?;
            sent??;
            Ok(())
        })
    }
}

/// Waits for the report with this id.
fn report(daemon: &mut Daemon, id: &str) -> Result<Value> {
    clock::wait_for(&format!("the report {id}"), TIMEOUT, || {
        Ok(daemon.reports()?.into_iter().find(|report| report["id"] == id))
    })
}

fn the_page_shows_the_numbers_of_the_report() -> Result<()> {
    let settings = "report: {interval: 2s, top: 20}\nsampling: {packets: 3}\nviews: [{name: web, match: {port: 443}, by: [dst_ip]}]\n\
                    alerts: {rules: [{name: any, when: packets > 0}]}\n";
    let mut watched = Watched::start(settings)?;
    watched.with_traffic(|pair, daemon| {
        let mut browser = Browser::start(&pair.observer)?;
        for (nth, screen) in SCREENS.into_iter().enumerate() {
            browser.set_screen(screen)?;
            let by = if nth % 2 == 0 { "bytes" } else { "packets" };
            browser.open(&format!("{PAGE}#by={by}&list=sources"))?;
            browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 10")?;
            let lists = browser.value("[...document.querySelectorAll('#tabs a')].map((tab) => tab.dataset.list)")?;
            let lists = lists.as_array().context("no lists")?.clone();
            ensure!(lists.len() >= 13, "{lists:?}");
            let mut seen = HashMap::new();
            for list in lists.iter().filter_map(Value::as_str) {
                browser.value(&format!("document.querySelector('#tabs [data-list=\"{list}\"]').click()"))?;
                let is_shown = format!("document.querySelector('#tabs [aria-current]')?.dataset.list === '{list}'");
                browser.wait_for(list, &is_shown)?;
                let shown = drawn(&mut browser)?;
                let id = expected::report_of(&shown)?;
                expected::compare(&shown, &report(daemon, &id)?, by)
                    .with_context(|| format!("{list} of {id} at {screen:?}: {shown}"))?;
                ensure!(shown["isWide"] == false, "{list} is wider than the screen: {screen:?}");
                seen.insert(list.to_owned(), shown["rows"].as_array().map_or(0, Vec::len));
            }
            for list in ["sources", "pairs", "flows", "services", "web"] {
                ensure!(seen.get(list).is_some_and(|rows| *rows > 0), "{list} was empty: {seen:?}");
            }
        }
        let requests = browser.requests();
        ensure!(requests.len() > 20, "{requests:?}");
        let elsewhere = elsewhere(&requests, PAGE);
        ensure!(elsewhere.is_empty(), "requests to elsewhere: {elsewhere:?}");
        let mistakes = browser.mistakes();
        ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
        Ok(())
    })
}

/// The requests that leave the page. Chromium's own pictures, as those of a field for a time, are within it.
fn elsewhere<'r>(requests: &'r [String], page: &str) -> Vec<&'r String> {
    let is_own = |url: &str| url.starts_with(page) || url.starts_with("data:") || url == "about:blank";
    requests.iter().filter(|url| !is_own(url)).collect()
}

/// The content of the page when all rows are drawn. On a busy machine that takes several frames.
fn drawn(browser: &mut Browser) -> Result<Value> {
    clock::wait_for("all rows", TIMEOUT, || {
        let shown = browser.value(SHOWN)?;
        Ok((shown["isBusy"] == false).then_some(shown))
    })
}

fn rates_are_those_of_the_stream() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 10s}\n")?;
    watched.with_traffic(|pair, _| {
        let mut browser = Browser::start(&pair.observer)?;
        browser.open(PAGE)?;
        let seconds = http::seconds(&pair.observer)?;
        let mut shown = Vec::new();
        for _ in 0..5 {
            let last = shown.last().map_or("-1".to_owned(), ToString::to_string);
            let rate = format!("document.querySelector('[data-interface={OBSERVED}] [data-rate]')?.dataset.value");
            let moved =
                browser.wait_for("another second", &format!("({rate} ?? '') !== '{last}' && Number({rate})"))?;
            shown.push(moved.as_u64().context("a rate is whole bytes")?);
        }
        let told = seconds.stop()?;
        let bytes: Vec<_> =
            told.iter().filter_map(|second| second["interfaces"][0]["counted"]["bytes"].as_u64()).collect();
        let missing: Vec<_> = shown.iter().filter(|rate| !bytes.contains(rate)).collect();
        // The two streams may begin with different seconds.
        ensure!(missing.len() <= 1, "{missing:?} of {shown:?} are not among {bytes:?}");
        Ok(())
    })
}

fn a_time_shows_what_weir_remembers() -> Result<()> {
    let settings = "report: {interval: 2s, top: 20}\nsampling: {packets: 3}\ncontrol: {socket: control.sock}\n";
    let mut watched = Watched::start(settings)?;
    watched.with_traffic(|pair, daemon| {
        let reports = daemon.wait_for_reports(6, TIMEOUT)?;
        let time = |report: &Value, edge: &str| {
            let time = report["window"][edge].as_str().context("no time")?;
            anyhow::Ok(time.replace(".000000", ""))
        };
        // These windows have ended, so every query gets the same answer.
        let chosen = &reports[1..5];
        let [from, to] = [time(&chosen[0], "start")?, time(&chosen[3], "end")?];
        let (status, _, span) = http::get(&pair.observer, &format!("/api/span?from={from}&to={to}"))?;
        let span: Value = serde_json::from_str(&span).with_context(|| format!("{status} {span}"))?;
        // The terminal tells the same of that time.
        let socket = daemon.directory().join("control.sock");
        let told = printed(&["report", "--json", "--from", &from, "--to", &to], &socket)?;
        ensure!(told == span, "weir report has {told}\nand the page has {span}");
        let mut browser = Browser::start(&pair.observer)?;
        for by in ["bytes", "packets"] {
            browser.open(&format!("{PAGE}#from={from}&to={to}&by={by}"))?;
            browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 10")?;
            browser.wait_for("a chart", "document.querySelector('#charts .plot path')")?;
            for list in ["sources", "pairs", "services"] {
                browser.value(&format!("document.querySelector('#tabs [data-list=\"{list}\"]').click()"))?;
                let is_shown = format!("document.querySelector('#tabs [aria-current]')?.dataset.list === '{list}'");
                browser.wait_for(list, &is_shown)?;
                let shown = drawn(&mut browser)?;
                expected::compare_span(&shown, &span, chosen, by).with_context(|| format!("{list}: {shown}"))?;
            }
        }
        parts_of_windows_show_the_whole_windows(&mut browser, [&from, &to], chosen)?;
        // Each window has a step of its own, and none is there that does not exist.
        browser.value("document.querySelector('#list tbody a').click()")?;
        let steps = browser
            .wait_for("the windows of a row", "document.querySelector('#detail [data-windows]')?.dataset.windows")?;
        ensure!(steps == "4", "the row has {steps} windows, and there are 4");
        // The command is about the same time.
        let command = browser.value("[...document.querySelectorAll('#detail pre')].at(-1).textContent")?;
        ensure!(command == format!("weir report --from {from} --to {to}"), "{command}");
        ensure!(browser.value("document.querySelector('.answers')")?.is_null(), "the last window is not this time");
        browser.value("document.querySelector('#detail [data-close]').click()")?;
        browser.wait_for("no details", "!document.getElementById('detail').open")?;
        // A list that cannot be added up says so, with a way to the last window, and nothing about bounds.
        browser.press("9", false)?;
        browser.wait_for("floods", "document.getElementById('list').textContent.includes('cannot be added up')")?;
        let about = browser.value("document.getElementById('lists').textContent")?;
        let about = about.as_str().unwrap_or_default();
        ensure!(!about.contains("hold at") && about.contains("by the number of sources"), "{about}");
        for link in ["#list .empty a", "[data-span=now]"] {
            let address = browser.value(&format!("document.querySelector('{link}').getAttribute('href')"))?;
            ensure!(address.as_str().is_some_and(|to| to.contains("list=floods") && !to.contains("from")), "{address}");
        }
        // After details are closed, the way back does not open them again.
        browser.value("document.querySelector('[data-list=sources]').click()")?;
        browser.wait_for("a row", "document.querySelector('#list tbody a')")?;
        browser.value("document.querySelector('#list tbody a').click()")?;
        browser.wait_for("the details", "document.getElementById('detail').open")?;
        browser.press("Escape", false)?;
        browser.wait_for("no details", "!location.hash.includes('key=')")?;
        browser.value("history.back()")?;
        browser.value("new Promise((done) => setTimeout(done, 300))")?;
        ensure!(browser.value("document.getElementById('detail').open")? == false, "back has opened the details");
        browser.open(&format!("{PAGE}#from=yesterday"))?;
        browser.wait_for("words", "document.getElementById('notices')?.textContent.includes('not times in UTC')")?;
        for (name, seconds) in [("5 min", 300), ("20 min", 1200), ("1 h", 3600), ("24 h", 86_400)] {
            browser.value(&format!("document.querySelector('[data-span=\"{name}\"]').click()"))?;
            let chosen = "(() => { const all = new URLSearchParams(location.hash.slice(1)); \
                          return (Date.parse(all.get('to')) - Date.parse(all.get('from'))) / 1000; })()";
            browser.wait_for(name, &format!("Math.abs({chosen} - {seconds}) <= 1"))?;
            let is_current = format!("document.querySelector('[data-span=\"{name}\"][aria-current]')");
            browser.wait_for(&format!("{name} as the choice"), &is_current)?;
            // All have the same windows, those since weir was started.
            browser.wait_for(
                "windows",
                "/, [0-9]+ windows together/.test(document.getElementById('trust').textContent)",
            )?;
            browser.wait_for("a chart", "document.querySelector('#charts .plot path.line.up')?.getAttribute('d')")?;
            let shown = drawn(&mut browser)?;
            ensure!(shown["rows"].as_array().is_some_and(|rows| rows.len() >= 10), "{name}: {shown}");
        }
        let begins = browser.value("document.getElementById('rates-hint').textContent")?;
        ensure!(begins.as_str().is_some_and(|hint| hint.contains("It begins")), "{begins}");
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}

/// A time that begins and ends within windows becomes that of the whole windows: in the address, in the chart, after a
/// reload and on the way back.
fn parts_of_windows_show_the_whole_windows(
    browser: &mut Browser,
    [from, to]: [&str; 2],
    chosen: &[Value],
) -> Result<()> {
    let inside = |time: &str, milliseconds| -> Result<String> {
        let time: jiff::Timestamp = time.parse()?;
        Ok((time + jiff::SignedDuration::from_millis(milliseconds)).to_string())
    };
    browser.open(&format!("{PAGE}#from={}&to={}", inside(from, 700)?, inside(to, -1300)?))?;
    let sum: u64 = chosen.iter().filter_map(|report| report["interfaces"][0]["ledger"]["seen"]["bytes"].as_u64()).sum();
    let is_whole = format!(
        "(() => {{ const all = new URLSearchParams(location.hash.slice(1)); return all.get('from') === '{from}' && \
         all.get('to') === '{to}' && document.querySelector('.chart')?.getAttribute('aria-valuemax') === '7' && \
         document.querySelector('[data-rate]')?.dataset.value === '{sum}' && \
         document.getElementById('trust').textContent.includes('4 windows together'); }})()"
    );
    browser.wait_for("whole windows", &is_whole)?;
    browser.value("window.isOld = true; location.reload()")?;
    browser.wait_for("the same after a reload", &format!("!window.isOld && {is_whole}"))?;
    browser.value("document.querySelector('[data-span=now]').click()")?;
    browser.wait_for(
        "now",
        "!location.hash.includes('from=') && document.getElementById('trust').textContent.startsWith('Window')",
    )?;
    browser.value("history.back()")?;
    browser.wait_for("the same on the way back", &is_whole)?;
    Ok(())
}

/// Two times side by side: each row, its words and its bounds are those of `weir history changes`.
fn a_time_beside_an_earlier_one_shows_what_has_changed() -> Result<()> {
    let settings = "report: {interval: 2s, top: 20}\ncontrol: {socket: control.sock}\n";
    let mut watched = Watched::start(settings)?;
    watched.with_traffic(|pair, daemon| {
        let reports = daemon.wait_for_reports(7, TIMEOUT)?;
        let time = |nth: usize, edge: &str| {
            let time = reports[nth]["window"][edge].as_str().context("no time")?;
            anyhow::Ok(time.replace(".000000", ""))
        };
        // The first window begins when weir does.
        let (before, [from, to]) = (time(1, "start")?, [time(4, "start")?, time(6, "end")?]);
        let socket = daemon.directory().join("control.sock");
        let mut browser = Browser::start(&pair.observer)?;
        for (list, by) in [("sources", "bytes"), ("pairs", "packets"), ("services", "bytes")] {
            let asked = ["history", "changes", list, "--by", by, "--from", &from, "--to", &to, "--against", &before];
            let told = printed(&[&asked[..], &["--json"]].concat(), &socket)?;
            ensure!(told["now"]["windows"] == 3 && told["before"]["windows"] == 3, "{told}");
            let address = format!("{PAGE}#from={from}&to={to}&list={list}&by={by}&against={before}");
            browser.open(&address)?;
            let is_drawn = "document.getElementById('compare-about')?.textContent.includes(' beside ')";
            browser.wait_for("a comparison", is_drawn)?;
            let shown = browser.value(
                "({rows: [...document.querySelectorAll('.changes tbody tr')].map((row) => [row.dataset.change, \
                 ...[...row.querySelectorAll('.num')].flatMap((of) => [of.dataset.lower, of.dataset.upper])]), \
                 rest: document.querySelector('#compare-body .hint').textContent})",
            )?;
            let rows = told["rows"].as_array().context("rows")?;
            let expected: Vec<Value> = rows
                .iter()
                .take(50)
                .map(|row| {
                    let bounds = ["now", "before"]
                        .into_iter()
                        .flat_map(|time| ["lower", "upper"].map(|bound| Value::from(row[time][bound].to_string())));
                    [row["change"].clone()].into_iter().chain(bounds).collect()
                })
                .collect();
            ensure!(shown["rows"] == Value::from(expected), "{list}: {shown}\nand weir history has {told}");
            let rest = shown["rest"].as_str().unwrap_or_default();
            let uncertain = told["uncertain"].as_u64().context("a number")?;
            let named = uncertain + rows.len() as u64;
            let words = if uncertain == 0 { "All".to_owned() } else { format!("{uncertain} of") };
            ensure!(rest.starts_with(&format!("{words} {named} {list} ")), "{rest}");
        }
        // The choices lead to times of the same length, and away again.
        browser.value("document.querySelector('[data-against=before]').click()")?;
        browser.wait_for("the time before", "location.hash.includes('against=before')")?;
        let is_current = "document.querySelector('[data-against=before][aria-current]')";
        browser.wait_for("it as the choice", is_current)?;
        browser.value("document.querySelector('[data-against=\"7d\"]').click()")?;
        let why = "document.getElementById('compare-body').textContent.includes('with which it is compared')";
        browser.wait_for("why there is no week before", why)?;
        browser.value("document.querySelector('[data-against=none]').click()")?;
        browser.wait_for("no comparison", "document.getElementById('compare-body').textContent === ''")?;
        browser.value("document.querySelector('[data-span=now]').click()")?;
        browser.wait_for("now", "document.getElementById('compare').hidden")?;
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}

/// Returns the JSON that a command prints.
fn printed(arguments: &[&str], socket: &Path) -> Result<Value> {
    let output = Command::new(weir_binary()?).args(arguments).arg("--socket").arg(socket).output()?;
    serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

fn usage_is_what_the_command_prints() -> Result<()> {
    let (pair, state) = (Lab::quiet_pair()?, Scratch::new()?);
    let weir = weir_binary()?.canonicalize()?;
    let script = format!("#!/bin/sh\nSTATE_DIRECTORY='{}' exec '{}' \"$@\"\n", state.path().display(), weir.display());
    let program = state.script(&script, "weir", 0o700)?;
    let socket = state.file("control.sock");
    let settings = format!(
        "report: {{interval: 1s}}\ncontrol: {{socket: {}}}\nsinks: [SINK]\nnetworks: {{lab: {{prefixes: [0.0.0.0/0], \
         own: true}}}}\n",
        socket.display()
    );
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |reports| {
        let sink = format!("{{type: file, path: {}}}", reports.display());
        format!("interfaces: [{OBSERVED}]\n{SETTINGS}{}", settings.replace("SINK", &sink))
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let plan = Plan { packets: 2_000, ..Plan::default() };
    let sent = pair
        .generator
        .enter(|| inject::send(QuietPair::GENERATOR_INTERFACE, Traffic::new(plan)?, Pace::Unlimited))??;
    ensure!(sent.packets > 0, "{sent:?}");
    let interfaces = clock::wait_for("the usage", TIMEOUT, || {
        let usage = printed(&["usage", "--json"], &socket).unwrap_or_default();
        let bytes = usage["rows"][0]["bytes"]["value"].as_u64();
        Ok((bytes == Some(sent.bytes)).then_some(usage))
    })?;
    let mut browser = Browser::start(&pair.observer)?;
    browser.open(PAGE)?;
    browser.wait_for("usage", "document.querySelectorAll('[data-usage]').length > 0")?;
    let shown = browser.value("document.querySelector('[data-usage] [data-value]').dataset.value")?;
    let expected = interfaces["rows"][0]["bytes"]["value"].to_string();
    ensure!(shown.as_str() == Some(expected.as_str()), "{shown} in place of {interfaces}");
    for of in ["hosts", "networks"] {
        let answer = printed(&["usage", of, "--json"], &socket)?;
        let row = &answer["periods"][0]["rows"][0];
        let name = row["host"].as_str().or(row["network"].as_str()).context("no row")?;
        let shown = format!("document.querySelector('[data-usage-of^=\"{name} \"] [data-value]').dataset.value");
        let shown = browser.wait_for(of, &shown)?;
        let expected = row["down"]["value"].to_string();
        ensure!(shown.as_str() == Some(expected.as_str()), "{shown} in place of {answer}");
    }
    let text = browser.value("document.getElementById('usage').textContent")?;
    let text = text.as_str().context("no text")?;
    ensure!(text.contains("at least") || text.contains("Not seen"), "{text}");
    let mistakes = browser.mistakes();
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(())
}

fn hosts_have_their_names() -> Result<()> {
    let scratch = Scratch::new()?;
    let file = scratch.file("names.txt");
    fs::write(&file, "")?;
    let settings = format!("report: {{interval: 2s}}\nnames: {{file: {}, hosts: false}}\n", file.display());
    let mut watched = Watched::start(&settings)?;
    watched.with_traffic(|pair, _| {
        let mut browser = Browser::start(&pair.observer)?;
        // The page begins with the hosts.
        browser.open(PAGE)?;
        browser.wait_for("hosts", "document.querySelector('#tabs [aria-current]')?.dataset.list === 'hosts'")?;
        browser.wait_for("rows of hosts", "document.querySelectorAll('#list tr[data-key^=\"host=\"]').length >= 5")?;
        browser.open(&format!("{PAGE}#list=sources"))?;
        browser.wait_for("rows", "document.querySelectorAll('#list tr[data-key^=\"src_ip=\"]').length >= 5")?;
        let key = browser.value("document.querySelector('#list tr[data-key^=\"src_ip=\"]').dataset.key")?;
        let address = key.as_str().and_then(|key| key.strip_prefix("src_ip=")).context("no source")?.to_owned();
        fs::write(&file, format!("{address} anna<b>laptop\n"))?;
        let row = format!("document.querySelector('#list tr[data-key=\"src_ip={address}\"] th')?.textContent");
        let text = browser.wait_for("a name", &format!("{row}?.includes('anna?b?laptop') && {row}"))?;
        ensure!(text.as_str().is_some_and(|text| text.contains(&address)), "no address beside the name: {text}");
        let source = format!("document.querySelector('#list tr[data-key=\"src_ip={address}\"] .to')?.title");
        ensure!(browser.value(&source)?.as_str() == Some("name: file"), "no source");
        browser.open(&format!("{PAGE}#list=sources&key=src_ip%3D{address}"))?;
        let title = "document.getElementById('detail-title')?.textContent";
        browser.wait_for("its details", &format!("{title}?.startsWith('anna?b?laptop (file)')"))?;
        let mistakes = browser.mistakes();
        ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
        Ok(())
    })
}

fn the_open_window_is_shown_before_its_end() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 10s, top: 20}\nsampling: {packets: 3}\n")?;
    watched.with_traffic(|pair, daemon| {
        let mut browser = Browser::start(&pair.observer)?;
        browser.open(&format!("{PAGE}#window=open&list=sources"))?;
        let since = "/Open window since ([0-9:]+) UTC/.exec(document.getElementById('list-about')?.textContent)?.[1]";
        let rows = "document.querySelectorAll('#list tbody tr').length >= 5";
        let since = browser.wait_for("rows of an open window", &format!("{rows} && {since}"))?;
        let shown = drawn(&mut browser)?;
        // Another window may have begun meanwhile.
        let about = shown["listAbout"].as_str().and_then(|about| about.split(' ').nth(3));
        let since = about.or(since.as_str()).context("no time")?.to_owned();
        let report = clock::wait_for("the report of that window", TIMEOUT, || {
            let is_it = |report: &Value| report["window"]["start"].as_str().is_some_and(|start| start.contains(&since));
            Ok(daemon.reports()?.into_iter().find(is_it))
        })?;
        let common = expected::grows(&shown, &report)?;
        ensure!(common > 0, "no row of the open window is in its report: {shown}");
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}

fn the_keyboard_alone_suffices() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 2s}\n")?;
    watched.with_traffic(|pair, _| {
        let mut browser = Browser::start(&pair.observer)?;
        browser.open(&format!("{PAGE}#list=sources"))?;
        browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 5")?;
        let hash = |browser: &mut Browser, part: &str| {
            browser.wait_for(part, &format!("location.hash.includes('{part}')")).map(drop)
        };
        browser.press("6", false)?;
        hash(&mut browser, "list=services")?;
        browser.press("p", false)?;
        hash(&mut browser, "by=packets")?;
        browser.press("/", false)?;
        for key in ["t", "c", "p"] {
            browser.press(key, false)?;
        }
        hash(&mut browser, "filter=tcp")?;
        browser.press("Enter", false)?;
        browser.wait_for("a row that passes", "document.activeElement.closest('tr[data-key*=tcp]')")?;
        browser.press("/", false)?;
        let others = "[...document.querySelectorAll('#list tbody tr')].filter((row) => !row.dataset.key.includes('tcp'))";
        browser.wait_for("rows of tcp alone", &format!("{others}.length === 0"))?;
        browser.press("Escape", false)?;
        browser.wait_for("no filter", "!location.hash.includes('filter')")?;
        browser.press("2", false)?;
        browser.wait_for("sources", "document.querySelector('#tabs [aria-current]').dataset.list === 'sources'")?;
        browser.press("ArrowDown", false)?;
        browser.wait_for("a row that has the focus", "document.activeElement.closest('tr[data-key]')")?;
        browser.press("ArrowDown", false)?;
        // The next window has other rows; a row still has the focus.
        let about = "document.querySelector('#lists').textContent.match(/Window [^ ]+/)?.[0]";
        let window = browser.wait_for("a window", about)?;
        browser.wait_for("the next window", &format!("{about} !== {window}"))?;
        browser.wait_for("a row that kept the focus", "document.activeElement.closest('tr[data-key]')")?;
        let details = "location.hash.includes('key=src_ip')";
        access::press_until(&mut browser, &["ArrowDown", "Enter"], "details of a source", details)?;
        browser.wait_for("the details", "document.getElementById('detail').open")?;
        browser.press("Escape", false)?;
        browser.wait_for("no details", "!document.getElementById('detail').open && !location.hash.includes('key=')")?;
        browser.press("?", false)?;
        browser.wait_for("the help", "document.getElementById('help').open")?;
        browser.press("Escape", false)?;
        // Selects a span on a chart.
        browser.wait_for("a minute's worth", "document.querySelector('.chart')")?;
        browser.value("document.querySelector('.chart').focus()")?;
        browser.press("ArrowLeft", false)?;
        browser.wait_for("a second in words", "document.querySelector('.chart').getAttribute('aria-valuetext').includes('UTC')")?;
        browser.press("ArrowLeft", true)?;
        browser.press("ArrowLeft", true)?;
        // The label has the mean of that span.
        let label = "document.querySelector('.chart').getAttribute('aria-valuetext')";
        browser.wait_for("a mean", &format!("/ – .* UTC: .* mean$/.test({label})"))?;
        browser.press("Enter", false)?;
        hash(&mut browser, "from=")?;
        // A time is chosen in a form, which Esc closes, and which says what is wrong.
        access::press_on(&mut browser, "[data-span=more]", "the form", "document.querySelector('#spans details').open")?;
        // The form may be drawn anew meanwhile, with the time of the page.
        browser.wait_for(
            "what is wrong",
            "(() => { const { From, To } = document.querySelector('.pick').elements; From.value = To.value; \
             document.querySelector('.pick button').click(); \
             return document.querySelector('.pick .hint').textContent.includes('must be before'); })()",
        )?;
        browser.value("document.querySelector('.pick button').focus()")?;
        browser.press("Escape", false)?;
        browser.wait_for("no form", "!document.querySelector('#spans details').open")?;
        browser.press("l", false)?;
        browser.wait_for("now", "!location.hash.includes('from=')")?;
        // All controls can be reached with the keyboard, and have a name.
        let nameless = "[...document.querySelectorAll('a, button, input, select, [tabindex=\"0\"]')].filter((one) => \
                        !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.[0]?.textContent.trim())).length";
        ensure!(browser.value(nameless)? == 0, "something has no name for a screen reader");
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}

fn a_row_tells_everything_about_itself() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 10s}\ncontrol: {socket: control.sock}\n")?;
    watched.with_traffic(|pair, daemon| {
        let mut browser = Browser::start(&pair.observer)?;
        browser.open(PAGE)?;
        let key = browser.wait_for("a row", "document.querySelectorAll('#list tbody tr')[1]?.dataset.key")?;
        let key = key.as_str().context("no key")?.to_owned();
        browser.value("document.querySelectorAll('#list tbody tr')[1].querySelector('a').click()")?;
        let answers = "[...document.querySelectorAll('.answers tr')].map((row) => ({view: row.dataset.view, \
                       value: Number(row.querySelector('[data-value]').dataset.value)}))";
        let shown = browser
            .wait_for("answers", &format!("(() => {{ const all = {answers}; return all.length && all; }})()"))?;
        let yaml = browser.value("document.querySelector('.yaml pre').textContent")?;
        let yaml = yaml.as_str().context("no view")?.to_owned();
        // Asks the same question on the terminal.
        let socket = daemon.directory().join("control.sock");
        let asked = printed(&["ask", "--json", &key], &socket)?;
        let rows = asked["answers"].as_array().context("no answers")?;
        let views: Vec<_> = rows.iter().map(|row| row["view"].clone()).collect();
        let shown_views: Vec<_> = shown.as_array().into_iter().flatten().map(|row| row["view"].clone()).collect();
        ensure!(views == shown_views, "the page knows {shown_views:?}, weir ask {views:?}");
        // The proposed view must be a valid configuration.
        let file = daemon.directory().join("view.yaml");
        fs::write(&file, format!("interfaces: [lo]\n{yaml}"))?;
        let checked = Command::new(weir_binary()?).args(["check", "--config"]).arg(&file).output()?;
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        ensure!(checked.status.success(), "{yaml}\n{said}");
        // With the keyboard one comes to a related row, and stays within the details.
        let link = "[...document.querySelectorAll('.related a')].find((one) => \
                    one.textContent !== document.getElementById('detail-title').textContent)";
        browser.wait_for("a related row", &format!("{link} !== undefined"))?;
        let title = browser.value("document.getElementById('detail-title').textContent")?;
        browser.value(&format!("{link}.focus()"))?;
        browser.press("Enter", false)?;
        browser.wait_for("its details", &format!("document.getElementById('detail-title').textContent !== {title}"))?;
        browser.wait_for("the focus in the details", "document.activeElement.closest('#detail')")?;
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}

fn before_the_first_report_it_says_so() -> Result<()> {
    weir_tests::quiet::one_window();
    let watched = Watched::start(weir_tests::quiet::ONE_WINDOW)?;
    let mut browser = Browser::start(&watched.pair.observer)?;
    browser.open(PAGE)?;
    browser.wait_for("words", "document.getElementById('list')?.textContent.includes('no window has ended')")?;
    let empty = browser.value(
        "[...document.querySelectorAll('.card:not([hidden]) > div')].filter((one) => !one.textContent.trim()).length",
    )?;
    ensure!(empty == 0, "{empty} parts are empty without words");
    ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
    Ok(())
}

fn a_broken_connection_is_shown() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 1s}\n")?;
    let mut browser = Browser::start(&watched.pair.observer)?;
    browser.open(PAGE)?;
    browser.wait_for("a connection", "document.getElementById('link-text')?.textContent === 'live'")?;
    watched.daemon.stop(TIMEOUT)?;
    browser
        .wait_for("that it is lost", "document.getElementById('notices').textContent.includes('Connection lost at')")?;
    ensure!(browser.value("document.getElementById('link-text').textContent")? == "not connected");
    Ok(())
}

/// A proxy that collects what it gets for some seconds, as nginx does with its defaults.
fn messages_that_a_proxy_holds_back_are_late() -> Result<()> {
    const LATE: &str = "document.getElementById('notices')?.textContent.includes('Messages come late')";
    weir_tests::quiet::one_window();
    let watched = Watched::start(weir_tests::quiet::ONE_WINDOW)?;
    let namespace = &watched.pair.observer;
    let (_, head, _) = http::begin(namespace, "/api/seconds")?;
    ensure!(head.contains("x-accel-buffering: no"), "{head}");
    let mut browser = Browser::start(namespace)?;
    browser.open(PAGE)?;
    browser.wait_for("a connection", "document.getElementById('link-text')?.textContent === 'live'")?;
    ensure!(browser.value(LATE)? != true, "nothing is late without the proxy");
    let address = http::slow_proxy(namespace)?;
    browser.open(&format!("http://{address}/"))?;
    browser.wait_for("that messages come late", LATE).map(drop)
}

/// Draws `weir top` as a terminal shows it.
fn picture_of_top(browser: &mut Browser, daemon: &Daemon, file: &Path) -> Result<()> {
    let terminal = tmux::Terminal::new(100, 30)?;
    let socket = daemon.directory().join("control.sock");
    terminal.run(&format!("COLORTERM=truecolor {} top --socket {}", weir_binary()?.display(), socket.display()))?;
    // Each second has a column in the line of an interface.
    terminal.wait_for("some rows", TIMEOUT, |shown| shown.contains("edge-1") && shown.contains("10 "))?;
    thread::sleep(Duration::from_secs(3));
    browser.show(&colours::html(terminal.shown_in_colours()?.trim_end()))?;
    browser.picture(file)?;
    ensure!(fs::metadata(file)?.len() > 20_000, "{} shows nothing", file.display());
    Ok(())
}

/// `scripts/pictures` runs this with a minute of traffic to make pictures.
fn a_picture_shows_the_page() -> Result<()> {
    const MINUTE: Duration = Duration::from_secs(70);
    let [one, all] = ["WEIR_PICTURE", "WEIR_PICTURES"].map(|name| env::var_os(name).map(PathBuf::from));
    let is_wanted = one.is_some() || all.is_some();
    let settings = "observer: {name: edge-1, site: fra1}\nreport: {interval: 5s, top: 15}\nsampling: {packets: 4}\n\
                    alerts: {rules: [{name: scan, when: destinations_per_source.distinct > 300}]}\n\
                    control: {socket: control.sock}\n";
    let mut watched = Watched::start(settings)?;
    let scratch = Scratch::new()?;
    let of_top = env::var_os("WEIR_PICTURE_TOP").map_or_else(|| scratch.file("top.png"), PathBuf::from);
    watched.with_traffic(|pair, daemon| {
        daemon.wait_for_reports(2, TIMEOUT)?;
        if is_wanted {
            thread::sleep(MINUTE);
        }
        let mut browser = Browser::start(&pair.observer)?;
        picture_of_top(&mut browser, daemon, &of_top)?;
        for screen in SCREENS {
            let is_all = all.is_some();
            if !is_all && (screen.width, screen.is_dark) != (1280, false) {
                continue;
            }
            let colours = if screen.is_dark { "dark" } else { "light" };
            let name = format!("page-{}-{colours}.png", screen.width);
            let file = match (&one, &all) {
                (_, Some(folder)) => folder.join(name),
                (Some(file), None) => file.clone(),
                (None, None) => scratch.file(&name),
            };
            browser.set_screen(screen)?;
            browser.open(PAGE)?;
            browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 10")?;
            browser.wait_for("rates", "document.querySelectorAll('[data-rate]').length > 0")?;
            browser.picture(&file)?;
            ensure!(fs::metadata(&file)?.len() > 20_000, "{} shows nothing", file.display());
        }
        Ok(())
    })
}
