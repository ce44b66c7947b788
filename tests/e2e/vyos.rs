//! The recipe for `VyOS`: what its installer makes answers `show flow-accounting interface NAME top N` from a running
//! weir.
//! `VyOS` itself is not here: the test does what its shell does with a command, which is to fill in its words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::weir_binary,
    inject::Pace,
    netns::{self, Lab, QuietPair},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan, Traffic},
};

use crate::watch::{self, Ended, QUIET_LINK, TIMEOUT, list, measure, stop};

tests![show_flow_accounting_is_answered_by_weir, the_commands_of_an_image_are_those_of_the_installer];

const RECIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/package/vyos");
const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;

/// These tests need network namespaces and Python.
pub fn requirements() -> Result<(), String> {
    netns::requirements()?;
    let found = Command::new("python3").arg("--version").output();
    found.map(drop).map_err(|error| format!("cannot run python3: {error}"))
}

fn show_flow_accounting_is_answered_by_weir() -> Result<()> {
    let system = Installed::new()?;
    let pair = Lab::quiet_pair()?;
    let text = fs::read_to_string(Path::new(RECIPE).join("weir.yaml"))?;
    let (settings, _) = text.split_once("sinks:").context("it has no sinks")?;
    let socket = system.root.file("control.sock");
    let settings = settings.replace("[eth0, eth1]", &format!("[{INTERFACE}]")).replace("interval: 1m", "interval: 1s");
    let mut daemon = measure(&pair.observer, &format!("{settings}control: {{socket: {}}}\n", socket.display()))?;
    let weir = system.weir(&socket)?;
    let plan = Plan { seed: 94, packets: 30_000, flows: 200, mix: Mix::PLAIN, ..Plan::default() };
    let mut oracle = Oracle::new();
    let words = ["show", "flow-accounting", "interface", INTERFACE, "top", "5"];
    let told = thread::scope(|scope| -> Result<String> {
        let sender = scope
            .spawn(|| watch::send(&pair, QUIET_LINK, Traffic::new(plan)?, Pace::PacketsPerSecond(5_000), &mut oracle));
        let told = clock::wait_for("an answer with five flows", TIMEOUT, || {
            let told = system.run(&weir, &words)?;
            Ok((told.out.matches(INTERFACE).count() == 5).then_some(told.out))
        });
        sender.join().expect("it does not panic")?;
        told
    })?;
    // The answer is the report with the same window.
    let reports = daemon.reports()?;
    let is_its = |report: &&Value| report["window"]["start"].as_str().is_some_and(|start| told.contains(start));
    let report = reports.iter().find(is_its).with_context(|| told.clone())?;
    let rows = list(&report["views"][0]["tables"][0]["rows"])?;
    for (line, row) in told.lines().skip(2).zip(rows).take(5) {
        let text = |field: &str| row[field].as_str().map_or_else(|| row[field].to_string(), str::to_owned);
        let mut expected = vec![INTERFACE.to_owned()];
        expected.extend(["src_ip", "dst_ip", "src_port", "dst_port", "proto"].map(text));
        expected
            .extend([&row["packets"]["value"], &row["bytes"]["upper"], &row["bytes"]["lower"]].map(Value::to_string));
        ensure!(line.split_whitespace().eq(expected.iter().map(String::as_str)), "{expected:?}\n{told}");
    }
    // No packet had this address.
    let told = system.run(&weir, &["show", "flow-accounting", "interface", INTERFACE, "host", "2001:db8::9"])?;
    ensure!(told.code == Some(0) && !told.out.contains(INTERFACE), "{}{}", told.out, told.err);
    let told = system.run(&weir, &["show", "flow-accounting", "interface", "eth7", "top", "5"])?;
    ensure!(
        told.code == Some(1) && told.err.contains("weir does not measure eth7 (it measures: obs0)"),
        "{}",
        told.err
    );
    let told = system.run(&weir, &["show", "flow-accounting", "interface", INTERFACE, "top", "1000"])?;
    ensure!(told.code == Some(2) && told.err.contains("a number from 1 to 100"), "{}", told.err);
    stop(&mut daemon, Loss::None)?;
    let told = system.run(&weir, &words)?;
    ensure!(told.code == Some(1) && told.err.contains("flow-accounting is not active"), "{}", told.err);
    Ok(())
}

fn the_commands_of_an_image_are_those_of_the_installer() -> Result<()> {
    let system = Installed::new()?;
    let xml = fs::read_to_string(Path::new(RECIPE).join("flow-accounting-weir.xml.in"))?;
    let of_image = xml.split("<command>").skip(1).filter_map(|rest| rest.split("</command>").next());
    let of_image: BTreeSet<String> = of_image.map(str::to_owned).collect();
    let of_installer: BTreeSet<String> = system.commands()?.into_values().collect();
    ensure!(of_image == of_installer && of_image.len() == 5, "{of_image:?}\n{of_installer:?}");
    Ok(())
}

/// The recipe, installed in a folder.
struct Installed {
    root: Scratch,
}

impl Installed {
    fn new() -> Result<Self> {
        let root = Scratch::new()?;
        let installer = Path::new(RECIPE).join("install");
        // The second time it changes nothing: an update of VyOS needs that.
        for installer in [installer, root.file("config/weir/install")] {
            Ended::of(Command::new("sh").arg(installer).arg(root.path()))?.check(0, &[])?;
        }
        Ok(Self { root })
    }

    /// The commands by their templates' folders.
    fn commands(&self) -> Result<BTreeMap<PathBuf, String>> {
        let mut all = BTreeMap::new();
        let mut folders = vec![self.root.file("opt/vyatta/share/vyatta-op/templates/show/flow-accounting")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Some(run) = fs::read_to_string(&path)?.lines().find_map(|line| line.strip_prefix("run: "))
                {
                    all.insert(folder.clone(), run.to_owned());
                }
            }
        }
        Ok(all)
    }

    /// A program that asks the weir with this socket.
    fn weir(&self, socket: &Path) -> Result<PathBuf> {
        let script = format!("#!/bin/sh\nexec '{}' \"$@\" --socket '{}'\n", weir_binary()?.display(), socket.display());
        fs::create_dir_all(self.root.file("bin"))?;
        self.root.script(&script, "bin/weir", 0o755)
    }

    /// Runs what these words stand for.
    fn run(&self, weir: &Path, words: &[&str]) -> Result<Ended> {
        let mut folder = self.root.file("opt/vyatta/share/vyatta-op/templates/show");
        for (nth, word) in words.iter().enumerate().skip(1) {
            folder.push(if nth > 1 && nth % 2 == 1 { "node.tag" } else { word });
        }
        let command =
            self.commands()?.remove(&folder).with_context(|| format!("no command in {}", folder.display()))?;
        let command = command.replace("/config/weir/", &format!("{}/", self.root.file("config/weir").display()));
        let path = format!("{}:/usr/bin:/bin", weir.parent().context("its folder")?.display());
        Ended::of(Command::new("sh").args(["-c", &command, "vbash"]).args(words).env("PATH", path))
    }
}
