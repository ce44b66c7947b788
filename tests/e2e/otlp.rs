//! An independent OTLP receiver gets the numbers of each report exactly once. It decodes with the official definitions
//! of OpenTelemetry.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_tests::{
    account::Loss,
    clock,
    daemon::{Daemon, Signal, weir_binary},
    netns::{Lab, Namespace, QuietPair, requirements as of_namespaces},
    oracle::Oracle,
    scratch::Scratch,
    traffic::{Mix, Plan},
};

use crate::watch::{Ended, TIMEOUT, Watch, config, judge, list, native, times, weir_with};

tests![
    an_independent_receiver_has_the_numbers_of_the_reports,
    a_real_collector_passes_on_the_numbers_of_the_reports,
    every_report_comes_once_however_often_weir_is_killed,
    a_receiver_that_refuses_every_report_costs_none,
];

const INTERFACE: &str = QuietPair::OBSERVER_INTERFACE;
const SETTINGS: &str = "report: {interval: 1s}\nviews: [{name: hosts, by: [src_ip], top: 5}]\n";

/// Checks for everything that these tests need: namespaces, a weir with OTLP, and the official definitions.
pub fn requirements() -> Result<(), String> {
    of_namespaces()?;
    let folder = folder();
    let list = fs::read(folder.join("requirements.txt"));
    if !list.is_ok_and(|list| list == include_bytes!("otlp/requirements.txt")) {
        return Err(format!("no Python with opentelemetry-proto in {}: run scripts/setup", folder.display()));
    }
    let weir = weir_binary().map_err(|error| format!("{error:#}"))?;
    let scratch = Scratch::new().map_err(|error| format!("{error:#}"))?;
    let config = scratch.file("weir.yaml");
    let sink = "interfaces: [lo]\nsinks: [{type: otlp, url: 'http://127.0.0.1:9/v1/metrics'}]\n";
    fs::write(&config, sink).map_err(|error| error.to_string())?;
    let checked = Ended::of(Command::new(weir).arg("check").arg("--config").arg(&config));
    let checked = checked.map_err(|error| format!("{error:#}"))?;
    if checked.err.contains("built without OTLP") {
        return Err("weir is built without OTLP: cargo build -p weir --bin weir --features otlp".to_owned());
    }
    Ok(())
}

/// Where `scripts/setup` puts the Python and its packages.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("opentelemetry")
}

/// A process in a namespace; killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a process that has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The receiver of OTLP requests.
struct Receiver {
    _running: Running,
    folder: Scratch,
    port: u16,
}

