//! weir end to end: the real binary on the real kernel, judged by an oracle that knows every packet.
//!
//! One file per promise. The tests need root, and are ignored without it. Tests that must run alone come first, one
//! after the other. Patient tests, which mostly wait, then run in parallel. `--test-threads` applies to all.

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use weir_tests::{
    netns,
    trial::{SIDE_BY_SIDE, needed, trial},
};

/// A test and its name.
type Test = (&'static str, fn() -> Result<()>);

/// Names the patient tests of a file: they mostly wait, and other tests run at the same time.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        /// This file's patient tests.
        pub const TESTS: &[crate::Test] = &[$((stringify!($test), $test)),+];
    };
}

/// Names the tests that must run alone: they measure time, fill something with little room, or change the whole
/// machine.
macro_rules! alone {
    ($($test:ident),+ $(,)?) => {
        /// This file's tests that run alone.
        pub const ALONE: &[crate::Test] = &[$((stringify!($test), $test)),+];
    };
}

mod afpacket;
mod alerts;
#[cfg(target_arch = "x86_64")]
mod attacker;
mod clocks;
mod connections;
mod control;
mod coverage;
mod cpus;
mod default_route;
mod delivery;
mod doctor;
mod endings;
mod feeds;
mod following;
mod forwarding;
mod grafana;
mod handover;
mod histories;
mod history;
mod host_names;
mod inherited;
mod interfaces;
mod ipfix;
mod kafka;
mod ledger;
mod links;
mod log;
mod memory;
mod merged;
mod modes;
mod months;
mod moves;
mod names;
mod nat;
mod nats;
mod new_hosts;
mod notify;
mod offload;
mod open;
mod otlp;
mod package;
mod privileges;
mod prometheus;
#[cfg(target_arch = "x86_64")]
mod puppet;
mod rates;
mod reload;
mod routing;
mod sampling;
mod sessions;
mod sinks;
mod sizes;
mod stop;
mod stuck;
mod systemd;
mod tarball;
mod tc;
mod tcx;
mod top;
mod usage;
mod views;
mod vrfs;
mod vyos;
mod watch;
mod windows;

/// The tests of one file, and their requirements.
struct Suite {
    name: &'static str,
    tests: &'static [Test],
    requirements: fn() -> Result<(), String>,
}

/// These run first, one test after the other.
const ALONE: &[Suite] = &[
    Suite::in_namespaces("ledger", ledger::ALONE),
    Suite::in_namespaces("windows", windows::ALONE),
    Suite::in_namespaces("forwarding", forwarding::ALONE),
    Suite::in_namespaces("stuck", stuck::ALONE),
    Suite::in_namespaces("reload", reload::ALONE),
    Suite { name: "handover", tests: handover::ALONE, requirements: systemd::machine_requirements },
    Suite { name: "routing", tests: routing::ALONE, requirements: systemd::machine_requirements },
    Suite::in_namespaces("rates", rates::ALONE),
    Suite::in_namespaces("coverage", coverage::ALONE),
    Suite { name: "cpus", tests: cpus::ALONE, requirements: cpus::requirements },
    Suite::in_namespaces("sampling", sampling::ALONE),
    Suite::in_namespaces("sinks", sinks::ALONE),
    Suite::in_namespaces("memory", memory::ALONE),
    Suite::in_namespaces("interfaces", interfaces::ALONE),
];

