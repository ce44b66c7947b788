//! Collectors of flow records print the same numbers as the reports: nfcapd and nfacctd over UDP, and tshark over TCP.

use std::{
    collections::BTreeMap,
    env, fs,
    io::Read,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_tests::{
    account::Loss,
    clock,
    daemon::Daemon,
    netns::{Lab, Namespace, QuietPair, requirements},
    oracle::Oracle,
    scratch::Scratch,
    traffic::Plan,
};

use crate::watch::{INTERVAL, TIMEOUT, Watch, config, list, native, number};

tests![
    nfcapd_prints_the_numbers_of_the_reports,
    nfcapd_multiplies_what_was_sampled,
    nfacctd_prints_them_with_their_interfaces,
    over_tcp_nothing_is_missing_after_an_outage,
];

/// The programs that these tests need.
pub fn requirements_of_collectors() -> Result<(), String> {
    requirements()?;
    for (program, package) in [("nfcapd", "nfdump"), ("nfacctd", "pmacct"), ("tshark", "tshark")] {
        let is_there = |folder: PathBuf| folder.join(program).exists();
        if !env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(is_there) {
            return Err(format!("there is no {program} (apt: {package})"));
        }
    }
    Ok(())
}

const PORT: u16 = 4739;
/// A view with the interface and all other fields of a flow record.
const BY_INTERFACE: &str =
    "views: [{name: by_interface, by: [interface, src_ip, dst_ip, src_port, dst_port, proto], top: 30}]\n";

/// The key of a flow record in these tests: addresses and ports.
type Key = (IpAddr, IpAddr, u64, u64);
/// Packets and bytes.
type Counts = (u64, u64);
/// The sums of all records with this key.
type Flows = BTreeMap<Key, Counts>;

fn add(flows: &mut Flows, key: Key, (packets, bytes): Counts) {
    let sum = flows.entry(key).or_default();
    *sum = (sum.0 + packets, sum.1 + bytes);
}

/// The sums of these rows of reports. `scale` is the factor by which a collector multiplies sampled counts.
fn of_rows<'r>(rows: impl Iterator<Item = &'r Value>, scale: Option<u64>) -> Result<Flows> {
    let mut flows = Flows::new();
    for row in rows {
        let address = |field: &str| -> Result<IpAddr> { Ok(row[field].as_str().context("no address")?.parse()?) };
        let count = |unit: &str| match scale {
            Some(scale) => number(&row[unit]["sampled"]).map(|sampled| sampled * scale),
            None => number(&row[unit]["value"]),
        };
        // Each collector prints the type and code of ICMP differently.
        let is_icmp = row["proto"].as_str().is_some_and(|proto| proto.starts_with("icmp"));
        let port = |field: &str| if is_icmp { Ok(0) } else { number(&row[field]) };
        let key = (address("src_ip")?, address("dst_ip")?, port("src_port")?, port("dst_port")?);
        add(&mut flows, key, (count("packets")?, count("bytes")?));
    }
    ensure!(!flows.is_empty(), "the reports list no flows: the test sees nothing");
    Ok(flows)
}

/// The rows of the standard view: by bytes and by packets, each flow of a window once.
fn standard_rows(report: &Value) -> Result<Vec<&Value>> {
    let mut rows: Vec<&Value> = Vec::new();
    let key =
        |row: &Value| ["src_ip", "dst_ip", "src_port", "dst_port", "proto", "fragment"].map(|field| row[field].clone());
    for row in list(&report["top"]["flows"])?.iter().chain(list(&report["top_by_packets"]["flows"])?) {
        if !rows.iter().any(|known| key(known) == key(row)) {
            rows.push(row);
        }
    }
    Ok(rows)
}

fn standard_flows(reports: &[Value], scale: Option<u64>) -> Result<Flows> {
    let rows: Result<Vec<_>> = reports.iter().map(standard_rows).collect();
    of_rows(rows?.into_iter().flatten(), scale)
}

fn rows_by_interface(reports: &[Value]) -> impl Iterator<Item = &Value> {
    let views = reports.iter().filter_map(|report| report["views"].as_array()).flatten();
    views.filter(|view| view["name"] == "by_interface").filter_map(|view| view["rows"].as_array()).flatten()
}