impl Receiver {
    fn start(namespace: &Namespace) -> Result<Self> {
        let scratch = Scratch::new()?;
        let log = scratch.file("log");
        write(&scratch.file("behaviour"), "accept")?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/otlp/receiver.py");
        let mut command = namespace.command(folder().join("bin/python"));
        command.arg(script).arg(scratch.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(fs::File::create(&log)?).spawn().context("cannot start the receiver")?;
        let mut receiver = Self { _running: Running(child), folder: scratch, port: 0 };
        let port = receiver.folder.file("port");
        let said = clock::wait_for("the receiver's port", TIMEOUT, || Ok(fs::read_to_string(&port).ok()));
        receiver.port = said.with_context(|| fs::read_to_string(&log).unwrap_or_default())?.parse()?;
        Ok(receiver)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/metrics", self.port)
    }

    fn behave(&self, behaviour: &str) -> Result<()> {
        write(&self.folder.file("behaviour"), behaviour)
    }

    fn lines(&self, name: &str) -> Result<Vec<Value>> {
        let text = match fs::read_to_string(self.folder.file(name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        // The last line may be half written.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// Waits until this many requests were answered with this status, and nothing else went wrong.
    fn wait_for_answers(&self, status: u16, count: usize) -> Result<()> {
        clock::wait_for(&format!("{count} answers of {status}"), TIMEOUT, || {
            let answers = self.lines("requests")?;
            Ok((answers.iter().filter(|answer| answer["status"] == status).count() >= count).then_some(()))
        })
    }

    /// Checks that all requests were valid OTLP.
    fn check_requests(&self) -> Result<()> {
        for request in self.lines("requests")? {
            let why = &request["why"];
            ensure!(
                [json!(""), json!("as told"), json!("no room for three points")].contains(why),
                "what weir sent is not OTLP: {request}"
            );
        }
        Ok(())
    }

    /// The reports that arrived. Repeated reports must have the same numbers.
    fn arrived(&self) -> Result<Arrived> {
        self.check_requests()?;
        let mut arrived = Arrived::default();
        for resource in self.lines("received")? {
            let points = Points::of(&resource)?;
            let observer = points.resource("service.instance.id")?;
            if let Ok(lost) = points.one("weir.reports.lost.first_seq", &[]) {
                let last = points.one("weir.reports.lost.last_seq", &[])?;
                let numbers = whole(&lost["as_int"])?..=whole(&last["as_int"])?;
                let run = attribute(&lost, "run").context("whose?")?;
                let reports = points.one("weir.reports.lost", &[])?;
                ensure!(whole(&reports["as_int"])? == numbers.clone().count() as u64, "{resource}");
                let reason = attribute(&reports, "reason").context("why?")?;
                arrived.lost.extend(numbers.map(|seq| (format!("{observer}/{run}/{seq}"), reason.clone())));
                continue;
            }
            let seq = points.one("weir.report.seq", &[])?;
            let run = attribute(&seq, "run").context("of which run?")?;
            let id = format!("{observer}/{run}/{}", whole(&seq["as_int"])?);
            arrived.times += 1;
            let before = arrived.reports.insert(id.clone(), points);
            ensure!(before.is_none_or(|before| before == arrived.reports[&id]), "{id} came twice, and not the same");
        }
        Ok(arrived)
    }
}

/// Replaces a file atomically.
fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(&new, path)?)
}

/// The content of a receiver.
#[derive(Default)]
struct Arrived {
    /// Reports by their ids.
    reports: BTreeMap<String, Points>,
    /// Ids of lost reports, with the reason.
    lost: BTreeMap<String, String>,
    /// How many reports arrived, including repetitions.
    times: usize,
}

/// The points of one resource, as protobuf's JSON has them.
#[derive(Clone, Debug, PartialEq)]
struct Points {
    resource: Vec<Value>,
    metrics: BTreeMap<String, Vec<Value>>,
}

impl Points {
    fn of(resource: &Value) -> Result<Self> {
        let mut metrics = BTreeMap::new();
        for scope in list(&resource["scope_metrics"])? {
            ensure!(scope["scope"]["name"] == "weir", "{}", scope["scope"]);
            for metric in list(&scope["metrics"])? {
                let name = metric["name"].as_str().context("a metric without a name")?;
                let (kind, data) = ["sum", "gauge", "histogram"]
                    .iter()
                    .find_map(|kind| Some((*kind, metric.get(*kind)?)))
                    .with_context(|| format!("{metric}"))?;
                let is_delta = data["aggregation_temporality"] == "AGGREGATION_TEMPORALITY_DELTA";
                ensure!(is_delta == (kind != "gauge"), "{metric}");
                ensure!(kind != "sum" || data["is_monotonic"] == true, "{metric}");
                ensure!(metric["unit"].is_string() && metric["description"].is_string(), "{metric}");
                let before = metrics.insert(name.to_owned(), list(&data["data_points"])?.clone());
                ensure!(before.is_none(), "{name} is there twice");
            }
        }
        Ok(Self { resource: list(&resource["resource"]["attributes"])?.clone(), metrics })
    }

    fn resource(&self, key: &str) -> Result<String> {
        attribute(&json!({"attributes": self.resource}), key).with_context(|| format!("no {key}"))
    }

    /// All points of a metric with these attributes.
    fn all(&self, name: &str, attributes: &[(&str, &str)]) -> Vec<&Value> {
        let has =
            |point: &&Value| attributes.iter().all(|(key, value)| attribute(point, key).as_deref() == Some(*value));
        self.metrics.get(name).into_iter().flatten().filter(has).collect()
    }

    /// The value of the only such point.
    fn one(&self, name: &str, attributes: &[(&str, &str)]) -> Result<Value> {
        let found = self.all(name, attributes);
        let [one] = found[..] else {
            anyhow::bail!("{} points of {name} with {attributes:?}, among {:?}", found.len(), self.metrics.keys())
        };
        Ok(one.clone())
    }
}

/// An attribute of a point, as text.
fn attribute(point: &Value, key: &str) -> Option<String> {
    let all = point["attributes"].as_array()?;
    let value = &all.iter().find(|attribute| attribute["key"] == key)?["value"];
    value["string_value"].as_str().or_else(|| value["int_value"].as_str()).map(str::to_owned)
}

/// A number of 64 bits, which protobuf's JSON has as text.
fn whole(value: &Value) -> Result<u64> {
    value.as_str().and_then(|text| text.parse().ok()).with_context(|| format!("{value} is not a number"))
}

/// A field of a row as text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn nanoseconds(time: &Value) -> Result<u64> {
    let time: jiff::Timestamp = time.as_str().context("a time")?.parse()?;
    Ok(u64::try_from(time.as_nanosecond())?)
}

/// Compares the received points of a report with the report itself.
fn compare(report: &Value, points: &Points) -> Result<()> {
    let (start, end) = (nanoseconds(&report["window"]["start"])?, nanoseconds(&report["window"]["end"])?);
    for (name, all) in &points.metrics {
        for point in all {
            ensure!(whole(&point["time_unix_nano"])? == end, "{name}: {point} is not at the end of the window");
        }
    }
    let sum = |name: &str, attributes: &[(&str, &str)], expected: &Value| -> Result<()> {
        let point = points.one(name, attributes)?;
        let has = whole(&point["as_int"])?;
        ensure!(Some(has) == expected.as_u64(), "{name} {attributes:?}: {has}, and the report has {expected}");
        ensure!(whole(&point["start_time_unix_nano"])? == start, "{name}: {point} does not begin with the window");
        Ok(())
    };
    let gauge = |name: &str, attributes: &[(&str, &str)], expected: &Value| -> Result<()> {
        let point = points.one(name, attributes)?;
        let is_same = match whole(&point["as_int"]) {
            Ok(has) => Some(has) == expected.as_u64(),
            Err(_) => point["as_double"].as_f64() == expected.as_f64(),
        };
        ensure!(is_same, "{name} {attributes:?}: {point}, and the report has {expected}");
        Ok(())
    };
    let estimate = |name: &str, attributes: &[(&str, &str)], expected: &Value| -> Result<()> {
        for (ending, field) in [("", "value"), (".lower", "lower"), (".upper", "upper")] {
            gauge(&format!("{name}{ending}"), attributes, &expected[field])?;
        }
        Ok(())
    };
    for unit in ["packets", "bytes"] {
        sum(&format!("weir.{unit}"), &[], &report["totals"][unit])?;
    }
    for interface in list(&report["interfaces"])? {
        let own = [("interface", interface["name"].as_str().context("name")?), ("direction", "ingress")];
        let ledger = &interface["ledger"];
        for unit in ["packets", "bytes"] {
            sum(&format!("weir.interface.seen.{unit}"), &own, &ledger["seen"][unit])?;
            let name = format!("weir.interface.accounted.{unit}");
            let mut parts = 0;
            for kind in ["attributed", "sampled_out"] {
                sum(&name, &[&own[..], &[("kind", kind)]].concat(), &ledger[kind][unit])?;
                parts += 1;
            }
            for kind in ["skipped", "lost"] {
                for (reason, tally) in ledger[kind].as_object().context("reasons")? {
                    sum(&name, &[&own[..], &[("kind", kind), ("reason", reason)]].concat(), &tally[unit])?;
                    parts += 1;
                }
            }
            ensure!(points.all(&name, &own).len() == parts, "{name}: there are others");
        }
        gauge("weir.interface.kept", &own, &interface["kept"])?;
        let sizes = points.one("weir.interface.packet.size", &own)?;
        let counts: Vec<_> = list(&interface["packet_sizes"])?.iter().map(|class| class[1].to_string()).collect();
        ensure!(sizes["bucket_counts"] == json!(counts), "{sizes} is not {counts:?}");
    }
    for of in ["src_ip", "dst_ip", "flows"] {
        estimate("weir.unique", &[("of", of)], &report["unique"][of])?;
    }
    estimate("weir.new_flows", &[], &report["new_flows"])?;
    for view in list(&report["views"])? {
        let name = view["name"].as_str().context("name")?;
        // Addresses are exported only for views of the configuration.
        if name == "talkers" {
            ensure!(points.all("weir.view.bytes", &[("view", name)]).is_empty(), "{name} are sent");
            continue;
        }
        let one_table = json!([{"rows": view["rows"]}]);
        let mut rows = 0;
        for table in list(if view["rows"].is_null() { &view["tables"] } else { &one_table })? {
            let interface = ["interface", "direction"].map(|key| (key, table[key].as_str()));
            for row in list(&table["rows"])? {
                rows += 1;
                let fields = row.as_object().context("a row")?.iter();
                let key = fields.filter(|(name, _)| !["rank", "packets", "bytes"].contains(&name.as_str()));
                let key: Vec<_> = key.map(|(name, value)| (name.as_str(), text(value))).collect();
                let mut own: Vec<_> = key.iter().map(|(name, value)| (*name, value.as_str())).collect();
                own.extend(interface.iter().filter_map(|(key, value)| Some((*key, (*value)?))));
                own.push(("view", name));
                for measure in ["packets", "bytes"] {
                    estimate(&format!("weir.view.{measure}"), &own, &row[measure])?;
                }
            }
        }
        let told = points.all("weir.view.bytes", &[("view", name)]).len();
        ensure!(told == rows, "{name} has {rows} rows, and {told} came");
    }
    gauge("weir.memory.planned", &[], &report["self"]["memory_bytes"])
}

fn an_independent_receiver_has_the_numbers_of_the_reports() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let receiver = Receiver::start(&pair.observer)?;
    let settings = format!("interfaces: [{}]\n{SETTINGS}", native(INTERFACE));
    let url = receiver.url();
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        let mut text = config(&settings, reports);
        // Two sinks send to the same receiver with different queries, so each has its own spool.
        for (nth, compress) in ["gzip", "none"].into_iter().enumerate() {
            text +=
                &format!("  - {{type: otlp, url: \"{url}\", compress: {compress}, headers: {{X-Nth: \"{nth}\"}}}}\n");
        }
        text += &format!("  - {{type: otlp, url: \"{url}\", addresses: prefix, headers: {{X-Nth: \"2\"}}}}\n");
        text
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let mut watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 91, mix: Mix::odd(), ..Plan::default() }, &mut oracle)?;
    receiver.behave("partial")?;
    watch.daemon.wait_for_line("rejects some of their data points", TIMEOUT)?;
    receiver.behave("503")?;
    receiver.wait_for_answers(503, 3)?;
    receiver.behave("accept")?;
    watch.send(Plan { seed: 92, ..Plan::default() }, &mut oracle)?;
    watch.daemon.wait_for_reports(5, TIMEOUT)?;
    let reports = watch.stop(Loss::None)?;
    judge("the reports in the file", oracle.check_reports(&reports))?;
    let mut masked = BTreeMap::new();
    let mut full: BTreeMap<String, Vec<Points>> = BTreeMap::new();
    for resource in receiver.lines("received")? {
        let points = Points::of(&resource)?;
        let seq = points.one("weir.report.seq", &[])?;
        let observer = points.resource("service.instance.id")?;
        let id = format!("{observer}/{}/{}", attribute(&seq, "run").context("run")?, whole(&seq["as_int"])?);
        match points.resource("weir.addresses") {
            Ok(_) => drop(masked.insert(id, points)),
            Err(_) => full.entry(id).or_default().push(points),
        }
    }
    for report in &reports {
        let id = report["id"].as_str().context("id")?;
        let both = full.get(id).with_context(|| format!("{id} never came"))?;
        ensure!(both.len() == 2, "{id} came {} times for two sinks", both.len());
        for points in both {
            compare(report, points).with_context(|| id.to_owned())?;
        }
        let masked = masked.get(id).with_context(|| format!("{id} never came without addresses"))?;
        for row in masked.all("weir.view.bytes", &[]) {
            let Some(key) = attribute(row, "src_ip") else { continue };
            ensure!(key.ends_with(".0") || key.ends_with("::"), "{key} has bits that this sink may not know");
        }
    }
    ensure!(full.len() == reports.len(), "{} reports came, and there are {}", full.len(), reports.len());
    let rows = full.values().flatten().map(|points| points.all("weir.view.bytes", &[]).len()).sum::<usize>();
    ensure!(rows > 0, "no row of a view ever came: this tests nothing");
    receiver.check_requests()
}

