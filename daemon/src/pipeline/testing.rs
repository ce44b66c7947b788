//! The common parts of the steps' tests: a folder of their own, and a weir that needs no rights.

use std::{collections::BTreeSet, fs, path::PathBuf, process, thread, time::Duration};

use serde_json::Value;
use weir_config::Config;

use super::{RunError, Start, loaded::Loaded};
use crate::reload::reloader::Reread;

/// An interface that does not exist, by packet sockets. weir waits for it, so it needs no rights.
pub const ABSENT: &str = "interfaces: [{name: weir-absent0, mode: afpacket}]";

/// These tests do not reload.
const NEVER: Reread<'static> = &|| crossbeam::channel::never();

/// A state directory with the file that gets the reports. It is removed at the end of the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-pipeline-{name}-{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A configuration that uses only this folder. The seccomp filter would restrict the other tests, too.
    pub fn config(&self, text: &str) -> Config {
        let folder = self.0.display();
        let text = format!(
            "{text}\nsandbox: false\ncontrol: {{socket: {folder}/control.sock}}\n\
             sinks: [{{type: file, path: {folder}/reports.ndjson}}]\nestimates: {{top_candidates: 64}}\n"
        );
        Config::parse(&text, "weir.yaml").unwrap()
    }

    pub fn start(&self) -> Start<'_> {
        Start { directory: Some(&self.0), strict: false, has_tables: false, reread: NEVER, places: None }
    }

    /// Returns once another weir can have this folder. The threads that write to it end by themselves, and hold the
    /// locks until then.
    pub fn wait_until_free(&self) {
        let config = self.config(ABSENT);
        wait_until("the folder is free", || match Loaded::new(&config, self.start()) {
            Err(RunError::Taken(_)) => false,
            other => other.is_ok(),
        });
    }

    pub fn reports(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join("reports.ndjson")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Threads of the weir that the test dropped may still write, and create what was removed, for a moment.
        let mut absent = 0;
        for _ in 0..500 {
            let _ = fs::remove_dir_all(&self.0);
            absent = if self.0.exists() { 0 } else { absent + 1 };
            if absent > 5 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Waits for about a minute at most.
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let mut looks = 0;
    while !holds() {
        assert!(looks < 12_000, "not within a minute: {what}");
        thread::sleep(Duration::from_millis(5));
        looks += 1;
    }
}

/// The names of the threads of this process.
pub fn threads() -> BTreeSet<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    // A thread may end meanwhile.
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}
