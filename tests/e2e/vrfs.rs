//! Interfaces in VRFs are named with them, and a sink may send through one.

use std::{net::Ipv4Addr, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    collector::Collector,
    daemon::{Daemon, weir_binary},
    netns::{self, Lab, QuietPair},
    scratch::Scratch,
    trial::{needed, optional, trial},
};

use crate::watch::{Ended, TIMEOUT, measure, number, stop, weir_with};

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
/// The collector's address, to which two interfaces of the router lead.
const COLLECTOR: Ipv4Addr = Ipv4Addr::new(10, 77, 9, 2);

/// The tests. Those that need VRFs are ignored on a kernel that has none.
pub fn trials() -> Vec<Trial> {
    let root = needed(netns::requirements());
    let vrf = optional(requirement());
    vec![
        trial("vrfs::a_sink_waits_for_its_device", || a_sink_waits_for(Device::Plain), &[&root]),
        trial("vrfs::a_sink_waits_for_its_vrf", || a_sink_waits_for(Device::Vrf), &[&root, &vrf]),
        trial("vrfs::interfaces_are_named_with_their_vrf", interfaces_are_named_with_their_vrf, &[&root, &vrf]),
    ]
}

/// An error that says why this kernel has no VRFs.
fn requirement() -> Result<(), String> {
    let tried = Command::new("unshare").args(["-n", "ip", "link", "add", "red", "type", "vrf", "table", "10"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("this kernel has no VRFs: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("cannot run unshare: {error}")),
    }
}

/// What a sink's `vrf` names.
#[derive(Clone, Copy, PartialEq)]
enum Device {
    /// An interface of the router.
    Plain,
    /// A VRF that an interface is in.
    Vrf,
}

/// Only by the management network can the collector be reached. Until that exists, reports wait, and weir says why.
fn a_sink_waits_for(device: Device) -> Result<()> {
    let pair = Lab::quiet_pair()?;
    // Another interface has a route to the collector's address, and nobody answers there.
    pair.observer.ip(&format!("address add 10.77.9.1/24 dev {INTERFACE}"))?;
    let collector = pair.generator.enter(|| Collector::listen((Ipv4Addr::UNSPECIFIED, 0).into()))??;
    let port = collector.address().port();
    let (state, scratch) = (Scratch::new()?, Scratch::new()?);
    let program = weir_with(&[("STATE_DIRECTORY", state.path())], &scratch)?;
    let config = |_: &Path| {
        format!(
            "interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\n\
             sinks: [{{type: http, url: \"http://{COLLECTOR}:{port}/\", vrf: mgmt}}]\n"
        )
    };
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), config)?;
    daemon.wait_for_line("there is no VRF \"mgmt\"", TIMEOUT).with_context(|| daemon.log().unwrap_or_default())?;
    let waits = || Ok((spooled(&state)? >= 2).then_some(()));
    clock::wait_for("reports that wait", TIMEOUT, waits).with_context(|| daemon.log().unwrap_or_default())?;
    ensure!(collector.received().is_empty(), "a report has arrived by another network");

    let name = if device == Device::Vrf { "mgmt-port" } else { "mgmt" };
    pair.observer.ip(&format!("link add {name} type veth peer name far netns {}", pair.generator.name()))?;
    if device == Device::Vrf {
        pair.observer.ip("link add mgmt type vrf table 10")?;
        pair.observer.ip("link set mgmt up")?;
        pair.observer.ip("link set mgmt-port master mgmt")?;
    }
    pair.observer.ip(&format!("address add 10.77.9.1/24 dev {name}"))?;
    pair.observer.ip(&format!("link set {name} up"))?;
    pair.generator.ip(&format!("address add {COLLECTOR}/24 dev far"))?;
    pair.generator.ip("link set far up")?;
    let arrived = || Ok((collector.received().len() >= 3).then_some(()));
    clock::wait_for("reports at the collector", TIMEOUT, arrived).with_context(|| daemon.log().unwrap_or_default())?;
    for (nth, one) in collector.received().iter().enumerate() {
        ensure!(number(&one.report["observer"]["seq"])? == nth as u64 + 1, "report {nth} is {}", one.report["id"]);
    }
    let status = daemon.stop(TIMEOUT)?;
    ensure!(status.success(), "weir ended with {status}: {}", daemon.log()?);
    Ok(())
}

/// How many reports wait on disk.
fn spooled(state: &Scratch) -> Result<usize> {
    let mut command = Command::new(weir_binary()?);
    let listed = Ended::of(command.args(["spool", "ls", "--json", "--path"]).arg(state.file("spool")))?;
    listed.check(0, &[])?;
    Ok(listed.out.lines().count())
}

/// The report follows an interface into a VRF and out of it, also as the member of a bridge.
fn interfaces_are_named_with_their_vrf() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    for line in ["link add red type vrf table 10", "link set red up", "link add br0 type bridge"] {
        pair.observer.ip(line)?;
    }
    let mut daemon = measure(&pair.observer, &format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\n"))?;
    let steps: [(&[&str], Option<&str>); 5] = [
        (&[], None),
        (&["link set obs0 master red"], Some("red")),
        (&["link set obs0 nomaster"], None),
        (&["link set obs0 master br0", "link set br0 master red"], Some("red")),
        (&["link set br0 nomaster"], None),
    ];
    for (changes, vrf) in steps {
        for change in changes {
            pair.observer.ip(change)?;
        }
        let has = || {
            let reports = daemon.reports()?;
            let last = reports.last().map(|report| report["interfaces"][0].get("vrf").and_then(Value::as_str));
            Ok((last == Some(vrf)).then_some(()))
        };
        clock::wait_for(&format!("a report with the VRF {vrf:?} after {changes:?}"), TIMEOUT, has)?;
    }
    stop(&mut daemon, Loss::None).map(drop)
}
