//! weir end to end: the real binary on the real kernel, judged by an oracle that knows every packet.
//!
//! One file per promise. Needs root, and is ignored without. Tests run one after the other unless
//! `--test-threads` says otherwise: several of them measure time or memory.

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use weir_tests::{
    netns,
    trial::{needed, trial},
};

/// A test and its name.
type Test = (&'static str, fn() -> Result<()>);

/// Names the functions of a file that are tests.
macro_rules! tests {
    ($($test:ident),+ $(,)?) => {
        /// This file's tests.
        pub const TESTS: &[crate::Test] = &[$((stringify!($test), $test)),+];
    };
}

mod afpacket;
mod alerts;
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
mod handover;
mod interfaces;
mod ledger;
mod log;
mod memory;
mod notify;
mod package;
mod privileges;
mod prometheus;
mod rates;
mod reload;
mod sampling;
mod sinks;
mod sizes;
mod stop;
mod stuck;
mod systemd;
mod tc;
mod tcx;
mod usage;
mod views;
mod watch;
mod windows;

/// The tests of one file, and what they cannot run without.
struct Suite {
    name: &'static str,
    tests: &'static [Test],
    requirements: fn() -> Result<(), String>,
}

const SUITES: [Suite; 37] = [
    Suite::in_namespaces("ledger", ledger::TESTS),
    Suite::in_namespaces("log", log::TESTS),
    Suite::in_namespaces("windows", windows::TESTS),
    Suite::in_namespaces("clocks", clocks::TESTS),
    Suite::in_namespaces("forwarding", forwarding::TESTS),
    Suite::in_namespaces("stop", stop::TESTS),
    Suite::in_namespaces("endings", endings::TESTS),
    Suite::in_namespaces("stuck", stuck::TESTS),
    Suite::in_namespaces("interfaces", interfaces::TESTS),
    Suite::in_namespaces("tcx", tcx::TESTS),
    Suite::in_namespaces("tc", tc::TESTS),
    Suite::in_namespaces("afpacket", afpacket::TESTS),
    Suite::in_namespaces("connections", connections::TESTS),
    Suite::in_namespaces("sizes", sizes::TESTS),
    Suite::in_namespaces("following", following::TESTS),
    Suite::in_namespaces("default_route", default_route::TESTS),
    Suite::in_namespaces("feeds", feeds::TESTS),
    Suite::in_namespaces("views", views::TESTS),
    Suite::in_namespaces("control", control::TESTS),
    Suite::in_namespaces("reload", reload::TESTS),
    Suite::in_namespaces("privileges", privileges::TESTS),
    Suite::in_namespaces("prometheus", prometheus::TESTS),
    Suite {
        name: "prometheus",
        tests: prometheus::WITH_PROMETHEUS,
        requirements: prometheus::requirements_of_prometheus,
    },
    Suite::in_namespaces("rates", rates::TESTS),
    Suite::in_namespaces("coverage", coverage::TESTS),
    Suite { name: "cpus", tests: cpus::TESTS, requirements: cpus::requirements },
    Suite::in_namespaces("sampling", sampling::TESTS),
    Suite::in_namespaces("sinks", sinks::TESTS),
    Suite::in_namespaces("delivery", delivery::TESTS),
    Suite::in_namespaces("alerts", alerts::TESTS),
    Suite::in_namespaces("memory", memory::TESTS),
    Suite::in_namespaces("usage", usage::TESTS),
    Suite::in_namespaces("notify", notify::TESTS),
    Suite::in_namespaces("doctor", doctor::TESTS),
    Suite { name: "systemd", tests: systemd::TESTS, requirements: systemd::requirements },
    Suite { name: "systemd", tests: systemd::IN_A_MACHINE, requirements: systemd::machine_requirements },
    Suite { name: "handover", tests: handover::TESTS, requirements: systemd::machine_requirements },
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(1));
    // Only where there is a package to look at.
    let package = Suite { name: "package", tests: package::tests(), requirements: systemd::machine_requirements };
    let trials = SUITES.iter().chain([&package]).flat_map(Suite::trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
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
