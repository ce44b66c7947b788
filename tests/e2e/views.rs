//! Views of live traffic: those by interface have every packet of each interface, and all others have each packet once.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use weir_common::ledger::Tally;
use weir_tests::{
    account::{Loss, tally},
    netns::Lab,
};

use crate::{
    forwarding::exchange,
    watch::{self, ONE_WINDOW, ROOMY_RINGS, list, measure, one_window},
};

tests![views_tell_interfaces_apart, views_find_who_scans];

const VIEWS: &str = "
views:
  - {name: each, by: [interface, proto], top: 100}
  - {name: tables, by: [src_ip], per: interface, top: 100}
  - {name: sent, match: {direction: egress}, by: [interface], top: 100}
  - {name: ways, by: [direction]}
  - {name: one, match: {interface: NAME}}
  - {name: once, by: [proto], top: 100}
  - {name: pairs, by: [src_ip, dst_ip], per: interface, top: 100}
";

/// Views with a table for each interface: the default ones that list all keys, and one more.
const WHOLE: [&str; 4] = ["ip_versions", "protocols", "dscp", "pairs"];
/// The longest table of the default view `talkers`.
const TALKERS: usize = 5;

/// Sums by interface name and direction.
type Sums = BTreeMap<(String, String), Tally>;

fn text(value: &Value, name: &str) -> Result<String> {
    Ok(value[name].as_str().with_context(|| format!("no {name} in {value}"))?.to_owned())
}

fn amount(row: &Value) -> Result<Tally> {
    let number = |name: &str| -> Result<u64> {
        let [value, lower, upper] = ["value", "lower", "upper"].map(|bound| row[name][bound].as_u64());
        ensure!(value == lower && value == upper, "{name} is not exact: {row}");
        value.with_context(|| format!("no {name} in {row}"))
    };
    Ok(Tally::new(number("packets")?, number("bytes")?))
}

/// Adds up rows that name an interface.
fn add_up(sums: &mut Sums, rows: &Value) -> Result<()> {
    for row in list(rows)? {
        sums.entry((text(row, "interface")?, text(row, "direction")?)).or_default().add(amount(row)?);
    }
    Ok(())
}

