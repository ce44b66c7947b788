//! The names of hosts: from files and leases, read again when they change, inside the sandbox, and hidden with
//! addresses.

use std::{fs, net::IpAddr, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    inject::Pace,
    netns::Lab,
    oracle::{By, Dimension, Oracle},
    scratch::Scratch,
    traffic::{Plan, Traffic},
};

use crate::{
    history::{run, weir},
    watch::{QUIET_LINK, TIMEOUT, list, send, stop},
};

tests![names_come_from_files_and_leases_and_change_with_them, masked_addresses_have_no_names];

/// The names that weir knows: `ADDRESS NAME SOURCE` each.
fn names(socket: &Path) -> Result<Vec<String>> {
    let output = weir(socket, &["names", "--json"])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(answer["schema"] == "weir.names/1", "{answer}");
    let text = |of: &Value| of.as_str().map(str::to_owned).context("no text");
    list(&answer["names"])?
        .iter()
        .map(|of| Ok(format!("{} {} {}", text(&of["address"])?, text(&of["name"])?, text(&of["source"])?)))
        .collect()
}

fn wait_for(socket: &Path, expected: &[String]) -> Result<()> {
    clock::wait_for(&format!("the names {expected:?}"), TIMEOUT, || {
        let known = names(socket)?;
        Ok((known == expected).then_some(()))
    })
}

fn names_come_from_files_and_leases_and_change_with_them() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    let [file, leases] = ["names.txt", "leases"].map(|name| scratch.file(name));
    let mut oracle = Oracle::new();
    let plan = Plan { packets: 3_000, flows: 50, ..Plan::default() };
    let traffic = Traffic::new(plan)?;
    // dnsmasq writes such a line for each lease.
    let lease = |address: &str, name: &str| format!("0 02:00:00:00:00:01 {address} {name} *\n");
    fs::write(&leases, lease("192.0.2.99", "printer"))?;
    let settings = format!("names: {{file: {}, hosts: false, leases: [{}]}}\n", file.display(), leases.display());
    let mut daemon = run(&pair, state.path(), &socket, &settings)?;
    wait_for(&socket, &["192.0.2.99 printer lease".to_owned()])?;
    daemon.wait_for_line("names.txt: cannot be read", TIMEOUT)?;
    daemon.wait_for_reports(2, TIMEOUT)?;
    send(&pair, QUIET_LINK, traffic, Pace::Unlimited, &mut oracle)?;
    let largest: IpAddr = oracle.top(Dimension::Sources, By::Bytes, 1)[0].0.to_string().parse()?;
    // Another file takes the place of the first one, as when dnsmasq or an editor writes it.
    let next = scratch.file("next");
    fs::write(&next, lease(&largest.to_string(), "anna-laptop"))?;
    fs::rename(&next, &leases)?;
    wait_for(&socket, &[format!("{largest} anna-laptop lease")])?;
    let asked = weir(&socket, &["ask", "Anna-Laptop"])?;
    let (told, answer) = (String::from_utf8(asked.stderr)?, String::from_utf8(asked.stdout)?);
    ensure!(told.contains(&format!("Anna-Laptop is {largest}")), "{told}");
    ensure!(answer.contains(&largest.to_string()), "{answer}");
    // The operator's own file is better, and its control characters do no harm.
    fs::write(&file, format!("# mine\n{largest} anna\u{1b}[2J\n"))?;
    wait_for(&socket, &[format!("{largest} anna??2J file")])?;
    let table = String::from_utf8(weir(&socket, &["names"])?.stdout)?;
    ensure!(table.contains("anna??2J") && table.contains("file"), "{table}");
    fs::remove_file(&file)?;
    fs::write(&leases, "")?;
    wait_for(&socket, &[])?;
    stop(&mut daemon, Loss::None)?;
    Ok(())
}

fn masked_addresses_have_no_names() -> Result<()> {
    let (pair, state, scratch) = (Lab::quiet_pair()?, Scratch::new()?, Scratch::new()?);
    let socket = scratch.file("control.sock");
    let mut daemon = run(&pair, state.path(), &socket, "addresses: prefix\n")?;
    daemon.wait_for_reports(1, TIMEOUT)?;
    let refused = weir(&socket, &["names"])?;
    let why = String::from_utf8(refused.stderr)?;
    ensure!(!refused.status.success() && why.contains("addresses: prefix"), "{why}");
    stop(&mut daemon, Loss::None)?;
    Ok(())
}
