//! The collector's page: what it shows of the fleet is what the database has, and a router's page shows its reports.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output},
};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};
use weir_system::numbers::scaled;
use weir_tests::{
    chromium::Browser,
    clock,
    collecting::{Collecting, NDJSON, query, report},
    daemon::weir_binary,
    netns::{Namespace, QuietPair},
    quiet::TIMEOUT,
    scratch::Scratch,
};

use crate::{SCREENS, Watched, access, drawn, elsewhere, expected, http};

const FLEET: &str = "http://127.0.0.1:8428/";
const ADDRESS: &str = "127.0.0.1:8428";
/// The identity of a router that is late.
const LATE: &str = "5a1e0b77";
/// A report of long ago.
const GOLDEN: &str = include_str!("../../daemon/schema/tests/golden/report.json");
const FLEET_SHOWN: &str = include_str!("fleet.js");

/// A collector with a page, in a namespace.
fn collector(namespace: &Namespace, folder: &Scratch, page: &[&str]) -> Result<Collecting> {
    Collecting::start_in(namespace.command(weir_binary()?), folder.path(), folder.path(), page)
}

/// Posts lines to a collector in a namespace.
fn post(namespace: &Namespace, collector: &Collecting, lines: &[String]) -> Result<()> {
    let body = lines.join("\n");
    let answer = namespace.enter(|| collector.post(NDJSON, body.as_bytes()))??;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

/// Reports of another router: one is missing, two were dropped, and the last one came long ago.
fn another() -> Vec<String> {
    let tombstone = r#"{"schema":"weir.tombstone/1","id":"7f3c9a52/b41d/5-6","observer":{"id":"7f3c9a52","boot_id":"b41d"},"first_seq":5,"last_seq":6,"reports":2,"reason":"spool_full"}"#;
    let mut lines: Vec<_> = [1, 2, 4, 7].map(report).into();
    lines.push(tombstone.to_owned());
    lines
}

pub fn the_fleet_is_what_the_database_has() -> Result<()> {
    let folder = Scratch::new()?;
    let pair = weir_tests::netns::Lab::quiet_pair()?;
    let collector = collector(&pair.observer, &folder, &["--page", ADDRESS])?;
    let settings = format!(
        "observer: {{name: edge-2, site: fra1}}\nreport: {{interval: 2s, top: 20}}\nsampling: {{packets: 3}}\n\
         sinks: [{{type: http, url: 'http://{}/'}}, SINK]\n",
        collector.address()
    );
    let mut watched = Watched::on(pair, &settings)?;
    post(&watched.pair.observer, &collector, &another())?;
    watched.with_traffic(|_, daemon| daemon.wait_for_reports(6, TIMEOUT).map(drop))?;
    // Nothing changes any more.
    watched.daemon.stop(TIMEOUT)?;
    let reports = watched.daemon.reports()?;
    let last = reports.last().context("no report")?;
    let id = last["observer"]["id"].as_str().context("no identity")?.to_owned();
    clock::wait_for("all reports in the database", TIMEOUT, || {
        let stored = query(folder.path(), &["windows", "--observer", &id])?;
        Ok((stored.len() == reports.len()).then_some(()))
    })?;
    post(&watched.pair.observer, &collector, &another()[..1])?;

    let mut browser = Browser::start(&watched.pair.observer)?;
    for screen in SCREENS {
        browser.set_screen(screen)?;
        browser.open(FLEET)?;
        let is_counted = "Number(document.querySelector('[data-total=again]')?.dataset.value) > 0";
        browser.wait_for("what came twice", is_counted)?;
        let shown = browser.value(FLEET_SHOWN)?;
        compare(&shown, &folder).with_context(|| format!("{screen:?}: {shown}"))?;
        ensure!(shown["isWide"] == false, "wider than the screen: {screen:?}");
        let row = &shown["observers"][&id];
        for unit in ["packets", "bytes"] {
            ensure!(row[unit] == last["totals"][unit], "{unit}: {row} is not {last}");
        }
        ensure!(row["isLate"] == false && shown["observers"]["7f3c9a52"]["isLate"] == true, "{shown}");
        // The sum has no late router, and says so.
        let bytes = last["totals"]["bytes"].as_f64().context("no bytes")?;
        let rate = bytes * 8.0 / last["window"]["seconds"].as_f64().context("no length")?;
        ensure!(shown["rate"].as_f64().is_some_and(|shown| (shown - rate).abs() <= 1.0), "{rate}: {shown}");
        let count = format!("2, {} without the late one", scaled(rate.round(), "bit/s"));
        ensure!(shown["count"] == count, "{} is not {count}", shown["count"]);
        access::contrast(&mut browser, &format!("{screen:?}"), 40)?;
        picture(&mut browser, "fleet", screen.width, screen.is_dark)?;
    }
    a_router_shows_its_reports(&mut browser, &watched.pair.observer, &reports, &id)?;
    let mut requests = browser.requests();
    requests.extend(only_new_reports_are_read(&mut browser, &id)?);
    post(&watched.pair.observer, &collector, &[GOLDEN.replace('\n', "").replace("7f3c9a52", LATE)])?;
    a_late_and_an_unknown_router_say_so(&mut browser)?;
    requests.extend(browser.requests());
    let elsewhere = elsewhere(&requests, FLEET);
    ensure!(requests.len() > 10 && elsewhere.is_empty(), "requests to elsewhere: {elsewhere:?}");
    let mistakes = browser.mistakes();
    ensure!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    Ok(())
}

/// Saves a picture for people.
fn picture(browser: &mut Browser, name: &str, width: u32, is_dark: bool) -> Result<()> {
    let Some(folder) = std::env::var_os("WEIR_PICTURES") else { return Ok(()) };
    let colours = if is_dark { "dark" } else { "light" };
    browser.picture(&std::path::Path::new(&folder).join(format!("{name}-{width}-{colours}.png")))
}

/// Compares the page with what `weir collect query` prints.
fn compare(shown: &Value, folder: &Scratch) -> Result<()> {
    let observers = query(folder.path(), &["observers"])?;
    ensure!(shown["observers"].as_object().is_some_and(|rows| rows.len() == observers.len()), "not all observers");
    let sum = |name: &str| observers.iter().filter_map(|one| one[name].as_u64()).sum::<u64>();
    for one in &observers {
        let row = &shown["observers"][one["observer"].as_str().context("no id")?];
        for name in ["reports", "unexplained"] {
            ensure!(row[name] == one[name], "{name}: {row} is not {one}");
        }
        ensure!(row["dropped"].as_u64().unwrap_or(0) == one["dropped"].as_u64().unwrap_or(0), "{row} is not {one}");
    }
    for name in ["reports", "unexplained", "dropped"] {
        ensure!(
            shown["totals"][name] == sum(name) && sum(name) > 0,
            "{name}: {} is not {}",
            shown["totals"],
            sum(name)
        );
    }
    ensure!(shown["totals"]["late"] == 1 && shown["totals"]["again"] == 1, "{}", shown["totals"]);
    let gap = |gap: &Value| {
        let [observer, boot, status] = ["observer", "boot_id", "status"].map(|name| gap[name].as_str().unwrap_or("?"));
        format!("{observer}/{boot}/{}-{} {status} {}", gap["first_seq"], gap["last_seq"], gap["reports"])
    };
    let expected: BTreeSet<_> = query(folder.path(), &["gaps"])?.iter().map(gap).collect();
    let found: BTreeSet<_> =
        shown["gaps"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    ensure!(found == expected && !found.is_empty(), "gaps: {found:?} is not {expected:?}");
    let tombstones = query(folder.path(), &["tombstones"])?;
    let expected: Vec<_> = tombstones.iter().rev().map(|one| one["id"].clone()).collect();
    ensure!(shown["tombstones"].as_array() == Some(&expected), "tombstones: {expected:?}");
    Ok(())
}

/// Opens the page of a router with the keyboard, and compares it with its reports.
fn a_router_shows_its_reports(browser: &mut Browser, namespace: &Namespace, reports: &[Value], id: &str) -> Result<()> {
    browser.press("ArrowDown", false)?;
    browser.press("ArrowDown", false)?;
    let focused = format!("document.activeElement.closest('tr')?.dataset.observer === '{id}'");
    browser.wait_for("the focus on the second router", &focused)?;
    browser.press("Enter", false)?;
    browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 5")?;
    let page = format!("{FLEET}observers/{id}/");
    let last = reports.last().context("no report")?;
    for (nth, screen) in SCREENS.into_iter().enumerate() {
        browser.set_screen(screen)?;
        let by = if nth % 2 == 0 { "bytes" } else { "packets" };
        browser.open(&format!("{page}#by={by}"))?;
        browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 5")?;
        browser.wait_for("a chart", "document.querySelector('#charts .plot path.line.up')?.getAttribute('d')")?;
        for list in ["sources", "pairs", "services"] {
            browser.value(&format!("document.querySelector('#tabs [data-list=\"{list}\"]').click()"))?;
            let is_shown = format!("document.querySelector('#tabs [aria-current]')?.dataset.list === '{list}'");
            browser.wait_for(list, &is_shown)?;
            let shown = drawn(browser)?;
            expected::compare(&shown, last, by).with_context(|| format!("{list} at {screen:?}: {shown}"))?;
            ensure!(shown["isWide"] == false, "{list} is wider than the screen: {screen:?}");
        }
        picture(browser, "router", screen.width, screen.is_dark)?;
    }
    // Here is nothing that only a running weir could do.
    browser.value("document.querySelector('#list tbody a').click()")?;
    browser.wait_for("the details", "document.getElementById('detail').open")?;
    let parts = browser
        .value("[...document.querySelectorAll('#detail h3')].map((one) => one.firstChild.textContent.trim())")?;
    let expected = ["Over time", "In the lists", "Make this a view", "More, in a terminal of the router"];
    ensure!(parts == json!(expected), "{parts}");
    browser.press("Escape", false)?;
    browser.wait_for("no details", "!document.getElementById('detail').open")?;
    browser.press("?", false)?;
    browser.wait_for("the help", "document.getElementById('help').open")?;
    let help = browser.value("document.getElementById('help').innerText")?;
    ensure!(
        help.as_str().is_some_and(|help| help.contains("choose a list") && !help.contains("open window")),
        "{help}"
    );
    browser.press("Escape", false)?;
    // A chart has all bytes of the reports. A selected time has the numbers of the union of its reports.
    let chosen = &reports[1..4];
    let time = |report: &Value, edge: &str| {
        let time = report["window"][edge].as_str().context("no time")?;
        anyhow::Ok(time.replace(".000000", ""))
    };
    let [from, to] = [time(&chosen[0], "start")?, time(&chosen[2], "end")?];
    let ask = |path: &str| {
        let (status, _, body) = http::get_at(namespace, ADDRESS, &format!("/observers/{id}/api/{path}"), "")?;
        serde_json::from_str::<Value>(&body).map_err(|_| anyhow!("{path}: {status} {body}"))
    };
    let history = ask(&format!("history?from={from}&to={to}"))?;
    let sum: u64 = history["interfaces"][0]["bytes"].as_array().into_iter().flatten().filter_map(Value::as_u64).sum();
    let seen = |report: &Value| report.pointer("/interfaces/0/ledger/seen/bytes").and_then(Value::as_u64);
    ensure!(sum == chosen.iter().filter_map(seen).sum::<u64>() && sum > 0, "{sum} bytes: {history}");
    let span = ask(&format!("span?from={from}&to={to}"))?;
    browser.open(&format!("{page}#from={from}&to={to}&list=sources"))?;
    browser.wait_for("rows", "document.querySelectorAll('#list tbody tr').length >= 5")?;
    let shown = drawn(browser)?;
    expected::compare_span(&shown, &span, chosen, "bytes").with_context(|| format!("{from} to {to}: {shown}"))
}

/// While no new report comes, the page asks only whether there is one.
fn only_new_reports_are_read(browser: &mut Browser, id: &str) -> Result<Vec<String>> {
    const END: &str = "document.querySelector('.chart').getAttribute('aria-valuetext')";
    browser.open(&format!("{FLEET}observers/{id}/"))?;
    browser.wait_for("a chart", "document.querySelector('#charts .plot path.line.up')?.getAttribute('d')")?;
    drawn(browser)?;
    browser.value("document.querySelector('.chart').focus()")?;
    browser.press("End", false)?;
    let end = browser.wait_for("the last second in words", &format!("{END}.includes('UTC') && {END}"))?;
    let before = browser.requests();
    let mut requests = Vec::new();
    clock::wait_for("two polls", TIMEOUT, || {
        // The browser tells of its requests while it answers.
        browser.value("1")?;
        requests.extend(browser.requests());
        Ok((requests.iter().filter(|url| url.ends_with("/api/observer")).count() >= 2).then_some(()))
    })?;
    let others: Vec<_> = requests.iter().filter(|url| !url.ends_with("/api/observer")).collect();
    ensure!(others.is_empty(), "nothing is new, and the page reads {others:?}");
    // The chart goes on, with a gap.
    browser.press("Home", false)?;
    browser.press("End", false)?;
    let later = browser.value(END)?;
    ensure!(later != end, "the chart still ends at {end}");
    Ok([before, requests].concat())
}

fn a_late_and_an_unknown_router_say_so(browser: &mut Browser) -> Result<()> {
    for screen in SCREENS {
        browser.set_screen(screen)?;
        for (id, link, notice) in [
            (LATE, "late", "This router is late: its last window ended 2026-11-20 08:00:10 UTC"),
            ("ffff", "unknown router", "Unknown router: no router \"ffff\" reports to this collector"),
        ] {
            browser.open(&format!("{FLEET}observers/{id}/"))?;
            browser.wait_for(link, &format!("document.getElementById('link-text')?.textContent === '{link}'"))?;
            let shown = "document.getElementById('notices').textContent";
            browser.wait_for(notice, &format!("{shown}.includes('{notice}')"))?;
            let is_bad = "document.getElementById('link').classList.contains('bad') && \
                          document.querySelector('.notice').classList.contains('bad')";
            ensure!(browser.value(is_bad)? == true, "{link} is not marked as a problem");
            access::contrast(browser, &format!("{link} at {screen:?}"), 5)?;
            picture(browser, link, screen.width, screen.is_dark)?;
        }
    }
    Ok(())
}

pub fn the_fleet_has_the_guards_of_the_page() -> Result<()> {
    const TOKEN: &str = "0123456789abcdef";
    let folder = Scratch::new()?;
    let pair = weir_tests::netns::Lab::quiet_pair()?;
    pair.observer.ip(&format!("addr add 192.0.2.1/24 dev {}", QuietPair::OBSERVER_INTERFACE))?;
    let public = "192.0.2.1:8428";
    let mut refused = pair.observer.command(weir_binary()?);
    refused.args(["collect", "--listen", "127.0.0.1:0", "--page", public, "--database"]).arg(folder.file("no.db"));
    let Output { status, stderr, .. } = Command::output(&mut refused)?;
    let said = String::from_utf8_lossy(&stderr);
    ensure!(status.code() == Some(2) && said.contains("--page-token-file"), "{status} {said}");
    let file = folder.file("token");
    fs::write(&file, TOKEN)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    let path = file.to_str().context("a plain path")?;
    let arguments = ["--page", public, "--page-token-file", path, "--page-host", "fleet.example.net"];
    let collector = collector(&pair.observer, &folder, &arguments)?;
    let at = |path: &str, headers: &str| http::get_at(&pair.observer, public, path, headers);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for path in ["/", "/fleet.js", "/api/fleet", "/observers/7f3c9a52/", "/observers/7f3c9a52/api/report"] {
        ensure!(at(path, "")?.0 == 401, "{path} without a token");
        ensure!(at(path, "Authorization: Bearer 0123456789abcdeX\r\n")?.0 == 401, "{path} with another token");
        let (status, head, body) = at(path, &bearer)?;
        let is_there = status == 200 || (path.ends_with("report") && status == 404);
        ensure!(is_there, "{path}: {status} {body}");
        ensure!(head.contains("content-security-policy: default-src 'none'") && !head.contains("unsafe"), "{head}");
    }
    for (host, status) in [("evil.example.net", 421), ("fleet.example.net", 200), ("localhost", 200)] {
        let found = http::get_by(&pair.observer, public, "/api/fleet", &format!("Host: {host}\r\n{bearer}"))?;
        ensure!(found.0 == status, "{host}: {found:?}");
    }
    // The token of senders is another one, and the page takes no reports.
    post(&pair.observer, &collector, &another())?;
    let (status, _, body) = at("/api/fleet", &bearer)?;
    let fleet: Value = serde_json::from_str(&body)?;
    ensure!(status == 200 && fleet["totals"]["reports"] == 4, "{fleet}");
    ensure!(!collector.log()?.contains(TOKEN), "the log has the token");
    Ok(())
}