/// A program in the namespace, which ends with the test.
struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts it, and waits until it says that it is ready.
    fn start(namespace: &Namespace, command: &[&str], scratch: &Scratch, ready: &str) -> Result<Self> {
        let log = scratch.file(&format!("{}.log", command[0]));
        let out = fs::File::create(&log)?;
        let mut started = namespace.command(command[0]);
        started.args(&command[1..]).stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
        let child = started.spawn().with_context(|| format!("cannot start {}", command[0]))?;
        let program = Self { child, log };
        clock::wait_for(ready, TIMEOUT, || Ok(program.log()?.contains(ready).then_some(())))
            .with_context(|| program.log().unwrap_or_default())?;
        Ok(program)
    }

    fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Ends it as its operator would, so that it writes its files.
    fn stop(mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts weir on this link, with a second sink that has these settings.
fn start(pair: QuietPair, settings: &str, sink: &str) -> Result<Watch> {
    let interface = native(QuietPair::OBSERVER_INTERFACE);
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        let config = config(&format!("interfaces: [{interface}]\n{settings}"), reports);
        format!("{config}  - {{type: ipfix, address: \"127.0.0.1:{PORT}\"{sink}}}\n")
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    Ok(Watch { pair, daemon })
}

/// Sends three different loads, each in separate windows.
fn send(watch: &mut Watch) -> Result<()> {
    for seed in [91, 92, 93] {
        watch.send(Plan { seed, ..Plan::default() }, &mut Oracle::new())?;
        let so_far = watch.daemon.reports()?.len();
        watch.daemon.wait_for_reports(so_far + 2, TIMEOUT)?;
    }
    Ok(())
}

fn nfcapd(pair: &QuietPair, scratch: &Scratch) -> Result<Program> {
    let (folder, port) = (scratch.path().display().to_string(), PORT.to_string());
    let command = ["nfcapd", "-w", &folder, "-p", &port, "-b", "127.0.0.1", "-t", "3600"];
    Program::start(&pair.observer, &command, scratch, "Startup nfcapd")
}

/// The flows that nfdump prints from the files of nfcapd.
fn nfdump(scratch: &Scratch) -> Result<Flows> {
    let output = Command::new("nfdump")
        .args(["-q", "-N", "-6", "-o", "fmt:%sa|%da|%sp|%dp|%pr|%pkt|%byt", "-R"])
        .arg(scratch.path())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut flows = Flows::new();
    for line in text.lines().filter(|line| line.contains('|')) {
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [source, destination, src_port, dst_port, proto, packets, bytes] = parts[..] else {
            anyhow::bail!("nfdump printed {line:?}");
        };
        let is_icmp = matches!(proto, "1" | "58" | "ICMP" | "ICMP6");
        let port = |text: &str| if is_icmp { Ok(0) } else { text.parse() };
        let key = (source.parse()?, destination.parse()?, port(src_port)?, port(dst_port)?);
        add(&mut flows, key, (packets.parse()?, bytes.parse()?));
    }
    Ok(flows)
}

fn nfcapd_prints_the_numbers_of_the_reports() -> Result<()> {
    let scratch = Scratch::new()?;
    let pair = Lab::quiet_pair()?;
    let collector = nfcapd(&pair, &scratch)?;
    let mut watch = start(pair, "report: {interval: 1s, top: 15}\n", "")?;
    send(&mut watch)?;
    let reports = watch.stop(Loss::None)?;
    collector.stop(Signal::TERM)?;
    let (expected, printed) = (standard_flows(&reports, None)?, nfdump(&scratch)?);
    ensure!(printed == expected, "nfdump prints {printed:#?}, and the reports have {expected:#?}");
    Ok(())
}

fn nfcapd_multiplies_what_was_sampled() -> Result<()> {
    let scratch = Scratch::new()?;
    let pair = Lab::quiet_pair()?;
    let collector = nfcapd(&pair, &scratch)?;
    let mut watch = start(pair, &format!("{INTERVAL}sampling: {{packets: 4}}\n"), "")?;
    send(&mut watch)?;
    let reports = watch.stop(Loss::None)?;
    collector.stop(Signal::TERM)?;
    let (expected, printed) = (standard_flows(&reports, Some(4))?, nfdump(&scratch)?);
    ensure!(printed == expected, "nfdump prints {printed:#?}, and the reports have {expected:#?}");
    Ok(())
}

fn nfacctd_prints_them_with_their_interfaces() -> Result<()> {
    let scratch = Scratch::new()?;
    let pair = Lab::quiet_pair()?;
    let (config, printed) = (scratch.file("nfacctd.conf"), scratch.file("flows.json"));
    let text = format!(
        "nfacctd_ip: 127.0.0.1\nnfacctd_port: {PORT}\nplugins: print\nprint_refresh_time: 1\nprint_output: json\n\
         aggregate: src_host, dst_host, src_port, dst_port, in_iface, out_iface, sampling_rate\n\
         print_output_file: {}\nprint_output_file_append: true\n",
        printed.display()
    );
    fs::write(&config, text)?;
    let command = ["nfacctd", "-f", config.to_str().context("a path is text here")?];
    let collector = Program::start(&pair.observer, &command, &scratch, "waiting for NetFlow/IPFIX data")?;
    let index: Value =
        serde_json::from_str(&pair.observer.ip(&format!("-j link show {}", QuietPair::OBSERVER_INTERFACE))?)?;
    let index = number(&index[0]["ifindex"])?;
    let mut watch = start(pair, &format!("{INTERVAL}{BY_INTERFACE}"), ", view: by_interface")?;
    send(&mut watch)?;
    let reports = watch.stop(Loss::None)?;
    let of_reports = reports.iter().map(|report| &report["interfaces"][0]["index"]);
    ensure!(of_reports.clone().all(|found| *found == index), "{:?} is not {index}", of_reports.collect::<Vec<_>>());
    collector.stop(Signal::INT)?;
    let mut found = Flows::new();
    for line in fs::read_to_string(&printed)?.lines() {
        let row: Value = serde_json::from_str(line)?;
        let address = |field: &str| -> Result<IpAddr> { Ok(row[field].as_str().context("no address")?.parse()?) };
        let interfaces = (number(&row["iface_in"])?, number(&row["iface_out"])?, number(&row["sampling_rate"])?);
        ensure!(interfaces == (index, 0, 1), "in, out, sampling: {line}");
        let key = (address("ip_src")?, address("ip_dst")?, number(&row["port_src"])?, number(&row["port_dst"])?);
        add(&mut found, key, (number(&row["packets"])?, number(&row["bytes"])?));
    }
    let expected = of_rows(rows_by_interface(&reports), None)?;
    ensure!(found == expected, "nfacctd prints {found:#?}, and the reports have {expected:#?}");
    Ok(())
}

/// Every object below this value that has a flow's addresses.
fn flows_of_tshark(value: &Value, flows: &mut Flows) -> Result<()> {
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| flows_of_tshark(value, flows))?,
        Value::Object(fields) => {
            let text = |names: [&str; 2]| names.iter().find_map(|name| fields.get(*name)?.as_str());
            let source = text(["cflow.srcaddr", "cflow.srcaddrv6"]);
            let destination = text(["cflow.dstaddr", "cflow.dstaddrv6"]);
            if let (Some(source), Some(destination)) = (source, destination) {
                let of = |name: &str| fields.get(name).and_then(Value::as_str);
                let count = |name: &str| -> Result<u64> { Ok(of(name).context("a count is missing")?.parse()?) };
                let port = |name: &str| of(name).map_or(Ok(0), str::parse);
                let key = (source.parse()?, destination.parse()?, port("cflow.srcport")?, port("cflow.dstport")?);
                let counts = (count("cflow.packets")?, count("cflow.octets")?);
                ensure!(counts.1 == count("cflow.layer2octetdeltacount").unwrap_or(counts.1), "{fields:?}");
                add(flows, key, counts);
            }
            fields.values().try_for_each(|value| flows_of_tshark(value, flows))?;
        }
        _ => {}
    }
    Ok(())
}

