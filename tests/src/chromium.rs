//! A real Chromium without a screen, in a namespace. It is controlled by the `DevTools` protocol: messages of JSON
//! through two named pipes, each with a NUL byte at its end.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    mem,
    os::fd::AsFd,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FileType, Mode, mknodat},
};
use serde_json::{Value, json};

use crate::{clock, netns::Namespace, scratch::Scratch};

/// How long Chromium may take for anything: a busy machine starts it in some ten seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// The requirements of tests with Chromium.
///
/// # Errors
///
/// It is not installed.
pub fn requirements() -> Result<(), String> {
    let found = Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err("there is no chromium (apt: chromium)".to_owned()),
    }
}

/// The size of a window, and its colour scheme.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
    /// True if the user prefers dark colours.
    pub is_dark: bool,
}

/// A browser with one page; it ends on drop.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    scratch: Scratch,
    to: File,
    from: File,
    /// The part of the next message that has arrived.
    arrived: Vec<u8>,
    session: Option<String>,
    last: u64,
    events: VecDeque<Value>,
}

impl Browser {
    /// Starts Chromium in a namespace, with an empty page.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let scratch = Scratch::new()?;
        let [to, from] = ["to", "from"].map(|name| scratch.file(name));
        for pipe in [&to, &from] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).context("cannot make a pipe")?;
        }
        // The pipes are opened for reading and writing, so that opening does not wait for the other side.
        let open = |path| OpenOptions::new().read(true).write(true).open(path);
        let (to_file, from_file) = (open(&to)?, open(&from)?);
        let script = format!(
            "exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
             --disable-extensions --disable-background-networking --disable-component-update --remote-debugging-pipe \
             --user-data-dir='{}' about:blank 3<'{}' 4>'{}'",
            scratch.file("profile").display(),
            to.display(),
            from.display()
        );
        let child = namespace
            .command("sh")
            .args(["-c", &script])
            .env("HOME", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(scratch.file("log"))?)
            .spawn()?;
        let mut browser = Self {
            child,
            scratch,
            to: to_file,
            from: from_file,
            arrived: Vec::new(),
            session: None,
            last: 0,
            events: VecDeque::new(),
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attached =
            browser.call("Target.attachToTarget", &json!({"targetId": target["targetId"], "flatten": true}))?;
        browser.session = Some(attached["sessionId"].as_str().context("no session")?.to_owned());
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol.
    ///
    /// # Errors
    ///
    /// Chromium refuses it, or does not answer.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut line = serde_json::to_vec(&message)?;
        line.push(0);
        self.to.write_all(&line)?;
        loop {
            let mut message = self.receive().with_context(|| format!("no answer to {method}"))?;
            if message["id"] == self.last {
                if let Some(error) = message.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(message["result"].take());
            }
            self.events.push_back(message);
        }
    }

    fn receive(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.arrived.iter().position(|byte| *byte == 0) {
                let message = serde_json::from_slice(&self.arrived[..end])?;
                self.arrived.drain(..=end);
                return Ok(message);
            }
            let mut fds = [PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)];
            let ready = poll(&mut fds, Some(&Timespec::try_from(PATIENCE)?))?;
            ensure!(ready > 0, "Chromium says nothing; its log:\n{}", self.log());
            let mut bytes = [0; 1 << 16];
            let count = self.from.read(&mut bytes)?;
            self.arrived.extend_from_slice(&bytes[..count]);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.file("log")).unwrap_or_default()
    }

    /// Makes the window this large, with these colours.
    ///
    /// # Errors
    ///
    /// Chromium refuses it.
    pub fn set_screen(&mut self, Screen { width, height, is_dark }: Screen) -> Result<()> {
        let is_phone = width < 600;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", &size)?;
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", &features).map(drop)
    }

    /// Opens an address in a new page.
    ///
    /// # Errors
    ///
    /// Chromium refuses it.
    pub fn open(&mut self, address: &str) -> Result<()> {
        // Another fragment alone would not load the page again.
        self.call("Page.navigate", &json!({"url": "about:blank"}))?;
        let answer = self.call("Page.navigate", &json!({"url": address}))?;
        match answer["errorText"].as_str() {
            Some(error) => bail!("{address}: {error}"),
            None => Ok(()),
        }
    }

    /// The value of an expression; if it is a promise, waits for its result.
    ///
    /// # Errors
    ///
    /// It throws.
    pub fn value(&mut self, expression: &str) -> Result<Value> {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", &asked)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(anyhow!("{expression}: {thrown}")),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Waits until an expression has a value that JavaScript treats as true.
    ///
    /// # Errors
    ///
    /// It did not become true in time; the error has the content of the page.
    pub fn wait_for(&mut self, what: &str, expression: &str) -> Result<Value> {
        let test = format!("(() => {{ const value = {expression}; return value ? value : null; }})()");
        let found = clock::wait_for(what, PATIENCE, || {
            let value = match self.value(&test) {
                // Another page is about to replace this one.
                Err(error) if format!("{error:#}").contains("Inspected target navigated") => Value::Null,
                value => value?,
            };
            Ok((!value.is_null()).then_some(value))
        });
        found.with_context(|| {
            let state = "`${location.hash} with the focus on ${document.activeElement?.outerHTML.slice(0, 200)}, \
                         dialogs: ${[...document.querySelectorAll('dialog[open]')].map((one) => one.id)}\n\
                         ${document.body?.innerText}`";
            let text = self.value(state).unwrap_or_default();
            format!("the page is at {}", text.as_str().unwrap_or_default())
        })
    }

    /// Presses a key and releases it.
    ///
    /// # Errors
    ///
    /// Chromium refuses it.
    pub fn press(&mut self, key: &str, has_shift: bool) -> Result<()> {
        // A printable key needs `text` to write something.
        let text = if key.chars().count() == 1 {
            json!(key)
        } else if key == "Enter" {
            json!("\r")
        } else {
            Value::Null
        };
        let modifiers = if has_shift { 8 } else { 0 };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let mut event = json!({"type": "keyDown", "key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code});
        if !text.is_null() {
            event["text"] = text;
        }
        self.call("Input.dispatchKeyEvent", &event)?;
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", &event).map(drop)
    }

    /// A picture of the window as PNG.
    ///
    /// # Errors
    ///
    /// Chromium cannot draw it, or the file cannot be written.
    pub fn picture(&mut self, path: &Path) -> Result<()> {
        let answer = self.call("Page.captureScreenshot", &json!({"format": "png"}))?;
        let text = answer["data"].as_str().context("no picture")?;
        fs::write(path, BASE64_STANDARD.decode(text)?).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Shows a document, as large as it is, instead of a page.
    ///
    /// # Errors
    ///
    /// Chromium refuses it.
    pub fn show(&mut self, html: &str) -> Result<()> {
        self.call("Page.navigate", &json!({"url": "about:blank"}))?;
        let frame = self.call("Page.getFrameTree", &json!({}))?["frameTree"]["frame"]["id"].take();
        self.call("Page.setDocumentContent", &json!({"frameId": frame, "html": html}))?;
        let box_of = "(() => { const { width, height } = document.querySelector('pre').getBoundingClientRect(); \
                      return [width, height]; })()";
        let size = self.value(box_of)?;
        let pixels = |nth: usize| size[nth].as_f64().unwrap_or(800.0).ceil() as u32;
        self.set_screen(Screen { width: pixels(0).max(600), height: pixels(1), is_dark: true })
    }

    /// The addresses of all requests since the last call.
    pub fn requests(&mut self) -> Vec<String> {
        self.take_events("Network.requestWillBeSent", |event| event["request"]["url"].as_str().map(str::to_owned))
    }

    /// Errors in the page since the last call, such as exceptions and violations of the content security policy, but
    /// not answers with an error status.
    pub fn mistakes(&mut self) -> Vec<String> {
        let mut all = self.take_events("Runtime.exceptionThrown", |event| Some(event.to_string()));
        all.extend(self.take_events("Log.entryAdded", |event| {
            let entry = &event["entry"];
            (entry["level"] == "error" && entry["source"] != "network").then(|| entry.to_string())
        }));
        all
    }

    /// The longest tasks of the page in this time, as lines of text: CPU time of the browser's threads, which does not
    /// depend on what else the machine does.
    ///
    /// # Errors
    ///
    /// Chromium refuses it.
    pub fn longest_tasks(&mut self, time: Duration) -> Result<String> {
        let session = self.session.take();
        let traced = (|| {
            let config = json!({"includedCategories": ["toplevel", "disabled-by-default-devtools.timeline"]});
            self.call("Tracing.start", &json!({"transferMode": "ReportEvents", "traceConfig": config}))?;
            std::thread::sleep(time);
            self.call("Tracing.end", &json!({}))?;
            let mut tasks = Vec::new();
            loop {
                let event = match self.events.pop_front() {
                    Some(event) => event,
                    None => self.receive()?,
                };
                match event["method"].as_str() {
                    Some("Tracing.dataCollected") => tasks.extend(tasks_of(&event["params"]["value"])),
                    Some("Tracing.tracingComplete") => break,
                    _ => {}
                }
            }
            tasks.sort_unstable_by(|one, other| other.cmp(one));
            let all = tasks.len();
            let lines = tasks.into_iter().take(10).map(|us| format!("{}.{:03} ms\n", us / 1000, us % 1000));
            Ok(format!("{all} tasks, the longest:\n{}", lines.collect::<String>()))
        })();
        self.session = session;
        traced
    }

    fn take_events(&mut self, method: &str, of: impl Fn(&Value) -> Option<String>) -> Vec<String> {
        let is_of = |event: &Value| event["method"] == method;
        let (of_method, others): (VecDeque<_>, _) = mem::take(&mut self.events).into_iter().partition(is_of);
        self.events = others;
        of_method.iter().filter_map(|event| of(&event["params"])).collect()
    }
}

/// The CPU times in microseconds of the tasks among trace events.
fn tasks_of(events: &Value) -> Vec<u64> {
    let is_task = |event: &&Value| event["name"].as_str().is_some_and(|name| name.ends_with("RunTask"));
    let all = events.as_array().into_iter().flatten().filter(is_task);
    all.filter_map(|event| event["tdur"].as_u64()).collect()
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium's other processes end with it. Both calls fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