/// Starts Rotel in a namespace, where it listens on OTLP's standard ports and forwards everything to the receiver.
fn start_rotel(namespace: &Namespace, receiver: &Receiver, scratch: &Scratch) -> Result<Running> {
    const FIND: &str = "import importlib.util as u; print(u.find_spec('rotel').submodule_search_locations[0])";
    let found = Ended::of(Command::new(folder().join("bin/python")).args(["-c", FIND]))?;
    found.check(0, &[])?;
    let mut command = namespace.command(Path::new(found.out.trim()).join("rotel-agent"));
    command.args(["start", "--exporter", "otlp", "--otlp-exporter-protocol", "http"]);
    command.args(["--otlp-http-endpoint", "127.0.0.1:4318", "--otlp-grpc-endpoint", "127.0.0.1:4317"]);
    command.arg("--otlp-exporter-endpoint").arg(format!("http://127.0.0.1:{}", receiver.port));
    command.arg("--pid-file").arg(scratch.file("pid")).arg("--log-file").arg(scratch.file("rotel.log"));
    command.stdin(Stdio::null()).stdout(fs::File::create(scratch.file("log"))?);
    command.stderr(fs::File::create(scratch.file("errors"))?);
    Ok(Running(command.spawn().context("cannot start rotel")?))
}

