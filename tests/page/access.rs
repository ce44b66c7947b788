//! The page for everybody: contrast, the keyboard alone, and long lists that do not hold it up.

use std::{thread, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weir_tests::chromium::{Browser, Screen};

use crate::{PAGE, SCREENS, Watched};

const CONTRAST: &str = include_str!("contrast.js");
const ROWS: &str = "document.querySelectorAll('#list tbody tr').length";

/// Checks all texts that are shown. `enough` is less than there are: the test must not look at an empty page.
pub fn contrast(browser: &mut Browser, what: &str, enough: u64) -> Result<()> {
    let found = browser.value(CONTRAST)?;
    let poor = found["poor"].as_array().context("no answer")?;
    ensure!(poor.is_empty(), "{what}: {}", serde_json::to_string_pretty(poor)?);
    ensure!(found["count"].as_u64() >= Some(enough), "{what}: only {} texts", found["count"]);
    Ok(())
}

pub fn every_text_has_enough_contrast() -> Result<()> {
    let settings = "report: {interval: 2s, top: 20}\nsampling: {packets: 3}\n\
                    alerts: {rules: [{name: any, when: packets > 0}, {name: later, when: packets > 0, for: 1000 windows}]}\n";
    let mut watched = Watched::start(settings)?;
    watched.with_traffic(|pair, _| {
        let mut browser = Browser::start(&pair.observer)?;
        for screen in SCREENS {
            browser.set_screen(screen)?;
            browser.open(PAGE)?;
            browser.wait_for("rows", &format!("{ROWS} >= 10"))?;
            browser.wait_for("an alert", "document.querySelector('.alert')")?;
            contrast(&mut browser, &format!("{screen:?}"), 100)?;
            browser.value("document.querySelector('#list tbody a').click()")?;
            browser
                .wait_for("the details", "document.querySelector('.answers tr') && document.querySelector('.yaml')")?;
            contrast(&mut browser, &format!("details at {screen:?}"), 20)?;
            // Nothing is cut off, and no name is squeezed into a column of letters.
            let squeezed = "(() => { const detail = document.getElementById('detail'); const tall = (one) => \
                            one.getClientRects().length > 3; const names = [...detail.querySelectorAll('.related a')]; \
                            return detail.scrollWidth > detail.clientWidth || names.length === 0 || names.some(tall); })()";
            ensure!(browser.value(squeezed)? == false, "the details are not readable at {screen:?}");
            browser.press("Escape", false)?;
            browser.wait_for("no details", "!document.getElementById('detail').open")?;
            browser.press("?", false)?;
            browser.wait_for("the help", "document.getElementById('help').open")?;
            contrast(&mut browser, &format!("help at {screen:?}"), 15)?;
        }
        Ok(())
    })
}

/// Where the focus is, in a word.
const FOCUS: &str = "(() => { const one = document.activeElement; if (!one || one === document.body) return 'body'; \
    const box = one.getBoundingClientRect(); const style = getComputedStyle(one); \
    if (one.matches(':focus-visible') && style.outlineStyle === 'none') return `no outline: ${one.outerHTML.slice(0, 80)}`; \
    if (box.width < 1 || box.height < 1) return `invisible: ${one.outerHTML.slice(0, 80)}`; \
    return one.closest('tr[data-key]') ? 'row' : (one.closest('[id]')?.id ?? one.className); })()";

/// Presses these keys, and again after some seconds if the page was drawn anew just between two of them.
pub fn press_until(browser: &mut Browser, keys: &[&str], what: &str, then: &str) -> Result<()> {
    for _ in 0..5 {
        for key in keys {
            browser.press(key, false)?;
        }
        for _ in 0..30 {
            if browser.value(&format!("Boolean({then})"))? == true {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    browser.wait_for(what, then).map(drop)
}

/// Presses Enter on this element until this is so: the page may be drawn anew just between the focus and the key.
pub fn press_on(browser: &mut Browser, element: &str, what: &str, then: &str) -> Result<()> {
    for _ in 0..5 {
        browser.value(&format!("document.querySelector('{element}').focus()"))?;
        browser.press("Enter", false)?;
        for _ in 0..30 {
            if browser.value(&format!("Boolean({then})"))? == true {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
    browser.wait_for(what, then).map(drop)
}

pub fn tab_reaches_everything() -> Result<()> {
    let mut watched =
        Watched::start("report: {interval: 1h, first_window: 1h, top: 20}\nseen_flows: {generation: 1h}\n")?;
    watched.with_traffic(|pair, _| {
        let mut browser = Browser::start(&pair.observer)?;
        browser.set_screen(Screen { width: 1280, height: 900, is_dark: false })?;
        // With a window that is open for an hour the page stays as it is while the test walks over it.
        browser.open(&format!("{PAGE}#window=open"))?;
        browser.wait_for("rows", &format!("{ROWS} >= 10"))?;
        let mut places: Vec<String> = Vec::new();
        for _ in 0..200 {
            browser.press("Tab", false)?;
            let place = browser.value(FOCUS)?.as_str().unwrap_or_default().to_owned();
            ensure!(!place.starts_with("no outline") && !place.starts_with("invisible"), "{place}");
            if place == "body" && places.len() > 10 {
                break;
            }
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
        let reached = ["spans", "charts", "choose-window", "choose-order", "filter", "tabs", "row", "help-button"];
        for place in reached {
            ensure!(places.iter().any(|found| found == place), "{place} is not among {places:?}");
        }
        // Enter does on each what a click does, and Esc goes back to where the user was.
        browser.value("document.querySelector('#tabs a').focus()")?;
        for (keys, what, then) in [
            (&["Tab", "Tab", "Tab", "Enter"][..], "another list", "location.hash.includes('list=pairs')"),
            (&["2", "ArrowDown", "ArrowDown", "Enter"], "the details", "document.getElementById('detail').open"),
            (
                &["Tab", "Enter"],
                "details that are closed",
                "!document.getElementById('detail').open || \
                document.activeElement.closest('#detail')",
            ),
        ] {
            // Tabs go on from where the focus is, so only the others can be pressed again.
            if keys.contains(&"Tab") {
                for key in keys {
                    browser.press(key, false)?;
                }
                browser.wait_for(what, then)?;
            } else {
                press_until(&mut browser, keys, what, then)?;
            }
        }
        // The link that Enter has followed may open its details only after the first Esc.
        let on_a_row = "document.activeElement.closest('tr[data-key]')";
        press_until(&mut browser, &["Escape"], "the focus on a row again", on_a_row)?;
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}

/// Replaces what weir answers by a report with 500 rows in each list by bytes.
const LONG: &str = "const real = window.fetch; window.fetch = async (path, options) => { \
    const answer = await real(path, options); \
    if (!String(path).startsWith('api/report')) return answer; \
    const body = await answer.json(); \
    for (const report of Array.isArray(body) ? body : [body]) for (const list of ['sources', 'pairs']) { \
      const [row] = report.top[list]; \
      if (row) report.top[list] = Array.from({length: 500}, (_, nth) => ({...row, rank: nth + 1, \
        src_ip: `10.1.${nth >> 8}.${nth & 255}`})); } \
    return new Response(JSON.stringify(body), {status: 200}); };";
/// Puts a table without traffic before those of each view, as of an interface that is hardly used.
const IDLE: &str = "const real = window.fetch; window.fetch = async (path, options) => { \
    const answer = await real(path, options); \
    if (!String(path).startsWith('api/report')) return answer; \
    const body = await answer.json(); const none = {value: 0, lower: 0, upper: 0}; \
    for (const report of Array.isArray(body) ? body : [body]) for (const view of report.views) \
      view.tables?.unshift({...view.tables[0], interface: 'idle0', rows: [], total: {packets: none, bytes: none}}); \
    return new Response(JSON.stringify(body), {status: 200}); };";

pub fn a_view_begins_with_the_busiest_interface() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 2s}\n")?;
    watched.with_traffic(|pair, daemon| {
        daemon.wait_for_reports(2, weir_tests::quiet::TIMEOUT)?;
        let mut browser = Browser::start(&pair.observer)?;
        browser.call("Page.addScriptToEvaluateOnNewDocument", &json!({"source": IDLE}))?;
        browser.open(PAGE)?;
        browser.wait_for("rows", &format!("{ROWS} >= 5"))?;
        browser.wait_for("a view", "document.querySelector('#tabs [data-list^=protocols]')")?;
        browser.value("document.querySelector('#tabs [data-list^=protocols]').click()")?;
        let places = "[...document.querySelectorAll('#places a')].map((one) => one.textContent)";
        browser.wait_for("the idle interface", &format!("{places}.some((name) => name.startsWith('idle0'))"))?;
        let chosen = browser.value("document.querySelector('#places [aria-current]').textContent")?;
        ensure!(chosen == format!("{} ingress", crate::OBSERVED), "the view begins with {chosen}");
        Ok(())
    })
}

/// Counts the rows that are made between two pictures.
const COUNT: &str = "window.most = 0; let now = 0; new MutationObserver((all) => { \
    for (const one of all) now += [...one.addedNodes].filter((node) => node.tagName === 'TR').length; \
    window.most = Math.max(window.most, now); }).observe(document.getElementById('list'), {childList: true, subtree: true}); \
    const frame = () => { now = 0; requestAnimationFrame(frame); }; frame();";

pub fn long_lists_are_drawn_by_parts() -> Result<()> {
    let mut watched = Watched::start("report: {interval: 10s}\n")?;
    watched.with_traffic(|pair, daemon| {
        daemon.wait_for_reports(2, weir_tests::quiet::TIMEOUT)?;
        let mut browser = Browser::start(&pair.observer)?;
        browser.set_screen(Screen { width: 1280, height: 900, is_dark: false })?;
        browser.call("Page.addScriptToEvaluateOnNewDocument", &json!({"source": LONG}))?;
        browser.open(&format!("{PAGE}#list=sources"))?;
        browser.wait_for("rows", &format!("{ROWS} >= 40"))?;
        browser.value(COUNT)?;
        browser.press("4", false)?;
        browser.wait_for("pairs", "document.querySelector('#tabs [aria-current]').dataset.list === 'pairs'")?;
        browser.press("2", false)?;
        browser.wait_for("rows", &format!("{ROWS} >= 40"))?;
        let rows = browser.value(ROWS)?.as_u64().context("no number")?;
        ensure!(rows < 200, "{rows} rows are made, and nobody has come near their end");
        // By the keyboard, and by scrolling, one comes to the last row.
        browser.value("document.querySelector('#list tbody tr:last-child a').focus()")?;
        browser.press("ArrowDown", false)?;
        browser.wait_for("more rows", &format!("{ROWS} > {rows}"))?;
        browser.value("document.querySelector('#list .more').click()")?;
        browser.wait_for("all rows", &format!("{ROWS} === 500"))?;
        // Times are for people: the file that this variable names gets them.
        if let Some(file) = std::env::var_os("WEIR_MEASURE") {
            std::fs::write(file, browser.longest_tasks(Duration::from_secs(20))?)?;
        }
        let most = browser.value("window.most")?.as_u64().context("no number")?;
        // Two parts may come between two frames that the test sees.
        ensure!((1..=80).contains(&most), "{most} rows at once hold up the page");
        ensure!(browser.mistakes().is_empty(), "something went wrong in the page");
        Ok(())
    })
}