/// These share nothing: each has namespaces, folders and machines of its own. Those with the longest tests come first,
/// so that none of them is left over at the end.
const PATIENT: &[Suite] = &[
    Suite { name: "inherited", tests: inherited::TESTS, requirements: systemd::machine_requirements },
    Suite { name: "handover", tests: handover::TESTS, requirements: systemd::machine_requirements },
    Suite { name: "systemd", tests: systemd::IN_A_MACHINE, requirements: systemd::machine_requirements },
    Suite { name: "systemd", tests: systemd::TESTS, requirements: systemd::requirements },
    Suite::in_namespaces("delivery", delivery::TESTS),
    Suite { name: "otlp", tests: otlp::TESTS, requirements: otlp::requirements },
    Suite { name: "kafka", tests: kafka::TESTS, requirements: kafka::requirements },
    Suite { name: "nats", tests: nats::TESTS, requirements: nats::requirements },
    Suite::in_namespaces("memory", memory::TESTS),
    Suite::in_namespaces("moves", moves::TESTS),
    Suite::in_namespaces("names", names::TESTS),
    Suite::in_namespaces("package", package::TESTS),
    Suite::in_namespaces("histories", histories::TESTS),
    Suite { name: "nat", tests: nat::TESTS, requirements: nat::requirements },
    Suite::in_namespaces("default_route", default_route::TESTS),
    Suite::in_namespaces("following", following::TESTS),
    Suite::in_namespaces("sessions", sessions::TESTS),
    Suite::in_namespaces("stuck", stuck::TESTS),
    Suite::in_namespaces("clocks", clocks::TESTS),
    Suite::in_namespaces("alerts", alerts::TESTS),
    Suite::in_namespaces("notify", notify::TESTS),
    Suite::in_namespaces("open", open::TESTS),
    Suite::in_namespaces("reload", reload::TESTS),
    Suite::in_namespaces("interfaces", interfaces::TESTS),
    Suite::in_namespaces("endings", endings::TESTS),
    Suite::in_namespaces("history", history::TESTS),
    Suite::in_namespaces("new_hosts", new_hosts::TESTS),
    Suite::in_namespaces("afpacket", afpacket::TESTS),
    Suite::in_namespaces("control", control::TESTS),
    Suite { name: "top", tests: top::TESTS, requirements: top::requirements },
    Suite::in_namespaces("windows", windows::TESTS),
    Suite::in_namespaces("ledger", ledger::TESTS),
    Suite::in_namespaces("coverage", coverage::TESTS),
    Suite::in_namespaces("links", links::TESTS),
    Suite::in_namespaces("sinks", sinks::TESTS),
    Suite::in_namespaces("stop", stop::TESTS),
    Suite::in_namespaces("privileges", privileges::TESTS),
    #[cfg(target_arch = "x86_64")]
    Suite { name: "attacker", tests: attacker::TESTS, requirements: attacker::requirements },
    Suite::in_namespaces("tc", tc::TESTS),
    Suite::in_namespaces("tcx", tcx::TESTS),
    Suite::in_namespaces("modes", modes::TESTS),
    Suite::in_namespaces("months", months::TESTS),
    Suite::in_namespaces("host_names", host_names::TESTS),
    Suite::in_namespaces("connections", connections::TESTS),
    Suite::in_namespaces("sizes", sizes::TESTS),
    Suite::in_namespaces("feeds", feeds::TESTS),
    Suite::in_namespaces("views", views::TESTS),
    Suite::in_namespaces("prometheus", prometheus::TESTS),
    Suite {
        name: "prometheus",
        tests: prometheus::WITH_PROMETHEUS,
        requirements: prometheus::requirements_of_prometheus,
    },
    Suite { name: "grafana", tests: grafana::WITH_PROMETHEUS, requirements: prometheus::requirements_of_prometheus },
    Suite { name: "ipfix", tests: ipfix::TESTS, requirements: ipfix::requirements_of_collectors },
    Suite::in_namespaces("doctor", doctor::TESTS),
    Suite::in_namespaces("usage", usage::TESTS),
    Suite { name: "vyos", tests: vyos::TESTS, requirements: vyos::requirements },
    Suite::in_namespaces("log", log::TESTS),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // These run only if there is a package to test.
    let package = Suite { name: "package", tests: package::of_packages(), requirements: systemd::machine_requirements };
    let tarball = Suite::in_namespaces("tarball", tarball::of_tarball());
    let others = merged::trials().into_iter().chain(modes::kinds()).chain(vrfs::trials()).chain(offload::trials());
    let patient = PATIENT.iter().chain([&package, &tarball]).flat_map(Suite::trials).chain(others).collect::<Vec<_>>();
    let alone = ALONE.iter().flat_map(Suite::trials).collect::<Vec<_>>();
    let groups = match arguments.test_threads {
        Some(threads) => vec![(threads, alone.into_iter().chain(patient).collect())],
        None => vec![(1, alone), (SIDE_BY_SIDE, patient)],
    };
    run(&arguments, groups)
}

/// The exit code of failed tests, as `cargo test` expects it.
const FAILED: u8 = 101;

/// Runs the groups of tests one after the other, each with this many tests side by side. A filter may leave a group
/// empty.
fn run(arguments: &Arguments, mut groups: Vec<(usize, Vec<Trial>)>) -> ExitCode {
    for (_, trials) in &mut groups {
        trials.retain(|trial| !arguments.is_filtered_out(trial));
    }
    let is_chosen = |(_, trials): &(usize, Vec<Trial>)| !trials.is_empty();
    if groups.iter().any(is_chosen) {
        groups.retain(is_chosen);
    } else {
        groups.truncate(1);
    }
    let failed = groups.into_iter().fold(false, |failed, (threads, trials)| {
        let arguments = Arguments { test_threads: Some(threads), ..arguments.clone() };
        libtest_mimic::run(&arguments, trials).has_failed() || failed
    });
    if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS }
}

impl Suite {
    const fn in_namespaces(name: &'static str, tests: &'static [Test]) -> Self {
        Self { name, tests, requirements: netns::requirements }
    }

    fn trials(&self) -> Vec<Trial> {
        let Self { name: suite, tests, requirements } = self;
        let met = needed(requirements());
        tests.iter().map(|(name, test)| trial(format!("{suite}::{name}"), *test, &[&met])).collect()
    }
}
