//! Packets that a flowtable forwards past most of the kernel's stack are counted all the same: weir's programs run
//! before the flowtable of received packets, and at the queue of sent ones.

use std::{net::IpAddr, process::Command};

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use weir_tests::{
    account::Loss,
    daemon::weir_binary,
    netns::{self, Lab, Namespace},
    trial::{needed, optional, trial},
};

use crate::{
    forwarding::{DATAGRAMS, UDP_PORT, exchange, sum_flow},
    watch::{self, Ended, ONE_WINDOW, ROOMY_RINGS, measure, one_window},
};

/// The tests. They are ignored on a kernel without flowtables.
pub fn trials() -> Vec<Trial> {
    let root = needed(netns::requirements());
    let flowtable = optional(requirement());
    let needs = [&root, &flowtable];
    vec![
        trial("offload::a_flowtable_hides_no_packet_from_xdp", || a_flowtable_hides_no_packet("native"), &needs),
        trial("offload::a_flowtable_hides_no_packet_from_the_tc_hook", || a_flowtable_hides_no_packet("auto"), &needs),
        trial("offload::doctor_names_flowtables", doctor_names_flowtables, &needs),
    ]
}

/// An error that says why this kernel has no flowtables.
fn requirement() -> Result<(), String> {
    let rules = "table inet t { flowtable f { hook ingress priority 0; devices = { lo }; }; }";
    let tried = Command::new("unshare").args(["-n", "nft", rules]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("this kernel has no flowtables: {}", said.lines().next().unwrap_or_default()))
        }
        Err(error) => Err(format!("cannot run unshare: {error}")),
    }
}

/// Makes the router forward flows by a flowtable once both sides have been heard. A counter has what it still forwards
/// by its stack.
fn offload(router: &Namespace) -> Result<()> {
    const RULES: &str = "table inet fw {\n\
         flowtable ft { hook ingress priority 0; devices = { wan0, lan0 }; }\n\
         chain forward { type filter hook forward priority 0; ct state established flow add @ft; counter; }\n}";
    nft(router, RULES).map(drop)
}

fn nft(namespace: &Namespace, rules: &str) -> Result<String> {
    let output = namespace.command("nft").arg(rules).output().context("cannot run nft")?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn a_flowtable_hides_no_packet(mode: &str) -> Result<()> {
    one_window();
    let lab = Lab::new()?;
    offload(&lab.router)?;
    let directions: &[&str] = if mode == "native" { &["ingress"] } else { &["ingress", "egress"] };
    let direction = if mode == "native" { "ingress" } else { "both" };
    let of = |name: &str| format!("{{name: {name}, mode: {mode}, direction: {direction}}}");
    let interfaces = Lab::router_interfaces().map(of).join(", ");
    let mut daemon = measure(&lab.router, &format!("interfaces: [{interfaces}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    for server in Lab::SERVER {
        exchange(&lab, server.parse::<IpAddr>()?)?;
    }
    let all = 2 * DATAGRAMS as u64;
    let by_stack = counted(&nft(&lab.router, "list chain inet fw forward")?)?;
    ensure!(by_stack < all / 2, "{by_stack} packets went through the stack: the flowtable did not forward");
    let reports = watch::stop(&mut daemon, Loss::None)?;
    for (client, server) in Lab::CLIENT.into_iter().zip(Lab::SERVER) {
        let datagrams = sum_flow(&reports, "packets", client, server, UDP_PORT, "udp")?;
        ensure!(datagrams == DATAGRAMS as u64, "{datagrams} datagrams from {client} in the list, not {DATAGRAMS}");
    }
    for name in Lab::router_interfaces() {
        for direction in directions {
            let seen = watch::seen_in(name, direction, &reports)?;
            ensure!(seen.packets >= all, "{name} {direction}: {} of {all} packets", seen.packets);
        }
    }
    Ok(())
}

/// The packets of the only `counter` in this chain.
fn counted(chain: &str) -> Result<u64> {
    let number = chain.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).with_context(|| chain.to_owned())
}

fn doctor_names_flowtables() -> Result<()> {
    let lab = Lab::new()?;
    let doctor = || Ended::of(lab.router.command(weir_binary()?).args(["doctor", "wan0"]));
    ensure!(!doctor()?.out.contains("flowtable"), "there is none yet");
    offload(&lab.router)?;
    let told = doctor()?.out.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(told.contains("inet fw ft") && told.contains("weir sees the packets"), "{told}");
    Ok(())
}
