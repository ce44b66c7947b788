//! A router that translates addresses: which lists name the clients, and that weir logs the translation.

use std::{fs, net::UdpSocket, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    daemon::weir_binary,
    netns::{self, Lab, Namespace},
    scratch::Scratch,
};

use crate::watch::{Ended, TIMEOUT, list, measure, number, stop};

tests![the_views_of_the_example_name_the_client, it_is_told_where_addresses_are_translated];

/// The client behind the translating router: in this test the laboratory's server sends the requests.
const CLIENT: &str = "10.77.2.2";
/// The router's address on the other side.
const ROUTER: &str = "10.77.1.1";
/// The server that the client sends to.
const PEER: &str = "10.77.1.2:9000";
/// Datagrams in each direction.
const DATAGRAMS: u64 = 40;

/// These tests need network namespaces and the `nft` command.
pub fn requirements() -> Result<(), String> {
    netns::requirements()?;
    let found = Command::new("nft").arg("--version").output();
    found.map(drop).map_err(|error| format!("cannot run nft: {error} (scripts/setup installs it)"))
}

/// Makes the router translate packets that leave by its outer interface.
fn translate(router: &Namespace) -> Result<()> {
    const RULES: &str =
        "table ip lab { chain out { type nat hook postrouting priority 100; oifname wan0 masquerade; }; }";
    let output = router.command("nft").arg(RULES).output()?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The client asks small questions and gets long answers.
fn download(lab: &Lab) -> Result<()> {
    let peer = lab.client.enter(|| UdpSocket::bind(PEER))??;
    let client = lab.server.enter(|| UdpSocket::bind((CLIENT, 0)))??;
    for socket in [&peer, &client] {
        socket.set_read_timeout(Some(TIMEOUT))?;
    }
    for _ in 0..DATAGRAMS {
        client.send_to(&[1; 100], PEER)?;
        let mut question = [0; 200];
        let (_, from) = peer.recv_from(&mut question)?;
        ensure!(from.ip().to_string() == ROUTER, "not translated: the question comes from {from}");
        peer.send_to(&[2; 1_000], from)?;
        ensure!(client.recv(&mut [0; 2_000])? == 1_000, "the answer is not whole");
    }
    Ok(())
}

/// Packets of the row with this address, over all reports.
fn packets<'r>(lists: impl Iterator<Item = &'r Value>, field: &str, address: &str) -> Result<u64> {
    let mut sum = 0;
    for rows in lists.filter(|rows| !rows.is_null()) {
        for row in list(rows)?.iter().filter(|row| row[field] == address) {
            sum += number(&row["packets"]["value"])?;
        }
    }
    Ok(sum)
}

fn the_views_of_the_example_name_the_client() -> Result<()> {
    let example = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/examples/nat.yaml"))?;
    let (settings, _) = example.split_once("sinks:").context("the example has no sinks")?;
    let lab = Lab::new()?;
    translate(&lab.router)?;
    let mut daemon = measure(&lab.router, settings)?;
    download(&lab)?;
    let reports = stop(&mut daemon, Loss::None)?;
    let views = |name: &'static str| {
        let all = reports.iter().filter_map(|report| report["views"].as_array()).flatten();
        all.filter(move |view| view["name"] == name).map(|view| &view["rows"])
    };
    for (view, field) in [("downloads", "dst_ip"), ("uploads", "src_ip")] {
        let seen = packets(views(view), field, CLIENT)?;
        ensure!(seen == DATAGRAMS, "{view}: {CLIENT} has {seen} packets of {DATAGRAMS}");
        ensure!(packets(views(view), field, ROUTER)? == 0, "{view} names the router");
    }
    ensure!(packets(views("clients"), "host", CLIENT)? == 2 * DATAGRAMS, "both directions of {CLIENT}");
    for rows in views("clients") {
        for row in list(rows)?.iter().filter(|row| row["host"] == CLIENT) {
            let both = number(&row["packets"]["value"])?;
            let [down, up] = ["down", "up"].map(|direction| &row[direction]["packets"]);
            ensure!(number(&down["lower"])? == number(&down["upper"])?, "down is exact: {row}");
            ensure!(number(&down["value"])? + number(&up["value"])? == both, "parts add up: {row}");
            ensure!(row["peers"]["value"] == 1 && number(&down["value"])? * 2 >= both - 1, "one peer answers: {row}");
        }
    }
    // The other lists are as the page describes them.
    let top = |name: &'static str| reports.iter().map(move |report| &report["top"][name]);
    ensure!(packets(top("sources"), "src_ip", CLIENT)? == DATAGRAMS, "questions are seen before they are translated");
    let answers = packets(top("destinations"), "dst_ip", ROUTER)?;
    ensure!(answers == DATAGRAMS, "{answers} of {DATAGRAMS} answers go to the router");
    ensure!(packets(top("destinations"), "dst_ip", CLIENT)? == 0, "answers are seen before they are translated back");
    Ok(())
}

fn it_is_told_where_addresses_are_translated() -> Result<()> {
    let (lab, scratch) = (Lab::new()?, Scratch::new()?);
    let config = scratch.file("weir.yaml");
    fs::write(&config, "interfaces: [lan0]\n")?;
    let told = |arguments: &[&str]| -> Result<String> {
        let mut command: Command = lab.router.command(weir_binary()?.canonicalize()?);
        Ok(Ended::of(command.args(arguments).arg("--config").arg(&config))?.out)
    };
    const TOLD: &str = "this machine translates addresses (nftables chain ip lab out)";
    // `weir doctor` wraps long lines.
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for arguments in [&["check"][..], &["doctor"]] {
        ensure!(!words(told(arguments)?).contains("translates addresses ("), "{arguments:?} without a rule");
    }
    translate(&lab.router)?;
    for arguments in [&["check"][..], &["doctor"]] {
        let text = words(told(arguments)?);
        ensure!(text.contains(TOLD), "{arguments:?}: {text}");
    }
    Ok(())
}