fn a_real_collector_passes_on_the_numbers_of_the_reports() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let receiver = Receiver::start(&pair.observer)?;
    let scratch = Scratch::new()?;
    let _rotel = start_rotel(&pair.observer, &receiver, &scratch)?;
    let settings = format!("interfaces: [{}]\n{SETTINGS}", native(INTERFACE));
    let mut daemon = Daemon::start(Some(&pair.observer), |reports| {
        config(&settings, reports) + "  - {type: otlp, url: \"http://127.0.0.1:4318/v1/metrics\"}\n"
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    let mut watch = Watch { pair, daemon };
    let mut oracle = Oracle::new();
    watch.send(Plan { seed: 93, mix: Mix::odd(), ..Plan::default() }, &mut oracle)?;
    watch.daemon.wait_for_reports(3, TIMEOUT)?;
    // The collector answers a request before it passes it on.
    let arrived = clock::wait_for("two reports by way of the collector", TIMEOUT, || {
        let arrived = receiver.arrived()?.reports;
        Ok((arrived.len() >= 2).then_some(arrived))
    });
    let arrived = arrived.with_context(|| fs::read_to_string(scratch.file("errors")).unwrap_or_default())?;
    let reports = watch.stop(Loss::None)?;
    judge("the reports in the file", oracle.check_reports(&reports))?;
    for (id, points) in &arrived {
        let report = reports.iter().find(|report| report["id"] == **id).context("a report that weir did not make")?;
        compare(report, points).with_context(|| id.clone())?;
    }
    Ok(())
}

/// weir with a receiver as its only sink, and with a spool that outlives it.
fn start(pair: &QuietPair, state: &Scratch, receiver: &Receiver) -> Result<Daemon> {
    let scratch = Scratch::new()?;
    let program = weir_with(&[("STATE_DIRECTORY", state.path())], &scratch)?;
    let mut daemon = Daemon::start_program(&program, Some(&pair.observer), |_| {
        let sink = format!("{{type: otlp, url: \"{}\", timeout: 500ms, queue: 8}}", receiver.url());
        format!("interfaces: [{INTERFACE}]\nreport: {{interval: 1s}}\nsinks: [{sink}]\n")
    })?;
    daemon.wait_for_line("INFO measuring ", TIMEOUT)?;
    Ok(daemon)
}

/// The ids in the spool that have this state.
fn spooled(state: &Scratch, what: &str) -> Result<BTreeSet<String>> {
    let mut command = Command::new(weir_binary()?);
    let listed = Ended::of(command.args(["spool", "ls", "--json", "--path"]).arg(state.file("spool")))?;
    listed.check(0, &[])?;
    let items: Vec<Value> = listed.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let ids = items
        .iter()
        .filter(|item| item["state"].as_str().is_some_and(|state| state.starts_with(what)))
        .filter_map(|item| item["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

fn every_report_comes_once_however_often_weir_is_killed() -> Result<()> {
    const SCRIPT: [&str; 4] = ["503", "lost", "accept", "404"];
    let pair = Lab::quiet_pair()?;
    let receiver = Receiver::start(&pair.observer)?;
    let state = Scratch::new()?;
    let kills = times().unwrap_or(SCRIPT.len() as u32);
    let mut on_disk = BTreeSet::new();
    for (kill, behaviour) in (0..kills).zip(SCRIPT.iter().cycle()) {
        receiver.behave(behaviour)?;
        let mut daemon = start(&pair, &state, &receiver)?;
        // Each kill comes at a different moment of the window of one second.
        thread::sleep(Duration::from_millis(1500 + u64::from(kill * 6101 % 1000)));
        daemon.signal(Signal::KILL)?;
        daemon.wait(TIMEOUT)?;
        ensure!(!daemon.log()?.contains("panicked"), "{}", daemon.log()?);
        on_disk.extend(spooled(&state, "waits")?);
    }
    ensure!(!on_disk.is_empty(), "nothing ever waited on the disk: this tests nothing");
    receiver.behave("accept")?;
    let mut daemon = start(&pair, &state, &receiver)?;
    clock::wait_for("an empty spool", TIMEOUT, || Ok(spooled(&state, "waits")?.is_empty().then_some(())))?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = receiver.arrived()?;
    ensure!(arrived.times > arrived.reports.len(), "nothing came twice: this tests nothing");
    for id in &on_disk {
        ensure!(arrived.reports.contains_key(id), "{id} was on the disk, and never came");
    }
    ensure!(arrived.lost.is_empty(), "there was room for all, but {:?} are lost", arrived.lost);
    let numbers: BTreeSet<u64> = arrived
        .reports
        .keys()
        .map(|id| id.rsplit('/').next().unwrap_or_default().parse().context("a number"))
        .collect::<Result<_>>()?;
    ensure!(numbers.len() == arrived.reports.len(), "a number is there twice: {:?}", arrived.reports.keys());
    let (first, last) = (numbers.first().context("reports")?, numbers.last().context("reports")?);
    let missing = last - first + 1 - numbers.len() as u64;
    // A window that was open or not on disk yet is lost with the killed weir.
    ensure!(missing <= u64::from(kills), "{missing} numbers are missing after {kills} kills");
    Ok(())
}

fn a_receiver_that_refuses_every_report_costs_none() -> Result<()> {
    let pair = Lab::quiet_pair()?;
    let receiver = Receiver::start(&pair.observer)?;
    let state = Scratch::new()?;
    receiver.behave("reports 400")?;
    let mut daemon = start(&pair, &state, &receiver)?;
    daemon.wait_for_line("400 Bad Request: as told", TIMEOUT)?;
    clock::wait_for("reports that wait", TIMEOUT, || Ok((spooled(&state, "waits")?.len() >= 4).then_some(())))?;
    ensure!(receiver.lines("received")?.is_empty(), "no tombstone: nothing is given up");
    receiver.behave("accept")?;
    clock::wait_for("an empty spool", TIMEOUT, || Ok(spooled(&state, "waits")?.is_empty().then_some(())))?;
    daemon.signal(Signal::TERM)?;
    ensure!(daemon.wait(TIMEOUT)?.success(), "{}", daemon.log()?);
    let arrived = receiver.arrived()?;
    ensure!(spooled(&state, "refused")?.is_empty() && arrived.lost.is_empty(), "{:?}", arrived.lost);
    let last = arrived.reports.keys().filter_map(|id| id.rsplit('/').next()?.parse::<u64>().ok()).max();
    ensure!(last == Some(arrived.reports.len() as u64), "{} came, up to {last:?}", arrived.reports.len());
    Ok(())
}