fn views_tell_interfaces_apart() -> Result<()> {
    one_window();
    let lab = Lab::new()?;
    let names = Lab::router_interfaces();
    let interfaces = names.map(|name| format!("{{name: {name}, direction: both}}")).join(", ");
    let views = VIEWS.replace("NAME", names[0]);
    let mut daemon = measure(&lab.router, &format!("interfaces: [{interfaces}]\n{ONE_WINDOW}{ROOMY_RINGS}{views}"))?;
    for server in Lab::SERVER {
        exchange(&lab, server.parse()?)?;
    }
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let [mut ledgers, mut each, mut tables, mut sent] = [(); 4].map(|()| Sums::new());
    let (mut whole, mut totals) = (WHOLE.map(|_| Sums::new()), WHOLE.map(|_| Sums::new()));
    let [mut fed, mut once, mut one] = [Tally::default(); 3];
    let mut ways: BTreeMap<String, Tally> = BTreeMap::new();
    for report in &reports {
        let view = |name: &str| {
            let views = list(&report["views"])?;
            views.iter().find(|view| view["name"] == name).with_context(|| format!("there is no view {name}"))
        };
        for interface in list(&report["interfaces"])? {
            let attributed = tally(&interface["ledger"]["attributed"])?;
            ledgers.entry((text(interface, "name")?, text(interface, "direction")?)).or_default().add(attributed);
        }
        fed.packets += report["totals"]["tcp_packets"].as_u64().context("totals")?;
        fed.packets += report["totals"]["udp_packets"].as_u64().context("totals")?;
        add_up(&mut each, &view("each")?["rows"])?;
        add_up(&mut sent, &view("sent")?["rows"])?;
        for row in list(&view("ways")?["rows"])? {
            ways.entry(text(row, "direction")?).or_default().add(amount(row)?);
        }
        for table in list(&view("tables")?["tables"])? {
            for row in list(&table["rows"])? {
                let place = (text(table, "interface")?, text(table, "direction")?);
                tables.entry(place).or_default().add(amount(row)?);
            }
        }
        for ((name, rows), totals) in WHOLE.iter().zip(&mut whole).zip(&mut totals) {
            for table in list(&view(name)?["tables"])? {
                let place = (text(table, "interface")?, text(table, "direction")?);
                totals.entry(place.clone()).or_default().add(amount(&table["total"])?);
                for row in list(&table["rows"])? {
                    rows.entry(place.clone()).or_default().add(amount(row)?);
                }
            }
        }
        let first =
            |table: &Value| -> Result<Vec<Value>> { Ok(list(&table["rows"])?.iter().take(TALKERS).cloned().collect()) };
        let [pairs, talkers] = ["pairs", "talkers"].map(|name| view(name).and_then(|view| list(&view["tables"])));
        let (pairs, talkers) = (pairs?, talkers?);
        ensure!(pairs.len() == talkers.len(), "{} tables of pairs, and {} of talkers", pairs.len(), talkers.len());
        for (all, talkers) in pairs.iter().zip(talkers) {
            ensure!(all["total"] == talkers["total"], "{} and {}", all["total"], talkers["total"]);
            ensure!(first(all)? == *list(&talkers["rows"])?, "the first of {all}, not {talkers}");
        }
        for row in list(&view("once")?["rows"])? {
            if row["proto"] == "tcp" || row["proto"] == "udp" {
                once.packets += amount(row)?.packets;
            }
        }
        for row in list(&view("one")?["rows"])? {
            one.add(amount(row)?);
        }
        for name in ["each", "tables", "sent", "ways", "one"] {
            ensure!(view(name)?["counted"] == "per_interface", "{name} is counted otherwise");
        }
        ensure!(view("once")?["counted"] == "once", "once is counted otherwise");
    }
    ledgers.retain(|_, attributed| *attributed != Tally::default());
    ensure!(ledgers.len() == 4, "all interfaces carry packets both ways: {ledgers:?}");
    ensure!(each == ledgers, "by interface and protocol: {each:?}, and ledgers have {ledgers:?}");
    ensure!(tables == ledgers, "a table for each interface: {tables:?}, and ledgers have {ledgers:?}");
    for ((name, rows), totals) in WHOLE.iter().zip(&whole).zip(&totals) {
        ensure!(*rows == ledgers, "{name}: {rows:?}, and ledgers have {ledgers:?}");
        ensure!(*totals == ledgers, "the totals of {name}: {totals:?}, and ledgers have {ledgers:?}");
    }
    let mut directions: BTreeMap<String, Tally> = BTreeMap::new();
    for ((_, way), attributed) in &ledgers {
        directions.entry(way.clone()).or_default().add(*attributed);
    }
    ensure!(ways == directions, "by direction: {ways:?}, and ledgers have {directions:?}");
    let mut first = Tally::default();
    for (_, attributed) in ledgers.iter().filter(|((name, _), _)| name == names[0]) {
        first.add(*attributed);
    }
    ensure!(one == first, "{}: {one:?}, and its ledgers have {first:?}", names[0]);
    ledgers.retain(|(_, direction), _| direction == "egress");
    ensure!(sent == ledgers, "what was sent: {sent:?}, and ledgers have {ledgers:?}");
    ensure!(once == fed && fed.packets > 0, "once: {once:?}, and totals have {fed:?}");
    Ok(())
}

fn views_find_who_scans() -> Result<()> {
    use std::net::UdpSocket;
    const PORTS: u16 = 3_000;
    one_window();
    let lab = Lab::new()?;
    let [name, _] = Lab::router_interfaces();
    let mut daemon = measure(&lab.router, &format!("interfaces: [{name}]\n{ONE_WINDOW}{ROOMY_RINGS}"))?;
    let (client, server) = (Lab::CLIENT[0], Lab::SERVER[0]);
    lab.client.enter(|| -> Result<()> {
        let socket = UdpSocket::bind((client, 0))?;
        for port in 1..=PORTS {
            // A port without a listener answers with an error, which the next call on the same socket would return.
            _ = socket.send_to(b"anybody?", (server, 10_000 + port));
            _ = socket.send_to(b"anybody?", (server, 10_000 + port));
        }
        Ok(())
    })??;
    let reports = watch::stop(&mut daemon, Loss::None)?;
    let scanners = reports.iter().flat_map(|report| report["spread"]["ports_per_source"].as_array()).flatten();
    let scanner = scanners.max_by_key(|row| row["distinct"]["value"].as_u64()).context("nobody scans")?;
    ensure!(scanner["src_ip"] == client, "{scanner} is not {client}");
    let [lower, upper] = ["lower", "upper"].map(|bound| scanner["distinct"][bound].as_u64().unwrap_or(0));
    ensure!((lower..=upper).contains(&u64::from(PORTS)), "{PORTS} ports, not {scanner}");
    ensure!(lower > 1_000, "the bounds say too little: {scanner}");
    Ok(())
}