fn over_tcp_nothing_is_missing_after_an_outage() -> Result<()> {
    let scratch = Scratch::new()?;
    let pair = Lab::quiet_pair()?;
    let capture = scratch.file("tcp.pcap");
    let path = capture.to_str().context("a path is text here")?;
    let filter = format!("tcp port {PORT}");
    let command = ["tshark", "-i", "lo", "-f", &filter, "-w", path];
    let sniffer = Program::start(&pair.observer, &command, &scratch, "Capturing on")?;
    let settings = format!("{INTERVAL}{BY_INTERFACE}");
    let mut watch = start(pair, &settings, ", view: by_interface, transport: tcp, timeout: 1s")?;
    // The collector does not listen yet.
    watch.send(Plan { seed: 94, ..Plan::default() }, &mut Oracle::new())?;
    let so_far = watch.daemon.reports()?.len();
    watch.daemon.wait_for_reports(so_far + 2, TIMEOUT)?;
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT);
    let listener = watch.pair.observer.enter(|| TcpListener::bind(address))??;
    // The collector closes the first connection after a while, and keeps the second one.
    let reader = thread::spawn(move || -> std::io::Result<()> {
        let mut some = [0; 4096];
        for mut left in [3_usize, usize::MAX] {
            let (mut stream, _) = listener.accept()?;
            while left > 0 && stream.read(&mut some)? > 0 {
                left -= 1;
            }
        }
        Ok(())
    });
    send(&mut watch)?;
    let reports = watch.stop(Loss::None)?;
    reader.join().expect("it does not panic")?;
    sniffer.stop(Signal::INT)?;
    let port = format!("tcp.port=={PORT},cflow");
    let output =
        Command::new("tshark").args(["-r", path, "-d", &port, "-T", "json", "--no-duplicate-keys"]).output()?;
    let decoded: Value =
        serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let (mut found, expected) = (Flows::new(), of_rows(rows_by_interface(&reports), None)?);
    flows_of_tshark(&decoded, &mut found)?;
    // weir sends records again that the collector had not acknowledged when it closed the connection. So none is
    // missing, and a few may be there twice.
    for (key, (packets, bytes)) in &expected {
        let (sent, sent_bytes) = found.get(key).copied().unwrap_or_default();
        ensure!(
            sent >= *packets && sent_bytes >= *bytes,
            "{key:?}: {sent} of {packets} packets, {sent_bytes} of {bytes} bytes"
        );
    }
    ensure!(found.len() == expected.len(), "{} keys of {}", found.len(), expected.len());
    Ok(())
}
