//! `default route` means the interfaces that carry a default route, and weir follows changes.

use std::{collections::BTreeSet, fs};

use anyhow::{Result, ensure};
use weir_tests::{
    account::Loss,
    daemon::{Daemon, Signal, weir_binary},
    inject::Pace,
    netns::{Lab, QuietPair},
    oracle::Oracle,
    traffic::{Mix, Plan, Traffic},
};

use crate::{
    following::{judge_all, link, wait_for_names},
    watch::{self, Ended, INTERVAL, TIMEOUT, config, measure, modes, stop},
};

tests![
    the_default_route_is_followed_from_interface_to_interface,
    a_reload_keeps_the_interface_of_the_default_route_attached,
    several_uplinks_are_measured_on_four
];

const ONE: [&str; 2] = ["gen1", "port1"];
const TWO: [&str; 2] = ["gen2", "port2"];
const RULE: &str = "interfaces: [default route]\n";

/// Sends some packets and adds them to the oracle.
fn send(pair: &QuietPair, link: [&str; 2], seed: u64, oracle: &mut Oracle) -> Result<()> {
    let plan = Plan { seed, packets: 2_000, mix: Mix::odd(), ..Plan::default() };
    watch::send(pair, link, Traffic::new(plan)?, Pace::Unlimited, oracle).map(drop)
}

/// Returns the output of `weir check` for the configuration of this daemon.
fn check(pair: &QuietPair, daemon: &Daemon) -> Result<String> {
    let mut command = pair.observer.command(weir_binary()?);
    let ended = Ended::of(command.args(["check", "--config"]).arg(daemon.directory().join("weir.yaml")))?;
    ended.check(0, &[])?;
    Ok(ended.out)
}

fn the_default_route_is_followed_from_interface_to_interface() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    for names in [ONE, TWO] {
        link(&pair, names)?;
        pair.observer.set(&format!("ipv6/conf/{}/disable_ipv6", names[1]), "0")?;
    }
    let mut daemon = measure(&pair.observer, &format!("{RULE}{INTERVAL}"))?;
    daemon.wait_for_line("no interface carries a default route now", TIMEOUT)?;
    let checked = check(&pair, &daemon)?;
    ensure!(checked.contains("default route: no interface carries"), "{checked}");

    let (mut oracle, mut unseen) = (Oracle::new(), Oracle::new());
    let (none, one, two, both) = (&[][..], &["port1"][..], &["port2"][..], &["port1", "port2"][..]);
    for (nth, (change, expected)) in [
        ("route add default dev port1", one),
        // These do not count: another table, another type, and a longer prefix with the same address.
        ("route add default dev port2 table 100", one),
        ("route add blackhole default metric 50", one),
        ("route add 0.0.0.0/1 dev port2", one),
        ("route replace default dev port2", two),
        ("route append default dev port1 metric 9", both),
        ("route delete default dev port2", one),
        ("-6 route add default dev port2 metric 9", both),
        ("route delete default dev port1 metric 9", two),
        ("-6 route delete default dev port2", none),
        ("route add default nexthop dev port1 nexthop dev port2", both),
        ("route delete default", none),
        ("nexthop add id 1 dev port2", none),
        ("nexthop add id 2 group 1", none),
        ("route add default nhid 2", two),
    ]
    .into_iter()
    .enumerate()
    {
        pair.observer.ip(change)?;
        wait_for_names(&mut daemon, expected)?;
        for (nth_link, names) in [ONE, TWO].into_iter().enumerate() {
            let oracle = if expected.contains(&names[1]) { &mut oracle } else { &mut unseen };
            send(&pair, names, (200 + 2 * nth + nth_link) as u64, oracle)?;
        }
    }
    let checked = check(&pair, &daemon)?;
    ensure!(checked.contains("port2 (default route) ingress: feeds all"), "{checked}");
    let log = daemon.log()?;
    ensure!(
        log.matches("attached interface=port1").count() == 3,
        "port1 was attached more often than it carried a route:\n{log}"
    );
    let reports = stop(&mut daemon, Loss::None)?;
    let interfaces = reports.iter().filter_map(|report| report["interfaces"].as_array()).flatten();
    let modes: BTreeSet<&str> = interfaces.filter_map(|interface| interface["mode"].as_str()).collect();
    ensure!(
        modes.contains("no-default-route") && !modes.contains("gone"),
        "both interfaces exist all the time: {modes:?}"
    );
    judge_all(&reports, &oracle)
}

fn a_reload_keeps_the_interface_of_the_default_route_attached() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    for names in [ONE, TWO] {
        link(&pair, names)?;
    }
    pair.observer.ip("route add default dev port1")?;
    let mut daemon = measure(&pair.observer, &format!("{RULE}{INTERVAL}control: {{socket: none}}\n"))?;
    let directory = daemon.directory().to_owned();
    let mut oracle = Oracle::new();
    // Each entry still matches the interface: with another entry beside it, by name, by pattern, and by route again.
    for (nth, (interfaces, expected)) in [
        ("default route, port2", &["port1", "port2"][..]),
        ("port1, default route", &["port1"]),
        ("\"port*\"", &["port1", "port2"]),
        ("default route", &["port1"]),
    ]
    .into_iter()
    .enumerate()
    {
        send(&pair, ONE, 240 + 2 * nth as u64, &mut oracle)?;
        let settings = format!("interfaces: [{interfaces}]\n{INTERVAL}control: {{socket: none}}\n");
        fs::write(directory.join("weir.yaml"), config(&settings, &directory.join("reports.ndjson")))?;
        daemon.signal(Signal::HUP)?;
        wait_for_names(&mut daemon, expected)?;
        send(&pair, ONE, 241 + 2 * nth as u64, &mut oracle)?;
    }
    let log = daemon.log()?;
    ensure!(log.matches("attached interface=port1").count() == 1, "it was attached anew:\n{log}");
    judge_all(&stop(&mut daemon, Loss::None)?, &oracle)
}

fn several_uplinks_are_measured_on_four() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    for nth in 1..=5 {
        link(&pair, [&format!("gen{nth}"), &format!("port{nth}")])?;
    }
    let route_by = |ports: &[u32]| {
        let hops: String = ports.iter().map(|nth| format!(" nexthop dev port{nth}")).collect();
        pair.observer.ip(&format!("route replace default{hops}"))
    };
    route_by(&[1, 2, 3, 4, 5])?;
    let settings = "interfaces: [{name: default route, direction: both}]\n";
    let mut daemon = measure(&pair.observer, &format!("{settings}{INTERVAL}"))?;
    daemon.wait_for_line("\"port5\" is one more", TIMEOUT)?;
    // The fifth is reported as refused.
    let five = ["port1", "port2", "port3", "port4", "port5"];
    wait_for_names(&mut daemon, &five.map(|name| [name; 2]).concat())?;
    ensure!(modes("port5", &daemon.reports()?).last() == Some(&"refused"), "port5 is not refused");
    // An interface that disappears makes room once its window is reported.
    route_by(&[1, 3, 4, 5])?;
    daemon.wait_for_line("attached interface=port5", TIMEOUT)?;
    let four = ["port1", "port3", "port4", "port5"];
    wait_for_names(&mut daemon, &four.map(|name| [name; 2]).concat())?;
    stop(&mut daemon, Loss::None).map(drop)
}
